"""Minima that were written as maxima of what is turned round: found in maps and folds, the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel import graph
from tinytpu.lower.forms.minima import Minima
from tinytpu_rig.lowering import check

NUMPY: dict[str, Any] = {"FP32": np.float32, "S32": np.int32, "S8": np.int8, "U8": np.uint8, "U32": np.uint32,
                         "BOOL": np.bool_}  # fmt: skip
TURNED = {
    "FP32": "({} * -1.0)", "S32": "xor({}, cast(-1, S32))", "S8": "xor(cast(-1, S8), {})",
    "U8": "xor({}, cast(255, U8))", "U32": "xor({}, cast(4294967295, U32))", "BOOL": "(~{})",
}  # fmt: skip
FIVE = {"FP32": "5.0", "U8": "cast(250, U8)", "U32": "cast(4294967290, U32)"}
SPECIAL = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3.5], np.float32)


def spelt(text: str) -> str:
    found = Minima().rewrite(graph.parse(text)).statements
    return "; ".join(f"{s.reduction.op if s.reduction else 'map'} {s.body}" for s in found)


def inputs(dtype: str) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(0)
    if dtype == "FP32":
        # Rows of zeros of both signs, of numbers, of everything.
        a = np.concatenate([rng.choice(SPECIAL[:2], (9, 16)), rng.normal(size=(3, 16)), rng.choice(SPECIAL, (4, 16))])
        return a.astype(np.float32), rng.choice(SPECIAL, (16, 16))
    a, b = rng.integers(0, 1 << 32, (2, 16, 16), np.uint32)
    return a.astype(NUMPY[dtype]), b.astype(NUMPY[dtype])


def maps(dtype: str) -> str:
    """-max(max(-a, 5), -b), and a fold of -a that is read turned round."""
    turned, five = TURNED[dtype].format, FIVE.get(dtype, f"cast(5, {dtype})")
    most = f"max({turned('a[i, j]')}, {turned('b[i, j]')})" if dtype == "BOOL" else (
        f"max(max({turned('a[i, j]')}, {five}), {turned('b[i, j]')})"
    )  # fmt: skip
    return (
        f"input a: {dtype}[16,16]\ninput b: {dtype}[16,16]\n"
        f"o: {dtype}[i<16,j<16] = {turned(most)}\n"
        f"m: {dtype}[i<16] = max[k<16] {turned('a[i, k]')}\np: {dtype}[i<16] = {turned('m[i]')}\noutput o\noutput p"
    )


@pytest.mark.parametrize("dtype", TURNED)
def test_maps_and_folds_become_minima(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, (a, b) = maps(dtype), inputs(dtype)
    body, fold, read = spelt(text).split("; ")
    assert body.startswith("map min(")
    assert (fold, read) == ("min a[i, k]", "map m[i]")
    found = check(text, a=a, b=b)
    monkeypatch.setattr(Minima, "rewrite", lambda _, one: one)
    before = check(text, a=a, b=b)
    assert found.counts.cycles < before.counts.cycles
    for name, values in found.outputs.items():  # the sign of a zero is the same too; a NaN's bits are not promised
        number = values == values
        assert values[number].tobytes() == before.outputs[name][number].tobytes()


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        ("max[k<4] xor(a[i, k], cast(-1, S32))", "xor(m[i], cast(-1, S32))\noutput m"),  # the maximum leaves too
        ("max[k<4] xor(a[i, k], cast(-1, S32))", "m[i] + xor(m[i], cast(-1, S32))"),  # and is read as it is
        ("max[k<4] xor(a[i, k], cast(-2, S32))", "xor(m[i], cast(-1, S32))"),  # not every bit is turned
        ("max[k<4] a[i, k] * cast(-1, S32)", "m[i] * cast(-1, S32)"),  # the least word's negative is itself
        ("sum[k<4] xor(a[i, k], cast(-1, S32))", "xor(m[i], cast(-1, S32))"),
        ("max[k<4] a[i, k]", "xor(m[i], cast(-1, S32))"),
    ],
)  # fmt: skip
def test_other_folds_stay(head: str, tail: str) -> None:
    text = f"input a: S32[4,4]\nm: S32[i<4] = {head}\no: S32[i<4] = {tail}\noutput o"
    before = graph.parse(text).statements
    assert Minima().rewrite(graph.parse(text)).statements == before
