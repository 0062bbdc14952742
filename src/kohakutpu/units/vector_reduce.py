"""Reductions of the vector core in the machine's exact tree order (datasheet 2.7).

Decides the order of the operations; it must not know modes, faults or time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import kernel
from kohakutpu.units.vector_alu import INF, MAX, MIN, NAN, SIGN, ZERO, _finish
from kohakutpu.units.vector_state import LANES

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel
def _halve(kind: int, real: NDArray[np.float32], bits: NDArray[np.uint32], a: int, t: int, m: int) -> None:
    """Row t [0..m-1] = op of neighbours of row a [0..2m-1], t other than a."""
    if kind == MAX or kind == MIN:
        for i in range(m):
            x, y, xw, yw = real[a, 2 * i], real[a, 2 * i + 1], bits[a, 2 * i], bits[a, 2 * i + 1]
            swap = (x < y) if kind == MAX else (x > y)
            word = yw if swap else xw
            bits[t, i] = word if x == x else NAN
    else:
        for i in range(m):
            bits[t, i] = _finish(np.float64(real[a, 2 * i]) + np.float64(real[a, 2 * i + 1]))


@kernel
def reduce_row(
    kind: int, real: NDArray[np.float32], bits: NDArray[np.uint32], a: int, t: int, n: int, beat: int
) -> np.uint32:
    """The E8M15 word of reducing elements 0..n-1 of row a in beats of `beat` (8 or 16) elements.

    kind is ADD, MAX or MIN of vector_alu; n is a multiple of 16 up to 128; rows t and t + 1 are scratch, and a
    may be t. With at most 16 beats each partial takes one tree result, so acc[j] = op(tree(beat j), identity).
    """
    source, target = a, t + 1 if a == t else t
    m = n
    width = beat
    while width > 1:
        m >>= 1
        width >>= 1
        _halve(kind, real, bits, source, target, m)
        source = target
        target = t if source == t + 1 else t + 1
    # The accumulate step: an ADD with +0 turns -0 into +0; MAX and MIN with their identity change nothing,
    # a NaN included, because a is the tree result.
    identity = ZERO
    if kind == MAX:
        identity = INF | SIGN
    elif kind == MIN:
        identity = INF
    for i in range(LANES):
        word = bits[source, i] if i < m else identity
        if kind != MAX and kind != MIN and word == SIGN:
            word = ZERO
        bits[source, i] = word
    m = LANES
    while m > 1:
        m >>= 1
        _halve(kind, real, bits, source, target, m)
        source = target
        target = t if source == t + 1 else t + 1
    return bits[source, 0]
