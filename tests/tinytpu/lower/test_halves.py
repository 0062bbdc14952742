"""Reals of 16 bits on lanes of binary32: all 65,536 of each format, and every rounding beside a tie, against numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tinytpu_rig.lowering import check, run

TYPES: dict[str, np.dtype[Any]] = {"FP16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}
ALL = np.arange(65536, dtype=np.uint16)
formats = pytest.mark.parametrize("name", TYPES)


def same(got: NDArray[Any], want: NDArray[Any]) -> bool:
    """To the bit; a NaN is a NaN."""
    a, b = got.astype(np.float32), want.astype(np.float32)
    return bool((((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))).all())


@pytest.mark.slow
@formats
def test_every_half(name: str) -> None:
    text = f"input a: {name}[65536]\no: FP32[i<65536] = cast(a[i], FP32)\nb: U16[i<65536] = bits(a[i], {name}, U16)\n"
    half = ALL.view(TYPES[name])
    got = run(text + "output o\noutput b", a=half)[1].outputs
    assert same(got["o"], half.astype(np.float32))
    assert np.array_equal(got["b"], ALL)
    got = run(f"input a: U16[65536]\no: {name}[i<65536] = bits(a[i], U16, {name})\noutput o", a=ALL)[1].outputs
    assert got["o"].dtype == half.dtype
    assert np.array_equal(got["o"].view(np.uint16), ALL)


@pytest.mark.slow
@formats
def test_rounding_to_nearest_even(name: str) -> None:
    """Of what lies at, and just beside, every middle of two halves, and of any bits."""
    wide = ALL.view(TYPES[name]).astype(np.float32)
    bits = wide[np.isfinite(wide)].view(np.uint32)
    step = 0x8000 if name == "BF16" else 0x1000
    drawn = np.random.default_rng(1).integers(0, 1 << 32, 20000, dtype=np.uint32)
    x = np.concatenate([bits, bits + step, bits + (step - 1), bits + (step + 1), drawn]).astype(np.uint32)
    x = np.concatenate([x, bits[np.abs(wide[np.isfinite(wide)]) < 1e-4] // 2]).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        want = x.astype(TYPES[name])
    got = run(f"input a: FP32[{len(x)}]\no: {name}[i<{len(x)}] = cast(a[i], {name})\noutput o", a=x)[1].outputs["o"]
    assert same(got, want)


@formats
def test_operations_round_each_time(name: str) -> None:
    n = 1000
    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 65536, n).astype(np.uint16).view(TYPES[name]) for _ in range(2))
    bodies = ["a[i] + b[i]", "a[i] - b[i]", "a[i] * b[i]", "max(a[i], b[i])", "min(a[i], b[i])", "a[i] * 0.1"]
    bodies += ["fma(a[i], b[i], a[i])", "where(a[i] < b[i], a[i], b[i] * 3.0)", "neg(a[i])", "abs(a[i])", "floor(a[i])"]
    text = [f"input {x}: {name}[{n}]" for x in "ab"]
    for k, body in enumerate(bodies):
        text += [f"o{k}: {name}[i<{n}] = {body}", f"output o{k}"]
    with np.errstate(all="ignore"):
        x, y, number = a, b, TYPES[name].type
        zero = x * number(0)
        want = [x + y, x - y, x * y, np.maximum(x, y), np.minimum(x, y), x * number(0.1), x * y + x]
        want += [np.where(x < y, x, y * number(3)), -x, np.abs(x), np.floor(x)]
    got = run("\n".join(text), a=a, b=b)[1].outputs
    assert zero.dtype == TYPES[name]
    for k, expected in enumerate(want):
        assert same(got[f"o{k}"], expected.astype(TYPES[name])), bodies[k]


@formats
def test_folds_round_once(name: str) -> None:
    a = np.random.default_rng(3).normal(size=(4, 20)).astype(TYPES[name])
    for op in ("sum", "max", "min", "prod"):
        got = run(f"input a: {name}[4,20]\no: {name}[i<4] = {op}[k<20] a[i, k]\noutput o", a=a)[1].outputs["o"]
        exact = getattr(a.astype(np.float64), op)(axis=1)
        assert same(got, exact.astype(np.float32).astype(TYPES[name]))


@formats
def test_casts_of_integers_and_what_comes_of_movement(name: str) -> None:
    """A permuted half is moved as it is: no instruction but the HALT."""
    check(f"input a: S32[7]\no: {name}[i<7] = cast(a[i], {name})\nf: FP32[i<7] = cast(o[i], FP32)\noutput f",
          a=np.array([0, 1, -1, 2049, 65519, 65520, -(1 << 31)], np.int32))  # fmt: skip
    a = np.random.default_rng(4).integers(0, 65536, 12).astype(np.uint16).view(TYPES[name]).reshape(3, 4)
    ran = run(f"input a: {name}[3,4]\no: {name}[i<4,j<3] = a[2 - j, i]\noutput o", a=a)[1]
    assert np.array_equal(ran.outputs["o"].view(np.uint16), a[::-1].T.view(np.uint16))
    assert ran.counts.instructions == 1
