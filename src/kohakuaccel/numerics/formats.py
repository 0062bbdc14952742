"""Scalar number formats as values: floats described by their numbers, and two's complement integers.

Decides what a format's codes mean and how a value becomes a code. It must not know tensors, machines or
files; the loops live in `codecs` and are loaded on first use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kohakuaccel.diagnostics import DefinitionError, Refusal, Unsupported
from kohakuaccel.numerics.base import Rounding, Tally, ValueSet, pow2

if TYPE_CHECKING:
    from kohakuaccel.numerics.explain import Explanation

Overflow = Literal["infinity", "saturate", "marker"]
NanRule = Literal["canonical", "quieted", "kept"]

_ROUNDINGS: tuple[str, ...] = ("nearest-even", "nearest-away", "toward-zero")
_OVERFLOWS: tuple[str, ...] = ("infinity", "saturate", "marker")
_ZEROS: tuple[str, ...] = ("none", "unsigned", "signed")
_INF_NANS: tuple[str, ...] = ("ieee", "none", "fn", "fnuz")
_NAN_RULES: tuple[str, ...] = ("canonical", "quieted", "kept")


@dataclass(frozen=True)
class ScalarFormat(ValueSet):
    """A binary float of at most 32 bits: {sign, exponent, mantissa} with a hidden one.

    exp_bits, man_bits, bias: field widths and exponent bias.
    subnormals: exponent 0 holds subnormals; otherwise it is zero whatever the mantissa.
    inf_nan:    "ieee" gives the top exponent to Inf and NaN, "none" has neither. Without Inf, "fn" has a NaN in the
                codes of all ones, "fnuz" in that of minus zero; an Inf becomes NaN there.
    overflow:   where a finite value beyond the range goes: "infinity", "saturate" (the largest value), or
                "marker" (the all-ones pattern, and no other value uses the top exponent; datasheet 2.4).
    rounding:   see `Rounding`; always from the exact value, tininess judged after rounding.
    zero:       "signed", "unsigned" (written as +0 only) or "none" (exponent 0 is an ordinary exponent).
    signed:     whether there is a sign bit.
    """

    name: str
    exp_bits: int
    man_bits: int
    bias: int
    subnormals: bool
    inf_nan: Literal["ieee", "none", "fn", "fnuz"]
    overflow: Overflow
    rounding: Rounding = "nearest-even"
    zero: Literal["signed", "unsigned", "none"] = "signed"
    signed: bool = True

    def __post_init__(self) -> None:
        def check(holds: bool, rule: str, got: object) -> None:
            if not holds:
                raise DefinitionError(rule, where=f"format {self.name}", got=got)

        check(
            1 <= self.exp_bits <= 8 and 0 <= self.man_bits <= 23,
            "1 to 8 exponent and 0 to 23 mantissa bits",
            self,
        )
        check(-512 <= self.bias <= 512, "the bias lies in -512..512", self.bias)
        check(self.rounding in _ROUNDINGS, f"rounding is one of {', '.join(_ROUNDINGS)}", self.rounding)
        check(self.overflow in _OVERFLOWS, f"overflow is one of {', '.join(_OVERFLOWS)}", self.overflow)
        check(self.zero in _ZEROS, f"zero is one of {', '.join(_ZEROS)}", self.zero)
        check(self.inf_nan in _INF_NANS, f"inf_nan is one of {', '.join(_INF_NANS)}", self.inf_nan)
        zero = {"fn": "signed", "fnuz": "unsigned"}.get(self.inf_nan, self.zero)
        check(
            self.inf_nan in ("ieee", "none")
            or (self.signed and self.subnormals and self.overflow == "saturate" and self.zero == zero),
            f"{self.inf_nan} has a sign, subnormals, zero {zero} and saturates",
            self,
        )
        ieee = self.inf_nan == "ieee"
        check(
            not ieee or (self.exp_bits >= 2 and self.man_bits >= 1),
            "Inf and NaN need 2 exponent and 1 mantissa bits",
            self,
        )
        check(ieee or self.overflow != "infinity", "overflow to infinity needs inf_nan ieee", self.overflow)
        check(not ieee or self.overflow != "marker", "a marker needs inf_nan none", self.overflow)
        check(not self.subnormals or self.zero != "none", "subnormals need a zero", self.zero)
        check(not self.subnormals or self.man_bits >= 1, "subnormals need mantissa bits", self.man_bits)
        check(self.signed or self.zero != "signed", "an unsigned format has no signed zero", self.zero)

    def __str__(self) -> str:
        return self.name

    @property
    def bits(self) -> int:
        """Width of a code."""
        return self.exp_bits + self.man_bits + int(self.signed)

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """Smallest unsigned dtype that holds a code, right-aligned."""
        return np.dtype(np.uint8 if self.bits <= 8 else np.uint16 if self.bits <= 16 else np.uint32)

    @property
    def max(self) -> float:
        top = (1 << self.exp_bits) - 1
        if self.inf_nan == "ieee" or self.overflow == "marker":
            top -= 1
        ends = 2 if self.inf_nan == "fn" else 1  # the code above the largest value is its NaN
        return (2 - ends * pow2(-self.man_bits)) * pow2(top - self.bias)

    @property
    def lowest(self) -> float:
        return -self.max if self.signed else 0.0

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal value."""
        return (0 if self.zero == "none" else 1) - self.bias

    @property
    def min_normal(self) -> float:
        """Smallest positive normal value."""
        return pow2(self.min_exponent)

    @property
    def min_subnormal(self) -> float | None:
        """Smallest positive subnormal value; None for a format without subnormals."""
        return pow2(self.min_exponent - self.man_bits) if self.subnormals else None

    @property
    def smallest(self) -> float:
        return self.min_normal if self.min_subnormal is None else self.min_subnormal

    @property
    def marker(self) -> float | None:
        if self.overflow != "marker":
            return None
        return (2 - pow2(-self.man_bits)) * pow2((1 << self.exp_bits) - 1 - self.bias)

    @property
    def extras(self) -> frozenset[str]:
        held: set[str] = set()
        if self.zero != "none":
            held.add("zero")
        if self.zero == "signed":
            held.add("negative zero")
        if self.signed:
            held.add("negative values")
        if self.inf_nan == "ieee":
            held |= {"Inf", "NaN"}
        elif self.inf_nan != "none":
            held.add("NaN")
        return frozenset(held)

    def quantum(self, exponent: int) -> int:
        return max(exponent, self.min_exponent) - self.man_bits

    def ulp(self, x: float) -> float:
        """Spacing of the format's values at |x|: that of its binade, clamped to the format's exponents.

        At zero the spacing of the lowest binade; NaN for a non-finite x.
        """
        if not np.isfinite(x):
            return float("nan")
        top = int(np.frexp(self.max)[1]) - 1
        exponent = min(int(np.frexp(abs(x))[1]) - 1, top) if x else self.min_exponent
        return pow2(self.quantum(exponent))

    def with_overflow(self, overflow: Overflow) -> ScalarFormat:
        """The same codes under another overflow rule."""
        return replace(self, overflow=overflow)

    @cached_property
    def _parameters(self) -> NDArray[np.int64]:
        zero, rounding = _ZEROS.index(self.zero), _ROUNDINGS.index(self.rounding)
        overflow = _OVERFLOWS.index(self.overflow)
        ieee = int(self.inf_nan == "ieee")
        row = (self.exp_bits, self.man_bits, self.bias, int(self.subnormals), ieee, zero, int(self.signed))
        return np.array((*row, overflow, rounding, 0), np.int64)

    def encode(self, values: ArrayLike, *, tally: Tally | None = None, nan: NanRule = "canonical") -> NDArray[Any]:
        """Round real values (any shape, taken as float64) to codes of `code_dtype`.

        A value that would saturate, or a NaN the format has no code for, is a `Refusal` unless a `tally` is
        passed to count it. nan: "canonical" writes the positive quiet NaN without payload (2.6), "quieted"
        keeps sign and top payload bits and sets the quiet bit, "kept" keeps those bits alone.
        """
        from kohakuaccel.numerics import codecs

        source = _as_values(values, self.name)
        flat = np.require(source, requirements=["C", "W"]).reshape(-1)
        codes = np.empty(flat.size, np.uint32)
        counts = np.zeros(codecs.COUNTS, np.int64)
        parameters = self._parameters.copy()
        parameters[codecs.NAN_MODE] = _NAN_RULES.index(nan)
        codecs.encode_float(flat, codes, parameters, self.max, counts)
        if self.inf_nan in ("fn", "fnuz"):
            self._mark_nan(flat, codes, counts, nan)
        _settle(self, flat, counts, tally)
        return codes.astype(self.code_dtype).reshape(source.shape)

    def _mark_nan(
        self, values: NDArray[np.float64], codes: NDArray[np.uint32], counts: NDArray[np.int64], nan: NanRule
    ) -> None:
        """NaN and Inf to the one NaN there is; the kernel has taken both for values beyond the range."""
        from kohakuaccel.numerics import codecs

        infinite, none = np.isinf(values), np.isnan(values)
        sign = np.uint32(1 << (self.bits - 1))
        if self.inf_nan == "fnuz":
            codes[infinite | none] = sign
        else:
            ones = sign - np.uint32(1)
            codes[(codes & ones) == ones] -= np.uint32(1)
            minus = np.signbit(values) & (infinite | (none & (nan != "canonical")))
            codes[infinite | none] = ones
            codes[minus] |= sign
        counts[codecs.NAN] = 0
        counts[[codecs.SATURATED, codecs.INEXACT]] -= int(infinite.sum())

    def decode(self, codes: ArrayLike) -> NDArray[np.float64]:
        """Values float64 of an array of codes, exact; a NaN keeps sign and payload. Refuses what is none."""
        from kohakuaccel.numerics import codecs

        source = _as_codes(codes, self)
        # Writeable, as a read-only array would compile the kernel once more.
        flat = np.require(source, np.uint32, ["C", "W"]).reshape(-1)
        values = np.empty(flat.size, np.float64)
        unlawful = codecs.decode_float(flat, values, self._parameters)
        sign = 1 << (self.bits - 1)
        if self.inf_nan == "fn":
            ones = (flat & (sign - 1)) == sign - 1
            values[ones] = np.copysign(np.nan, values[ones])
        elif self.inf_nan == "fnuz":
            values[flat == sign] = np.nan
        if unlawful:
            raise Refusal(
                "every code is one the format writes",
                where=f"{self.name}.decode",
                got=f"{unlawful} codes that are not",
                limit=self._lawful(),
            )
        return values.reshape(source.shape)

    def _lawful(self) -> str:
        text = f"{self.bits} bits"
        if self.overflow == "marker":
            text += f", top exponent only in the pattern {((1 << self.exp_bits + self.man_bits) - 1):X}"
        return text

    def round(self, values: ArrayLike, *, tally: Tally | None = None) -> NDArray[np.float64]:
        """Values float64 after one rounding to this format: decode(encode(values))."""
        return self.decode(self.encode(values, tally=tally))

    def explain(self, x: float) -> Explanation:
        """What becomes of one value: code, fields, error, rounding direction, saturation. Print it."""
        from kohakuaccel.numerics.explain import explain

        return explain(self, x)


