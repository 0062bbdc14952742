"""Byte orders as digits, and walks over products of them: what one descriptor can gather and another scatter.

Every layout is a mixed-radix address, separable in rows and columns, of one kind of word: 16 columns of a row
(row-major, operand pack) or a 4x4 sub-tile (drained tiles). A piece is a product of digit ranges. It must not know
instruction words or what happens to the words in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine
from kohakutpu.layouts import (
    KBLOCK,
    LANES,
    WORD_BYTES,
    WORD_ELEMENTS,
    DrainedTiles,
    OperandPack,
    RowMajor,
    ceil_div,
)
from kohakutpu.lower.vector_stream import Dims

Matrix = RowMajor | OperandPack | DrainedTiles  # the orders of whole matrices
Offsets = NDArray[np.int64]
STRIDE_BYTES = 1 << 17  # a descriptor's stride is a signed 18-bit byte count (datasheet 6.1)
K_WORDS = KBLOCK // WORD_ELEMENTS  # words of one lane in an entry
GROUP_WORDS = WORD_ELEMENTS // LANES  # sub-tiles side by side that make four row words
SLACK = 4  # L1 words past the result that a ragged row of sub-tiles may scribble on


@dataclass(frozen=True, slots=True)
class Motion:
    """What is done between fill and drain, on `down` x `across` blocks of words in L1.

    "move": nothing; "tail": clear the lanes from the last column on; "zero": no source, zeros are stored;
    "untile": sub-tiles to rows; "tile": rows to sub-tiles; "turn": 16x16 transposes.
    `pitch` is the number of sub-tiles in a row of them. `tail`: the last word of every row has lanes to clear.
    """

    kind: str
    down: int = 0
    across: int = 0
    pitch: int = 0
    tail: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Pieces alike: per piece, `fill` gathers from source + `source[n]`, `drain` scatters to target + `target[n]`.

    clear: (first, count) L1 words zeroed after the fill, for rows that the source does not have.
    """

    motion: Motion
    fill: Dims
    drain: Dims
    source: Offsets
    target: Offsets
    clear: tuple[int, int] = (0, 0)

    @property
    def words(self) -> int:
        """Words that one piece writes."""
        return int(np.prod([bound for _, bound in self.drain], dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a core and the machine allow; `piece` is the most words on either side of one RUN."""

    cores: int
    walk: int
    l1: int
    dims: int
    piece: int

    @staticmethod
    def of(machine: Machine, piece: int) -> Limits:
        p = machine.params
        return Limits(len(machine.units_of("VC", mesh=0)), p.walk_max, p.vl1, p.dims, piece)

    @property
    def half(self) -> int:
        """First L1 word of the results when they are not made in place."""
        return self.l1 - self.piece - SLACK


class Inexpressible(Exception):
    """No sequence of walks and shuffles of this module moves the buffer; the caller takes the host."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One coordinate as mixed-radix digits (lowest first): counts and the words one step moves in source and target."""

    radices: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]

    def spans(self, low: int, high: int) -> list[tuple[int, tuple[int, ...]]]:
        """[low, high) as few products of whole digits: (start, bound per digit)."""
        weights = [1]
        for radix in self.radices[:-1]:
            weights.append(weights[-1] * radix)
        top = len(weights) - 1
        found: list[tuple[int, tuple[int, ...]]] = []
        while low < high:
            level = max(d for d, w in enumerate(weights) if low % w == 0 and low + w <= high)
            stop = high
            if level < top:
                stop = min(high, (low // weights[level + 1] + 1) * weights[level + 1])
            count = (stop - low) // weights[level]
            found.append((low, (*self.radices[:level], count, *([1] * (top - level)))))
            low += count * weights[level]
        return found

    def at(self, position: int) -> tuple[int, int]:
        """(source word, target word) of a position."""
        source = target = 0
        for d, (s, t) in enumerate(zip(self.source, self.target)):
            digit = position if d == len(self.radices) - 1 else position % self.radices[d]
            source, target, position = source + digit * s, target + digit * t, position // self.radices[d]
        return source, target

    def digits(self, bounds: Sequence[int]) -> list[tuple[int, int, int]]:
        return list(zip(bounds, self.source, self.target))


def merged(dims: Sequence[tuple[int, int]]) -> Dims:
    """(stride, bound) per dimension with trivial ones dropped and chained ones joined."""
    found: list[tuple[int, int]] = []
    for stride, bound in dims:
        if bound == 1:
            continue
        if found and stride == found[-1][0] * found[-1][1]:
            found[-1] = (found[-1][0], found[-1][1] * bound)
        else:
            found.append((stride, bound))
    return tuple(found)


def walk(dims: Sequence[tuple[int, int]], limits: Limits) -> Dims | None:
    """Word dimensions as a descriptor's byte dimensions, or None when a descriptor cannot hold them."""
    joined = merged(dims)
    if len(joined) > limits.dims or any(not -STRIDE_BYTES <= s * WORD_BYTES < STRIDE_BYTES for s, _ in joined):
        return None
    return tuple((s * WORD_BYTES, b) for s, b in joined) or ((WORD_BYTES, 1),)


def _sums(steps: Sequence[tuple[int, int]]) -> Offsets:
    """Byte offsets of all combinations of (stride in words, count)."""
    total = np.zeros(1, np.int64)
    for stride, count in steps:
        total = (np.arange(count, dtype=np.int64)[:, None] * (stride * WORD_BYTES) + total[None, :]).reshape(-1)
    return total


def product(
    motion: Motion, digits: Sequence[tuple[int, int, int]], origin: tuple[int, int], limits: Limits
) -> list[Part]:
    """A product of digits (bound, source stride, target stride), fastest in L1 first, as parts of bounded pieces."""
    total = int(np.prod([d[0] for d in digits], dtype=np.int64))
    room = min(limits.piece if motion.kind in ("tail", "zero") else min(limits.l1, limits.walk), limits.walk)
    room = max(1, min(room, max(2 * WORD_ELEMENTS, ceil_div(total, limits.cores))))
    inner: list[tuple[int, int, int]] = []
    outer: list[tuple[int, int, int]] = []
    rest: tuple[int, int] | None = None  # (index in inner, left-over bound)
    words = 1
    for bound, source, target in digits:
        take = 1 if rest is not None else min(bound, room // words)
        take = ceil_div(bound, ceil_div(bound, take)) if take else 1
        trial = [*inner, (take, source, target)]
        fits = walk([(t, b) for b, _, t in trial], limits) is not None
        if motion.kind != "zero":
            fits = fits and walk([(s, b) for b, s, _ in trial], limits) is not None
        if take == 1 or not fits:
            outer.append((bound, source, target))
            continue
        inner, words = trial, words * take
        if take < bound:
            outer.append((bound // take, source * take, target * take))
            room = 0
            rest = (len(inner) - 1, bound % take) if bound % take else (len(inner) - 1, 0)
    parts: list[Part] = []

    def emit(
        chosen: Sequence[tuple[int, int, int]], steps: Sequence[tuple[int, int, int]], at: tuple[int, int]
    ) -> None:
        fill, drain = walk([(s, b) for b, s, _ in chosen], limits), walk([(t, b) for b, _, t in chosen], limits)
        assert drain is not None
        source = at[0] * WORD_BYTES + _sums([(s, b) for b, s, _ in steps])
        target = at[1] * WORD_BYTES + _sums([(t, b) for b, _, t in steps])
        parts.append(Part(motion, (fill or ()) if motion.kind != "zero" else (), drain, source, target))

    emit(inner, outer, origin)
    if rest is not None and rest[1]:
        index, left = rest
        bound, source, target = inner[index]
        split = next(n for n, o in enumerate(outer) if o[1:] == (source * bound, target * bound))
        done = outer[split][0] * bound
        short = [*inner[:index], (left, source, target), *inner[index + 1 :]]
        others = [*outer[:split], *outer[split + 1 :]]
        emit(short, others, (origin[0] + done * source, origin[1] + done * target))
    return parts


def rectangle(
    motion: Motion,
    rows: Axis,
    cols: Axis,
    row_range: tuple[int, int],
    col_range: tuple[int, int],
    items: Axis,
    limits: Limits,
) -> list[Part]:
    """Rows x columns of every batch item, cut into products. Digits of rows and columns alternate in L1, so that the
    low digits of both, which are near each other in a blocked order, share a piece."""
    parts: list[Part] = []
    for row, row_bounds in rows.spans(*row_range):
        for col, col_bounds in cols.spans(*col_range):
            row_digits, col_digits = rows.digits(row_bounds), cols.digits(col_bounds)
            order = col_digits[:2] + row_digits[:2] + col_digits[2:] + row_digits[2:]
            source, target = (a + b for a, b in zip(rows.at(row), cols.at(col)))
            parts += product(motion, [*order, *items.digits(items.radices)], (source, target), limits)
    return parts


# addresses of the layouts, in words


def row_digits(layout: RowMajor | OperandPack, batch: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Radices and word strides of a batch item's rows."""
    if isinstance(layout, RowMajor):
        return (layout.rows // batch,), (layout.pitch // WORD_ELEMENTS,)
    entry = LANES * K_WORDS
    group = entry * layout.chunk
    tile = group * layout.tile * layout.chunks
    return (LANES, layout.tile, layout.tiles), (K_WORDS, group, tile)


def col_digits(layout: RowMajor | OperandPack) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Radices and word strides of a row's words."""
    if isinstance(layout, RowMajor):
        return (layout.pitch // WORD_ELEMENTS,), (1,)
    entry = LANES * K_WORDS
    return (K_WORDS, layout.chunk, layout.chunks), (1, entry, entry * layout.chunk * layout.tile)


def item_words(layout: Matrix, batch: int) -> int:
    """Words of one batch item."""
    return layout.nbytes // WORD_BYTES // batch


def item_shape(layout: Matrix, batch: int) -> tuple[int, int]:
    """(rows, cols) of one batch item."""
    return (layout.rows // batch, layout.cols) if isinstance(layout, RowMajor) else (layout.rows, layout.cols)


def padding(target: RowMajor | OperandPack, batch: int, used: int, limits: Limits) -> list[Part]:
    """Zeros for the target's words that hold no element; `used` words of every row do."""
    (row_radices, row_strides), (col_radices, col_strides) = row_digits(target, batch), col_digits(target)
    rows = item_shape(target, batch)[0]
    row_axis = Axis(row_radices, row_strides, row_strides)
    col_axis = Axis(col_radices, col_strides, col_strides)
    items = Axis((batch,), (0,), (item_words(target, batch),))
    all_rows, all_cols = int(np.prod(row_radices)), int(np.prod(col_radices))
    zero = Motion("zero")
    parts = rectangle(zero, row_axis, col_axis, (0, rows), (used, all_cols), items, limits)
    return parts + rectangle(zero, row_axis, col_axis, (rows, all_rows), (0, all_cols), items, limits)
