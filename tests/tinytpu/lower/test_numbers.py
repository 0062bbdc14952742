"""Scalar operations on the machine against numpy, at the ends of every format (datasheet 13)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel import graph
from tinytpu.lower import NotLowered, compile_graph
from tinytpu_rig.lowering import check, run

FORMATS: dict[str, np.dtype[Any]] = {
    name: np.dtype(f"{'i' if name[0] == 'S' else 'u'}{int(name[1:]) // 8}")
    for name in ("S8", "U8", "S16", "U16", "S32", "U32")
}


def integers(dtype: np.dtype[Any]) -> NDArray[Any]:
    """The ends of a format, their middles, and small numbers."""
    info = np.iinfo(dtype)
    found = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2, info.max // 2 + 1, 0, 1, 2, 3, 7, 100]
    return np.array([*found, *([-1, -2, -3, -7, -100] if info.min else [])], dtype)


def pairs(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    first, second = zip(*itertools.product(values, values))
    return np.array(first, values.dtype), np.array(second, values.dtype)


@pytest.mark.parametrize("name", FORMATS)
def test_arithmetic_of_words(name: str) -> None:
    """Wrapping, cut and floored division by everything, order and equality, shifts up to beyond the width."""
    a, b = pairs(integers(FORMATS[name]))
    n = len(a)
    shift = (np.arange(n) % (FORMATS[name].itemsize * 8 + 4)).astype(a.dtype)
    values = ["a[i] + b[i]", "a[i] - b[i]", "a[i] * b[i]", "a[i] & b[i]", "a[i] | b[i]"]
    values += [f"{op}(a[i], b[i])" for op in ("quot", "rem", "wdiv", "wmod", "max", "min", "xor")]
    values += ["neg(a[i])", "abs(a[i])", "fma(a[i], b[i], a[i])", "shl(a[i], s[i])", "shr(a[i], s[i])"]
    values += [f"shr(a[i], cast(3, {name}))", f"max(a[i], cast(0, {name}))", f"wmod(a[i], cast(10, {name}))"]
    truths = ["a[i] < b[i]", "a[i] == b[i]", "~(a[i] < b[i])", "cast(a[i], BOOL)"]
    text = [f"input {x}: {name}[{n}]" for x in "abs"]
    bodies = [(name, body) for body in values] + [("BOOL", body) for body in truths]
    bodies += [(to, f"cast(a[i], {to})") for to in FORMATS]
    for k, (dtype, body) in enumerate(bodies):
        text += [f"o{k}: {dtype}[i<{n}] = {body}", f"output o{k}"]
    check("\n".join(text), a=a, b=b, s=shift)


@pytest.mark.parametrize("name", FORMATS)
def test_folds_of_words(name: str) -> None:
    rng = np.random.default_rng(3)
    info = np.iinfo(FORMATS[name])
    for op, (rows, columns) in itertools.product(("sum", "max", "min", "prod"), ((4, 20), (1, 70), (20, 3))):
        a = rng.integers(info.min, int(info.max) + 1, (rows, columns)).astype(FORMATS[name])
        check(f"input a: {name}[{rows},{columns}]\no: {name}[i<{rows}] = {op}[k<{columns}] a[i, k]\noutput o", a=a)


@pytest.mark.parametrize("name", FORMATS)
def test_integers_become_the_nearest_real(name: str) -> None:
    rng = np.random.default_rng(4)
    info = np.iinfo(FORMATS[name])
    a = np.concatenate([rng.integers(info.min, int(info.max) + 1, 500), integers(FORMATS[name])])
    if info.bits == 32:
        a = np.concatenate([a, [16777219, 2147483647, 2147483583, 2147483585]])
    a = a.astype(FORMATS[name])
    check(f"input a: {name}[{len(a)}]\no: FP32[i<{len(a)}] = cast(a[i], FP32)\noutput o", a=a)


REALS = np.array(
    [0.0, -0.0, 1, -1, 1.5, -2.5, 3.7, 0.3, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e-45, 3e38, -3e38, 1.5 * 2.0**126,
     2.0**127, 2.0**-126, 2.0**-127, 2.0**-128, 1e9, -1e9, 2.0**31, 2.0**32, 3e9, 2.0**55, 2.0**62, 1e19, 1e30,
     8388607.5, -8388607.5, 16777217, 127.5, -126.5, 128, -149, -150, 100],
    np.float32,
)  # fmt: skip


def spread() -> NDArray[np.float32]:
    rng = np.random.default_rng(5)
    near, far = rng.normal(size=300), np.exp2(rng.uniform(-149, 127, 500))
    return np.concatenate([REALS, near * 10, far, 1 + near / 100]).astype(np.float32)


@pytest.mark.parametrize(
    ("body", "tolerance"),
    [
        ("recip(a[i])", 2e-7), ("exp2(a[i])", 3e-7), ("log2(a[i])", 5e-7), ("sqrt(a[i])", 2e-7),
        ("rsqrt(a[i])", 6e-7), ("a[i] / 3.0", 4e-7), ("a[i] / 4.0", 0.0), ("floor(a[i])", 0.0), ("cut(a[i])", 0.0),
        ("neg(a[i])", 0.0), ("abs(a[i])", 0.0), ("max(a[i], 0.0)", 0.0), ("min(a[i], 6.0)", 0.0),
        ("where(a[i] < 0.0, a[i] * 0.1, a[i])", 0.0), ("cast(a[i] < 0.5, FP32)", 0.0),
    ],
)  # fmt: skip
def test_functions_of_reals(body: str, tolerance: float) -> None:
    a = spread()
    check(f"input a: FP32[{len(a)}]\no: FP32[i<{len(a)}] = {body}\noutput o", a=a, tolerance=tolerance)


def test_pairs_of_reals() -> None:
    """NaN wins maxima, both zeros are equal, quotients of everything by everything."""
    a, b = pairs(REALS)
    n = len(a)
    text = f"input a: FP32[{n}]\ninput b: FP32[{n}]\n"
    exact = ["a[i] + b[i]", "a[i] - b[i]", "a[i] * b[i]", "max(a[i], b[i])", "min(a[i], b[i])"]
    for k, body in enumerate(exact):
        text += f"o{k}: FP32[i<{n}] = {body}\noutput o{k}\n"
    for k, body in enumerate(["a[i] < b[i]", "a[i] == b[i]", "a[i] == 0.0", "a[i] == 1.0", "a[i] == nan"]):
        text += f"t{k}: BOOL[i<{n}] = {body}\noutput t{k}\n"
    check(text, a=a, b=b)
    quotient = f"input a: FP32[{n}]\ninput b: FP32[{n}]\no: FP32[i<{n}] = a[i] / b[i]\noutput o"
    check(quotient, a=a, b=b, tolerance=6e-7)


@pytest.mark.parametrize("to", [*FORMATS, "BOOL"])
def test_reals_become_words(to: str) -> None:
    a = spread()
    check(f"input a: FP32[{len(a)}]\no: {to}[i<{len(a)}] = cast(a[i], {to})\noutput o", a=a)


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_folds_of_reals(bad: float) -> None:
    rng = np.random.default_rng(6)
    for op, (rows, columns) in itertools.product(("sum", "max", "min", "prod"), ((4, 20), (1, 70), (20, 3))):
        a = rng.normal(size=(rows, columns)).astype(np.float32)
        a[0, 1] = bad
        text = f"input a: FP32[{rows},{columns}]\no: FP32[i<{rows}] = {op}[k<{columns}] a[i, k]\noutput o"
        check(text, a=a, tolerance=0.0 if op in ("max", "min") else 2e-4)


SINE = "input a: FP32[64]\no: FP32[i<64] = sin(a[i])\noutput o"


def pi(bits: int) -> int:
    """pi * 2**bits, by Machin's formula."""

    def arctangent(x: int, one: int) -> int:
        power = one // x
        total, n = power, 1
        while power:
            power //= -x * x
            n += 2
            total += power // n
        return total

    one = 1 << (bits + 32)
    return 4 * (4 * arctangent(5, one) - arctangent(239, one)) >> 32


