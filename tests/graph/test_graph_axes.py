"""Ranges cut where they are read by quotient and remainder: what becomes of them, and that elements stay."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

from kohakuaccel.graph import Graph, Guard, Index, Input, Range, Read, Reduction, Statement, parse, run, verify
from kohakuaccel.graph.expr import Const, Expr, Op
from kohakuaccel.graph.rewrite.axes import cut_axes
from kohakuaccel.numerics import FP32


def test_a_flat_range_becomes_the_axes_it_was_made_of_for_readers_and_writers_too() -> None:
    graph = parse("""
input x: FP32[4,4,8]
input w: FP32[16,8]
y: FP32[i<4, r<64] = sum[k<8] x[i, r % 4, k] * w[r // 4, k]
o: FP32[i<4, r<64] = max(y[i, r], 3.0)
p: FP32[i<256] = o[i // 64, i % 64]
q: FP32[a<4, b<8, c<8] = o[a, 8 * b + c]
output p
output q
""")
    expected = parse("""
input x: FP32[4,4,8]
input w: FP32[16,8]
y: FP32[i<4, r_0<16, r_1<4] = sum[k<8] x[i, r_1, k] * w[r_0, k]
o: FP32[i<4, r_0<16, r_1<4] = max(y[i, r_0, r_1], 3.0)
p: FP32[i_0<4, i_1<16, i_2<4] = o[i_0, i_1, i_2]
q: FP32[a<4, b<8, c_0<2, c_1<4] = o[a, 2 * b + c_0, c_1]
output p
output q
""")
    assert cut_axes(graph) == expected


def test_a_value_is_cut_as_all_that_read_it_count_its_axis() -> None:
    graph = parse("""
input x: FP32[8]
y: FP32[r<8] = x[r] + 1.0
z: FP32[a<4, b<2] = y[2 * a + b]
u: FP32[i<24] = z[i // 6, (i // 3) % 2]
output u
""")
    made = cut_axes(graph)
    assert made.statement("y").shape == (4, 2)
    assert made.statement("u").shape == (4, 2, 3)
    assert all(i.affine for s in made.statements for r in s.body.reads() for i in r.indices)


def test_folded_ranges_are_cut() -> None:
    graph = parse("""
input x: FP32[4,3,16]
input w: FP32[64]
y: FP32[i<3] = sum[k<64] x[k // 16, i, k % 16] * w[k]
output y
""")
    (made,) = cut_axes(graph).statements
    assert str(made.reduction) == "sum[k_0<4, k_1<16]"


@pytest.mark.parametrize(
    "text",
    [
        "y: FP32[r<10] = x[r // 4]",  # no whole parts
        "y: FP32[r<6] = x[r]",  # nothing asks for it
        "y: FP32[a<3, b<2] = x[2 * a + b]",
        "y: FP32[i<2] = sum[k<6] x[k // 2] * x[k]",  # an operand of a product that is repeated
        "y: FP32[i<8] = sum[k<6] x[i // 2] * x[k]",
    ],
)
def test_what_cannot_or_need_not_be_cut_is_left_as_it_is(text: str) -> None:
    graph = parse(f"input x: FP32[6]\n{text}\noutput y")
    assert cut_axes(graph) is graph


def test_an_axis_that_is_read_behind_guards_of_the_whole_of_it_stays_in_bounds() -> None:
    graph = parse("""
input x: FP32[2,4]
y: FP32[r<8] = x[r // 4, r % 4]
z: FP32[i<8, k<3] = guard(y[i + k - 1], 0.0, 1 <= i + k < 9) + x[i // 4, i % 4]
output z
""")
    made = cut_axes(graph)
    assert (made.statement("y").shape, made.statement("z").shape) == ((8,), (2, 4, 3))
    data = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert (run(made, {"x": data})["z"].reshape(8, 3) == run(graph, {"x": data})["z"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("block", range(6))
def test_elements_stay_in_their_order(block: int) -> None:
    rng = random.Random(block)
    for _ in range(40):
        graph = verify(_drawn(rng))
        made = cut_axes(graph)
        data = {v.name: np.random.default_rng(block).integers(-9, 9, v.shape) for v in graph.inputs}
        before, after = run(graph, data), run(made, data)
        for label in before:
            assert (after[label].reshape(before[label].shape) == before[label]).all(), f"{graph}\n{made}"


def _drawn(rng: random.Random) -> Graph:
    """Three statements, each reading what is there through flat places: shifted, reversed, strided, in part guarded."""
    values: list[Input | Statement] = [Input("x", (rng.choice((2, 3)), 4, 6), FP32)]
    for n in range(3):
        ranges = tuple(Range(f"r{m}", rng.choice((2, 3, 4, 6, 8, 12, 24))) for m in range(rng.choice((1, 2))))
        fold = (Range("k", rng.choice((2, 6))),) if rng.random() < 0.5 else ()
        body: Expr = _read(rng, rng.choice(values), (*ranges, *fold))
        if rng.random() < 0.5:
            body = Op("add", (body, _read(rng, rng.choice(values), (*ranges, *fold))))
        values.append(Statement(f"s{n}", FP32, ranges, body, Reduction("sum", fold) if fold else None))
    return Graph(tuple(values), (("s1", "s1"), ("s2", "s2")))


def _read(rng: random.Random, value: Input | Statement, ranges: tuple[Range, ...]) -> Read:
    flat = Index.of(0)
    for r in rng.sample(ranges, len(ranges)):
        flat = flat * r.extent + (r if rng.random() < 0.8 else r.extent - 1 - r)
    flat = flat * rng.choice((1, 1, 2)) + rng.choice((0, 0, -1, 3))
    size, (low, high) = prod(value.shape), flat.interval()
    guards = () if low >= 0 and high < size else (Guard(flat, 0, size),)
    places: list[Index] = []
    step = size
    for extent in value.shape:
        step //= extent
        place = flat // step
        places.append(place % extent)
    return Read(value.name, tuple(places), guards, Const(0.0) if guards else None)
