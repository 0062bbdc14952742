"""Compiled float32 <-> FP16 against numpy's conversion, at every half, every tie and millions of patterns."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.numerics.halves import fp16_from_fp32


def check(patterns: np.ndarray) -> None:
    got = np.empty(len(patterns), np.uint16)
    fp16_from_fp32(patterns, got)
    with np.errstate(all="ignore"):
        want = patterns.view(np.float32).astype(np.float16).view(np.uint16)
    nan = np.isnan(patterns.view(np.float32))
    assert np.array_equal(got[~nan], want[~nan])
    assert np.all((got[nan] & 0x7FFF) == 0x7E00)
    assert np.array_equal(got[nan] >> 15, patterns[nan] >> 31)


def test_every_half_and_its_neighbours() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    for step in range(-2, 3):
        check((halves + np.uint32(step & 0xFFFFFFFF)).astype(np.uint32))


def test_every_tie_between_halves() -> None:
    codes = np.arange(0x7C00, dtype=np.uint16)
    low = codes.view(np.float16).astype(np.float64)
    high = np.append(low[1:], 65536.0)
    ties = ((low + high) / 2).astype(np.float32).view(np.uint32)
    for step in (-1, 0, 1):
        near = (ties.astype(np.int64) + step).clip(0).astype(np.uint32)
        check(near)
        check(near | np.uint32(0x80000000))


def test_random_patterns() -> None:
    check(np.random.default_rng(0).integers(0, 1 << 32, 300_000, np.uint32))


@pytest.mark.slow
def test_every_61st_of_all_patterns() -> None:
    for start in range(16):
        check(np.arange(start << 28, (start + 1) << 28, 61, dtype=np.int64).astype(np.uint32))
