"""What stands behind a product of int8, one kernel or several; what only looks like a product; rotary bundles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor

from tinytpu_acceptance.bundle import bundle, tile
from tinytpu_acceptance.table import Check, Table, table
from tinytpu_acceptance.tensors import F32, I32, Array, ints, reals, tensor, words

A, W = ints(1, 5, 8, low=-128, high=128), ints(2, 8, 4, low=-128, high=128)
B, R = words(3, 4), words(4, 5, 4)
P = A @ W
S = (P.astype(float) * 0.001).astype(F32)
Two = tuple[Callable[..., Any], Any]


def soft(s: Any) -> Any:
    e = np.exp(s - s.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


# What follows the product p, with a bias b and a residual r.
BEHIND: dict[str, Two] = {
    "a residual and a relu": (lambda p, b, r: (p + r).relu(), np.maximum(P + R, 0)),
    "a bias and a residual": (lambda p, b, r: p + b + r, P + B + R),
    "less a residual": (lambda p, b, r: p - r, P - R),
    "times a gate": (lambda p, b, r: p * r, P * R),
    "a gate by sign": (lambda p, b, r: (r > 0).where(p, 0), np.where(R > 0, P, 0).astype(I32)),
    "the larger of it and a residual": (lambda p, b, r: p.maximum(r), np.maximum(P, R)),
    "the lesser of it and a bias": (lambda p, b, r: p.minimum(b), np.minimum(P, B)),
    "a clip": (lambda p, b, r: p.clip(-1000, 1000), np.clip(P, -1000, 1000)),
    "its magnitude": (lambda p, b, r: p.abs(), np.abs(P)),
    "negated": (lambda p, b, r: -p, -P),
    "shifted": (lambda p, b, r: p >> 5, P >> 5),
    "bits of it": (lambda p, b, r: (p ^ r) & 0xFFFF, (P ^ R) & 0xFFFF),
    "its remainder": (lambda p, b, r: p % 10, P % 10),
    "compared": (lambda p, b, r: p < b, P < B),
    "into int8": (lambda p, b, r: p.cast(dtypes.int8), P.astype(np.int8)),
    "into float32": (lambda p, b, r: p.float(), P.astype(F32)),
}  # fmt: skip
REALS: dict[str, Two] = {
    "scaled": (lambda s: s, S), "softmax, first step": (lambda s: (s - s.max(1, keepdim=True)).exp(),
        np.exp(S - S.max(1, keepdims=True))),
    "softmax": (lambda s: s.softmax(1), soft(S.astype(float))),
    "log of a sum of exp": (lambda s: s.logsumexp(1), np.log(np.exp(S.astype(float)).sum(1))),
    "log softmax": (lambda s: s.log_softmax(1), np.log(soft(S.astype(float)))),
    "cross entropy": (lambda s: -s.log_softmax(1)[:, 1].mean(),
        np.asarray(-np.log(soft(S.astype(float)))[:, 1].mean())),
}  # fmt: skip


def behind() -> Iterator[Check]:
    for name, (fn, want) in BEHIND.items():
        yield tensor(name, lambda a, w, b, r, fn=fn: fn(a @ w, b, r), A, W, B, R, want=want)
    for name, (fn, want) in REALS.items():
        yield tensor(name, lambda a, w, fn=fn: fn((a @ w).float() * 0.001), A, W, want=np.asarray(want).astype(F32),
                     rtol=3e-6, atol=1e-6)  # fmt: skip


def lookalikes() -> Iterator[Check]:
    """Structures beside a product: none of them may become another one."""
    square = ints(5, 4, 4)
    rows: list[tuple[str, Callable[..., Any], Callable[..., Any]]] = [
        ("an outer product", lambda a, w: a[:, :1] * w[:1], lambda a, w: a[:, :1] * w[:1]),
        ("sums of products of elements", lambda a, w: (a * w).sum(1), lambda a, w: (a * w).sum(1).astype(I32)),
        ("a matrix and itself turned", lambda a, w: a @ a.T, lambda a, w: a @ a.T),
        ("a square", lambda a, w: a @ a, lambda a, w: a @ a),
        ("sums of sums", lambda a, w: (a.reshape(4, 4, 1) + w.reshape(1, 4, 4)).sum(1),
         lambda a, w: (a.reshape(4, 4, 1) + w.reshape(1, 4, 4)).sum(1).astype(I32)),
        ("largest products", lambda a, w: (a.reshape(4, 4, 1) * w.reshape(1, 4, 4)).max(1),
         lambda a, w: (a.reshape(4, 4, 1) * w.reshape(1, 4, 4)).max(1)),
        ("an operand plus one", lambda a, w: (a + 1) @ w, lambda a, w: (a + I32(1)) @ w),
        ("an operand masked", lambda a, w: a.tril() @ w, lambda a, w: np.tril(a) @ w),
        ("an operand turned over", lambda a, w: a.flip(1) @ w, lambda a, w: a[:, ::-1] @ w),
        ("a slice", lambda a, w: a[1:3] @ w[:, ::2], lambda a, w: a[1:3] @ w[:, ::2]),
        ("a sum of two products", lambda a, w: a @ w + w @ a, lambda a, w: a @ w + w @ a),
        ("a product of a product", lambda a, w: (a @ w) @ a, lambda a, w: (a @ w) @ a),
    ]  # fmt: skip
    for name, fn, want in rows:
        yield tensor(name, fn, square, ints(6, 4, 4), want=want)


def gradients() -> Iterator[Check]:
    x, w, target = reals(7, 6, 4, scale=1), reals(8, 4, 3, scale=1), reals(9, 6, 3, scale=1)

    def gradient(x: Tensor, w: Tensor, t: Tensor) -> Tensor:
        (found,) = ((x @ w - t) * (x @ w - t)).mean().gradient(w)
        return found

    def want(x: Array, w: Array, t: Array) -> Array:
        wide = x.astype(float)
        return (2 * wide.T @ (wide @ w - t) / t.size).astype(F32)

    yield tensor("of a square loss", gradient, x, w, target, want=want, rtol=1e-5, atol=1e-6)


def rotary() -> Iterator[Check]:
    """A projection and its rotation in one bundle and one run."""
    rng = np.random.default_rng(10)
    w, a = rng.integers(-9, 10, (4, 4)), rng.integers(-9, 10, (2, 4))
    turn = rng.integers(-9, 10, (1, 4))
    data = "\n".join([tile("WMEM", 0, w), tile("AMEM", 0, a[0]), tile("AMEM", 1, a[1])])
    p = a @ w

    def turned(x: Array, t: Array) -> Array:
        even, odd, c, s = x[..., ::2], x[..., 1::2], t[..., ::2], t[..., 1::2]
        return np.stack([even * c - odd * s, even * s + odd * c], -1).reshape(x.shape)

    row = np.vstack([turn, np.zeros((3, 4), int)])
    integers = f"{data}\n{tile('VMEM', 0, row)}\nLOAD v1, VMEM[0]\n"
    calls = "\n".join(
        f"MXU_VPU_EPILOGUE v0 = GEMM(WMEM[0], AMEM[{r}], tiles=1) SRC2=v1 OP=IPAIR_ROTATE DST_VMEM[{8 + r}]"
        for r in (0, 1)
    )
    yield bundle("op 46, two rows", f"{integers}{calls}", vmem={8: turned(p[0], turn[0]), 9: turned(p[1], turn[0])})
    gathered = "\n".join(f"MXU WMEM[0], AMEM[{r}], tiles=1, psum_write=PSUM[0], psum_row={r}" for r in (0, 1))
    whole = np.vstack([turn, turn, np.zeros((2, 4), int)])
    read = f"LOAD v1, VMEM[0]\nPSUM_CLEAR PSUM[0]\n{gathered}\nWAIT_MXU\nPSUM_READ v2, PSUM[0]\n"
    by_tile = f"{data}\n{tile('VMEM', 0, whole)}\n{read}"
    both = np.vstack([turned(p, np.vstack([turn, turn])), np.zeros((2, 4), int)])
    yield bundle("a tile of rows", f"{by_tile}VPU v2 = IPAIR_ROTATE(v2, v1)\nSTORE VMEM[8], v2", vmem={8: both})
    angle = np.zeros((4, 4), F32)
    angle[:2] = np.resize(np.array([0.5, 0.25, -1, 2], F32), (2, 4))
    real = f"{data}\n{tile('VMEM', 0, angle)}\n{read}"
    exact = np.vstack([turned(p.astype(F32), angle[:2]), np.zeros((2, 4), F32)])
    yield bundle(
        "a tile of reals", f"{real}VPU v2 = I2F(v2)\nVPU v2 = PAIR_ROTATE(v2, v1)\nSTORE VMEM[8], v2", vmem={8: exact}
    )


TABLES: tuple[Table, ...] = (
    table("end to end", "behind a product", behind()),
    table("end to end", "beside a product", lookalikes()),
    table("end to end", "gradients", gradients()),
    table("end to end", "rotary positions in one bundle", rotary()),
)
