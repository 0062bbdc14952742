"""Equal windows of a program as loops (datasheet 10.5): fewer words to load, and a way past the program memory.

Decides which neighbouring windows of words become one body. Addresses are immediates, so only windows of the very same
words are a loop; what they do is the same, and everything behind them only happens later. It must not know what
instructions mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine
from tinytpu.isa.codes import SXU, Column
from tinytpu.isa.words import row_of

LONGEST = 64
"""Words of a body that are looked for."""
COUNTS = 255


@dataclass(frozen=True)
class Rolled:
    """rows: with loops. loops: cycles that they take by themselves, all iterations together."""

    rows: list[list[int]]
    loops: int


@dataclass(frozen=True)
class _Window:
    """`count` times `body` words from `start` on. repeated: how often the place is run. gain: cycles, words: words
    that it saves."""

    start: int
    body: int
    count: int
    repeated: int

    @property
    def words(self) -> int:
        return (self.count - 1) * self.body - 2

    @property
    def loop(self) -> int:
        """LOOP_BEGIN once, LOOP_END every time."""
        return (2 + 2 * self.count) * self.repeated

    @property
    def gain(self) -> int:
        return 2 * self.words - self.loop


def roll(machine: Machine, rows: Sequence[list[int]]) -> Rolled:
    """The rows with the loops that save cycles; as long as they do not fit the program memory, with those that save
    words."""
    made, loops = list(rows), 0
    while True:
        over = len(made) >= machine.params.program_words  # a HALT follows
        best: _Window | None = None
        for window in _windows(made, machine, shortest=1 if over else 2):
            saved, before = (w and (w.words if over else w.gain) for w in (window, best))
            if saved is not None and saved > (before or 0):
                best = window
        if best is None:
            return Rolled(made, loops)
        body = made[best.start : best.start + best.body]
        begin, end = row_of(machine, "LOOP_BEGIN", tlen=best.count), row_of(machine, "LOOP_END")
        made[best.start : best.start + best.body * best.count] = [begin, *body, end]
        loops += best.loop


def _windows(rows: Sequence[list[int]], machine: Machine, shortest: int) -> Iterator[_Window]:
    """Every longest run of equal windows."""
    number: dict[tuple[int, ...], int] = {}
    ids = np.array([number.setdefault(tuple(row), len(number)) for row in rows], np.int64)
    if len(rows) - len(number) < 3:
        return
    level, repeated = _nesting(rows)
    for body in range(shortest, min(LONGEST, len(rows) // 2) + 1):
        equal = ids[:-body] == ids[body:]
        if np.count_nonzero(equal) < body:
            continue  # no window of so many words is there twice
        for start, length in _runs(equal):
            for shift in range(min(body, length - body + 1)):
                count = min((length - shift) // body + 1, COUNTS)
                at = start + shift
                inside = level[at : at + body + 1]
                if inside[0] != inside[-1] or inside.min() < inside[0]:
                    continue  # it would begin or end in the middle of a loop
                if count > 1 and inside.max() < machine.params.loop_depth:
                    yield _Window(at, body, count, int(repeated[at]))
                    break


def _nesting(rows: Sequence[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Before each word and at the end: how many loops are open, and how often the place is run."""
    level, repeated, open_ = [0], [1], [1]
    for row in rows:
        if row[Column.OP] == SXU.LOOP_BEGIN:
            open_.append(open_[-1] * row[Column.TLEN])
        elif row[Column.OP] == SXU.LOOP_END:
            open_.pop()
        level.append(len(open_) - 1)
        repeated.append(open_[-1])
    return np.array(level), np.array(repeated)


def _runs(equal: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Start and length of every run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], equal.view(np.int8), [0]))))
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist()):
        yield start, stop - start
