"""GEMM refusals, emission and the drain queue, DRAIN of every kind (datasheet 2.5, 5.3, 5.4, 5.6)."""

from __future__ import annotations

import numpy as np
import pytest

from kohakutpu import machines
from kohakutpu.isa.cluster import CLUSTER
from kohakutpu.units import state as s
from reference import formats
from units_cluster.bench import Unit, random_entries, rnd22

VC, MG, PORT = (1, 0), (1, 1), (0, 1)


def column(name: str) -> int:
    return CLUSTER.column(name)


@pytest.fixture
def unit() -> Unit:
    """L1 full of random entries."""
    made = Unit()
    rng = np.random.default_rng(3)
    for side in (0, 1):
        made.put(side, 0, *random_entries(rng, 512))
    return made


def halves(codes: np.ndarray) -> tuple[np.ndarray, int]:
    """FP16 codes of FP22 codes and how many saturate, one by one."""
    pairs = [formats.emit16(int(c)) for c in codes.ravel()]
    return np.array([h for h, _ in pairs], np.uint16).reshape(codes.shape), sum(b for _, b in pairs)


EMIT = [
    (0x0FC008, 0x3C00),
    (0x0FC018, 0x3C02),
    (0x13BFEF, 0x7BFF),
    (0x14C000, 0x7BFF),
    (0x0BC000, 0x0100),
    (0x095555, 0x0000),
    (0x098000, 0x0000),
    (0x29C000, 0x8001),
    (0x0BFFFF, 0x0200),
    (0x000000, 0x0000),
    (0x1FFFFF, 0x7BFF),
    (0x3FFFFF, 0xFBFF),
    (0x204000, 0x8000),
]


@pytest.mark.parametrize("to", ["memory", "node"])
def test_emission_table(unit: Unit, to: str) -> None:
    codes = np.zeros(16, np.int64)
    codes[: len(EMIT)] = [c for c, _ in EMIT]
    unit.set_tile([codes], 1, 1)
    if to == "memory":
        assert unit.drain(1, addr=0x100) == s.RETIRED
        got = unit.peek(0x100, 1)[0]
    else:
        assert unit.drain(1, addr=0, dnode=1, dst_x=VC[0], dst_y=VC[1]) == s.RETIRED
        got = unit.out.data[0].view(np.uint16)
    assert got.tolist()[: len(EMIT)] == [h for _, h in EMIT]
    assert unit.cl.saturated[0] == 3


def test_emission_of_hard_values(unit: Unit) -> None:
    """Every FP22 exponent that meets FP16, with mantissas around every rounding step."""
    rng = np.random.default_rng(1)
    codes = []
    for exponent in range(63 - 27, 63 + 18):
        for mantissa in (0, 1, 7, 8, 9, 15, 16, 0x1FFF, 0x2000, 0x3FEF, 0x3FF0, 0x3FF7, 0x3FF8, 0x3FFF):
            codes += [exponent << 14 | mantissa, 1 << 21 | exponent << 14 | mantissa]
    codes += rng.integers(1 << 14, 1 << 22, 8192 - len(codes)).tolist()
    tile = np.array(codes, np.int64)
    tile = np.where(tile >> 14 & 127, tile, 0).reshape(512, 16)
    unit.set_tile(tile, 16, 32)
    assert unit.drain(512, addr=0x4000) == s.RETIRED
    expect, saturated = halves(tile)
    assert np.array_equal(unit.peek(0x4000, 512), expect)
    assert unit.cl.saturated[0] == saturated
    flags = unit.mem.written
    assert flags[0x200 : 0x200 + 512].all()
    assert flags.sum() == 512


def test_fused_drain_delivers_what_the_sweep_handed_out(unit: Unit) -> None:
    """A later sweep, or even FILL-free reuse of the tile, does not change what is queued."""
    where = {"addr": 0x2000}
    assert unit.gemm(3, 5, 2) == s.RETIRED
    assert unit.gemm(3, 5, 2, acc=1, aoff=50, boff=50, emit=1, **where) == s.RETIRED
    expect, saturated = halves(unit.tile(15))
    assert unit.cl.saturated[0] == saturated
    assert unit.gemm(4, 4, 1, aoff=9) == s.RETIRED
    assert unit.drain(15, fuse=1, **where) == s.RETIRED
    assert np.array_equal(unit.peek(0x2000, 15), expect)
    assert unit.cl.saturated[0] == saturated
    assert unit.drain(15, fuse=1, **where) == s.WAITING
    assert unit.told()[:3] == [s.W_DRAIN_NO_EMIT, 15, 0]


