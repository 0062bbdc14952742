"""The vector unit's operations against pins of the datasheet and against exact arithmetic (datasheet 4, 5, 6)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from tinytpu.isa import SXU, VPU
from tinytpu.machines import load
from tinytpu.units.vpu_float import floating
from tinytpu.units.vpu_int import integer
from tinytpu_rig import lanes, softfloat
from tinytpu_rig.build import one, patterns, run, signed, vpu, word
from tinytpu_rig.softfloat import WORD

GOLDEN = {
    0x00000000: "3F800000 C2FE0000 00000000 3F800000 FFC00000",
    0x80000000: "3F800000 C2FE0000 80000000 3F800000 FFC00000",
    0x3DCCCCCD: "3F89B899 C0528AC6 3DCC75C6 3F7EBACA 411FFFFF",
    0x3F000000: "3FB70164 BF800000 3EF57E5D 3F60CFBC 40000000",
    0xBF000000: "3F31FD37 BF800000 BEF57E5D 3F60CFBC C0000000",
    0x3F800000: "40000000 00000000 3F57707A 3F0A600B 3F800000",
    0x3FC00000: "40370164 3F1E809D 3F7F5925 3D90A220 3F2AAAAA",
    0x40400000: "41000000 3FCF404E 3E108238 BEEC69B8 3EAAAAAA",
    0x406CCCCD: "41517CD5 3FF1F934 BF07A7DD 3F948F64 3E8A60DD",
    0xC06CCCCD: "3D9BBEA9 3FF1F934 3F07A7DD 3F948F64 BE8A60DD",
    0xC0A00000: "3D000000 4015FE28 3F757723 413CADAB BE4CCCCD",
    0x41200000: "44800000 4055FE28 BF0B49C3 43A1546D 3DCCCCCD",
    0x40490FDB: "410DF3EB 3FD7A750 00000000 BE918E84 3EA2F982",
    0xC2C80000: "0D800000 40D5AD20 3F01A566 4A62552B BC23D70A",
    0x42FF0000: "7F370164 40DECCA1 3F770227 4B159B61 3C008080",
    0x43000000: "7F800000 40E00000 3F389DD1 4B17F7F2 3C000000",
    0xC2FD0000: "0058FE9C 40DE9496 BF3E05F1 4B10F767 BC01848D",
    0x4F32D05E: "00000000 41FC1C6A 00000000 7C10D0AB 2FB7407E",
    0x4F800000: "3F800000 42000000 00000000 7D1817B9 2F800000",
    0x7149F2CA: "00000000 42C761C0 FF800000 7F800000 0DA24260",
    0x7F800000: "7FC00000 43000000 7FC00000 7F800000 FF800000",
    0xFF800000: "7FC00000 43000000 7FC00000 7F800000 7F800000",
    0x7FC00000: "7FC00000 43009E81 7FC00000 7FC00000 FFC00000",
    0x7F800001: "7FC00001 43000000 7FC00001 7FC00001 FFC00001",
    0x00000001: "3F800000 C2FE0000 00000001 3F800000 FF800000",
    0x00800000: "3F800000 C2FC0000 00800000 3F800000 7E800000",
    0x7F7FFFFF: "00000000 42FFEE7D FF800000 7F800000 7FC00001",
}
SERIAL = (VPU.EXP2, VPU.LOG2, VPU.SIN, VPU.COS, VPU.FRECIP)


def fill(values: Sequence[int], size: int = 16) -> list[int]:
    return [*values, *[0] * (size - len(values))]


@pytest.mark.parametrize("number", range(5))
def test_golden_bits(number: int) -> None:
    inputs = list(GOLDEN)
    for at in range(0, len(inputs), 16):
        part = inputs[at : at + 16]
        want = [int(GOLDEN[x].split()[number], 16) for x in part]
        assert one(SERIAL[number], fill(part))[: len(part)] == want


PINS = [
    (VPU.PACKED_I8_ADD, 0x7F80FF01, 0x01FF0101, 0x7F800002),
    (VPU.PACKED_I8_SUB, 0x8000017F, 0x010180FF, 0x80FF7F7F),
    (VPU.PACKED_I8_MUL_LOW, 0x807F0503, 0x807FFB02, 0x0001E706),
    (VPU.PACKED_I8_MUL_HIGH, 0x807F0503, 0x807FFB02, 0x403FFF00),
    (VPU.PACKED_I8_CMPLT, 0x80000105, 0x7F000104, 0xFF000000),
    (VPU.PACKED_I8_CMPEQ, 0x80000105, 0x7F000104, 0x00FFFF00),
    (VPU.PACKED_I8_ABS_DIFF, 0x80000105, 0x7F000504, 0x7F000401),
    (VPU.PACKED_I8_NEG, 0x807FFF01, 0, 0x7F8101FF),
    (VPU.PACKED_I8_ABS, 0x807FFF01, 0, 0x7F7F0101),
    (VPU.PACKED_I8_RELU, 0x807FFF01, 0, 0x007F0001),
    (VPU.ROTL, 0x80000001, 1, 0x00000003),
    (VPU.ROTR, 0x80000001, 33, 0xC0000000),
    (VPU.SHL, 1, 33, 2),
    (VPU.SHR, WORD, 28, 15),
    (VPU.DIV, -7 & WORD, 2, -3 & WORD),
    (VPU.DIV, 7, 0, 0),
    (VPU.DIV, 1 << 31, WORD, 1 << 31),
    (VPU.BYTE_REVERSE, 0x01020304, 0, 0x04030201),
    (VPU.MAX_U32, WORD, 1, WORD),
    (VPU.SAT_SUB_I32, 1 << 31, 1, 1 << 31),
    (VPU.ABS_DIFF_I32, 1 << 31, 1, 0x7FFFFFFF),
    (VPU.I2F, 16777219, 0, 0x4B800001),
    (VPU.I2F, 2147483647, 0, 0x4EFFFFFF),
    (VPU.I2F, 1 << 31, 0, 0xCF000000),
    (VPU.F2I, 0x4F000000, 0, 1 << 31),
    (VPU.F2I, 0x4F800000, 0, 0),
    (VPU.F2I, 0x4F32D05E, 0, -1294967296 & WORD),
    (VPU.F2I, 0x7149F2CA, 0, -1624465408 & WORD),
    (VPU.F2I, 0x7F800000, 0, 0),
    (VPU.F2I, 0x7FC00000, 0, 0),
    (VPU.F2I, 0xBFFFFFFF, 0, -1 & WORD),
    (VPU.FADD, 0x3F800000, 0xBF800000, 0),
    (VPU.FADD, 0x80000000, 0x80000000, 0x80000000),
    (VPU.FADD, 0, 0x80000000, 0),
    (VPU.FADD, 0x7F800000, 0xFF800000, 0x7FC00000),
    (VPU.FMUL, 0, 0x7F800000, 0x7FC00000),
    (VPU.FADD, 0x7FC00005, 0xFF800007, 0xFFC00007),
    (VPU.FADD, 0xFF800005, 0x7F800007, 0xFFC00005),
    (VPU.FMUL, 0x7FC00005, 0xFFC00007, 0x7FC00005),
    (VPU.FSUB, 0x3F800000, 0x7FC00001, 0xFFC00001),
    (VPU.FMAX, 0x7FC00000, 0x3F800000, 0x3F800000),
    (VPU.FMAX, 0x3F800000, 0x7F800001, 0x7F800001),
    (VPU.FMIN, 0x80000000, 0x00000000, 0x80000000),
    (VPU.FCMPLT, 0x80000000, 0x00000001, 1),
    (VPU.FCMPLT, 0x7FC00000, 0x7F800000, 0),
    (VPU.FSIGN, 0x80000000, 0, 0),
    (VPU.FSIGN, 0xFFC00000, 0, 0xBF800000),
    (VPU.CLZ, 0, 0, 32),
    (VPU.CTZ, 0, 0, 32),
]


@pytest.mark.parametrize(("code", "a", "b", "want"), PINS)
def test_pins(code: VPU, a: int, b: int, want: int) -> None:
    assert one(code, [a] * 16, [b] * 16) == [want] * 16


def test_pins_of_pairs_and_orders() -> None:
    assert signed(one(VPU.IPAIR_ROTATE, fill([1, 2, 3, 4]), fill([3, 4, 5, 6])))[:4] == [-5, 10, -9, 38]
    turn = fill([0x3F60A940, 0x3EF57744] * 2)
    numbers = [0x3F800000, 0x40000000, 0x40400000, 0x40800000]
    assert one(VPU.PAIR_ROTATE, fill(numbers), turn)[:4] == [0xBDA67020, 0x400F0388, 0x3F370D38, 0x409E5AFD]
    big = patterns(np.array([1e8, 1, -1e8, 1], np.float32).view(np.int32))
    assert one(VPU.FSUM_REDUCE, fill(big))[0] == 0
    assert one(VPU.FSUM_REDUCE_COL, [x for b in big for x in (b, 0, 0, 0)])[0] == 0x3F800000
    assert one(VPU.FSUM_REDUCE_TILE, fill(big))[0] == 0x3F800000
    zeros = [0x80000000] * 16
    assert one(VPU.FSUM_REDUCE, zeros)[0] == one(VPU.FSUM_REDUCE_TILE, zeros)[0] == 0x80000000
    assert one(VPU.FSUM_REDUCE_COL, zeros)[0] == 0
    nan, one_, two, three = 0x7FC00000, 0x3F800000, 0x40000000, 0x40400000
    assert one(VPU.FMAX_REDUCE, fill([one_, two, three, nan]))[0] == nan
    assert one(VPU.FMAX_REDUCE, fill([three, two, nan, one_]))[0] == three
    assert one(VPU.FMAX_REDUCE_COL, [x for b in (three, two, nan, one_) for x in (b, 0, 0, 0)])[0] == one_


EDGES = [
    0, 1, 2, 5, 31, 32, 33, 127, 128, 255, 256, 0x7F, 0x80, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0x80000001,
    0xFFFFFFFF, 0x00400000, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F000000, 0x4B000000, 0x4B7FFFFF,
    0x4EFFFFFF, 0x4F000000, 0x7E800000, 0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000,
    0x7FFFFFFF, 0xFF800000, 0xFFC00001, 0x40490FDB, 0xC2FD0000, 0x42FE0000, 0x43000000,
]  # fmt: skip


def words(rng: random.Random, n: int) -> list[int]:
    return [rng.choice(EDGES) if rng.random() < 0.5 else rng.getrandbits(32) for _ in range(n)]


def compare(code: VPU, a: list[int], b: list[int], before: list[int], size: int) -> None:
    """One operation on the compiled unit and by exact arithmetic; all are patterns of a tile."""

    def tile(flat: list[int]) -> lanes.Tile:
        return [[softfloat.wrap(x) for x in flat[r * size : (r + 1) * size]] for r in range(size)]

    v = np.array([a, b, before], np.uint32).view(np.int32)
    missing = integer(v, v.view(np.uint32), v.view(np.int8), int(code), 0, 1, 2, size, size)
    assert missing == floating(v, v.view(np.float32), int(code), 0, 1, 2, size, size) ^ 1
    want = patterns(lanes.operate(int(code), tile(a), tile(b), tile(before)))
    got = patterns(v[2])
    wrong = [i for i in range(size * size) if got[i] != want[i]]
    assert not wrong, f"{code.name} lane {wrong[0]}: {a[wrong[0]]:08X} {b[wrong[0]]:08X} -> {got[wrong[0]]:08X}, "\
        f"not {want[wrong[0]]:08X}"  # fmt: skip


@pytest.mark.parametrize("code", VPU, ids=lambda c: c.name)
def test_every_operation(code: VPU) -> None:
    rng = random.Random(int(code))
    for size in (4, 4, 4, 4, 2, 6):
        compare(code, words(rng, size**2), words(rng, size**2), words(rng, size**2), size)


@pytest.mark.slow
@pytest.mark.parametrize("code", [c for c in VPU if VPU.FADD <= c <= VPU.FMUL or c in (*SERIAL, VPU.F2I, VPU.I2F)])
def test_floats_at_many_values(code: VPU) -> None:
    rng = random.Random(1000 + int(code))
    for _ in range(8):
        compare(code, words(rng, 64), words(rng, 64), words(rng, 64), 8)
    pairs = [(a, b) for a in EDGES for b in EDGES if code in (VPU.FADD, VPU.FMUL) or a >= b][::2]
    for at in range(0, len(pairs) - 64, 64):
        part = pairs[at : at + 64]
        compare(code, [a for a, _ in part], [b for _, b in part], [0] * 64, 8)


def bytes_of(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int8).view(np.uint8)


@pytest.mark.parametrize("code", [c for c in VPU if c.name.startswith("PACKED")], ids=lambda c: c.name)
def test_packed_bytes_exhaustively(code: VPU) -> None:
    """All 65,536 pairs of bytes."""
    x, y = (g.reshape(-1) for g in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    exact = {
        "ADD": np.clip(x + y, -128, 127), "SUB": np.clip(x - y, -128, 127), "MAX": np.maximum(x, y),
        "MIN": np.minimum(x, y), "NEG": np.minimum(-x, 127), "RELU": np.maximum(x, 0), "CMPLT": -(x < y).astype(int),
        "CMPEQ": -(x == y).astype(int), "MUL_LOW": x * y, "MUL_HIGH": (x * y) >> 8, "ABS": np.minimum(abs(x), 127),
        "SIGN": np.sign(x), "ABS_DIFF": np.minimum(abs(np.clip(x - y, -128, 127)), 127),
    }[code.name.removeprefix("PACKED_I8_")]  # fmt: skip
    size = 128
    v = np.zeros((3, size * size), np.int32)
    v[0], v[1] = (np.ascontiguousarray(bytes_of(z)).view(np.int32) for z in (x, y))
    assert integer(v, v.view(np.uint32), v.view(np.int8), int(code), 0, 1, 2, size, size) == 0
    assert np.array_equal(v[2].view(np.uint8), bytes_of(exact))


@pytest.mark.parametrize("code", [VPU.FADD, VPU.FMUL, VPU.FSUB])
def test_floats_equal_numpy(code: VPU) -> None:
    rng = np.random.default_rng(5)
    size = 128
    bits = rng.integers(0, 2**32, (2, size * size), dtype=np.uint32)
    bits[:, ::7] &= 0x807FFFFF  # subnormals and zeros
    v = np.zeros((3, size * size), np.int32)
    v[:2] = bits.view(np.int32)
    assert floating(v, v.view(np.float32), int(code), 0, 1, 2, size, size) == 0
    a, b = bits.view(np.float32)
    with np.errstate(all="ignore"):
        want = {VPU.FADD: a + b, VPU.FMUL: a * b, VPU.FSUB: a - b}[code]
    numbers = ~np.isnan(want)
    assert numbers.sum() > 10000
    assert np.array_equal(v[2][numbers], want.view(np.int32)[numbers])
    assert np.isnan(v.view(np.float32)[2][~numbers]).all()


def test_select_keeps_the_result_register() -> None:
    program = [word(SXU.LOAD, vmem=i, dst=i) for i in range(3)]
    program += [vpu(VPU.COPY, 3, 2), vpu(VPU.SELECT, 4, 0, 1), word(SXU.STORE, vmem=4, src=4), word(SXU.HALT)]
    cond, yes, no = [0, 1] * 8, list(range(16)), list(range(100, 116))
    done = run(program, vmem={0: cond, 1: yes, 2: no}, vmem_outputs=[4])
    assert list(done.vmem[0].reshape(-1)) == [y if c else n for c, y, n in zip(cond, yes, no)]


def inline(code: VPU) -> tuple[list[tuple[VPU, int, int, int]], list[int]]:
    """The steps of a serial operation as VPU operations (code, dst, a, b) on vregs, x in 0, and constants 8.."""
    if code == VPU.COS:
        return [(VPU.FMUL, 1, 0, 0), (VPU.FMUL, 2, 1, 8), (VPU.FADD, 2, 2, 9), (VPU.FMUL, 2, 2, 1),
                (VPU.FADD, 2, 2, 10)], [0x3D1817B9, 0xBEFE42E1, 0x3F800000]  # fmt: skip
    if code == VPU.EXP2:
        return [(VPU.F2I, 1, 0, 0), (VPU.I2F, 2, 1, 0), (VPU.FSUB, 3, 0, 2), (VPU.FMUL, 4, 3, 8), (VPU.FADD, 4, 4, 9),
                (VPU.FMUL, 4, 4, 3), (VPU.FADD, 4, 4, 10), (VPU.ADD, 1, 1, 11), (VPU.SHL, 1, 1, 12),
                (VPU.FMUL, 2, 4, 1)], [0x3E800000, 0x3F3C0592, 0x3F800000, 127, 23]  # fmt: skip
    return [(VPU.SHL, 1, 0, 8), (VPU.SHR, 1, 1, 9), (VPU.ADD, 1, 1, 10), (VPU.I2F, 1, 1, 0), (VPU.AND, 2, 0, 11),
            (VPU.OR, 2, 2, 12), (VPU.FADD, 2, 2, 13), (VPU.FMUL, 3, 2, 14), (VPU.FADD, 3, 3, 15), (VPU.FMUL, 2, 3, 2),
            (VPU.FADD, 2, 2, 1)], [1, 24, -127 & WORD, 0x7FFFFF, 0x3F800000, 0xBF800000, 0xBF0B851F,
                                   0x3FC161E5]  # fmt: skip


@pytest.mark.parametrize("code", [VPU.COS, VPU.EXP2, VPU.LOG2])
def test_inline_steps_equal_the_serial_unit(code: VPU) -> None:
    """Datasheet 14: bit-identical results, EXP2 for -128 < x < 129, LOG2 and COS for every pattern."""
    rng, size = np.random.default_rng(3), 128
    v = np.zeros((17, size * size), np.int32)
    f, u, b = v.view(np.float32), v.view(np.uint32), v.view(np.int8)
    if code == VPU.EXP2:
        f[0] = rng.uniform(-127.99, 128.99, size * size).astype(np.float32)
    else:
        u[0] = rng.integers(0, 2**32, size * size, dtype=np.uint32)
    steps, held = inline(code)
    for i, x in enumerate(held):
        u[8 + i] = x
    for op, d, a, c in steps:
        v[16] = 0
        if integer(v, u, b, int(op), a, c, 16, size, size):
            assert floating(v, f, int(op), a, c, 16, size, size) == 0
        v[d] = v[16]
    floating(v, f, int(code), 0, 0, 16, size, size)
    assert np.array_equal(v[16], v[2])


def test_sizes_of_tiles() -> None:
    machine = load().with_(params={"rows": 6, "columns": 6})
    rng = random.Random(8)
    a = words(rng, 36)
    tile = [[softfloat.wrap(x) for x in a[r * 6 : r * 6 + 6]] for r in range(6)]
    assert one(VPU.FSUM_REDUCE, a, machine=machine) == patterns(lanes.operate(42, tile, tile, tile))
