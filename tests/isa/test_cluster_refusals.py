"""Everything datasheet 5.6 says an encoder must refuse of a cluster program, one test per row, by name."""

from __future__ import annotations

import time

import numpy as np
import pytest

from kohakuaccel.diagnostics import EncodingRefusal, SourceLine
from kohakuaccel.machine import Machine
from kohakutpu import machines
from kohakutpu.isa import cluster
from kohakutpu.isa.cluster import FRESH, ClusterState

SHIP = machines.load("ship_3x2")
BANKED = SHIP.with_(name="banked", features={"r2_bank_plan": True})
DUAL = SHIP.with_(name="dual", features={"r2_dual_acc": True})
SMALL = machines.load("singlemesh_2x2")
MULTI = machines.load("multimesh_4")


def rows(text: str) -> np.ndarray:
    return cluster.CLUSTER.decode_table(cluster.assemble(text))


def check(
    text: str, machine: Machine = SHIP, state: ClusterState = FRESH, unit: int = 0, final: bool = False
) -> ClusterState:
    return cluster.check(machine, machine.units_of("MG")[unit], rows(text), state, final=final)


def refused(text: str, machine: Machine = SHIP, state: ClusterState = FRESH, unit: int = 0, final: bool = False) -> str:
    with pytest.raises(EncodingRefusal) as caught:
        check(text, machine, state, unit, final)
    error = caught.value
    assert error.got is not None
    assert error.limit is not None
    assert error.hint
    return str(error)


LAWFUL = """
FILL addr=0x0 n=32 sel=A
FILL addr=0x2000 n=32 sel=B
GEMM gm=8 gn=8 nk=4
FILL addr=0x4000 n=32 sel=A eoff=32
FILL addr=0x6000 n=32 sel=B eoff=32
GEMM gm=8 gn=8 nk=4 acc aoff=32 boff=32 emit addr=0x8000
DRAIN n=64 fuse addr=0x8000
"""


def test_a_lawful_program_passes_and_leaves_its_state() -> None:
    state = check(LAWFUL, final=True)
    assert (state.opened, state.tiles) == (((8, 8), None), (64, 0))
    assert state.live
    assert state.pending is None
    assert check("DRAIN n=64 addr=0x8000", state=state).live is False


def test_an_empty_program_changes_nothing() -> None:
    assert check("") == FRESH
    state = check(LAWFUL)
    assert check("", state=state) == state


