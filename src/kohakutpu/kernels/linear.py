"""The linear layer: a product of the last axes with what usually follows it, in one kernel with optional operands.

What is left out of a call is not in the program. The epilogue works on accumulators after their one rounding to FP16.
"""

from __future__ import annotations

from kohakuaccel.lang import dims, grid, sweep
from kohakutpu import lang as L
from kohakutpu.kernels.activations import activate
from kohakutpu.kernels.products import tile_of
from kohakutpu.lang import kernel

M, K, N = dims("M, K, N")


@kernel(tune=tile_of("M", "N", "K"))
def linear(
    x=L.In(..., M, K),
    w=L.In(N, K),
    bias=L.In(N, optional=True),
    gate=L.In(..., M, N, optional=True),
    residual=L.In(..., M, N, optional=True),
    y=L.Out(..., M, N),
    *,
    activation="none",
    gm=2,
    gn=4,
    nk=2,
):
    """y = activation(x @ w.T + bias) * gate + residual, each of bias (N,), gate and residual (..., M, N) optional.

    activation: none, relu, silu, gelu or sigmoid. w is stored [N][K] and shared by the batch.
    """
    for i, j in grid(x.tiles(gm), w.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            acc += x[i, k] @ w[j, k]
        value = activate(activation, acc if bias is None else acc + bias[j])
        value = value if gate is None else value * gate[i, j]
        y[i, j] <<= value if residual is None else value + residual[i, j]
