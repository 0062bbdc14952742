"""CU_DATA into a cluster: packed entries, peer sub-tiles, and bursts that do not fit (datasheet 4.2, 5.4)."""

from __future__ import annotations

import numpy as np
import pytest

from kohakutpu.units import state as s
from reference import formats
from units_cluster.bench import Ints, Unit, add22, random_entries

BAD = 0x11


@pytest.fixture
def unit() -> Unit:
    return Unit()


def packed(q: np.ndarray, scale: np.ndarray, side: int) -> np.ndarray:
    """Granules uint64[4n, 4] of entries."""
    words: list[int] = []
    for e in range(len(q)):
        lanes = [(tuple(int(v) for v in q[e, i]), int(scale[e, i])) for i in range(4)]
        words += formats.pack_entry((lanes[0], lanes[1], lanes[2], lanes[3]), side == 1)
    return np.array([[w >> 64 * i & (1 << 64) - 1 for i in range(4)] for w in words], np.uint64)


def peers(codes: Ints) -> np.ndarray:
    """Granules of FP22 sub-tiles [n, 16]."""
    rows: list[list[int]] = []
    for tile in codes:
        image = sum(int(c) << 22 * e for e, c in enumerate(tile))
        rows += [[image >> 64 * (4 * g + w) & (1 << 64) - 1 for w in range(4)] for g in range(2)]
    return np.array(rows, np.uint64)