SIMPLE: list[tuple[str, str, str]] = [
    ("FILL 0", "FILL n=0", "field n: a FILL moves 1..255 entries; got 0; the limit is 1..255"),
    ("FILL 256", "FILL n=256", "got 256; the limit is 1..255. Split the FILL"),
    ("FILL eoff", "FILL n=7 eoff=250", "beyond its L1 bank (eoff + n); got 250 + 7 = 257; the limit is 256 entries"),
    ("GEMM aoff", "GEMM gm=2 gn=1 nk=64 aoff=129", "A bank (aoff + gm*nk); got 129 + 128 = 257; the limit is 256"),
    ("GEMM boff", "GEMM gm=1 gn=2 nk=64 boff=129", "B bank (boff + gn*nk); got 129 + 128 = 257; the limit is 256"),
    ("tiles", "GEMM gm=32 gn=17", "more sub-tiles than the cluster holds (gm*gn); got 32*17 = 544; the limit is 512"),
    ("gm 0", "GEMM gm=0 gn=1", "field gm: sweep extents are 1..255; got 0"),
    ("gn 0", "GEMM gm=1 gn=0", "field gn: sweep extents are 1..255; got 0"),
    ("nk 0", "GEMM gm=1 gn=1 nk=0", "field nk: sweep extents are 1..255; got 0"),
    ("DRAIN 0", "GEMM gm=1 gn=1\nDRAIN n=0", "field n: a DRAIN moves 1..tiles sub-tiles; got 0; the limit is 1..512"),
    ("DRAIN 513", "GEMM gm=1 gn=1\nDRAIN n=513", "got 513; the limit is 1..512"),
    ("emit", "GEMM gm=2 gn=2 emit", "nk = 1 cannot emit: its sub-tiles would never leave"),
    ("fuse alone", "GEMM gm=2 gn=2\nDRAIN n=4 fuse", "field fuse: a fused DRAIN follows an emitting GEMM"),
    (
        "fuse n",
        "GEMM gm=2 gn=2 nk=2 emit\nDRAIN n=3 fuse",
        "its GEMM hands out (gm*gn); got 3; the limit is 4",
    ),
    ("acc unopened", "GEMM gm=2 gn=2 acc", "tile that this shape did not open; got 2x2; the limit is no tile is open"),
    ("acc shape", "GEMM gm=2 gn=4\nGEMM gm=4 gn=2 acc", "did not open; got 4x2; the limit is 2x4"),
    ("DRAIN alone", "DRAIN n=1", "sub-tiles that no GEMM opened; got 1; the limit is 0 opened"),
    ("DRAIN more", "GEMM gm=2 gn=2\nDRAIN n=5", "no GEMM opened; got 5; the limit is 4 opened"),
    ("addr 32", "FILL n=1 addr=0x10", "addresses are multiples of 32; got 0x10"),
    ("DRAIN addr", "GEMM gm=1 gn=1\nDRAIN n=1 addr=0x8", "addresses are multiples of 32; got 0x8"),
    ("entry page", "FILL n=16 addr=0x20", "an entry crosses a 4 KiB page; got 0x20"),
    ("preq page", "FILL n=32 addr=0x20 preq", "an entry crosses a 4 KiB page; got 0x20; the limit is chunks of 128"),
    ("burst page", "GEMM gm=4 gn=4\nDRAIN n=16 addr=0xf20", "a burst crosses a 4 KiB page; got 0xf20"),
    (
        "DRAM",
        "FILL n=2 addr=0xffffff00",
        "outside the mesh's DRAM; got 0xffffff00 + 0x200; the limit is 0x100000000",
    ),
    (
        "mesh",
        "FILL n=1 addr=0x1000000000",
        "mesh's memory only; got mesh 1 (0x1000000000); the limit is mesh 0",
    ),
    ("bit 39", "FILL n=1 addr=0x8000000000", "bits 38 and 39 of a unit's address are 0; got 0x8000000000"),
    ("bit 38", "FILL n=1 addr=0x4000000000", "bits 38 and 39 of a unit's address are 0"),
    ("live A", "GEMM gm=2 gn=2 nk=2\nFILL n=4 eoff=3", "entries that a live sweep reads; got entries 3..6 of bank 0"),
    (
        "live B",
        "GEMM gm=2 gn=2 nk=2 boff=8\nFILL sel=B n=9",
        "got entries 0..8 of bank 0; the limit is outside 8..11",
    ),
    ("anchor", "FILL n=1 anchor=41", "field anchor: the exponent anchor is fixed; got 41; the limit is 40"),
    ("npeer", "FILL n=1 npeer=1", "field npeer: the machine has no r2_multicast; got 1; the limit is 0"),
    ("peers", "FILL n=1 peers=0x11", "field peers: the machine has no r2_multicast"),
    ("share tag", "FILL n=1 tag=1", "field tag: the machine has no r2_multicast"),
    ("tsel", "GEMM gm=1 gn=1 tsel", "field tsel: the machine has no r2_dual_acc"),
    ("desc", "FILL n=1 desc", "field desc: the machine has no r2_desc_fill"),
    ("dsel", "FILL n=1 dsel=1", "field dsel: the machine has no r2_desc_fill"),
    ("fbank", "FILL n=1 fbank", "field fbank: the bank is not offered by this machine; got 1; the limit is 0"),
    ("abank", "GEMM gm=1 gn=1 abank", "field abank: the bank is not offered"),
    ("bbank", "GEMM gm=1 gn=1 bbank", "field bbank: the bank is not offered"),
    ("two emits", "GEMM gm=2 gn=2 nk=2 emit\nGEMM gm=2 gn=2 nk=2 emit", "previous emitting GEMM were not drained"),
    (
        "two drains",
        "GEMM gm=2 gn=2 nk=2 emit\nDRAIN n=4 fuse\nDRAIN n=4 fuse",
        "a fused DRAIN follows an emitting GEMM",
    ),
    ("dfin to memory", "GEMM gm=1 gn=1\nDRAIN n=1 dfin=0x11", "only a node drain goes to another mesh"),
]


