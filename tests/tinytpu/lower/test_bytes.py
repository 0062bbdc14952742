"""Elementwise statements of bytes, four to a word: every pair of bytes against numpy, and what they take."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel import graph
from kohakuaccel.graph.native import Native
from tinytpu import machines
from tinytpu.lower import compile_graph
from tinytpu.lower.stage import Stage
from tinytpu_rig.lowering import check

Bytes = NDArray[np.int8 | np.uint8]
CODES = np.arange(256, dtype=np.uint8)
FORMATS: dict[str, type[np.int8] | type[np.uint8]] = {"S8": np.int8, "U8": np.uint8}
SIGN = "where(~({x} == cast(0, {f})), where({x} < cast(0, {f}), cast(-1, {f}), cast(1, {f})), cast(0, {f}))"

WORDS: dict[str, tuple[int, int]] = {
    "a[i] + b[i]": (70, 70), "a[i] - b[i]": (65, 65), "a[i] * b[i]": (33, 33), "a[i] & b[i]": (33, 33),
    "a[i] | b[i]": (33, 33), "xor(a[i], b[i])": (33, 33), "xor(a[i], cast(-1, {f}))": (26, 26),
    "max(a[i], b[i])": (33, 55), "min(a[i], b[i])": (33, 55), "max(a[i], cast(0, {f}))": (26, 12),
    "min(max(a[i], cast(5, {f})), cast(100, {f}))": (45, 70), "neg(a[i])": (30, 30), "abs(a[i])": (31, 12),
    "fma(a[i], b[i], a[i])": (75, 75), "where(a[i] < b[i], a[i], b[i] + a[i])": (90, 107),
    "where(a[i] == b[i], cast(0, {f}), a[i])": (43, 43), "where(a[i] < b[i], cast(-1, {f}), a[i])": (38, 55),
    "a[i] + cast(5, {f})": (55, 55), "a[i] - cast(5, {f})": (55, 55), "a[i] + cast(128, {f})": (33, 33),
    "cast(5, {f}) - a[i]": (65, 65), "shl(a[i], cast(3, {f}))": (33, 33), "shl(a[i], cast(8, {f}))": (12, 12),
    "shr(a[i], cast(1, {f}))": (59, 42), "shr(a[i], cast(3, {f}))": (33, 42), "shr(a[i], cast(9, {f}))": (33, 12),
    "cast(a[i] < b[i], {f}) * a[i] + cast(iota(i % 3), {f})": (72, 89),
    "xor(max(a[i], b[i]), cast(iota(i % 200) < iota(7), {f}))": (45, 67),
    SIGN.replace("{x}", "a[i]"): (26, 47),
    "cast(min(max(cast(a[i], S16) + cast(b[i], S16), cast(-128, S16)), cast(127, S16)), {f})": (33, 0),
    "cast(max(min(cast(a[i], S16) - cast(b[i], S16), cast(127, S16)), cast(-128, S16)), {f})": (33, 0),
    "cast(min(max(cast(a[i], S16) + cast(b[i], S16), cast(-100, S16)), cast(90, S16)), {f})": (57, 0),
    "cast(min(abs(cast(a[i], S16) - cast(b[i], S16)), cast(127, S16)), {f})": (33, 0),
    "cast(min(abs(cast(a[i], S16)), cast(127, S16)), {f})": (26, 47),
    "cast(min(neg(cast(a[i], S16)), cast(127, S16)), {f})": (26, 30),
    "cast(shr(cast(a[i], S16) * cast(b[i], S16), cast(8, S16)), {f})": (33, 0),
    "cast(shr(a[i] * b[i], cast(8, {f})), {f})": (45, 12),
}  # fmt: skip
"""Bodies, and the cycles of 64 elements of S8 and of U8; 0 where bytes cannot hold what is computed."""
TRUTHS: dict[str, tuple[int, int]] = {
    "a[i] < b[i]": (33, 50), "a[i] == b[i]": (33, 33), "~(a[i] < b[i]) & (a[i] == b[i])": (48, 65),
    "cast(a[i], BOOL)": (35, 35), "a[i] < cast(3, {f})": (33, 45),
    "where(a[i] < b[i], a[i] == cast(1, {f}), cast(b[i], BOOL))": (74, 91),
}  # fmt: skip


def text_of(body: str, name: str, out: str, n: int) -> str:
    body = body.replace("{f}", name)
    return f"input a: {name}[{n}]\ninput b: {name}[{n}]\no: {out}[i<{n}] = {body}\noutput o"


def cycles_of(text: str) -> tuple[int, bool]:
    (step,) = compile_graph(graph.parse(text)).steps
    assert isinstance(step, Stage)
    return step.cycles, step.layout.packed == 4


def bodies(name: str) -> list[tuple[str, str, int]]:
    """Every body, the format of its result, and its cycles."""
    both = ((WORDS, name), (TRUTHS, "BOOL"))
    return [(body, out, cycles[name == "U8"]) for some, out in both for body, cycles in some.items()]


SMALL = machines.load().with_(name="small", params={"program_words": 40})
"""Programs of a tile or two, which are quickly found."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_every_pair_of_bytes(name: str) -> None:
    """Wrapping, clamping where the graph says so, order, equality, choice and shifts, to the bit."""
    a, b = (codes.view(FORMATS[name]) for codes in (np.repeat(CODES, 256), np.tile(CODES, 256)))
    for body, out, _ in bodies(name):
        agree(text_of(body, name, out, a.size), a, b)


