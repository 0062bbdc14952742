"""Ports with this machine's tilings: sub-tile groups, K chunks of 32, parts of a block, whole rows."""

from __future__ import annotations

from pathlib import Path
from types import EllipsisType
from typing import Literal, Self

import numpy as np
from numpy.typing import DTypeLike

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang.ports import Axis, Port, Tiling
from kohakuaccel.lang.trace import register_language_folder, user_line

register_language_folder(str(Path(__file__).parent))


def _positive(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise Refusal(
            "a tiling size is a positive integer known while tracing",
            where=what,
            got=repr(value),
            hint="make it a keyword parameter of the kernel (a knob)",
            source=user_line(),
        )
    return value


class _Tilings(Port):
    def tiles(self, groups: int) -> Tiling:
        """The port's rows (or, for B, its [N] rows) cut into tiles of `groups` groups of 4 lanes."""
        return Tiling(self, "tiles", _positive(groups, f"{self.name}.tiles"))

    def chunks32(self, blocks: int) -> Tiling:
        """The contraction axis cut into chunks of `blocks` K blocks of 32 elements."""
        return Tiling(self, "chunks32", _positive(blocks, f"{self.name}.chunks32"))

    def parts(self, elements: int | None = None) -> Tiling:
        """One contiguous block cut into parts for the vector cores. Without a size the compiler takes what one
        RUN of a core holds; a given size is a multiple of 16 elements."""
        size = 0 if elements is None else _positive(elements, f"{self.name}.parts")
        if size % 16:
            raise Refusal(
                "a part is whole memory words of 16 elements",
                where=f"{self.name}.parts",
                got=size,
                hint="use a multiple of 16, or no size at all",
                source=user_line(),
            )
        return Tiling(self, "parts", size)

    def rows(self) -> Tiling:
        """The rows of the last axis: one instance sees one whole row, in row order."""
        if not self.axes:
            raise Refusal(
                "a port declared In(...) has no rows",
                where=f"{self.name}.rows",
                hint="declare it as In(..., M, N)",
                source=user_line(),
            )
        return Tiling(self, "rows", 1)


class In(_Tilings):
    """An input tensor: `x=L.In(M, K)`, `L.In(..., M, N)` (leading axes are a batch), `L.In(...)` (any rank).

    With `optional=True` a call may leave it out; the body then gets None in its place. With `quantised=True` it is a
    matmul operand that arrives quantised (`ktpu.mxfp7`), which needs no quantising upload path.
    """

    direction: Literal["in", "out", "temp", "table"] = "in"

    quantised = False

    def __init__(self, *shape: Axis | EllipsisType, optional: bool = False, quantised: bool = False) -> None:
        super().__init__(*shape)
        self.optional = optional
        self.quantised = quantised

    def named(self, name: str) -> Self:
        """A fresh handle of the same declaration, under the parameter's name."""
        handle = super().named(name)
        handle.quantised = self.quantised
        return handle


class Out(_Tilings):
    """An output tensor; never passed, always allocated by the call. dtype: how it is stored, "float16" or "float32";
    unsaid, FP32 where a vector stage writes it from FP32, else FP16."""

    direction: Literal["in", "out", "temp", "table"] = "out"

    def __init__(self, *shape: Axis | EllipsisType, dtype: DTypeLike | None = None) -> None:
        super().__init__(*shape)
        self.stored = stored_name(dtype, "Out")


def stored_name(dtype: DTypeLike | None, where: str) -> str:
    """A storage type by its name, or empty where none is asked for."""
    if dtype is None:
        return ""
    name = np.dtype(dtype).name
    if name not in ("float16", "float32"):
        raise Refusal(
            "memory holds real numbers as float16 or float32",
            where=where,
            got=name,
            hint="leave dtype out, or ask for one of them",
            source=user_line(),
        )
    return name