@pytest.mark.parametrize(("program", "text"), [s[1:] for s in SIMPLE], ids=[s[0] for s in SIMPLE])
def test_refused(program: str, text: str) -> None:
    assert text in refused(program)


NODE: list[tuple[str, str, str]] = [
    ("nobody", "dst_x=3 dst_y=1", "no unit at the target coordinate; got (3,1) of mesh 0"),
    ("none", "", "no unit at the target coordinate; got (0,0) of mesh 0"),
    ("a port", "dst_x=0 dst_y=1", "no unit at the target coordinate; got (0,1)"),
    ("FP16 into MG A", "dst_x=2 dst_y=1 dbuf=0", "does not take a DRAIN into this buffer; got 0 of MG(2,1)"),
    ("FP16 into MG B", "dst_x=2 dst_y=1 dbuf=1", "does not take a DRAIN into this buffer; got 1 of MG(2,1)"),
    ("FP22 into VC", "dst_x=1 dst_y=0 dbuf=2", "does not take a DRAIN into this buffer; got 2 of VC(1,0)"),
    ("reserved buffer", "dst_x=1 dst_y=0 dbuf=3", "got 3 of VC(1,0)"),
    (
        "VC range",
        "dst_x=1 addr=0x3f00",
        "target's buffer (addr/32 + granules); got 504 + 9; the limit is 512",
    ),
    (
        "MG range",
        "dst_x=2 dst_y=1 dbuf=2 addr=0x7fc0",
        "target's buffer (addr/32 + granules); got 1022 + 18",
    ),
    ("odd granule", "dst_x=2 dst_y=1 dbuf=2 addr=0x20", "starts at an even granule; got 1"),
    ("misaligned", "dst_x=1 addr=0x10", "granules are 32 bytes; got 16"),
    ("flags", "dst_x=1 dflags=0x2", "only bit 0 (acknowledge) is defined; got 2"),
    (
        "ack to nobody",
        "dst_x=1 dflags=0x1 dack_x=7",
        "that the acknowledgement goes to; got (7,0)",
    ),
    (
        "remote",
        "dst_x=0 dst_y=1 dfin=0x11 dmesh=1",
        "another mesh of the machine; got 1; the limit is a machine of",
    ),
]


@pytest.mark.parametrize(("fields", "text"), [n[1:] for n in NODE], ids=[n[0] for n in NODE])
def test_node_drains_refused(fields: str, text: str) -> None:
    assert text in refused(f"GEMM gm=3 gn=3\nDRAIN n=9 dnode {fields}")


@pytest.mark.parametrize(
    "fields",
    [
        "dst_x=1 addr=0x3ee0",
        "dst_x=1 dflags=0x1 dack_y=1",
        "dst_x=1 dflags=0x1",
        "dst_x=1 dflags=0x1 dack_x=2 dack_y=2",
        "dst_x=2 dst_y=1 dbuf=2 addr=0x40",
    ],
)
def test_node_drains_that_pass(fields: str) -> None:
    check(f"GEMM gm=3 gn=3\nDRAIN n=9 dnode {fields}")


def test_remote_drains() -> None:
    head = "GEMM gm=1 gn=1\nDRAIN n=1 dnode dst_x=0 dst_y=1"
    check(f"{head} dfin=0x2 dmesh=2", MULTI)
    check(f"{head} dfin=0x2 dmesh=2 dflags=0x1 dack_y=1", MULTI)
    assert "names its acknowledgement's receiver" in refused(f"{head} dfin=0x2 dmesh=2 dflags=0x1", MULTI)
    assert "no unit at the target coordinate; got (2,3) of mesh 1" in refused(f"{head} dfin=0x32 dmesh=1", MULTI)
    assert "another mesh of the machine; got 0; the limit is 0..3, not 0" in refused(f"{head} dfin=0x2 dmesh=0", MULTI)
    wrong = "GEMM gm=1 gn=1\nDRAIN n=1 dnode dst_x=1 dst_y=1 dfin=0x2 dmesh=2"
    assert "through a memory port of its own mesh; got (1,1); the limit is (0,1), (0,2)" in refused(wrong, MULTI)


