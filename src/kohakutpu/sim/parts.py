"""The words of a KohakuTPU timeline: kinds of span, and the texts that recorded spans stand for.

It decides wording only. It must not know times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kohakutpu.sim import state as st

KINDS = ("compute", "wait", "filling", "draining", "control", "serve")
WORK = ("compute", "control", "serve")
CREDITS = "credits"
_FIXED = {
    st.X_NO_INSTRUCTION: "no instruction",
    st.X_NO_CREDIT: "no credit",
    st.X_PORT_BUSY: "port busy",
    st.X_QUEUE_FULL: "drain queue full",
    st.X_LINK_BUSY: "link busy",
    st.X_PEERS: "peers not ready",
}


def words(code: int, units: Sequence[str]) -> str:
    """The text behind the number that `fabric.text` packed."""
    kind, a, b, c = code & 255, code >> 8 & 0x3FFFF, code >> 26 & 0x1FFFF, code >> 43
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in (st.X_FILL, st.X_FILL_PREQ):
        return f"FILL {'AB'[a]} {c}{' preq' if kind == st.X_FILL_PREQ else ''}"
    if kind == st.X_GEMM:
        return f"GEMM {a}x{b}x{c}"
    if kind == st.X_EMISSION:
        return f"drain of {c}"
    if kind in (st.X_DRAIN, st.X_DRAIN_FUSED):
        return f"DRAIN {c}{' fused' if kind == st.X_DRAIN_FUSED else ''}"
    if kind == st.X_RUN:
        return f"RUN {a}"
    if kind == st.X_STATE:
        return f"{a} DESC, IMEM"
    if kind == st.X_FLITS:
        return f"{a} flits"
    if kind == st.X_PORT_WRITE:
        return f"{c} words written"
    name = units[a]
    if kind == st.X_DISPATCH:
        return f"dispatch to {name}"
    if kind in (st.X_PORT_FILL, st.X_PORT_PREQ):
        return f"{name} FILL {'AB'[b]} {c}{' preq' if kind == st.X_PORT_PREQ else ''}"
    return f"{name} VFILL {c}"


def flits(code: st.Ints) -> st.Ints:
    """How many flits the spans of a link stand for."""
    return code >> 8 & 0x3FFFF


def port_bytes(code: st.Ints) -> st.Ints:
    """How many bytes of memory the spans of a port stand for."""
    kind, count = code & 255, code >> 43
    size = np.where(kind == st.X_PORT_FILL, 256, np.where(kind == st.X_PORT_PREQ, 128, 32))
    return size * count
