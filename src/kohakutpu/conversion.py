"""How a caller's numbers become FP16 values, the usual storage format of this machine's memory (datasheet 2.1), or
FP32 ones, which its vector cores read and write as well (2.8).

Decides: which inputs are accepted, how they round, what happens beyond a format's range, which dtype a tensor shows.
It must not know tensors, layouts or devices.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kohakuaccel.diagnostics import Refusal

Overflow = Literal["refuse", "saturate", "inf"]
Half = NDArray[np.float16]
Real = NDArray[np.floating[Any]]  # float16 or float32
Shown = np.dtype[Any]  # float16 or float32

HALF: Shown = np.dtype(np.float16)
SINGLE: Shown = np.dtype(np.float32)
LARGE = 1 << 16  # elements from which compiled conversions are worth loading
# Every integer of at least this magnitude rounds to Inf; clipping here first makes int64 -> float64 exact.
_BEYOND = 1 << 17
_E8M15_MAX = math.ldexp(2.0 - 2.0**-15, 127)
_E8M15_OVERFLOWS = math.ldexp(2.0 - 2.0**-16, 127)  # the tie above the largest value rounds to Inf
_E8M15_MIN = math.ldexp(1.0, -126)


def shown_dtype(dtype: np.dtype[Any]) -> Shown:
    """The dtype that a tensor made from `dtype` data shows: float32 stays float32, everything else is
    float16."""
    return SINGLE if dtype.kind == "f" and dtype.itemsize == 4 else HALF  # in any byte order


def asked_dtype(dtype: DTypeLike) -> Shown:
    """A dtype the caller asked for, checked: float16 or float32. Refusal otherwise."""
    chosen = np.dtype(dtype)
    if chosen not in (HALF, SINGLE):
        raise Refusal(
            "a tensor holds and shows float16 or float32",
            where="dtype",
            got=chosen,
            hint="take float32 and convert the array that .numpy() returns",
        )
    return HALF if chosen == HALF else SINGLE


def result_dtype(*dtypes: Shown) -> Shown:
    """The dtype of a result: numpy's result type of the tensor operands, which is float32 if any of them
    is."""
    return SINGLE if SINGLE in dtypes else HALF


def _as_array(value: Any, where: str) -> NDArray[Any]:
    if isinstance(value, np.ma.MaskedArray):
        raise Refusal(
            "a mask has no meaning on this machine",
            where=where,
            got="a masked array",
            hint="fill it: x.filled(value)",
        )
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise Refusal(
            f"a rectangular array of numbers is needed: {error}", where=where, got=type(value).__name__
        ) from error
    if array.dtype.kind == "O" and array.size and all(isinstance(item, int) for item in array.flat):
        clipped = [max(-_BEYOND, min(_BEYOND, int(item))) for item in array.flat]
        return np.array(clipped, np.int64).reshape(array.shape)
    return array


def _round(array: NDArray[Any], where: str) -> Half:
    """One correct rounding (nearest, ties to even) from the source dtype to float16; overflow becomes Inf."""
    kind = array.dtype.kind
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if array.dtype == np.float32 and array.size >= LARGE:
            return _round_large(array)
        if kind == "f" and array.dtype.itemsize <= 8:
            return array.astype(HALF, order="C")
        if kind == "b":
            return array.astype(HALF, order="C")
        if kind in "iu":
            wide = array if array.dtype.itemsize < 4 else np.clip(array, *_integer_bounds(array.dtype))
            return wide.astype(np.float64).astype(HALF, order="C")
        if np.can_cast(array.dtype, np.float32, "safe"):  # bfloat16 and the 8-bit floats of ml_dtypes
            return array.astype(np.float32).astype(HALF, order="C")
    raise _not_real(array, where)


def _round_large(array: NDArray[np.float32]) -> Half:
    from kohakuaccel.numerics.halves import fp16_from_fp32

    half = np.empty(array.shape, HALF)
    source = np.ascontiguousarray(array).reshape(-1).view(np.uint32)
    # Compiled loops have one type: a read-only array would be another one.
    fp16_from_fp32(source if source.flags.writeable else source.copy(), half.reshape(-1).view(np.uint16))
    return half


def from_stored(half: Real, dtype: Shown) -> NDArray[Any]:
    """A fresh C-contiguous array of `dtype` (float16 or float32) with the values of a stored array."""
    if dtype != np.float32 or half.size < LARGE or half.dtype != np.float16:
        return np.array(half, dtype=dtype, order="C")
    from kohakuaccel.numerics.kernels import e8m15_from_fp16

    out = np.empty(half.shape, np.float32)
    e8m15_from_fp16(np.array(half, order="C").reshape(-1).view(np.uint16), out.reshape(-1).view(np.uint32))
    return out


def _integer_bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return max(-_BEYOND, int(info.min)), min(_BEYOND, int(info.max))


def to_half(value: Any, *, overflow: Overflow = "refuse", where: str = "tensor") -> tuple[Half, Shown]:
    """A fresh, C-contiguous, read-only float16 array of `value`'s shape, and the dtype the tensor shows.

    Accepts float16/32/64, bfloat16 and other ml_dtypes floats that float32 holds, integers, bools, nested
    lists and Python scalars, of any strides and byte order. Each value is rounded once, to nearest with ties
    to even; integers that FP16 cannot hold round by the same rule. NaN and Inf enter as they are. A finite
    value that rounds beyond 65504 is refused; overflow="saturate" makes it +-65504, overflow="inf" +-Inf.
    """
    _check_rule(overflow, where)
    array = _as_array(value, where)
    half = _round(array, where)
    bits = half.view(np.uint16)
    infinite = (bits & 0x7FFF) == 0x7C00
    if infinite.any():
        _settle_overflow(array, half, infinite, overflow, where)
    half.setflags(write=False)
    return half, shown_dtype(array.dtype)


def to_single(value: Any, *, overflow: Overflow = "refuse", where: str = "tensor") -> NDArray[np.float32]:
    """A fresh, C-contiguous, read-only float32 array of `value`'s shape: what `to_half` accepts, each value rounded
    once.

    A finite float64 beyond float32's range follows the same rule for overflow.
    """
    _check_rule(overflow, where)
    array = _as_array(value, where)
    kind = array.dtype.kind
    if not (
        (kind == "f" and array.dtype.itemsize <= 8) or kind in "biu" or np.can_cast(array.dtype, np.float32, "safe")
    ):
        raise _not_real(array, where)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = array.astype(SINGLE, order="C")
    infinite = np.isinf(single)
    if infinite.any():
        _settle_overflow(array, single, infinite, overflow, where)
    single.setflags(write=False)
    return single


def _check_rule(overflow: Overflow, where: str) -> None:
    if overflow not in ("refuse", "saturate", "inf"):
        raise Refusal("an overflow rule is one of refuse, saturate, inf", where=where, got=repr(overflow))


def _not_real(array: NDArray[Any], where: str) -> Refusal:
    return Refusal(
        "a tensor is made from real numbers: floats up to float64, bfloat16, integers, bools",
        where=where,
        got=f"dtype {array.dtype}",
        hint="convert it with numpy first",
    )


def _settle_overflow(array: NDArray[Any], made: Real, infinite: NDArray[np.bool_], rule: Overflow, where: str) -> None:
    with np.errstate(invalid="ignore"):  # ml_dtypes flags NaN here
        finite = infinite if array.dtype.kind in "iub" else infinite & ~np.isinf(array)
    if rule == "inf" or not finite.any():
        return
    top = np.finfo(made.dtype).max
    if rule == "saturate":
        made[finite] = np.copysign(top, made[finite])
        return
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(finite)), finite.shape))
    place = f"{where}[{', '.join(map(str, index))}]" if index else where
    count = int(np.count_nonzero(finite))
    raise Refusal(
        f"a value stored in FP{8 * made.dtype.itemsize} stays finite ({count} of {finite.size} do not)",
        where=place,
        got=array[index],
        limit=f"+-{top:g}",
        hint='scale the data, or ask for overflow="saturate" or overflow="inf"',
    )


def is_scalar(value: Any) -> bool:
    """Whether `value` is a number that becomes a kernel constant: a Python or numpy real scalar or 0-d
    array."""
    if isinstance(value, (bool, int, float)):
        return True
    return isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0 and value.dtype.kind in "biuf"


def constant(value: Any, where: str) -> float:
    """A scalar operand as the number that a vector core's 24-bit immediate will hold (E8M15, datasheet 2.6,
    6.3).

    The instruction's encoder rounds it once to E8M15: nearest even, below 2^-126 to zero. NaN and Inf are
    allowed. A finite value that would round to Inf is refused.
    """
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
        value = f"an integer of {int(value).bit_length()} bits"
        finite = True
    else:
        finite = math.isfinite(number)
    if finite and abs(number) >= _E8M15_OVERFLOWS:
        raise Refusal(
            "a kernel constant is an E8M15 immediate",
            where=where,
            got=value,
            limit=f"+-{_E8M15_MAX:.9g}",
            hint="scale the operands, or pass math.inf",
        )
    return number


def reciprocal_constant(value: Any, where: str) -> float:
    """1/value as a kernel constant: division by a scalar is one multiply. 1/0 is Inf and 1/Inf is 0, signs
    kept.

    Refused when the value is finite but its reciprocal leaves E8M15's normal range, where the product and the
    quotient would differ.
    """
    number = constant(value, where)
    if number == 0.0:
        return math.copysign(math.inf, number)
    if not math.isfinite(number):
        return 1.0 / number
    inverse = 1.0 / number if abs(number) > 2.0**-1000 else math.inf
    if not _E8M15_MIN <= abs(inverse) < _E8M15_OVERFLOWS:
        raise Refusal(
            "division by a scalar multiplies by its reciprocal, an E8M15 immediate",
            where=where,
            got=value,
            limit="reciprocals of 2^-126 to 2^128",
            hint="scale the operands",
        )
    return inverse