def test_units_reach_their_own_mesh() -> None:
    unit = MULTI.units_of("MG").index(MULTI.units_of("MG", 2)[0])
    check("FILL n=1 addr=0x2000000000", MULTI, unit=unit)
    assert "got mesh 0 (0x0); the limit is mesh 2" in refused("FILL n=1", MULTI, unit=unit)


@pytest.mark.parametrize("field", cluster.DESTINATION)
def test_a_fused_drain_agrees_with_its_gemm(field: str) -> None:
    base = {"addr": 0x100, "dnode": 1, "dst_x": 1, "dst_y": 0, "dbuf": 0, "dflags": 1, "dack_y": 1, "dack_x": 0}
    other = {"addr": 0x200, "dnode": 0, "dst_x": 2, "dst_y": 4, "dbuf": 2, "dflags": 0, "dack_y": 0, "dack_x": 1}
    other |= {"dmesh": 1, "dfin": 0x11, "tsel": 1}
    machine = DUAL if field == "tsel" else SHIP
    gemm = cluster.CLUSTER.encode(op="GEMM", gm=2, gn=2, nk=2, emit=1, **(base | {field: other[field]}))
    drain = cluster.CLUSTER.encode(op="DRAIN", n=4, fuse=1, **base)
    table = cluster.CLUSTER.decode_table(np.stack([cluster.CLUSTER.to_words(w) for w in (gemm, drain)]))
    with pytest.raises(EncodingRefusal, match=rf"instruction 1 \(DRAIN .*field {field}: .*carry the same destination"):
        cluster.check(machine, machine.units[0], table)


def test_both_banks_with_the_bank_plan() -> None:
    program = "FILL n=255 fbank\nFILL n=1 eoff=255 fbank\nGEMM gm=16 gn=16 nk=16 abank bbank\nFILL n=255"
    check(program, BANKED)
    assert "live sweep" in refused(f"{program}\nFILL n=1 fbank", BANKED)


def test_small_sides_ignore_bank_bits_so_they_are_refused() -> None:
    check("FILL n=32\nGEMM gm=8 gn=8 nk=4", SMALL)
    assert "field fbank: the bank is not offered" in refused("FILL n=1 fbank", SMALL)
    assert "got 1 + 32 = 33; the limit is 32 entries" in refused("FILL n=32 eoff=1", SMALL)
    assert "got 0 + 36 = 36; the limit is 32 entries" in refused("GEMM gm=9 gn=8 nk=4", SMALL)
    assert "got 17*16 = 272; the limit is 256 sub-tiles" in refused("GEMM gm=17 gn=16", SMALL)
    assert "the limit is 1..256" in refused("GEMM gm=16 gn=16\nDRAIN n=257", SMALL)


def test_what_ends_a_live_sweep() -> None:
    head = "GEMM gm=2 gn=2 nk=2 emit"
    assert "live sweep" in refused(f"{head}\nDRAIN n=4 fuse\nFILL n=1"), "a fused DRAIN does not wait"
    check("GEMM gm=2 gn=2 nk=2\nDRAIN n=4\nFILL n=1")
    check("GEMM gm=2 gn=2 nk=2\nGEMM gm=2 gn=2 nk=2 acc aoff=4 boff=4\nFILL n=4")
    check("GEMM gm=2 gn=2 nk=2\nFILL n=4 eoff=4\nFILL sel=B n=200 eoff=4")


def test_edges_that_pass() -> None:
    check("FILL n=255\nFILL n=1 eoff=255")
    check("GEMM gm=16 gn=16 nk=16")
    check("GEMM gm=16 gn=32 nk=8\nDRAIN n=512")
    check("FILL n=1 addr=0xffffff00")
    check("FILL n=15 addr=0x20")
    check("FILL n=64 addr=0xf00\nFILL sel=B n=64 addr=0xf80 preq")
    check("GEMM gm=2 gn=2 acc", state=ClusterState(opened=((2, 2), None), tiles=(4, 0)))
    check("GEMM gm=2 gn=2\nGEMM gm=2 gn=2 acc nk=1 emit aoff=2 boff=2\nDRAIN n=4 fuse", final=True)
    check("GEMM gm=4 gn=4\nDRAIN n=16 addr=0xf00")


