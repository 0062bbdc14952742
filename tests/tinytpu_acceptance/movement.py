"""Broadcasts, movement, fills, chains of a few operations, and sweeps of one expression over many methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor

from tinytpu_acceptance.table import Check, Table, table
from tinytpu_acceptance.tensors import F32, I32, Array, ints, reals, tensor, uniform, words


def broadcasts() -> Iterator[Check]:
    for shape in ((5,), (16,), (17,), (40,), (4, 5)):
        label = "x".join(map(str, shape))
        yield tensor(f"one element to {label}", lambda x, y: x + y, ints(1, 1), ints(2, *shape), want=np.add)
        yield tensor(f"one real to {label}", lambda x, y: x * y, reals(1, 1), reals(2, *shape), want=np.multiply)
    for a, b in (((4, 1), (4, 4)), ((1, 4), (4, 4)), ((4, 1), (1, 4)), ((4,), (4, 4)), ((3, 1, 5), (1, 7, 1))):
        label = f"{a} to {b}".replace(" ", "")
        yield tensor(f"{label}", lambda x, y: x + y, ints(3, *a), ints(4, *b), want=np.add)
        yield tensor(f"{label} max", lambda x, y: x.maximum(y), ints(5, *a), ints(6, *b), want=np.maximum)
    column = np.array([[1], [2], [3], [4]], I32)
    yield tensor("a column and ones is no product", lambda x, y: x + y, column, np.ones((4, 4), I32), want=np.add)


Move = Callable[[Any], Any]
MOVES: dict[str, tuple[tuple[int, ...], Move, Move]] = {
    "reshape": ((16,), lambda x: x.reshape(4, 4), lambda x: x.reshape(4, 4)),
    "reshape of 64": ((64,), lambda x: x.reshape(4, 16), lambda x: x.reshape(4, 16)),
    "first elements": ((40,), lambda x: x[:7], lambda x: x[:7]),
    "middle elements": ((40,), lambda x: x[5:29], lambda x: x[5:29]),
    "last elements": ((40,), lambda x: x[-9:], lambda x: x[-9:]),
    "every third": ((40,), lambda x: x[1::3], lambda x: x[1::3]),
    "backwards": ((40,), lambda x: x[::-1], lambda x: x[::-1]),
    "rows": ((6, 5), lambda x: x[2:5], lambda x: x[2:5]),
    "one row": ((6, 5), lambda x: x[-1], lambda x: x[-1]),
    "columns": ((6, 5), lambda x: x[:, 1:3], lambda x: x[:, 1:3]),
    "a scalar expanded": ((1,), lambda x: x.expand(20), lambda x: np.repeat(x, 20)),
    "a row expanded": ((1, 5), lambda x: x.expand(7, 5), lambda x: np.repeat(x, 7, 0)),
    "a column expanded": ((7, 1), lambda x: x.expand(7, 5), lambda x: np.repeat(x, 5, 1)),
    "pad": ((3, 5), lambda x: x.pad(((1, 2), (0, 3))), lambda x: np.pad(x, ((1, 2), (0, 3)))),
    "pad of many tiles": ((9, 9), lambda x: x.pad(((3, 4), (5, 6))), lambda x: np.pad(x, ((3, 4), (5, 6)))),
    "pad with 7": ((3, 5), lambda x: x.pad(((1, 2), (0, 3)), value=7),
        lambda x: np.pad(x, ((1, 2), (0, 3)), constant_values=7)),
    "flip rows": ((4, 4), lambda x: x.flip(0), lambda x: x[::-1]),
    "flip columns": ((5, 7), lambda x: x.flip(1), lambda x: x[:, ::-1]),
    "flip both": ((9, 7), lambda x: x.flip((0, 1)), lambda x: x[::-1, ::-1]),
    "transpose 4x4": ((4, 4), lambda x: x.T, lambda x: x.T),
    "transpose 2x2": ((2, 2), lambda x: x.T, lambda x: x.T),
    "transpose 5x9": ((5, 9), lambda x: x.T, lambda x: x.T),
    "permute": ((2, 3, 4), lambda x: x.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
    "permute of four axes": ((2, 3, 2, 5), lambda x: x.permute(3, 1, 0, 2), lambda x: x.transpose(3, 1, 0, 2)),
    "repeat": ((3, 2), lambda x: x.repeat(2, 3), lambda x: np.tile(x, (2, 3))),
    "roll": ((20,), lambda x: x.roll(3), lambda x: np.roll(x, 3)),
    "tril": ((5, 6), lambda x: x.tril(), np.tril),
    "triu": ((5, 6), lambda x: x.triu(1), lambda x: np.triu(x, 1)),
    "windows": ((12,), lambda x: x.unfold(0, 4, 2), lambda x: np.lib.stride_tricks.sliding_window_view(x, 4)[::2]),
    "by constant places": ((20,), lambda x: x[[3, 19, 0, 3]], lambda x: x[[3, 19, 0, 3]]),
}  # fmt: skip


def movements() -> Iterator[Check]:
    # + 0 makes a kernel of what is a view else.
    for name, (shape, fn, want) in MOVES.items():
        yield tensor(name, lambda x, fn=fn: fn(x).contiguous(), words(1, *shape), want=want)
    for name in ("pad", "transpose 5x9", "flip both", "middle elements"):
        shape, fn, want = MOVES[name]
        yield tensor(f"{name}, float", lambda x, fn=fn: fn(x).contiguous(), reals(2, *shape), want=want)
        yield tensor(
            f"{name}, then added", lambda x, fn=fn: fn(x) + 5, ints(2, *shape), want=lambda x, w=want: w(x) + I32(5)
        )
        yield tensor(f"{name}, int8", lambda x, fn=fn: fn(x).contiguous(), words(3, *shape).astype(np.int8), want=want)
        yield tensor(f"{name}, flags", lambda x, fn=fn: fn(x).contiguous(), words(4, *shape) > 0, want=want)
    a, b = words(5, 3, 5), words(6, 2, 5)
    yield tensor("cat of rows", lambda x, y: x.cat(y), a, b, want=lambda x, y: np.concatenate([x, y]))
    yield tensor(
        "cat of columns", lambda x, y: x.cat(y, dim=1), a, words(7, 3, 4), want=lambda x, y: np.concatenate([x, y], 1)
    )
    yield tensor(
        "cat of seven",
        lambda x: Tensor.cat(*[x + i for i in range(7)]),
        ints(8, 5),
        want=lambda x: np.concatenate([x + I32(i) for i in range(7)]),
    )
    yield tensor("stack", lambda x, y: Tensor.stack(x, y), a, a[::-1].copy(), want=lambda x, y: np.stack([x, y]))
    places = np.array([4, 0, 2, 2, 1], I32)
    yield tensor("gather by a tensor", lambda x, i: x[i], words(9, 6, 3), places, want=lambda x, i: x[i])
    yield tensor("gather along rows", lambda x, i: x.gather(1, i), words(10, 2, 6), np.stack([places, places[::-1]]),
                 want=lambda x, i: np.take_along_axis(x, i, 1))  # fmt: skip
    yield tensor("one hot", lambda i: i.one_hot(6), places, want=lambda i: np.eye(6, dtype=I32)[i])
    yield tensor("a slice summed", lambda x: x[4:8].sum(), np.arange(16, dtype=I32), want=np.asarray(22, I32))
    yield tensor("eye times a transposed operand", lambda x, y: (x @ y.T)[0], np.eye(4, dtype=I32),
                 np.arange(16, dtype=I32).reshape(4, 4), want=np.array([0, 4, 8, 12], I32))  # fmt: skip


def made(name: str, make: Callable[[], Tensor], want: Array) -> Check:
    return tensor(name, make, want=want)


def fills() -> Iterator[Check]:
    yield made("zeros", lambda: Tensor.zeros(5, 4, dtype=dtypes.int32).contiguous(), np.zeros((5, 4), I32))
    yield made("zeros, float", lambda: Tensor.zeros(20).contiguous(), np.zeros(20, F32))
    yield made("ones", lambda: Tensor.ones(17, dtype=dtypes.int32).contiguous(), np.ones(17, I32))
    yield made("ones, flags", lambda: Tensor.ones(9, dtype=dtypes.bool).contiguous(), np.ones(9, bool))
    yield made(
        "full",
        lambda: Tensor.full((3, 6), -123456789, dtype=dtypes.int32).contiguous(),
        np.full((3, 6), -123456789, I32),
    )
    yield made("full, float", lambda: Tensor.full((18,), 0.1).contiguous(), np.full(18, 0.1, F32))
    yield made("full, flags", lambda: Tensor.full((18,), False).contiguous(), np.zeros(18, bool))
    yield made("full of int8", lambda: Tensor.full((18,), -5, dtype=dtypes.int8).contiguous(), np.full(18, -5, np.int8))
    yield made("arange", lambda: Tensor.arange(40).contiguous(), np.arange(40, dtype=I32))
    yield made("arange of steps", lambda: Tensor.arange(3, 50, 7).contiguous(), np.arange(3, 50, 7, dtype=I32))
    yield made("eye", lambda: Tensor.eye(5, dtype=dtypes.int32).contiguous(), np.eye(5, dtype=I32))
    yield made("linspace", lambda: Tensor.linspace(0, 4, 17).contiguous(), np.linspace(0, 4, 17, dtype=F32))


CHAINS: dict[str, tuple[Callable[..., Any], int]] = {
    "multiply, add": (lambda x, y: x * y + x, 2), "add, multiply, subtract": (lambda x, y: (x + y) * 3 - y, 2),
    "difference squared": (lambda x, y: (x - y) * (x - y), 2), "fourth power": (lambda x: x * x * x * x, 1),
    "a polynomial": (lambda x: ((x * 2 + 3) * x - 5) * x + 7, 1), "both ways": (lambda x, y: x * y + y * x - 2 * x, 2),
    "negated sum": (lambda x, y: -(x + y) * 2, 2), "a chain of sums": (lambda x, y: x + y + x + y + 1 + x, 2),
}  # fmt: skip


def chains() -> Iterator[Check]:
    for name, (fn, n) in CHAINS.items():
        yield tensor(name, fn, *[ints(i, 21) for i in range(n)], want=lambda *x, fn=fn: fn(*x).astype(I32))
        yield tensor(
            f"{name}, float",
            fn,
            *[reals(i, 21) for i in range(n)],
            want=lambda *x, fn=fn: fn(*[v.astype(float) for v in x]).astype(F32),
            rtol=1e-5,
            atol=1e-4,
        )


INT_SWEEP: dict[str, tuple[Move, Move]] = {
    "add": (lambda x: x + 5, lambda x: x + 5), "sub": (lambda x: x - 5, lambda x: x - 5),
        "mul": (lambda x: x * 3, lambda x: x * 3),
    "neg": (lambda x: -x, lambda x: -x), "abs": (lambda x: x.abs(), abs),
        "relu": (lambda x: x.relu(), lambda x: np.maximum(x, 0)),
    "maximum": (lambda x: x.maximum(2), lambda x: np.maximum(x, 2)), "minimum": (lambda x: x.minimum(2),
        lambda x: np.minimum(x, 2)),
    "square": (lambda x: x.square(), lambda x: x * x), "sign": (lambda x: x.sign(), np.sign),
        "clip": (lambda x: x.clip(-3, 3), lambda x: np.clip(x, -3, 3)),
    "and": (lambda x: x & 6, lambda x: x & 6), "or": (lambda x: x | 6, lambda x: x | 6),
        "xor": (lambda x: x ^ 6, lambda x: x ^ 6),
    "not": (lambda x: ~x, lambda x: ~x), "floor division": (lambda x: x // 3, lambda x: x // 3),
        "mod": (lambda x: x % 3, lambda x: x % 3),
    "shift": (lambda x: x << 2, lambda x: x << 2), "cumsum": (lambda x: x.cumsum(), np.cumsum),
        "cumprod": (lambda x: (x % 2 + 1).cumprod(0), lambda x: np.cumprod(x % 2 + 1)),
    "sort": (lambda x: x.sort()[0], np.sort),
}  # fmt: skip
FLOAT_SWEEP: dict[str, tuple[Move, Move]] = {
    "exp": (lambda x: x.exp(), np.exp), "log": (lambda x: x.log(), np.log), "exp2": (lambda x: x.exp2(), np.exp2),
        "log2": (lambda x: x.log2(), np.log2),
    "sqrt": (lambda x: x.sqrt(), np.sqrt), "rsqrt": (lambda x: x.rsqrt(), lambda x: 1 / np.sqrt(x)),
        "sin": (lambda x: x.sin(), np.sin), "cos": (lambda x: x.cos(), np.cos),
    "tan": (lambda x: x.tan(), np.tan), "tanh": (lambda x: x.tanh(), np.tanh),
        "sigmoid": (lambda x: x.sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
    "reciprocal": (lambda x: x.reciprocal(), lambda x: 1 / x), "square": (lambda x: x.square(), np.square),
        "abs": (lambda x: x.abs(), np.abs),
    "relu6": (lambda x: x.relu6(), lambda x: np.clip(x, 0, 6)), "softsign": (lambda x: x.softsign(),
        lambda x: x / (1 + abs(x))),
    "sinh": (lambda x: x.sinh(), np.sinh), "cosh": (lambda x: x.cosh(), np.cosh),
        "atan": (lambda x: x.atan(), np.arctan),
    "erf": (lambda x: x.erf(), lambda x: np.vectorize(__import__("math").erf)(x)),
        "pow": (lambda x: x**2.5, lambda x: x**2.5),
}  # fmt: skip


def sweeps() -> Iterator[Check]:
    for name, (fn, want) in INT_SWEEP.items():
        yield tensor(f"int {name}", fn, ints(1, 20), want=lambda x, want=want: want(x).astype(I32))
    for name, (fn, want) in FLOAT_SWEEP.items():
        yield tensor(
            f"float {name}",
            fn,
            uniform(2, 0.2, 1.4, 20),
            want=lambda x, want=want: want(x.astype(float)).astype(F32),
            rtol=2e-6,
            atol=1e-6,
        )


TABLES: tuple[Table, ...] = (
    table("broadcasts", "broadcasts", broadcasts()),
    table("movement", "movement", movements(), slow=True),
    table("fills", "fills", fills()),
    table("chains", "chains", chains()),
    table("sweeps", "sweeps", sweeps(), slow=True),
)
