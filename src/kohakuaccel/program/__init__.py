"""L1: the ordered instructions of each unit, as columns of field values with addresses still relative to buffers.

It decides order; it does not know bit positions (a codec turns rows into payloads) nor where buffers will lie
(`link` adds their addresses).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.image import EncodedProgram, Image
from kohakuaccel.machine import Unit

Rows = NDArray[np.int64]
SourceOf = Callable[[int], "SourceLine | None"]


class Codec(Protocol):
    """How one kind of unit's rows become payload bits and text."""

    @property
    def address_column(self) -> int: ...

    def check(self, rows: Rows, source: SourceOf) -> None:
        """Refuse what the encoder must refuse; `source` gives the user's line of a row number."""
        ...

    def encode(self, rows: Rows) -> NDArray[np.uint64]:
        """int64[n, columns] -> uint64[n, 4] payloads."""
        ...

    def text(self, rows: Rows) -> list[str]:
        """One readable line per row."""
        ...


@dataclass(frozen=True, slots=True)
class UnitProgram:
    """One unit's instruction stream.

    rows: int64[n, columns]; buffer: int32[n], the buffer whose address is added to the row's address column (-1 none);
    source: int32[n], index into the program's sources; passes: where a pass starts (good places to cut).
    """

    unit: Unit
    codec: Codec
    rows: Rows
    buffer: NDArray[np.int32]
    source: NDArray[np.int32]
    passes: NDArray[np.int64]
    acks: tuple[tuple[Unit, int], ...] = ()

    def linked(self, addresses: NDArray[np.int64]) -> Rows:
        """Rows with absolute addresses."""
        rows = self.rows.copy()
        has = self.buffer >= 0
        rows[has, self.codec.address_column] += addresses[self.buffer[has]]
        return rows


PAGE = 4096  # addresses that agree modulo a page pass the same checks


@dataclass(frozen=True, slots=True)
class Program:
    """Stages of unit programs for one schedule."""

    kernel: str
    machine: str
    stages: tuple[tuple[UnitProgram, ...], ...]
    sources: tuple[SourceLine, ...]
    checked: set[tuple[int, ...]] = field(default_factory=set[tuple[int, ...]], compare=False, repr=False)
    """Addresses modulo a page for which every stream passed its checks."""

    def link(self, addresses: Sequence[int]) -> Image:
        """L1 -> L0: encode every stream with the buffers' addresses; the codec refuses what cannot be encoded.

        The checks look at an address's place in its page, so moving a buffer by whole pages does not repeat them.
        """
        base = np.asarray(addresses, np.int64)
        place = tuple((base % PAGE).tolist())
        fresh = place not in self.checked
        stages: list[tuple[EncodedProgram, ...]] = []
        for stage in self.stages:
            encoded: list[EncodedProgram] = []
            for one in stage:
                rows = one.linked(base)
                if fresh:
                    one.codec.check(rows, self._line_of(one))
                encoded.append(EncodedProgram(one.unit, one.codec.encode(rows), one.acks, one.source, one.passes))
            stages.append(tuple(encoded))
        self.checked.add(place)
        return Image(self.machine, tuple(stages), self.sources, self.kernel)

    def _line_of(self, one: UnitProgram) -> SourceOf:
        def line(row: int) -> SourceLine | None:
            number = int(one.source[row])
            return self.sources[number] if number >= 0 else None

        return line

    @property
    def instructions(self) -> int:
        return sum(len(one.rows) for stage in self.stages for one in stage)

    def pretty(self, limit: int | None = 12) -> str:
        """Readable text of every stream; at most `limit` lines per unit (None for all)."""
        lines = [f"program {self.kernel} on {self.machine}: {self.instructions} instructions"]
        for number, stage in enumerate(self.stages):
            for one in stage:
                lines.append(f"  stage {number}  {one.unit.name}: {len(one.rows)} instructions")
                shown = one.rows if limit is None else one.rows[:limit]
                lines += [f"    {text}" for text in one.codec.text(shown)]
                if limit is not None and len(one.rows) > limit:
                    lines.append(f"    ... {len(one.rows) - limit} more")
        return "\n".join(lines)