@dataclass(frozen=True)
class IntFormat(ValueSet):
    """A two's complement (or unsigned) integer of 2 to 32 bits; real values are rounded and clamped to it.

    symmetric leaves out the most negative code, as block elements do (datasheet 2.2: q in [-63, 63]).
    """

    name: str
    bits: int
    signed: bool = True
    symmetric: bool = False
    rounding: Rounding = "nearest-even"

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 32:
            raise DefinitionError("integers have 2 to 32 bits", where=f"format {self.name}", got=self.bits)
        if self.symmetric and not self.signed:
            raise DefinitionError("symmetric means signed", where=f"format {self.name}", got=self)
        if self.rounding not in _ROUNDINGS:
            raise DefinitionError(
                f"rounding is one of {', '.join(_ROUNDINGS)}", where=f"format {self.name}", got=self.rounding
            )

    def __str__(self) -> str:
        return self.name

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """Smallest integer dtype of the same signedness; a code is the integer itself."""
        width = 8 if self.bits <= 8 else 16 if self.bits <= 16 else 32
        return np.dtype(f"{'int' if self.signed else 'uint'}{width}")

    @property
    def max(self) -> float:
        return float((1 << (self.bits - int(self.signed))) - 1)

    @property
    def lowest(self) -> float:
        if not self.signed:
            return 0.0
        return -self.max if self.symmetric else -self.max - 1

    @property
    def smallest(self) -> float:
        return 1.0

    @property
    def min_normal(self) -> float:
        """Smallest positive value."""
        return 1.0

    @property
    def min_subnormal(self) -> float | None:
        """None: integers have no subnormals."""
        return None

    @property
    def extras(self) -> frozenset[str]:
        return frozenset({"zero", "negative values"} if self.signed else {"zero"})

    def quantum(self, exponent: int) -> int:
        return 0

    def ulp(self, x: float) -> float:
        """1 everywhere; NaN for a non-finite x."""
        return 1.0 if np.isfinite(x) else float("nan")

    def encode(self, values: ArrayLike, *, tally: Tally | None = None) -> NDArray[Any]:
        """Round real values (any shape, taken as float64) to integers of `code_dtype`.

        Values beyond the range and NaN are a `Refusal` unless a `tally` counts them (NaN gives 0).
        """
        from kohakuaccel.numerics import codecs

        source = _as_values(values, self.name)
        flat = np.require(source, requirements=["C", "W"]).reshape(-1)
        codes = np.empty(flat.size, np.int64)
        counts = np.zeros(codecs.COUNTS, np.int64)
        codecs.encode_integer(flat, codes, int(self.lowest), int(self.max), _ROUNDINGS.index(self.rounding), counts)
        _settle(self, flat, counts, tally)
        return codes.astype(self.code_dtype).reshape(source.shape)

    def decode(self, codes: ArrayLike) -> NDArray[np.float64]:
        """Values float64 of an array of integers; refuses integers outside the format."""
        source = _as_codes(codes, self)
        bad = (source > self.max) | (source < self.lowest)
        if bad.any():
            raise Refusal(
                "every code is one the format writes",
                where=f"{self.name}.decode",
                got=int(source[bad].reshape(-1)[0]),
                limit=f"{int(self.lowest)}..{int(self.max)}",
            )
        return source.astype(np.float64)

    def round(self, values: ArrayLike, *, tally: Tally | None = None) -> NDArray[np.float64]:
        """Values float64 after rounding to this format: decode(encode(values))."""
        return self.decode(self.encode(values, tally=tally))

    def explain(self, x: float) -> Explanation:
        """What becomes of one value: code, error, rounding direction, saturation. Print it."""
        from kohakuaccel.numerics.explain import explain

        return explain(self, x)


