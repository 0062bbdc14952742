"""A convolution's windows as an operand: the pixels that a tap sees, read from the image by descriptors (datasheet 10,
`r2_desc_fill`), so that nothing is gathered or packed in memory.

It decides which descriptor fills which L1 entries; it must not know instructions' bits nor addresses beyond an image's
own bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.machine import Machine
from kohakuaccel.schedule import Array
from kohakutpu.lang.memory import Windows
from kohakutpu.layouts import ENTRY_BYTES, KBLOCK, LANES, RowMajor, ceil_div

LANE_BYTES = 2 * KBLOCK
Dimension = tuple[int, int, int, int]  # count, byte stride, axis, step on it
Axes = tuple[tuple[int, int], tuple[int, int]]  # (first position, extent) of axes 1 (image row) and 2 (image column)


@dataclass(frozen=True, slots=True)
class Piece:
    """One fill: entries first .. first + n - 1 of a chunk, from byte `base` of the image (negative where padding comes
    first) over these dimensions, the last one innermost."""

    first: int
    n: int
    base: int
    dims: tuple[Dimension, ...]
    axes: Axes


@dataclass(frozen=True, slots=True)
class WindowPack:
    """(taps, pixels, channels) of an image (count, high, wide, channels), row-major with a whole number of K blocks a
    pixel. Pixels are output positions (count, rows, cols); tile and chunk as in an OperandPack."""

    image: tuple[int, int, int, int]
    out: tuple[int, int]
    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]
    tile: int
    chunk: int

    preq = False
    entry_bytes = ENTRY_BYTES

    @property
    def rows(self) -> int:
        return self.image[0] * self.out[0] * self.out[1]

    @property
    def cols(self) -> int:
        return self.image[3]

    @property
    def tiles(self) -> int:
        return ceil_div(self.rows, LANES * self.tile)

    @property
    def chunks(self) -> int:
        return self.cols // (KBLOCK * self.chunk)

    def __str__(self) -> str:
        taps = "x".join(map(str, self.size))
        shape = "x".join(map(str, self.image))
        return f"windows {taps} of {shape} by descriptor (tile {self.tile}, chunk {self.chunk})"

    def matrix(self, values: Array, tap: int) -> NDArray[np.float16]:
        """[pixels, channels] that a tap sees, zeros outside the image."""
        _, high, wide, channels = self.image
        down, across = divmod(tap, self.size[1])
        rows = np.arange(self.out[0]) * self.stride[0] + down * self.dilation[0] - self.before[0]
        cols = np.arange(self.out[1]) * self.stride[1] + across * self.dilation[1] - self.before[1]
        inside = ((rows >= 0) & (rows < high))[:, None] & ((cols >= 0) & (cols < wide))
        picked = values.reshape(self.image)[:, rows.clip(0, high - 1)][:, :, cols.clip(0, wide - 1)]
        return np.where(inside[None, :, :, None], picked, np.float16(0)).reshape(self.rows, channels)

    def pieces(self, tap: int, tile: int, chunk: int, most: int) -> Iterator[Piece]:
        """The fills of one chunk of a tile, at most `most` entries each: whole output rows together where they fit,
        else parts of a row; groups behind the last pixel are zeros."""
        _, high, wide, channels = self.image
        pixel = 2 * channels
        row_groups = self.out[1] // LANES
        down, across = divmod(tap, self.size[1])
        inner = (
            (self.chunk, LANE_BYTES, 0, 0),
            (LANES, self.stride[1] * pixel, 2, self.stride[1]),
        )
        at, end = tile * self.tile, (tile + 1) * self.tile
        last = self.rows // LANES
        while at < end:
            first = (at - tile * self.tile) * self.chunk
            if at >= last:
                groups = min(end - at, most // self.chunk)
                yield Piece(first, groups * self.chunk, 0, ((groups, 0, 0, 0), *inner), ((-1, 1), (0, 0)))
                at += groups
                continue
            row, col = divmod(at, row_groups)
            which, i = divmod(row, self.out[0])
            y = i * self.stride[0] + down * self.dilation[0] - self.before[0]
            x = col * LANES * self.stride[1] + across * self.dilation[1] - self.before[1]
            lines = 1
            groups = min(row_groups - col, end - at, most // self.chunk)
            if col == 0 and groups == row_groups:
                lines = min((end - at) // row_groups, self.out[0] - i, most // (self.chunk * row_groups))
            step = LANES * self.stride[1]
            dims: tuple[Dimension, ...] = ((groups, step * pixel, 2, step), *inner)
            if lines > 1:
                dims = ((lines, self.stride[0] * wide * pixel, 1, self.stride[0]), *dims)
            base = ((which * high + y) * wide + x) * pixel + chunk * self.chunk * LANE_BYTES
            yield Piece(first, lines * groups * self.chunk, base, dims, ((y, high), (x, wide)))
            at += lines * groups


def why_not(machine: Machine, wide: int, channels: int) -> str:
    """Why a convolution's windows cannot be filled by descriptor here, "" if they can. wide: output columns."""
    if not machine.features.r2_desc_fill:
        return "the machine has no r2_desc_fill"
    if channels % KBLOCK:
        return f"a pixel of {channels} channels is not whole K blocks of {KBLOCK}"
    if wide % LANES:
        return f"output rows of {wide} pixels are not whole groups of {LANES}"
    return ""


def pack_of(
    machine: Machine, port: Windows, image: tuple[int, ...], tile: int, chunk: int, source: SourceLine
) -> tuple[WindowPack, RowMajor]:
    """The operand of a windows port over an image of this shape, and the image's byte order. Refuses what no descriptor
    can say."""
    count, high, wide, channels = image
    out = tuple(
        (n + sum(pad) - d * (k - 1) - 1) // s + 1
        for n, k, s, pad, d in zip((high, wide), port.size, port.stride, port.padding, port.dilation)
    )
    reason = why_not(machine, out[1], channels)
    if not reason and (channels // KBLOCK) % chunk:
        reason = f"{channels // KBLOCK} K blocks are not whole chunks of {chunk}"
    if reason:
        raise Refusal(
            "windows are filled by descriptor",
            where=str(port),
            got=reason,
            limit=f"r2_desc_fill, whole K blocks of {KBLOCK} channels, output rows of whole groups of {LANES}",
            hint="use the kernel conv2d_taps",
            source=source,
        )
    before = (port.padding[0][0], port.padding[1][0])
    pack = WindowPack(
        (count, high, wide, channels), (out[0], out[1]), port.size, port.stride, port.dilation, before, tile, chunk
    )
    return pack, RowMajor.of(count * high * wide, channels)
