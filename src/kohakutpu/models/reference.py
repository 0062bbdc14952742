"""The models in numpy, for comparison: written from their definitions, sharing no code with the machine's path.

Every product goes through `product(a, b) = a @ b.swapaxes(-1, -2)` and every value that a machine would store through
`stored`, so that a caller may put a number format's errors there. Left out, arithmetic is that of the weights' dtype
promoted with the inputs'. Weights are the models' own dataclasses, of numpy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]


def plain_product(a: Values, b: Values) -> Values:
    """a (..., M, K) @ b (..., N, K) transposed."""
    return a @ np.swapaxes(b, -1, -2)


def tanh_gelu(x: Values) -> Values:
    """The tanh form, within 5e-4 of the exact one."""
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


@dataclass(frozen=True)
class Reference:
    """The arithmetic that the models below run in."""

    product: Callable[[Values, Values], Values] = plain_product
    stored: Callable[[Values], Values] = lambda x: x
    gelu: Callable[[Values], Values] = tanh_gelu

    def linear(self, x: Values, w: Values, b: Values | None = None) -> Values:
        y = self.product(x, w)
        return self.stored(y if b is None else y + b)

    def norm(self, x: Values, w: Any, eps: float) -> Values:
        """Layer norm, or rms norm where w has no offset."""
        if w.b is None:
            return self.stored(x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w.w)
        centred = x - x.mean(-1, keepdims=True)
        return self.stored(centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps) * w.w + w.b)

    def attention(
        self, h: Values, w: Any, *, seen: Values | None = None, turn: Callable[[Values], Values] | None = None
    ) -> Values:
        """Attention of h (B, L, N) over itself with its projections; seen (broadcastable to B, H, L, L): who may look
        at whom."""
        rows = h[:, None]
        q, k, v = (self.stored(self.product(rows, m)) for m in (w.q, w.k, w.v))
        q = q if w.q_bias is None else self.stored(q + w.q_bias)
        if turn is not None:
            q, k = self.stored(turn(q)), self.stored(turn(k))
        k, v = (np.repeat(m, q.shape[1] // m.shape[1], axis=1) for m in (k, v))
        score = self.stored(self.product(q, k)) * q.shape[-1] ** -0.5
        score = score if seen is None else np.where(seen, score, -np.inf)
        e = np.exp(score - score.max(-1, keepdims=True))
        p = self.stored(e / e.sum(-1, keepdims=True))
        o = self.stored(self.product(p, np.swapaxes(v, -1, -2)))
        y = self.product(o, w.o).sum(1)
        return y if w.o_bias is None else y + w.o_bias


def mlp(layers: Any, x: Values, activation: Callable[[Values], Values], ref: Reference | None = None) -> Values:
    """Layers with an activation between them; x (..., K)."""
    r = ref or Reference()
    for n, layer in enumerate(layers):
        x = r.product(x, layer.w) + layer.b
        x = r.stored(x if n == len(layers) - 1 else activation(x))
    return x


def vit(w: Any, c: Any, images: Values, ref: Reference | None = None) -> Values:
    """Logits (B, classes) of images (B, C, S, S)."""
    r = ref or Reference()
    side = c.image // c.patch
    cut = [
        images[:, :, i * c.patch : (i + 1) * c.patch, j * c.patch : (j + 1) * c.patch].reshape(len(images), -1)
        for i in range(side)
        for j in range(side)
    ]
    x = r.linear(np.stack(cut, 1), w.embed.w, w.embed.b)
    x = r.stored(np.concatenate([np.repeat(w.token, len(images), 0), x], 1) + w.position)
    for b in w.blocks:
        x = r.stored(x + r.attention(r.norm(x, b.norm1, c.eps), b.attention))
        h = r.stored(r.gelu(r.product(r.norm(x, b.norm2, c.eps), b.up.w) + b.up.b))
        x = r.stored(x + r.product(h, b.down.w) + b.down.b)
    return r.linear(r.norm(x[:, 0], w.norm, c.eps), w.head.w, w.head.b)


def bert(w: Any, c: Any, ids: Values, keep: Values, ref: Reference | None = None) -> Values:
    """Hidden values (B, L, N)."""
    r = ref or Reference()
    x = r.norm(r.stored(w.words[ids] + w.offsets[: ids.shape[1]]), w.norm, c.eps)
    seen = (keep != 0)[:, None, None, :]
    for b in w.blocks:
        x = r.norm(r.stored(x + r.attention(x, b.attention, seen=seen)), b.norm1, c.eps)
        h = r.stored(r.gelu(r.product(x, b.up.w) + b.up.b))
        x = r.norm(r.stored(x + r.product(h, b.down.w) + b.down.b), b.norm2, c.eps)
    return x


def sentences(hidden: Values, keep: Values) -> Values:
    """Mean of the tokens that count, of length 1: (B, N) from (B, L, N) and (B, L)."""
    mean = (hidden * keep[..., None]).sum(1) / keep.sum(1, keepdims=True)
    return mean / np.linalg.norm(mean, axis=-1, keepdims=True)


def llama(w: Any, c: Any, tokens: Values, ref: Reference | None = None) -> Values:
    """Logits (B, L, V) of every position."""
    r = ref or Reference()
    x, length, half = w.words[tokens], tokens.shape[1], c.head // 2
    angle = np.arange(length)[:, None] * c.base ** (-np.arange(half) / half)
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)

    def turn(h: Values) -> Values:
        first, second = h[..., :half], h[..., half:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    seen = np.tri(length, dtype=bool)
    for b in w.blocks:
        x = r.stored(x + r.attention(r.norm(x, b.norm1, c.eps), b.attention, seen=seen, turn=turn))
        h = r.norm(x, b.norm2, c.eps)
        gate = r.product(h, b.gate)
        x = r.stored(x + r.product(r.stored(gate / (1 + np.exp(-gate)) * r.product(h, b.up)), b.down))
    return r.linear(r.norm(x, w.norm, c.eps), w.head)


def exact_gelu(x: Values) -> Values:
    """x times the normal distribution's function at x."""
    flat = np.fromiter((erf(v) for v in (x / np.sqrt(2.0)).ravel().tolist()), np.float64, x.size)
    return (0.5 * x * (1 + flat.reshape(x.shape))).astype(x.dtype)


