"""The kernel of split products: per level one accumulator takes the products of all its pairs of digit planes."""

from __future__ import annotations

from kohakuaccel.lang import dims, greatest, grid, least, sweep
from kohakutpu import lang as L
from kohakutpu.lang import kernel

E, M, N, KA, KB, levels = dims("E M N KA KB levels")


@kernel
def digit_products(
    a=L.In(E, M, KA, quantised=True),
    b=L.In(E, N, KB, quantised=True),
    c=L.Out(levels, E, M, N),
    *,
    first=0,
    levels=1,
    left=1,
    right=1,
    chunks=1,
    gm=2,
    gn=4,
    nk=1,
):
    """c[s] = sum over p of plane p of a times plane first + s - p of b, transposed.

    a: its `left` planes one behind another along K, each `chunks` chunks of nk blocks of 32; b: its `right` planes, the
    last one first, so that the pairs of a level follow each other in both. All levels are one stage.
    """
    for e, s, i, j in grid(a.each(0), levels, a.tiles(gm), b.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        begin = greatest(s + (first - right + 1), 0)
        count = least(s + first, left - 1) - begin + 1
        skip = greatest(right - 1 - first - s, 0)
        for k in sweep(count * chunks):
            acc += a[e, i, k + begin * chunks] @ b[e, j, k + skip * chunks]
        c[s, e, i, j] <<= acc