def test_fused_drains_pair_with_emissions_in_order(unit: Unit) -> None:
    expect = []
    for i in range(3):
        assert unit.gemm(2, 2 + i, 2, aoff=8 * i, emit=1, addr=0x1000 * (i + 1)) == s.RETIRED
        expect.append(halves(unit.tile(4 + 2 * i))[0])
    for i in range(2):
        assert unit.drain(4 + 2 * i, fuse=1, addr=0x1000 * (i + 1)) == s.RETIRED
    assert unit.gemm(5, 3, 2, emit=1, addr=0x8000) == s.RETIRED
    expect.append(halves(unit.tile(15))[0])
    assert unit.drain(8, fuse=1, addr=0x3000) == s.RETIRED
    assert unit.drain(15, fuse=1, addr=0x8000) == s.RETIRED
    for addr, tiles in zip((0x1000, 0x2000, 0x3000, 0x8000), expect):
        assert np.array_equal(unit.peek(addr, len(tiles)), tiles)


def test_a_load_wins_over_an_emission(unit: Unit) -> None:
    assert unit.gemm(2, 2, 1, emit=1, addr=0x1000) == s.RETIRED
    assert unit.drain(4, fuse=1, addr=0x1000) == s.WAITING
    assert unit.told()[:3] == [s.W_DRAIN_NO_EMIT, 4, 0]
    assert unit.gemm(2, 2, 1, acc=1, emit=1, addr=0x1000) == s.RETIRED
    assert unit.drain(4, fuse=1, addr=0x1000) == s.RETIRED


@pytest.mark.parametrize(("gn", "stuck"), [(112, False), (113, True)])
def test_more_than_112_outstanding_stall_what_follows(unit: Unit, gn: int, stuck: bool) -> None:
    assert unit.gemm(1, gn, 2, emit=1, addr=0x4000) == s.RETIRED
    unit.poke(0, np.zeros(256, np.uint16))
    assert unit.fill(addr=0, n=2, sel=0, fbank=1) == s.RETIRED  # a FILL waits for no sweep
    for status in (unit.gemm(1, gn, 1), unit.drain(1, addr=0)):
        assert status == (s.WAITING if stuck else s.RETIRED)
        if stuck:
            assert unit.told()[:3] == [s.W_DRAIN_QUEUE, gn, 112]
    assert unit.drain(gn, fuse=1, addr=0x4000) == s.RETIRED
    assert unit.gemm(1, gn, 1) == s.RETIRED


@pytest.mark.parametrize(
    ("change", "which"),
    [
        ({"n": 3}, "n"),
        ({"addr": 0x1100}, "addr"),
        ({"dnode": 1}, "dnode"),
        ({"dst_x": 1}, "dst_x"),
        ({"dst_y": 1}, "dst_y"),
        ({"dbuf": 2}, "dbuf"),
        ({"dflags": 1}, "dflags"),
        ({"dack_x": 1}, "dack_x"),
        ({"dack_y": 1}, "dack_y"),
        ({"dmesh": 1}, "dmesh"),
        ({"dfin": 1}, "dfin"),
    ],
)
def test_a_fused_drain_agrees_with_its_gemm(unit: Unit, change: dict[str, int], which: str) -> None:
    assert unit.gemm(2, 2, 2, emit=1, addr=0x1000) == s.RETIRED
    assert unit.drain(**{"n": 4, "addr": 0x1000, "fuse": 1, **change}) == s.RAISED
    assert unit.told()[:2] == [s.E_DRAIN_MISMATCH, column(which)]


def test_node_drain_to_a_vector_core(unit: Unit) -> None:
    assert unit.gemm(3, 7, 2) == s.RETIRED
    expect, _ = halves(unit.tile(21))
    fields = {"dnode": 1, "dst_x": VC[0], "dst_y": VC[1], "dflags": 1, "dack_x": 0, "dack_y": 1}
    assert unit.drain(21, addr=32 * 100, **fields) == s.RETIRED
    assert unit.out.used.tolist() == [3, 21]
    heads = [[0, *VC, 0, 100 + 8 * i, min(8, 21 - 8 * i), 1, 0, 1, 8 * i] for i in range(3)]
    assert unit.out.head[:3].tolist() == heads
    assert np.array_equal(unit.out.data[:21].view(np.uint16), expect)
    assert not unit.mem.written.any()


def test_fused_node_drain(unit: Unit) -> None:
    fields = {"dnode": 1, "dst_x": VC[0], "dst_y": VC[1], "addr": 64}
    assert unit.gemm(2, 5, 2, emit=1, **fields) == s.RETIRED
    expect, _ = halves(unit.tile(10))
    assert unit.drain(10, fuse=1, **fields) == s.RETIRED
    assert np.array_equal(unit.out.data[:10].view(np.uint16), expect)
    assert unit.out.head[:2, 4:6].tolist() == [[2, 8], [10, 2]]


