"""What tinygrad's numbers may become on this machine: a scope, and what the environment asks for.

Decides nothing by itself; the engine asks before it takes a kernel to the device. See docs/tinygrad.md.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from kohakuaccel.frontends.tinygrad.options import Options

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


_OPTIONS = Options(Numerics, "KTPU", "kohakutpu.tinygrad")


def from_environment() -> Numerics:
    """KTPU_MATMUL, KTPU_FLOAT32, KTPU_HOST and KTPU_JOIN, each with its default."""
    return _OPTIONS.from_environment()


def current() -> Numerics:
    """What holds here."""
    return _OPTIONS.current()


def numerics(
    *,
    matmul: Matmul | None = None,
    float32: Float32 | None = None,
    host: Host | None = None,
    join: Join | None = None,
) -> AbstractContextManager[Numerics]:
    """A scope: `with numerics(matmul="split"): loss.realize()`. It holds for kernels that run inside it; `join` for
    those that are scheduled inside it."""
    return _OPTIONS.scope(matmul=matmul, float32=float32, host=host, join=join)
