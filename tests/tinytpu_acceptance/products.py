"""Matrix products of int8 values and of float32, with what stands around them: bias, relu, residual, batch, depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tinytpu_acceptance.table import Check, Table, table
from tinytpu_acceptance.tensors import F32, I32, Array, ints, reals, tensor, words


def int8(seed: int, *shape: int) -> Array:
    return ints(seed, *shape, low=-128, high=128)


SHAPES = [(1, 4, 4), (4, 4, 4), (4, 8, 4), (8, 8, 8), (4, 16, 4), (4, 4, 16), (2, 4, 12), (5, 7, 6), (3, 3, 3),
    (1, 1, 1), (16, 16, 16),
          (8, 20, 4), (4, 132, 4), (1, 70, 9), (6, 5, 1)]  # fmt: skip
"""Tails, a deep K, a wide N; depths beyond AMEM and WMEM, programs beyond 256 words."""


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def wide(a: Array, w: Array) -> Array:
    return a.astype(I32) @ w.astype(I32)


def squeeze(x: Any) -> Any:
    """Back into int8."""
    return (x >> 7).clip(-128, 127)


def np_squeeze(x: Array) -> Array:
    return np.clip(x >> 7, -128, 127)


def products() -> Iterator[Check]:
    for m, k, n in SHAPES:
        yield tensor(f"{m}x{k}x{n}", lambda a, w: a @ w, int8(1, m, k), int8(2, k, n), want=np.matmul)
    a, w, b = int8(3, 4, 8), int8(4, 8, 4), words(5, 4)
    yield tensor("bias", lambda a, w, b: a @ w + b, a, w, b, want=lambda a, w, b: a @ w + b)
    yield tensor("relu", lambda a, w: (a @ w).relu(), a, w, want=lambda a, w: relu(a @ w))
    yield tensor("bias and relu", lambda a, w, b: (a @ w + b).relu(), a, w, b, want=lambda a, w, b: relu(a @ w + b))
    yield tensor(
        "bias by row", lambda a, w, b: a @ w + b.reshape(4, 1), a, w, b, want=lambda a, w, b: a @ w + b[:, None]
    )
    yield tensor("scaled and cut", lambda a, w: (a @ w) // 64, a, w, want=lambda a, w: (a @ w) // I32(64))
    zero = a.copy()
    zero[1], zero[:, 2] = 0, 0
    yield tensor("rows and columns of 0", lambda a, w: a @ w, zero, w, want=np.matmul)
    yield tensor("weights of 0", lambda a, w: a @ w, a, np.zeros_like(w), want=np.matmul)
    yield tensor(
        "the least numbers",
        lambda a, w: a @ w,
        np.full((4, 132), -128, I32),
        np.full((132, 4), -128, I32),
        want=np.matmul,
    )
    yield tensor("a batch of one weight", lambda a, w: a @ w, int8(6, 3, 4, 8), w, want=np.matmul)
    eyes = (np.eye(4)[None] * np.arange(1, 5)[:, None, None]).astype(I32)
    yield tensor("a batch of weights", lambda a, w: a @ w, eyes, np.ones((4, 4, 4), I32), want=np.matmul)
    yield tensor("a batch of two axes", lambda a, w: a @ w, int8(7, 2, 2, 3, 4), int8(8, 2, 2, 4, 5), want=np.matmul)
    yield tensor("transposed weights", lambda a, w: a @ w.T, a, int8(9, 4, 8), want=lambda a, w: a @ w.T)
    yield tensor("transposed activations", lambda a, w: a.T @ w, int8(10, 8, 4), w, want=lambda a, w: a.T @ w)
    yield tensor("a vector and a matrix", lambda a, w: a @ w, int8(11, 8), w, want=np.matmul)
    yield tensor("a matrix and a vector", lambda a, w: a @ w, a, int8(12, 8), want=np.matmul)
    yield tensor("two vectors", lambda a, w: a @ w, int8(13, 50), int8(14, 50), want=lambda a, w: np.asarray(a @ w))
    for dtype in (np.int8, np.uint8):
        x, y = words(15, 40).view(dtype)[:32].reshape(4, 8), words(16, 40).view(dtype)[:32].reshape(8, 4)
        yield tensor(f"{dtype.__name__} into int32", lambda a, w: a.int() @ w.int(), x, y, want=wide)
    truth = np.array([[True, False, True, False]])
    yield tensor(
        "flags times ones", lambda a, w: a.int() @ w, truth, np.ones((4, 4), I32), want=np.full((1, 4), 2, I32)
    )
    yield tensor(
        "beyond int8, by the vector unit", lambda a, w: a @ w, words(17, 4, 5), words(18, 5, 4), want=np.matmul
    )
    yield tensor("op 42 is no epilogue", lambda a, w: (a @ w).relu(), np.array([[1, -1, 0, 0]], I32),
                 np.array([[1, 2, 0, 0], [3, 4, 0, 0], [0] * 4, [0] * 4], I32), want=np.zeros((1, 4), I32))  # fmt: skip
    yield tensor(
        "a convolution", lambda x, k: x.conv2d(k, padding=1), int8(19, 1, 2, 5, 6), int8(20, 3, 2, 3, 3), want=convolved
    )
    for m, k, n in ((4, 4, 4), (5, 7, 6), (1, 33, 4), (8, 8, 8)):
        yield tensor(f"float {m}x{k}x{n}", lambda a, w: a @ w, reals(1, m, k), reals(2, k, n), rtol=2e-6, atol=1e-4,
                     want=lambda a, w: (a.astype(float) @ w.astype(float)).astype(F32))  # fmt: skip


def convolved(x: Array, k: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("bchwij,ocij->bohw", windows, k).astype(I32)


def models() -> Iterator[Check]:
    """Layers one after the other, values kept within int8 by shifts and clips."""

    for depth in range(1, 5):
        for width in (4, 6):
            weights = [int8(i, width, width) for i in range(depth)]

            def net(x: Any, *ws: Any) -> Any:
                for w in ws[:-1]:
                    x = squeeze((x @ w).relu())
                return x @ ws[-1]

            def want(x: Array, *ws: Array) -> Array:
                for w in ws[:-1]:
                    x = np_squeeze(np.maximum(x @ w, 0))
                return x @ ws[-1]

            for rows in (1, 5):
                yield tensor(f"{depth} layers of {width}, {rows} rows", net, int8(9, rows, width), *weights, want=want)
    for depth in (1, 2, 3):
        weights = [int8(20 + i, 4, 4) for i in range(depth)]
        biases = [ints(30 + i, 4, low=-500, high=500) for i in range(depth)]

        def biased(x: Any, *ws: Any) -> Any:
            n = len(ws) // 2
            for w, b in zip(ws[:n], ws[n:]):
                x = squeeze((x @ w + b).relu())
            return x

        def np_biased(x: Array, *ws: Array) -> Array:
            n = len(ws) // 2
            for w, b in zip(ws[:n], ws[n:]):
                x = np_squeeze(np.maximum(x @ w + b, 0))
            return x

        yield tensor(f"{depth} layers with bias", biased, int8(10, 4, 4), *weights, *biases, want=np_biased)
        yield tensor(f"{depth} layers with bias, 7 rows", biased, int8(11, 7, 4), *weights, *biases, want=np_biased)
    a, w, v, r = int8(40, 4, 4), int8(41, 4, 4), int8(42, 4, 4), words(43, 4, 4)
    yield tensor("a residual tile", lambda a, w, r: a @ w + r, a, w, r, want=lambda a, w, r: a @ w + r)
    yield tensor(
        "a residual of 8x8",
        lambda a, w, r: a @ w + r,
        int8(1, 8, 8),
        int8(2, 8, 8),
        words(3, 8, 8),
        want=lambda a, w, r: a @ w + r,
    )
    yield tensor("a residual less", lambda a, w, r: r - a @ w, a, w, r, want=lambda a, w, r: r - a @ w)
    yield tensor("a residual block", lambda a, w, v: squeeze(squeeze((a @ w).relu()) @ v) + a, a, w, v,
                 want=lambda a, w, v: np_squeeze(np_squeeze(np.maximum(a @ w, 0)) @ v) + a)  # fmt: skip
    yield tensor("two residual blocks", lambda a, w, v: squeeze(squeeze(a @ w + a) @ v + a), a, w, v,
                 want=lambda a, w, v: np_squeeze(np_squeeze(a @ w + a) @ v + a))  # fmt: skip
    yield tensor("a gated product", lambda a, w, v: (a @ w) * (a @ v), a, w, v, want=lambda a, w, v: (a @ w) * (a @ v))
    yield tensor(
        "a gate by sign",
        lambda a, w, v: (a @ w > 0).where(a @ v, 0),
        a,
        w,
        v,
        want=lambda a, w, v: np.where(a @ w > 0, a @ v, 0).astype(I32),
    )
    yield tensor(
        "the larger of two",
        lambda a, w, v: (a @ w).maximum(a @ v),
        a,
        w,
        v,
        want=lambda a, w, v: np.maximum(a @ w, a @ v),
    )
    yield tensor(
        "an embedding and a layer",
        lambda i, t, w: t[i] @ w,
        np.array([3, 0, 5, 3], I32),
        int8(44, 6, 4),
        w,
        want=lambda i, t, w: t[i] @ w,
    )
    yield tensor("a product summed", lambda a, w: (a @ w).sum(1), a, w, want=lambda a, w: (a @ w).sum(1).astype(I32))
    yield tensor("its largest by row", lambda a, w: (a @ w).max(1), a, w, want=lambda a, w: (a @ w).max(1))
    yield tensor(
        "its best class", lambda a, w: (a @ w).argmax(1), a, w, want=lambda a, w: (a @ w).argmax(1).astype(I32)
    )


def attention() -> Iterator[Check]:
    x, q, k, v = (int8(i, 4, 4) for i in range(50, 54))
    yield tensor("queries", lambda x, q: x @ q, x, q, want=np.matmul)
    yield tensor(
        "three projections",
        lambda x, q, k, v: [x @ q, x @ k, x @ v],
        x,
        q,
        k,
        v,
        want=lambda x, q, k, v: [x @ q, x @ k, x @ v],
    )
    yield tensor(
        "scores",
        lambda x, q, k: squeeze(x @ q) @ squeeze(x @ k).T,
        x,
        q,
        k,
        want=lambda x, q, k: np_squeeze(x @ q) @ np_squeeze(x @ k).T,
    )
    yield tensor(
        "scores, relu, values",
        lambda x, q, k, v: squeeze((squeeze(x @ q) @ squeeze(x @ k).T).relu()) @ squeeze(x @ v),
        x,
        q,
        k,
        v,
        want=lambda x, q, k, v: np_squeeze(relu(np_squeeze(x @ q) @ np_squeeze(x @ k).T)) @ np_squeeze(x @ v),
    )
    heads = int8(55, 2, 4, 4)
    yield tensor("two heads", lambda x, q, k: squeeze(x @ q) @ squeeze(x @ k).transpose(1, 2),
                 x, heads, int8(56, 2, 4, 4),
                 want=lambda x, q, k: np_squeeze(x @ q) @ np_squeeze(x @ k).transpose(0, 2, 1))  # fmt: skip

    def soft(s: Any) -> Any:
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    fq, fk, fv = (reals(i, 5, 4, scale=1) for i in range(57, 60))
    yield tensor("attention of reals", lambda q, k, v: (q @ k.T * 0.5).softmax(-1) @ v, fq, fk, fv, rtol=1e-5,
        atol=1e-5,
                 want=lambda q, k, v: (soft(q.astype(float) @ k.T * 0.5) @ v).astype(F32))  # fmt: skip
    yield tensor("tinygrad's attention, causal", lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        fq[None], fk[None], fv[None],
                 want=lambda q, k, v: (soft(np.where(np.tri(5, dtype=bool), q.astype(float) @ k.transpose(0, 2, 1) / 2,
                     -np.inf)) @ v).astype(F32), rtol=1e-5, atol=1e-5)  # fmt: skip
    yield tensor(
        "softmax in two steps",
        lambda s: (s - s.max(1, keepdim=True)).exp(),
        fq,
        want=lambda s: np.exp(s - s.max(1, keepdims=True)),
        rtol=1e-6,
    )
    yield tensor(
        "log of a sum of exp",
        lambda s: s.logsumexp(1),
        fq,
        want=lambda s: np.log(np.exp(s.astype(float)).sum(1)).astype(F32),
        rtol=1e-6,
        atol=1e-6,
    )
    target = np.array([0, 3, 1, 2, 2], I32)
    yield tensor("cross entropy", lambda s, t: s.cross_entropy(t), fq, target, rtol=2e-6,
                 want=lambda s, t: np.asarray(-np.log(soft(s.astype(float)))[np.arange(5),
                     t].mean()).astype(F32))  # fmt: skip
    angle = reals(61, 5, 2, scale=1)

    def turned(x: Any, a: Any) -> Any:
        even, odd, c, s = x[:, ::2], x[:, 1::2], a.cos(), a.sin()
        return (even * c - odd * s).stack(even * s + odd * c, dim=2).flatten(1)

    def np_turned(x: Array, a: Array) -> Array:
        even, odd, c, s = x[:, ::2], x[:, 1::2], np.cos(a.astype(float)), np.sin(a.astype(float))
        return np.stack([even * c - odd * s, even * s + odd * c], 2).reshape(len(x), -1).astype(F32)

    yield tensor("rotary positions", turned, fq, angle, want=np_turned, rtol=3e-6, atol=3e-6)
    yield tensor("rotary positions of one row", turned, fq[:1], angle[:1], want=np_turned, rtol=3e-6, atol=3e-6)
    yield tensor(
        "rotary positions, doubled",
        lambda x, a: turned(x, a) * 2,
        fq,
        angle,
        want=lambda x, a: np_turned(x, a) * F32(2),
        rtol=3e-6,
        atol=3e-6,
    )


TABLES: tuple[Table, ...] = (
    table("GEMM", "products", products()),
    table("end to end", "layers", models(), slow=True),
    table("end to end", "attention", attention()),
)
