"""exp2, log2, inv, rsqrt: the datasheet's table checks, every mantissa, every fraction, the error table (2.9)."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakutpu.units import seeds
from units_vector import exact
from units_vector.rig import Codes, Core

# The datasheet prints ...7731 for inv; its segments and sums are those of the table whose CRC-32 ends in 0.
TABLES = [
    ("exp2", seeds.EXP2, 32, 0xE48CA80B, (0, 363393, 63660), (1003638, 711212, 124592), (14331986, 16595431, 2907233)),
    ("log2", seeds.LOG2, 32, 0x6BE73802, (0, 756254, -183340), (1024752, 384179, -48023),
     (18173798, 16966111, -3025284)),
    ("inv", seeds.INV, 32, 0xDC9C7730, (1048575, -524013, 250275), (532610, -135247, 33550),
     (23522338, -8584881, 3145129)),
    ("rsqrt", seeds.RSQRT, 64, 0xCC6C97AF, (1048576, -262057, 94579), (528433, -67097, 12532),
     (47716782, -8533051, 2314008)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "first", "rows", "crc", "head", "tail", "sums"), TABLES)
def test_tables(
    name: str,
    first: int,
    rows: int,
    crc: int,
    head: tuple[int, ...],
    tail: tuple[int, ...],
    sums: tuple[int, ...],
) -> None:
    table = seeds.TABLE[first : first + rows]
    assert seeds.crc(first, rows) == crc
    assert tuple(table[0]) == head
    assert tuple(table[-1]) == tail
    assert tuple(table.sum(axis=0)) == sums
    np.testing.assert_array_equal(table, exact.table(name))


DATASHEET = {
    "VEXP2": "3F0000->3FB505 BF0000->3F3505 3DCCCC->3F8930 358637->3F8000 42FFFA->7F7DEE 430000->7F8000 C2FD00->000000",
    "VLOG2": "404000->3FCAE0 412000->40549A 3F4000->BED480 3F8001->383800",
    "VINV": "404000->3EAAAB C0E000->BE1249 7E8000->008000 7F0000->000000",
    "VRSQRT": "400000->3F3505 404000->3F13CD 412000->3EA1E9 800000->7F8000",
}


@pytest.mark.parametrize("op", DATASHEET)
def test_datasheet_values(core: Core, op: str) -> None:
    pairs = [p.split("->") for p in DATASHEET[op].split()]
    got = core.apply(op, np.array([int(a, 16) for a, _ in pairs], np.uint32))
    assert [f"{int(g):06X}" for g in got] == [b for _, b in pairs]


def rnde(total: NDArray[np.int64], weight: NDArray[np.int64] | int) -> Codes:
    """Codes of total * 2^weight for arrays of integers, as exact.rnde does it for one."""
    size = np.abs(total)
    bits = np.zeros_like(size)
    for k in range(40):
        bits += size >> k > 0
    drop = np.maximum(bits - 16, 0)
    half = np.int64(1) << np.maximum(drop - 1, 0)
    q, rest = size >> drop, size & ((np.int64(1) << drop) - 1)
    q += (drop > 0) & ((rest > half) | ((rest == half) & (q & 1 == 1)))
    q <<= np.maximum(16 - bits, 0)
    carry = q == 1 << 16
    biased = bits + carry + weight + 126
    code = np.where(biased >= 255, 0x7F8000, np.where(biased <= 0, 0, biased << 15 | np.where(carry, 0, q & 0x7FFF)))
    code = np.where(total == 0, 0, code | np.where(total < 0, 0x800000, 0))
    return code.astype(np.uint32)


def f_of(first: int, row: NDArray[np.int64], u: NDArray[np.int64], one: bool) -> NDArray[np.int64]:
    """F of 2.9 in int64; `one`: forced to 2^20 instead of 0 at the start of the octave."""
    c0, c1, c2 = (seeds.TABLE[first + row, k] for k in range(3))
    h = (c2 * u + (c1 << 16) + 32768) >> 16
    f = (h * u + (c0 << 16) + 32768) >> 16
    return np.where((u == 0) & (row == 0), 1 << 20 if one else 0, f)


MANTISSAS = np.arange(1 << 15, dtype=np.int64)
EXPONENTS = [1, 2, 63, 125, 126, 127, 128, 129, 190, 252, 253, 254]


@pytest.mark.parametrize("e", EXPONENTS)
def test_every_mantissa(core: Core, e: int) -> None:
    """inv, log2 and rsqrt over all mantissas of an exponent; both octaves of rsqrt are among them."""
    x = (e << 15 | MANTISSAS).astype(np.uint32)
    row, u = MANTISSAS >> 10, (MANTISSAS & 1023) * 4
    want = {
        "VINV": rnde(f_of(seeds.INV, row, u, True), 107 - e),
        "VLOG2": rnde((np.int64(e - 127) << 20) + f_of(seeds.LOG2, row, u, False), -20),
        "VRSQRT": rnde(f_of(seeds.RSQRT, row + 32 * ((e - 127) % 2), u, True), -20 - (e - 127) // 2),
    }
    for op, codes in want.items():
        np.testing.assert_array_equal(core.apply(op, x), codes, f"{op} {e}")
    np.testing.assert_array_equal(core.apply("VINV", x | np.uint32(0x800000)), want["VINV"] | 0x800000)
    for i in range(0, 1 << 15, 4099):
        assert int(want["VLOG2"][i]) == exact.log2(int(x[i]))
        assert int(want["VRSQRT"][i]) == exact.rsqrt(int(x[i]))
        assert int(want["VINV"][i]) == exact.inv(int(x[i]))


def exp2_of(x: Codes) -> Codes:
    """exp2 of finite codes with |x| < 128, by the integer formula."""
    e, m = (x.astype(np.int64) >> 15) & 255, 0x8000 | (x.astype(np.int64) & 0x7FFF)
    shift = e - 142 + 17
    down = (m + (np.int64(1) << np.clip(-shift - 1, 0, 40))) >> np.clip(-shift, 0, 41)
    r = np.where(shift >= 0, m << np.maximum(shift, 0), down)
    r = np.where(shift < -40, 0, r)
    r = np.where(x >> 23, -r, r)
    f = r & 0x1FFFF
    return rnde((1 << 20) + f_of(seeds.EXP2, f >> 12, f & 4095, False), (r >> 17) - 20)


@pytest.mark.parametrize("e", [100, 109, 110, 115, 120, 124, 125, 126, 127, 130, 132, 133])
def test_exp2_every_mantissa(core: Core, e: int) -> None:
    for sign in (0, 0x800000):
        x = (sign | e << 15 | MANTISSAS).astype(np.uint32)
        want = exp2_of(x)
        np.testing.assert_array_equal(core.apply("VEXP2", x), want, f"{e}")
        for i in range(0, 1 << 15, 4099):
            assert int(want[i]) == exact.exp2(int(x[i]))


def test_exp2_every_fraction(core: Core) -> None:
    """All 131,072 fractions: R in [2^16, 2^17) has 17 bits and x 16, so those above 1 come with a whole part;
    negative arguments reach the rest. What is left over is unreachable by any argument."""
    seen = np.zeros(1 << 17, bool)
    for e in range(109, 134):
        for sign in (0, 0x800000):
            x = (sign | e << 15 | MANTISSAS).astype(np.uint32)
            r = np.rint(np.ldexp((0x8000 | MANTISSAS).astype(np.float64), e - 125) + 2.0**-30).astype(np.int64)
            seen[(-r if sign else r) & 0x1FFFF] = True
            np.testing.assert_array_equal(core.apply("VEXP2", x[::8]), exp2_of(x[::8]))
    assert seen.all()


def test_wide_and_special_arguments(core: Core) -> None:
    x = [0x42FFFF, 0x430000, 0x437FFF, 0x7F7FFF, 0x7F8000, 0xC2FFFF, 0xC30000, 0xC37FFF, 0xFF7FFF, 0xFF8000,
         0x000000, 0x800000, 0x000001, 0x7FC000, 0xFFC001, 0xC2FC00, 0xC2FBFF, 0xC2FC01]  # fmt: skip
    for op, f in {"VEXP2": exact.exp2, "VLOG2": exact.log2, "VINV": exact.inv, "VRSQRT": exact.rsqrt}.items():
        got = core.apply(op, np.array(x, np.uint32))
        assert [f"{int(g):06X}" for g in got] == [f"{f(c):06X}" for c in x], op


def real(codes: Codes) -> NDArray[np.float64]:
    return (codes << np.uint32(8)).view(np.float32).astype(np.float64)


def ulps(got: Codes, true: NDArray[np.float64]) -> NDArray[np.float64]:
    """Error in units of the result's last place."""
    _, e = np.frexp(np.abs(true))
    return np.abs(real(got) - true) / np.ldexp(1.0, e - 16)


