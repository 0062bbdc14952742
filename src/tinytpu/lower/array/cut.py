"""A cut of products of matrices in programs: what those who compute one, and who fill it, ask of it.

Decides which K-tiles a program has and where elements of the output lie in tiles. It must not know instructions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinytpu.lower.data import Words

if TYPE_CHECKING:
    from tinytpu.lower.array.dispatches import Dispatches

Key = tuple[object, ...]
"""Blocks of one key have one program."""
Ints = NDArray[np.int64]


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
    outer: bool = False
    """Whether every row of the array holds the same weights."""

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
