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
from kohakuaccel.graph.dtypes import DType, WordFormat, kind_of, numpy_of
from kohakuaccel.numerics import ScalarFormat, Tally

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


def threefry(x: Array, key: Array) -> Array:
    """Threefry-2x32 with 20 rounds: counter and key as two 32-bit halves of a U64, low half first."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, k0, k1 = ((part & low).astype(np.uint32) for part in (x, x >> shift, key, key >> shift))
    keys = (k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA), k0)
    x0, x1 = x0 + keys[2], x1 + keys[0]
    for i in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(r)) + (x1 >> np.uint32(32 - r)))
        x0, x1 = x0 + keys[i % 3], x1 + keys[(i + 1) % 3] + np.uint32(i + 1)
    return (x1.astype(np.uint64) << shift) | x0.astype(np.uint64)


_TABLE: Mapping[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "idiv": lambda a, b: _divided(np.floor_divide, a, b),
    "mod": lambda a, b: _divided(np.mod, a, b),
    "wdiv": np.floor_divide,
    "wmod": np.mod,
    "quot": lambda a, b: np.floor_divide(a - np.fmod(a, b), b),
    "rem": np.fmod,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "threefry": threefry,
    "pow": np.power,
    "cut": np.trunc,
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


def convert(values: Array, dtype: DType, where: str) -> Array:
    """A cast: reals are cut towards zero. To an int, NaN, Inf and what int64 does not hold are refused; to a word, what
    is beyond it wraps around, and NaN, Inf and what 64 bits do not hold become 0."""
    to = kind_of(dtype)
    if isinstance(dtype, WordFormat):
        return to_word(values, dtype)
    if to == "bool":
        return values != 0
    if to == "real":
        return values.astype(np.float64)
    if values.dtype.kind == "f" and not (np.abs(values) < 2.0**63).all():
        raise Refusal("a real that becomes an integer is finite and fits", where=where, got="NaN, Inf or beyond 2**63")
    return values.astype(np.int64)


def to_word(values: Array, dtype: WordFormat) -> Array:
    """Values of any kind as words."""
    target = numpy_of(dtype)
    if values.dtype.kind in "iub":
        return values.astype(target)
    real = values.astype(np.float64)
    signed = np.where(np.abs(real) < 2.0**63, real, 0.0).astype(np.int64)
    if dtype.bits == 64 and not dtype.signed:
        large = (real >= 2.0**63) & (real < 2.0**64)
        return np.where(large, np.where(large, real, 0.0).astype(np.uint64), signed.astype(np.uint64))
    return signed.astype(target)


_FLOATS: Mapping[str, str] = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}


def convert_bits(values: Array, source: DType, dtype: DType) -> Array:
    """The bits of values rounded to `source`, as values of `dtype`."""
    if isinstance(source, WordFormat):
        codes = values
    elif source.name in _FLOATS:
        codes = values.astype(_FLOATS[source.name])
    else:
        assert isinstance(source, ScalarFormat)
        codes = source.encode(values, tally=Tally())
    if isinstance(dtype, WordFormat):
        return np.ascontiguousarray(codes).view(numpy_of(dtype)).reshape(codes.shape)
    if dtype.name in _FLOATS:
        return np.ascontiguousarray(codes).view(_FLOATS[dtype.name]).reshape(codes.shape).astype(np.float64)
    assert isinstance(dtype, ScalarFormat)
    return dtype.decode(np.ascontiguousarray(codes).view(f"<u{codes.dtype.itemsize}").reshape(codes.shape))


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
    if isinstance(dtype, WordFormat):  # whose ends a float does not hold
        low = -1 << dtype.bits - 1 if dtype.signed else 0
        return low if op == "max" else low + (1 << dtype.bits) - 1
    return int(dtype.lowest if op == "max" else dtype.max)
