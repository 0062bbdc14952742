"""Signs, differences of truth and saturated sums that a graph spells with several operations: bits and cycles."""

from __future__ import annotations

import numpy as np

from kohakuaccel import graph
from tinytpu.lower import compile_graph
from tinytpu.lower.stage import Stage
from tinytpu_rig.lowering import check

ENDS = np.array([-(2**31), -(2**31) + 1, -1000, -1, 0, 1, 7, 2**31 - 1], np.int64)
A, B = (pair.astype(np.int32) for pair in (np.repeat(ENDS, 8), np.tile(ENDS, 8)))
CLAMP = "cast(min(max({x}, cast(-2147483648, S64)), cast(2147483647, S64)), S32)"
WIDE = "cast(a[i], S64) {op} cast(b[i], S64)"
CASES = {
    "where(~(a[i] == cast(0, S32)), where(a[i] < cast(0, S32), cast(-1, S32), cast(1, S32)), cast(0, S32))": 83,
    "a[i] * where(a[i] == cast(0, S32), cast(0, S32), where(a[i] < cast(0, S32), cast(-1, S32), cast(1, S32)))": 79,
    CLAMP.replace("{x}", WIDE.replace("{op}", "+")): 111,
    CLAMP.replace("{x}", WIDE.replace("{op}", "-")): 111,
    "cast(min(abs(cast(a[i], S64) - cast(b[i], S64)), cast(2147483647, S64)), S32)": 111,
    "cast(~(a[i] == b[i]), S32)": 111,
    "xor(max(xor(a[i], cast(-1, S32)), xor(b[i], cast(-1, S32))), cast(-1, S32))": 111,
    "a[i] + b[i] * cast(-1, S32)": 111,
}
"""Bodies, and the cycles of 64 elements: as many as of one instruction each."""


def test_words_of_32_bits() -> None:
    for body, cycles in CASES.items():
        text = f"input a: S32[64]\ninput b: S32[64]\no: S32[i<64] = {body}\noutput o"
        check(text, a=A, b=B)
        (step,) = compile_graph(graph.parse(text)).steps
        assert isinstance(step, Stage)
        assert (body, step.cycles) == (body, cycles)


def test_what_is_not_one_instruction_is_computed() -> None:
    """Other bounds, words that wrap before they are cut, comparisons of one number with another's sign."""
    for body in (
        CLAMP.replace("{x}", WIDE.replace("{op}", "+")).replace("-2147483648", "-2147483647"),
        "min(max(a[i] + b[i], cast(-2147483648, S32)), cast(2147483647, S32))",
        "where(a[i] == cast(0, S32), cast(0, S32), where(b[i] < cast(0, S32), cast(-1, S32), cast(1, S32)))",
        "where(a[i] == cast(0, S32), cast(1, S32), where(a[i] < cast(0, S32), cast(-1, S32), cast(1, S32)))",
        "cast(where(b[i] == cast(1, S32), cast(0, S8), cast(a[i], S8)), S32)",
    ):
        check(f"input a: S32[64]\ninput b: S32[64]\no: S32[i<64] = {body}\noutput o", a=A, b=B)


def test_signs_of_reals() -> None:
    """Zeros have none, a NaN of either sign is not negative."""
    bits = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001], np.uint32).view(np.float32)
    x = np.concatenate([np.array([0.0, -0.0, 1e-45, -1e-45, 3, -3, np.inf, -np.inf], np.float32), bits])
    text = "input a: FP32[12]\no: FP32[i<12] = where(~(a[i] == 0.0), where(a[i] < 0.0, -1.0, 1.0), 0.0)\noutput o"
    check(text, a=x)
    (step,) = compile_graph(graph.parse(text)).steps
    assert isinstance(step, Stage)
    assert step.cycles == 38


def test_rotations() -> None:
    """Of unsigned words by places that make 32; signed ones and others are shifted and put together."""
    rng = np.random.default_rng(2)
    a = rng.integers(0, 1 << 32, 64).astype(np.uint32)
    for up, down in ((1, 31), (13, 19), (31, 1), (13, 18)):
        for body in (
            f"shl(a[i], cast({up}, F)) | shr(a[i], cast({down}, F))",
            f"shr(a[i], cast({down}, F)) + a[i] * cast({1 << up}, F)",
            f"xor(shr(a[i], cast({down}, F)), shl(a[i], cast({up}, F)))",
        ):
            for name in ("U32", "S32"):
                text = f"input a: F[64]\no: F[i<64] = {body}\noutput o".replace("F", name)
                check(text, a=a if name == "U32" else a.view(np.int32))
                (step,) = compile_graph(graph.parse(text)).steps
                assert isinstance(step, Stage)
                assert (step.cycles == 87) == (name == "U32" and up + down == 32)
    text = "input a: U32[16]\no: U32[i<16] = neg(a[i]) | shr(a[i], cast(4, U32))\noutput o"
    check(text, a=a[:16])
