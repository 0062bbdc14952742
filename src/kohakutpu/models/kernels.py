"""Kernels that only models need: a cache of keys or values that takes one more row, and the pooling of sentences."""

from __future__ import annotations

from kohakuaccel.lang import dims, grid
from kohakutpu import lang as L
from kohakutpu.lang import kernel
from kohakutpu.tensor import Tensor

B, G, C, D, M, N = dims("B G C D M N")


@kernel
def remember(
    keys=L.In(B, G, C, D),
    values=L.In(B, G, C, D),
    key=L.In(B, G, 1, D),
    value=L.In(B, G, 1, D),
    here=L.In(C),
    new_keys=L.Out(B, G, C, D),
    new_values=L.Out(B, G, C, D),
):
    """The caches with their row where `here` is not 0 replaced by key and value; all others keep their bits.

    The place is data, so one program serves every step. A value is immutable: the caches are copied, which is a pass
    over C rows of each head.
    """
    for b, g, r in grid(keys.each(0), keys.each(1), keys.rows()):
        new_keys[b, g, r] <<= L.where(here[r], key[b, g, 0], keys[b, g, r])
        new_values[b, g, r] <<= L.where(here[r], value[b, g, 0], values[b, g, r])


def written(keys: Tensor, values: Tensor, key: Tensor, value: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
    """`remember` in the words of the tensor level, for a program that is compiled as one: finite rows keep their bits,
    the new one is rounded twice (E8M15, then FP16), as `here` is 0 or 1."""
    row = here.reshape(-1, 1)
    return keys + (key - keys) * row, values + (value - values) * row


@kernel
def pooled(x=L.In(B, M, N), weight=L.In(B, M), y=L.Out(B, N)):
    """y[b] = s / |s| for s = sum over m of weight[b, m] * x[b, m]: the mean of a sentence's tokens, of length 1.

    s is an FP16 value; its sum and its length are taken in E8M15.
    """
    s = L.temp(B, N)
    for b, c in grid(x.each(0), x.T.rows()):
        s[b, c] <<= L.row_sum(x.T[b, c] * weight[b])
    for b in grid(s.rows()):
        y[b] <<= s[b] * L.rsqrt(L.row_sumsq(s[b]))
