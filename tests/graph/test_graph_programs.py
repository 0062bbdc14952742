"""Random programs of builder functions beside the same in numpy: read back, run, tidied, put into other forms."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from graph.random_graphs import arrays, naive, random_graph
from kohakuaccel.graph import Graph, Read, from_json, parse, run, to_json
from kohakuaccel.graph import build as g
from kohakuaccel.graph import rewrite as rw
from kohakuaccel.graph import structure as ask
from kohakuaccel.graph.build import Tensor
from kohakuaccel.graph.scalar import identity
from kohakuaccel.numerics import FP16, FP32

Array = NDArray[Any]
Pair = tuple[Tensor, Array]
FORMS = (
    rw.ScaleOperand()
    + rw.DivideLast()
    + rw.OnlineSoftmax(block=2)
    + rw.ShiftedLogSumExp()
    + rw.MeanInside()
    + rw.WelfordVariance(block=3)
    + rw.BlockedScan(block=2, above=2)
)


def axis_of(rng: random.Random, x: Array) -> int:
    return rng.randrange(-x.ndim, x.ndim)


def soft(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def unary(rng: random.Random, t: Tensor, x: Array) -> Pair:
    name = rng.choice(("tanh", "silu", "sin", "relu", "scaled", "hardsigmoid"))
    if name == "scaled":
        return t * 0.5 + 1, x * 0.5 + 1
    table: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
        "tanh": (g.tanh, np.tanh),
        "silu": (g.silu, lambda x: x / (1 + np.exp(-x))),
        "sin": (g.sin, np.sin),
        "relu": (g.relu, lambda x: np.maximum(x, 0)),
        "hardsigmoid": (g.hardsigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    }
    make, plain = table[name]
    return make(t), plain(x)


def rows(rng: random.Random, t: Tensor, x: Array) -> Pair:
    a = axis_of(rng, x)
    name = rng.choice(("softmax", "logsumexp", "mean", "var", "layernorm", "rmsnorm", "cumsum", "cummax", "max"))
    if name == "softmax":
        return g.softmax(t, a), soft(x, a)
    if name == "logsumexp":
        return g.logsumexp(t, a, keep=True), np.log(np.exp(x).sum(a, keepdims=True))
    if name == "mean":
        return g.mean(t, a, keep=True), x.mean(a, keepdims=True)
    if name == "var":
        return g.var(t, a, keep=True), x.var(a, keepdims=True)
    if name == "layernorm":
        return g.layernorm(t, eps=0.5), (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.5)
    if name == "rmsnorm":
        return g.rmsnorm(t, eps=0.5), x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.5)
    if name == "cumsum":
        return g.cumsum(t, a, block=rng.choice((None, 2))) * 0.25, x.cumsum(a) * 0.25
    if name == "cummax":
        return g.cummax(t, a), np.maximum.accumulate(x, a)
    return g.max_(t, a, keep=True), x.max(a, keepdims=True)


def movement(rng: random.Random, t: Tensor, x: Array) -> Pair:
    a = axis_of(rng, x)
    name = rng.choice(("permute", "reshape", "flip", "roll", "pad", "slice", "tril", "reflect", "repeat", "take"))
    if name == "permute":
        order = rng.sample(range(x.ndim), x.ndim)
        return g.permute(t, order), x.transpose(order)
    if name == "reshape":
        shape = (-1, x.shape[-1]) if rng.random() < 0.5 else (x.shape[0], -1)
        return g.reshape(t, shape), x.reshape(shape)
    if name == "flip":
        return g.flip(t, [a]), np.flip(x, a)
    if name == "roll":
        return g.roll(t, 2, a), np.roll(x, 2, a)
    if name == "pad":
        widths = [(rng.randrange(2), rng.randrange(2)) for _ in x.shape]
        return g.pad(t, widths), np.pad(x, widths)
    if name == "slice" and x.shape[a] > 2:
        return g.slice_(t, a, 1, None, 2), x.take(np.arange(1, x.shape[a], 2), a)
    if name == "tril" and x.ndim > 1:
        return g.tril(t, 1), np.tril(x, 1)
    if name == "reflect" and x.shape[-1] > 1:
        widths = [(0, 0)] * (x.ndim - 1) + [(1, 1)]
        return g.pad_mode(t, widths, "reflect"), np.pad(x, widths, "reflect")
    if name == "repeat":
        return g.repeat_interleave(t, 2, a), x.repeat(2, a)
    places = [rng.randrange(x.shape[a]) for _ in range(3)]
    return g.take(t, t.builder.constant(places, g.arange(t.builder, 1).dtype, "places"), a), x.take(places, a)


def joins(rng: random.Random, pairs: list[Pair]) -> Pair:
    (t, x), (u, y) = rng.choice(pairs), rng.choice(pairs)
    if x.ndim > 1 and y.ndim > 1 and x.shape[-1] == y.shape[-1] and rng.random() < 0.7:
        made = g.linear(t, g.reshape(u, (-1, y.shape[-1]))) * 0.25
        return made, x @ y.reshape(-1, y.shape[-1]).T * 0.25
    if x.shape == y.shape and rng.random() < 0.3:
        return g.concat([t, u], 0), np.concatenate([x, y])
    try:
        shape = np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return t - t * 0.5, x * 0.5
    if np.prod(shape) > 400:
        return t, x
    return rng.choice([(t + u, x + y), (t * u, x * y), (g.maximum(t, u), np.maximum(x, y))])


def random_program(rng: random.Random) -> tuple[Graph, dict[str, Array], Array]:
    """A graph of up to nine functions, its inputs, and what numpy says of its output."""
    builder, made = g.Builder(), np.random.default_rng(rng.randrange(1 << 30))
    given = {"a": made.normal(size=(3, 5)), "b": made.normal(size=(2, 3, 5)), "c": made.normal(size=(5,))}
    pairs: list[Pair] = [(builder.input(n, x.shape, rng.choice((FP32, FP16))), x) for n, x in given.items()]
    for _ in range(rng.randrange(3, 10)):
        kind = rng.choice(("unary", "rows", "rows", "movement", "movement", "join"))
        if kind == "join":
            found = joins(rng, pairs)
        else:
            t, x = rng.choice(pairs[-3:])
            found = {"unary": unary, "rows": rows, "movement": movement}[kind](rng, t, x)
        if 0 < found[1].size <= 400 and found[1].ndim <= 4 and np.abs(found[1]).max() < 50:
            pairs.append(found)
    last, want = pairs[-1]
    return builder.graph(out=last), given, want


@pytest.mark.parametrize("block", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 7))])
def test_programs_agree_with_numpy_in_every_form(block: int) -> None:
    rng = random.Random(1000 + block)
    for _ in range(10 if block else 2):
        graph, given, want = random_program(rng)
        assert parse(str(graph)) == graph
        assert from_json(to_json(graph)) == graph
        np.testing.assert_allclose(run(graph, given)["out"], want, rtol=1e-8, atol=1e-9, err_msg=str(graph))
        for rules in (rw.TIDY, FORMS, rw.TIDY + FORMS):
            after = rules.apply(graph)
            assert parse(str(after)) == after
            got = run(after, given)["out"]
            np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-8, err_msg=f"{graph}\n{after}")
            assert rules.apply(after) == after, str(after)


def answers(graph: Graph) -> list[object]:
    """Everything that can be asked of a statement, told by places instead of names."""
    (statement,) = graph.statements
    space = (*statement.ranges, *statement.reduced)
    names = {r: n for n, r in enumerate(space)}

    def told(*ranges: Any) -> tuple[int, ...]:
        return tuple(names[r] for r in ranges)

    product, row, scan = ask.as_contraction(statement), ask.as_row_reduction(statement), ask.as_scan(statement)
    gather = ask.as_gather(statement)
    shape = next((graph[r.value].shape for r in [statement.body] if isinstance(r, Read)), ())
    copy = ask.as_copy(statement, shape)
    return [
        ask.is_map(statement),
        product and [told(*group) for group in (product.batch, product.m, product.n, product.k, product.broadcast)],
        product and product.shared,
        row and (row.op, told(*row.rows), told(*row.columns), row.innermost),
        copy and (copy.source, copy.offset, copy.strides, copy.permutation),
        gather and (gather.source, gather.axis, gather.exact),
        scan and (scan.op, told(scan.axis), told(scan.fold), scan.reverse),
    ]


def test_answers_do_not_follow_names() -> None:
    """A statement in its canonical spelling is what it was, where no range has the extent 1."""
    rng, asked, told = random.Random(77), 0, 0
    while asked < 400:
        graph = random_graph(rng)
        (statement,) = graph.statements
        if any(r.extent == 1 for r in (*statement.ranges, *statement.reduced)):
            continue
        after = rw.Canonicalise().apply(graph)
        before = answers(graph)
        asked += 1
        told += any(before)
        if len(list(statement.body.reads())) == len(list(after.statements[0].body.reads())):
            assert [bool(a) for a in before] == [bool(a) for a in answers(after)], str(graph)
    assert told > 60


def test_scans_are_what_they_say() -> None:
    """Statements near to running folds: those that are seen as one are one, by plain Python."""
    rng, found = random.Random(5), 0
    for _ in range(300):
        how = rng.choice(("sum", "max", "min", "prod"))
        neutral = rng.choice((identity(how, FP32), identity(how, FP32), 0.0, 2.0))
        near, far = rng.choice((("i", "k"), ("k", "i"), ("i", "i"), ("i + 1", "k")))
        element = rng.choice(("y[k]", "y[k] * x[j, k]", "y[3 - k]", "x[j, i]", "y[k] + y[i]"))
        text = "input x: FP32[3, 4]\ninput y: FP32[4]\n"
        text += f"t: FP32[j<3, i<4] = {how}[k<4] where(iota({near}) < iota({far}), {neutral}, {element})\noutput t\n"
        graph = parse(text)
        statement = graph.statement("t")
        scan = ask.as_scan(statement)
        plain = near != far and "1" not in near and "i]" not in element and neutral == identity(how, FP32)
        assert (scan is not None) == plain, text
        if scan is None:
            continue
        found += 1
        known = {n: x for n, x in arrays(rng).items() if n in "xy"}
        x, y = known["x"], known["y"]
        values = {"y[k]": y + 0 * x, "y[k] * x[j, k]": y * x, "y[3 - k]": y[::-1] + 0 * x}[element]
        ways: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
        values = values[:, ::-1] if scan.reverse else values
        want = ways[how].accumulate(values, 1)
        want = want[:, ::-1] if scan.reverse else want
        np.testing.assert_allclose(naive(statement, known), want, rtol=1e-12)
        cut = rw.BlockedScan(block=rng.choice((1, 2, 3)), above=1).apply(graph)
        np.testing.assert_allclose(run(cut, known)["t"], want, rtol=1e-12)
    assert found > 40