def _as_values(values: ArrayLike, name: str) -> NDArray[np.float64]:
    array = np.asarray(values)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        as_float = array.astype(np.float64)
        if ((array > 2**53) | ((array < -(2**53)) if array.dtype.kind == "i" else False)).any():
            raise Refusal(
                "64-bit integers pass through float64",
                where=f"{name}.encode",
                got="an integer beyond 2**53",
                limit="2**53 in magnitude",
                hint="convert it to float64 yourself, once",
            )
        return as_float
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        # ml_dtypes' types are of kind V, yet cast to float64 exactly.
        if array.dtype.kind == "V" and np.can_cast(array.dtype, np.float64):
            return array.astype(np.float64)
        raise Unsupported(
            "values are real numbers that float64 holds",
            where=f"{name}.encode",
            got=array.dtype,
            hint="cast them first",
        )
    return array.astype(np.float64)


def _as_codes(codes: ArrayLike, fmt: ScalarFormat | IntFormat) -> NDArray[Any]:
    array = np.asarray(codes)
    if array.dtype.kind not in "iu":
        raise Unsupported(
            "codes are integers",
            where=f"{fmt.name}.decode",
            got=array.dtype,
            hint="use .view() to read a float array's bits",
        )
    if isinstance(fmt, ScalarFormat) and array.size and (array.dtype.kind == "i" or array.dtype.itemsize == 8):
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >> 32:
            raise Refusal(
                "every code is one the format writes",
                where=f"{fmt.name}.decode",
                got=low if low < 0 else high,
                limit=f"{fmt.bits} bits",
            )
    return array


