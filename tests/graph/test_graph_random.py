"""Random statements by the hundred: read back, run against a point-by-point interpreter, and asked what they are."""

from __future__ import annotations

import importlib
import itertools
import random

import numpy as np
import pytest

from graph.random_graphs import (
    INPUTS,
    arrays,
    naive,
    number,
    random_graph,
    random_index,
    random_ranges,
    random_read,
    scalar,
)
from kohakuaccel.graph import (
    Graph,
    Guard,
    Index,
    Op,
    Range,
    Read,
    Reduction,
    Statement,
    from_json,
    parse,
    run,
    to_json,
    verify,
)
from kohakuaccel.graph import structure as ask
from kohakuaccel.numerics import FP32

SHAPES = {v.name: v.shape for v in INPUTS}


@pytest.mark.parametrize("block", range(10))
def test_statements_round_trip_and_agree_with_plain_python(block: int) -> None:
    rng = random.Random(block)
    for _ in range(40):
        graph = verify(random_graph(rng))
        assert parse(str(graph)) == graph
        assert from_json(to_json(graph)) == graph
        known = arrays(rng)
        got = run(graph, known)["t"]
        np.testing.assert_allclose(got, naive(graph.statement("t"), known), rtol=1e-9, atol=1e-12, err_msg=str(graph))


def test_intervals_hold_what_guards_on_several_terms_leave() -> None:
    rng, tight = random.Random(3), 0
    for _ in range(400):
        ranges = [Range(name, rng.randint(2, 4)) for name in "abcd"]
        index = Index.of(rng.randint(-9, 9))
        for r in ranges:
            index = index + r * rng.choice((-1, 1, 2, 3, 8))
        guards: list[Guard] = []
        for pair in (ranges[:2], ranges[2:]):
            low = rng.randint(-1, 4)
            bound = Index.of(rng.randint(-2, 2)) + pair[0] * rng.choice((-1, 1, 2)) + pair[1] * rng.choice((1, 3))
            guards.append(Guard(bound, low, low + rng.randint(1, 6)))
        found = [
            number(index, p, {})
            for p in places(tuple(ranges))
            if all(g.low <= number(g.index, p, {}) < g.high for g in guards)
        ]
        if found:
            low, high = index.interval(guards)
            assert low <= min(found) <= max(found) <= high, f"{index} where {' and '.join(map(str, guards))}"
            tight += low == min(found) > index.interval()[0]
    assert tight > 20
    a, b = (Range(name, 4) for name in "ab")
    assert (2 * a + b - 1).interval((Guard(a + b, 1, 9),)) == (0, 8)


@pytest.mark.parametrize("chunk", [1, 5, 17])
def test_slices_of_a_space_add_up(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("kohakuaccel.graph.points"), "CHUNK", chunk)
    rng = random.Random(chunk)
    for _ in range(60):
        graph, known = random_graph(rng), arrays(rng)
        want = naive(graph.statement("t"), known)
        np.testing.assert_allclose(run(graph, known)["t"], want, rtol=1e-9, atol=1e-12, err_msg=str(graph))


def places(ranges: tuple[Range, ...]) -> list[dict[Range, int]]:
    return [dict(zip(ranges, p)) for p in itertools.product(*(range(r.extent) for r in ranges))]


def test_intervals_hold_every_value_and_are_tight_where_affine() -> None:
    rng = random.Random(1)
    for _ in range(400):
        out, folded = random_ranges(rng)
        ranges = (*out, *folded)
        known = arrays(rng)
        index, other = (random_index(rng, ranges, rng.randrange(1, 5)) for _ in range(2))
        low, high = index.interval()
        values = [number(index, p, known) for p in places(ranges)]
        assert low <= min(values) <= max(values) <= high
        if index.affine:
            assert (low, high) == (min(values), max(values))
        guard = Guard(rng.choice((index + rng.randrange(3), other)), 0, rng.randrange(1, 4))
        held = [v for v, p in zip(values, places(ranges)) if 0 <= number(guard.index, p, known) < guard.high]
        low, high = index.interval((guard,))
        assert all(low <= v <= high for v in held)
        assert not guard.always or len(held) == len(values)
        assert not guard.never or not held


