"""Integers of 64 bits on lanes of 32, against Python's integers: pairs of words, and one word where spans allow."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel import graph
from tinytpu.lower import Plan, compile_graph
from tinytpu.lower.stage import Stage
from tinytpu_rig.lowering import run

TYPES = {"S64": np.int64, "U64": np.uint64}
ENDS = [
    0,
    1,
    2,
    3,
    7,
    100,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**33 + 1,
    0x1234567890ABCDEF,
    2**62,
    2**63 - 1,
]


def wrapped(value: int, name: str) -> int:
    value %= 1 << 64
    return value - (1 << 64) if name == "S64" and value >> 63 else value


def numbers(name: str) -> list[int]:
    more = [-n for n in ENDS if n] + [-(2**63)] if name == "S64" else [2**63, 2**63 + 1, 2**64 - 1]
    return ENDS + more


def cut(a: int, b: int) -> int:
    """Towards zero; 0 where b is 0."""
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def shifted_left(a: int, n: int) -> int:
    return a << n if 0 <= n < 64 else 0


def shifted_right(a: int, n: int) -> int:
    return a >> n if 0 <= n < 64 else -(a < 0)


BINARY: dict[str, Callable[[int, int], int]] = {
    "a[i] + b[i]": lambda a, b: a + b,
    "a[i] - b[i]": lambda a, b: a - b,
    "a[i] * b[i]": lambda a, b: a * b,
    "a[i] & b[i]": lambda a, b: a & b,
    "a[i] | b[i]": lambda a, b: a | b,
    "xor(a[i], b[i])": lambda a, b: a ^ b,
    "max(a[i], b[i])": max,
    "min(a[i], b[i])": min,
    "neg(a[i])": lambda a, b: -a,
    "abs(a[i])": lambda a, b: abs(a),
    "fma(a[i], b[i], a[i])": lambda a, b: a * b + a,
    "shl(a[i], s[i])": lambda a, b: a,
    "shr(a[i], s[i])": lambda a, b: a,
    "where(a[i] < b[i], a[i], b[i] + a[i])": lambda a, b: a if a < b else a + b,
}


@pytest.mark.parametrize("name", TYPES)
def test_arithmetic_wraps(name: str) -> None:
    """All pairs of numbers at the ends of words; shifts by every amount, and beyond."""
    a, b = zip(*itertools.product(numbers(name), repeat=2))
    n = len(a)
    shift = [k % 70 for k in range(n)]
    rules = dict(BINARY)
    known = {"shl": shifted_left, "shr": shifted_right}
    for op, places in itertools.product(known, (0, 1, 31, 32, 33, 63, 64)):
        rules[f"{op}(a[i], cast({places}, {name}))"] = lambda a, b, op=op, places=places: known[op](a, places)
    truths: dict[str, Callable[[int, int], bool]] = {
        "a[i] < b[i]": lambda a, b: a < b,
        "a[i] == b[i]": lambda a, b: a == b,
        "cast(a[i], BOOL)": lambda a, b: a != 0,
        f"a[i] < cast(5, {name})": lambda a, b: a < 5,
    }
    text = [f"input {x}: {name}[{n}]" for x in "abs"]
    bodies = [(name, body) for body in rules] + [("BOOL", body) for body in truths]
    for k, (dtype, body) in enumerate(bodies):
        text += [f"o{k}: {dtype}[i<{n}] = {body}", f"output o{k}"]
    given = {x: np.array(v, TYPES[name]) for x, v in (("a", a), ("b", b), ("s", shift))}
    got = run("\n".join(text), **given)[1].outputs
    for k, (dtype, body) in enumerate(bodies):
        if body in ("shl(a[i], s[i])", "shr(a[i], s[i])"):
            want = [wrapped(known[body[:3]](x, y), name) for x, y in zip(a, shift)]
        elif dtype == "BOOL":
            want = [truths[body](x, y) for x, y in zip(a, b)]
        else:
            want = [wrapped(rules[body](x, y), name) for x, y in zip(a, b)]
        assert got[f"o{k}"].tolist() == want, body


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("divisor", [1, 3, 10, 32768, 65535, 65536, -7, 0])
def test_division_by_small_numbers(name: str, divisor: int) -> None:
    if divisor < 0 and name == "U64":
        divisor = 7
    a = numbers(name)
    check_division(name, a, [divisor] * len(a), f"cast({divisor}, {name})")


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_division_by_anything(name: str) -> None:
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, 2**64, (2, 48), dtype=np.uint64) >> rng.integers(0, 64, (2, 48), dtype=np.uint64)
    drawn[:, :6] = [[2**64 - 1, 2**63, 2**63, 0, 5, 2**63 + 1], [2**64 - 1, 2**64 - 1, 1, 3, 0, 2**63]]
    a, b = drawn.astype(TYPES[name]).tolist()
    check_division(name, a, b, "b[i]")


def check_division(name: str, a: list[int], b: list[int], divisor: str) -> None:
    text = [f"input a: {name}[{len(a)}]"] + ([f"input b: {name}[{len(a)}]"] if divisor == "b[i]" else [])
    for op in ("quot", "rem", "wdiv", "wmod"):
        text += [f"{op}_: {name}[i<{len(a)}] = {op}(a[i], {divisor})", f"output {op}_"]
    given = {x: np.array(v, TYPES[name]) for x, v in (("a", a), ("b", b)) if f"input {x}" in "\n".join(text)}
    got = run("\n".join(text), **given)[1].outputs
    for x, y, quot, rem, wdiv, wmod in zip(a, b, *(got[f"{op}_"].tolist() for op in ("quot", "rem", "wdiv", "wmod"))):
        assert quot == wrapped(cut(x, y), name)
        assert rem == (x - cut(x, y) * y if y else 0)
        assert (wdiv, wmod) == ((wrapped(x // y, name), x % y) if y else (0, 0))


@pytest.mark.parametrize("name", TYPES)
def test_folds(name: str) -> None:
    rng = np.random.default_rng(3)
    for op, (rows, columns) in itertools.product(("sum", "max", "min", "prod"), ((4, 20), (1, 70), (20, 3))):
        drawn = rng.integers(0, 2**64, (rows, columns), dtype=np.uint64)
        a = (drawn >> rng.integers(0, 64, (rows, columns), dtype=np.uint64)).astype(TYPES[name])
        text = f"input a: {name}[{rows},{columns}]\no: {name}[i<{rows}] = {op}[k<{columns}] a[i, k]\noutput o"
        got = run(text, a=a)[1].outputs["o"].tolist()
        for row, found in zip(a.tolist(), got):
            product = 1
            for x in row:
                product *= x
            want = {"sum": sum(row), "max": max(row), "min": min(row), "prod": product}[op]
            assert found == wrapped(want, name)


@pytest.mark.parametrize("name", TYPES)
def test_to_and_from_reals(name: str) -> None:
    """To the nearest binary32, ties to even; from it cut, 0 beyond the format."""
    rng = np.random.default_rng(4)
    near = [2**k + d * 2 ** (k - 24) + e for k in (40, 55, 62) for d in (1, 3) for e in (-1, 0, 1)]
    a = numbers(name) + near + (rng.integers(0, 2**63, 200) >> rng.integers(0, 63, 200)).tolist()
    a += [-x for x in a if name == "S64" and x > 0]
    text = f"input a: {name}[{len(a)}]\no: FP32[i<{len(a)}] = cast(a[i], FP32)\noutput o"
    got = run(text, a=np.array(a, TYPES[name]))[1].outputs["o"]
    assert [int(x) for x in got] == [nearest(x) for x in a]
    signs = rng.choice([-1.0, 1.0], 300)
    drawn = np.exp2(rng.uniform(-2, 66, 300)) * signs
    ends = [0.0, -0.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 2.0**31, 2.0**63, -(2.0**63), 2.0**64, 1e30, 1e-40]
    x = np.array([*ends, *drawn], np.float32)
    text = f"input a: FP32[{len(x)}]\no: {name}[i<{len(x)}] = cast(a[i], {name})\noutput o"
    want = [truncated(float(v), name) for v in x]
    assert run(text, a=x)[1].outputs["o"].tolist() == want


def nearest(value: int) -> int:
    """The nearest number of 24 bits, ties to even."""
    size = abs(value)
    drop = max(0, size.bit_length() - 24)
    kept, rest = size >> drop, size & ((1 << drop) - 1)
    half = 1 << (drop - 1) if drop else 0
    kept += drop > 0 and (rest > half or (rest == half and kept % 2 == 1))
    return (kept << drop) * (-1 if value < 0 else 1)


def truncated(value: float, name: str) -> int:
    top = 2.0**63 if name == "S64" or value < 0 else 2.0**64
    return wrapped(int(value), name) if abs(value) < top else 0


@pytest.mark.parametrize("to", ["S8", "U8", "S16", "U16", "S32", "U32", "S64", "U64"])
def test_casts_of_all_integers(to: str) -> None:
    bits = int(to[1:])
    for name in TYPES:
        a = numbers(name)
        text = f"input a: {name}[{len(a)}]\no: {to}[i<{len(a)}] = cast(a[i], {to})\n"
        text += f"r: {name}[i<{len(a)}] = cast(o[i], {name})\noutput o\noutput r"
        got = run(text, a=np.array(a, TYPES[name]))[1].outputs
        want = [x % 2**bits - (2**bits if to[0] == "S" and x % 2**bits >> (bits - 1) else 0) for x in a]
        assert got["o"].tolist() == want
        assert got["r"].tolist() == [wrapped(x, name) for x in want]


def rotated(x: int, n: int) -> int:
    return (x << n | x >> (32 - n)) & 0xFFFFFFFF


def threefry(counter: int, key: int) -> int:
    """Threefry-2x32 of 20 rounds (Salmon et al.), keys in tinygrad's order of halves."""
    x, y, k = counter & 0xFFFFFFFF, counter >> 32, (key & 0xFFFFFFFF, key >> 32)
    keys = (*k, k[0] ^ k[1] ^ 0x1BD11BDA)
    x, y = (x + keys[0]) % 2**32, (y + keys[1]) % 2**32
    for block in range(5):
        for n in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            x = (x + y) % 2**32
            y = rotated(y, n) ^ x
        x = (x + keys[(block + 1) % 3]) % 2**32
        y = (y + keys[(block + 2) % 3] + block + 1) % 2**32
    return y << 32 | x