def test_page_rules_against_plain_counting() -> None:
    """Starts at both ends of a page and many lengths, against a loop over entries or bursts."""
    unit = SHIP.units[0]
    for what, chunk in (("FILL", 256), ("FILL preq", 128), ("DRAIN", 256)):
        for addr in (*range(0, 288, 32), *range(3584, 4096, 32)):
            for n in (1, 2, 7, 15, 16, 17, 40):
                size = 32 * n if what == "DRAIN" else chunk * n
                starts = range(addr, addr + size, chunk)
                crosses = any(s // 4096 != (min(s + chunk, addr + size) - 1) // 4096 for s in starts)
                text = f"{what.replace('FILL', f'FILL n={n}').replace('DRAIN', f'DRAIN n={n}')} addr={addr:#x}"
                state = ClusterState(opened=((16, 32), None), tiles=(512, 0))
                said = ""
                try:
                    cluster.check(SHIP, unit, rows(text), state)
                except EncodingRefusal as error:
                    said = str(error)
                assert ("crosses a 4 KiB page" in said) == crosses == bool(said), (text, said)


def test_state_carries_between_programs() -> None:
    assert "no tile is open" in refused("GEMM gm=2 gn=2 acc")
    one = check("GEMM gm=2 gn=2 nk=2 emit addr=0x100")
    assert one.pending is not None
    two = check("DRAIN n=4 fuse addr=0x100", state=one)
    assert two.pending is None
    assert "the same destination; got 0x200; the limit is 0x100" in refused("DRAIN n=4 fuse addr=0x200", state=one)
    assert "were not drained" in refused("GEMM gm=2 gn=2 nk=2 emit", state=one)
    assert "live sweep" in refused("FILL n=1", state=two)
    assert "got 3x2; the limit is 2x2" in refused("GEMM gm=3 gn=2 acc", state=two)
    check("DRAIN n=4", state=two)


def test_a_program_cut_anywhere_is_judged_the_same() -> None:
    program = rows(LAWFUL)
    unit = SHIP.units[0]
    whole = cluster.check(SHIP, unit, program)
    for cut in range(len(program) + 1):
        first = cluster.check(SHIP, unit, program[:cut])
        assert cluster.check(SHIP, unit, program[cut:], first) == whole


def test_final_programs_leave_nothing_undrained() -> None:
    check("GEMM gm=2 gn=2 nk=2 emit")
    text = refused("GEMM gm=2 gn=2 nk=2 emit\nFILL n=1 eoff=100", final=True)
    assert "instruction 0 (GEMM gm=2 gn=2 nk=2 emit), field emit" in text
    assert "never drained" in text


def test_the_first_broken_instruction_is_named_with_the_users_line() -> None:
    table = rows("FILL n=1\nFILL n=0\nGEMM gm=0 gn=1")
    lines = [SourceLine("user.py", 10 + i, f"line {i}") for i in range(3)]
    with pytest.raises(EncodingRefusal) as caught:
        cluster.check(SHIP, SHIP.units[1], table, source=lambda i: lines[i])
    assert caught.value.source == lines[1]
    text = str(caught.value)
    assert text.startswith("MG(2,1), instruction 1 (FILL addr=0x0 n=0 sel=A), field n:")
    assert text.endswith("at user.py:11: line 1")


def test_unknown_opcode() -> None:
    table = rows("FILL n=1")
    table[0, 0] = 5
    with pytest.raises(EncodingRefusal, match=r"field op: .* no such opcode; got 5; the limit is FILL, GEMM"):
        cluster.check(SHIP, SHIP.units[0], table)


def test_ten_thousand_instructions_are_quick() -> None:
    table = np.tile(rows(LAWFUL)[[2, 3, 4, 5, 6]], (2000, 1))
    cluster.check(SHIP, SHIP.units[0], table)
    spent = min(timed(table) for _ in range(5))
    assert spent < 0.1, f"{spent * 1e3:.1f} ms for 10,000 instructions"


def timed(table: np.ndarray) -> float:
    start = time.process_time()
    cluster.check(SHIP, SHIP.units[0], table)
    return time.process_time() - start
