"""Reductions of the vector core in the machine's exact tree order (datasheet 2.7).

Decides the order of the operations; it must not know modes, faults or time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import leaf, separate
from kohakutpu.units.vector_alu import INF, NAN, SIGN, ZERO, finish
from kohakutpu.units.vector_codes import MAX, MIN, SUM
from kohakutpu.units.vector_state import LANES

if TYPE_CHECKING:
    from numpy.typing import NDArray


@leaf
def _halve(kind: int, real: NDArray[np.float32], bits: NDArray[np.uint32], a: int, t: int, m: int) -> None:
    """Row t [0..m-1] = op of neighbours of row a [0..2m-1], t other than a."""
    if kind in (MAX, MIN):
        for i in range(m):
            x, y, xw, yw = real[a, 2 * i], real[a, 2 * i + 1], bits[a, 2 * i], bits[a, 2 * i + 1]
            swap = (x < y) if kind == MAX else (x > y)
            word = yw if swap else xw
            bits[t, i] = word if x == x else NAN
    else:
        for i in range(m):
            bits[t, i] = finish(np.float64(real[a, 2 * i]) + np.float64(real[a, 2 * i + 1]))


@separate("uint32(int64, float32[:,::1], uint32[:,::1], int64, int64, int64, int64)")
def reduce_row(
    kind: int, real: NDArray[np.float32], bits: NDArray[np.uint32], a: int, t: int, n: int, beat: int
) -> np.uint32:
    """The E8M15 word of reducing elements 0..n-1 of row a in beats of `beat` (8 or 16) elements.

    kind is SUM, MAX or MIN; n is a multiple of 16 up to 128; rows t and t + 1 are scratch, and a
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
        if kind == SUM and word == SIGN:
            word = ZERO
        bits[source, i] = word
    m = LANES
    while m > 1:
        m >>= 1
        _halve(kind, real, bits, source, target, m)
        source = target
        target = t if source == t + 1 else t + 1
    return bits[source, 0]