def test_threefry() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 2**64, (2, 40), dtype=np.uint64)
    text = "input a: U64[40]\ninput b: U64[40]\no: U64[i<40] = threefry(a[i], b[i])\noutput o"
    ran = run(text, a=a, b=b)[1]
    assert ran.outputs["o"].tolist() == [threefry(x, y) for x, y in zip(a.tolist(), b.tolist())]
    # The known answer of Random123 for a counter and a key of nothing.
    ran = run(text, a=np.zeros(40, np.uint64), b=np.zeros(40, np.uint64))[1]
    assert ran.outputs["o"][0] == 0x99BA4EFE << 32 | 0x6B200159


HALVES = "shl(cast({}, U64), cast(32, U64)) | cast({}, U64)"
RANDOM = f"""
input seed: U32[2]
input counter: U32[2]
v0: U64[] = threefry({HALVES.format("counter[1]", "counter[0]")}, {HALVES.format("seed[1]", "seed[0]")})
k: U64[] = {HALVES.format("cast(shr(v0[()], cast(32, U64)), U32)", "cast(v0[()], U32)")}
v1: U64[r<15] = threefry({HALVES.format("iota(r % 8 + 8)", "iota(r % 8)")}, k[()])
w: U32[r<15] = where(~(iota(r // 8) == 0), cast(shr(v1[r], cast(32, U64)), U32), cast(v1[r], U32))
o: FP32[r<15] = bits(shr(w[r], cast(9, U32)) | cast(1065353216, U32), U32, FP32) + -1.0
output o
"""


