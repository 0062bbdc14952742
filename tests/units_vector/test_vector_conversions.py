"""FP16, FP32 and E8M15 through VLD, VST and VCVT (datasheet 2.8): every half, and what saturates."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from units_vector import exact
from units_vector.rig import Codes, Core

HALVES = np.arange(1 << 16, dtype=np.uint16)


def load(core: Core, halves: np.ndarray) -> Codes:
    """VLD FP16 of any number of halves (a multiple of 128)."""
    core.desc(0, 8, (1, 8))
    core.write("VLD v5,A0+2 FP16\nVHALT")
    out = np.zeros(len(halves), np.uint32)
    for i in range(0, len(halves), 128):
        core.put(10, halves[i : i + 128])
        assert core.step(3) == 0
        out[i : i + 128] = core.v(5)
    return out


def store(core: Core, codes: Codes, dtype: str) -> np.ndarray:
    """VST of any number of codes (a multiple of 128)."""
    core.desc(0, 0, (1 if dtype == "FP16" else 2, 8))
    core.write(f"VST v5,A0+0 {dtype}\nVHALT")
    parts: list[np.ndarray] = []
    for i in range(0, len(codes), 128):
        core.set_v(5, codes[i : i + 128])
        assert core.step(3) == 0
        parts.append((core.halves(0, 8) if dtype == "FP16" else core.singles(0, 16)).copy())
    return np.concatenate(parts)


def test_every_half_loads(core: Core) -> None:
    got = load(core, HALVES)
    np.testing.assert_array_equal(got, [exact.half_to_e8m15(h) for h in range(1 << 16)])
    for half, code in {0x0001: 0x338000, 0x83FF: 0xB87FC0, 0xFC01: 0xFF8020}.items():
        assert int(got[half]) == code


def test_every_half_survives_a_round_trip(core: Core) -> None:
    """All but signalling NaNs, which come back quiet, their payload kept."""
    codes = load(core, HALVES)
    quiet = np.where((HALVES & 0x7C00 == 0x7C00) & (HALVES & 0x3FF != 0), HALVES | 0x200, HALVES)
    np.testing.assert_array_equal(store(core, codes, "FP16"), quiet)
    assert int(core.vc.saturated[0]) == 0


def every_rounding() -> Codes:
    """Each half's E8M15 code, the midpoint above it, and the neighbours of both; then the edges."""
    rng = Random(1)
    codes: list[int] = []
    for half in range(0, 1 << 16, 7):
        code = exact.half_to_e8m15(half)
        codes += [code, code + 16, code + 15, code + 17, code + 1]
    for exponent in range(95, 118):
        codes += [exponent << 15 | m for m in (0, 1, 0x4000, 0x7FFF, rng.getrandbits(15))]
    codes += [0x477FDF, 0x478000, 0x477FE0, 0x477FDE, 0x3F8010, 0x3F8030, 0x388000, 0x337FFF, 0x330000]
    codes += [0x330001, 0xFF8123]
    codes += [c ^ 0x800000 for c in codes] + exact.SPECIAL
    codes += [0] * (-len(codes) % 128)
    return np.array([c & 0xFFFFFF for c in codes], np.uint32)


def test_stores_round_and_count(core: Core) -> None:
    codes = every_rounding()
    want = [exact.e8m15_to_half(int(c)) for c in codes]
    np.testing.assert_array_equal(store(core, codes, "FP16"), [h for h, _ in want])
    assert int(core.vc.saturated[0]) == sum(n for _, n in want) > 0
    table = {0x477FDF: 0x7BFF, 0x478000: 0x7BFF, 0x3F8010: 0x3C00, 0x3F8030: 0x3C02, 0x388000: 0x0400, 0x337FFF: 0x0001,
             0x330000: 0x0000, 0xFF8123: 0xFE09}  # fmt: skip
    for code, half in table.items():
        assert exact.e8m15_to_half(code)[0] == half, hex(code)


def test_saturation_is_counted_from_65504(core: Core) -> None:
    """477FE0 is 65504; 477FE1 rounds back to it but is larger. Infinity is stored, not saturated."""
    for code, count in {0x477FDF: 0, 0x477FE0: 0, 0x477FE1: 16, 0x478000: 16, 0x7F8000: 0, 0x7FC000: 0}.items():
        before = int(core.vc.saturated[0])
        core.set_v(5, [code] * 16)
        core.desc(0, 0, (1, 8))
        core.ok("VSETI S0,0x000010\nVSETVL S0\nVST v5,A0+0 FP16")
        assert int(core.vc.saturated[0]) - before == count, hex(code)


