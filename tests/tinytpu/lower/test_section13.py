"""The silent bugs of datasheet 13, every item by its smallest reproducer as a graph, and the answer it prints.

Not here: 25, instructions that are refused (tests/tinytpu/units/test_refusals.py, tests/tinytpu/asm/test_refusals.py),
and 26, tools (tests/tinytpu/programs, tests/tinytpu/test_cli.py): neither is a graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tinytpu_rig.lowering import run

Array = NDArray[Any]
INF, NAN = np.inf, np.nan
F = np.float32


class Case(NamedTuple):
    """body over i (and j); inputs by name; the answer, flat."""

    item: int
    text: str
    inputs: dict[str, Array]
    want: Any
    tolerance: float = 0.0


def ints(*values: int, kind: str = "i4") -> Array:
    return np.array(values, kind)


def reals(*values: float) -> Array:
    return np.array(values, F)


def each(item: int, body: str, inputs: dict[str, Array], want: Any, out: str, tolerance: float = 0.0) -> Case:
    """One statement over inputs of one shape."""
    text = "".join(f"input {name}: {format_of(x)}[{x.size}]\n" for name, x in inputs.items())
    n = max(x.size for x in inputs.values())
    return Case(item, f"{text}o: {out}[i<{n}] = {body}\noutput o", inputs, want, tolerance)


def format_of(array: Array) -> str:
    if array.dtype.kind == "b":
        return "BOOL"
    kind = {"i": "S", "u": "U", "f": "FP"}[array.dtype.kind]
    return f"{kind}{array.dtype.itemsize * 8}"


def product(item: int, a: Array, b: Array, want: Any, body: str = "cast(a[i, k], S32) * b[k, j]") -> Case:
    (m, k), n = a.shape, b.shape[-1]
    text = f"input a: {format_of(a)}[{m},{k}]\ninput b: S32[{','.join(map(str, b.shape))}]\n"
    return Case(item, f"{text}o: S32[i<{m},j<{n}] = sum[k<{k}] {body}\noutput o", {"a": a, "b": b}, want)


def ones(*shape: int) -> Array:
    return np.ones(shape, np.int32)


def count(*shape: int) -> Array:
    return np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)


A192 = count(192)
BATCH = "input a: S32[4,4,4]\ninput b: S32[4,4,4]\no: S32[n<4,i<4,j<4] = sum[k<4] a[n, i, k] * b[n, k, j]\noutput o"
FACTORS = np.array([[1, 2, 0, 0], [3, 4, 0, 0], [0] * 4, [0] * 4], np.int32)
POLES = {"a": reals(1, 1, 1, 0, 1), "b": reals(0, -0.0, INF, 0, 1e-40)}
TURNS = {"a": reals(np.pi, 0.0, 100.0)}
NEAREST = {"a": ints(16777219, -16777219, 2147483647)}
EYES = (np.eye(4)[None] * np.arange(1, 5)[:, None, None]).astype(np.int32)
SUM = "input a: S32[{0}]\no: S32[u<1] = sum[k<{0}] a[k]\noutput o"
EPILOGUE = "input a: S32[1,4]\ninput b: S32[4,4]\np: S32[i<1,j<4] = sum[k<4] a[i, k] * b[k, j]\n"
EPILOGUE += "o: S32[i<1,j<4] = max(p[i, j], cast(0, S32))\noutput o"
SPECIAL = {"a": reals(0.0, -0.0, INF, NAN, -4.0, 2.0**-149)}
CHAIN = "input m: S32[4,1]\ninput a: S32[4,4]\ns: S32[i<4] = sum[k<4] a[i, k]\no: S32[i<4] = m[i, 0] + s[i]\noutput o"
MEAN = "input a: S32[4,36]\ns: S32[i<4] = sum[k<36] a[i, k]\no: FP32[i<4] = cast(s[i], FP32) / 36.0\noutput o"
EQUAL = {"a": reals(-0.0, NAN, 1.0), "b": reals(0.0, NAN, 2.0)}
NANS = {"a": reals(NAN, 1.0), "b": reals(1.0, NAN)}
DIVIDED = {"a": ints(-7, 7, -(2**31), 5), "b": ints(2, -2, -1, 0)}
CLAMPED = {"a": reals(-INF, INF, 2.0**32, 3e9, NAN)}
WIDE = {"a": ints(2**33 + 1, kind="i8")}

CASES = [
    each(1, "a[i] + b[i]", {"a": A192, "b": 1000 - A192}, [1000] * 192, "S32"),
    each(2, "max(a[i], cast(0, S32))", {"a": count(272) - 136}, [max(i - 136, 0) for i in range(272)], "S32"),
    product(3, ones(8, 20), ones(20, 4), [20] * 32),
    product(3, ones(4, 132), ones(132, 4), [132] * 16),
    product(4, ones(16, 16), ones(16, 16), [16] * 256),
    each(5, "neg(a[i])", {"a": count(512)}, [-i for i in range(512)], "S32"),
    Case(6, SUM.format(256), {"a": count(256)}, [32640]),
    Case(6, SUM.format(144), {"a": count(144)}, [10296]),
    Case(6, MEAN.replace("output o", "output s"), {"a": count(4, 36)}, [630, 1926, 3222, 4518]),
    Case(6, MEAN, {"a": count(4, 36)}, [17.5, 53.5, 89.5, 125.5], 3e-7),
    each(7, "shr(a[i], cast(1, S32))", {"a": ints(-8)}, [-4], "S32"),
    each(7, "shr(a[i], b[i])", {"a": ints(-8), "b": ints(1)}, [-4], "S32"),
    each(
        8, "cast(a[i], FP32)", NEAREST, [16777220.0, -16777220.0, 2147483648.0], "FP32"
    ),
    each(9, "a[i] == b[i]", EQUAL, [True, False, False], "BOOL"),
    each(9, "~(a[i] == b[i])", EQUAL, [False, True, True], "BOOL"),
    each(10, "a[i] + b[i]", {"a": ints(2, 3, kind="i1"), "b": ints(5, 6, kind="i1")}, [7, 9], "S8"),
    each(10, "a[i] + b[i]", {"a": ints(200, kind="u1"), "b": ints(100, kind="u1")}, [44], "U8"),
    each(11, "a[i] < b[i]", {"a": ints(2**31, kind="u4"), "b": ints(1, kind="u4")}, [False], "BOOL"),
    each(11, "a[i]", WIDE, [8589934593], "S64"),
    each(11, "a[i] * cast(-3, S64)", WIDE, [-25769803779], "S64"),
    each(11, "a[i] * b[i]", {"a": np.array([1.5], np.float16), "b": np.array([2.0], np.float16)}, [3.0], "FP16"),
    Case(12, BATCH, {"a": EYES, "b": ones(4, 4, 4)}, np.repeat([1, 2, 3, 4], 16)),
    product(13, np.eye(4, dtype=np.int32), count(4, 4), count(4, 4).T, "a[i, k] * b[j, k]"),
    product(14, np.array([[True, False, True, False]]), ones(4, 4), [2, 2, 2, 2]),
    Case(15, EPILOGUE, {"a": np.array([[1, -1, 0, 0]]), "b": FACTORS}, [0] * 4),
    each(16, "a[i] / b[i]", POLES, [INF, -INF, 0, NAN, INF], "FP32"),
    each(16, "bits(1.0 / a[i], FP32, U32)", {"a": reals(1.5 * 2.0**126)}, [0x00555555], "U32"),
    each(17, "exp2(a[i])", CLAMPED, [0, INF, INF, INF, NAN], "FP32"),
    each(18, "log2(a[i])", SPECIAL, [-INF, -INF, INF, NAN, NAN, -149], "FP32", 1e-6),
    each(18, "sqrt(a[i])", SPECIAL, [0, -0.0, INF, NAN, NAN, 3.743392e-23], "FP32", 1e-6),
    each(19, "sin(a[i] + 1.5707963267948966)", TURNS, np.cos([np.pi, 0, 100.0]), "FP32", 1e-5),
    each(20, "max(a[i], b[i])", NANS, [NAN, NAN], "FP32"),
    each(20, "min(a[i], b[i])", NANS, [NAN, NAN], "FP32"),
    Case(20, "input a: FP32[5]\no: FP32[u<1] = max[k<5] a[k]\noutput o", {"a": reals(3, 2, NAN, 1, 5)}, [NAN]),
    each(21, "a[i] + cast(1, S8)", {"a": ints(127, kind="i1")}, [-128], "S8"),
    each(21, "neg(a[i])", {"a": ints(-128, kind="i1")}, [-128], "S8"),
    each(21, "abs(a[i])", {"a": ints(-128, kind="i1")}, [-128], "S8"),
    each(22, "wdiv(a[i], b[i])", DIVIDED, [-4, -4, -(2**31), 0], "S32"),
    each(22, "wmod(a[i], b[i])", {"a": ints(-7), "b": ints(2)}, [1], "S32"),
    Case(23, "input a: S32[4,1]\ninput b: S32[4,4]\no: S32[i<4,j<4] = a[i, 0] + b[i, j]\noutput o",
         {"a": count(4, 1) + 1, "b": ones(4, 4)}, np.repeat([2, 3, 4, 5], 4)),
    Case(23, "input a: S32[16]\no: S32[u<1] = sum[k<4] a[k + 4]\noutput o", {"a": count(16)}, [22]),
    each(23, "min(a[i], cast(5, S32))", {"a": ints(-3, 9)}, [-3, 5], "S32"),
    Case(24, CHAIN, {"m": ones(4, 1), "a": count(4, 4)}, [7, 23, 39, 55]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{case.item}-{n}" for n, case in enumerate(CASES)])
def test_item(case: Case) -> None:
    _, ran = run(case.text, **case.inputs)
    (got,) = ran.outputs.values()
    want = np.asarray(case.want).reshape(-1).astype(got.dtype)
    if got.dtype.kind != "f":
        assert got.reshape(-1).tolist() == want.tolist()
        return
    np.testing.assert_allclose(got.reshape(-1), want, rtol=case.tolerance, atol=0)
    assert np.signbit(got[np.asarray(got) == 0]).tolist() == np.signbit(want[want == 0]).tolist()


def test_every_item_is_here_or_has_its_place() -> None:
    assert {case.item for case in CASES} == set(range(1, 25))
