"""Stages that share programs: the same bits as alone, in fewer cycles; what cannot be joined stays apart."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from graph.random_graphs import arrays, random_graph
from kohakuaccel import graph
from kohakuaccel.graph import Graph, Input
from kohakuaccel.graph.native import Native
from tinytpu import machines
from tinytpu.lower import NotLowered, Plan, Ran, compile_graph
from tinytpu.lower.joined import Joined
from tinytpu.lower.steps import Multiplied, Shared

Array = NDArray[Any]


def numbers(g: Graph, seed: int, most: int = 100) -> dict[str, Array]:
    """Inputs of a graph."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for v in g.inputs:
        if v.dtype.name == "FP32":
            made[v.name] = rng.normal(size=v.shape).astype(np.float32)
        else:
            made[v.name] = rng.integers(-most, most, v.shape).astype(np.int8 if v.dtype.name == "S8" else np.int32)
    return made


def both(text: str, *, tolerance: float = 0.0, seed: int = 1, most: int = 100) -> tuple[Plan, Ran, Ran]:
    """The plan, what it gave, and what the plan of separate stages gave: the same bits, and the host's numbers."""
    g = graph.parse(text)
    inputs = numbers(g, seed, most)
    plan = compile_graph(g)
    ran, apart = plan.run(inputs), compile_graph(g, join=False).run(inputs)
    for name, want in Native(g)(inputs).items():
        got, alone = ran.outputs[name], apart.outputs[name]
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert got.tobytes() == alone.tobytes(), f"{name} joined and apart"
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    foreseen = [
        step.product.cycles if isinstance(step, Multiplied) else getattr(step, "cycles", 0) for step in plan.steps
    ]
    assert all(cycles in (0, found) for cycles, found in zip(foreseen, ran.cycles, strict=True)) or ran.notes
    assert ran.counts.cycles <= apart.counts.cycles
    return plan, ran, apart


