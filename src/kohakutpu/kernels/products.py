"""Contractions: the last axis of both operands, the second stored [N][K]."""

from __future__ import annotations

from collections.abc import Mapping

from kohakuaccel.lang import dims, grid, sweep
from kohakuaccel.machine import Machine
from kohakutpu import lang as L
from kohakutpu.lang import kernel

M, K, N = dims("M, K, N")


def _tile(machine: Machine, sizes: Mapping[str, int]) -> dict[str, object]:
    from kohakutpu.lower.tiling import choose

    tile = choose(machine, sizes["M"], sizes["N"], sizes["K"])
    return {"gm": tile.gm, "gn": tile.gn, "nk": tile.nk}


@kernel(tune=_tile)
def matmul(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=2, gn=4, nk=2):
    """c = a @ b.T."""
    for i, j in grid(a.tiles(gm), b.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(a.chunks32(nk)):
            acc += a[i, k] @ b[j, k]
        c[i, j] <<= acc


@kernel(tune=_tile)
def batched_matmul(a=L.In(..., M, K), b=L.In(..., N, K), c=L.Out(..., M, N), *, gm=2, gn=4, nk=2):
    """c[e] = a[e] @ b[e].T for every element e of the batch."""
    for i, j in grid(a.tiles(gm), b.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(a.chunks32(nk)):
            acc += a[i, k] @ b[j, k]
        c[i, j] <<= acc
