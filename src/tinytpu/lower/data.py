"""Data plans: how the host fills tiles from arrays, and how output tiles become an array.

A plan is an expression of the graph that names elements (a guarded read, a gather, an index) and no arithmetic of a
program: what moves is records, not instructions (datasheet 11). It decides which word stands in which lane; it must
not know instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.graph import BOOL, WORDS, DType, Expr, Range, Value, numpy_of
from kohakuaccel.graph.native import Box, stored_in
from kohakuaccel.graph.points import Array
from kohakuaccel.numerics import BF16, FP16, FP32

Words = NDArray[np.int32]


def words(values: Array, dtype: DType, part: int = 0) -> Words:
    """Values as lanes hold them: int32[...]. part: of values of 64 bits the low (0) or the high word (1)."""
    if dtype == FP32:
        return np.ascontiguousarray(values, np.float32).view(np.int32).reshape(values.shape)
    if dtype in (FP16, BF16):
        return np.ascontiguousarray(values, stored_in(dtype)).view(np.uint16).astype(np.int32).reshape(values.shape)
    return (np.ascontiguousarray(values).astype(np.int64) >> 32 * part).astype(np.int32).reshape(values.shape)


def numbers(lanes: Words, dtype: DType, top: Words | None = None) -> Array:
    """What lanes hold as an array of the format's own dtype. top: the high words, of numbers that have them."""
    if dtype == FP32:
        return np.ascontiguousarray(lanes).view(np.float32)
    if dtype in (FP16, BF16):
        return lanes.astype(np.uint16).view(stored_in(dtype))
    if dtype == BOOL:
        return lanes != 0
    if top is not None:
        return (top.astype(np.int64) << 32 | lanes.view(np.uint32)).astype(numpy_of(dtype))
    wide = lanes.view(np.uint32) if dtype == WORDS["U32"] else lanes
    return wide.astype(numpy_of(dtype))


def in_bytes(tiles: Words, dtype: DType) -> Words:
    """Tiles int32[..., lanes] of bytes as words of four, the first lane in the lowest byte; truth values are FF."""
    each = -tiles if dtype == BOOL else tiles
    return np.ascontiguousarray(each.astype(np.int8)).view("<i4")


@dataclass(frozen=True)
class Layout:
    """Which element each lane of each tile is.

    points: elements of the output; folds: terms of a fold each has (1 without a fold). depth: lanes of a tile that hold
    terms of one element: 1, a row's, or all. chunk: terms that one tile folds, a multiple of depth; a tile for every
    chunk of every group of elements. packed: lanes that share a word, a byte each (4), or 1; without a fold only.
    """

    lanes: int
    points: int
    folds: int
    depth: int
    chunk: int
    packed: int = 1

    @property
    def words(self) -> int:
        """Words of a tile."""
        return self.lanes // self.packed

    @property
    def held(self) -> int:
        """Elements of a tile."""
        return self.lanes // self.depth

    @property
    def chunks(self) -> int:
        return -(-self.folds // self.chunk)

    @property
    def steps(self) -> int:
        """Tiles of terms that one tile of elements folds."""
        return -(-min(self.chunk, self.folds) // self.depth)

    @property
    def tiles(self) -> int:
        return -(-self.points // self.held) * self.chunks

    @property
    def full(self) -> int:
        """Steps, from the first on, in which every lane of every tile holds a term."""
        last = self.folds - (self.chunks - 1) * self.chunk
        return min(self.chunk, last) // self.depth

    def point(self) -> NDArray[np.int64]:
        """int64[tiles, lanes]: elements; `points` where a lane holds none."""
        tile = np.arange(self.tiles)[:, None] // self.chunks
        found = tile * self.held + np.arange(self.lanes)[None] // self.depth
        return np.minimum(found, self.points)

    def fold(self) -> NDArray[np.int64]:
        """int64[chunks, steps, lanes]: terms; `folds` where a lane holds none."""
        chunk = np.arange(self.chunks)[:, None, None] * self.chunk
        local = np.arange(self.steps)[None, :, None] * self.depth + np.arange(self.lanes)[None, None] % self.depth
        return np.where(local < self.chunk, np.minimum(chunk + local, self.folds), self.folds)

    def gathered(self, tiles: Words) -> Words:
        """The elements of output tiles int32[tiles, words]: int32[chunks, points]."""
        tiles = tiles if self.packed == 1 else tiles.view(np.int8).astype(np.int32)
        one = tiles.reshape(-1, self.chunks, self.held, self.depth)[..., 0]
        return one.transpose(1, 0, 2).reshape(self.chunks, -1)[:, : self.points]


class Places(Protocol):
    """What filling asks of a layout, see Layout; a product's has one of its own."""

    @property
    def lanes(self) -> int: ...
    @property
    def folds(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def tiles(self) -> int: ...
    def point(self) -> NDArray[np.int64]: ...
    def fold(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class Data:
    """A data plan. expr: what is read, None for the mask of lanes that hold a term. by_point, by_fold: what it follows.
    pad: the word of lanes that hold no term; lanes without an element hold `pad` too. part: see `words`."""

    expr: Expr | None
    dtype: DType
    ranges: tuple[Range, ...]
    folded: tuple[Range, ...]
    by_point: bool
    by_fold: bool
    pad: int = 0
    part: int = 0

    def exact(self, names: Mapping[str, Value]) -> Array:
        """The numbers of an expression that reads nothing."""
        assert self.expr is not None
        return np.asarray(Box((*self.ranges, *self.folded), {}, names).value(self.expr, self.dtype))

    def values(self, known: Mapping[str, Array], names: Mapping[str, Value]) -> Words:
        """int32[points or 1, folds or 1] from the arrays."""
        assert self.expr is not None
        space = (*self.ranges, *self.folded)
        array = np.asarray(Box(space, known, names).value(self.expr, self.dtype))
        rank = len(self.ranges)
        points = tuple(r.extent for r in self.ranges) if self.by_point else (1,) * rank
        folds = tuple(r.extent for r in self.folded) if self.by_fold else (1,) * len(self.folded)
        whole = np.broadcast_to(words(array, self.dtype, self.part), (*points, *folds))
        return whole.reshape(prod(points), prod(folds))

    def fill(self, layout: Places, known: Mapping[str, Array], names: Mapping[str, Value]) -> Words:
        """int32[tiles or 1, steps or 1, lanes]: every tile that a program may ask for."""
        fold = layout.fold()
        if self.expr is None:
            return (fold < layout.folds).astype(np.int32)
        flat = self.values(known, names)
        # A row and a column of padding stand behind the elements, where indices of lanes without one point.
        padded = np.full((flat.shape[0] + self.by_point, flat.shape[1] + self.by_fold), self.pad, np.uint32).view(
            np.int32
        )
        padded[: flat.shape[0], : flat.shape[1]] = flat
        point = layout.point() if self.by_point else np.zeros((1, layout.lanes), np.int64)
        if not self.by_fold:
            return padded[point, 0][:, None]
        each = np.resize(np.arange(layout.chunks), layout.tiles if self.by_point else layout.chunks)
        return padded[point[:, None] if self.by_point else point[None], fold[each]]
