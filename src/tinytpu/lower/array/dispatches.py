"""The instructions of a block of tiles on the array.

Weight stationary, the rows of a tile gather in a PSUM bucket at their drains; output stationary, a dispatch takes four
terms of all rows, which are merged in a bucket afterwards. Either way a tile is read and finished behind the next
tile's first dispatch, and what is added to it may stand in its bucket before. An outer product is a dispatch that adds
and cuts at zero itself (op 42). It must not know arrays, nor which values are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tinytpu.isa.codes import VPU
from tinytpu.lower.array.cut import Cut
from tinytpu.lower.program.code import TOUCH, Carry, Code, Line

PREFETCHED = 4
"""Tiles that are loaded while the array works on the last one."""
Finish = Callable[[Code, int, int], None]
"""Puts a tile (code, value, number of the tile in its program) where it goes."""
Start = Callable[[Code, int], int]
"""What is added to a tile (code, number of the tile in its program) before anything else is done with it."""
Slots = dict[tuple[int, int], int]
"""By (tile row or row, vector or K-tile) the slot of AMEM; by (tile column or row, K-tile) that of WMEM."""


class Way(NamedTuple):
    """A tile's way through the array. early: whether `load` comes before the dispatches, not behind them. load: puts a
    value into the bucket that the sums are added to. read: reads the array before the next tile's dispatches; what it
    returns gives the tile (last: nothing follows that waits for the array)."""

    early: bool
    load: Callable[[int], None]
    dispatches: list[Callable[[], object]]
    read: Callable[[], Callable[[bool], int]]


class Dispatches:
    """A block's code for K-tiles start..stop, of which those before are in carries, one a tile. amem, wmem: what stands
    in which slot, known when the code is made."""

    mxu_result = False
    """Whether the last results are output as they are, instead of a tile."""

    def __init__(self, matrix: Cut, height: int, width: int, start: int, stop: int) -> None:
        self.matrix, self.height, self.width, self.start, self.stop = matrix, height, width, start, stop
        self.edge = matrix.edge
        self.amem: Slots = {}
        self.wmem: Slots = {}
        self.whole: set[int] = set()

    def code(self, finish: Finish, begin: Start | None = None) -> Code:
        """finish: what becomes of a tile's sum over all K-tiles. begin: what stands in the buckets before the sums, for
        a cut that preloads and has all K-tiles in a program."""
        code = Code()
        before: Callable[[bool], int] | None = None
        tile = 0
        for way in self.ways(code):
            start = self._preloaded(code, tile, begin)
            if way.early and start is not None:
                way.load(start)
            for n, dispatch in enumerate(way.dispatches):
                dispatch()
                if n == 0 and before is not None:
                    self._leave(code, before(False), tile - 1, finish)
            if not way.early and start is not None:
                way.load(start)
            before = way.read()
            tile += 1
        assert before is not None
        waits = len(code.lines)
        self._leave(code, before(True), tile - 1, finish)
        self._prefetch(code, waits)
        return code

    def _preloaded(self, code: Code, tile: int, begin: Start | None) -> int | None:
        if not self.matrix.preload:
            return None
        if self.start:
            return code.source(Carry(tile))
        return None if begin is None else begin(code, tile)

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
        if self.start and not self.matrix.preload:
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

    def ways(self, code: Code) -> Iterator[Way]:
        """The tiles in order."""
        tile = 0
        for row in range(-(-self.height // self.edge)):
            rows = min(self.edge, self.height - row * self.edge)
            for column in range(self.width):
                if self.matrix.outer:
                    yield self._outer(code, row, column)
                elif self.matrix.stationary:
                    yield self._outputs(code, row, rows, column)
                else:
                    yield self._rows(code, row, rows, column, tile % 2)
                tile += 1

    def _outer(self, code: Code, row: int, column: int) -> Way:
        """Depth 1: every row of the array holds the weights, the sums of each are a row of the tile."""
        fields = {"wbase": self._weights(column, 0), "abase": self._vector(row, 0), "tlen": 1}
        values: list[int] = []

        def dispatch() -> None:
            values.append(code.effect(OUTER, {}, {**fields, "src": 0}, made=True))

        return Way(False, _never, [dispatch], lambda: lambda last: values[0])

    def _outputs(self, code: Code, row: int, rows: int, column: int) -> Way:
        loaded: list[int] = []

        def dispatch(k: int) -> Callable[[], object]:
            # The vectors of a K-tile stand side by side; all of them are there before the first is used.
            deep = min(self.edge, self.matrix.depth - k * self.edge)
            slots = [self._vector(row, k * self.edge + i) for i in range(deep)]
            form = "MXU_OS" if k == self.start else "MXU_OS_ACCUMULATE"
            fields = {"wbase": self._weights(column, k), "abase": slots[0], "tlen": deep}
            return lambda: code.effect(form, {}, fields, made=False)

        def load(value: int) -> None:
            loaded.append(value)
            code.effect("PSUM_WRITE", {"src": value}, {"vmem": 0}, made=False)

        def read() -> Callable[[bool], int]:
            found = [code.effect("LOAD_MXU_MATRIX_ROW", {}, {"src": r}, made=True) for r in range(rows)]
            return lambda last: self._merged(code, found, bool(loaded))

        return Way(False, load, [dispatch(k) for k in range(self.start, self.stop)], read)

    def _merged(self, code: Code, rows: list[int], loaded: bool) -> int:
        if len(rows) == 1 and not loaded:
            return rows[0]
        if not loaded:
            code.effect("PSUM_WRITE", {"src": rows[0]}, {"vmem": 0}, made=False)
        for r, value in enumerate(rows):
            if r or loaded:
                code.effect("PSUM_ACCUMULATE_ROW", {"src": value}, {"vmem": 0, "dst": r}, made=False)
        return code.effect("PSUM_READ", {}, {"vmem": 0}, made=True)

    def _rows(self, code: Code, row: int, rows: int, column: int, bucket: int) -> Way:
        if rows == 1 and self.stop - self.start == 1 and not self.matrix.preload:
            fields = {"wbase": self._weights(column, self.start), "abase": self._vector(row, self.start * self.edge)}
            return self.alone(code, lambda: code.effect("MXU", {}, {**fields, "tlen": 1}, made=False))
        each = [
            (r, k, self._weights(column, k), self._vector(row, k * self.edge + r))
            for k in range(self.start, self.stop)
            for r in range(rows)
        ]
        return self.gathered(code, rows, bucket, each)

    @staticmethod
    def alone(code: Code, *dispatches: Callable[[], object]) -> Way:
        """One row whose sums are loaded from the array."""

        def read() -> Callable[[bool], int]:
            value = code.effect("LOAD_MXU_RESULT", {}, {}, made=True)
            return lambda last: value

        return Way(False, _never, list(dispatches), read)

    def gathered(self, code: Code, rows: int, bucket: int, each: Sequence[tuple[int, int, int, int]]) -> Way:
        """Rows gathered in a bucket, by dispatches (row, K-tile, weight tile, vector)."""
        loaded: list[int] = []

        def load(value: int) -> None:
            loaded.append(value)
            self.whole.add(bucket)
            code.effect("PSUM_WRITE", {"src": value}, {"vmem": bucket}, made=False)

        def dispatch(r: int, k: int, weights: int, vector: int) -> Callable[[], object]:
            def gather() -> None:
                if 1 < rows < self.edge and bucket not in self.whole:
                    code.effect("PSUM_CLEAR", {}, {"vmem": bucket}, made=False)  # rows without elements are read too
                if rows > 1:
                    self.whole.add(bucket)
                form = "MXU.WRITE" if k == self.start and not loaded else "MXU.ACCUMULATE"
                fields = {"wbase": weights, "abase": vector, "tlen": 1, "dst": bucket, "src": r}
                code.effect(form, {}, fields, made=False)

            return gather

        def read() -> Callable[[bool], int]:
            def found(last: bool) -> int:
                if last:  # nothing behind it waits for the last drain
                    code.effect("WAIT_MXU", {}, {}, made=False)
                if rows == 1:
                    return code.effect("PSUM_READ_ROW", {}, {"vmem": bucket, "src": 0}, made=True)
                return code.effect("PSUM_READ", {}, {"vmem": bucket}, made=True)

            return found

        return Way(True, load, [dispatch(*job) for job in each], read)


OUTER = "MXU_EPILOGUE"


def _never(value: int) -> None:
    raise AssertionError("a tile that goes through no bucket is added to afterwards")
