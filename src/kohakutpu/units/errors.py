"""What the codes of the unit models mean, in words: one table for errors, waits and fault codes.

It decides texts and hints only. The units know numbers; whoever reports them asks here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kohakutpu.units import agent_state as codes
from kohakutpu.units import state as s


class Message(NamedTuple):
    """The rule that was broken, what was found, and the way out."""

    rule: str
    hint: str


Details = Sequence[int]


def node_name(packed: int) -> str:
    """ "(x,y) of mesh m" for mesh<<8|y<<4|x."""
    return f"({packed & 15},{packed >> 4 & 15}) of mesh {packed >> 8}"


SHARED = {2: "its members", 3: "addr", 4: "n", 5: "sel", 6: "preq", 7: "eoff", 8: "fbank"}
"""Columns of a cluster's note of a shared FILL (cluster_state.SHARE_*)."""


def _missing(packed: int) -> list[str]:
    """ "(x,y)" of {y,x} bytes, lowest first."""
    found: list[str] = []
    while packed:
        found.append(f"({packed & 15},{packed >> 4 & 15})")
        packed >>= 8
    return found


def _side(d: int) -> str:
    return {0: "A", 1: "B"}.get(d, "L1")


ERRORS: dict[int, Callable[[Details], Message]] = {
    s.E_UNWRITTEN: lambda d: Message(
        f"memory that nobody wrote is read: byte {d[1]:#x} of mesh {d[0]}",
        "upload the operand first, or check the address and length of the transfer (datasheet 9.1)",
    ),
    s.E_ADDRESS: lambda d: Message(
        f"address {d[0] & (1 << 64) - 1:#x} is outside this mesh's memory, misaligned or reserved",
        "addresses are multiples of 32 in the unit's own mesh, below the size of its DRAM (datasheet 3.1)",
    ),
    s.E_PAGE: lambda d: Message(
        f"an entry or burst at {d[0]:#x} crosses a 4 KiB page",
        "align FP16 entries and drain bases to 256 bytes (datasheet 3.2)",
    ),
    s.E_L1_RANGE: lambda d: Message(
        f"L1 {d[0]}..{d[0] + d[1] - 1} is outside its {d[2]} entries or words",
        "offset + count stays within the bank or L1 (datasheet 5.6, 6.3)",
    ),
    s.E_L1_UNWRITTEN: lambda d: Message(
        f"L1 {'word' if d[0] < 0 else 'entry of side ' + _side(d[0])} {d[1]} is read before it was written",
        "FILL (or VFILL, or receive) it first",
    ),
    s.E_LIVE_SWEEP: lambda d: Message(
        f"a FILL of entries {d[1]}..{d[1] + d[2] - 1} of side {_side(d[0])} overlaps what a live sweep reads",
        "fill the other half, or put a GEMM or non-fused DRAIN in between (datasheet 5.3)",
    ),
    s.E_TILE_RANGE: lambda d: Message(
        f"sub-tile {d[0]} is beyond the {d[1]} resident ones",
        "gm*gn and n are at most `tiles` (datasheet 5.6)",
    ),
    s.E_TILE_UNOPENED: lambda d: Message(
        f"sub-tile {d[0]} was never opened, or by a GEMM of another shape",
        "the first GEMM of a tile has acc=0 and the same gm, gn (datasheet 5.6)",
    ),
    s.E_DRAIN_MISMATCH: lambda d: Message(
        "a fused DRAIN differs from the GEMM that emits for it",
        "addr, dnode, dst, dbuf, dflags, dack, dmesh, dfin and n = gm*gn agree (datasheet 5.4)",
    ),
    s.E_FIELD: lambda d: Message(
        f"a field holds {d[1]}, which an encoder must refuse (column {d[0]})", "see datasheet 5.6 and 6"
    ),
    s.E_VFILL_PENDING: lambda d: Message(
        f"L1 word {d[0]} is used while an outstanding VFILL targets it",
        "put a VBAR before the use (datasheet 6.3)",
    ),
    s.E_NODE: lambda d: Message(
        f"data for {node_name(d[0])}, buffer {d[1]}: there is no unit, or it does not take that buffer",
        "MG takes buffers 0 and 1 as packed entries and 2 from an MG, VC takes 0 (datasheet 4.2, 5.6)",
    ),
    s.E_BURST: lambda d: Message(
        f"two CU_DATA bursts are open at {node_name(d[0])}",
        "one sender to a receiver at a time (datasheet 4.2)",
    ),
    s.E_FETCH: lambda d: Message(
        f"a vector program runs past its last word, number {d[0] - 1}", "end it with VHALT (datasheet 6.1)"
    ),
    s.E_SHARE: lambda d: Message(
        f"a shared FILL with tag {d[1]} differs from that of {node_name(d[0])} in {SHARED.get(d[2], 'a field')}",
        "all members name the same set, addr, n, sel, preq, eoff and fbank (datasheet 10, r2_multicast)",
    ),
    s.E_WALK: lambda d: Message(
        f"a fill of {d[0]} lanes is longer than its descriptor's walk of {d[1]}",
        "write the descriptor's counts with TDESC first (datasheet 10, r2_desc_fill)",
    ),
    codes.E_NO_UNIT: lambda d: Message(
        f"a flit of type {d[1]} for {node_name(d[0])}, where no unit is",
        "check PROG_DST or the flit's header",
    ),
    codes.E_FLIT_TYPE: lambda d: Message(
        f"a flit of type {d[1]} for {node_name(d[0])}, which does not take it",
        "a host sends CU_INST (5), CU_CTRL (7) and CU_DATA (8); was the staging slot written?",
    ),
    codes.E_STAGE: lambda d: Message(
        f"a program of {d[1]} flits from slot {d[0]} runs beyond the {d[2]} staging slots",
        "cut it into windows",
    ),
    codes.E_QUEUE: lambda d: Message(
        f"a raw instruction flit for {node_name(d[0])}, whose FIFO of {d[1]} is full", "dispatch under credit"
    ),
    s.E_OUTBOX: lambda d: Message(
        f"one instruction sent {d[0]} bursts and {d[1]} granules of CU_DATA, more than the model holds",
        "drain to nodes in several RUNs",
    ),
}