SOFTMAX = """
input x: FP32[{0},{1}]
m: FP32[i<{0}] = max[k<{1}] x[i, k]
s: FP32[i<{0}] = sum[k<{1}] exp2((x[i, k] - m[i]) * 1.4426950408889634)
o: FP32[i<{0},j<{1}] = exp2((x[i, j] - m[i]) * 1.4426950408889634) / s[i]
output o
"""
COLUMNS = """
input x: FP32[{1},{0}]
m: FP32[i<{0}] = max[k<{1}] x[k, i]
e: FP32[j<{1},i<{0}] = exp2(x[j, i] - m[i])
s: FP32[i<{0}] = sum[k<{1}] e[k, i]
o: FP32[j<{1},i<{0}] = e[j, i] / s[i]
output o
output m
"""
LAYERNORM = """
input x: FP32[{0},{1}]
m: FP32[i<{0}] = sum[k<{1}] x[i, k] * 0.0625
v: FP32[i<{0}] = sum[k<{1}] (x[i, k] - m[i]) * (x[i, k] - m[i])
r: FP32[i<{0}] = rsqrt(v[i] * 0.0625 + 1e-05)
o: FP32[i<{0},j<{1}] = (x[i, j] - m[i]) * r[i]
output o
"""
ATTENTION = """
input q: FP32[6,4]
input k: FP32[5,4]
input v: FP32[5,4]
s: FP32[i<6,j<5] = sum[d<4] q[i, d] * k[j, d]
z: FP32[i<6] = sum[j<5] max(s[i, j], 0.0)
o: FP32[i<6,d<4] = sum[j<5] max(s[i, j], 0.0) * v[j, d]
output o
output z
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "shape", "programs", "tolerance"),
    [
        (SOFTMAX, (4, 4), 1, 2e-6),
        (SOFTMAX, (5, 37), 5, 2e-6),
        (SOFTMAX, (1, 10), 1, 2e-6),
        (LAYERNORM, (6, 16), 1, 1e-3),
        (ATTENTION, (), 2, 1e-5),
    ],
)
def test_rows(text: str, shape: tuple[int, ...], programs: int, tolerance: float) -> None:
    """Values between a fold and what reads it stay in registers: no more than the inputs and outputs is moved."""
    plan, ran, apart = both(text.format(*shape), tolerance=tolerance)
    assert all(isinstance(step, Joined) for step in plan.steps)
    assert ran.counts.programs <= programs
    assert ran.counts.taken + ran.counts.filled < apart.counts.taken + apart.counts.filled
    assert "joined" in plan.text()


@pytest.mark.slow
def test_a_row_that_is_too_large_for_a_program_is_cut() -> None:
    """Its exponentials are computed once, and carried by the host from one program to the next."""
    plan, ran, apart = both(SOFTMAX.format(2, 130), tolerance=2e-6)
    assert len(plan.steps) == 1
    assert ran.counts.carried > 0
    assert ran.counts.cycles < 0.6 * apart.counts.cycles


PRODUCT = """
input a: S8[{0},{1}]
input w: S8[{1},{2}]
p: S32[i<{0},j<{2}] = sum[k<{1}] cast(a[i, k], S32) * cast(w[k, j], S32)
m: S32[i<{0}] = max[j<{2}] p[i, j]
o: S32[i<{0},j<{2}] = p[i, j] - m[i]
output o
output m
"""


@pytest.mark.parametrize("shape", [(4, 8, 4), (6, 8, 10), (3, 12, 9)])
def test_a_product_and_a_fold_of_its_rows(shape: tuple[int, int, int]) -> None:
    plan, ran, _ = both(PRODUCT.format(*shape), most=128)
    assert len(plan.steps) == 1
    assert "a product on the array" in plan.text()
    assert ran.counts.programs == 1


def test_a_product_of_numbers_beyond_int8_goes_on_alone() -> None:
    text = PRODUCT.format(4, 8, 4).replace("S8[", "S32[")
    _, ran, _ = both(text, most=1000)
    assert ran.notes
    _, ran, _ = both(text, most=100)
    assert not ran.notes


def test_what_is_no_row_stays_apart() -> None:
    """Other points, a neighbour's value, a gathered one: steps of their own, and right."""
    head = "input x: S32[6,8]\nm: S32[i<6] = max[k<8] x[i, k]\n"
    for tail in (
        "o: S32[i<6,j<8] = x[i, j] - m[5 - i]\noutput o",
        "o: S32[i<6,j<8] = x[i, j] - guard(m[i - 1], 0, 1 <= i < 6)\noutput o",
        "o: S32[j<8] = sum[i<6] x[i, j] - m[i]\noutput o",
        "n: S32[i<6] = m[i] & cast(3, S32)\no: S32[i<6,j<8] = x[at(n[i], 6), j]\noutput o",
    ):
        plan, _, _ = both(head + tail)
        assert len(plan.steps) == 2


def random_rows(seed: int) -> str:
    """A chain of statements over points and terms, of random kinds, in one of several axis orders."""
    rng = np.random.default_rng(seed)
    real = bool(rng.integers(2))
    points, terms = int(rng.integers(1, 9)), int(rng.integers(2, 22))
    dtype = "FP32" if real else "S32"
    turned = bool(rng.integers(2))
    space = f"j<{terms},i<{points}" if turned else f"i<{points},j<{terms}"

    def at(name: str, term: str) -> str:
        return f"{name}[{term}, i]" if turned else f"{name}[i, {term}]"

    lines = [
        f"input x: {dtype}[{f'{terms},{points}' if turned else f'{points},{terms}'}]",
        f"input y: {dtype}[{terms}]",
    ]
    vectors, scalars = ["x"], list[str]()
    for n in range(int(rng.integers(3, 7))):
        kind = int(rng.integers(4))
        v = vectors[int(rng.integers(len(vectors)))]
        s = f"{scalars[int(rng.integers(len(scalars)))]}[i]" if scalars else ("0.5" if real else "cast(3, S32)")
        if kind == 0 or not scalars:
            op = ("sum", "max", "min", "prod")[int(rng.integers(4))]
            lines.append(
                f"v{n}: {dtype}[i<{points}] = {op}[k<{terms}] {at(v, 'k')}{' * y[k]' if rng.integers(2) else ''}"
            )
            scalars.append(f"v{n}")
        elif kind == 1:
            lines.append(f"v{n}: {dtype}[{space}] = ({at(v, 'j')} - {s}) * y[j]")
            vectors.append(f"v{n}")
        elif kind == 2:
            lines.append(f"v{n}: {dtype}[i<{points}] = max({s}, {at(v, str(int(rng.integers(terms))))})")
            scalars.append(f"v{n}")
        else:
            lines.append(f"v{n}: {dtype}[{space}] = min({at(v, 'j')}, {s})")
            vectors.append(f"v{n}")
    return "\n".join([*lines, f"output {lines[-1].split(':')[0]}", f"output {scalars[0]}"])


