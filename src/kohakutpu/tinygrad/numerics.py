"""What tinygrad's numbers may become on this machine: a scope, and what the environment asks for.

Decides nothing by itself; the engine asks before it takes a kernel to the device. See docs/tinygrad.md.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Literal, get_args

from kohakuaccel.diagnostics import Refusal

Matmul = Literal["mxfp7", "split"]
Float32 = Literal["device", "update", "host"]
Host = Literal["allow", "refuse"]
Join = Literal["allow", "off"]


@dataclass(frozen=True)
class Numerics:
    """matmul: "mxfp7", or "split" for results as accurate as the tensors' type. float32: whether such kernels run on
    vector cores, which keep 16 bits; "update": those too that change a buffer in place, where a change below 2^-17 of
    the value vanishes. host: whether kernels that the machine has no units for may run on the host. join: whether
    kernels that tinygrad cut apart may be one."""

    matmul: Matmul = "mxfp7"
    float32: Float32 = "device"
    host: Host = "allow"
    join: Join = "allow"


def _chosen(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise Refusal(f"{name} is one of {', '.join(allowed)}", where="kohakutpu.tinygrad", got=value)
    return value


_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "matmul": get_args(Matmul),
    "float32": get_args(Float32),
    "host": get_args(Host),
    "join": get_args(Join),
}


def from_environment() -> Numerics:
    """KTPU_MATMUL, KTPU_FLOAT32, KTPU_HOST and KTPU_JOIN, each with its default."""
    found = Numerics()
    for name, allowed in _OPTIONS.items():
        text = os.environ.get(f"KTPU_{name.upper()}")
        if text is not None:
            found = replace(found, **{name: _chosen(f"KTPU_{name.upper()}", text, allowed)})
    return found


_current: ContextVar[Numerics | None] = ContextVar("kohakutpu.tinygrad.numerics", default=None)


def current() -> Numerics:
    """What holds here."""
    found = _current.get()
    return from_environment() if found is None else found


@contextmanager
def numerics(
    *,
    matmul: Matmul | None = None,
    float32: Float32 | None = None,
    host: Host | None = None,
    join: Join | None = None,
) -> Generator[Numerics]:
    """A scope: `with numerics(matmul="split"): loss.realize()`. It holds for kernels that run inside it; `join` for
    those that are scheduled inside it."""
    given = {"matmul": matmul, "float32": float32, "host": host, "join": join}
    chosen = {name: _chosen(name, value, _OPTIONS[name]) for name, value in given.items() if value is not None}
    made = replace(current(), **chosen)
    token = _current.set(made)
    try:
        yield made
    finally:
        _current.reset(token)
