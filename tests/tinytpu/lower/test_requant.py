"""Requantisation: exact for every int32 and factor, and the array's own where that is the same (datasheet 7, 14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kohakuaccel import graph
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import WORDS, numpy_of
from kohakuaccel.graph import build as g
from kohakuaccel.graph.native import Native
from kohakuaccel.graph.requant import as_requantised, requantised
from tinytpu.lower import Plan, Ran, compile_graph
from tinytpu.lower.array.chain import Chain
from tinytpu.lower.steps import Multiplied

S8, S32 = WORDS["S8"], WORDS["S32"]
BOUNDS = ((-128, 127), (0, 127), (0, 100), (-5, 7))


def _exact(x: int, factor: int, shift: int, low: int, high: int) -> int:
    return max(low, min(high, (x * factor + (1 << (shift - 1))) >> shift))


def _numbers(rng: np.random.Generator, ends: list[int]) -> np.ndarray:
    """int64[48] of every magnitude below 2**31, the ends first."""
    found = rng.integers(-(1 << 31), 1 << 31, 48) >> rng.integers(0, 32, 48)
    found[: len(ends)] = ends
    return found


def _checked(rng: np.random.Generator, factor: int | None, shift: int, low: int, high: int, narrow: bool) -> None:
    """factor None: one per element."""
    x = _numbers(rng, [-(1 << 31), (1 << 31) - 1, 0, 1, -1, 2])
    x = x.astype(np.int16).astype(np.int64) if narrow else x
    factors = _numbers(rng, [-(1 << 31), -(1 << 31), (1 << 31) - 1]) if factor is None else np.full(48, factor)
    b = g.Builder()
    given = b.input("x", (48,), WORDS["S16"] if narrow else S32)
    inputs = {"x": x.astype(np.int16 if narrow else np.int32)}
    if factor is None:
        inputs["m"] = factors.astype(np.int32)
    made = g.requantise(given, b.input("m", (48,), S32) if factor is None else factor, shift, low, high)
    got = compile_graph(b.graph(y=made)).run(inputs).outputs["y"]
    assert got.dtype == np.int8
    assert got.tolist() == [_exact(int(a), int(f), shift, low, high) for a, f in zip(x, factors)]


@pytest.mark.parametrize("shift", [1, 2, 8, 16, 17, 23, 24, 31, 32, 33, 47, 62])
@pytest.mark.parametrize("factor", [None, 1, -1, 3, 40503, -(1 << 31), (1 << 31) - 1])
def test_every_int32(factor: int | None, shift: int) -> None:
    _checked(np.random.default_rng(shift), factor, shift, *BOUNDS[shift % 4], narrow=False)


@pytest.mark.slow
def test_random_scales() -> None:
    rng = np.random.default_rng(0)
    for n in range(120):
        shift = int(rng.integers(1, 32)) if n % 4 else int(rng.integers(1, 63))
        factor = int(rng.integers(-(1 << 31), 1 << 31)) >> int(rng.integers(0, 32))
        _checked(rng, None if n % 3 == 0 else factor, shift, *BOUNDS[n % 4], narrow=n % 5 == 0)


def test_a_form_is_recognised_however_its_operands_stand_and_only_that_form() -> None:
    x = graph.parse("input x: S32[4]\no: S32[i<4] = x[i] + x[i]\noutput o").statement("o").body
    made = as_requantised(requantised(x, 5, 7, 0, 9))
    assert made is not None
    assert (made.value, made.factor, made.shift, made.rounded, made.low, made.high) == (x, 5, 7, True, 0, 9)
    text = "input x: S32[4]\no: S64[i<4] = {}\noutput o"

    def found(body: str) -> object:
        return as_requantised(graph.parse(text.format(body)).statement("o").body)

    other = "max(cast(-1, S64), min(shr(cast(8, S64) + cast(3, S64) * cast(x[i], S64), cast(4, S64)), cast(5, S64)))"
    assert found(other) is not None
    assert found(other.replace("cast(8, S64) + ", "")) is not None  # rounded down
    for old, new in (
        ("cast(8, S64)", "cast(7, S64)"),
        ("cast(4, S64)", "cast(0, S64)"),
        ("cast(-1", "cast(6"),
        ("max(cast(-1, S64), ", "max(cast(x[i], S64), "),
        ("cast(3, S64)", "cast(4294967296, S64)"),
    ):
        assert old in other
        assert found(other.replace(old, new)) is None


@pytest.mark.parametrize(
    ("factor", "shift", "low", "why"),
    [
        (3, 0, -128, "shifts right; got 0; the limit is 1..62"),
        (3, 1, -129, "bounds"),
        (1 << 31, 8, -128, r"a factor is an int32; got 2147483648; the limit is -2147483648\.\.2147483647"),
        (0.5, 8, -128, "a factor is an integer; got 0.5"),
    ],
)
def test_wrong_scales_are_refused(factor: Any, shift: int, low: int, why: str) -> None:
    x = g.Builder().input("x", (4,), S32)
    with pytest.raises(Refusal, match=why):
        g.requantise(x, factor, shift, low)


def test_a_layer_with_bias_relu_and_factors_per_channel() -> None:
    text = """
