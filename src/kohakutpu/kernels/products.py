"""Contractions: the last axis of both operands, the second stored [N][K]."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from kohakuaccel.lang import dims, grid, sweep
from kohakuaccel.machine import Machine
from kohakutpu import lang as L
from kohakutpu.lang import kernel
from kohakutpu.lang.kernel import Tune

M, K, N = dims("M, K, N")


def tile_of(
    m: str,
    n: str,
    k: str,
    knobs: tuple[str, str, str] = ("gm", "gn", "nk"),
    each: tuple[str, ...] = ("...",),
    folded: tuple[str, ...] = (),
) -> Tune:
    """A `tune` that chooses the tile of m x n x k products, sizes given by their dims' names.

    One result for each point of `each`; one accumulator takes the products of all points of `folded`.
    """

    def tune(machine: Machine, sizes: Mapping[str, int]) -> dict[str, object]:
        from kohakutpu.lower.tiling import choose

        batch, terms = (prod(sizes.get(name, 1) for name in names) for names in (each, folded))
        tile = choose(machine, sizes[m], sizes[n], sizes[k], batch, terms)
        return dict(zip(knobs, (tile.gm, tile.gn, tile.nk)))

    return tune


@kernel(tune=tile_of("M", "N", "K"))
def matmul(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=2, gn=4, nk=2):
    """c = a @ b.T."""
    for i, j in grid(a.tiles(gm), b.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(a.chunks32(nk)):
            acc += a[i, k] @ b[j, k]
        c[i, j] <<= acc


@kernel(tune=tile_of("M", "N", "K"))
def batched_matmul(a=L.In(..., M, K), b=L.In(..., N, K), c=L.Out(..., M, N), *, gm=2, gn=4, nk=2):
    """c[e] = a[e] @ b[e].T for every element e of the batch."""
    for i, j in grid(a.tiles(gm), b.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(a.chunks32(nk)):
            acc += a[i, k] @ b[j, k]
        c[i, j] <<= acc