def agree(text: str, a: Bytes, b: Bytes) -> None:
    layer = graph.parse(text)
    got = compile_graph(layer, SMALL).run({"a": a, "b": b}).outputs["o"]
    np.testing.assert_array_equal(got, Native(layer)({"a": a, "b": b})["o"], text)


@pytest.mark.parametrize("name", FORMATS)
def test_cycles_of_64_bytes(name: str) -> None:
    found = [(body, *cycles_of(text_of(body, name, out, 64))) for body, out, _ in bodies(name)]
    found = [(body, cycles if packed else 0) for body, cycles, packed in found]
    assert found == [(body, cycles) for body, _, cycles in bodies(name)]


@pytest.mark.parametrize("n", [1, 15, 63, 65, 200, 5000])
def test_tails_are_exact(n: int) -> None:
    """Elements that fill no word, no tile and no program."""
    a, b = (np.random.default_rng(n).integers(-128, 128, n, np.int8) for _ in range(2))
    check(text_of("max(a[i], b[i] + cast(3, {f}))", "S8", "S8", n), a=a, b=b)
    check(text_of("a[i] < b[i]", "S8", "BOOL", n), a=a, b=b)


def test_reads_of_every_kind() -> None:
    """Rows and columns beside a matrix, guards, permutes, truth values in, several outputs of other formats."""
    rng = np.random.default_rng(4)
    text = """
input a: S8[9,13]
input row: S8[13]
input one: S8[1]
input mask: BOOL[9,13]
m: S8[i<9,j<13] = max(a[i, j], row[j])
n: S8[i<9,j<13] = where(mask[i, j], m[i, j], guard(a[i, j - 1], 7, 0 <= j - 1 < 12))
u: U8[i<9,j<13] = cast(n[i, j], U8) + cast(mask[i, j], U8)
t: BOOL[i<9,j<13] = mask[i, j] & (n[i, j] < one[0])
output m
output u
output t
"""
    given = {"a": (9, 13), "row": (13,), "one": (1,)}
    inputs = {name: rng.integers(-128, 128, shape, np.int8) for name, shape in given.items()}
    mask = rng.integers(0, 2, (9, 13)).astype(np.bool_)
    check(text, a=inputs["a"], row=inputs["row"], one=inputs["one"], mask=mask)
    (step,) = compile_graph(graph.parse(text)).steps
    assert isinstance(step, Stage)
    assert step.layout.packed == 4
    assert ", bytes\n" in step.text()


def test_what_bytes_do_not_hold_takes_words() -> None:
    for body in (
        "quot(a[i], b[i])",
        "shr(a[i], b[i])",
        "cast(shr(cast(a[i], S16) + cast(b[i], S16), cast(1, S16)), S8)",
        "cast(cast(a[i], FP32) * 0.5, S8)",
        "cast(cast(a[i], S16) * cast(b[i], S16) < cast(9, S16), S8)",
    ):
        assert not cycles_of(text_of(body, "S8", "S8", 64))[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_expressions(seed: int) -> None:
    """Expressions of every operation that bytes have, of casts and of clamps, of random pairs."""
    rng = np.random.default_rng(seed)
    name = ("S8", "U8")[seed % 2]
    a, b = (rng.integers(0, 256, 2048).astype(np.uint8).view(FORMATS[name]) for _ in range(2))
    for depth in (2, 3, 3, 4):
        agree(text_of(drawn(rng, name, depth), name, name, a.size), a, b)


def drawn(rng: np.random.Generator, f: str, depth: int) -> str:
    """A random expression of words of format `f`."""
    if depth == 0:
        return str(rng.choice(["a[i]", "b[i]", f"cast({rng.integers(-128, 128)}, {f})", f"cast(iota(i % 97), {f})"]))
    x, y = (drawn(rng, f, depth - 1) for _ in range(2))
    wide = f"cast({x}, S16) {rng.choice(['+', '-'])} cast({y}, S16)"
    forms = [
        f"({x} {rng.choice(['+', '-', '*', '&', '|'])} {y})", f"{rng.choice(['max', 'min', 'xor'])}({x}, {y})",
        f"{rng.choice(['neg', 'abs'])}({x})", f"where({x} {rng.choice(['<', '=='])} {y}, {y}, {x})",
        f"fma({x}, {y}, {x})", f"{rng.choice(['shr', 'shl'])}({x}, cast({rng.integers(0, 10)}, {f}))",
        f"cast(min(max({wide}, cast({-128 if f == 'S8' else 0}, S16)), cast(127, S16)), {f})",
        f"cast(cast({x}, {'U8' if f == 'S8' else 'S8'}) < cast({y}, {'U8' if f == 'S8' else 'S8'}), {f})",
    ]  # fmt: skip
    return str(rng.choice(forms))
