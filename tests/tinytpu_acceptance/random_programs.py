"""Random expressions through tinygrad's device, beside numpy: maps, moves, folds and products in any order, int32.

Every step is done on both sides at once, so the reference shares nothing with the lowering but the sequence of names.
Values stay far from the ends of int32: rewrites that tinygrad makes of a chain, as (x*6)//3 -> x*2, take no overflow,
so that beyond it every device of tinygrad differs from numpy. Sums and products that wrap are rows of other tables.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from tinytpu_acceptance.table import Check, Table, table
from tinytpu_acceptance.tensors import I32, Array, results, same, words

Pair = tuple[Any, Array]
"""A tensor of the device and the array it has to be."""


def wrapped(x: Any) -> Array:
    return np.asarray(x).astype(np.int64).astype(I32)


def mapped(rng: random.Random, pair: Pair) -> Pair:
    t, x = pair
    c = rng.choice([0, 1, -1, 3, -7, 100, 255, -256])
    match rng.randrange(12):
        case 0:
            return t + c, wrapped(x.astype(np.int64) + c)
        case 1:
            return t * c, wrapped(x.astype(object) * c % 2**32)
        case 2:
            return t.maximum(c), np.maximum(x, I32(c))
        case 3:
            return t.minimum(c), np.minimum(x, I32(c))
        case 4:
            return t ^ c, x ^ I32(c)
        case 5:
            return t & c, x & I32(c)
        case 6:
            n = rng.randrange(32)
            return t >> n, x >> I32(n)
        case 7:
            n = rng.randrange(12)
            return t << n, x << I32(n)
        case 8:
            return (t < c).where(t, t * -3), np.where(x < c, x, wrapped(x.astype(np.int64) * -3))
        case 9:
            return t.relu(), np.maximum(x, 0)
        case 10:
            d = rng.choice([2, 3, -5, 7, 10])
            return t // d, x // I32(d)
        case _:
            d = rng.choice([2, 3, -5, 7, 10])
            return t % d, x % I32(d)


def moved(rng: random.Random, pair: Pair) -> Pair:
    t, x = pair
    match rng.randrange(6):
        case 0:
            order = rng.sample(range(x.ndim), x.ndim)
            return t.permute(*order), x.transpose(order)
        case 1:
            axis = rng.randrange(x.ndim)
            return t.flip(axis), np.flip(x, axis)
        case 2:
            pads = [(rng.randrange(3), rng.randrange(3)) for _ in x.shape]
            return t.pad(tuple(pads)), np.pad(x, pads)
        case 3:
            cuts = tuple(slice(rng.randrange(n), None) if n > 1 else slice(None) for n in x.shape)
            return t[cuts], x[cuts]
        case 4:
            return t.reshape(-1, x.shape[-1]), x.reshape(-1, x.shape[-1])
        case _:
            axis = rng.randrange(x.ndim)
            return t.cat(t, dim=axis), np.concatenate([x, x], axis)


def folded(rng: random.Random, pair: Pair) -> Pair:
    t, x = pair
    axis = rng.randrange(x.ndim)
    match rng.randrange(4):
        case 0:
            return t.sum(axis, keepdim=True), wrapped(x.sum(axis, keepdims=True, dtype=np.int64))
        case 1:
            return t.max(axis, keepdim=True), x.max(axis, keepdims=True)
        case 2:
            return t - t.min(axis, keepdim=True), wrapped(x.astype(np.int64) - x.min(axis, keepdims=True))
        case _:
            return t + t.sum(axis, keepdim=True), wrapped(
                x.astype(np.int64) + x.sum(axis, keepdims=True, dtype=np.int64)
            )


def joined(rng: random.Random, pair: Pair, other: Pair) -> Pair:
    t, x = pair
    u, y = other
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return mapped(rng, pair)
    match rng.randrange(4):
        case 0:
            return t + u, wrapped(x.astype(np.int64) + y)
        case 1:
            return t * u, wrapped(x.astype(object) * y % 2**32)
        case 2:
            return t.maximum(u), np.maximum(x, y)
        case _:
            return (t < u).where(t, u), np.where(x < y, x, y)


def multiplied(rng: random.Random, pair: Pair) -> Pair:
    """With itself turned, cut down to int8 or to what the vector unit multiplies."""
    t, x = pair
    most = 127 if rng.random() < 0.7 else 2000
    t, x = t.clip(-most - 1, most), np.clip(x, -most - 1, most)
    exact = np.matmul(x.astype(object), np.swapaxes(x, -1, -2).astype(object)) % 2**32
    return t @ t.transpose(-1, -2), wrapped(exact)


def small(pair: Pair) -> Pair:
    """Back to 16 bits, so that no step overflows."""
    t, x = pair
    while np.abs(x).max() > 1 << 15:
        t, x = t >> 10, x >> 10
    return t, x


def program(seed: int) -> Check:
    def check() -> None:
        rng = random.Random(seed)
        shape = tuple(rng.randint(1, 6) for _ in range(rng.randint(1, 3)))
        inputs = [words(seed + i, *shape) >> rng.randrange(16, 31) for i in range(2)]
        wants: list[Array] = []

        def build(*tensors: Any) -> Any:
            pairs: list[Pair] = list(zip(tensors, inputs))
            pair = pairs[0]
            for _ in range(rng.randint(2, 8)):
                draw = rng.random()
                if draw < 0.45 or pair[1].size > 400:
                    pair = mapped(rng, pair)
                elif draw < 0.6:
                    pair = joined(rng, pair, rng.choice([*pairs, pair]))
                elif draw < 0.75:
                    pair = moved(rng, pair)
                elif draw < 0.9:
                    pair = folded(rng, pair)
                elif pair[1].ndim > 1:
                    pair = multiplied(rng, pair)
                pair = small(pair)
            wants.append(pair[1])
            return pair[0].contiguous()

        (got,) = results(build, *inputs)
        same(got, wants[0], 0, 0)

    return Check(f"program {seed}", check)


def programs(seeds: range) -> Iterator[Check]:
    return (program(seed) for seed in seeds)


TABLES: tuple[Table, ...] = (table("random programs", "random expressions of int32", programs(range(40)), slow=True),)
