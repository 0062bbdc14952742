"""Spans in columns: what sums over a million of them start from, and a sequence of `Span` for everybody else.

It decides how spans are stored and clipped to windows of time. It must not know what a kind or a text means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]


class Span(NamedTuple):
    """`track` is busy with `text` from cycle `start` up to `end`. on: what a span of waiting waits for. line: number
    of the user's line in the timeline's `sources`, -1 where it is not known."""

    track: int
    start: int
    end: int
    kind: str
    text: str
    on: str = ""
    line: int = -1


@dataclass(eq=False, slots=True)
class SpanTable(Sequence[Span]):
    """Spans as int64 columns of one length. kind, text and on are numbers in `names`; on is -1 where nothing is
    waited for."""

    names: list[str]
    track: Ints
    start: Ints
    end: Ints
    kind: Ints
    text: Ints
    on: Ints
    line: Ints

    @classmethod
    def of(cls, spans: Iterable[Span]) -> SpanTable:
        """The same spans in the same order; a table is returned as it is."""
        if isinstance(spans, SpanTable):
            return spans
        if isinstance(spans, LaterSpans):
            return spans.table
        numbers: dict[str, int] = {}
        rows = [
            (
                s.track,
                s.start,
                s.end,
                numbers.setdefault(s.kind, len(numbers)),
                numbers.setdefault(s.text, len(numbers)),
                numbers.setdefault(s.on, len(numbers)) if s.on else -1,
                s.line,
            )
            for s in spans
        ]
        columns = np.array(rows, np.int64).reshape(len(rows), 7).T
        return cls(list(numbers), *(np.ascontiguousarray(column) for column in columns))

    def __len__(self) -> int:
        return len(self.start)

    def _span(self, row: tuple[int, int, int, int, int, int, int]) -> Span:
        track, start, end, kind, text, on, line = row
        names = self.names
        return Span(track, start, end, names[kind], names[text], names[on] if on >= 0 else "", line)

    def _columns(self) -> tuple[Ints, ...]:
        return (self.track, self.start, self.end, self.kind, self.text, self.on, self.line)

    @overload
    def __getitem__(self, index: int) -> Span: ...

    @overload
    def __getitem__(self, index: slice) -> list[Span]: ...

    def __getitem__(self, index: int | slice) -> Span | list[Span]:
        if isinstance(index, slice):
            rows = zip(*(column[index].tolist() for column in self._columns()), strict=True)
            return [self._span(row) for row in rows]
        track, start, end, kind, text, on, line = (int(column[index]) for column in self._columns())
        return self._span((track, start, end, kind, text, on, line))

    def __iter__(self) -> Iterator[Span]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other))

    def moved(self, cycles: int, tracks: Sequence[int], lines: Sequence[int]) -> SpanTable:
        """The same spans `cycles` later, their tracks and lines under new numbers."""
        line = np.array([*lines, -1], np.int64)[self.line]
        track = np.asarray(tracks, np.int64)[self.track]
        return SpanTable(self.names, track, self.start + cycles, self.end + cycles, self.kind, self.text, self.on, line)

    @classmethod
    def joined(cls, tables: Sequence[SpanTable]) -> SpanTable:
        """The spans of all tables, one table after the other."""
        numbers: dict[str, int] = {}
        place = [np.array([*(numbers.setdefault(n, len(numbers)) for n in t.names), -1], np.int64) for t in tables]

        def column(of: Callable[[SpanTable], Ints]) -> Ints:
            return np.concatenate([of(t) for t in tables]) if tables else np.zeros(0, np.int64)

        def named(of: Callable[[SpanTable], Ints]) -> Ints:
            return np.concatenate([p[of(t)] for p, t in zip(place, tables)]) if tables else np.zeros(0, np.int64)

        return cls(
            list(numbers),
            column(lambda t: t.track),
            column(lambda t: t.start),
            column(lambda t: t.end),
            named(lambda t: t.kind),
            named(lambda t: t.text),
            named(lambda t: t.on),
            column(lambda t: t.line),
        )

    def number(self, name: str) -> int:
        """The number of a kind or text; -1 when no span has it."""
        return self.names.index(name) if name in self.names else -1

    def clipped(self, edges: ArrayLike) -> tuple[Ints, Ints, Ints]:
        """What lies in which window: (row, window, cycles > 0), where window w is `edges[w]` up to `edges[w + 1]`.

        edges: int[w + 1], not falling.
        """
        edges = np.asarray(edges, np.int64)
        windows = len(edges) - 1
        low = np.maximum(self.start, edges[0])
        high = np.minimum(self.end, edges[-1])
        rows = np.flatnonzero(high > low)
        first = np.searchsorted(edges, low[rows], "right") - 1
        last = np.searchsorted(edges, high[rows], "left") - 1
        count = last - first + 1
        row = np.repeat(rows, count)
        window = np.repeat(first, count) + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        window = np.minimum(window, windows - 1)
        cycles = np.minimum(high[row], edges[window + 1]) - np.maximum(low[row], edges[window])
        keep = cycles > 0
        return row[keep], window[keep], cycles[keep]


class LaterSpans(Sequence[Span]):
    """Spans whose table is made when somebody first looks at it."""

    def __init__(self, make: Callable[[], SpanTable]) -> None:
        self._make = make

    @cached_property
    def table(self) -> SpanTable:
        return self._make()

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> Span: ...

    @overload
    def __getitem__(self, index: slice) -> list[Span]: ...

    def __getitem__(self, index: int | slice) -> Span | list[Span]:
        return self.table[index]

    def __iter__(self) -> Iterator[Span]:
        return iter(self.table)

    def __eq__(self, other: object) -> bool:
        return self.table == other


def covered(low: Ints, high: Ints, at: Ints) -> Ints:
    """int64[len(at)]: cycles before each of `at` that at least one of the intervals `low` up to `high` covers."""
    keep = high > low
    low, high = low[keep], high[keep]
    if not len(low):
        return np.zeros(len(at), np.int64)
    order = np.argsort(low, kind="stable")
    low, reach = low[order], np.maximum.accumulate(high[order])
    fresh = np.flatnonzero(np.concatenate(([True], low[1:] > reach[:-1])))
    low, high = low[fresh], reach[np.concatenate((fresh[1:] - 1, [len(reach) - 1]))]
    before = np.concatenate(([0], np.cumsum(high - low)))
    index = np.searchsorted(low, at, "right")
    whole = before[index]
    inside = np.maximum(high[index - 1] - at, 0)
    return whole - np.where(index > 0, inside, 0)