def test_transfer_to_a_cluster_keeps_every_bit(unit: Unit) -> None:
    """SEND packs 352-bit sub-tiles; ADD_PEER into a tile of zeros gives them back, and twice doubles them."""
    rng = np.random.default_rng(4)
    codes = rnd22(rng.integers(-(1 << 20), 1 << 20, 16 * 9), rng.integers(-80, 44, 16 * 9)).reshape(9, 16)
    unit.set_tile(codes, 3, 3)
    assert unit.drain(9, addr=0, dnode=1, dst_x=MG[0], dst_y=MG[1], dbuf=2) == s.RETIRED
    assert unit.out.used.tolist() == [3, 18]
    assert unit.out.head[:3, 3:6].tolist() == [[2, 0, 8], [2, 8, 8], [2, 16, 2]]
    data = unit.out.data[:18].copy()
    for t in range(9):
        image = sum(int(c) << 22 * e for e, c in enumerate(codes[t]))
        assert [int(v) for v in data[2 * t : 2 * t + 2].ravel()] == [image >> 64 * w & (1 << 64) - 1 for w in range(8)]
    unit.set_tile(np.zeros((9, 16)), 3, 3)
    for i in range(0, 18, 8):
        assert unit.receive(2, i, data[i : i + 8]) == 0
    assert np.array_equal(unit.tile(9), codes)
    assert unit.receive(2, 2, data[2:4]) == 0
    assert unit.tile(9)[1].tolist() == [formats.add22(int(c), int(c)) for c in codes[1]]


def test_remote_drain_names_the_final_node() -> None:
    unit = Unit(machines.load("multimesh_4"), u=0)
    unit.set_tile(np.full((2, 16), 0x0FC000), 1, 2)
    fields = {"dnode": 1, "dst_x": 0, "dst_y": 1, "dmesh": 2, "dfin": 0x32, "addr": 0}
    assert unit.drain(2, dflags=1, dack_x=0, dack_y=1, **fields) == s.RETIRED
    assert unit.out.head[0].tolist() == [2, 2, 3, 0, 0, 2, 1, 0, 1, 0]
    assert unit.drain(2, dflags=1, **fields) == s.RAISED
    assert unit.told()[:2] == [s.E_FIELD, column("dack_x")]
    assert unit.drain(2, **{**fields, "dst_x": 1}) == s.RAISED
    assert unit.told()[0] == s.E_NODE
    assert unit.drain(2, **{**fields, "dmesh": 1}) == s.RAISED  # mesh 1 has no vector core
    assert unit.told()[:2] == [s.E_NODE, 1 << 8 | 0x32]


NODE = {"dnode": 1, "dst_x": VC[0], "dst_y": VC[1]}
REFUSED_DRAINS = [
    ({"n": 0}, s.E_FIELD, [column("n"), 0]),
    ({"n": 513}, s.E_TILE_RANGE, [513, 512]),
    ({"n": 5}, s.E_TILE_UNOPENED, [4]),
    ({"anchor": 41}, s.E_FIELD, [column("anchor"), 41]),
    ({"tsel": 1}, s.E_FIELD, [column("tsel"), 1]),
    ({"addr": 0x1010}, s.E_ADDRESS, [0x1010]),
    ({"addr": (1 << 20) - 32, "n": 2}, s.E_ADDRESS, [(1 << 20) - 32]),
    ({"addr": 1 << 37}, s.E_ADDRESS, [1 << 37]),
    ({"addr": 0x1000 - 32}, s.E_PAGE, [0x1000 - 32]),
    ({**NODE, "dst_x": 2}, s.E_NODE, [0x02, 0]),
    ({**NODE, "dst_x": 0, "dst_y": 1}, s.E_NODE, [0x10, 0]),
    ({**NODE, "dbuf": 1}, s.E_NODE, [0x01, 1]),
    ({**NODE, "dst_y": 1}, s.E_NODE, [0x11, 0]),
    ({**NODE, "dst_y": 1, "dbuf": 1}, s.E_NODE, [0x11, 1]),
    ({**NODE, "addr": 32 * 509}, s.E_L1_RANGE, [509, 4, 512]),
    ({**NODE, "addr": 40}, s.E_ADDRESS, [40]),
    ({**NODE, "addr": 1 << 21}, s.E_ADDRESS, [1 << 21]),
    ({**NODE, "dst_y": 1, "dbuf": 2, "addr": 32 * 1018}, s.E_L1_RANGE, [1018, 8, 1024]),
]


@pytest.mark.parametrize(("fields", "code", "details"), REFUSED_DRAINS)
def test_drain_refusals(unit: Unit, fields: dict[str, int], code: int, details: list[int]) -> None:
    assert unit.gemm(2, 2, 1) == s.RETIRED
    assert unit.drain(**{"n": 4, "addr": 0, **fields}) == s.RAISED
    assert unit.told()[: 1 + len(details)] == [code, *details]
    assert not unit.mem.written.any()
    assert unit.out.used.tolist() == [0, 0]


