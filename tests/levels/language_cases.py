"""Kernels that use every form of the language, for the corpus."""

from __future__ import annotations

import numpy as np

from kohakuaccel.lang import dims, grid, stage, sweep, units
from kohakutpu import lang as L
from kohakutpu.lang import kernel

M, K, N, P, H, G, B, D, Lq, Lk = dims("M K N P H G B D Lq Lk")
LOG2_E = 1.4426950408889634


@kernel
def linear(x=L.In(..., M, K), w=L.In(N, K), b=L.In(N), y=L.Out(..., M, N), *, gm=2, gn=4, nk=2):
    """One value per column, shared by the batch."""
    for i, j in grid(x.tiles(gm), w.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            acc += x[i, k] @ w[j, k]
        y[i, j] <<= acc + b[j]


@kernel
def scaled_residual(x=L.In(M, K), w=L.In(N, K), s=L.In(M), r=L.In(M, N), y=L.Out(M, N), *, gm=2, gn=3, nk=1):
    """One value per row, and an operand of the output's shape."""
    for i, j in grid(x.tiles(gm), w.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            acc += x[i, k] @ w[j, k]
        y[i, j] <<= acc * s[i] + r[i, j]


@kernel
def gated(x=L.In(M, K), w=L.In(N, K), v=L.In(N, K), y=L.Out(M, N), *, gm=4, gn=4, nk=2):
    """Two accumulators, one after another, met in one epilogue."""
    for i, j in grid(x.tiles(gm), w.tiles(gn)):
        gate = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            gate += x[i, k] @ w[j, k]
        up = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            up += x[i, k] @ v[j, k]
        y[i, j] <<= gate * L.recip(L.exp2(gate * -LOG2_E) + 1) * up


@kernel
def two_products(x=L.In(M, K), w=L.In(N, K), z=L.In(M, P), v=L.In(N, P), y=L.Out(M, N), *, gm=2, gn=4, nk=2):
    """Two sweeps into one accumulator."""
    for i, j in grid(x.tiles(gm), w.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            acc += x[i, k] @ w[j, k]
        for k in sweep(z.chunks32(nk)):
            acc += z[i, k] @ v[j, k]
        y[i, j] <<= acc


@kernel
def by_regions(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=2, gn=4, nk=2):
    """The placement rung."""
    for i, j in grid(a.tiles(gm), b.tiles(gn)):
        ra, rb = L.region(gm, nk), L.region(gn, nk)
        acc = L.tile(gm, gn, nk)
        for k in sweep(a.chunks32(nk)):
            ra <<= a[i, k]
            rb <<= b[j, k]
            acc += ra @ rb
        c[i, j] <<= acc


@kernel
def by_stage(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=2, gn=4, nk=2):
    """The schedule rung."""
    with stage(a.tiles(gm), b.tiles(gn)) as (i, j):
        acc = L.tile(gm, gn, nk)
        for k in sweep(a.chunks32(nk)):
            acc += a[i, k] @ b[j, k]
        c[i, j] <<= acc


@kernel
def triangular(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, g=1):
    """A sweep whose bound depends on the stage's own index, and one that starts later."""
    for i, j in grid(a.tiles(g), b.tiles(g)):
        acc = L.tile(g, g, 1)
        for k in sweep(i + 1):
            acc += a[i, k] @ b[j, k]
        c[i, j] <<= acc


@kernel
def grouped(q=L.In(B, H, M, D), k=L.In(B, G, N, D), s=L.Out(B, H, M, N), *, group=2, gm=2, gn=4, nk=1):
    """Explicit leading indices with arithmetic: several heads of q share one of k."""
    for b, h, i, j in grid(q.each(0), q.each(1), q.tiles(gm), k.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for d in sweep(q.chunks32(nk)):
            acc += q[b, h, i, d] @ k[b, h // group, j, d]
        s[b, h, i, j] <<= acc


@kernel
def masked_rows(x=L.In(..., M, N), v=L.In(..., N), y=L.Out(..., M, N)):
    """A table read row by row within each batch element, and a vector per batch element."""
    keep = L.table(np.tri(6, 20, 3, dtype=np.float16))
    for r in grid(x.rows()):
        y[r] <<= L.where(keep[r], x[r] + v, -1.0)


@kernel
def running(x=L.In(...), y=L.In(...), z=L.Out(...)):
    """A temporary carried through stages: keep the old value, then overwrite it."""
    top = L.temp(...)
    with units(x.parts()) as e:
        top[e] <<= L.abs(x[e])
    for _ in sweep(3):
        with units(x.parts()) as e:
            top[e] <<= L.maximum(top[e] * 0.5, y[e])
    with units(x.parts()) as e:
        z[e] <<= top[e] - x[e]


@kernel
def split_k(a=L.In(..., M, K), b=L.In(N, K), v=L.In(N), c=L.Out(..., M, N), *, gm=2, gn=4, nk=1, split=3):
    """K in parts that run as instances of their own; their sums are added by an emitted band."""
    for i, j in grid(a.tiles(gm), b.tiles(gn)):
        acc = L.tile(gm, gn, nk, split)
        for k in sweep(a.chunks32(nk)):
            acc += a[i, k] @ b[j, k]
        c[i, j] <<= acc + v[j]


@kernel
def nested(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=4, gn=4, nk=1, part=64):
    """A tiling inside a tile: a view of the accumulator."""
    with units(a.tiles(gm), b.tiles(gn)) as (i, j):
        acc = L.tile(gm, gn, nk)
        for k in sweep(a.chunks32(nk)):
            acc += a[i, k] @ b[j, k]
        with units(acc.parts(part)) as e:
            c[i, j] <<= L.maximum(acc[e], 0)


@kernel
def turned_halves(x=L.In(..., M, N), y=L.Out(..., M, N)):
    """Columns of a row, computed with and set behind others."""
    for r in grid(x.rows()):
        y[r] <<= L.join(-x[r, N // 2 :], x[r, : N // 2])


@kernel
def into_columns(x=L.In(M, 20), z=L.In(M, 7), y=L.Out(M, 55)):
    """Stores into parts of rows, in words of their own: moved, computed, one number spread."""
    for r in grid(M):
        y[r, 0:16] <<= x[r, 2:18]
        y[r, 16:48] <<= L.join(x[r], z[r], z[r, 2:7])
    for r in grid(M):
        y[r, 48:] <<= z[r] * 2.0 + x[r, 13:]


@kernel
def centred_columns(x=L.In(..., M, N), y=L.Out(..., N, M)):
    """Rows of a transposed port, in arithmetic and as numbers."""
    for c in grid(x.T.rows()):
        y[c] <<= x.T[c] - L.row_mean(x.T[c])


@kernel
def turned_temporary(x=L.In(M, K), w=L.In(N, K), y=L.Out(N, M), *, g=2):
    """A product's transpose, stored by the relayout itself."""
    t = L.temp(M, N)
    for i, j in grid(x.tiles(g), w.tiles(g)):
        acc = L.tile(g, g, 1)
        for k in sweep(x.chunks32(1)):
            acc += x[i, k] @ w[j, k]
        t[i, j] <<= acc
    for c in grid(N):
        y[c] <<= t.T[c]


@kernel
def two_layers(x=L.In(M, K), w=L.In(N, K), v=L.In(P, N), y=L.Out(M, P), *, gm=4, gn=16, hn=8, nk=2):
    """A temporary that an elementwise epilogue writes and only a product reads."""
    h = L.temp(M, N)
    for i, j in grid(x.tiles(gm), w.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            acc += x[i, k] @ w[j, k]
        h[i, j] <<= acc * L.recip(L.exp2(acc * -LOG2_E) + 1)
    for i, j in grid(h.tiles(gm), v.tiles(hn)):
        acc = L.tile(gm, hn, nk)
        for k in sweep(h.chunks32(nk)):
            acc += h[i, k] @ v[j, k]
        y[i, j] <<= acc


@kernel
def normed_rows(x=L.In(M, K), w=L.In(N, K), v=L.In(P, N), y=L.Out(M, P), *, gm=4, gn=16, hn=8, nk=2):
    """A temporary that a row stage of two levels of reductions writes, a number per row beside it, an epilogue."""
    s, h, mean = L.temp(M, N), L.temp(M, N), L.temp(M)
    for i, j in grid(x.tiles(gm), w.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            acc += x[i, k] @ w[j, k]
        s[i, j] <<= acc
    for r in grid(s.rows()):
        mean[r] <<= L.row_mean(s[r])
    for r in grid(s.rows()):
        spread = s[r] - mean[r]
        h[r] <<= spread * L.rsqrt(L.row_mean(spread * spread) + 0.01) + L.row_min(spread)
    for i, j in grid(h.tiles(gm), v.tiles(hn)):
        acc = L.tile(gm, hn, nk)
        for k in sweep(h.chunks32(nk)):
            acc += h[i, k] @ v[j, k]
        y[i, j] <<= L.maximum(acc, 0.25)
