"""One entry of the sweep: a method over tensors, the same over numpy's float64, and the operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """ours, theirs: over tensors and over arrays. kinds: of each operand (`made`); shapes: of all operands, each time.

    types: what the operands may be; loose: how much of the tolerance a method needs; product: whether it multiplies
    matrices; mild: rounding to half is not amplified.
    """

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    kinds: tuple[str, ...] = ("real",)
    shapes: tuple[tuple[Shape, ...], ...] = (((3, 5),), ((7,),), ((2, 3, 4),))
    types: tuple[str, ...] = ("float",)
    loose: float = 1.0
    product: bool = False
    mild: bool = True
    core: bool = False


def made(kind: str, shape: Shape, seed: int) -> np.ndarray:
    """Operands: real; positive; above (above 1); unit (inside -1..1); part (0..1); int; small (0..5);
    natural; order; bool."""
    rng = np.random.default_rng(seed)
    if kind == "int":
        return rng.integers(-9, 10, size=shape).astype(np.int32)
    if kind == "order":  # along the first axis, none twice
        return np.argsort(rng.random(shape), axis=0).astype(np.int32)
    if kind in ("small", "natural"):
        return rng.integers(0 if kind == "small" else 1, 6, size=shape).astype(np.int32)
    if kind == "bool":
        return rng.integers(0, 2, size=shape).astype(np.bool_)
    real = rng.uniform(-2.5, 2.5, size=shape)
    found = {
        "real": real,
        "positive": np.abs(real) + 0.2,
        "above": np.abs(real) + 1.1,
        "unit": real / 2.6,
        "part": np.abs(real) / 2.7 + 0.02,
    }[kind]
    return found.astype(np.float16).astype(np.float32)  # a half holds it, so every type takes the same numbers
