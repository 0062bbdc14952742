"""The MXFP7 quantiser against the five steps of datasheet 2.2 in plain integers, and the format around it.

A block's result depends on its peak (through the scale) and, element by element, on the scale. So all peaks,
and all elements under every scale, are everything there is.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kohakuaccel.diagnostics import DefinitionError, Refusal, Unsupported
from kohakuaccel.numerics import E5M3, FP16, MXFP7, BlockFormat, IntFormat, Tally, kernels

RECIPROCALS = [4096, 3641, 3277, 2979, 2731, 2520, 2341, 2185]


def reference_scale(peak: int) -> tuple[int, int]:
    """(es, m8) of a block whose largest magnitude is `peak` (15 bits)."""
    fraction, exponent = peak & 1023, peak >> 10
    sig, e = (fraction, 1) if exponent == 0 else (1024 + fraction, exponent)
    if sig == 0:
        return 0, 8
    while sig < 1024:
        sig, e = 2 * sig, e - 1
    c = (sig + 125) // 126
    m8, es = {16: (8, e - 20), 17: (9, e - 20)}.get(c, (c, e - 21))
    return max(-20, min(11, es)), m8


def reference_level(half: int, es: int, m8: int) -> int:
    fraction, exponent = half & 1023, half >> 10 & 31
    sig, e = (fraction, 1) if exponent == 0 else (1024 + fraction, exponent)
    product, shift = sig * RECIPROCALS[m8 - 8], 37 + es - e
    level = min(63, (product >> shift) + (product >> (shift - 1) & 1))
    return -level if half >> 15 else level


def reference_block(halves: list[int]) -> tuple[list[int], int, int]:
    es, m8 = reference_scale(max(half & 0x7FFF for half in halves))
    nonfinite = sum(half >> 10 & 31 == 31 for half in halves)
    return [reference_level(half, es, m8) for half in halves], (es + 20) << 3 | m8 - 8, nonfinite


def quantise(half: NDArray[np.uint16]) -> tuple[NDArray[np.int8], NDArray[np.uint8], int]:
    q = np.full(half.shape, 99, np.int8)
    scale = np.full(half.shape[0], 99, np.uint8)
    return q, scale, kernels.mxfp7_quantise(half, q, scale)


def agree(half: NDArray[np.uint16]) -> None:
    q, scale, nonfinite = quantise(half)
    total = 0
    for row, levels, byte in zip(half.tolist(), q.tolist(), scale.tolist()):
        wanted = reference_block(row)
        assert (levels, byte) == wanted[:2], [hex(h) for h in row]
        total += wanted[2]
    assert nonfinite == total


def test_every_peak() -> None:
    rng = np.random.default_rng(0)
    peaks = np.arange(0x8000)
    half = np.zeros((peaks.size, 32), np.uint16)
    half[:, 5] = peaks
    half[:, 17] = peaks | 0x8000
    # One element far below, one a step below: the scale must come from the peak alone.
    half[:, 31] = rng.integers(0, peaks + 1)
    half[:, 30] = np.maximum(peaks - 1, 0)
    q, scale, nonfinite = quantise(half)
    for peak, byte, row, levels in zip(peaks.tolist(), scale.tolist(), half.tolist(), q.tolist()):
        es, m8 = reference_scale(peak)
        assert byte == (es + 20) << 3 | m8 - 8, hex(peak)
        for k in (5, 17, 30, 31):
            assert levels[k] == reference_level(row[k], es, m8), (hex(peak), hex(row[k]))
        assert not any(levels[:5] + levels[6:17] + levels[18:30])
    assert nonfinite == np.count_nonzero((half & 0x7C00) == 0x7C00)


def test_every_element_under_every_scale() -> None:
    scales: dict[tuple[int, int], int] = {}
    for peak in range(1, 0x8000):
        scales[reference_scale(peak)] = peak
    assert len(scales) == 31 * 8 + 2  # es -20..10 with every m8, and 8 and 9 of es 11
    for (es, m8), peak in scales.items():
        elements = np.arange(peak + 1)
        padded = np.zeros(-(-elements.size // 31) * 31, np.int64)
        padded[: elements.size] = elements
        half = np.full((padded.size // 31, 32), peak, np.uint16)
        half[:, 1:] = padded.reshape(-1, 31)
        half[::2] |= 0x8000
        q, scale, _ = quantise(half)
        assert (scale == ((es + 20) << 3 | m8 - 8)).all()
        exponent = padded >> 10
        sig = np.where(exponent == 0, padded, 1024 + (padded & 1023))
        shift = 37 + es - np.maximum(exponent, 1)
        product = sig * RECIPROCALS[m8 - 8]
        level = np.minimum(63, (product >> shift) + (product >> (shift - 1) & 1)).reshape(-1, 31)
        level[::2] *= -1
        np.testing.assert_array_equal(q[:, 1:], level)


def random_blocks(seed: int, n: int) -> NDArray[np.uint16]:
    rng = np.random.default_rng(seed)
    anything = rng.integers(0, 65536, (n, 32))
    finite = np.where((anything & 0x7C00) == 0x7C00, anything & 0x83FF, anything)
    normal = rng.normal(size=(n, 32)).astype(np.float16).view(np.uint16)
    tiny = rng.integers(0, 0x0800, (n, 32)) | rng.integers(0, 2, (n, 32)) << 15
    close = (rng.integers(0, 0x7800, (n, 1)) + rng.integers(0, 0x800, (n, 32))) & 0x7BFF
    return np.concatenate([anything, finite, normal, tiny, close]).astype(np.uint16)


def test_random_blocks() -> None:
    agree(random_blocks(1, 300))


@pytest.mark.slow
def test_many_random_blocks() -> None:
    agree(random_blocks(2, 15_000))


def test_ties_go_away_from_zero() -> None:
    # Peak 63 has scale 1: every k + 1/2 below is a tie, exact in the integer rule.
    row = np.zeros(32, np.float16)
    row[:5] = [63, 0.5, -0.5, 1.5, -61.5]
    blocks = MXFP7.quantise(row)
    assert E5M3.decode(blocks.scale).tolist() == [1.0]
    assert blocks.q[:5].tolist() == [63, 1, -1, 2, -62]


@pytest.mark.parametrize(("shape", "axis"), [((64,), 0), ((3, 96), -1), ((96, 5), 0), ((2, 32, 7), 1), ((0, 32), 1)])
def test_any_axis(shape: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=shape).astype(np.float16)
    blocks = MXFP7.quantise(x, axis)
    assert blocks.q.shape == shape
    rows = np.moveaxis(x, axis, -1).reshape(-1, 32)
    q, scale, _ = quantise(np.ascontiguousarray(rows).view(np.uint16))
    np.testing.assert_array_equal(np.moveaxis(blocks.q, axis, -1).reshape(-1, 32), q)
    np.testing.assert_array_equal(np.moveaxis(blocks.scale, axis, -1).reshape(-1), scale)
    values = MXFP7.dequantise(blocks)
    expected = q * E5M3.decode(scale)[:, None]
    np.testing.assert_array_equal(np.moveaxis(values, axis, -1).reshape(-1, 32), expected)


def test_strided_and_reversed_input() -> None:
    x = np.arange(128, dtype=np.float16)[::-2]
    np.testing.assert_array_equal(MXFP7.quantise(x).q, MXFP7.quantise(x.copy()).q)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 0x7BFF), min_size=1, max_size=32), st.integers(0, 2**32 - 1))
def test_error_is_half_a_step_and_the_peak_fits(magnitudes: list[int], seed: int) -> None:
    signs = random.Random(seed)
    half = np.zeros(32, np.uint16)
    half[: len(magnitudes)] = [m | signs.getrandbits(1) << 15 for m in magnitudes]
    x = half.view(np.float16)
    blocks = MXFP7.quantise(x)
    step = float(E5M3.decode(blocks.scale)[0])
    error = np.abs(MXFP7.dequantise(blocks) - x.astype(np.float64))
    # The reciprocals are rounded to integers: at most 63 * (2520 * 13 / 2^15 - 1) of a step off at the top.
    assert error.max() <= step * (0.5 + 63 * abs(2520 * 13 / 2**15 - 1))
    assert step == MXFP7.ulp(float(np.abs(x).max()))
    np.testing.assert_array_equal(MXFP7.quantise(-x).q, -blocks.q)


def test_numbers_of_the_format() -> None:
    assert (MXFP7.max, MXFP7.smallest) == (63 * 2**11 * 15 / 8, 2.0**-20)
    assert not FP16.contains_range_of(MXFP7)
    assert MXFP7.is_exact_from(MXFP7)
    assert not MXFP7.is_exact_from(FP16)
    assert "share one scale" in MXFP7.obstacles(FP16)[-1]


def test_refusals() -> None:
    with pytest.raises(Unsupported, match=r"MXFP7\.quantise: the quantiser reads FP16; got float32\. Round with"):
        MXFP7.quantise(np.zeros(32, np.float32))  # pyright: ignore[reportArgumentType] - the refusal under test
    with pytest.raises(Refusal, match=r"axis 0.*multiple of 32; got 33\. Pad with zeros"):
        MXFP7.quantise(np.zeros((33, 2), np.float16), 0)
    with pytest.raises(Refusal, match=r"the axis exists; got 2; the limit is 2 dimensions"):
        MXFP7.quantise(np.zeros((32, 32), np.float16), 2)
    x = np.zeros((2, 32), np.float16)
    x[1, 4] = np.nan
    with pytest.raises(Refusal, match=r"element \(1, 4\): block elements are finite \(1 of 64 are not\); got nan"):
        MXFP7.quantise(x)
    tally = Tally()
    assert MXFP7.quantise(x, tally=tally).scale[1] == 0xF5
    assert tally.nan == 1
    with pytest.raises(DefinitionError, match="a scale is positive"):
        BlockFormat("X", MXFP7.element, 32, "K", FP16, "peak-ceil")
    with pytest.raises(Unsupported, match="compiled for 32 int7"):
        BlockFormat("X", IntFormat("INT8", 8), 32, "K", E5M3, "peak-ceil").quantise(np.zeros(32, np.float16))
    with pytest.raises(Refusal, match="one block at a time; got 33"):
        MXFP7.explain(np.zeros(33))


def test_explain_shows_scale_and_levels() -> None:
    text = MXFP7.explain([1.0, -1.0, 0.5, 0.1])
    assert "scale 71 = 0.017578125 (peak-ceil)" in text
    assert "0.5 -> 28 = 0.4921875, error -0.0078125" in text
