"""Attention, written out twice: the softmax of whole rows, and the online recurrence over blocks of keys.

kohaku run examples/kohakutpu/04_attention.py
kohaku plan examples/kohakutpu/04_attention.py:attention 4x128x64 4x128x64 4x128x64
"""

import numpy as np

from kohakuaccel.lang import dims, grid, sweep
from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu import lang as L
from kohakutpu.lang import kernel

H, Lq, Lk, D = dims("H, Lq, Lk, D")
LOG2_E = 1.4426950408889634


@kernel
def attention(
    q=L.In(..., Lq, D), k=L.In(..., Lk, D), v=L.In(..., Lk, D), o=L.Out(..., Lq, D), *, scale=0.125, causal=False
):
    """Three stages. The compiler adds two relayouts: a row is not a row until the sub-tiles are in row order."""
    s, p = L.temp(..., Lq, Lk), L.temp(..., Lq, Lk)
    for i, j in grid(q.tiles(8), k.tiles(8)):
        acc = L.tile(8, 8, 2)
        for d in sweep(q.chunks32(2)):
            acc += q[i, d] @ k[j, d]
        s[i, j] <<= acc
    seen = L.table(lambda m, n: np.tri(m, n, n - m), Lq, Lk) if causal else None  # off: not in the program at all
    for r in grid(s.rows()):
        logit = s[r] * (scale * LOG2_E)
        if seen is not None:
            logit = L.where(seen[r], logit, -1e30)  # a value on the vector core, which has float32's range: not stored
        e = L.exp2(logit - L.row_max(logit))
        p[r] <<= e * L.recip(L.row_sum(e))
    for i, j in grid(p.tiles(8), v.T.tiles(8)):
        acc = L.tile(8, 8, 2)
        for c in sweep(p.chunks32(2)):
            acc += p[i, c] @ v.T[j, c]
        o[i, j] <<= acc


@kernel
def online(q=L.In(H, Lq, D), k=L.In(H, Lk, D), v=L.In(H, Lk, D), o=L.Out(H, Lq, D), *, scale=0.125, block=64):
    """A block of keys at a time (Lk a multiple): maximum, sum and values of a row are temporaries that live on."""
    top, new, total, fade = (L.temp(H, Lq) for _ in range(4))
    s, p = L.temp(H, Lq, block), L.temp(H, Lq, block)
    part, mixed = L.temp(H, Lq, D), L.temp(H, Lq, D)
    for h, r in grid(q.each(0), q.rows()):
        top[h, r] <<= -65504.0
        total[h, r] <<= 0.0
        mixed[h, r] <<= 0.0
    for n in sweep(Lk // block):  # a loop around stages
        for h, i, j in grid(q.each(0), q.tiles(8), s.T.tiles(8)):
            acc = L.tile(8, 8, 2)
            for d in sweep(q.chunks32(2)):
                acc += q[h, i, d] @ k[h, j + n * (block // 32), d]
            s[h, i, j] <<= acc
        for h, r in grid(s.each(0), s.rows()):
            new[h, r] <<= L.maximum(top[h, r], L.row_max(s[h, r] * (scale * LOG2_E)))
        for h, r in grid(s.each(0), s.rows()):
            p[h, r] <<= L.exp2(s[h, r] * (scale * LOG2_E) - new[h, r])
            fade[h, r] <<= L.exp2(top[h, r] - new[h, r])
        for h, r in grid(p.each(0), p.rows()):
            total[h, r] <<= L.fma(total[h, r], fade[h, r], L.row_sum(p[h, r]))
            top[h, r] <<= new[h, r]
        for h, i, j in grid(p.each(0), p.tiles(8), v.T.tiles(8)):
            acc = L.tile(8, 8, 2)
            for c in sweep(p.chunks32(2)):
                acc += p[h, i, c] @ v.T[h, j, c + n * (block // 64)]
            part[h, i, j] <<= acc
        for h, r in grid(part.each(0), part.rows()):
            mixed[h, r] <<= L.fma(mixed[h, r], fade[h, r], part[h, r])
    for h, r in grid(mixed.each(0), mixed.rows()):
        o[h, r] <<= mixed[h, r] * L.recip(total[h, r])


def exact(q, k, v, causal=False):
    """float64."""
    s = q @ k.swapaxes(-1, -2) * 0.125
    if causal:
        s = np.where(np.tri(s.shape[-2], s.shape[-1], s.shape[-1] - s.shape[-2]), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def main() -> None:
    rng = np.random.default_rng(4)
    q, k, v = (ktpu.tensor(rng.standard_normal((4, 128, 64))) for _ in range(3))
    a, b, c = (t.numpy().astype(np.float64) for t in (q, k, v))

    def report(name, result, want):
        error = np.linalg.norm(result.numpy().reshape(want.shape) - want) / np.linalg.norm(want)
        print(f"{name:<34} relative error {error:.1e}")

    report("whole rows", attention(q, k, v), exact(a, b, c))
    report("whole rows, causal", attention(q, k, v, causal=True), exact(a, b, c, causal=True))
    report("online, blocks of 64 keys", online(q, k, v), exact(a, b, c))

    # The library's kernel takes any heads, lengths and masks, and blocks of q rows that bound the temporaries.
    one = [t.reshape(1, *t.shape) for t in (q, k, v)]
    report("the library's, causal", kernels.flash_attention(*one, causal=True), exact(a, b, c, causal=True))
    whole = kernels.flash_attention(*one).numpy()
    blocked = kernels.flash_attention(*one, qblock=32).numpy()
    print(f"{'in blocks of 32 rows':<34} same bits: {np.array_equal(whole, blocked)}")

    print("\nthe plan of the first one:\n")
    print(attention.plan(q, k, v).pretty())


if __name__ == "__main__":
    main()
