"""Byte orders of tensors in device memory, as values: who knows a layout knows the bytes, nobody else does.

A layout maps the flattened (row-major, logical) elements of a tensor to bytes and back. Elements are FP16; rows may
hold FP32, two words for what is one word of FP16. It decides padding; it does not know addresses, units or why a kernel
wants it. Sources: datasheet 2.8 (FP32 in memory), 3.2 (granules) and 3.3 (orders).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal

Half = NDArray[np.float16]
Stored = NDArray[np.floating[Any]]  # float16 or float32, as the layout's dtype says
Bytes = NDArray[np.uint8]

LANES = 4  # rows in a sub-tile and in an L1 entry (datasheet 1.3 `lanes`)
KBLOCK = 32  # elements sharing one block scale (`kblock`)
WORD_ELEMENTS = 16  # FP16 elements in a 32-byte word
WORD_BYTES = 32
ENTRY_BYTES = 256  # an FP16 L1 entry: 4 lanes x 32 elements
PREQ_ENTRY_BYTES = 128  # the same entry quantised
BURST_WORDS = 8  # words in a drain burst; drain regions are padded to whole bursts


def ceil_div(a: int, b: int) -> int:
    """Smallest integer >= a / b."""
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Element:
    """How one value is stored. words: 32-byte words of 16 values, the vector core's unit (datasheet 6.3)."""

    name: str
    dtype: np.dtype[np.floating[Any]]
    words: int

    def __str__(self) -> str:
        return self.name


FP16 = Element("fp16", np.dtype(np.float16), 1)
FP32 = Element("fp32", np.dtype(np.float32), 2)


def element_of(dtype: np.dtype[Any]) -> Element:
    """The element that an array's values are stored as: FP32 for float32, FP16 for float16."""
    return FP32 if dtype == FP32.dtype else FP16


@dataclass(frozen=True, slots=True)
class WordRuns:
    """Where a layout's data words lie: `count` runs of `words` consecutive words, each `pitch` words after the last."""

    words: int
    pitch: int
    count: int

    @property
    def total(self) -> int:
        return self.words * self.count


@dataclass(frozen=True, slots=True)
class RowMajor:
    """rows x cols, row after row, each row padded with zeros to `pitch` elements (a multiple of 16, what one vector
    instruction reads at least, also of FP32)."""

    rows: int
    cols: int
    pitch: int
    element: Element = FP16

    @staticmethod
    def of(rows: int, cols: int, element: Element = FP16) -> RowMajor:
        """The row-major layout with the smallest lawful pitch."""
        return RowMajor(rows, cols, WORD_ELEMENTS * ceil_div(max(cols, 1), WORD_ELEMENTS), element)

    @staticmethod
    def of_shape(shape: tuple[int, ...], element: Element = FP16) -> RowMajor:
        """Last axis as columns, the others folded into rows; a scalar is 1 x 1."""
        cols = shape[-1] if shape else 1
        rows = math.prod(shape[:-1]) if len(shape) > 1 else 1
        return RowMajor.of(rows, cols, element)

    def stored_as(self, element: Element) -> RowMajor:
        """The same rows of other elements."""
        return self if element == self.element else replace(self, element=element)

    @property
    def size(self) -> int:
        return self.rows * self.cols

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * self.rows * self.pitch

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        return self.element.dtype

    @property
    def row_words(self) -> int:
        """Words from one row to the next."""
        return self.element.words * self.pitch // WORD_ELEMENTS

    @property
    def runs(self) -> WordRuns:
        return WordRuns(self.rows * self.row_words, self.rows * self.row_words, 1)

    def pack(self, values: Stored) -> Bytes:
        """dtype[size] in logical order -> uint8[nbytes]."""
        if self.pitch == self.cols:
            return np.ascontiguousarray(values, self.dtype).reshape(-1).view(np.uint8)
        out = np.zeros((self.rows, self.pitch), self.dtype)
        out[:, : self.cols] = values.reshape(self.rows, self.cols)
        return out.reshape(-1).view(np.uint8)

    def unpack(self, data: Bytes) -> Stored:
        """uint8[nbytes] -> dtype[size] in logical order."""
        rows = data.view(self.dtype).reshape(self.rows, self.pitch)
        return np.ascontiguousarray(rows[:, : self.cols]).reshape(-1)

    def __str__(self) -> str:
        return f"rows({self.rows}x{self.cols}, pitch {self.pitch})"


class _Halves:
    """An order that only FP16 is stored in."""

    __slots__ = ()

    @property
    def element(self) -> Element:
        return FP16

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        return FP16.dtype


