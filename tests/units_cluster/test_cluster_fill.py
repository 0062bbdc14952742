"""FILL: quantiser tables, packing, L1 placement, and every refusal (datasheet 2.2, 2.3, 3, 5.2, 5.6)."""

from __future__ import annotations

import numpy as np
import pytest

from kohakutpu import machines
from kohakutpu.isa.cluster import CLUSTER
from kohakutpu.units import state as s
from reference import formats
from units_cluster.bench import Unit, random_entries

PACKED = {
    (0, 0): "8f3aadcc9af97964e63ceab7326b4ab1a3b8b32a5b2a7122b64e63ce79818589",
    (1, 0): "8ec92959ce561cab1da24b939dabc9562b2d772639e592a47f3aedce79818589",
    (0, 3): "f20038e2a7122bd7cbc800e38a9cb78b571f20038f9d56e64d7cbc8079818589",
}


@pytest.fixture
def unit() -> Unit:
    return Unit()


def words_of(q: np.ndarray, scale: list[int], side: int) -> list[int]:
    lanes = [(tuple(int(v) for v in q[i]), scale[i]) for i in range(4)]
    return formats.pack_entry((lanes[0], lanes[1], lanes[2], lanes[3]), side == 1)


def quads(words: list[int]) -> np.ndarray:
    return np.array([[w >> 64 * i & (1 << 64) - 1 for i in range(4)] for w in words], np.uint64)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    ("block", "byte", "q"),
    [
        ("3C00 BC00 3800 2E66 211F", 0x71, [57, -57, 28, 6, 1]),
        ("7BFF 3C00 6000 FBFF", 0xF1, [57, 0, 0, -57]),
        ("3F63 3C00", 0x78, [59, 32]),
        ("3FE1 3C00", 0x79, [56, 28]),
        ("03FF 0200 0001", 0x01, [57, 28, 0]),
        ("0001 8001", 0x01, [0, 0]),
        ("7C00 3C00 7A00", 0xF1, [57, 0, 43]),
    ],
)
def test_quantiser_table(unit: Unit, side: int, block: str, byte: int, q: list[int]) -> None:
    halves = np.zeros((4, 32), np.uint16)
    halves[2, : len(q)] = [int(h, 16) for h in block.split()]
    unit.poke(256, halves)
    unit.policy = 1
    assert unit.fill(addr=256, n=1, sel=side, eoff=9) == s.RETIRED
    values, scale = unit.entry(side, 9)
    assert values[2].tolist() == q + [0] * (32 - len(q))
    assert not values[[0, 1, 3]].any()
    assert scale == [0xA0, 0xA0, byte, 0xA0]


@pytest.mark.parametrize("side", [0, 1])
def test_packing_of_the_datasheet(unit: Unit, side: int) -> None:
    """FP16 through the device's upload, and the printed words back through preq."""
    from kohakutpu.units.memory import quantising_upload

    lane, k = np.mgrid[0:4, 0:32]
    halves = ((((32 * lane + k) % 17) - 8) / 4 * (lane + 1)).astype(np.float16).view(np.uint16)
    assert quantising_upload(unit.mem, 0, side, 0x1000, halves.ravel(), 0, unit.note) == s.RETIRED
    for w in range(4):
        got = sum(int(v) << 64 * i for i, v in enumerate(unit.mem.wide[0x200 + 4 * w : 0x204 + 4 * w]))
        if (side, w) in PACKED:
            assert f"{got:064x}" == PACKED[side, w]
    unit.poke(0, halves)
    assert unit.fill(addr=0, n=1, sel=side, eoff=0) == s.RETIRED
    assert unit.fill(addr=0x1000, n=1, sel=side, eoff=1, preq=1) == s.RETIRED
    (q0, s0), (q1, s1) = unit.entry(side, 0), unit.entry(side, 1)
    assert s0 == s1 == [0x79, 0x81, 0x85, 0x89]
    assert np.array_equal(q0, q1)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("bank", [0, 1])
