"""Machine words: modular integers in the text, in the ruler and on the host; numpy's own types are the reference."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kohakuaccel import graph
from kohakuaccel.diagnostics import DefinitionError
from kohakuaccel.graph.native import Native

TYPES = {f"{'S' if s else 'U'}{b}": np.dtype(f"{'i' if s else 'u'}{b // 8}") for b in (8, 16, 32, 64) for s in (0, 1)}
BINARY = {
    "a + b": np.add,
    "a - b": np.subtract,
    "a * b": np.multiply,
    "xor(a, b)": np.bitwise_xor,
    "a & b": np.bitwise_and,
    "a | b": np.bitwise_or,
    "max(a, b)": np.maximum,
    "wdiv(a, b)": np.floor_divide,
    "wmod(a, b)": np.mod,
    "rem(a, b)": np.fmod,
}


@pytest.mark.parametrize("name", TYPES)
def test_words_wrap_as_numpy_does(name: str) -> None:
    dtype = TYPES[name]
    rng = np.random.default_rng(len(name))
    ends = [np.iinfo(dtype).min, np.iinfo(dtype).max, 1, 3]
    x = np.concatenate([np.array(ends, dtype), rng.integers(*ends[:2], size=60, dtype=dtype)])
    y = np.roll(x, 1)
    y[y == 0] = 1
    lines = [f"input x: {name}[64]", f"input y: {name}[64]"]
    for n, text in enumerate(BINARY):
        body = re.sub(r"\b([ab])\b", lambda m: {"a": "x[i]", "b": "y[i]"}[m[1]], text)
        lines.append(f"o{n}: {name}[i<64] = {body}")
    lines += [f"output o{n}" for n in range(len(BINARY))]
    program = graph.parse("\n".join(lines))
    assert graph.from_json(graph.to_json(program)) == program
    with np.errstate(all="ignore"):
        for found in (graph.run(program, {"x": x, "y": y}), Native(program)({"x": x, "y": y})):
            for n, wanted in enumerate(BINARY.values()):
                assert found[f"o{n}"].dtype == dtype
                np.testing.assert_array_equal(found[f"o{n}"], wanted(x, y))


PROGRAM = """
input x: U32[6]
input f: FP32[6]
shifted: U32[i<6] = shr(shl(x[i], cast(3, U32)), cast(5, U32))
q: S32[i<6] = quot(cast(x[i], S32), cast(-7, S32))
total: U32[] = sum[k<6] x[k]
codes: U32[i<6] = bits(f[i], FP32, U32)
back: FP32[i<6] = bits(codes[i], U32, FP32)
small: S8[i<6] = cast(f[i], S8)
one: U32[] = bits(f[1], FP32, U32)
found: FP32[i<6] = f[at(x[i] & cast(3, U32), 4)]
output shifted
output q
output total
output codes
output back
output small
output found
output one
"""


def test_shifts_bits_casts_and_gathers_by_words() -> None:
    program = graph.parse(PROGRAM)
    assert graph.parse(str(program)) == program
    x = np.array([0, 1, 2**31, 2**32 - 1, 12345, 99], np.uint32)
    f = np.array([0.0, -1.5, 300.0, np.inf, 1e-40, 2.5], np.float32)
    signed = x.view(np.int32).astype(np.float64)
    for found in (graph.run(program, {"x": x, "f": f}), Native(program)({"x": x, "f": f})):
        np.testing.assert_array_equal(found["shifted"], (x << np.uint32(3)) >> np.uint32(5))
        np.testing.assert_array_equal(found["q"], np.trunc(signed / -7))
        assert found["total"] == x.sum(dtype=np.uint32)
        np.testing.assert_array_equal(found["codes"], f.view(np.uint32))
        np.testing.assert_array_equal(found["back"], f)
        np.testing.assert_array_equal(found["small"], [0, -1, 44, 0, 0, 2])
        np.testing.assert_array_equal(found["found"], f[x & 3])
        assert found["one"].shape == ()
        assert found["one"] == f.view(np.uint32)[1]


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("x[i] + cast(1, S32)", "words of one format"),
        ("x[i] // x[i]", "idiv takes int"),
        ("bits(x[i], U32, FP16)", "as many bits"),
        ("cast(x[i], U16)", "cast one to the other"),
    ],
)
def test_words_that_do_not_meet_are_refused(body: str, rule: str) -> None:
    with pytest.raises((DefinitionError, ValueError), match=rule):
        graph.parse(f"input x: U32[4]\ny: U32[i<4] = {body}\noutput y")


def test_native_rounds_every_operation() -> None:
    """FP16 on the host: 2048 + 1 is 2048 where the ruler has 2049, and a sum is rounded once."""
    program = graph.parse("input x: FP16[4]\ny: FP16[i<4] = x[i] + 1.0\ns: FP16[] = sum[k<4] x[k]\noutput y\noutput s")
    x = np.array([2048, 1, 1, 1], np.float16)
    assert graph.run(program, {"x": x})["y"][0] == 2049
    assert Native(program)({"x": x})["y"][0] == 2048
    assert Native(program)({"x": x})["s"] == np.float16(2051)
