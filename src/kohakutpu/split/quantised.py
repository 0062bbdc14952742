"""Matmul operands that are quantised already: integers and scales as the caller says, no quantiser in between.

Decides how they become bytes: a plain write of packed entries (datasheet 2.3). It must not know what they stand for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kohakuaccel.diagnostics import Refusal
from kohakutpu.conversion import HALF
from kohakutpu.layouts import KBLOCK, Half, Layout, OperandPack, canonical, ceil_div
from kohakutpu.storage import Storage, allocate
from kohakutpu.tensor import Tensor, current_device

if TYPE_CHECKING:
    from kohakutpu.device import Buffer, Device

ONE = 0xA0
"""The scale byte of 1: 2^0 * 8/8."""
LARGEST = 63
_BIAS, _EIGHTHS = 20, 8


class Quantised(Storage):
    """Values that a cluster multiplies as they are: q int8[rows, K] and scale bytes uint8[rows, blocks of 32].

    Everything but a matmul sees the same values in FP16, which holds them exactly.
    """

    __slots__ = ("q", "scales")

    def __init__(self, device: Device, q: NDArray[np.int8], scales: NDArray[np.uint8] | None) -> None:
        super().__init__(device, q.size, derive=self._values)
        self.q, self.scales = q, scales

    def _values(self) -> Half:
        """q * 2^es * m8/8 as halves; refused beyond 65504."""
        if self.scales is None:
            return self.q.astype(np.float16)
        steps = np.repeat(self.scales.astype(np.int32), KBLOCK, axis=-1)[..., : self.q.shape[-1]]
        values = np.ldexp(self.q * (_EIGHTHS + (steps & 7)).astype(np.float64), (steps >> 3) - _BIAS - 3)
        if values.size and np.abs(values).max() > 65504.0:
            raise Refusal(
                "what is no matmul sees quantised values in FP16",
                where="mxfp7",
                got=float(np.abs(values).max()),
                limit=65504,
                hint="use smaller scales",
            )
        return values.astype(np.float16)

    def buffer(self, layout: Layout) -> Buffer:
        """As operand of a matmul the integers and scales themselves, in any other order the values in FP16."""
        if not isinstance(layout, OperandPack):
            return super().buffer(layout)
        key = canonical(layout)
        found = self._buffers.get(key)
        if found is not None:
            return found
        if layout.size != self.size or not layout.preq:
            raise Refusal(
                "quantised values go to a matmul that takes quantised operands",
                where=str(layout),
                got=f"{self.size} values for {layout.size}",
                hint="declare the port with quantised=True; an operand is not transposed",
            )
        data = packed(layout, self.q, self.scales)
        made = allocate(self.device, layout.nbytes)
        try:
            self.device.upload(made, data)
        except BaseException:
            made.free()  # a caller that keeps the exception would keep it alive
            raise
        self._buffers[key] = made
        return made


def packed(layout: OperandPack, q: NDArray[np.int8], scales: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """The bytes of quantised entries. Without scales every value is its integer. Padding is zero, scaled by 1."""
    from kohakutpu.split.packing import pack_all

    rows = layout.arranged(q.reshape(-1)).reshape(-1, KBLOCK)
    if scales is None:
        lanes = np.full(rows.shape[0], ONE, np.uint8)
    else:
        blocks = ceil_div(layout.cols, KBLOCK)
        lanes = np.full((layout.batch, layout.rows, layout.chunks * layout.chunk), ONE, np.uint8)
        lanes[..., :blocks] = scales.reshape(layout.batch, layout.rows, blocks)
        spread = np.zeros((*lanes.shape, KBLOCK), np.uint8)
        spread[..., 0] = lanes ^ ONE  # what `arranged` pads is zero
        whole = OperandPack(layout.rows, lanes.shape[-1] * KBLOCK, layout.tile, layout.chunk, layout.batch)
        lanes = whole.arranged(spread.reshape(-1)).reshape(-1, KBLOCK)[:, 0] ^ np.uint8(ONE)
    words = np.empty(4 * rows.shape[0], np.uint64)
    octets = np.empty(16, np.uint64)
    pack_all(rows, np.ascontiguousarray(lanes), "AB".index(layout.side), octets, octets.view(np.int8), words)
    return words.view(np.uint8)


def mxfp7(q: ArrayLike, scales: ArrayLike | None = None, *, device: Device | None = None) -> Tensor:
    """A tensor of already quantised values, the K axis last: operand of a matmul without a quantiser's rounding.

    q: integers in [-63, 63], two or more axes (..., rows, K). scales: bytes of the E5M3 scale (datasheet 2.2), shape
    (..., rows, ceil(K / 32)); 1 by default. Read back or used by anything but a matmul the values are FP16. Raises
    Refusal for other integers or shapes, and on a machine without quantised operands when it is multiplied.
    """
    given = np.asarray(q)
    if given.dtype.kind not in "iu" or given.ndim < 2:
        raise Refusal("quantised values are integers (..., rows, K)", where="mxfp7", got=f"{given.dtype} {given.shape}")
    if given.size and np.abs(given.astype(np.int64)).max() > LARGEST:
        raise Refusal("a quantised value is a symmetric 7-bit integer", where="mxfp7", got=_largest(given), limit=63)
    steps = None
    if scales is not None:
        steps = np.asarray(scales)
        wanted = (*given.shape[:-1], ceil_div(given.shape[-1], KBLOCK))
        if steps.dtype != np.uint8 or steps.shape != wanted:
            raise Refusal(
                "a scale is a byte per row and block of 32",
                where="mxfp7",
                got=f"{steps.dtype} {steps.shape}",
                limit=f"uint8 {wanted}",
            )
        steps = steps.copy()
    made = Quantised(device or current_device(), given.astype(np.int8), steps)
    return Tensor(made, given.shape, HALF)


def _largest(given: NDArray[Any]) -> int:
    wide = given.astype(np.int64)
    return int(wide.flat[int(np.abs(wide).argmax())])