def test_singles_load(core: Core) -> None:
    rng = Random(2)
    words = [0x3F800080, 0x3F800180, 0x7F7FFFFF, 0x007FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF, 0x80000001]
    words += [rng.getrandbits(32) for _ in range(5000)]
    words += [rng.getrandbits(24) << 8 | rng.choice([0x7F, 0x80, 0x81, 0xFF]) for _ in range(5000)]
    words += [0] * (-len(words) % 128)
    core.desc(0, 3, (2, 8))
    core.write("VLD v5,A0+1 FP32\nVHALT")
    for i in range(0, len(words), 128):
        core.put_singles(4, np.array(words[i : i + 128], np.uint32))
        assert core.step(3) == 0
        np.testing.assert_array_equal(core.v(5), [exact.from_fp32(w) for w in words[i : i + 128]])
    for word, code in {0x3F800080: 0x3F8000, 0x3F800180: 0x3F8002, 0x7F7FFFFF: 0x7F8000, 0x007FFFFF: 0}.items():
        assert exact.from_fp32(word) == code


def test_singles_store(core: Core) -> None:
    codes = np.array(([*exact.SPECIAL, *range(0, 1 << 24, 99991)] * 2)[:384], np.uint32)
    np.testing.assert_array_equal(store(core, codes, "FP32"), [exact.to_fp32(int(c)) for c in codes])


@pytest.mark.parametrize("vl", [1, 16, 17, 100, 128])
def test_vcvt_rounds_whole_chunks(core: Core, vl: int) -> None:
    rng = Random(vl)
    codes = [rng.choice([0x330001, 0x478000, exact.hard(rng), 0xFF8123, 0x3F8010]) for _ in range(128)]
    old = [0x123456] * 128
    core.set_v(1, codes)
    core.set_v(2, old)
    core.ok(f"VSETI S0,{vl}\nVSETVL S0\nVCVT v2,v1 FP16")
    end = -(-vl // 16) * 16
    want = [exact.e8m15_to_half(c) for c in codes[:end]]
    np.testing.assert_array_equal(core.v(2)[:end], [exact.half_to_e8m15(h) for h, _ in want])
    np.testing.assert_array_equal(core.v(2)[end:], old[end:])
    assert int(core.vc.saturated[0]) == sum(n for _, n in want)
    core.ok("VCVT v3,v1 FP32")
    np.testing.assert_array_equal(core.v(3)[:end], codes[:end])


def test_payloads_survive_moves_until_an_operation(core: Core) -> None:
    """VLD, VSHUF and VBCAST move words; VMOV is an operation and writes the one NaN."""
    core.put(0, np.full(16, 0xFC01, np.uint16))
    core.desc(0, 0, (1, 8))
    core.ok(
        "VSETI S0,16\nVSETVL S0\nVLD v1,A0+0 FP16\nVSETI S1,3\nVSHUF v2,v1,S1\nVBCAST S2,v2\nVBCAST v3,S2\nVMOV v4,v3"
    )
    assert [int(core.v(i)[0]) for i in (1, 2, 3, 4)] == [0xFF8020, 0xFF8020, 0xFF8020, 0x7FC000]
    assert core.s(2) == 0xFF8020


def test_words_with_exponent_0_travel_and_read_as_zero(core: Core) -> None:
    """An integer goes S -> V -> S unharmed; as an operand, wherever it came from, it is a signed zero."""
    core.set_v(0, [0x3F8000] * 128)
    core.ok(
        "VSETI S1,0x800011\nVBCAST v1,S1\nVSETI S2,5\nVSHUF v2,v1,S2\nVCVT v3,v2 FP32\nVBCAST S3,v3\n"
        "VADD v4,v1,v1\nVADD v5,v0,v3\nVSEL v6,v0,v1,v2\nVCMPEQ P0,v3,K0\nVINV v7,v2"
    )
    assert core.s(3) == 0x800011
    assert [int(core.v(i)[9]) for i in (2, 4, 5, 6, 7)] == [0x800011, 0x800000, 0x3F8000, 0x800000, 0xFF8000]
    assert core.p(0).all()
