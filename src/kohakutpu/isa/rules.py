"""Collects what a table of instructions breaks, and raises for the first instruction that breaks anything.

Rules are vectorised masks over the whole table; texts are built only for the one that is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import EncodingRefusal, SourceLine
from kohakuaccel.machine import Unit

Mask = NDArray[np.bool_]
SourceOf = Callable[[int], SourceLine | None]
_Broken = tuple[int, str, str, Callable[[int], Any], Callable[[int], Any], str]


class Rules:
    """`index` maps rows of the masks to instruction numbers (identity when None)."""

    def __init__(self, unit: Unit, text: Callable[[int], str], source: SourceOf | None = None) -> None:
        self.unit = unit
        self.text = text
        self.source = source
        self.first: _Broken | None = None

    def refuse(
        self,
        bad: Mask,
        field: str,
        rule: str,
        got: Callable[[int], Any],
        limit: Callable[[int], Any] | object,
        hint: str,
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        """Notes the first row of `bad` (positions in `rows`, which gives instruction numbers, when given).

        got and limit are called with the position of the row in `bad`.
        """
        if not bad.any():
            return
        at = int(bad.argmax())
        row = at if rows is None else int(rows[at])
        if self.first is not None and self.first[0] <= row:
            return
        limit_of = limit if callable(limit) else lambda _at: limit
        self.first = (row, field, rule, lambda _row: got(at), lambda _row: limit_of(at), hint)

    def close(self) -> None:
        """Raises EncodingRefusal for the first broken instruction, if there is one."""
        if self.first is None:
            return
        row, field, rule, got, limit, hint = self.first
        place = f"{self.unit.name}, instruction {row} ({self.text(row)})"
        source = self.source(row) if self.source is not None else None
        where = f"{place}, field {field}" if field else place
        raise EncodingRefusal(rule, where=where, got=got(row), limit=limit(row), hint=hint, source=source)


def values(column: NDArray[np.int64]) -> Callable[[int], Any]:
    """The `got` of a rule about one column."""
    return lambda i: int(column[i])