def sine(x: float, bits: int = 400) -> float:
    """Of a finite number, reduced in integers."""
    numerator, denominator = x.as_integer_ratio()
    value, half = (numerator << bits) // denominator, pi(bits)
    turns = (2 * value + half) // (2 * half)
    return float((-1) ** (turns % 2) * np.sin((value - turns * half) / 2.0**bits))


def test_a_sine_of_any_argument() -> None:
    """Large ones are noted: the stage is run again. 16367173 * 2**72 is the binary32 nearest a multiple of pi / 2."""
    rng = np.random.default_rng(7)
    for scale in (1.0, 100.0, 25735.0):
        a = rng.uniform(-scale, scale, 64).astype(np.float32)
        ran = run(SINE, a=a)[1]
        assert np.abs(ran.outputs["o"] - np.sin(a.astype(np.float64))).max() < 2e-7
        assert ran.notes == ()
    ends = np.resize(np.array([np.inf, -np.inf, np.nan, 0.0], np.float32), 64)
    assert np.isnan(run(SINE, a=ends)[1].outputs["o"].reshape(-1, 4)).all(0).tolist() == [True, True, True, False]
    hard = [
        0.0,
        -0.0,
        16367173 * 2.0**72,
        1e30,
        -1e30,
        3.4e38,
        25736.0,
        16384.0,
        16383.999,
        1e-40,
        3.1415927,
        -4.357386e6,
    ]
    a = np.concatenate([hard, np.exp2(rng.uniform(-5, 128, 40)), 355 * rng.integers(100, 9999, 12)]).astype(np.float32)
    plan = compile_graph(graph.parse(SINE))
    ran = plan.run({"a": a})
    assert ran.notes == ("statement o: run again for a sine of more than 25735",)
    assert ran.counts.programs > plan.run({"a": ends}).counts.programs
    np.testing.assert_allclose(ran.outputs["o"], [sine(float(x)) for x in a], rtol=3e-7)
    mixed = np.concatenate([a[:32], ends[:32]])
    assert np.isnan(plan.run({"a": mixed}).outputs["o"][32:35]).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("input a: FP64[4]\no: FP64[i<4] = a[i] + a[i]\noutput o", "got FP64"),
        ("input a: S32[4]\no: FP8E4M3[i<4] = cast(a[i], FP8E4M3)\noutput o", "got FP8E4M3"),
        (
            "input a: INT32[4]\no: INT32[i<4] = a[i] * a[i]\noutput o",
            "of the exact kind is known to fit 32 bits; got INT32",
        ),
        ("input a: INT8[4]\no: INT32[i<4] = a[i] // a[i]\noutput o", "not to be by zero"),
    ],
)
def test_what_lanes_cannot_hold_is_refused_when_it_is_compiled(text: str, message: str) -> None:
    with pytest.raises(NotLowered, match=message) as caught:
        compile_graph(graph.parse(text))
    assert isinstance(caught.value, NotImplementedError)


