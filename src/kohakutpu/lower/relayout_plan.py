"""How a relayout is cut into pieces: which words a core gathers, what happens to them in L1, where they go.

It must not know instruction words or registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from kohakutpu.layouts import LANES, WORD_BYTES, WORD_ELEMENTS, DrainedTiles, OperandPack, RowMajor, ceil_div
from kohakutpu.lower.relayout_walks import (
    GROUP_WORDS,
    STRIDE_BYTES,
    Axis,
    Inexpressible,
    Limits,
    Matrix,
    Motion,
    Offsets,
    Part,
    col_digits,
    item_shape,
    item_words,
    padding,
    rectangle,
    row_digits,
    walk,
)
from kohakutpu.lower.vector_stream import Dims


def move(source: RowMajor | OperandPack, target: RowMajor | OperandPack, batch: int, limits: Limits) -> list[Part]:
    """Between orders whose words are 16 columns of a row: words are permuted, none is computed."""
    if isinstance(source, OperandPack) and isinstance(target, OperandPack):
        raise Inexpressible
    (rows, cols), other = item_shape(source, batch), item_shape(target, batch)
    if (rows, cols) != other:
        return _resplit(source, target, limits)
    packed = source if isinstance(source, OperandPack) else target
    row_radices, col_radices = row_digits(packed, batch)[0], col_digits(packed)[0]
    if isinstance(packed, RowMajor):
        col_radices = (ceil_div(cols, WORD_ELEMENTS),)

    def strides(layout: RowMajor | OperandPack) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if not isinstance(layout, RowMajor):
            return row_digits(layout, batch)[1], col_digits(layout)[1]
        row = [layout.pitch // WORD_ELEMENTS]
        col = [1]
        for radix in row_radices[:-1]:
            row.append(row[-1] * radix)
        for radix in col_radices[:-1]:
            col.append(col[-1] * radix)
        return tuple(row), tuple(col)

    (row_s, col_s), (row_t, col_t) = strides(source), strides(target)
    row_axis, col_axis = Axis(row_radices, row_s, row_t), Axis(col_radices, col_s, col_t)
    items = Axis((batch,), (item_words(source, batch),), (item_words(target, batch),))
    whole, used = cols // WORD_ELEMENTS, ceil_div(cols, WORD_ELEMENTS)
    parts = rectangle(Motion("move"), row_axis, col_axis, (0, rows), (0, whole), items, limits)
    if used > whole:
        parts += rectangle(Motion("tail"), row_axis, col_axis, (0, rows), (whole, used), items, limits)
    return parts + padding(target, batch, used, limits)


def _resplit(source: RowMajor | OperandPack, target: RowMajor | OperandPack, limits: Limits) -> list[Part]:
    """Row-major orders of one flattened sequence cut into rows differently, both at words."""
    if not (isinstance(source, RowMajor) and isinstance(target, RowMajor)) or source.size != target.size:
        raise Inexpressible
    if source.cols % WORD_ELEMENTS or target.cols % WORD_ELEMENTS:
        raise Inexpressible
    a, b = source.cols // WORD_ELEMENTS, target.cols // WORD_ELEMENTS
    pitch_a, pitch_b = source.pitch // WORD_ELEMENTS, target.pitch // WORD_ELEMENTS
    if (pitch_a, pitch_b) == (a, b):
        axis = Axis((source.rows * a,), (1,), (1,))
    elif a % b == 0:
        axis = Axis((b, a // b, source.rows), (1, b, pitch_a), (1, pitch_b, a // b * pitch_b))
    elif b % a == 0:
        axis = Axis((a, b // a, target.rows), (1, pitch_a, b // a * pitch_a), (1, a, pitch_b))
    else:
        raise Inexpressible
    one = Axis((1,), (0,), (0,))
    parts = rectangle(Motion("move"), one, axis, (0, 1), (0, source.rows * a), one, limits)
    return parts + padding(target, 1, b, limits)


# drained tiles


@dataclass(frozen=True, slots=True)
class Window:
    """A run of blocks along one axis: `first` and `count` in blocks, the tiles' word offset, walk and length."""

    first: int
    count: int
    offset: int
    dims: Dims
    length: int


def _even(total: int, most: int) -> int:
    """The part size that cuts `total` into the fewest, most equal parts of at most `most`."""
    most = max(1, min(total, most))
    return ceil_div(total, ceil_div(total, most))


