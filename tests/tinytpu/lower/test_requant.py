"""Requantisation: exact for every int32 and factor, and the array's own where that is the same (datasheet 7, 14)."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel import graph
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import WORDS
from kohakuaccel.graph import build as g
from kohakuaccel.graph.native import Native
from kohakuaccel.graph.requant import as_requantised, requantised
from tinytpu.lower import compile_graph

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
    for n in range(300):
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
    ("shift", "low", "why"), [(0, -128, "shifts right; got 0; the limit is 1..62"), (1, -129, "bounds")]
)
def test_wrong_scales_are_refused(shift: int, low: int, why: str) -> None:
    x = g.Builder().input("x", (4,), S32)
    with pytest.raises(Refusal, match=why):
        g.requantise(x, 3, shift, low)


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
