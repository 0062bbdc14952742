"""What models are built of: attention with its projections, and feed-forward blocks, as forward functions on tensors.

It decides which kernel of the library computes which part. It must not know the model around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu.models.parameters import A, Draw, Host, Linear, Norm
from kohakutpu.tensor import Tensor


@dataclass(frozen=True)
class Attention(Generic[A]):
    """Projections around attention, a matrix per head: q (H, D, N), k and v (G, D, N), o (H, N, D).

    q_bias (H, 1, D) and o_bias (N,) are optional. There is no bias of k and v: see `folded`.
    """

    q: A
    k: A
    v: A
    o: A
    q_bias: A | None = None
    o_bias: A | None = None

    @staticmethod
    def folded(heads: int, q: Linear[Host], k: Linear[Host], v: Linear[Host], o: Linear[Host]) -> Attention[Host]:
        """From four layers (N, N) with heads side by side, without positions inside attention (rope).

        A bias of k adds the same number to all scores of a row, and softmax drops it. Weights of a row sum to 1, so a
        bias of v passes through attention, and joins the bias of o: o_bias = o.b + o.w @ v.b.
        """
        n, width = q.w.shape[1], q.w.shape[0] // heads
        if q.w.shape[0] % heads:
            raise Refusal("heads divide the width", where="attention", got=f"{q.w.shape[0]} / {heads}")
        wq, wk, wv = (layer.w.reshape(-1, width, n) for layer in (q, k, v))
        bias = None if o.b is None else o.b
        if v.b is not None:
            passed = (o.w.astype(np.float64) @ v.b.astype(np.float64)).astype(np.float32)
            bias = passed if bias is None else bias + passed
        merged = np.ascontiguousarray(o.w.reshape(n, heads, width).swapaxes(0, 1))
        return Attention(wq, wk, wv, merged, None if q.b is None else q.b.reshape(heads, 1, width), bias)


P = ParamSpec("P")
R = TypeVar("R")


def traced(forward: Callable[P, R], jit: bool) -> Callable[P, R]:
    """A forward pass, kernel by kernel as it stands or compiled as one program."""
    return ktpu.jit(forward) if jit else forward


def draw_attention(draw: Draw, n: int, heads: int, groups: int, width: int) -> Attention[Host]:
    """Random projections without biases, `groups` heads of k and v."""
    q, k, v = (draw.weight(count, width, n) for count in (heads, groups, groups))
    o = draw.normal(heads, n, width, deviation=(heads * width) ** -0.5)
    return Attention(q, k, v, o)


def draw_biased_attention(draw: Draw, n: int, heads: int) -> Attention[Host]:
    """Random projections with all four biases, folded."""
    return Attention.folded(heads, *(draw.linear(n, n) for _ in range(4)))


def attend(h: Tensor, w: Attention[Tensor], residual: Tensor, keep: Any = None) -> Tensor:
    """residual + attention of h (B, L, N) over itself; keep (B, L): keys that count."""
    q, k, v = (kernels.split_heads(h, m) for m in (w.q, w.k, w.v))
    if w.q_bias is not None:
        q = q + w.q_bias
    o = kernels.flash_attention(q, k, v, keep=keep)
    return kernels.merge_heads(o, w.o, residual, w.o_bias)


def feed_forward(h: Tensor, up: Linear[Tensor], down: Linear[Tensor], residual: Tensor) -> Tensor:
    """residual + down(gelu(up(h))), gelu in its tanh form; h and residual (B, L, N).

    Where both lie in rows, those of a batch are rows of one product, and the weights are fetched once for all of them.
    """
    rows, width = residual.size // residual.shape[-1], residual.shape[-1]
    if all(x.rows_at_hand(rows, width) for x in (h, residual)):
        flat = kernels.mlp(
            h.reshape(rows, width), up.w, down.w, up.b, down.b, residual.reshape(rows, width), activation="gelu"
        )
        return flat.reshape(residual.shape)
    return kernels.mlp(h, up.w, down.w, up.b, down.b, residual, activation="gelu")


def normed(x: Tensor, w: Norm[Tensor], eps: float) -> Tensor:
    """Layer norm, or rms norm where there is no offset."""
    return x.rmsnorm(w.w, eps) if w.b is None else x.layernorm(w.w, w.b, eps)
