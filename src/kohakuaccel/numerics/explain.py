"""An aid for the reader of bits: what one real value becomes in a format, and why.

Decides the wording. It must not know how codes are computed: it asks the format, then compares exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from kohakuaccel.numerics.base import Tally
from kohakuaccel.numerics.formats import IntFormat, ScalarFormat


@dataclass(frozen=True)
class Explanation:
    """`x` encoded in `format`; str() gives a few aligned lines.

    code and its bit fields, its value, error = value - x (None if not finite) also in ulp at x, the outcome
    in words, and whether it saturated.
    """

    format: str
    x: float
    code: int
    fields: str
    value: float
    error: float | None
    error_ulp: float | None
    outcome: str
    saturated: bool

    def __str__(self) -> str:
        lines = [
            f"{self.format}  {self.x!r} -> {self.code_text} = {self.value!r}",
            f"  fields   {self.fields}",
        ]
        if self.error is not None and self.error_ulp is not None:
            lines.append(f"  error    {self.error:.6g} ({self.error_ulp:.6g} ulp)")
        lines.append(f"  outcome  {self.outcome}")
        return "\n".join(lines)

    @property
    def code_text(self) -> str:
        """The code in hexadecimal, a negative integer code with its sign."""
        return f"{'-' if self.code < 0 else ''}{abs(self.code):X}"


def explain(fmt: ScalarFormat | IntFormat, x: float) -> Explanation:
    """Encode `x`, counting whatever happens, and describe the result."""
    tally = Tally()
    x = float(x)
    code = int(fmt.encode(x, tally=tally))
    value = float(fmt.decode(code))
    error = error_ulp = None
    if math.isfinite(x) and math.isfinite(value):
        exact = Fraction(value) - Fraction(x)
        error, error_ulp = float(exact), float(exact / Fraction(fmt.ulp(x)))
    return Explanation(
        format=fmt.name,
        x=x,
        code=code,
        fields=_fields(fmt, code),
        value=value,
        error=error,
        error_ulp=error_ulp,
        outcome=_outcome(fmt, x, value, error_ulp, tally),
        saturated=tally.saturated > 0,
    )


def _fields(fmt: ScalarFormat | IntFormat, code: int) -> str:
    if isinstance(fmt, IntFormat):
        return f"{code & ((1 << fmt.bits) - 1):0{fmt.bits}b}"
    exp_bits, man_bits = fmt.exp_bits, fmt.man_bits
    sign = f"{code >> (exp_bits + man_bits):b} " if fmt.signed else ""
    exponent = (code >> man_bits) & ((1 << exp_bits) - 1)
    mantissa = f" {code & ((1 << man_bits) - 1):0{man_bits}b}" if man_bits else ""
    return f"{sign}{exponent:0{exp_bits}b}{mantissa}"


def _outcome(fmt: ScalarFormat | IntFormat, x: float, value: float, error_ulp: float | None, tally: Tally) -> str:
    if tally.nan:
        return "NaN, which the format does not have: written as zero and counted"
    if tally.saturated:
        return (
            f"saturated and counted: |x| is beyond [{fmt.smallest:g}, {fmt.max:g}]"
            if "zero" not in fmt.extras
            else (f"saturated and counted: x is beyond [{fmt.lowest:.10g}, {fmt.max:.10g}]")
        )
    if tally.overflowed:
        return f"overflow to Inf: |x| rounds beyond {fmt.max:.10g}"
    if not tally.inexact:
        return "exact"
    if tally.flushed:
        return f"rounded to zero: the smallest magnitude is {fmt.smallest:g}"
    tie = error_ulp is not None and abs(error_ulp) == 0.5
    how = "away from zero" if abs(value) > abs(x) else "towards zero"
    return f"{'tie ' if tie else ''}rounded {how} ({fmt.rounding})"