def _settle(
    fmt: ScalarFormat | IntFormat, values: NDArray[np.float64], counts: NDArray[np.int64], tally: Tally | None
) -> None:
    """Add the kernel's counts to the caller's tally, or refuse what nobody asked to count."""
    from kohakuaccel.numerics import codecs

    saturated, nan = int(counts[codecs.SATURATED]), int(counts[codecs.NAN])
    if tally is not None:
        tally.saturated += saturated
        tally.nan += nan
        tally.overflowed += int(counts[codecs.OVERFLOWED])
        tally.flushed += int(counts[codecs.FLUSHED])
        tally.inexact += int(counts[codecs.INEXACT])
        return
    if not saturated and not nan:
        return
    if nan:
        bad = np.isnan(values)
        rule = "the format has no NaN"
    else:
        bad = ~((values >= fmt.lowest) & (values <= fmt.max)) | ((values == 0) & ("zero" not in fmt.extras))
        bad |= np.abs(values) < (fmt.smallest if "zero" not in fmt.extras else 0.0)
        if fmt.marker is not None:
            bad &= np.abs(values) != fmt.marker
        rule = "values lie within the format's range"
    first = int(np.flatnonzero(bad)[0])
    raise Refusal(
        f"{rule} ({saturated + nan} of {values.size} do not)",
        where=f"{fmt.name}.encode, element {first}",
        got=f"{values[first]:.17g}",
        limit=f"[{fmt.lowest:.17g}, {fmt.max:.17g}]",
        hint="pass tally=Tally() to clamp and count them",
    )