def test_random_numbers_as_tinygrad_writes_them() -> None:
    _, ran = run(RANDOM, seed=np.array([12345, 0xDEADBEEF], np.uint32), counter=np.array([7, 3], np.uint32))
    key = threefry(3 << 32 | 7, 0xDEADBEEF << 32 | 12345)
    words = [threefry((r % 8 + 8) << 32 | r % 8, key) for r in range(15)]
    parts = [w >> 32 if r >= 8 else w & 0xFFFFFFFF for r, w in enumerate(words)]
    want = np.array([p >> 9 | 0x3F800000 for p in parts], np.uint32).view(np.float32) - np.float32(1)
    assert ran.outputs["o"].tolist() == want.tolist()


def tiles_in(plan: Plan) -> list[int]:
    steps = [step for step in plan.steps if isinstance(step, Stage)]
    return [len(program.data) for step in steps for unit in step.units for program in unit.programs]


def test_numbers_that_fit_32_bits_are_one_word_also_in_a_later_stage() -> None:
    """Places are S64: computed, stored and read again as one tile, not two."""
    text = """
input a: S16[8]
p: S64[i<8] = cast(a[i], S64) * cast(3, S64) + cast(iota(i), S64)
q: S64[i<8] = p[7 - i] + p[i]
output p
output q
"""
    plan = compile_graph(graph.parse(text))
    a = np.array([1, -2, 3, 32767, -32768, 0, 7, 9], np.int16)
    ran = plan.run({"a": a})
    want = a.astype(np.int64) * 3 + np.arange(8)
    assert ran.outputs["p"].tolist() == want.tolist()
    assert ran.outputs["q"].tolist() == (want[::-1] + want).tolist()
    assert max(tiles_in(plan)) <= 3


def test_wide_values_between_stages() -> None:
    text = """
input a: S32[5]
p: S64[i<5] = cast(a[i], S64) * cast(3000000000, S64)
q: S64[i<5] = shr(p[4 - i], cast(2, S64))
o: S32[i<5] = cast(q[4 - i], S32)
output o
output p
"""
    a: NDArray[np.int32] = np.array([1, 2, -3, 2**31 - 1, -(2**31)], np.int32)
    got = run(text, a=a)[1].outputs
    want = [x * 3000000000 for x in a.tolist()]
    assert got["p"].tolist() == want
    assert got["o"].tolist() == [((x >> 2) + 2**31) % 2**32 - 2**31 for x in want]