def test_bursts_are_judged_one_by_one(unit: Unit) -> None:
    """Words 0..7 end 32 bytes before the page does; words 8.. start before it and cross."""
    assert unit.gemm(3, 5, 1) == s.RETIRED
    assert unit.drain(9, addr=0x1000 - 288) == s.RETIRED
    assert unit.drain(10, addr=0x1000 - 288) == s.RAISED
    assert unit.told()[:2] == [s.E_PAGE, 0x1000 - 32]
    assert unit.drain(7, addr=0x1000 - 224) == s.RETIRED
    assert unit.drain(8, addr=0x1000 - 224) == s.RAISED


def test_what_a_sweep_hands_out_cannot_go_to_a_tile(unit: Unit) -> None:
    fields = {"dnode": 1, "dst_x": MG[0], "dst_y": MG[1], "dbuf": 2}
    assert unit.gemm(2, 2, 2, emit=1, **fields) == s.RETIRED
    assert unit.drain(4, fuse=1, **fields) == s.RAISED
    assert unit.told()[0] == s.E_NODE


REFUSED_GEMMS = [
    ({"gm": 0}, s.E_FIELD, [column("gm"), 0]),
    ({"gn": 0}, s.E_FIELD, [column("gn"), 0]),
    ({"nk": 0}, s.E_FIELD, [column("nk"), 0]),
    ({"anchor": 0}, s.E_FIELD, [column("anchor"), 0]),
    ({"tsel": 1}, s.E_FIELD, [column("tsel"), 1]),
    ({"gm": 27, "gn": 19}, s.E_TILE_RANGE, [513, 512]),
    ({"gm": 3, "nk": 86}, s.E_L1_RANGE, [0, 258, 256]),
    ({"gn": 2, "nk": 4, "boff": 249}, s.E_L1_RANGE, [249, 8, 256]),
    ({"acc": 1, "gm": 4, "gn": 1}, s.E_TILE_UNOPENED, [0, 2, 2]),
]


@pytest.mark.parametrize(("fields", "code", "details"), REFUSED_GEMMS)
def test_gemm_refusals(unit: Unit, fields: dict[str, int], code: int, details: list[int]) -> None:
    assert unit.gemm(2, 2, 1) == s.RETIRED
    before = unit.tile(4)
    assert unit.gemm(**{"gm": 2, "gn": 2, "nk": 1, **fields}) == s.RAISED
    assert unit.told()[: 1 + len(details)] == [code, *details]
    assert np.array_equal(unit.tile(4), before)
    assert unit.cl.retired[0] == 1


@pytest.mark.parametrize("side", [0, 1])
def test_a_sweep_over_an_entry_never_written(unit: Unit, side: int) -> None:
    unit.cl.valid[0, side, 256 + 5] = 0
    assert unit.gemm(3, 3, 2, abank=1, bbank=1) == s.RAISED
    assert unit.told()[:3] == [s.E_L1_UNWRITTEN, side, 261]
    assert unit.gemm(2, 2, 2, abank=1, bbank=1) == s.RETIRED


def test_nothing_is_open_at_the_start(unit: Unit) -> None:
    assert unit.drain(1, addr=0) == s.RAISED
    assert unit.told()[0] == s.E_TILE_UNOPENED
    assert unit.gemm(1, 1, 1, acc=1) == s.RAISED
    assert unit.told()[0] == s.E_TILE_UNOPENED
    assert unit.receive(2, 0, np.zeros((2, 4), np.uint64)) == s.E_TILE_UNOPENED


@pytest.mark.parametrize("op", [0, 4, 15])
def test_unknown_opcode(unit: Unit, op: int) -> None:
    row = np.ascontiguousarray(CLUSTER.decode_table(CLUSTER.encode_table(1, op=1))[0])
    row[column("op")] = op
    status = unit.code.cluster_step(unit.cl, unit.mem, unit.out, 0, row, 0, unit.note)
    assert status == s.FAULTED
    assert unit.told()[0] == 0x12
    assert unit.cl.retired[0] == 1


def test_a_reset_forgets_everything_but_counters(unit: Unit) -> None:
    from kohakutpu.units.cluster import reset_clusters

    assert unit.gemm(2, 2, 2, emit=1, addr=0) == s.RETIRED
    reset_clusters(unit.cl)
    assert unit.cl.retired[0] == 1
    assert unit.drain(4, fuse=1, addr=0) == s.WAITING
    assert unit.drain(4, addr=0) == s.RAISED
    assert unit.gemm(1, 1, 1) == s.RAISED
    assert unit.told()[0] == s.E_L1_UNWRITTEN
