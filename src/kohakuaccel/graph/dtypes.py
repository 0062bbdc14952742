"""What a value of the graph may be made of: the formats of `kohakuaccel.numerics`, truth values, machine words, FP64.

Decides which arithmetic (real, int, bool, word) a format belongs to, and how a format is written down. It must not know
which engine computes in which format: a value's format says what it must be able to hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from kohakuaccel import numerics
from kohakuaccel.diagnostics import DefinitionError, Refusal, did_you_mean
from kohakuaccel.numerics import IntFormat, ScalarFormat, ValueSet

Kind = Literal["real", "int", "bool", "word"]
"""The arithmetic of a scalar: float64, exact int64, truth values, or integers modulo 2**bits. Kinds never mix without a
cast, and neither do words of different formats."""


@dataclass(frozen=True)
class BoolFormat(ValueSet):
    """Truth values, as a set of values {0, 1}: so every format answers whether it holds them exactly."""

    name: str = "BOOL"

    def __str__(self) -> str:
        return self.name

    @property
    def max(self) -> float:
        return 1.0

    @property
    def lowest(self) -> float:
        return 0.0

    @property
    def smallest(self) -> float:
        return 1.0

    @property
    def extras(self) -> frozenset[str]:
        return frozenset({"zero"})

    def quantum(self, exponent: int) -> int:
        return 0


BOOL = BoolFormat()
"""The format of masks."""


@dataclass(frozen=True)
class WordFormat(ValueSet):
    """Machine words: integers modulo 2**bits, read as unsigned or in two's complement. What overflows wraps around.

    An `IntFormat` is the other meaning of the same bits: there a result that does not fit is refused.
    """

    name: str
    bits: int
    signed: bool

    def __str__(self) -> str:
        return self.name

    @property
    def max(self) -> float:
        return float(2 ** (self.bits - self.signed) - 1)

    @property
    def lowest(self) -> float:
        return -float(2 ** (self.bits - 1)) if self.signed else 0.0

    @property
    def smallest(self) -> float:
        return 1.0

    @property
    def extras(self) -> frozenset[str]:
        return frozenset({"zero", "negative values"} if self.signed else {"zero"})

    def quantum(self, exponent: int) -> int:
        return 0


WORDS: Mapping[str, WordFormat] = {
    f"{letter}{bits}": WordFormat(f"{letter}{bits}", bits, letter == "S") for bits in (8, 16, 32, 64) for letter in "SU"
}
"""S8, U8, ... S64, U64."""


@dataclass(frozen=True)
class Float64Format(ValueSet):
    """IEEE double precision: what the ruler itself computes in."""

    name: str = "FP64"
    bits: int = 64

    def __str__(self) -> str:
        return self.name

    @property
    def max(self) -> float:
        return float(np.finfo(np.float64).max)

    @property
    def lowest(self) -> float:
        return -self.max

    @property
    def smallest(self) -> float:
        return 5e-324

    @property
    def extras(self) -> frozenset[str]:
        return frozenset({"zero", "negative zero", "negative values", "Inf", "NaN"})

    def quantum(self, exponent: int) -> int:
        return max(exponent, -1022) - 52


FP64 = Float64Format()
"""Double precision."""

DType = ScalarFormat | IntFormat | BoolFormat | WordFormat | Float64Format

SHIPPED: Mapping[str, DType] = {
    f.name: f
    for f in (
        numerics.FP32,
        numerics.FP16,
        numerics.BF16,
        numerics.E8M15,
        numerics.FP22,
        numerics.FP8E4M3,
        numerics.FP8E5M2,
        numerics.FP8E4M3FNUZ,
        numerics.FP8E5M2FNUZ,
        numerics.INT8,
        numerics.INT16,
        numerics.INT32,
        BOOL,
        FP64,
        *WORDS.values(),
    )
}
"""Formats a text or a file may name without describing them."""


def kind_of(dtype: DType) -> Kind:
    """The arithmetic that values of `dtype` take part in."""
    if isinstance(dtype, ScalarFormat | Float64Format):
        return "real"
    if isinstance(dtype, WordFormat):
        return "word"
    if isinstance(dtype, IntFormat):
        return "int"
    if isinstance(dtype, BoolFormat):
        return "bool"
    raise DefinitionError(
        "a value's dtype is a scalar format, an integer format, a word or BOOL", where="graph", got=type(dtype).__name__
    )


_NUMPY: Mapping[Kind, np.dtype[Any]] = {"real": np.dtype("<f8"), "int": np.dtype("<i8"), "bool": np.dtype("?")}


def numpy_of(dtype: DType) -> np.dtype[Any]:
    """What the interpreter holds values of a format in: float64, int64, bool, or the word's own type."""
    if isinstance(dtype, WordFormat):
        return np.dtype(f"<{'i' if dtype.signed else 'u'}{dtype.bits // 8}")
    return _NUMPY[kind_of(dtype)]


def describe(dtypes: Iterable[DType]) -> dict[str, dict[str, Any]]:
    """The fields of every format of `dtypes` that does not ship, by name: what `declared` reads back."""
    found: dict[str, dict[str, Any]] = {}
    for dtype in dtypes:
        if SHIPPED.get(dtype.name) == dtype:
            continue
        fields = {"type": type(dtype).__name__, **asdict(dtype)}
        if dtype.name in SHIPPED or found.get(dtype.name, fields) != fields:
            raise DefinitionError("two formats of one graph have one name", where="graph", got=dtype.name)
        found[dtype.name] = fields
    return dict(sorted(found.items()))


def declared(described: Mapping[str, Mapping[str, Any]]) -> dict[str, DType]:
    """Every format a text or a file may name: the shipped ones and those `described` by their fields."""
    classes = {"ScalarFormat": ScalarFormat, "IntFormat": IntFormat}
    known = dict(SHIPPED)
    for name, fields in described.items():
        rest = {k: v for k, v in fields.items() if k != "type"}
        made = classes.get(str(fields.get("type")))
        if made is None or rest.get("name") != name or name in SHIPPED:
            raise Refusal(
                "a described format has a type, its own name and no shipped name", where=f"format {name}", got=fields
            )
        try:
            known[name] = made(**rest)
        except TypeError as error:
            raise Refusal("a described format has the fields of its type", where=f"format {name}", got=error) from None
    return known


def named(name: str, known: Mapping[str, DType]) -> DType:
    """The format called `name`."""
    if name not in known:
        raise Refusal(f"a dtype is a known format{did_you_mean(name, known)}", where="graph", got=name)
    return known[name]
