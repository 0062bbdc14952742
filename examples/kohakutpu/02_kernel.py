"""The kernel level: write how the work is split, then call the kernel like a function.

kohaku run examples/kohakutpu/02_kernel.py
kohaku plan examples/kohakutpu/02_kernel.py:matmul 256x512 128x512 --set gm=16 --set gn=32 --set nk=4
kohaku disasm examples/kohakutpu/02_kernel.py:silu 64
"""

import numpy as np

from kohakuaccel.lang import dims, grid, sweep
from kohakutpu import api as ktpu
from kohakutpu import lang as L
from kohakutpu.lang import kernel

M, K, N = dims("M, K, N")
LOG2_E = 1.4426950408889634


@kernel
def matmul(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=2, gn=1, nk=2):
    """c = a @ b.T. A tile is 4*gm rows by 4*gn columns; K comes in chunks of 32*nk."""
    for i, j in grid(a.tiles(gm), b.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(a.chunks32(nk)):
            acc += a[i, k] @ b[j, k]
        c[i, j] <<= acc


@kernel
def silu(x=L.In(...), y=L.Out(...)):
    """x * sigmoid(x), for any rank. The machine has exp2, not exp: log2(e) is folded into the scale."""
    for e in grid(x.parts()):
        y[e] <<= x[e] * L.recip(L.exp2(x[e] * -LOG2_E) + 1)


@kernel
def softmax(x=L.In(..., M, N), y=L.Out(..., M, N)):
    """Row by row: the maximum is taken off first, so that exp2 cannot overflow."""
    for i in grid(x.rows()):
        e = L.exp2((x[i] - L.row_max(x[i])) * LOG2_E)
        y[i] <<= e * L.recip(L.row_sum(e))


def main() -> None:
    rng = np.random.default_rng(1)
    A, B = rng.standard_normal((96, 128)), rng.standard_normal((64, 128))
    a, b = ktpu.tensor(A), ktpu.tensor(B)

    c = matmul(a, b)  # a call, not a launch: solves M, K, N, packs a and b, allocates c, runs
    exact = A @ B.T
    worst = abs(c.numpy() - exact).max() / abs(exact).max()
    print(f"matmul  {c.shape}: largest error {worst:.1e} of the largest value")
    wide = matmul(a, b, gm=8, gn=16, nk=4)
    print(f"        another split, same bits: {np.array_equal(c.numpy(), wide.numpy())}")

    x = ktpu.tensor(rng.standard_normal((3, 5, 7)))  # any rank, any size
    exact = x.numpy().astype(np.float64)
    print(f"silu    {x.shape}: largest error {abs(silu(x).numpy() - exact / (1 + np.exp(-exact))).max():.1e}")

    p = softmax(c)
    print(f"softmax {p.shape}: rows sum to {p.numpy().astype(np.float64).sum(axis=-1).mean():.4f}")

    print("\nthe matmul's structure, before any shape:\n")
    print(matmul.trace().pretty())
    print("\nand its plan for these shapes:\n")
    print(matmul.plan(a, b, gm=8, gn=16, nk=4).pretty())


if __name__ == "__main__":
    main()