@pytest.mark.slow
def test_index_arithmetic_is_integer_arithmetic() -> None:
    rng = random.Random(2)
    for _ in range(200):
        ranges = tuple(Range(f"i{n}", rng.randrange(1, 6)) for n in range(3))
        a, b = (random_index(rng, ranges, 4) for _ in range(2))
        known, c, d = arrays(rng), rng.randrange(-3, 4), rng.randrange(1, 6)
        renamed = dict(zip(ranges, (ranges[1] * 2 + 1, ranges[2] // 2, ranges[0] + 3)))
        renamed = {r: i % r.extent for r, i in renamed.items()}
        for p in places(ranges):
            x, y = number(a, p, known), number(b, p, known)
            assert number(a + b, p, known) == x + y
            assert number(a - b * c, p, known) == x - y * c
            assert number(a // d, p, known) == x // d
            assert number(a % d, p, known) == x % d
            assert number(a // d * d + a % d, p, known) == x
            moved = {r: number(i, p, known) for r, i in renamed.items()}
            assert number(a.substitute(renamed), p, known) == number(a, moved, known)
        assert a // d * d + a % d == a
        assert a - a == Index.of(0)


def single(body: Op | Read, out: tuple[Range, ...], folded: tuple[Range, ...] = ()) -> Statement:
    statement = Statement("t", FP32, out, body, Reduction("sum", folded) if folded else None)
    verify(Graph((*INPUTS, statement), (("t", "t"),)))
    return statement


def test_contractions_are_what_they_say() -> None:
    """Left over batch, m, k times right over batch, n, k, with every other range held at 0, gives the statement."""
    rng, found = random.Random(3), 0
    for _ in range(1600):
        out, folded = random_ranges(rng)
        left, right = (random_read(rng, (*out, *folded), rng.choice(INPUTS[:4])) for _ in range(2))
        statement = single(Op("mul", (left, right)), out, folded)
        made = ask.as_contraction(statement)
        if made is None:
            follow = all(r in left.ranges() & right.ranges() for r in folded)
            assert not folded or not follow or left == right
            continue
        found += 1
        groups = (made.batch, made.m, made.n, made.broadcast)
        assert sum(groups, ()) == tuple(sorted(out, key=lambda r: [r in g for g in groups].index(True)))
        known = arrays(rng)
        zeros = dict.fromkeys((*out, *folded), 0)
        total = np.zeros(statement.shape)
        for p in places((*out, *folded)):
            a = scalar(made.left, zeros | {r: p[r] for r in (*made.batch, *made.m, *made.k)}, known)
            b = scalar(made.right, zeros | {r: p[r] for r in (*made.batch, *made.n, *made.k)}, known)
            total[tuple(p[r] for r in out)] += a * b
        np.testing.assert_allclose(total, naive(statement, known), atol=1e-12)
        assert made.plain == (ask.is_plain(left) and ask.is_plain(right))
        if out:
            shared = {made.m: "right", made.n: "left"}
            assert made.shared == next((s for g, s in shared.items() if out[0] in g), None)
    assert found > 100


def test_copies_and_gathers_are_what_they_say() -> None:
    rng, copies, gathers = random.Random(4), 0, 0
    for _ in range(800):
        out, _ = random_ranges(rng)
        statement = single(random_read(rng, out, rng.choice(INPUTS[:4])), out)
        body, known = statement.body, arrays(rng)
        assert isinstance(body, Read)
        shape = SHAPES[body.value]
        copy, gather = ask.as_copy(statement, shape), ask.as_gather(statement)
        if copy:
            copies += 1
            flat = known[copy.source].reshape(-1)
            want = naive(statement, known)
            for p in places(out):
                at = copy.offset + sum(s * p[r] for s, r in zip(copy.strides, out))
                assert want[tuple(p.values())] == flat[at]
            if copy.permutation is not None:
                np.testing.assert_array_equal(want, known[copy.source].transpose(copy.permutation))
        else:
            affine = all(i.affine for i in body.indices)
            assert body.guards or not affine
        lookups = [lookup for i in body.indices for lookup in i.lookups()]
        assert (gather is not None) == (len(lookups) == 1)
        if gather:
            gathers += 1
            assert body.indices[gather.axis].lookups().__next__() == gather.lookup
    assert copies > 100
    assert gathers > 30


def test_every_permutation_is_seen() -> None:
    for order in itertools.permutations(range(3)):
        out = tuple(Range(f"i{n}", SHAPES["z"][a]) for n, a in enumerate(order))
        body = Read("z", tuple(Index.of(out[order.index(n)]) for n in range(3)))
        copy = ask.as_copy(single(body, out), SHAPES["z"])
        assert copy is not None
        assert copy.permutation == order


def test_maps_and_row_reductions() -> None:
    """Against the definition, spelled as what each read may look like."""
    rng, maps, rows = random.Random(5), 0, 0
    for _ in range(800):
        out, folded = random_ranges(rng)
        ranges = (*out, *folded)
        reads: list[Read] = []
        for _ in range(2):
            source = rng.choice(INPUTS[:4])
            chosen = [r for r in ranges if r.extent <= 4 and rng.random() < 0.8]
            rng.shuffle(chosen) if rng.random() < 0.3 else None
            fits = [next((r for r in chosen if r.extent == n), None) for n in source.shape]
            plain = Read(source.name, tuple(Index.of(r if r else 0) for r in fits))
            reads.append(plain if rng.random() < 0.8 else random_read(rng, ranges, source))
        statement = single(Op("add", (reads[0], reads[1])), out, folded)

        def names(read: Read) -> list[Range | None]:
            return [i.range for i in read.indices if i.constant is None]

        plain = all(not r.guards and None not in names(r) and len(set(names(r))) == len(names(r)) for r in reads)
        inside = all([r for r in out if r in names(read)] == names(read) for read in reads)
        assert ask.is_map(statement) == (plain and inside and not folded)
        maps += ask.is_map(statement)
        row = ask.as_row_reduction(statement)
        whole = any(set(folded) <= set(names(r)) for r in reads)
        assert (row is not None) == bool(folded and plain and whole)
        if row:
            rows += 1
            assert (row.rows, row.columns, row.op) == (out, folded, "sum")
            ends = [names(r)[len(names(r)) - len(set(folded) & set(names(r))) :] for r in reads]
            assert row.innermost == all(set(e) <= set(folded) for e in ends)
    assert maps > 30
    assert rows > 30


def test_a_matrix_product_is_no_row_reduction_and_a_matrix_times_a_vector_is_both() -> None:
    text = "input a: FP32[3, 4]\ninput b: FP32[5, 4]\ninput v: FP32[4]\n"
    text += "t: FP32[i<3, j<5] = sum[k<4] a[i, k] * b[j, k]\nu: FP32[i<3] = sum[k<4] a[i, k] * v[k]\n"
    text += "w: FP32[i<3] = sum[k<4] a[i, k] * a[i, k]\noutput t\n"
    graph = parse(text)
    assert ask.as_contraction(graph.statement("t"))
    assert ask.as_row_reduction(graph.statement("t")) is None
    assert ask.as_contraction(graph.statement("u"))
    assert ask.as_row_reduction(graph.statement("u"))
    assert ask.as_contraction(graph.statement("w")) is None
    assert ask.as_row_reduction(graph.statement("w"))


def test_a_product_of_several_factors_is_cut_in_two() -> None:
    text = "input a: FP32[3, 4]\ninput b: FP32[5, 4]\ninput v: FP32[4]\n"
    text += "t: FP32[i<3, j<5] = sum[k<4] 2.0 * (a[i, k] * b[j, k])\n"
    text += "u: FP32[i<3, j<5] = sum[k<4] v[k] * a[i, k] * b[j, k]\n"
    text += "w: FP32[i<3, j<5] = sum[k<4] b[j, 0] * a[i, k] * 0.5\noutput t\noutput u\noutput w\n"
    graph = parse(text)
    found = {s.name: ask.as_contraction(s) for s in graph.statements}
    assert found["w"] is None
    for name, left in (("t", "2.0 * a[i, k]"), ("u", "v[k] * a[i, k]")):
        made = found[name]
        assert made is not None
        assert (str(made.left), str(made.right)) == (left, "b[j, k]")
    rng = np.random.default_rng(0)
    a, b, v = rng.normal(size=(3, 4)), rng.normal(size=(5, 4)), rng.normal(size=4)
    out = run(graph, {"a": a, "b": b, "v": v})
    np.testing.assert_allclose(out["t"], 2 * a @ b.T)
    np.testing.assert_allclose(out["u"], (a * v) @ b.T)
    np.testing.assert_allclose(out["w"], b[:, 0] * a.sum(1)[:, None] / 2)
