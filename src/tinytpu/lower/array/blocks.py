"""Products of matrices as blocks of whole tiles: which tiles a program computes.

Decides where blocks begin and end, and what of the operands each takes. It must not know arrays, nor instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tinytpu.lower.array.cut import Cut, Ints, Key
from tinytpu.lower.array.dispatches import Dispatches


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