def test_random_entries_both_ways(unit: Unit, side: int, bank: int) -> None:
    rng = np.random.default_rng(side + 2 * bank)
    halves = rng.integers(0, 1 << 16, (255, 4, 32)).astype(np.uint16)
    halves[rng.random(halves.shape) < 0.3] &= 0x83FF
    unit.poke(0, halves)
    unit.policy = 1
    assert unit.fill(addr=0, n=255, sel=side, fbank=bank, eoff=1) == s.RETIRED
    assert unit.cl.nonfinite[0] == np.count_nonzero(halves & 0x7C00 == 0x7C00)
    valid = np.flatnonzero(unit.cl.valid[0, side])
    assert valid.tolist() == list(range(256 * bank + 1, 256 * bank + 256))
    for e in range(0, 255, 9):
        expect, _ = formats.mxfp7_entry([int(h) for h in halves[e].ravel()])
        q, scale = unit.entry(side, 256 * bank + 1 + e)
        assert [tuple(lane) for lane in q.tolist()] == [lane for lane, _ in expect]
        assert scale == [byte for _, byte in expect]
        packed = quads(words_of(q, scale, side))
        unit.poke(0x20000 + 128 * e, packed.view(np.uint16))
        assert unit.fill(addr=0x20000 + 128 * e, n=1, sel=side, fbank=bank, eoff=0, preq=1) == s.RETIRED
        again, same = unit.entry(side, 256 * bank)
        assert np.array_equal(again, q)
        assert same == scale


def test_preq_fields_of_every_value(unit: Unit) -> None:
    """All 128 codes of a field, also -64 which no quantiser writes, in every position."""
    for side in (0, 1):
        for turn in range(0, 128, 5):
            q = ((np.arange(128) + turn) % 128 - 64).reshape(4, 32).astype(np.int8)
            unit.poke(0, quads(words_of(q, [1, 2, 254, 255], side)).view(np.uint16))
            assert unit.fill(addr=0, n=1, sel=side, preq=1) == s.RETIRED
            got, scale = unit.entry(side, 0)
            assert np.array_equal(got, q)
            assert scale == [1, 2, 254, 255]


def test_non_finite_policy(unit: Unit) -> None:
    halves = np.zeros((2, 4, 32), np.uint16)
    halves[1, 3, 5:8] = 0x7C00, 0xFC00, 0x7E01
    unit.poke(0, halves)
    assert unit.fill(addr=0, n=2, sel=0) == s.FAULTED
    assert unit.told()[:2] == [0x10, 3]
    assert (unit.cl.retired[0], unit.cl.nonfinite[0]) == (1, 3)
    unit.policy = 1
    assert unit.fill(addr=0, n=2, sel=0) == s.RETIRED
    assert unit.told()[0] == 2  # retired so far
    assert unit.cl.nonfinite[0] == 6


def column(name: str) -> int:
    return CLUSTER.column(name)


REFUSED = [
    ({"n": 0}, s.E_FIELD, [column("n"), 0, 255]),
    ({"n": 256}, s.E_FIELD, [column("n"), 256, 255]),
    ({"npeer": 1}, s.E_FIELD, [column("npeer"), 1, 0]),
    ({"anchor": 39}, s.E_FIELD, [column("anchor"), 39, 40]),
    ({"desc": 1}, s.E_FIELD, [column("desc"), 1, 0]),
    ({"n": 2, "eoff": 255}, s.E_L1_RANGE, [255, 2, 256]),
    ({"addr": 16}, s.E_ADDRESS, [16]),
    ({"addr": 1 << 39}, s.E_ADDRESS, [1 << 39]),
    ({"addr": 1 << 38}, s.E_ADDRESS, [1 << 38]),
    ({"addr": 1 << 36}, s.E_ADDRESS, [1 << 36]),
    ({"addr": (1 << 20) - 256, "n": 2}, s.E_ADDRESS, [(1 << 20) - 256]),
    ({"addr": 4096 - 32}, s.E_PAGE, [4096 - 32]),
    ({"addr": 4096 - 224}, s.E_PAGE, [4096 - 224]),
    ({"addr": 4096 - 96, "preq": 1}, s.E_PAGE, [4096 - 96]),
    ({"addr": 64, "n": 16}, s.E_PAGE, [64 + 15 * 256]),
    ({"addr": 4096 - 32, "preq": 1}, s.E_PAGE, [4096 - 32]),
    ({"addr": 0x8000, "n": 3}, s.E_UNWRITTEN, [0, 0x8000 + 512]),
]


@pytest.mark.parametrize(("fields", "code", "details"), REFUSED)
def test_refusals(unit: Unit, fields: dict[str, int], code: int, details: list[int]) -> None:
    unit.poke(0, np.zeros(0x4000, np.uint16))
    unit.poke(0x8000, np.zeros(256, np.uint16))
    assert unit.fill(**{"addr": 0, "n": 1, "sel": 0, **fields}) == s.RAISED
    assert unit.told()[0] == code
    assert unit.told()[1 : 1 + len(details)] == details
    assert not unit.cl.valid.any()
    assert unit.cl.retired[0] == 0


def test_a_32_byte_multiple_inside_a_page_is_lawful(unit: Unit) -> None:
    unit.poke(0, np.zeros(0x1000, np.uint16))
    assert unit.fill(addr=96, n=15, sel=0) == s.RETIRED
    assert unit.fill(addr=96, n=31, sel=0, preq=1) == s.RETIRED


