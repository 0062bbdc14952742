"""Methods that fold an axis, order it, or run along it; products of matrices; losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tinygrad.tensor import Tensor

from tinygrad_cases.case import Case
from tinygrad_cases.maps import REAL, WORDS

PAIR = (((3, 5), (3, 5)),)
WIDE = (((4, 33),), ((7,),), ((2, 3, 4),))


def _exp(x: np.ndarray, axis: int) -> np.ndarray:
    return np.exp(x - x.max(axis, keepdims=True))


def _softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    return _exp(x, axis) / _exp(x, axis).sum(axis, keepdims=True)


def _logsumexp(x: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.logaddexp.reduce(x, axis)


def _log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.logaddexp.reduce(x, -1, keepdims=True)


def _fold(name: str, theirs: Any, kind: str = "real", types: tuple[str, ...] = ("float",), **more: Any) -> Case:
    return Case(lambda t: getattr(t, name)(-1), lambda x: theirs(x, -1), (kind,), WIDE, types, **more)


def _conv(x: np.ndarray, w: np.ndarray, stride: int = 1, pad: int = 0) -> np.ndarray:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    return np.einsum("bcyxij,ocij->boyx", windows, w)


def _conv_transpose(x: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    high, wide = ((n - 1) * stride + k for n, k in zip(x.shape[2:], w.shape[2:]))
    out = np.zeros((x.shape[0], w.shape[1], high, wide))
    for i in range(x.shape[2]):
        for j in range(x.shape[3]):
            ys, xs = i * stride, j * stride
            out[:, :, ys : ys + w.shape[2], xs : xs + w.shape[3]] += np.einsum("bc,coij->boij", x[:, :, i, j], w)
    return out


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return _softmax(q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])) @ v


def _pools(x: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, (3, 2), (2, 3))[:, :, ::2, ::2]


def _norm(x: np.ndarray, axis: Any = -1) -> np.ndarray:
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)


def _newton(x: np.ndarray) -> np.ndarray:
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(2):
        a = x @ x.T
        x = 2 * x + (-1.5 * a + 0.5 * a @ a) @ x
    return x


def _svd(t: Tensor) -> Tensor:
    u, s, v = t.svd()
    return (u[:, : s.shape[0]] * s) @ v[: s.shape[0]]


def _qr(t: Tensor) -> Tensor:
    q, r = t.qr()
    return q @ r


def _picked(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.take_along_axis(x, y[:, None].astype(int), 1)[:, 0]


CLASSES = (((4, 6), (4,)),)
FOLDS: dict[str, Case] = {
    "sum": _fold("sum", np.sum, types=("float", "half", "bfloat16"), loose=4, core=True),
    "sum: all": Case(lambda t: t.sum(), np.sum, types=("float",), loose=4),
    "sum: integers": _fold("sum", np.sum, "int", ("int32", "int64")),
    "mean": _fold("mean", np.mean, types=("float", "half"), loose=2, core=True),
    "max": _fold("max", np.max, types=REAL, core=True),
    "max: integers": _fold("max", np.max, "int", WORDS),
    "min": _fold("min", np.min, types=REAL),
    "prod": _fold("prod", np.prod, loose=20),
    "std": _fold("std", lambda x, a: x.std(a, ddof=1), loose=4),
    "var": _fold("var", lambda x, a: x.var(a, ddof=1), loose=4, core=True),
    "std_mean": Case(lambda t: t.std_mean(-1), lambda x: (x.std(-1, ddof=1), x.mean(-1)), loose=4),
    "var_mean": Case(lambda t: t.var_mean(-1), lambda x: (x.var(-1, ddof=1), x.mean(-1)), loose=4),
    "any": _fold("any", np.any, "bool", ("bool",)),
    "all": _fold("all", np.all, "bool", ("bool",)),
    "argmax": _fold("argmax", np.argmax, types=("float", "half"), core=True),
    "argmin": _fold("argmin", np.argmin),
    "argsort": Case(lambda t: t.argsort(-1), lambda x: x.argsort(-1, kind="stable"), shapes=(((2, 5),),)),
    "sort": Case(lambda t: t.sort(-1)[0], lambda x: np.sort(x, -1), shapes=(((2, 6),),)),
    "topk": Case(lambda t: t.topk(2)[0], lambda x: -np.sort(-x, -1)[..., :2], shapes=(((2, 5),),)),
    "cumsum": Case(lambda t: t.cumsum(0), lambda x: x.cumsum(0), shapes=(((9, 3),), ((7,),)), loose=4, core=True),
    "cumprod": Case(lambda t: t.cumprod(0), lambda x: x.cumprod(0), shapes=(((5, 3),),), loose=20),
    "cummax": Case(lambda t: t.cummax(0)[0], lambda x: np.maximum.accumulate(x, 0), shapes=(((5, 3),),)),
    "cummin": Case(lambda t: t.cummin(0)[0], lambda x: np.minimum.accumulate(x, 0), shapes=(((5, 3),),)),
    "logcumsumexp": Case(lambda t: t.logcumsumexp(0), lambda x: np.logaddexp.accumulate(x, 0), loose=8),
    "logsumexp": Case(lambda t: t.logsumexp(-1), _logsumexp, loose=4),
    "softmax": Case(lambda t: t.softmax(-1), _softmax, shapes=WIDE, types=("float", "half"), loose=4, core=True),
    "log_softmax": Case(lambda t: t.log_softmax(-1), _log_softmax, loose=4),
    "softmin": Case(lambda t: t.softmin(-1), lambda x: _softmax(-x), loose=4),
    "normalize": Case(lambda t: t.normalize(dim=-1), lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True), loose=4),
    "layernorm": Case(lambda t: t.layernorm(), _norm, shapes=WIDE, loose=8, core=True),
    "batchnorm": Case(
        lambda t, w, m: t.batchnorm(w, None, m, (w * w + 1).rsqrt(), 1),
        lambda x, w, m: (x - m[None, :, None]) / np.sqrt(w**2 + 1)[None, :, None] * w[None, :, None],
        ("real",) * 3,
        (((2, 3, 4), (3,), (3,)),),
        loose=8,
    ),
    # products
    "matmul": Case(
        lambda a, b: a @ b,
        np.matmul,
        ("real", "real"),
        (((3, 40), (40, 5)), ((2, 5, 6), (2, 6, 3)), ((7,), (7, 2))),
        ("float", "half"),
        8,
        True,
        core=True,
    ),
    "matmul: integers": Case(
        lambda a, b: a.matmul(b), np.matmul, ("int",) * 2, (((3, 4), (4, 5)),), ("int32", "int64")
    ),
    "dot": Case(lambda a, b: a.dot(b), np.dot, ("real", "real"), (((3, 4), (4, 5)),), loose=8, product=True),
    "linear": Case(
        lambda x, w, b: x.linear(w, b),
        lambda x, w, b: x @ w + b,
        ("real",) * 3,
        (((3, 8), (8, 4), (4,)),),
        loose=8,
        product=True,
    ),
    "einsum": Case(
        lambda a, b: Tensor.einsum("bij,bkj->ikb", a, b),
        lambda a, b: np.einsum("bij,bkj->ikb", a, b),
        ("real", "real"),
        (((2, 3, 4), (2, 5, 4)),),
        loose=8,
        product=True,
    ),
    "conv2d": Case(
        lambda x, w: x.conv2d(w, padding=1, stride=2),
        lambda x, w: _conv(x, w, 2, 1),
        ("real", "real"),
        (((2, 3, 9, 7), (4, 3, 3, 3)),),
        loose=8,
        product=True,
        core=True,
    ),
    "conv_transpose2d": Case(
        lambda x, w: x.conv_transpose2d(w, stride=2),
        lambda x, w: _conv_transpose(x, w, 2),
        ("real", "real"),
        (((1, 2, 4, 3), (2, 3, 3, 2)),),
        loose=8,
        product=True,
    ),
    "scaled_dot_product_attention": Case(
        lambda q, k, v: q.scaled_dot_product_attention(k, v),
        _attention,
        ("real",) * 3,
        (((2, 5, 8), (2, 6, 8), (2, 6, 4)),),
        loose=10,
        product=True,
    ),
    "max_pool2d": Case(
        lambda t: t.max_pool2d((3, 2), 2), lambda x: _pools(x).max((-1, -2)), shapes=(((1, 2, 7, 6),),), types=REAL
    ),
    "avg_pool2d": Case(
        lambda t: t.avg_pool2d((3, 2), 2), lambda x: _pools(x).mean((-1, -2)), shapes=(((1, 2, 7, 6),),), loose=4
    ),
    "max_unpool2d": Case(
        lambda t: _unpooled(t),
        lambda x: np.where(x == np.repeat(np.repeat(_blocks(x), 2, 2), 2, 3), x, 0),
        shapes=(((1, 1, 4, 4),),),
    ),
    "newton_schulz": Case(
        lambda t: t.newton_schulz(2, (2, -1.5, 0.5)), _newton, shapes=(((4, 6),),), loose=40, product=True
    ),
    "qr": Case(_qr, lambda x: x, shapes=(((4, 3),),), loose=100, product=True, mild=False),
    "svd": Case(_svd, lambda x: x, shapes=(((2, 2),),), loose=200, product=True, mild=False),
    # losses
    "binary_crossentropy": Case(
        lambda t, y: t.binary_crossentropy(y),
        lambda x, y: np.mean(-y * np.log(x) - (1 - y) * np.log(1 - x)),
        ("part", "part"),
        PAIR,
        loose=8,
    ),
    "binary_crossentropy_logits": Case(
        lambda t, y: t.binary_crossentropy_logits(y),
        lambda x, y: np.mean(np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))),
        ("real", "part"),
        PAIR,
        loose=8,
    ),
    "cross_entropy": Case(
        lambda t, y: t.cross_entropy(y),
        lambda x, y: -np.mean(_picked(_log_softmax(x), y)),
        ("real", "small"),
        CLASSES,
        loose=8,
    ),
    "nll_loss": Case(
        lambda t, y: t.log_softmax().nll_loss(y),
        lambda x, y: -np.mean(_picked(_log_softmax(x), y)),
        ("real", "small"),
        CLASSES,
        loose=8,
    ),
    "sparse_categorical_crossentropy": Case(
        lambda t, y: t.sparse_categorical_crossentropy(y),
        lambda x, y: -np.mean(_picked(_log_softmax(x), y)),
        ("real", "small"),
        CLASSES,
        loose=8,
    ),
}


def _blocks(x: np.ndarray) -> np.ndarray:
    return x.reshape(*x.shape[:2], 2, 2, 2, 2).max((3, 5))


def _unpooled(t: Tensor) -> Tensor:
    values, at = t.max_pool2d((2, 2), return_indices=True)
    assert isinstance(values, Tensor)
    assert isinstance(at, Tensor)
    return values.max_unpool2d(at)
