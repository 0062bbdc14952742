"""What each scalar operation and each fold computes, over numpy arrays of the three kinds.

Decides their meaning at the ends (division by zero, NaN, integer division) once, for the interpreter and for constant
folding, and what changes nothing under a fold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.dtypes import DType, Kind, kind_of

Array = NDArray[Any]


def _divided(what: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    if (b == 0).any():
        raise Refusal(
            "an integer divisor is not zero",
            where="graph",
            got=0,
            hint="choose the divisor: where(b == 0, 1, b); both sides of a where are computed",
        )
    return what(a, b)


_TABLE: Mapping[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "idiv": lambda a, b: _divided(np.floor_divide, a, b),
    "mod": lambda a, b: _divided(np.mod, a, b),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "not": np.logical_not,
    "less": np.less,
    "equal": np.equal,
    "max": np.maximum,
    "min": np.minimum,
    "fma": lambda a, b, c: a * b + c,
    "where": np.where,
    "neg": np.negative,
    "abs": np.abs,
    "exp2": np.exp2,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "recip": lambda a: 1.0 / a,
    "sin": np.sin,
    "floor": np.floor,
}
_FOLDS: Mapping[str, Callable[..., Array]] = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}


def compute(name: str, args: list[Array]) -> Array:
    """An operation over arrays that broadcast. IEEE ends without warnings are the caller's `np.errstate`."""
    return _TABLE[name](*args)


def fold(op: str, values: Array, axes: tuple[int, ...]) -> Array:
    """A reduction over `axes`; a NaN wins max and min, as in `compute`."""
    return _FOLDS[op](values, axis=axes)


def convert(values: Array, to: Kind, where: str) -> Array:
    """A cast between kinds: reals are cut towards zero; NaN, Inf and what int64 does not hold are refused."""
    if to == "bool":
        return values != 0
    if to == "real":
        return values.astype(np.float64)
    if values.dtype.kind == "f" and not (np.abs(values) < 2.0**63).all():
        raise Refusal("a real that becomes an integer is finite and fits", where=where, got="NaN, Inf or beyond 2**63")
    return values.astype(np.int64)


JOIN: Mapping[str, str] = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
"""The operation that a fold repeats."""


def identity(op: str, dtype: DType) -> float | int | bool:
    """What a fold of values of `dtype` may take in without changing."""
    kind = kind_of(dtype)
    if op in ("sum", "prod"):
        number = 0 if op == "sum" else 1
        return float(number) if kind == "real" else number
    if kind == "real":
        return -math.inf if op == "max" else math.inf
    if kind == "bool":
        return op == "min"
    return int(dtype.lowest if op == "max" else dtype.max)