def test_a_small_l1_has_neither_banks_nor_more_offsets() -> None:
    unit = Unit(machines.load("singlemesh_2x2"))
    unit.poke(0, np.zeros(0x2000, np.uint16))
    assert unit.fill(addr=0, n=32, sel=1) == s.RETIRED
    assert unit.fill(addr=0, n=2, sel=1, eoff=31) == s.RAISED
    assert unit.told() == [s.E_L1_RANGE, 31, 2, 32]
    assert unit.fill(addr=0, n=1, sel=1, fbank=1) == s.RAISED
    assert unit.told()[:3] == [s.E_FIELD, column("fbank"), 1]


def test_a_side_of_one_bank_beside_a_side_of_two() -> None:
    unit = Unit(machines.load("mini").with_(params={"l1_a": 256}))
    unit.poke(0, np.zeros(0x8000, np.uint16))
    assert unit.fill(addr=0, n=1, sel=1, fbank=1) == s.RETIRED
    assert unit.fill(addr=0, n=255, sel=0, eoff=1) == s.RETIRED
    assert unit.fill(addr=0, n=1, sel=0, fbank=1) == s.RAISED
    assert unit.gemm(1, 1, 1, bbank=1, abank=1) == s.RAISED
    assert unit.told()[:3] == [s.E_FIELD, column("abank"), 1]
    assert unit.gemm(1, 1, 1, bbank=1, aoff=255) == s.RETIRED


@pytest.mark.parametrize(
    ("fields", "lawful"),
    [
        ({"sel": 0, "eoff": 3, "n": 1}, False),
        ({"sel": 0, "eoff": 0, "n": 4}, False),
        ({"sel": 0, "eoff": 6, "n": 9}, False),
        ({"sel": 0, "eoff": 0, "n": 3}, True),
        ({"sel": 0, "eoff": 7, "n": 4}, True),
        ({"sel": 0, "eoff": 3, "n": 4, "fbank": 1}, True),
        ({"sel": 1, "eoff": 3, "n": 4}, True),
        ({"sel": 1, "eoff": 3, "n": 4, "fbank": 1}, False),
    ],
)
def test_filling_under_a_live_sweep(unit: Unit, fields: dict[str, int], lawful: bool) -> None:
    """The sweep reads A bank 0 entries 3..6 and B bank 1 entries 1..4; a GEMM or plain DRAIN ends it."""
    rng = np.random.default_rng(0)
    for side, first in ((0, 3), (1, 257), (0, 100), (1, 100)):
        unit.put(side, first, *random_entries(rng, 4))
    unit.poke(0, np.zeros(0x2000, np.uint16))
    assert unit.gemm(2, 2, 2, aoff=3, boff=1, bbank=1) == s.RETIRED
    if lawful:
        assert unit.fill(addr=0, **fields) == s.RETIRED
        return
    assert unit.fill(addr=0, **fields) == s.RAISED
    assert unit.told() == [s.E_LIVE_SWEEP, fields["sel"], fields["eoff"] + 256 * fields.get("fbank", 0), fields["n"]]
    assert unit.drain(1, addr=0x8000) == s.RETIRED
    assert unit.fill(addr=0, **fields) == s.RETIRED


def test_the_next_sweep_ends_the_previous_one(unit: Unit) -> None:
    rng = np.random.default_rng(0)
    for side in (0, 1):
        unit.put(side, 0, *random_entries(rng, 8))
    unit.poke(0, np.zeros(0x2000, np.uint16))
    assert unit.gemm(1, 1, 4) == s.RETIRED
    assert unit.gemm(1, 1, 4, aoff=4, boff=4, acc=1) == s.RETIRED
    assert unit.fill(addr=0, n=4, sel=0) == s.RETIRED
    assert unit.fill(addr=0, n=1, sel=0, eoff=7) == s.RAISED


def test_each_cluster_reads_its_own_mesh() -> None:
    unit = Unit(machines.load("multimesh_4"), u=8)
    assert unit.cl.mesh[8] == 1
    base = int(unit.mem.base[1])
    unit.poke(base + 0x400, np.full(128, 0x3C00))
    assert unit.fill(addr=1 << 36 | 0x400, n=1, sel=0) == s.RETIRED
    assert unit.entry(0, 0)[0].min() == 57
    assert unit.fill(addr=0x400, n=1, sel=0) == s.RAISED
    assert unit.told()[0] == s.E_ADDRESS
    assert unit.fill(addr=1 << 36 | 0x800, n=1, sel=0) == s.RAISED
    assert unit.told()[:3] == [s.E_UNWRITTEN, 1, 0x800]