@pytest.mark.parametrize("side", [0, 1])
def test_entries_arrive_in_any_pieces(unit: Unit, side: int) -> None:
    rng = np.random.default_rng(side)
    q, scale = random_entries(rng, 5)
    data = packed(q, scale, side)
    at = 4 * 300
    for cut in (3, 8, 9, 17, 20):
        first = int(unit.cl.valid[0, side].sum()) * 4
        start = {3: 0, 8: 3, 9: 8, 17: 9, 20: 17}[cut]
        assert unit.receive(side, at + start, data[start:cut]) == 0
        assert unit.cl.valid[0, side, 300:305].tolist() == [1] * (cut // 4) + [0] * (5 - cut // 4), first
    for e in range(5):
        got, byte = unit.entry(side, 300 + e)
        assert np.array_equal(got, q[e])
        assert byte == scale[e].tolist()


def test_an_entry_under_way_does_not_disturb_the_one_in_place(unit: Unit) -> None:
    rng = np.random.default_rng(2)
    q, scale = random_entries(rng, 2)
    old, new = packed(q[:1], scale[:1], 0), packed(q[1:], scale[1:], 0)
    assert unit.receive(0, 0, old) == 0
    assert unit.receive(0, 0, new[:3]) == 0
    assert np.array_equal(unit.entry(0, 0)[0], q[0])
    assert unit.receive(0, 3, new[3:]) == 0
    assert np.array_equal(unit.entry(0, 0)[0], q[1])


def test_an_entry_without_its_first_words_is_a_bad_burst(unit: Unit) -> None:
    data = packed(*random_entries(np.random.default_rng(3), 2), 1)
    assert unit.receive(1, 5, data[1:]) == BAD
    assert not unit.cl.valid.any()
    assert unit.receive(1, 4, data[:1]) == 0
    assert unit.receive(1, 6, data[2:4]) == BAD
    assert unit.receive(1, 5, data[1:4]) == 0
    assert unit.cl.valid[0, 1].sum() == 1
    assert unit.receive(1, 7, data[3:4]) == BAD  # its words are used up


@pytest.mark.parametrize(
    ("buf", "offset", "n"),
    [
        (0, 2045, 4),
        (1, 2048, 1),
        (2, 1, 2),
        (2, 0, 3),
        (2, 1023, 2),
        (2, 1024, 2),
        (3, 0, 4),
        (255, 0, 4),
        (0, 65535, 8),
    ],
)
def test_bad_bursts_are_dropped_whole(unit: Unit, buf: int, offset: int, n: int) -> None:
    unit.set_tile(np.zeros((512, 16)), 16, 32)
    assert unit.receive(buf, offset, np.full((n, 4), 0x1234567, np.uint64)) == BAD
    assert not unit.cl.valid.any()
    assert not unit.tile(512).any()


def test_a_burst_under_a_live_sweep(unit: Unit) -> None:
    rng = np.random.default_rng(4)
    for side in (0, 1):
        unit.put(side, 4, *random_entries(rng, 4))
    assert unit.gemm(2, 2, 2, aoff=4, boff=4) == s.RETIRED
    data = packed(*random_entries(rng, 2), 0)
    assert unit.receive(0, 4 * 3, data) == s.E_LIVE_SWEEP
    assert unit.receive(0, 4 * 2, data) == 0
    assert unit.receive(1, 4 * 8, data) == 0
    assert unit.receive(1, 4 * 7, data[:4]) == s.E_LIVE_SWEEP


@pytest.mark.parametrize(
    ("a", "b", "total"),
    [
        (0x0FC000, 0x0C4000, 0x0FC001),
        (0x0FC000, 0x2C0001, 0x0FBFFF),
        (0x140076, 0x37DC80, 0x37DC7F),
        (0x13D4DB, 0x33D4DB, 0x000000),
        (0x1FBFFF, 0x1FBFFF, 0x1FFFFF),
        (0x3FBFFF, 0x3FBFFF, 0x3FFFFF),
        (0x004001, 0x204000, 0x000000),  # 2^-76: below the format
        (0x008001, 0x208000, 0x000000),
        (0x003FFF, 0x0FC000, 0x0FC000),  # exponent 0 is zero whatever the mantissa
        (0x1FFFFF, 0x3FBFFF, 0x1FC000),
        (0x1FC000, 0x000000, 0x1FFFFF),  # exponent 127 is finite: 2^64
    ],
)
def test_peer_additions(unit: Unit, a: int, b: int, total: int) -> None:
    if a >> 14 & 127 and a >> 14 & 127 != 127:
        unit.set_tile([[a] * 16], 1, 1)
    else:
        unit.set_tile([[0] * 16], 1, 1)
        assert unit.receive(2, 0, peers(np.full((1, 16), a))) == 0
    assert unit.receive(2, 0, peers(np.full((1, 16), b))) == 0
    expect = formats.add22(0x1FFFFF if a >> 14 & 127 == 127 else a, b)
    assert unit.tile(1)[0].tolist() == [expect] * 16
    if a != 0x1FFFFF:
        assert expect == total


def test_random_peer_additions(unit: Unit) -> None:
    rng = np.random.default_rng(5)
    a = rng.integers(0, 1 << 22, (512, 16))
    a = np.where((a >> 14 & 127) % 127 == 0, 0, a)
    b = rng.integers(0, 1 << 22, (512, 16))
    b[::2] = a[::2] ^ (1 << 21) ^ rng.integers(0, 4, (256, 16))
    b[1::4] = rng.integers(0, 2, (128, 16)) << 21 | rng.integers(0, 3, (128, 16)) << 14 | (b[1::4] & 0x3FFF)
    unit.set_tile(a, 16, 32)
    data = peers(b)
    for i in range(0, 1024, 8):
        assert unit.receive(2, i, data[i : i + 8]) == 0
    assert np.array_equal(unit.tile(512), add22(a, b))


def test_a_peer_may_only_reach_sub_tiles_that_hold_a_value(unit: Unit) -> None:
    unit.set_tile(np.zeros((6, 16)), 2, 3)
    data = peers(np.full((2, 16), 0x0FC000))
    assert unit.receive(2, 8, data) == 0
    assert unit.receive(2, 10, data) == s.E_TILE_UNOPENED
    assert unit.tile(6)[5].tolist() == [0x0FC000] * 16