@pytest.mark.parametrize("seed", range(25))
def test_random_rows_are_the_same_bits(seed: int) -> None:
    both(random_rows(seed), tolerance=1e-3, seed=seed)


def test_other_machines() -> None:
    """Tiles of 8x8, and four registers: the same numbers."""
    g = graph.parse(COLUMNS.format(9, 11))
    inputs = numbers(g, 3)
    want = Native(g)(inputs)["o"]
    for machine in (machines.load("tinytpu_8x8"), machines.load().with_(name="few", params={"vregs": 4})):
        ran = compile_graph(g, machine).run(inputs)
        np.testing.assert_allclose(ran.outputs["o"], want, rtol=3e-6)


INDEPENDENT = """
input a: S32[16]
input b: S32[16]
o: S32[i<16] = a[i] + b[i]
q: S32[i<8] = a[i] * b[i]
r: S32[i<4,j<5] = a[i] - b[j + 3]
output o
output q
output r
"""


def test_steps_that_do_not_read_each_other_share_a_program() -> None:
    """A bundle's own seven cycles (datasheet 10.6) are paid once, and what several read is filled once."""
    plan, ran, apart = both(INDEPENDENT)
    assert (ran.counts.programs, apart.counts.programs) == (1, 3)
    assert ran.counts.cycles <= apart.counts.cycles - 14
    assert "3 steps side by side" in plan.text()


@pytest.mark.parametrize("most", [100, 1000])
def test_a_product_beside_a_map(most: int) -> None:
    """Operands beyond int8 leave every step by itself."""
    text = "input a: S32[4,4]\ninput b: S32[4,4]\np: S32[i<4,j<4] = sum[k<4] a[i, k] * b[k, j]\n"
    text += "o: S32[i<9] = a[0, 0] + cast(iota(i), S32)\noutput o\noutput p"
    _, ran, _ = both(text, most=most)
    assert (ran.counts.programs, bool(ran.notes)) == ((1, False) if most == 100 else (2, True))


@pytest.mark.slow
def test_random_statements_side_by_side_are_the_same_bits() -> None:
    """Statements of every kind over the same inputs, packed where they are small; what is not lowered is left out."""
    ran = packed = 0
    for seed in range(40):
        rng = random.Random(seed)
        parts = [random_graph(rng) for _ in range(3)]
        made = [replace(s, name=f"{s.name}_{n}") for n, part in enumerate(parts) for s in part.statements]
        inputs = {v.name: v for part in parts for v in part.values if isinstance(v, Input)}
        g = Graph((*inputs.values(), *made), tuple((s.name, s.name) for s in made))
        try:
            plan, apart = compile_graph(g), compile_graph(g, join=False)
        except NotLowered:
            continue
        given = {name: value for name, value in arrays(rng).items() if name in inputs}
        one, two = plan.run(given), apart.run(given)
        for name, array in two.outputs.items():
            assert one.outputs[name].tobytes() == array.tobytes(), (seed, name)
        ran, packed = ran + 1, packed + any(isinstance(step, Shared) for step in plan.steps)
    assert ran > 10
    assert packed > 5
