"""Conversions between scalar formats that prove their own safety.

Decides whether a conversion may happen and what is counted. It must not know bit positions: values travel as
float64, which holds every value of every scalar format, NaN payloads included.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.numerics.base import Tally
from kohakuaccel.numerics.formats import IntFormat, ScalarFormat


def convert(
    codes: ArrayLike,
    src: ScalarFormat | IntFormat,
    dst: ScalarFormat | IntFormat,
    *,
    exact: bool = False,
    tally: Tally | None = None,
) -> NDArray[Any]:
    """Codes of `src`, any shape, to codes of `dst` with one rounding.

    exact=True refuses a pair of formats in which any value could change, whatever the array holds. A value
    that saturates, or a NaN that `dst` lacks, is a `Refusal` unless a `tally` is passed to count it. A NaN
    keeps its sign and top payload bits; where the payload narrows the quiet bit is set (datasheet 2.8).
    """
    if exact:
        why = dst.obstacles(src)
        if why:
            raise Refusal(
                "an exact conversion needs every source value in the destination",
                where=f"{src.name} -> {dst.name}",
                got="; ".join(why),
                hint="drop exact=True, or go through a wider format",
            )
    values = src.decode(codes)
    if isinstance(dst, IntFormat):
        return dst.encode(values, tally=tally)
    narrows = isinstance(src, ScalarFormat) and dst.man_bits < src.man_bits
    return dst.encode(values, tally=tally, nan="quieted" if narrows else "kept")
