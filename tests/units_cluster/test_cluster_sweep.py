"""Sweeps bit for bit: partials, additions, shapes, banks, chaining, K order (datasheet 2.4, 5.3)."""

from __future__ import annotations

import numpy as np
import pytest

from reference import formats
from units_cluster.bench import Ints, Unit, add22, code22, gemm22, partial22, random_entries, rnd22, value22


@pytest.fixture
def unit() -> Unit:
    return Unit()


def test_the_integer_arithmetic_of_this_folder_agrees_with_the_reference() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 1 << 22, (2, 4000))
    b[:2000] = np.clip(a[:2000] ^ (1 << 21) ^ rng.integers(0, 8, 2000), 0, (1 << 22) - 1)
    assert [formats.add22(int(x), int(y)) for x, y in zip(a, b)] == add22(a, b).tolist()
    d = rng.integers(-127008, 127009, 4000)
    s, t = rng.integers(0, 256, (2, 4000))
    assert [formats.partial22(int(x), int(y), int(z)) for x, y, z in zip(d, s, t)] == partial22(d, s, t).tolist()
    canonical = code22(value22(rnd22(d, s - 140)))
    assert canonical.tolist() == rnd22(d, s - 140).tolist()


def two_terms(d: int) -> tuple[list[int], list[int]]:
    """Elements a, b with sum(a*b) == d."""
    sign, rest = (1 if d >= 0 else -1), abs(d)
    a, b = [0] * 32, [0] * 32
    for k in range(31):
        take = min(63, rest // 63)
        a[k], b[k] = 63 * sign, take
        rest -= 63 * take
    a[31], b[31] = sign * (rest // 63 if rest % 63 == 0 else rest), 63 if rest % 63 == 0 else 1
    if abs(a[31]) > 63:
        raise AssertionError(d)
    assert sum(x * y for x, y in zip(a, b)) == d
    return a, b


@pytest.mark.parametrize(
    ("d", "a", "b", "code"),
    [
        (127008, 0xFF, 0xFF, 0x19ED03),
        (1, 0x00, 0x00, 0x05C000),
        (-100001, 0xA0, 0xA0, 0x33E1A8),
        (77777, 0x9B, 0xA5, 0x13D4DB),
        (65537, 0xA0, 0xA0, 0x13C000),
    ],
)
def test_partials_of_the_datasheet(unit: Unit, d: int, a: int, b: int, code: int) -> None:
    left, right = ([63] * 32, [63] * 32) if d == 127008 else two_terms(d)
    unit.put(0, 0, [[left] * 4], [[a] * 4])
    unit.put(1, 0, [[right] * 4], [[b] * 4])
    assert unit.gemm(1, 1, 1) == 0
    assert unit.tile(1).tolist() == [[code] * 16]


@pytest.mark.parametrize("order", ["all scales", "all dots"])
def test_every_partial_of_a_family(unit: Unit, order: str) -> None:
    """256 x 256 scale bytes at hard dots; every dot of one product -63..63 x -63..63 at hard scales."""
    rng = np.random.default_rng(2)
    if order == "all scales":
        q = np.zeros((64, 4, 32), np.int8)
        q[:, :, :2] = rng.integers(-63, 64, (64, 4, 2))
        scale = np.arange(256, dtype=np.uint8).reshape(64, 4)
    else:
        q = np.zeros((32, 4, 32), np.int8)
        q.reshape(-1, 32)[:127, 0] = np.arange(-63, 64)
        scale = np.tile(np.array([0xA7, 0xA3, 0xA0, 0xA5], np.uint8), (32, 1))
    g = len(q)
    unit.put(0, 0, q, scale)
    unit.put(1, 0, q, scale)
    for first in range(0, g, 8):
        assert unit.gemm(8, g, 1, aoff=first) == 0
        expect = gemm22(q[first : first + 8], scale[first : first + 8], q, scale, 1)
        assert np.array_equal(unit.tile(8 * g), expect)


SHAPES = [(1, 1, 1), (1, 1, 255), (1, 9, 3), (16, 32, 4), (3, 5, 7), (2, 8, 1), (7, 7, 5), (255, 2, 1), (2, 255, 1)]


@pytest.mark.parametrize(("gm", "gn", "nk"), SHAPES)
@pytest.mark.parametrize("bank", [0, 1])
def test_shapes_banks_and_offsets(unit: Unit, gm: int, gn: int, nk: int, bank: int) -> None:
    rng = np.random.default_rng(gm * 1000 + gn * 10 + nk)
    na, nb = gm * nk, gn * nk
    aoff, boff = int(rng.integers(0, 257 - na)), int(rng.integers(0, 257 - nb))
    (a, sa), (b, sb) = random_entries(rng, na), random_entries(rng, nb)
    unit.put(0, 256 * bank + aoff, a, sa)
    unit.put(1, 256 * (1 - bank) + boff, b, sb)
    fields = {"aoff": aoff, "boff": boff, "abank": bank, "bbank": 1 - bank}
    assert unit.gemm(gm, gn, nk, **fields) == 0
    opened = gemm22(a, sa, b, sb, nk)
    assert np.array_equal(unit.tile(gm * gn), opened)
    assert unit.gemm(gm, gn, nk, acc=1, **fields) == 0
    assert np.array_equal(unit.tile(gm * gn), gemm22(a, sa, b, sb, nk, opened))


def test_a_sweep_leaves_other_sub_tiles_alone(unit: Unit) -> None:
    rng = np.random.default_rng(5)
    (a, sa), (b, sb) = random_entries(rng, 512), random_entries(rng, 512)
    unit.put(0, 0, a, sa)
    unit.put(1, 0, b, sb)
    assert unit.gemm(16, 32, 1) == 0
    before = unit.tile(512)
    assert unit.gemm(3, 5, 2, aoff=100, boff=50) == 0
    assert np.array_equal(unit.tile(512)[15:], before[15:])
    assert not np.array_equal(unit.tile(512)[:15], before[:15])


@pytest.mark.parametrize("cuts", [(8,), (4, 4), (1, 7), (2, 3, 3), (1,) * 8])
def test_the_result_does_not_depend_on_how_k_was_cut(unit: Unit, cuts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(6)
    gm, gn, total = 3, 9, 8
    (a, sa), (b, sb) = random_entries(rng, gm * total), random_entries(rng, gn * total)
    whole = gemm22(a, sa, b, sb, total)
    a, b = a.reshape(gm, total, 4, 32), b.reshape(gn, total, 4, 32)
    sa, sb = sa.reshape(gm, total, 4), sb.reshape(gn, total, 4)
    at = 0
    for nk in cuts:
        part = slice(at, at + nk)
        unit.put(0, 0, a[:, part].reshape(-1, 4, 32), sa[:, part].reshape(-1, 4))
        unit.put(1, 0, b[:, part].reshape(-1, 4, 32), sb[:, part].reshape(-1, 4))
        assert unit.gemm(gm, gn, nk, acc=int(at > 0)) == 0
        at += nk
    assert np.array_equal(unit.tile(gm * gn), whole)


def adversarial(rng: np.random.Generator, p: Ints) -> Ints:
    """Tile codes that are hard against partials p: cancelling, halfway, far apart, at both ends."""
    n = p.size
    exponent, sign = p >> 14 & 127, rng.integers(0, 2, n) << 21
    mantissa = np.choose(
        rng.integers(0, 4, n),
        [rng.integers(0, 1 << 14, n), np.zeros(n, np.int64), np.full(n, 0x3FFF), 1 << rng.integers(0, 14, n)],
    )
    near = np.clip(exponent + rng.integers(-45, 46, n), 1, 126)
    close = np.clip(exponent + rng.integers(-2, 19, n), 1, 126)
    cancel = np.clip((p ^ 1 << 21) + rng.integers(-3, 4, n), 1 << 14, (1 << 22) - 1)
    end = np.where(rng.integers(0, 2, n) == 1, 126, rng.integers(1, 4, n))
    codes = np.choose(
        rng.integers(0, 5, n),
        [
            sign | near << 14 | mantissa,
            sign | close << 14 | mantissa,
            cancel,
            sign | end << 14 | mantissa,
            np.zeros(n, np.int64),
        ],
    )
    field = codes >> 14 & 127  # a tile holds one zero and one pattern of exponent 127
    return np.where(field == 0, 0, np.where(field == 127, codes | 0x3FFF, codes))


def check_additions(unit: Unit, seed: int, extreme: bool) -> None:
    rng = np.random.default_rng(seed)
    q = np.zeros((48, 4, 32), np.int8)
    q[:, :, : rng.integers(1, 32)] = rng.integers(-63, 64, (48, 4, 1)) >> rng.integers(0, 6, (48, 4, 1))
    q[:, :, 0] ^= rng.integers(0, 2, (48, 4)).astype(np.int8)
    scale = rng.integers(0, 256, (48, 4)).astype(np.uint8)
    a, b, sa, sb = q[:16], q[16:], scale[:16], scale[16:]
    unit.put(0, 0, a, sa)
    unit.put(1, 0, b, sb)
    tile = adversarial(rng, gemm22(a, sa, b, sb, 1).ravel())
    if extreme:
        tile[::7] = 0x1FFFFF ^ (rng.integers(0, 2, tile[::7].size) << 21)  # saturated, both signs
    tile = tile.reshape(512, 16)
    unit.set_tile(tile, 16, 32)
    assert unit.gemm(16, 32, 1, acc=1) == 0
    assert np.array_equal(unit.tile(512), gemm22(a, sa, b, sb, 1, tile)), f"seed {seed}"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("extreme", [False, True])
def test_hard_additions(unit: Unit, seed: int, extreme: bool) -> None:
    check_additions(unit, seed, extreme)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_millions_of_hard_additions(unit: Unit, block: int) -> None:
    for seed in range(60):
        check_additions(unit, 1000 + 60 * block + seed, seed % 2 == 1)


def test_long_k_against_integers(unit: Unit) -> None:
    """K = 262,144: 8192 blocks into one sub-tile, with partials that dwarf and vanish in the sum."""
    rng = np.random.default_rng(9)
    codes = np.zeros(16, np.int64)
    for chunk in range(64):
        (a, sa), (b, sb) = random_entries(rng, 128), random_entries(rng, 128)
        a = np.abs(a) if chunk % 3 else a
        unit.put(0, 0, a, sa)
        unit.put(1, 0, b, sb)
        assert unit.gemm(1, 1, 128, acc=int(chunk > 0)) == 0
        d = np.einsum("nik,njk->nij", a.astype(np.int64), b.astype(np.int64)).reshape(128, 16)
        bytes_a, bytes_b = np.repeat(sa.astype(np.int64), 4, axis=1), np.tile(sb.astype(np.int64), (1, 4))
        p = partial22(d, bytes_a, bytes_b)
        for block in p.tolist():
            codes = np.array([formats.add22(x, y) for x, y in zip(codes.tolist(), block)])
    assert unit.tile(1)[0].tolist() == codes.tolist()


def test_the_sum_saturates_and_stays_there(unit: Unit) -> None:
    """Only a peer can bring values near 2^64; the sweep must then still saturate, not overflow."""
    top = 126 << 14 | 0x3FFF  # (2 - 2^-14) * 2^63
    unit.put(0, 0, [[[63] * 32] * 4], [[0xFF] * 4])
    unit.put(1, 0, [[[63] * 32] * 4], [[0xFF] * 4])
    unit.set_tile([[top] * 16], 1, 1)
    granule = np.zeros((2, 4), np.uint64)
    image = sum(top << 22 * e for e in range(16))
    granule.reshape(-1)[:6] = [image >> 64 * w & (1 << 64) - 1 for w in range(6)]
    assert unit.receive(2, 0, granule) == 0
    assert unit.tile(1).tolist() == [[0x1FFFFF] * 16]
    assert unit.gemm(1, 1, 1, acc=1) == 0
    assert unit.tile(1).tolist() == [[0x1FFFFF] * 16]


@pytest.mark.parametrize("kind", ["ones", "one-hot", "powers"])
def test_products_that_are_integers(unit: Unit, kind: str) -> None:
    """Lanes of integers/64 with a peak of 63 quantise exactly, so the product is numpy's."""
    rng = np.random.default_rng(11)
    m, n, k = 16, 32, 64
    if kind == "ones":
        a, b = np.full((m, k), 63), np.full((n, k), 63)
    elif kind == "one-hot":
        a, b = 63 * np.eye(m, k, 8, dtype=np.int64), rng.integers(-62, 63, (n, k))
        b[:, ::32] = 63
    else:
        a, b = 1 << rng.integers(0, 6, (m, k)), np.where(rng.integers(0, 9, (n, k)) == 0, 32, 0)
        a[:, ::32] = b[:, ::32] = 63
    exact = a @ b.T / 4096
    for side, x, addr in ((0, a, 0), (1, b, 0x8000)):
        pack = (x / 64).astype(np.float16).reshape(-1, 4, 2, 32).transpose(0, 2, 1, 3)
        unit.poke(addr, np.ascontiguousarray(pack).view(np.uint16))
        assert unit.fill(addr=addr, n=len(x) // 2, sel=side) == 0
    assert unit.gemm(m // 4, n // 4, 2) == 0
    assert unit.drain(32, addr=0x10000) == 0
    got = unit.peek(0x10000, 32).view(np.float16).reshape(4, 8, 4, 4).transpose(0, 2, 1, 3).reshape(m, n)
    assert np.array_equal(got, exact.astype(np.float16))
