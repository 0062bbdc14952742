"""Relu, abs, neg, where, clip: int32 and float32, tensors and numbers on either side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from tinytpu_acceptance.table import Check, Table, table
from tinytpu_acceptance.tensors import F32, I32, INT_EDGES, SPECIALS, Array, ints, reals, tensor

SHAPES = [(1,), (3,), (16,), (17,), (40,), (4, 4), (3, 5), (2, 3, 4)]
BOTH: list[tuple[str, Callable[..., Array], Array]] = [("int", ints, INT_EDGES), ("float", reals, SPECIALS)]
One = Callable[[Any], Any]


def size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def each(
    kinds: dict[str, tuple[One, One]], shapes: list[tuple[int, ...]], *, rtol: float = 0.0, only: str = ""
) -> Iterator[Check]:
    for (name, (fn, want)), (kind, make, ends) in product(kinds.items(), BOTH):
        if only and kind != only:
            continue
        for shape in shapes:
            yield tensor(f"{name} {kind} {size(shape)}", fn, make(1, *shape), want=want, rtol=rtol)
        yield tensor(f"{name} {kind} at its ends", fn, ends, want=want, rtol=rtol)
        yield tensor(f"{name} {kind}, all negative", fn, -np.abs(make(2, 20)) - 1, want=want, rtol=rtol)


def relus() -> Iterator[Check]:
    zero = {"relu": (lambda x: x.relu(), lambda x: np.maximum(x, x.dtype.type(0)))}
    yield from each(zero, SHAPES)
    leaky: dict[str, tuple[One, One]] = {
        "leaky relu": (lambda x: x.leaky_relu(0.1), lambda x: np.where(x < 0, x * F32(0.1), x)),
        "relu of a product": (lambda x: (x * 3).relu(), lambda x: np.maximum(x * F32(3), F32(0))),
    }
    yield from each(leaky, [(5,), (17,)], rtol=1e-6, only="float")
    for kind, make, _ in BOTH:
        for shape in ((5,), (33,), (3, 7)):
            yield tensor(f"relu of a sum {kind} {size(shape)}", lambda x, y: (x + y).relu(), make(3, *shape),
                         make(4, *shape), want=lambda x, y: np.maximum(x + y, x.dtype.type(0)))  # fmt: skip
    yield tensor("relu of a product int", lambda x: (x * -3).relu(), ints(5, 19), want=lambda x: np.maximum(x * -3, 0))


def wheres() -> Iterator[Check]:
    for (kind, make, _), shape in product(BOTH, [(1,), (4,), (17,), (3, 5)]):
        x, y, label = make(1, *shape), make(2, *shape), f"{kind} {size(shape)}"
        c = x.dtype.type(-7)
        yield tensor(
            f"two tensors {label}", lambda x, y: (x < y).where(x, y), x, y, want=lambda x, y: np.where(x < y, x, y)
        )
        yield tensor(
            f"a number if not {label}", lambda x: (x < 1).where(x, -7), x, want=lambda x, c=c: np.where(x < 1, x, c)
        )
        yield tensor(
            f"a number if {label}", lambda x: (x > 1).where(-7, x), x, want=lambda x, c=c: np.where(x > 1, c, x)
        )
    flags = np.random.default_rng(9).random(37) < 0.5
    for kind, make, _ in BOTH:
        x, y = make(6, 37), make(7, 37)
        yield tensor(f"of flags {kind}", lambda f, x, y: f.where(x, y), flags, x, y, want=np.where)
        yield tensor(f"of a derived condition {kind}", lambda x, y: ((x + y) * 2 < x).where(x - y, y), x, y,
                     want=lambda x, y: np.where((x + y) * x.dtype.type(2) < x, x - y, y))  # fmt: skip
    yield tensor("of two numbers", lambda f: f.where(3, -4), flags, want=lambda f: np.where(f, 3, -4).astype(I32))
    yield tensor(
        "of two fractions", lambda f: f.where(0.5, -1.25), flags, want=lambda f: np.where(f, 0.5, -1.25).astype(F32)
    )
    yield tensor("an arm that is NaN", lambda x: (x > 0).where(x, float("nan")), reals(8, 20),
                 want=lambda x: np.where(x > 0, x, F32(np.nan)))  # fmt: skip
    yield tensor("row and column", lambda c, x: c.where(x, 0), flags[:4].reshape(4, 1), ints(9, 1, 5),
                 want=lambda c, x: np.where(c, x, 0).astype(I32))  # fmt: skip


def clips() -> Iterator[Check]:
    for kind, make, ends in BOTH:
        t = make(1, 1).dtype.type
        for shape in ((5,), (33,), (3, 7)):
            yield tensor(f"two-sided {kind} {size(shape)}", lambda x: x.clip(-3, 4), make(1, *shape),
                         want=lambda x, t=t: np.clip(x, t(-3), t(4)))  # fmt: skip
        yield tensor(f"below {kind}", lambda x: x.clip(min_=-2), make(2, 20), want=lambda x, t=t: np.maximum(x, t(-2)))
        yield tensor(f"above {kind}", lambda x: x.clip(max_=2), make(3, 20), want=lambda x, t=t: np.minimum(x, t(2)))
        yield tensor(f"chain {kind}", lambda x: (x.clip(-3, 4) * 2).clip(-5, 7), make(4, 20),
                     want=lambda x, t=t: np.clip(np.clip(x, t(-3), t(4)) * t(2), t(-5), t(7)))  # fmt: skip
        yield tensor(f"at its ends {kind}", lambda x: x.clip(-3, 4), ends, want=lambda x, t=t: np.clip(x, t(-3), t(4)))


TABLES: tuple[Table, ...] = (
    table("relu", "relu", relus()),
    table(
        "int abs",
        "abs, int32",
        each(
            {"abs": (lambda x: x.abs(), np.abs)},
            [*SHAPES, *((n,) for n in range(5, 16)), (6, 6), (2, 2, 2, 3), (272,)],
            only="int",
        ),
    ),
    table(
        "float abs",
        "abs, float32",
        each(
            {"abs": (lambda x: x.abs(), np.abs)},
            [*SHAPES, *((n,) for n in (*range(5, 16), 32, 48, 64, 80)), (6, 6), (2, 2, 2, 3), (272,)],
            only="float",
        ),
    ),
    table("neg", "neg", each({"neg": (lambda x: -x, np.negative)}, [*SHAPES, (48,), (80,)])),
    table("where", "where", wheres()),
    table("clip", "clip", clips()),
)