def correctly_rounded(got: Codes, true: NDArray[np.float64]) -> float:
    m, e = np.frexp(true)
    return float(np.mean(np.ldexp(np.rint(np.ldexp(m, 16)), e - 16) == real(got)))


@pytest.mark.slow
def test_error_table(core: Core) -> None:
    """The datasheet's exhaustive error figures, no better and no worse."""
    one = (127 << 15 | MANTISSAS).astype(np.uint32)
    got, true = core.apply("VINV", one), 1.0 / real(one)
    assert f"{ulps(got, true).max():.3f}" == "0.591"
    assert f"{correctly_rounded(got, true):.3f}" == "0.966"
    two = np.concatenate([one, (128 << 15 | MANTISSAS).astype(np.uint32)])
    got, true = core.apply("VRSQRT", two), 1.0 / np.sqrt(real(two))
    assert f"{ulps(got, true).max():.3f}" == "0.567"
    assert f"{correctly_rounded(got, true):.3f}" == "0.969"


@pytest.mark.slow
def test_error_of_exp2(core: Core) -> None:
    """Every finite x with |x| < 128 whose exp2 is neither 1 by rounding nor below the normal numbers."""
    worst, above, right, count = 0.0, 0, 0.0, 0
    for e in range(1, 134):
        for sign in (0, 0x800000):
            x = (sign | e << 15 | MANTISSAS).astype(np.uint32)
            true = np.exp2(real(x))
            keep = true >= 2.0**-126
            got = core.apply("VEXP2", x)[keep]
            error = ulps(got, true[keep])
            worst = max(worst, float(error.max()))
            above += int((error > 0.700).sum())
            right += correctly_rounded(got, true[keep]) * keep.sum()
            count += int(keep.sum())
    assert f"{worst:.3f}" == "0.702"
    assert above == 6
    assert f"{right / count:.3f}" == "0.992"


@pytest.mark.slow
def test_error_of_log2(core: Core) -> None:
    worst = {1.0: 0.0, 0.5: 0.0, 0.25: 0.0, 0.125: 0.0}
    absolute = 0.0
    for e in range(1, 255):
        x = (e << 15 | MANTISSAS).astype(np.uint32)
        true = np.log2(real(x))
        got = core.apply("VLOG2", x)
        nonzero = true != 0
        error = np.where(nonzero, ulps(got, np.where(nonzero, true, 1.0)), 0.0)
        size = np.abs(true)
        for low in worst:
            inside = (size >= low) if low == 1.0 else (size >= low) & (size < 2 * low)
            worst[low] = max(worst[low], float(error[inside].max(initial=0.0)))
        small = nonzero & (size < 0.125)
        if small.any():
            _, exponent = np.frexp(np.abs(true[small]))
            slack = np.abs(real(got[small]) - true[small]) - np.ldexp(0.5, exponent - 16)
            absolute = max(absolute, float(slack.max()))
    assert {k: f"{v:.3f}" for k, v in worst.items()} == {1.0: "0.541", 0.5: "0.570", 0.25: "0.640", 0.125: "0.812"}
    assert absolute <= 2.0**-19.5