WAITS: dict[int, Callable[[Details], str]] = {
    s.W_DRAIN_NO_EMIT: lambda d: (
        f"{d[0]} sub-tiles from an emitting GEMM, {d[1]} are outstanding "
        "(fuse=1 needs a GEMM with emit=1 and n = gm*gn before it)"
    ),
    s.W_DRAIN_QUEUE: lambda d: (
        "room in the drain queue of 112 sub-tiles (a DRAIN with fuse=1 must follow the emitting GEMM)"
    ),
    s.W_SHARE: lambda d: (
        f"{' and '.join(_missing(d[1]))} to reach the shared FILL with tag {d[0]} "
        "(all its members run the same shared FILLs in one order)"
    ),
}

NONFINITE = Message(
    "a non-finite operand at the quantiser",
    "MXFP7 has no NaN or Inf; check the operands, or count them with nonfinite='count' (datasheet 2.2)",
)

FAULTS: dict[str, dict[int, Message]] = {
    "MG": {
        0x10: NONFINITE,
        0x11: Message("a bad CU_DATA burst was dropped", "offset, length and buffer fit the cluster (datasheet 4.2)"),
        0x12: Message("an unknown opcode", "FILL 1, GEMM 2, DRAIN 3 (datasheet 5.1); TDESC 4 with r2_desc_fill"),
    },
    "VC": {
        1: Message("F_DTYPE: dtype is neither FP16 nor FP32", "dtype 1 or 2"),
        2: Message("F_VSRC: a V source in a chain word after the head", "use C, S or K there"),
        3: Message("F_CHAIN: a C source in the head of a chain", "the head reads V, S or K"),
        4: Message(
            "F_OPCODE: a word that its mode does not allow",
            "VRED SUM..EXPSUM need TREE, ALU needs FLAT, D2 or D4",
        ),
        5: Message("F_LEN: a walk longer than 256 words", "split the VFILL or VDRAIN"),
        6: Message("F_LOOP: nested VLOOP", "unroll the inner loop"),
        7: Message("F_VL: a vector length of 0 or above 128", "VSETVL takes 1..128; nothing is clamped"),
        8: Message("F_REDVL: a reduction over a VL that is not a multiple of 16", "pad to 16 elements"),
        9: Message("F_CUDATA: a bad CU_DATA burst was dropped", "offset + length stay within L1 (datasheet 4.2)"),
        10: NONFINITE,
        0x10: NONFINITE,
    },
    "mover": {
        1: Message("a GATHER has at most 2048 indices, and as many as its target needs", "gather in pieces"),
        2: Message("a moved word stays inside the mesh's DRAM", "check bases, strides and indices"),
        3: Message("what a move reads starts on a word of 32 bytes", "align sources and index buffers to 32 bytes"),
        4: Message("a move's mode is COPY, GATHER, GENERATE or FILL", "0, 2, 3 or 4 (datasheet 3.4)"),
        5: Message("an immediate's element has 1, 2 or 4 bytes", "0, 1 or 2 (datasheet 3.4)"),
        6: Message("what a move writes starts on a word of 32 bytes", "align the target's base and strides to 32"),
    },
}


def error(code: int, details: Details) -> Message:
    """The text of a RAISED code."""
    if code in ERRORS:
        return ERRORS[code](details)
    return Message(f"error {code} with details {list(details)}", "")


def wait(code: int, details: Details) -> str:
    """What a WAITING unit waits for."""
    if code in WAITS:
        return WAITS[code](details)
    return f"wait reason {code} with details {list(details)}"


def fault(kind: str, code: int) -> Message:
    """The text of a fault code of a unit kind."""
    return FAULTS.get(kind, {}).get(code, Message("a fault code that the datasheet does not list", ""))
