"""Every example of datasheet 2.2, 2.5 and 2.8 through the compiled conversions."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.numerics import kernels

QUANTISER_TABLE = [
    ("3C00 BC00 3800 2E66 211F", 0x71, [57, -57, 28, 6, 1], 0),
    ("7BFF 3C00 6000 FBFF", 0xF1, [57, 0, 0, -57], 0),
    ("3F63 3C00", 0x78, [59, 32], 0),
    ("3FE1 3C00", 0x79, [56, 28], 0),
    ("03FF 0200 0001", 0x01, [57, 28, 0], 0),
    ("0001 8001", 0x01, [0, 0], 0),
    ("7C00 3C00 7A00", 0xF1, [57, 0, 43], 1),
    ("0000 8000", 0xA0, [0, 0], 0),
]


@pytest.mark.parametrize(("halves", "byte", "levels", "nonfinite"), QUANTISER_TABLE)
def test_quantiser_table(halves: str, byte: int, levels: list[int], nonfinite: int) -> None:
    half = np.zeros((1, 32), np.uint16)
    codes = [int(text, 16) for text in halves.split()]
    half[0, : len(codes)] = codes
    q = np.full((1, 32), 99, np.int8)
    scale = np.zeros(1, np.uint8)
    assert kernels.mxfp7_quantise(half, q, scale) == nonfinite
    assert scale[0] == byte
    assert q[0].tolist() == levels + [0] * (32 - len(levels))


def fp22_value(code: int) -> np.float32:
    exponent, mantissa = (code >> 14) & 0x7F, code & 0x3FFF
    size = 0.0 if exponent == 0 else (1 + mantissa / 2**14) * 2.0 ** (exponent - 63)
    return np.float32(-size if code >> 21 else size)


EMIT_TABLE = [
    (0x0FC008, 0x3C00, 0),
    (0x0FC018, 0x3C02, 0),
    (0x13BFEF, 0x7BFF, 0),
    (0x14C000, 0x7BFF, 1),
    (0x34C000, 0xFBFF, 1),
    (0x0BC000, 0x0100, 0),
    (0x095555, 0x0000, 0),
    (0x098000, 0x0000, 0),
    (0x29C000, 0x8001, 0),
    (0x298000, 0x8000, 0),
    (0x0BFFFF, 0x0200, 0),
    (0x000000, 0x0000, 0),
    (0x1FFFFF, 0x7BFF, 1),
]


@pytest.mark.parametrize(("code", "half", "saturated"), EMIT_TABLE)
def test_emit_table(code: int, half: int, saturated: int) -> None:
    out = np.zeros(1, np.uint16)
    assert kernels.emit_fp16(np.array([fp22_value(code)]), out) == saturated
    assert out[0] == half


@pytest.mark.parametrize(
    ("half", "code"),
    [(0x0001, 0x338000), (0x83FF, 0xB87FC0), (0xFC01, 0xFF8020), (0x7C00, 0x7F8000), (0x8000, 0x800000)],
)
def test_fp16_to_e8m15_table(half: int, code: int) -> None:
    out = np.zeros(1, np.uint32)
    kernels.e8m15_from_fp16(np.array([half], np.uint16), out)
    assert out[0] == code << 8


STORE_TABLE = [
    (0x477FDF, 0x7BFF, 0),
    (0x478000, 0x7BFF, 1),
    (0xC78000, 0xFBFF, 1),
    (0x3F8010, 0x3C00, 0),
    (0x3F8030, 0x3C02, 0),
    (0x388000, 0x0400, 0),
    (0x337FFF, 0x0001, 0),
    (0x330000, 0x0000, 0),
    (0xFF8123, 0xFE09, 0),
    (0x7F8000, 0x7C00, 0),
    (0xFF8000, 0xFC00, 0),
    (0x807FFF, 0x8000, 0),
]


@pytest.mark.parametrize(("code", "half", "saturated"), STORE_TABLE)
def test_e8m15_to_fp16_table(code: int, half: int, saturated: int) -> None:
    out = np.zeros(1, np.uint16)
    assert kernels.fp16_from_e8m15(np.array([code << 8], np.uint32), out) == saturated
    assert out[0] == half


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        (0x3F800080, 0x3F8000),
        (0x3F800180, 0x3F8002),
        (0x7F7FFFFF, 0x7F8000),
        (0x007FFFFF, 0x000000),
        (0x807FFFFF, 0x800000),
        (0x7F800001, 0x7FC000),
        (0xFFFFFFFF, 0xFFFFFF),
        (0xFFABCDEF, 0xFFEBCD),
    ],
)
def test_fp32_to_e8m15_table(pattern: int, code: int) -> None:
    out = np.zeros(1, np.uint32)
    kernels.e8m15_from_fp32(np.array([pattern], np.uint32), out)
    assert out[0] == code << 8


@pytest.mark.parametrize(
    ("code", "pattern"),
    [(0x3F8001, 0x3F800100), (0x807FFF, 0x80000000), (0x007FFF, 0), (0xFF8020, 0xFF802000)],
)
def test_e8m15_to_fp32_table(code: int, pattern: int) -> None:
    out = np.zeros(1, np.uint32)
    kernels.fp32_from_e8m15(np.array([code << 8], np.uint32), out)
    assert out[0] == pattern


@pytest.mark.parametrize(
    ("a", "b", "total"),
    [
        (0x0FC000, 0x0C4000, 0x0FC001),
        (0x0FC000, 0x2C0001, 0x0FBFFF),
        (0x140076, 0x37DC80, 0x37DC7F),
        (0x13D4DB, 0x33D4DB, 0x000000),
    ],
)
def test_rne_on_fp22_sums(a: int, b: int, total: int) -> None:
    # These sums are exact in float64, so one rounding is the rule of 2.4.
    exact = float(fp22_value(a)) + float(fp22_value(b))
    assert kernels.rne(exact, 15) == fp22_value(total)


def test_rne_passes_specials() -> None:
    assert kernels.rne(np.inf, 15) == np.inf
    assert np.signbit(kernels.rne(-0.0, 15))
    assert np.isnan(kernels.rne(np.array([-1], np.int64).view(np.float64)[0], 15))
    assert kernels.rne(1 + 2.0**-15, 15) == 1.0
    assert kernels.rne(1 + 3 * 2.0**-15, 15) == 1 + 2.0**-13
    assert kernels.rne(2 - 2.0**-15, 15) == 2.0
