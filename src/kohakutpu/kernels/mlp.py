"""Feed-forward blocks: two layers, or a gated pair and its down projection, with the hidden values in a temporary.

The hidden values stay on the device: they leave the clusters as sub-tiles, pass the epilogue, and are brought into
operand order by the vector cores.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohakuaccel.lang import dims, grid, sweep
from kohakuaccel.machine import Machine
from kohakutpu import lang as L
from kohakutpu.kernels.activations import activate
from kohakutpu.kernels.products import tile_of
from kohakutpu.lang import In, Out, Temp, kernel

M, K, F, N = dims("M K F N")


def _tiles(machine: Machine, sizes: Mapping[str, int]) -> dict[str, object]:
    up = tile_of("M", "F", "K")(machine, sizes)
    down = tile_of("M", "N", "F", ("dm", "dn", "dk"))(machine, sizes)
    return {**up, **down}


def _down(h: Temp, w: In, bias: In | None, residual: In | None, y: Out, dm: int, dn: int, dk: int) -> None:
    """The stage y = h @ w.T (+ bias) (+ residual)."""
    for i, j in grid(h.tiles(dm), w.tiles(dn)):
        acc = L.tile(dm, dn, dk)
        for k in sweep(h.chunks32(dk)):
            acc += h[i, k] @ w[j, k]
        value = acc if bias is None else acc + bias[j]
        y[i, j] <<= value if residual is None else value + residual[i, j]


@kernel(tune=_tiles)
def mlp(
    x=L.In(..., M, K),
    up=L.In(F, K),
    down=L.In(N, F),
    up_bias=L.In(F, optional=True),
    down_bias=L.In(N, optional=True),
    residual=L.In(..., M, N, optional=True),
    y=L.Out(..., M, N),
    *,
    activation="gelu",
    gm=2,
    gn=4,
    nk=2,
    dm=2,
    dn=4,
    dk=2,
):
    """y = activation(x @ up.T + up_bias) @ down.T + down_bias + residual; biases and residual optional."""
    h = L.temp(..., M, F)
    for i, j in grid(x.tiles(gm), up.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            acc += x[i, k] @ up[j, k]
        h[i, j] <<= activate(activation, acc if up_bias is None else acc + up_bias[j])
    _down(h, down, down_bias, residual, y, dm, dn, dk)


@kernel(tune=_tiles)
def gated_mlp(
    x=L.In(..., M, K),
    gate=L.In(F, K),
    up=L.In(F, K),
    down=L.In(N, F),
    residual=L.In(..., M, N, optional=True),
    y=L.Out(..., M, N),
    *,
    activation="silu",
    gm=2,
    gn=4,
    nk=2,
    dm=2,
    dn=4,
    dk=2,
):
    """y = (activation(x @ gate.T) * (x @ up.T)) @ down.T + residual; the residual is optional."""
    h = L.temp(..., M, F)
    for i, j in grid(x.tiles(gm), up.tiles(gn)):
        gated = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            gated += x[i, k] @ gate[j, k]
        linear = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            linear += x[i, k] @ up[j, k]
        h[i, j] <<= activate(activation, gated) * linear
    _down(h, down, None, residual, y, dm, dn, dk)


swiglu = gated_mlp.preset("swiglu", activation="silu")
geglu = gated_mlp.preset("geglu", activation="gelu")
