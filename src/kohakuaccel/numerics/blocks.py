"""Block formats as values: small integers along one axis that share a scale.

Decides what a block's elements and scale mean and how a row of FP16 becomes blocks. It must not know how
entries are packed into words or where they lie in memory; that is the machine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import DefinitionError, Refusal, Unsupported
from kohakuaccel.numerics.base import Tally, ValueSet, floor_log2, pow2
from kohakuaccel.numerics.formats import IntFormat, ScalarFormat

ScaleRule = Literal["peak-ceil"]
"""How a block's scale follows from its elements.

"peak-ceil": the smallest scale s with |peak| <= element.max * s, its exponent then clamped and its mantissa
left alone (datasheet 2.2 steps 2 to 4); a block of zeros has scale 1. Elements are then x / s by the integer
reciprocals of step 5, rounded half away from zero.
"""


@dataclass(frozen=True)
class Blocks:
    """A quantised array.

    q: int8, the array's shape. scale: uint8 codes of the format's scale, the same shape with the block axis
    divided by the block length. axis: the block axis, non-negative.
    """

    q: NDArray[np.int8]
    scale: NDArray[np.uint8]
    axis: int


@dataclass(frozen=True)
class BlockFormat(ValueSet):
    """`block` consecutive elements along `axis` share one scale; value = q * scale.

    axis names the axis of a contraction the blocks run along (a term, not an index).
    """

    name: str
    element: IntFormat
    block: int
    axis: str
    scale: ScalarFormat
    scale_rule: ScaleRule

    def __post_init__(self) -> None:
        if self.block < 1:
            raise DefinitionError("a block has elements", where=f"format {self.name}", got=self.block)
        if self.scale.signed or self.scale.extras:
            raise DefinitionError(
                "a scale is positive: unsigned, no zero, no Inf or NaN",
                where=f"format {self.name}",
                got=self.scale,
            )
        if self.scale_rule != "peak-ceil":
            raise DefinitionError("the scale rule is peak-ceil", where=f"format {self.name}", got=self.scale_rule)

    def __str__(self) -> str:
        return self.name

    @property
    def max(self) -> float:
        return self.element.max * self.scale.max

    @property
    def lowest(self) -> float:
        return self.element.lowest * self.scale.max

    @property
    def smallest(self) -> float:
        return self.scale.smallest

    @property
    def min_normal(self) -> float:
        """Smallest magnitude whose block can give it every bit of an element: element.max * smallest scale,
        below which the scale stops following the peak."""
        return self.element.max * self.scale.smallest

    @property
    def min_subnormal(self) -> float | None:
        """Smallest positive value: one element step at the smallest scale."""
        return self.scale.smallest

    @property
    def extras(self) -> frozenset[str]:
        return self.element.extras

    def quantum(self, exponent: int) -> int:
        """Exponent of the spacing over all scales together.

        A value is an integer below 2^p, the product of element and scale significand, times a power of two;
        so its binade holds multiples of 2^(exponent - p + 1).
        """
        largest = int(self.element.max) * ((2 << self.scale.man_bits) - 1)
        lowest = self.scale.min_exponent - self.scale.man_bits
        return max(exponent - floor_log2(Fraction(largest)), lowest)

    def ulp(self, x: float) -> float:
        """Step between neighbours in a block whose peak is |x|: the scale such a block gets."""
        if not np.isfinite(x):
            return float("nan")
        if x == 0:
            return 1.0
        wanted = Fraction(abs(x)) / int(self.element.max)
        steps = 1 << self.scale.man_bits
        exponent = floor_log2(wanted)
        significand = -(-wanted * steps // Fraction(2) ** exponent)
        if significand == 2 * steps:
            significand, exponent = steps, exponent + 1
        low = self.scale.min_exponent
        exponent = min(max(exponent, low), low + (1 << self.scale.exp_bits) - 1)
        return significand / steps * pow2(exponent)

    def obstacles(self, other: ValueSet) -> tuple[str, ...]:
        if other == self:
            return ()
        return (
            *super().obstacles(other),
            f"the {self.block} elements of a {self.name} block share one scale",
        )

    @property
    def _is_compiled(self) -> bool:
        e5m3 = (self.scale.exp_bits, self.scale.man_bits, self.scale.bias) == (5, 3, 20)
        return e5m3 and self.block == 32 and self.element.bits == 7 and self.element.symmetric

    def quantise(self, values: NDArray[np.float16], axis: int = -1, *, tally: Tally | None = None) -> Blocks:
        """Quantise a float16 array along `axis`, whose length is a multiple of the block length.

        Inf and NaN have no encoding: a `Refusal`, unless a `tally` is passed to count them in `nan`; they are
        then read as finite values of exponent 16 (datasheet 2.2, policy "count").
        """
        from kohakuaccel.numerics import kernels

        if not self._is_compiled:
            raise Unsupported("quantise is compiled for 32 int7 elements with an E5M3 scale", where=self.name, got=self)
        if values.dtype != np.float16:
            raise Unsupported(
                "the quantiser reads FP16",
                where=f"{self.name}.quantise",
                got=values.dtype,
                hint="round with FP16 first, so that its saturation is seen",
            )
        axis = self._axis(values.ndim, axis)
        if values.shape[axis] % self.block:
            raise Refusal(
                f"the block axis is a multiple of {self.block}",
                where=f"{self.name}.quantise, axis {axis}",
                got=values.shape[axis],
                hint="pad with zeros",
            )
        # Writeable, as a read-only array would compile the kernel once more.
        moved = np.require(np.moveaxis(values, axis, -1), requirements=["C", "W"])
        half = moved.view(np.uint16).reshape(-1, self.block)
        q = np.empty(half.shape, np.int8)
        scale = np.empty(half.shape[0], np.uint8)
        nonfinite = int(kernels.mxfp7_quantise(half, q, scale))
        if nonfinite and tally is None:
            first = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
            raise Refusal(
                f"block elements are finite ({nonfinite} of {values.size} are not)",
                where=f"{self.name}.quantise, element {first}",
                got=values[first],
                hint="pass tally=Tally() to read them as finite values and count them",
            )
        if tally is not None:
            tally.nan += nonfinite
        lead = moved.shape[:-1]
        blocks = moved.shape[-1] // self.block
        return Blocks(
            np.ascontiguousarray(np.moveaxis(q.reshape(moved.shape), -1, axis)),
            np.ascontiguousarray(np.moveaxis(scale.reshape(*lead, blocks), -1, axis)),
            axis,
        )

    def dequantise(self, blocks: Blocks) -> NDArray[np.float64]:
        """Values float64 of quantised blocks, exact, in the shape of `blocks.q`."""
        scales = self.scale.decode(blocks.scale)
        return self.element.decode(blocks.q) * np.repeat(scales, self.block, axis=blocks.axis)

    def round(self, values: NDArray[np.float16], axis: int = -1, *, tally: Tally | None = None) -> NDArray[np.float64]:
        """Values float64 after quantising along `axis`: dequantise(quantise(values))."""
        return self.dequantise(self.quantise(values, axis, tally=tally))

    def _axis(self, ndim: int, axis: int) -> int:
        if not -ndim <= axis < ndim:
            raise Refusal("the axis exists", where=f"{self.name}.quantise", got=axis, limit=f"{ndim} dimensions")
        return axis % ndim

    def explain(self, values: Any) -> str:
        """A few lines on one block: peak, scale byte, and every element's q and error.

        values: up to `block` numbers, read as FP16; the rest are zero.
        """
        row = np.zeros(self.block, np.float16)
        given = np.asarray(values, np.float16).reshape(-1)
        if given.size > self.block:
            raise Refusal("one block at a time", where=f"{self.name}.explain", got=given.size, limit=self.block)
        row[: given.size] = given
        tally = Tally()
        blocks = self.quantise(row, tally=tally)
        scale = float(self.scale.decode(blocks.scale)[0])
        peak = float(np.abs(row).max())
        lines = [
            f"{self.name}  peak {peak!r}, scale {int(blocks.scale[0]):02X} = {scale!r} ({self.scale_rule})",
        ]
        for x, q in zip(given.tolist(), blocks.q.tolist()):
            lines.append(f"  {x!r} -> {q} = {q * scale!r}, error {q * scale - x:.6g}")
        if tally.nan:
            lines.append(f"  {tally.nan} not finite: read as finite values and counted")
        return "\n".join(lines)