def checkpoint(state: Mapping[str, Values], heads: int, eps: float, ids: Values, keep: Values) -> Values:
    """Hidden values (B, L, N) of a BERT encoder straight from a checkpoint's arrays: nothing folded, the exact gelu."""

    def linear(x: Values, name: str) -> Values:
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def norm(x: Values, name: str) -> Values:
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((centred * centred).mean(-1, keepdims=True) + x.dtype.type(eps))
        return centred / scale * state[f"{name}.LayerNorm.weight"] + state[f"{name}.LayerNorm.bias"]

    def split(x: Values) -> Values:
        return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

    words, places, kinds = (state[f"embeddings.{n}_embeddings.weight"] for n in ("word", "position", "token_type"))
    x = norm(words[ids] + places[: ids.shape[1]] + kinds[0], "embeddings")
    depth = sum(name.endswith("intermediate.dense.weight") for name in state)
    for n in range(depth):
        at = f"encoder.layer.{n}"
        q, k, v = (split(linear(x, f"{at}.attention.self.{part}")) for part in ("query", "key", "value"))
        score = np.where(
            keep[:, None, None, :] != 0, q @ k.swapaxes(-1, -2) / x.dtype.type(q.shape[-1] ** 0.5), -np.inf
        )
        e = np.exp(score - score.max(-1, keepdims=True))
        o = (e / e.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(x.shape)
        x = norm(x + linear(o, f"{at}.attention.output.dense"), f"{at}.attention.output")
        h = exact_gelu(linear(x, f"{at}.intermediate.dense"))
        x = norm(x + linear(h, f"{at}.output.dense"), f"{at}.output")
    return x
