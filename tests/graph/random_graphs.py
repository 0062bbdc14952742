"""Random statements, and an interpreter that walks them point by point in plain Python.

The interpreter shares no code with the product's: it knows the meaning of every node from its documentation alone.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from kohakuaccel.graph import (
    BOOL,
    Cast,
    Const,
    Expr,
    Graph,
    Guard,
    Index,
    Input,
    Iota,
    Lookup,
    Op,
    Range,
    Read,
    Reduction,
    Statement,
)
from kohakuaccel.graph.dtypes import DType
from kohakuaccel.graph.expr import op
from kohakuaccel.graph.index import Quotient
from kohakuaccel.graph.model import ReduceOp
from kohakuaccel.numerics import FP32, INT32

INPUTS = (
    Input("x", (3, 4), FP32),
    Input("y", (4,), FP32),
    Input("z", (2, 3, 2), FP32),
    Input("s", (), FP32),
    Input("ids", (4,), INT32),
    Input("mask", (3, 4), BOOL),
)
DTYPES: Mapping[str, DType] = {"real": FP32, "int": INT32, "bool": BOOL}
SOURCES = {"real": INPUTS[:4], "int": INPUTS[4:5], "bool": INPUTS[5:]}


def arrays(rng: random.Random) -> dict[str, np.ndarray[Any, Any]]:
    """Numbers for `INPUTS`; ids lie in 0..3."""
    made = np.random.default_rng(rng.randrange(1 << 30))
    found: dict[str, np.ndarray[Any, Any]] = {v.name: made.normal(size=v.shape) for v in INPUTS[:4]}
    return found | {"ids": made.integers(0, 4, 4), "mask": made.random((3, 4)) < 0.5}


def random_index(rng: random.Random, ranges: tuple[Range, ...], extent: int, deep: bool = True) -> Index:
    """An index of any form: not bound to any extent, save that a gather looks up 0..3."""
    index = Index.of(rng.randrange(-2, 3) if rng.random() < 0.4 else 0)
    for r in rng.sample(ranges, min(len(ranges), rng.choice((0, 1, 1, 2)))):
        index = index + r * rng.choice((1, 1, 1, 2, 3, -1, 4))
    if deep and rng.random() < 0.15:
        inner = random_index(rng, ranges, 4, deep=False) % 4
        index = index + Index.of(Lookup(Read("ids", (inner,)), 4))
    if deep and rng.random() < 0.2:
        index = index // rng.choice((2, 3))
    if deep and rng.random() < 0.2:
        index = index % rng.choice((extent, extent + 1)) + rng.choice((0, 0, 1))
    return index


def random_read(rng: random.Random, ranges: tuple[Range, ...], source: Input) -> Read:
    """A read made right: what may leave its bounds is wrapped round or guarded."""
    indices: list[Index] = []
    guards: list[Guard] = []
    for extent in source.shape:
        index = random_index(rng, ranges, extent)
        low, high = index.interval()
        if low < 0 or high >= extent:
            if rng.random() < 0.4:
                index = index % extent
            else:
                guards.append(Guard(index, 0, extent))
        indices.append(index)
    pads: dict[str, Any] = {"x": 0.5, "ids": 1, "mask": True}
    pad = Const(pads.get(source.name, -1.25)) if guards else None
    return Read(source.name, tuple(indices), tuple(guards), pad)


def random_expr(rng: random.Random, ranges: tuple[Range, ...], kind: str, depth: int) -> Expr:
    """An expression of a kind; operations stay where both interpreters are accurate."""
    if depth == 0 or rng.random() < 0.15:
        pick = rng.random()
        if pick < 0.15:
            constants: dict[str, Any] = {
                "real": rng.choice((0.0, -1.5, 2.0)),
                "int": rng.randrange(-3, 4),
                "bool": True,
            }
            return Const(constants[kind])
        if pick < 0.4 and kind == "int":
            return Iota(random_index(rng, ranges, 4, deep=False))
        return random_read(rng, ranges, rng.choice(SOURCES[kind]))

    def part(kind: str) -> Expr:
        return random_expr(rng, ranges, kind, depth - 1)

    if rng.random() < 0.2:
        return op("where", part("bool"), part(kind), part(kind))
    if kind == "bool":
        name = rng.choice(("less", "equal", "and", "or", "not", "cast"))
        if name == "cast":
            return Cast(part("int"), BOOL)
        if name == "not":
            return op("not", part("bool"))
        inner = "bool" if name in ("and", "or") else rng.choice(("real", "int"))
        return op(name, part(inner), part(inner))
    if kind == "int":
        name = rng.choice(("add", "sub", "mul", "max", "min", "idiv", "mod", "neg", "abs", "fma", "and", "or", "cast"))
        if name == "cast":
            return Cast(part("bool"), INT32)
        if name in ("idiv", "mod"):
            return op(name, part("int"), rng.choice((2, 3, -2)))
    else:
        name = rng.choice(
            ("add", "sub", "mul", "max", "min", "neg", "abs", "fma", "sin", "recip", "log2", "exp2", "cast")
        )
        if name == "cast":
            return Cast(part(rng.choice(("int", "bool"))), FP32)
        if name in ("recip", "log2"):
            return op(name, op("add", op("abs", part("real")), 1.0))
        if name == "exp2":
            return op(name, op("sin", part("real")))
    count = {"neg": 1, "abs": 1, "sin": 1, "fma": 3}.get(name, 2)
    return op(name, *(part(kind) for _ in range(count)))


def random_ranges(rng: random.Random) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """Up to three output and up to two folded ranges."""
    out = tuple(Range(f"i{n}", rng.randrange(1, 5)) for n in range(rng.randrange(4)))
    return out, tuple(Range(f"k{n}", rng.randrange(1, 5)) for n in range(rng.choice((0, 0, 1, 2))))


def random_graph(rng: random.Random) -> Graph:
    """One random statement, of a random kind, over `INPUTS`."""
    out, folded = random_ranges(rng)
    kind = rng.choice(("real", "real", "int", "bool"))
    ways: tuple[ReduceOp, ...] = ("max", "min") if kind == "bool" else ("sum", "max", "min", "prod")
    fold = Reduction(rng.choice(ways), folded) if folded else None
    depth = rng.randrange(4) if kind == "real" else rng.randrange(3)
    body = random_expr(rng, (*out, *folded), kind, depth)
    return Graph((*INPUTS, Statement("t", DTYPES[kind], out, body, fold)), (("t", "t"),))


FOLDS: Mapping[str, Any] = {"sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "max": max, "min": min}
Place = Mapping[Range, int]
Known = Mapping[str, np.ndarray[Any, Any]]


def naive(statement: Statement, known: Known) -> np.ndarray[Any, Any]:
    """The statement, one point at a time."""
    out = np.empty(statement.shape, object)
    for place in itertools.product(*(range(r.extent) for r in statement.ranges)):
        here = dict(zip(statement.ranges, place))
        total: Any = None
        for inner in itertools.product(*(range(r.extent) for r in statement.reduced)):
            value = scalar(statement.body, here | dict(zip(statement.reduced, inner)), known)
            if total is None:
                total = value
            else:
                assert statement.reduction
                total = FOLDS[statement.reduction.op](total, value)
        out[place] = total
    kinds: dict[str, Any] = {"FP32": float, "INT32": np.int64, "BOOL": bool}
    return out.astype(kinds[statement.dtype.name])


def number(index: Index, place: Place, known: Known) -> int:
    total = index.offset
    for atom, factor in index.terms:
        if isinstance(atom, Range):
            value = place[atom]
        elif isinstance(atom, Lookup):
            value = scalar(atom.value, place, known)
            assert 0 <= value < atom.extent
        else:
            inner = number(atom.index, place, known)
            value = inner // atom.divisor if isinstance(atom, Quotient) else inner % atom.divisor
        total += factor * value
    return total


def scalar(expr: Expr, place: Place, known: Known) -> Any:
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Iota):
        return number(expr.index, place, known)
    if isinstance(expr, Read):
        if not all(g.low <= number(g.index, place, known) < g.high for g in expr.guards):
            assert expr.pad is not None
            return expr.pad.value
        at = tuple(number(i, place, known) for i in expr.indices)
        assert all(0 <= a < n for a, n in zip(at, known[expr.value].shape))
        return known[expr.value][at].item()
    if isinstance(expr, Cast):
        value = scalar(expr.arg, place, known)
        return value != 0 if expr.dtype == BOOL else int(value) if expr.dtype == INT32 else float(value)
    assert isinstance(expr, Op)
    args = [scalar(a, place, known) for a in expr.args]
    table: dict[str, Any] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "idiv": lambda a, b: a // b,
        "mod": lambda a, b: a % b,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "not": lambda a: not a,
        "less": lambda a, b: a < b,
        "equal": lambda a, b: a == b,
        "max": max,
        "min": min,
        "fma": lambda a, b, c: a * b + c,
        "where": lambda c, a, b: a if c else b,
        "neg": lambda a: -a,
        "abs": abs,
        "sin": math.sin,
        "exp2": lambda a: 2.0**a,
        "log2": math.log2,
        "recip": lambda a: 1 / a,
    }
    return table[expr.name](*args)