def _columns(tiles: DrainedTiles, limits: Limits) -> list[Window]:
    """Windows of 16 columns as blocks, cut where both a word of 16 columns and a tile begin, or inside a tile."""
    across, gn, region = tiles.grid[1], tiles.gn, tiles.region_words
    used = ceil_div(tiles.cols, WORD_ELEMENTS)
    step = GROUP_WORDS // gcd(gn, GROUP_WORDS)  # tiles between boundaries that are multiples of 16 columns
    if across * gn <= limits.piece and used * GROUP_WORDS <= limits.piece:
        return [Window(0, used, 0, ((1, gn), (region, across)), across * gn)]
    if step * gn <= limits.piece:
        most = limits.piece // (step * gn) * step
        many = step * _even(ceil_div(across, step), most // step)
        found: list[Window] = []
        for tile in range(0, across, many):
            here = min(many, across - tile)
            first = tile * gn // GROUP_WORDS
            count = min(used - first, ceil_div(here * gn, GROUP_WORDS))
            found.append(Window(first, count, tile * region, ((1, gn), (region, here)), here * gn))
        return found
    if gn % GROUP_WORDS:
        raise Inexpressible
    per_tile = gn // GROUP_WORDS
    many = _even(per_tile, limits.piece // GROUP_WORDS)
    found = []
    for tile in range(across):
        for inside in range(0, per_tile, many):
            first = tile * per_tile + inside
            count = min(many, per_tile - inside, used - first)
            if count > 0:
                words = count * GROUP_WORDS
                found.append(Window(first, count, tile * region + inside * GROUP_WORDS, ((1, words),), words))
    return found


def _row_groups(tiles: DrainedTiles, most: int, limits: Limits) -> list[Window]:
    """Windows of 4 rows as blocks: some of a tile's, or whole tiles."""
    (_, across), gm, gn = tiles.grid, tiles.gm, tiles.gn
    used, tall = ceil_div(tiles.rows, LANES), across * tiles.region_words
    whole = most // gm if tall * WORD_BYTES < STRIDE_BYTES else 1
    found: list[Window] = []
    if gm <= most and whole:
        many = _even(used // gm, whole) if used >= gm else 1
        for tile in range(0, used // gm, many):
            here = min(many, used // gm - tile)
            found.append(Window(tile * gm, here * gm, tile * tall, ((gn, gm), (tall, here)), here * gm))
        if used % gm:
            tile = used // gm
            found.append(Window(tile * gm, used % gm, tile * tall, ((gn, used % gm),), used % gm))
        return found
    many = _even(gm, most)
    for first in range(0, used, gm):
        for inside in range(0, min(gm, used - first), many):
            count = min(many, gm - inside, used - first - inside)
            offset = first // gm * tall + inside * gn
            found.append(Window(first + inside, count, offset, ((gn, count),), count))
    return found


def _grouped(windows: Sequence[tuple[Window, tuple[object, ...]]]) -> list[list[Window]]:
    """Windows that differ only in place, together."""
    groups: dict[tuple[object, ...], list[Window]] = {}
    for window, extra in windows:
        groups.setdefault((window.count, window.dims, window.length, *extra), []).append(window)
    return list(groups.values())


def _offsets(rows: Sequence[int], cols: Sequence[int], items: Sequence[int]) -> Offsets:
    """Byte offsets of items x rows x cols from word offsets."""
    i, r, c = (np.array(x, np.int64) for x in (items, rows, cols))
    return (i[:, None, None] + r[None, :, None] + c[None, None, :]).reshape(-1) * WORD_BYTES


def retile(tiles: DrainedTiles, rows: RowMajor, untile: bool, limits: Limits) -> list[Part]:
    """Between sub-tiles and rows of 16 columns: four sub-tiles side by side are four words of a row each."""
    pitch, (down, across) = rows.pitch // WORD_ELEMENTS, tiles.grid
    used = ceil_div(tiles.cols, WORD_ELEMENTS)
    columns = _columns(tiles, limits)
    widest = max(max(w.length, GROUP_WORDS * w.count) for w in columns)
    groups = ceil_div(tiles.rows, LANES)
    share = ceil_div(groups * len(columns) * tiles.batch, limits.cores)
    row_windows = _row_groups(tiles, max(1, min(limits.piece // widest, share)), limits)
    tallest = max(w.count for w in row_windows)
    tile_item, row_item = item_words(tiles, tiles.batch), tiles.rows * pitch
    parts: list[Part] = []
    ragged = used if tiles.cols % WORD_ELEMENTS else -1
    for cols in _grouped([(w, (w.first + w.count == ragged,)) for w in columns]):
        tail = cols[0].first + cols[0].count == ragged
        across_blocks = cols[0].count
        motion = Motion("untile" if untile else "tile", tallest, across_blocks, cols[0].length, tail)
        for down_windows in _grouped([(w, (min(LANES * w.count, tiles.rows - LANES * w.first),)) for w in row_windows]):
            one = down_windows[0]
            present = min(LANES * one.count, tiles.rows - LANES * one.first)
            tile_dims = walk((*cols[0].dims, *one.dims), limits)
            row_dims = walk(((1, across_blocks), (pitch, present)), limits)
            if tile_dims is None or row_dims is None:
                raise Inexpressible
            items = range(tiles.batch)
            in_tiles = _offsets(
                [w.offset for w in down_windows], [w.offset for w in cols], [i * tile_item for i in items]
            )
            in_rows = _offsets(
                [LANES * w.first * pitch for w in down_windows], [w.first for w in cols], [i * row_item for i in items]
            )
            if untile:
                parts.append(Part(motion, tile_dims, row_dims, in_tiles, in_rows))
            else:
                missing = (LANES * one.count - present) * across_blocks
                clear = (present * across_blocks, missing) if missing else (0, 0)
                parts.append(Part(motion, row_dims, tile_dims, in_rows, in_tiles, clear))
    if untile:
        return parts + padding(rows, tiles.batch, used, limits)
    reached = max(w.first * GROUP_WORDS + w.length for w in columns)
    down_axis = Axis((tiles.gm, down), (0, 0), (tiles.gn, across * tiles.region_words))
    across_axis = Axis((tiles.gn, across), (0, 0), (1, tiles.region_words))
    batch_axis = Axis((tiles.batch,), (0,), (tile_item,))
    full, zero = (0, across * tiles.gn), Motion("zero")
    parts += rectangle(zero, down_axis, across_axis, (0, groups), (reached, full[1]), batch_axis, limits)
    return parts + rectangle(zero, down_axis, across_axis, (groups, down * tiles.gm), full, batch_axis, limits)


def turn(source: RowMajor, target: RowMajor, batch: int, limits: Limits) -> list[Part]:
    """Row-major items transposed: blocks of 16 rows x 16 columns, every block whole in one piece."""
    rows, cols = source.rows // batch, source.cols
    pitch_in, pitch_out = source.pitch // WORD_ELEMENTS, target.pitch // WORD_ELEMENTS
    tall, wide = ceil_div(rows, WORD_ELEMENTS), ceil_div(cols, WORD_ELEMENTS)
    blocks = limits.piece // WORD_ELEMENTS
    if blocks == 0:
        raise Inexpressible
    blocks = max(1, min(blocks, ceil_div(tall * wide * batch, limits.cores)))
    across = _even(wide, blocks)
    down = _even(tall, blocks // across)
    items = range(batch)

    def windows(total: int, size: int, elements: int) -> dict[tuple[int, int], list[int]]:
        """(blocks, rows of elements present) -> first blocks."""
        found: dict[tuple[int, int], list[int]] = {}
        for first in range(0, total, size):
            count = min(size, total - first)
            present = min(WORD_ELEMENTS * count, elements - WORD_ELEMENTS * first)
            found.setdefault((count, present), []).append(first)
        return found

    parts: list[Part] = []
    for (high, present_rows), firsts in windows(tall, down, rows).items():
        for (broad, present_cols), starts in windows(wide, across, cols).items():
            fill = walk(((1, broad), (pitch_in, present_rows)), limits)
            drain = walk(((1, high), (pitch_out, present_cols)), limits)
            if fill is None or drain is None:
                raise Inexpressible
            read = _offsets(
                [WORD_ELEMENTS * f * pitch_in for f in firsts], list(starts), [i * rows * pitch_in for i in items]
            )
            write = _offsets(
                list(firsts), [WORD_ELEMENTS * s * pitch_out for s in starts], [i * cols * pitch_out for i in items]
            )
            missing = (WORD_ELEMENTS * high - present_rows) * broad
            clear = (present_rows * broad, missing) if missing else (0, 0)
            parts.append(Part(Motion("turn", high, broad), fill, drain, read, write, clear))
    return parts + padding(target, batch, tall, limits)


def parts(source: Matrix, target: Matrix, transpose: bool, batch: int, limits: Limits) -> list[Part]:
    """The parts of one relayout in one trip through the cores; `batch` counts where no order carries its own batch.

    Raises Inexpressible.
    """
    if (isinstance(target, OperandPack) and target.preq) or (isinstance(source, OperandPack) and source.preq):
        raise Inexpressible
    if source.size != target.size or source.size == 0 or limits.cores == 0:
        raise Inexpressible
    for layout in (source, target):
        if not isinstance(layout, RowMajor):
            batch = layout.batch
    if any(x.rows % batch if isinstance(x, RowMajor) else x.batch != batch for x in (source, target)):
        raise Inexpressible
    if transpose:
        if not (isinstance(source, RowMajor) and isinstance(target, RowMajor)):
            raise Inexpressible
        if (source.rows // batch, source.cols) != (target.cols, target.rows // batch):
            raise Inexpressible
        return turn(source, target, batch, limits)
    if isinstance(source, DrainedTiles) or isinstance(target, DrainedTiles):
        if item_shape(source, batch) != item_shape(target, batch):
            raise Inexpressible
        if isinstance(source, DrainedTiles) and isinstance(target, RowMajor):
            return retile(source, target, True, limits)
        if isinstance(source, RowMajor) and isinstance(target, DrainedTiles):
            return retile(target, source, False, limits)
        raise Inexpressible
    return move(source, target, batch, limits)