def test_words_of_64_bits_that_are_known_to_fit_32_are_computed() -> None:
    """Places of gathers and their gates, as frontends write them: negative ones counted from the end."""
    a = np.array([-3, 0, 2, -10, 9], np.int32)
    at = "where(a[i] < cast(0, S32), cast(a[i], S64) + cast(10, S64), cast(a[i], S64))"
    text = f"""
input a: S16[5]
input t: FP32[10]
p: S64[i<5] = {at.replace("S32", "S16")}
g: BOOL[i<5] = ~(cast(a[i], S64) < cast(iota(i), S64))
o: FP32[i<5] = t[at(where(a[i] < cast(0, S16), a[i] + cast(10, S16), a[i]), 10)]
output p
output g
output o
"""
    ran = check(text, a=a.astype(np.int16), t=np.arange(10, dtype=np.float32))
    assert ran.outputs["p"].tolist() == [7, 0, 2, 0, 9]


@pytest.mark.slow
def test_reciprocals_of_every_mantissa_are_the_nearest() -> None:
    """So that a quotient by way of a reciprocal is whole where it should be: 6 * (1 / 3) is 2."""
    n = 1 << 19
    plan = compile_graph(graph.parse(f"input a: FP32[{n}]\no: FP32[i<{n}] = recip(a[i])\noutput o"))
    for first in range(0x3F800000, 0x40000000, n):
        a = np.arange(first, first + n, dtype=np.uint32).view(np.float32)
        assert np.array_equal(plan.run({"a": a}).outputs["o"], (1 / a.astype(np.float64)).astype(np.float32))


def test_reciprocals_by_exponent_and_of_numbers() -> None:
    a = (np.exp2(np.arange(-149, 126.0)) * np.random.default_rng(10).uniform(1, 2, 275)).astype(np.float32)
    check(
        "input a: FP32[275]\no: FP32[i<275] = recip(a[i])\nq: FP32[i<275] = a[i] * recip(3.0)\noutput o\noutput q", a=a
    )


def test_powers() -> None:
    """IEEE's ends; else 6e-7 of binary64's result, whatever the exponent."""
    ends = np.array([0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 1.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e38,
                     -1e38, 127, -127, 1.0000001, 0.9999999, 16777216, 16777217, 33554432, 149, -149],
                    np.float32)  # fmt: skip
    a, b = pairs(ends)
    rng = np.random.default_rng(9)
    a = np.concatenate([a, np.exp2(rng.uniform(-140, 127, 800)), rng.uniform(0.5, 2, 800)]).astype(np.float32)
    b = np.concatenate([b, rng.normal(size=800), rng.uniform(-300, 300, 800)]).astype(np.float32)
    n = len(a)
    got = run(f"input a: FP32[{n}]\ninput b: FP32[{n}]\no: FP32[i<{n}] = pow(a[i], b[i])\noutput o", a=a, b=b)
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
    found = got[1].outputs["o"]
    np.testing.assert_allclose(found, want, rtol=6e-7, atol=2e-45)
    exact = np.isin(want, [0, 1, np.inf, -np.inf])
    assert np.array_equal(np.signbit(found[exact]), np.signbit(want[exact]))


def test_numbers_alone_are_known() -> None:
    """Also of formats that lanes do not hold, as frontends compare their literals in."""
    text = "input a: FP32[4]\no: FP32[i<4] = where(1.7 == cast(1, FP64), 0.0, a[i] * cast(0.5 + 1.0, FP32))\noutput o"
    check(text, a=np.arange(4, dtype=np.float32))