input a: S8[5,9]
input w: S8[9,6]
input b: S32[6]
input m: S16[6]
p: S32[i<5,j<6] = sum[k<9] cast(a[i, k], S32) * cast(w[k, j], S32)
s: S32[i<5,j<6] = p[i, j] + b[j]
o: S8[i<5,j<6] = cast(min(max(SHIFTED, cast(0, S64)), cast(127, S64)), S8)
output o
"""
    shifted = "shr(cast(s[i, j], S64) * cast(m[j], S64) + cast(32768, S64), cast(16, S64))"
    text = text.replace("SHIFTED", shifted)
    rng = np.random.default_rng(4)
    inputs = {"a": rng.integers(-128, 128, (5, 9), np.int8), "w": rng.integers(-128, 128, (9, 6), np.int8),
              "b": rng.integers(-9999, 9999, 6, np.int32), "m": rng.integers(1, 300, 6, np.int16)}  # fmt: skip
    plan = compile_graph(graph.parse(text))
    assert len(plan.steps) == 1
    ran = plan.run(inputs)
    exact = inputs["a"].astype(np.int64) @ inputs["w"] + inputs["b"]
    want = np.clip((exact * inputs["m"] + 32768) >> 16, 0, 127)
    assert len(np.unique(want)) > 10
    np.testing.assert_array_equal(ran.outputs["o"], want)
    np.testing.assert_array_equal(ran.outputs["o"], Native(graph.parse(text))(inputs)["o"])


def _layers(rows: int, sizes: Sequence[int], *, last: bool, change: Mapping[str, str]) -> str:
    """Products of S8 with a requantisation behind each (behind the last one if `last`), and texts replaced."""
    text = f"input a: S8[{rows},{sizes[0]}]\n"
    text += "".join(f"input w{n}: S8[{k},{o}]\n" for n, (k, o) in enumerate(pairwise(sizes)))
    before = "a"
    for n, (k, o) in enumerate(pairwise(sizes)):
        text += f"p{n}: S32[i<{rows},j<{o}] = sum[k<{k}] cast({before}[i, k], S32) * cast(w{n}[k, j], S32)\n"
        before = f"p{n}"
        if last or n < len(sizes) - 2:
            shifted = f"shr(cast(p{n}[i, j], S64) * cast({37 + n}, S64) + cast({1 << 9}, S64), cast(10, S64))"
            text += f"q{n}: S8[i<{rows},j<{o}] = cast(min(max({shifted}, cast(-128, S64)), cast(127, S64)), S8)\n"
            before = f"q{n}"
    text += f"output {before}"
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    return text


def _run_layers(text: str) -> tuple[Plan, Ran]:
    """The plan, and what it gives: what the host gives, and what the steps by themselves do."""
    program = graph.parse(text)
    rng = np.random.default_rng(9)
    inputs = {v.name: rng.integers(-128, 128, v.shape).astype(numpy_of(v.dtype)) for v in program.inputs}
    plan = compile_graph(program)
    ran = plan.run(inputs)
    for name, want in Native(program)(inputs).items():
        np.testing.assert_array_equal(ran.outputs[name], want)
    alone = compile_graph(program, join=False).run(inputs)
    for name, values in alone.outputs.items():
        np.testing.assert_array_equal(ran.outputs[name], values)
    assert sum(step.product.cycles for step in plan.steps if isinstance(step, Multiplied)) == ran.counts.cycles
    return plan, ran


@pytest.mark.parametrize(
    ("rows", "sizes", "last", "cycles"),
    [
        (4, (4, 4, 4), False, 127), (4, (4, 4), True, 81), (1, (4, 4, 4, 4), False, 71),
        (7, (3, 4, 10, 9), False, 1107),
        (40, (4, 3, 4, 20), False, 3586), (5, (4, 9), True, 241), (9, (2, 3, 2, 6), True, 499),
    ],
)  # fmt: skip
def test_layers_are_one_chain(rows: int, sizes: tuple[int, ...], last: bool, cycles: int) -> None:
    """Op 45 between layers: 127 cycles for two of 4x4x4 (datasheet 14); tails, several programs, vectors as output."""
    plan, ran = _run_layers(_layers(rows, sizes, last=last, change={}))
    (step,) = plan.steps
    assert isinstance(step, Multiplied)
    assert isinstance(step.product, Chain)
    assert f"{len(sizes) - 1} layers" in plan.text()
    assert ran.counts.cycles == cycles


@pytest.mark.parametrize(
    "change",
    [
        {"max(shr(cast(p0": "max(shr(cast(p0", "cast(-128, S64)": "cast(0, S64)"},  # relu
        {"cast(512, S64)": "cast(0, S64)"},  # rounded down
        {"cast(37, S64)": "cast(a[i, j], S64)"},  # a factor per element
        {"output p1": "output p1\noutput q0"},  # wanted outside
        {"cast(p0[i, j], S64)": "cast(p0[i, j] + cast(1, S32), S64)"},  # a bias
        {"cast(q0[i, k], S32)": "cast(q0[k, i], S32)"},  # turned
        {
            "S8[4,4]\np0": "S8[4,4]\ninput u: S8[4,4]\np0",
            "cast(q0[i, k], S32) * cast(w1": "cast(u[i, k], S32) * cast(q0",
        },
    ],
)
def test_what_the_array_does_not_requantise_goes_another_way(change: dict[str, str]) -> None:
    plan, _ = _run_layers(_layers(4, (4, 4, 4), last=False, change=change))
    found = [step.product for step in plan.steps if isinstance(step, Multiplied)]
    assert not any(isinstance(product, Chain) and len(product.layers) > 1 for product in found)


def test_a_deep_layer_ends_a_chain() -> None:
    """A dispatch sums no more than the array's rows."""
    plan, _ = _run_layers(_layers(4, (8, 4, 4), last=False, change={}))
    assert len(plan.steps) > 1


def test_operands_of_a_chain_beyond_int8_go_to_the_vector_unit() -> None:
    text = _layers(4, (4, 4, 4), last=False, change={"input a: S8": "input a: S32", "cast(a[i, k], S32)": "a[i, k]"})
    program = graph.parse(text)
    weights = {f"w{n}": np.eye(4, dtype=np.int8) for n in (0, 1)}
    plan = compile_graph(program)
    assert "operands beyond int8: on the vector unit" in plan.text()
    for value, notes in ((100, 0), (1000, 1)):
        inputs = {"a": np.full((4, 4), value, np.int32), **weights}
        ran = plan.run(inputs)
        np.testing.assert_array_equal(ran.outputs["p1"], Native(program)(inputs)["p1"])
        assert len(ran.notes) == notes
    with pytest.raises(ValueError, match="activation of the array is an int8; got 1000"):
        compile_graph(program, mxu="demanded").run({"a": np.full((4, 4), 1000, np.int32), **weights})
