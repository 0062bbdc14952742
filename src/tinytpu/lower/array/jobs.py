"""Products cut by rows: any row of any matrix of a batch, four columns of it, is a job; four jobs are a tile.

What has few rows (a vector times a matrix, a batch of them) fills tiles so. Decides which jobs share a program, and how
a row leaves the array: gathered in a bucket, from the dispatch that finishes it itself (op 46), or as the results that
are output after the HALT. It must not know arrays, nor which values are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from tinytpu.lower.array.cut import Cut, Ints, Key
from tinytpu.lower.array.dispatches import Dispatches, Way
from tinytpu.lower.program.code import Code

Leaving = Literal["gathered", "alone", "output"]
"""How sums leave: as rows of a tile, each row on its own, or as `mxu_result` (one job a program)."""
ROW = "MXU_VPU_EPILOGUE"


@dataclass(frozen=True)
class Jobs(Cut):
    """See Cut. many: tiles of a program. Jobs come by matrix, then tile column, then row."""

    edge: int
    place: Ints
    depth: int
    many: int
    terms: int
    leaving: Leaving
    preload: bool = False
    folds: int = 1
    chunks: int = 1
    stationary: bool = False

    @property
    def held(self) -> int:
        """Jobs of a tile."""
        return self.edge if self.leaving == "gathered" else 1

    @cached_property
    def jobs(self) -> Ints:
        """int64[jobs, 3]: matrix of the batch, row, tile column."""
        batch, m, n = self.place.shape
        b, j, i = np.indices((batch, -(-n // self.edge), m))
        return np.stack([b.reshape(-1), i.reshape(-1), j.reshape(-1)], 1)

    @cached_property
    def _point(self) -> Ints:
        rows = self.padded().reshape(*self.place.shape[:1], -1, -(-self.place.shape[2] // self.edge), self.edge)
        b, i, j = self.jobs.T
        held, lanes = self.held, np.full((-(-len(b) // self.held) * self.held, self.edge), self.points, np.int64)
        lanes[: len(b)] = rows[b, i, j]
        if held > 1:
            return lanes.reshape(-1, self.lanes)
        tiles = np.full((len(b), self.lanes), self.points, np.int64)
        tiles[:, : self.edge] = lanes
        return tiles

    def point(self) -> Ints:
        return self._point

    @cached_property
    def _blocks(self) -> dict[Key, list[int]]:
        """By what its jobs share, the first job of every program."""
        found: dict[Key, list[int]] = {}
        for first in range(0, len(self.jobs), self.many * self.held):
            found.setdefault(self._shared(self.jobs[first : first + self.many * self.held]), []).append(first)
        return found

    def _shared(self, jobs: Ints) -> Key:
        """For each job the first one with the same row, and the first one with the same weights."""
        rows: dict[tuple[int, int], int] = {}
        columns: dict[tuple[int, int], int] = {}
        return tuple(
            (rows.setdefault((b, i), n), columns.setdefault((b, j), n)) for n, (b, i, j) in enumerate(jobs.tolist())
        )

    def most(self) -> tuple[int, int]:
        """The most different rows and weight columns of a program."""
        pairs = [[set(each) for each in zip(*key)] for key in self._blocks]  # pyright: ignore[reportArgumentType] - pairs, see _shared
        return max(len(rows) for rows, _ in pairs), max(len(columns) for _, columns in pairs)

    def groups(self) -> dict[Key, Ints]:
        return {key: np.array(first) // self.held for key, first in self._blocks.items()}

    def dispatches(self, key: Key, start: int, stop: int) -> Dispatches:
        return _Rows(self, key, start, stop)

    def _of(self, key: Key, at: Sequence[tuple[int, int]]) -> tuple[Ints, Ints, Ints, Ints]:
        """Of every block and slot: matrix, row and tile column of the job; of every slot what else it holds."""
        places = np.array(at, np.int64).reshape(-1, 2)
        jobs = self.jobs[np.array(self._blocks[key])[:, None] + places[:, 0]]
        return jobs[..., 0], jobs[..., 1], jobs[..., 2], places[:, 1]

    def vectors(self, key: Key, at: Sequence[tuple[int, int]]) -> Ints:
        batch, row, _, k = self._of(key, at)
        tall = -(-self.place.shape[1] // self.edge)
        return (batch * tall + row // self.edge) * (self.ktiles * self.edge) + k * self.edge + row % self.edge

    def weights(self, key: Key, at: Sequence[tuple[int, int]]) -> Ints:
        batch, _, column, k = self._of(key, at)
        return (batch * -(-self.place.shape[2] // self.edge) + column) * self.ktiles + k

    def text(self) -> str:
        return f"weight stationary, {self.many} tiles of {self.held} rows, {self.leaving}"

    def size(self, key: Key) -> str:
        return f"{len(key)} rows of {self.edge} columns"


class _Rows(Dispatches):
    """See Dispatches. amem and wmem are by the job that first has the row, or the column, and the K-tile."""

    def __init__(self, cut: Jobs, key: Key, start: int, stop: int) -> None:
        super().__init__(cut, 1, 1, start, stop)
        self.held, self.leaving = cut.held, cut.leaving
        self.jobs: list[tuple[int, int]] = list(key)  # pyright: ignore[reportAttributeAccessIssue] - pairs, see Jobs
        self.mxu_result = cut.leaving == "output"

    def ways(self, code: Code) -> Iterator[Way]:
        for tile, first in enumerate(range(0, len(self.jobs), self.held)):
            jobs = self.jobs[first : first + self.held]
            each = [
                (r, k, self._weights(column, k), self._vector(row, k))
                for k in range(self.start, self.stop)
                for r, (row, column) in enumerate(jobs)
            ]
            if self.leaving == "gathered":
                yield self.gathered(code, len(jobs), tile % 2, each)
            elif len(each) == 1 and self.leaving == "alone":
                yield self._finished(code, each[0])
            else:
                yield self.alone(code, *self._added(code, tile, each))

    def _added(self, code: Code, tile: int, each: Sequence[tuple[int, int, int, int]]) -> Iterator[Callable[[], None]]:
        """Dispatches whose sums add up in the array, which is clear at first."""
        form = "MXU" if len(each) == 1 else "MXU_ACCUMULATE"
        if tile and len(each) > 1:
            yield lambda: _without(code, "MXU_CLEAR", {})
        for _, _, weights, vector in each:
            fields = {"wbase": weights, "abase": vector, "tlen": 1}
            yield lambda fields=fields: _without(code, form, fields)

    @staticmethod
    def _finished(code: Code, job: tuple[int, int, int, int]) -> Way:
        """A dispatch that waits for its sums itself."""
        values: list[int] = []
        fields: dict[str, int | str] = {"wbase": job[2], "abase": job[3], "tlen": 1, "vpu": "COPY", "src": 0}

        def dispatch() -> None:
            values.append(code.effect(ROW, {}, fields, made=True))

        return Way(False, lambda value: None, [dispatch], lambda: lambda last: values[0])


def _without(code: Code, form: str, fields: dict[str, int]) -> None:
    code.effect(form, {}, fields, made=False)
