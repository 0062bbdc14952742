"""Random programs of tensor operations: small, of every form that the scheduler knows, and of mixtures nobody wrote."""

from __future__ import annotations

import random

from kohakuaccel.graph import Graph
from kohakuaccel.graph import build as g
from kohakuaccel.numerics import FP16

SHAPES = ((4, 6), (3, 4, 6), (2, 3, 8), (8,), (6, 4), (2, 2, 5, 8), (5, 40), (2, 33, 16))


def _movement(rng: random.Random, t: g.Tensor) -> g.Tensor:
    axis = rng.randrange(t.ndim)
    match rng.randrange(6):
        case 0:
            order = list(range(t.ndim))
            rng.shuffle(order)
            return g.permute(t, order)
        case 1:
            return g.reshape(t, (-1,))
        case 2:
            start = rng.randrange(t.shape[axis])
            return g.slice_(t, axis, start, rng.randrange(start + 1, t.shape[axis] + 1))
        case 3:
            return g.flip(t, [axis])
        case 4:
            return g.pad(t, [(rng.randrange(2), rng.randrange(2)) for _ in range(t.ndim)], 0)
        case _:
            return g.concat([t, t * 0.5], axis)


def _rows(rng: random.Random, t: g.Tensor) -> g.Tensor:
    axis, keep = rng.randrange(t.ndim), rng.random() < 0.5
    match rng.randrange(5):
        case 0:
            return g.softmax(t, axis)
        case 1:
            return g.mean(t, axis, keep=keep)
        case 2:
            return g.max_(t, axis, keep=keep)
        case 3:
            return g.layernorm(t)
        case _:
            return g.cumsum(t, axis)


def _operation(rng: random.Random, values: list[g.Tensor]) -> g.Tensor | None:
    """One more value, or None where shapes do not meet."""
    t, other = rng.choice(values), rng.choice(values)
    choice = rng.randrange(9)
    if choice < 2 and t.ndim:
        return _movement(rng, t)
    if choice < 4 and t.ndim:
        return _rows(rng, t)
    match choice:
        case 4:
            return g.silu(t)
        case 5:
            return g.where(g.less(t, 0.0), t * 0.5, t)
        case 6 if t.ndim >= 2:
            return g.matmul(t, g.transpose(t)) * 0.3
        case _:
            meets = all(n == m or 1 in (n, m) for n, m in zip(t.shape[::-1], other.shape[::-1]))
            return (t + other if choice == 7 else t * other) if meets else None


def random_program(rng: random.Random) -> Graph:
    """A graph of up to six operations over three inputs, with one or two outputs."""
    b = g.Builder()
    values = [b.input(f"x{n}", rng.choice(SHAPES), FP16) for n in range(3)]
    for _ in range(rng.randrange(2, 7)):
        made = _operation(rng, values)
        if made is not None:
            values.append(made)
    made = values[3:] or [values[0] * 2.0]
    chosen = rng.sample(made, min(len(made), rng.choice((1, 1, 2))))
    return b.graph(**{f"y{n}": t for n, t in enumerate(chosen)})
