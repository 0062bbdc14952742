"""What tinygrad's kernels may become on this machine: a scope, and what the environment asks for.

Decides nothing by itself; the engine asks before it takes a kernel to the device.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from kohakuaccel.frontends.tinygrad.options import Options

Host = Literal["allow", "refuse"]
Join = Literal["allow", "off"]
Mxu = Literal["fits", "demanded", "never"]


@dataclass(frozen=True)
class Numerics:
    """host: whether kernels that the machine has no program for may run on the host; the machine's numbers are exact
    otherwise. join: whether kernels that tinygrad cut apart may be one. mxu: products of integers go to the array where
    operands are int8, always (others are refused), or never. No option changes a bit of a result."""

    host: Host = "allow"
    join: Join = "allow"
    mxu: Mxu = "fits"


_OPTIONS = Options(Numerics, "TINYTPU", "tinytpu.tinygrad")


def from_environment() -> Numerics:
    """TINYTPU_HOST, TINYTPU_JOIN and TINYTPU_MXU, each with its default."""
    return _OPTIONS.from_environment()


def current() -> Numerics:
    """What holds here."""
    return _OPTIONS.current()


def numerics(
    *, host: Host | None = None, join: Join | None = None, mxu: Mxu | None = None
) -> AbstractContextManager[Numerics]:
    """A scope: `with numerics(host="refuse"): loss.realize()`. It holds for kernels that run inside it; `join` for
    those that are scheduled inside it."""
    return _OPTIONS.scope(host=host, join=join, mxu=mxu)
