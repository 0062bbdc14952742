"""Products of matrices on the array: which tiles a program computes, and its instructions.

Weight stationary, the rows of a tile gather in a PSUM bucket at their drains; output stationary, a dispatch takes four
terms of all rows, which are merged in a bucket afterwards. Either way a tile is read and finished behind the next
tile's first dispatch, and what is added to it may stand in its bucket before. An outer product is a dispatch that adds
and cuts at zero itself (op 42). It must not know arrays, nor which values are multiplied.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tinytpu.isa.codes import VPU
from tinytpu.lower.code import TOUCH, Carry, Code, Line
from tinytpu.lower.data import Words

PREFETCHED = 4
"""Tiles that are loaded while the array works on the last one."""
Finish = Callable[[Code, int, int], None]
"""Puts a tile (code, value, number of the tile in its program) where it goes."""
Start = Callable[[Code, int], int]
"""What is added to a tile (code, number of the tile in its program) before anything else is done with it."""
Key = tuple[object, ...]
"""Blocks of one key have one program."""


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

    @property
    def key(self) -> Key:
        return self.height, self.width


Ints = NDArray[np.int64]
Slots = dict[tuple[int, int], int]
"""By (tile row or row, vector or K-tile) the slot of AMEM; by (tile column or row, K-tile) that of WMEM."""


class Cut:
    """A cut of products [batch, m, k] x [batch, k, n] in programs of whole tiles, see Matrix and jobs.Jobs."""

    edge: int
    place: Ints
    depth: int
    terms: int
    stationary: bool
    preload: bool
    folds: int
    chunks: int

    @property
    def lanes(self) -> int:
        return self.edge * self.edge

    @property
    def points(self) -> int:
        return self.place.size

    @property
    def ktiles(self) -> int:
        return -(-self.depth // self.edge)

    def fold(self) -> Ints:
        return np.zeros((1, 1, self.lanes), np.int64)

    @abstractmethod
    def point(self) -> Ints:
        """int64[tiles, lanes]: elements of the output; `points` where a lane holds none."""

    @property
    def tiles(self) -> int:
        return len(self.point())

    def gathered(self, tiles: Words) -> Words:
        """The elements of output tiles int32[tiles, lanes]: int32[1, points]."""
        found = np.zeros(self.points + 1, np.int32)
        found[self.point()] = tiles
        return found[None, :-1]

    def chunk(self) -> Iterator[tuple[int, int]]:
        """K-tiles of each program of a block: from, to."""
        for start in range(0, self.ktiles, self.terms):
            yield start, min(start + self.terms, self.ktiles)

    def padded(self) -> Ints:
        """int64[batch, whole tiles of m, whole tiles of n]: place, with `points` where a tile has no element."""
        edge = self.edge
        batch, m, n = self.place.shape
        padded = np.full((batch, -(-m // edge) * edge, -(-n // edge) * edge), self.points, np.int64)
        padded[:, :m, :n] = self.place
        return padded

    @abstractmethod
    def groups(self) -> dict[Key, Ints]:
        """By key, the first tile of every block that has it."""

    @abstractmethod
    def dispatches(self, key: Key, start: int, stop: int) -> Dispatches:
        """The program of the blocks of a key for K-tiles start..stop."""

    @abstractmethod
    def vectors(self, key: Key, at: Sequence[tuple[int, int]]) -> Ints:
        """int64[blocks, slots]: which vector of `product.feeds`, counted through, fills a slot of each block."""

    @abstractmethod
    def weights(self, key: Key, at: Sequence[tuple[int, int]]) -> Ints:
        """int64[blocks, slots]: which weight tile of `product.feeds`."""

    @abstractmethod
    def text(self) -> str:
        """How the array works, and the size of programs."""

    @abstractmethod
    def size(self, key: Key) -> str:
        """How large a block of a key is."""


@dataclass(frozen=True)
class Matrix(Cut):
    """How products [batch, m, k] x [batch, k, n] are cut. place: int64[batch, m, n], the output's element of each.

    tall, wide: tile rows and columns of a program. terms: K-tiles of a program; more are added up through the host.
    stationary: of outputs, else of weights. preload: whether what is added to a tile first stands in its bucket before
    the sums. outer: for depth 1, as an outer product.
    """

    edge: int
    place: Ints
    depth: int
    tall: int
    wide: int
    terms: int
    stationary: bool
    folds: int = 1
    chunks: int = 1
    """As a Layout without a fold has them."""
    preload: bool = False
    outer: bool = False

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

    def groups(self) -> dict[Key, Ints]:
        return {key: np.array([b.first for b in blocks]) for key, blocks in self._by_key.items()}

    @cached_property
    def _by_key(self) -> dict[Key, list[Block]]:
        found: dict[Key, list[Block]] = {}
        for block in self.blocks:
            found.setdefault(block.key, []).append(block)
        return found

    def dispatches(self, key: Key, start: int, stop: int) -> Dispatches:
        block = self._by_key[key][0]
        return Dispatches(self, block.height, block.width, start, stop)

    def _counted(self, key: Key, of: int, each: int, begin: str, at: Sequence[tuple[int, int]]) -> Ints:
        blocks = self._by_key[key]
        first = np.array([b.batch * of + getattr(b, begin) for b in blocks], np.int64)[:, None]
        places = np.array(at, np.int64).reshape(-1, 2)
        return (first + places[:, 0]) * each + places[:, 1]

    def vectors(self, key: Key, at: Sequence[tuple[int, int]]) -> Ints:
        return self._counted(key, -(-self.place.shape[1] // self.edge), self.ktiles * self.edge, "top", at)

    def weights(self, key: Key, at: Sequence[tuple[int, int]]) -> Ints:
        return self._counted(key, -(-self.place.shape[2] // self.edge), self.ktiles, "left", at)

    def text(self) -> str:
        kind = "an outer product" if self.outer else f"{'output' if self.stationary else 'weight'} stationary"
        return f"{kind}, {self.tall}x{self.wide} tiles"

    def size(self, key: Key) -> str:
        return "{} rows, {} tile columns".format(*key)

    @cached_property
    def _point(self) -> Ints:
        edge, padded = self.edge, self.padded()
        found = [
            padded[b.batch, r * edge : (r + 1) * edge, c * edge : (c + 1) * edge].reshape(-1)
            for b in self.blocks
            for r in range(b.top, b.top + -(-b.height // edge))
            for c in range(b.left, b.left + b.width)
        ]
        return np.stack(found)

    def point(self) -> Ints:
        return self._point


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
        assert isinstance(self.matrix, Matrix)
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
