"""Products of matrices on the array: which tiles a program computes, and its instructions.

Weight stationary, the rows of a tile gather in a PSUM bucket at their drains; output stationary, a dispatch takes four
terms of all rows, which are merged in a bucket afterwards. Either way a tile is read and finished behind the next
tile's first dispatch. It must not know arrays, nor which values are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tinytpu.isa.codes import VPU
from tinytpu.lower.code import TOUCH, Carry, Code, Line
from tinytpu.lower.data import Words

PREFETCHED = 4
"""Tiles that are loaded while the array works on the last one."""
Finish = Callable[[Code, int, int], None]
"""Puts a tile (code, value, number of the tile in its program) where it goes."""


@dataclass(frozen=True)
class Block:
    """Neighbouring tiles of one matrix of the batch: from tile row `top` and tile column `left` on. height: rows of
    elements that hold any (the last tile row may have fewer than a tile); width: tile columns."""

    batch: int
    top: int
    left: int
    height: int
    width: int
    first: int
    """Number of its first tile."""


@dataclass(frozen=True)
class Matrix:
    """How products [batch, m, k] x [batch, k, n] are cut. place: int64[batch, m, n], the output's element of each.

    tall, wide: tile rows and columns of a program. terms: K-tiles of a program; more are added up through the host.
    stationary: of outputs, else of weights.
    """

    edge: int
    place: NDArray[np.int64]
    depth: int
    tall: int
    wide: int
    terms: int
    stationary: bool
    folds: int = 1
    chunks: int = 1
    """As a Layout without a fold has them."""

    @property
    def lanes(self) -> int:
        return self.edge * self.edge

    @property
    def points(self) -> int:
        return self.place.size

    @property
    def ktiles(self) -> int:
        return -(-self.depth // self.edge)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        batch, m, n = self.place.shape
        rows, columns = -(-m // self.edge), -(-n // self.edge)
        found: list[Block] = []
        first = 0
        for b in range(batch):
            for top in range(0, rows, self.tall):
                for left in range(0, columns, self.wide):
                    height = min(m, (top + self.tall) * self.edge) - top * self.edge
                    width = min(self.wide, columns - left)
                    found.append(Block(b, top, left, height, width, first))
                    first += -(-height // self.edge) * width
        return tuple(found)

    def shapes(self) -> dict[tuple[int, int], int]:
        """How many blocks there are of each (height, width)."""
        counts: dict[tuple[int, int], int] = {}
        for block in self.blocks:
            counts[block.height, block.width] = counts.get((block.height, block.width), 0) + 1
        return counts

    @property
    def tiles(self) -> int:
        last = self.blocks[-1]
        return last.first + -(-last.height // self.edge) * last.width

    @cached_property
    def _point(self) -> NDArray[np.int64]:
        edge = self.edge
        batch, m, n = self.place.shape
        padded = np.full((batch, -(-m // edge) * edge, -(-n // edge) * edge), self.points, np.int64)
        padded[:, :m, :n] = self.place
        found = [
            padded[b.batch, r * edge : (r + 1) * edge, c * edge : (c + 1) * edge].reshape(-1)
            for b in self.blocks
            for r in range(b.top, b.top + -(-b.height // edge))
            for c in range(b.left, b.left + b.width)
        ]
        return np.stack(found)

    def point(self) -> NDArray[np.int64]:
        """int64[tiles, lanes]: elements of the output; `points` where a lane holds none."""
        return self._point

    def fold(self) -> NDArray[np.int64]:
        return np.zeros((1, 1, self.lanes), np.int64)

    def gathered(self, tiles: Words) -> Words:
        """The elements of output tiles int32[tiles, lanes]: int32[1, points]."""
        found = np.zeros(self.points + 1, np.int32)
        found[self._point] = tiles
        return found[None, :-1]

    def chunk(self) -> Iterator[tuple[int, int]]:
        """K-tiles of each program of a block: from, to."""
        for start in range(0, self.ktiles, self.terms):
            yield start, min(start + self.terms, self.ktiles)


class Dispatches:
    """A block's code for K-tiles start..stop, of which those before are in carries, one a tile."""

    def __init__(self, matrix: Matrix, height: int, width: int, start: int, stop: int) -> None:
        self.matrix, self.height, self.width, self.start, self.stop = matrix, height, width, start, stop
        self.edge = matrix.edge
        self.amem: dict[tuple[int, int], int] = {}
        self.wmem: dict[tuple[int, int], int] = {}
        self.whole: set[int] = set()

    def code(self, finish: Finish) -> Code:
        """finish: what becomes of a tile's sum over all K-tiles."""
        code = Code()
        before: Callable[[bool], int] | None = None
        tile = 0
        for row in range(-(-self.height // self.edge)):
            rows = min(self.edge, self.height - row * self.edge)
            for column in range(self.width):
                dispatches, read = self._tile(code, row, rows, column, tile)
                for n, dispatch in enumerate(dispatches):
                    dispatch()
                    if n == 0 and before is not None:
                        self._leave(code, before(False), tile - 1, finish)
                before = read()
                tile += 1
        assert before is not None
        waits = len(code.lines)
        self._leave(code, before(True), tile - 1, finish)
        self._prefetch(code, waits)
        return code

    @staticmethod
    def _prefetch(code: Code, waits: int) -> None:
        """What is loaded behind the last wait for the array is loaded before it."""
        while waits and code.lines[waits - 1].form == "LOAD_MXU_MATRIX_ROW":
            waits -= 1
        seen = {value for line in code.lines[:waits] for value in line.reads()}
        late = [value for line in code.lines[waits:] for value in line.reads() if value in code.given]
        fresh = [value for value in dict.fromkeys(late) if value not in seen][:PREFETCHED]
        code.lines[waits:waits] = [Line(TOUCH, None, (("src", value),)) for value in fresh]

    def _leave(self, code: Code, value: int, tile: int, finish: Finish) -> None:
        if self.start:
            value = code.vpu(VPU.ADD, value, code.source(Carry(tile)))
        if self.stop < self.matrix.ktiles:
            code.store(value, Carry(tile))
        else:
            finish(code, value, tile)

    def _weights(self, column: int, k: int) -> int:
        return self.wmem.setdefault((column, k), len(self.wmem))

    def _vector(self, row: int, n: int) -> int:
        """The slot of the vector that is row `n` of a K-tile (weight stationary: of its element row) of a tile row."""
        return self.amem.setdefault((row, n), len(self.amem))

    def _tile(
        self, code: Code, row: int, rows: int, column: int, tile: int
    ) -> tuple[list[Callable[[], object]], Callable[[], Callable[[bool], int]]]:
        """A tile's dispatches; then what reads the array before the next one; then what gives the tile."""
        if self.matrix.stationary:
            return self._outputs(code, row, rows, column)
        return self._rows(code, row, rows, column, tile % 2)

    def _outputs(
        self, code: Code, row: int, rows: int, column: int
    ) -> tuple[list[Callable[[], object]], Callable[[], Callable[[bool], int]]]:
        def dispatch(k: int) -> Callable[[], object]:
            # The vectors of a K-tile stand side by side; all of them are there before the first is used.
            deep = min(self.edge, self.matrix.depth - k * self.edge)
            slots = [self._vector(row, k * self.edge + i) for i in range(deep)]
            form = "MXU_OS" if k == self.start else "MXU_OS_ACCUMULATE"
            fields = {"wbase": self._weights(column, k), "abase": slots[0], "tlen": deep}
            return lambda: code.effect(form, {}, fields, made=False)

        def read() -> Callable[[bool], int]:
            found = [code.effect("LOAD_MXU_MATRIX_ROW", {}, {"src": r}, made=True) for r in range(rows)]
            return lambda last: self._merged(code, found)

        return [dispatch(k) for k in range(self.start, self.stop)], read

    def _merged(self, code: Code, rows: list[int]) -> int:
        if len(rows) == 1:
            return rows[0]
        code.effect("PSUM_WRITE", {"src": rows[0]}, {"vmem": 0}, made=False)
        for r, value in enumerate(rows[1:], 1):
            code.effect("PSUM_ACCUMULATE_ROW", {"src": value}, {"vmem": 0, "dst": r}, made=False)
        return code.effect("PSUM_READ", {}, {"vmem": 0}, made=True)

    def _rows(
        self, code: Code, row: int, rows: int, column: int, bucket: int
    ) -> tuple[list[Callable[[], object]], Callable[[], Callable[[bool], int]]]:
        single = rows == 1 and self.stop - self.start == 1

        def dispatch(r: int, k: int) -> Callable[[], object]:
            fields = {"wbase": self._weights(column, k), "abase": self._vector(row, k * self.edge + r), "tlen": 1}
            if single:
                return lambda: code.effect("MXU", {}, fields, made=False)
            form = "MXU.WRITE" if k == self.start else "MXU.ACCUMULATE"

            def gather() -> None:
                if 1 < rows < self.edge and bucket not in self.whole:
                    code.effect("PSUM_CLEAR", {}, {"vmem": bucket}, made=False)  # rows without elements are read too
                if rows > 1:
                    self.whole.add(bucket)
                code.effect(form, {}, {**fields, "dst": bucket, "src": r}, made=False)

            return gather

        def read() -> Callable[[bool], int]:
            if single:
                value = code.effect("LOAD_MXU_RESULT", {}, {}, made=True)
                return lambda last: value

            def gathered(last: bool) -> int:
                if last:  # nothing behind it waits for the last drain
                    code.effect("WAIT_MXU", {}, {}, made=False)
                if rows == 1:
                    return code.effect("PSUM_READ_ROW", {}, {"vmem": bucket, "src": 0}, made=True)
                return code.effect("PSUM_READ", {}, {"vmem": bucket}, made=True)

            return gathered

        return [dispatch(r, k) for k in range(self.start, self.stop) for r in range(rows)], read