@dataclass(frozen=True, slots=True)
class OperandPack(_Halves):
    """Matmul operand order: (batch, tile, chunk, group, block, lane, k), so that one FILL is one contiguous run.

    rows x cols is one batch element, rows being lanes (rows of A or of B[N][K]) and cols the contraction axis K.
    tile = groups of 4 lanes in a tile, chunk = K blocks of 32 in a chunk. With `preq` the device holds quantised
    entries of 128 bytes; `pack` still gives FP16 bytes, which the quantising upload (order `side`) converts.
    """

    rows: int
    cols: int
    tile: int
    chunk: int
    batch: int = 1
    preq: bool = False
    side: str = "A"

    @property
    def size(self) -> int:
        return self.batch * self.rows * self.cols

    @property
    def tiles(self) -> int:
        """Tiles per batch element."""
        return ceil_div(self.rows, LANES * self.tile)

    @property
    def chunks(self) -> int:
        """K chunks per row."""
        return ceil_div(self.cols, KBLOCK * self.chunk)

    @property
    def entry_bytes(self) -> int:
        return PREQ_ENTRY_BYTES if self.preq else ENTRY_BYTES

    @property
    def entries(self) -> int:
        return self.batch * self.tiles * self.chunks * self.tile * self.chunk

    @property
    def nbytes(self) -> int:
        return self.entries * self.entry_bytes

    def run_offset(self, batch: int, tile: int, chunk: int) -> int:
        """Byte offset of the tile*chunk entries of one (batch, tile, chunk)."""
        return ((batch * self.tiles + tile) * self.chunks + chunk) * self.tile * self.chunk * self.entry_bytes

    def pack(self, values: Stored) -> Bytes:
        """float16[size] in logical order -> FP16 bytes (entries * 256)."""
        return self.arranged(values).reshape(-1).view(np.uint8)

    def arranged(self, values: NDArray[Any]) -> NDArray[Any]:
        """Any [size] in logical order -> [entries, lanes, 32] in the order of memory, zeros where it pads."""
        rows, cols = self.tiles * self.tile * LANES, self.chunks * self.chunk * KBLOCK
        grid = values.reshape(self.batch, self.rows, self.cols)
        if (rows, cols) != (self.rows, self.cols):
            padded = np.zeros((self.batch, rows, cols), values.dtype)
            padded[:, : self.rows, : self.cols] = grid
            grid = padded
        split = grid.reshape(self.batch, self.tiles, self.tile, LANES, self.chunks, self.chunk, KBLOCK)
        return np.ascontiguousarray(split.transpose(0, 1, 4, 2, 5, 3, 6)).reshape(-1, LANES, KBLOCK)

    def unpack(self, data: Bytes) -> Half:
        """FP16 bytes -> float16[size]; refused for quantised operands, whose rounding cannot be undone."""
        if self.preq:
            raise Refusal(
                "a quantised operand cannot be read back as FP16",
                where=str(self),
                hint="read the tensor it was packed from",
            )
        split = data.view(np.float16).reshape(self.batch, self.tiles, self.chunks, self.tile, self.chunk, LANES, KBLOCK)
        grid = split.transpose(0, 1, 3, 5, 2, 4, 6).reshape(
            self.batch, self.tiles * self.tile * LANES, self.chunks * self.chunk * KBLOCK
        )
        return np.ascontiguousarray(grid[:, : self.rows, : self.cols]).reshape(-1)

    def __str__(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        form = " preq" if self.preq else ""
        return f"pack {self.side}({batch}{self.rows}x{self.cols}, tile {self.tile}, chunk {self.chunk}{form})"


@dataclass(frozen=True, slots=True)
class DrainedTiles(_Halves):
    """Matmul result order: (batch, tile row, tile column, sub-tile g, sub-tile h, i, j), one word per 4x4 sub-tile.

    Each tile's gm*gn words are one contiguous region padded to whole bursts of 8 words.
    """

    rows: int
    cols: int
    gm: int
    gn: int
    batch: int = 1

    @property
    def size(self) -> int:
        return self.batch * self.rows * self.cols

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles down and across in one batch element."""
        return ceil_div(self.rows, LANES * self.gm), ceil_div(self.cols, LANES * self.gn)

    @property
    def region_words(self) -> int:
        return BURST_WORDS * ceil_div(self.gm * self.gn, BURST_WORDS)

    @property
    def nbytes(self) -> int:
        down, across = self.grid
        return self.batch * down * across * self.region_words * WORD_BYTES

    @property
    def runs(self) -> WordRuns:
        down, across = self.grid
        count, words = self.batch * down * across, self.gm * self.gn
        if words == self.region_words:
            return WordRuns(count * words, count * words, 1)
        return WordRuns(words, self.region_words, count)

    def tile_offset(self, batch: int, down: int, across: int) -> int:
        """Byte offset of one tile's region."""
        grid = self.grid
        return ((batch * grid[0] + down) * grid[1] + across) * self.region_words * WORD_BYTES

    def pack(self, values: Stored) -> Bytes:
        """float16[size] in logical order -> uint8[nbytes]."""
        down, across = self.grid
        padded = np.zeros((self.batch, down * self.gm * LANES, across * self.gn * LANES), np.float16)
        padded[:, : self.rows, : self.cols] = values.reshape(self.batch, self.rows, self.cols)
        split = padded.reshape(self.batch, down, self.gm, LANES, across, self.gn, LANES)
        order = split.transpose(0, 1, 4, 2, 5, 3, 6).reshape(self.batch * down * across, self.gm * self.gn * 16)
        out = np.zeros((self.batch * down * across, self.region_words * WORD_ELEMENTS), np.float16)
        out[:, : order.shape[1]] = order
        return out.reshape(-1).view(np.uint8)

    def unpack(self, data: Bytes) -> Half:
        """uint8[nbytes] -> float16[size] in logical order."""
        down, across = self.grid
        regions = data.view(np.float16).reshape(self.batch * down * across, self.region_words * WORD_ELEMENTS)
        words = regions[:, : self.gm * self.gn * WORD_ELEMENTS]
        split = words.reshape(self.batch, down, across, self.gm, self.gn, LANES, LANES)
        grid = split.transpose(0, 1, 3, 5, 2, 4, 6).reshape(
            self.batch, down * self.gm * LANES, across * self.gn * LANES
        )
        return np.ascontiguousarray(grid[:, : self.rows, : self.cols]).reshape(-1)

    def __str__(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"tiles({batch}{self.rows}x{self.cols}, {self.gm}x{self.gn})"


@dataclass(frozen=True, slots=True)
class TilePattern(_Halves):
    """A vector spread over 4x4 sub-tiles, one word per group of 4 (datasheet 3.3, channel bias).

    axis "col": word h holds values 4h..4h+3, repeated for the 4 rows of a sub-tile; axis "row": word g holds each of
    values 4g..4g+3 four times, one row after another. `groups` words belong to one tile; the tail is zero.
    """

    length: int
    groups: int
    axis: str
    batch: int = 1

    @property
    def size(self) -> int:
        return self.batch * self.length

    @property
    def tiles(self) -> int:
        return ceil_div(self.length, LANES * self.groups)

    @property
    def nbytes(self) -> int:
        return self.batch * self.tiles * self.groups * WORD_BYTES

    @property
    def runs(self) -> WordRuns:
        words = self.nbytes // WORD_BYTES
        return WordRuns(words, words, 1)

    def tile_offset(self, batch: int, tile: int) -> int:
        """Byte offset of one tile's words."""
        return (batch * self.tiles + tile) * self.groups * WORD_BYTES

    def pack(self, values: Stored) -> Bytes:
        """float16[size] in logical order -> uint8[nbytes]."""
        padded = np.zeros((self.batch, self.tiles * self.groups, LANES), np.float16)
        padded.reshape(self.batch, -1)[:, : self.length] = values.reshape(self.batch, self.length)
        words = padded[:, :, None, :] if self.axis == "col" else padded[:, :, :, None]
        spread = np.broadcast_to(words, (self.batch, self.tiles * self.groups, LANES, LANES))
        return np.ascontiguousarray(spread).reshape(-1).view(np.uint8)

    def unpack(self, data: Bytes) -> Half:
        """uint8[nbytes] -> float16[size] in logical order."""
        words = data.view(np.float16).reshape(self.batch, self.tiles * self.groups, LANES, LANES)
        line = words[:, :, 0, :] if self.axis == "col" else words[:, :, :, 0]
        return np.ascontiguousarray(line.reshape(self.batch, -1)[:, : self.length]).reshape(-1)

    def __str__(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"per {self.axis}({batch}{self.length}, {self.groups} groups)"


Layout = RowMajor | OperandPack | DrainedTiles | TilePattern
Streamable = RowMajor | DrainedTiles  # layouts the vector cores can walk element by element


def canonical(layout: Layout) -> Layout:
    """One value for layouts with the same bytes: unpadded row-major orders differ only in how rows are counted."""
    if isinstance(layout, RowMajor) and layout.pitch == layout.cols:
        return RowMajor(1, layout.size, layout.size, layout.element)
    return layout
