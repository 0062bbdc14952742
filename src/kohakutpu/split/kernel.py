"""The kernel of split products: per level one accumulator takes the products of all its pairs of digit planes."""

from __future__ import annotations

from kohakuaccel.lang import dims, grid, sweep
from kohakutpu import lang as L
from kohakutpu.lang import kernel
from kohakutpu.split.digits import Pairs

P, Q, E, M, N, K, levels_count = dims("P Q E M N K levels_count")


@kernel
def digit_products(
    a=L.In(P, E, M, K, quantised=True),
    b=L.In(Q, E, N, K, quantised=True),
    c=L.Out(levels_count, E, M, N),
    *,
    levels: tuple[Pairs, ...] = (((0, 0),),),
    levels_count=1,
    gm=2,
    gn=4,
    nk=1,
):
    """c[s, e] = sum over the pairs (p, q) of level s of a[p, e] @ b[q, e].T, each level a stage of its own."""
    for s, pairs in enumerate(levels):
        for e, i, j in grid(a.each(1), a.tiles(gm), b.tiles(gn)):
            acc = L.tile(gm, gn, nk)
            for p, q in pairs:
                for k in sweep(a.chunks32(nk)):
                    acc += a[p, e, i, k] @ b[q, e, j, k]
            c[s, e, i, j] <<= acc
