"""What an encoder refuses of vector kernels and envelope streams (datasheet 6), by name."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.diagnostics import EncodingRefusal, SourceLine
from kohakuaccel.machine import Machine
from kohakutpu import machines
from kohakutpu.isa import vector
from kohakutpu.isa.vector import MODE

SHIP = machines.load("ship_3x2")
MULTI = machines.load("multimesh_4")
VC = SHIP.units_of("VC")[0]


def kernel_refused(text: str, mode: int = MODE.FLAT, vl: int | None = None) -> str:
    with pytest.raises(EncodingRefusal) as caught:
        vector.check(SHIP, vector.assemble(text), mode=mode, vl=vl)
    assert caught.value.hint
    return str(caught.value)


GOOD = """
VSETI S0,0x80
VSETVL S0
VSETMODE D2
VFILL A0,0
VBAR
VLOOP S1,6
VLD v1,A1 FP16
VMUL v2,v1,S2
+ VADD v2,C,K1
VSETI S3,0x10
VST v2,A2 FP16
VDRAIN A0,64
VHALT
"""


def test_a_lawful_kernel_passes_and_tells_its_facts() -> None:
    facts = vector.check(SHIP, vector.assemble(GOOD))
    assert (facts.mode, facts.vl) == (MODE.D2, 128)
    assert [u.mnemonic for u in facts.uses] == ["VFILL", "VLD", "VST", "VDRAIN"]
    assert facts.words == len(vector.assemble(GOOD))


KERNELS: list[tuple[str, str, str]] = [
    ("no VHALT", "VBAR", "word 1 (nothing): the kernel runs past its words"),
    ("no such word", ".word 0x88000001\nVHALT", "no instruction has this word; got 0x88000001"),
    ("dtype", ".word 0xA3000000\nVHALT", "dtype is out of range; got 3; the limit is one of FP16=1, FP32=2"),
    ("pm", ".word 0x18000006\nVHALT", "pm is out of range; got 3; the limit is 0..2"),
    ("nested loop", "VLOOP S0,2\nVLOOP S1,1\nVBAR\nVHALT", "loops do not nest (F_LOOP)"),
    ("vector length", "VSETI S0,129\nVSETVL S0\nVHALT", "bad vector length (F_VL); got 129; the limit is 1..128"),
    ("vector length 0", "VSETI S0,0\nVSETVL S0\nVHALT", "bad vector length (F_VL); got 0"),
    ("VRED mode", "VRED S0,v0,SUM\nVHALT", "VRED kinds 0-5 run in TREE mode (F_OPCODE); got FLAT"),
    ("VRED length", "VSETI S0,17\nVSETVL S0\nVSETMODE TREE\nVRED S0,v0,SUM\nVHALT", "whole beats (F_REDVL); got VL 17"),
    ("VRED length before mode", "VSETI S0,17\nVSETVL S0\nVRED S0,v0,SUM\nVHALT", "(F_REDVL)"),
    ("ALU in TREE", "VSETMODE TREE\nVMOV v0,v1\nVHALT", "TREE mode runs VRED only (F_OPCODE)"),
    (
        "V in a chain",
        "VSETMODE D2\nVMUL v0,v1,v2\nVADD v3,C,K1\nVHALT",
        "reads a V register (F_VSRC)",
    ),
    ("V in a chain, used", "VSETMODE D2\nVMUL v0,v1,v2\n+ VADD v3,C,v1\nVHALT", "got sc = V; the limit is C, S or K"),
    ("C in a head", "VADD v0,C,K1\nVHALT", "the head of a chain has no previous stage (F_CHAIN)"),
    ("C in a chain's head", "VSETMODE D2\nVMUL v0,C,v2\n+ VADD v3,C,K1\nVHALT", "(F_CHAIN)"),
    ("chain cut by VST", "VSETMODE D2\nVMUL v0,v1,v2\nVST v0,A0 FP16\nVHALT", "not an ALU word (F_OPCODE); got VST"),
    (
        "D4 cut",
        "VSETMODE D4\nVMUL v0,v1,v2\n+ VADD v3,C,K1\n+ VABS v3,C\nVHALT",
        "(F_OPCODE); got VHALT",
    ),
    (
        "chain over a loop's end",
        "VSETMODE D2\nVLOOP S0,1\nVMUL v0,v1,v2\n+ VADD v3,C,K1\nVHALT",
        "ends inside a loop",
    ),
    ("loop cuts a constant", "VLOOP S0,1\nVSETI S1,5\nVHALT", "VSETI and its constant are in different blocks"),
    ("constant missing", ".word 0xD0000000", "VSETI and its constant are in different blocks"),
]


@pytest.mark.parametrize(("text", "message"), [k[1:] for k in KERNELS], ids=[k[0] for k in KERNELS])
def test_kernels_refused(text: str, message: str) -> None:
    assert message in kernel_refused(text)


def test_unknown_lengths_and_modes_are_left_to_the_core() -> None:
    vector.check(SHIP, vector.assemble("VSETVL S0\nVHALT"))
    vector.check(SHIP, vector.assemble("VSETI S0,300\nVSETMODE TREE\nVRED S0,v0,SUM\nVSETVL S0\nVHALT"), vl=128)
    vector.check(SHIP, vector.assemble("VRED S0,P1,ANY\nVHALT"), vl=17)
    assert "(F_OPCODE)" in kernel_refused("VMOV v0,v1\nVHALT", mode=MODE.TREE)


def test_a_loop_is_judged_from_its_second_pass_too() -> None:
    text = "VSETI S1,4\nVLOOP S1,2\nVMOV v0,v1\nVSETMODE TREE\nVHALT"
    assert "TREE mode runs VRED only" in kernel_refused(text)


def test_a_loop_may_leave_two_lengths() -> None:
    text = "VSETI S0,16\nVLOOP S1,3\nVSETVL S0\nVSETI S0,17\nVSETMODE TREE\nVRED S0,v0,SUM\nVHALT"
    assert vector.check(SHIP, vector.assemble(text)).vl is None


def test_a_kernel_longer_than_the_program_memory() -> None:
    small = SHIP.with_(params={"imem": 4})
    with pytest.raises(EncodingRefusal, match="holds fewer words; got 5; the limit is 4"):
        vector.check(small, vector.assemble("VBAR\nVBAR\nVBAR\nVBAR\nVHALT"))


def test_smaller_l1() -> None:
    small = SHIP.with_(params={"vl1": 64})
    vector.check(small, vector.assemble("VFILL A0,63\nVHALT"))
    with pytest.raises(EncodingRefusal, match=r"word 0 \(VFILL A0,64\): the first L1 word is outside L1; got 64"):
        vector.check(small, vector.assemble("VFILL A0,64\nVHALT"))


# envelope streams


def stream(text: str, *descriptors: tuple[int, int, int]) -> np.ndarray:
    """IMEM for a kernel, DESC (ad, fld, value), RUN 0."""
    rows = [[1, i, 0, w] for i, w in enumerate(vector.assemble(text))]
    rows += [[2, ad, fld, value] for ad, fld, value in descriptors]
    return np.array([*rows, [3, 0, 0, 0]], np.int64)


def stream_refused(rows: np.ndarray, machine: Machine = SHIP, unit: int = 0) -> str:
    with pytest.raises(EncodingRefusal) as caught:
        vector.check_envelopes(machine, machine.units_of("VC")[unit], rows)
    assert caught.value.hint
    return str(caught.value)


FILL = "VFILL A0,0\nVHALT"
dim = vector.dimension
STREAMS: list[tuple[str, np.ndarray, str]] = [
    ("walk", stream(FILL, (0, 1, dim(32, 257))), "the walk is too long (F_LEN); got 257; the limit is 256 words"),
    ("walk 2d", stream(FILL, (0, 1, dim(32, 16)), (0, 2, dim(512, 17))), "(F_LEN); got 272"),
    (
        "L1 words",
        stream("VFILL A0,500\nVHALT", (0, 1, dim(32, 13))),
        "(first word + total); got 500 + 13; the limit is 512",
    ),
    ("base", stream(FILL, (0, 0, 0x10)), "multiples of 32; got base 0x10"),
    ("stride", stream(FILL, (0, 1, dim(16, 2))), "multiples of 32; got base 0x0, strides [16, 0, 0, 0]"),
    (
        "DRAM end",
        stream(FILL, (0, 0, 0xFFFFFFE0), (0, 1, dim(32, 2))),
        "the mesh's DRAM; got 0xffffffe0..0x100000020",
    ),
    ("DRAM start", stream(FILL, (0, 1, dim(-32, 2))), "the mesh's DRAM; got -0x20..0x20"),
    ("aperture", stream(FILL, (0, 0, 1 << 39)), "bits 38 and 39 of a unit's address are 0"),
    ("mesh", stream(FILL, (0, 0, 1 << 36)), "its own mesh's memory only; got mesh 1"),
    ("VLD start", stream("VLD v0,A1+8 FP16\nVHALT", (1, 0, 504)), "the walk starts outside L1; got 512"),
    ("VST below", stream("VST v0,A1-1 FP16\nVHALT"), "the walk starts outside L1; got -1"),
    ("field", np.array([[2, 0, 5, 0]]), "field fld: the core ignores this field; got 5"),
    ("descriptor", np.array([[2, 8, 0, 0]]), "field ad: no such descriptor; got 8; the limit is 0..7"),
    (
        "program memory",
        np.array([[1, 512, 0, 0]]),
        "field addr: outside program memory; got 512",
    ),
    ("pc", np.array([[3, 512, 0, 0]]), "field pc: outside program memory; got 512"),
    ("no kernel", np.array([[3, 7, 0, 0]]), "the kernel runs past its words; got pc 7"),
    ("envelope", np.array([[4, 0, 0, 0]]), "field op: the core has no such envelope; got 4"),
]


@pytest.mark.parametrize(("rows", "message"), [s[1:] for s in STREAMS], ids=[s[0] for s in STREAMS])
def test_streams_refused(rows: np.ndarray, message: str) -> None:
    assert message in stream_refused(rows)


def node(target: str, record: int, bound: int) -> np.ndarray:
    return stream(f"VDRAIN A0,0 -> {target}\nVHALT", (0, 0, record), (0, 1, dim(0, bound)))


NODES: list[tuple[str, np.ndarray, str]] = [
    ("nobody", node("(3,1) buf 0", 0, 1), "no unit at the target coordinate; got (3,1) of mesh 0"),
    ("VC buffer", node("(2,0) buf 1", 0, 1), "the target does not take this buffer; got buffer 1 of VC(2,0)"),
    ("MG buffer", node("(1,1) buf 3", 0, 1), "the target does not take this buffer; got buffer 3 of MG(1,1)"),
    (
        "VC range",
        node("(2,0) buf 0", vector.node_record(500), 13),
        "buffer (granule + words); got 513",
    ),
    ("A range", node("(1,1) buf 0", vector.node_record(2045), 4), "got 2049; the limit is 2048 granules"),
    ("tile range", node("(1,1) buf 2", vector.node_record(1022), 4), "got 1026; the limit is 1024 granules"),
    (
        "half a sub-tile",
        node("(1,1) buf 2", vector.node_record(3), 2),
        "pairs of granules; got granule 3",
    ),
    ("record", node("(2,0) buf 0", 1 << 34, 1), "bits above the record are 0; got 0x400000000"),
    ("remote", node("(0,1) buf 0", vector.node_record(0, final=(1, 1)), 1), "names another mesh of the machine; got 0"),
    ("walk", node("(2,0) buf 0", 0, 257), "(F_LEN); got 257"),
]


@pytest.mark.parametrize(("rows", "message"), [n[1:] for n in NODES], ids=[n[0] for n in NODES])
def test_node_drains_refused(rows: np.ndarray, message: str) -> None:
    assert message in stream_refused(rows)


def test_node_drains_that_pass() -> None:
    vector.check_envelopes(SHIP, VC, node("(2,0) buf 0", vector.node_record(500, ack=(0, 1)), 12))
    vector.check_envelopes(SHIP, VC, node("(1,1) buf 1", vector.node_record(2044), 4))
    vector.check_envelopes(SHIP, VC, node("(1,1) buf 2", vector.node_record(1020), 4))
    remote = node("(0,1) buf 2", vector.node_record(0, mesh=1, final=(1, 1)), 2)
    vector.check_envelopes(MULTI, MULTI.units_of("VC")[0], remote)


def test_only_the_descriptors_at_the_run_count() -> None:
    rows = stream(FILL, (0, 0, 1), (0, 0, 64))
    vector.check_envelopes(SHIP, VC, rows)
    later = np.vstack((rows, [[2, 0, 0, 1], [2, 0, 0, 96], [3, 0, 0, 0], [2, 0, 0, 1], [3, 0, 0, 0]]))
    text = stream_refused(later)
    assert text.startswith(f"VC(1,0), instruction {len(later) - 1} (RUN 0), field A0 at pc 0 (VFILL A0,0)")


def test_a_rewritten_kernel_is_the_one_that_runs() -> None:
    rows = np.vstack((stream(FILL), [[1, 0, 0, vector.assemble("VFILL A1,0")[0]], [2, 1, 0, 8], [3, 0, 0, 0]]))
    assert f"instruction {len(rows) - 1} (RUN 0), field A1 at pc 0" in stream_refused(rows)


def test_a_constant_that_was_never_written() -> None:
    rows = np.array([[1, 0, 0, vector.seti(0, 5)[0]], [1, 2, 0, 0xF8000000], [3, 0, 0, 0]])
    assert "VSETI has no constant behind it" in stream_refused(rows)


def test_state_carries_between_programs() -> None:
    first = vector.check_envelopes(SHIP, VC, stream("VSETMODE TREE\nVFILL A0,0\nVHALT", (0, 0, 64))[:-1])
    assert first.mode == MODE.FLAT
    second = vector.check_envelopes(SHIP, VC, np.array([[3, 0, 0, 0]]), first)
    assert second.mode == MODE.TREE, "chain mode survives a RUN"
    wrong = np.array([[2, 0, 0, 8], [3, 0, 0, 0]])
    with pytest.raises(EncodingRefusal, match="multiples of 32; got base 0x8"):
        vector.check_envelopes(SHIP, VC, wrong, second)
    alu = np.array([[1, 0, 0, vector.assemble("VMOV v0,v1")[0]], [1, 1, 0, 0xF8000000], [3, 0, 0, 0]])
    with pytest.raises(EncodingRefusal, match=r"instruction 2 \(RUN 0\), word 0 \(VMOV v0,v1\): TREE mode"):
        vector.check_envelopes(SHIP, VC, alu, second)


def test_the_users_line_is_named() -> None:
    line = SourceLine("user.py", 4, "y[i] = f(x[i])")
    with pytest.raises(EncodingRefusal) as caught:
        vector.check_envelopes(SHIP, VC, stream(FILL, (0, 0, 8)), source=lambda _i: line)
    assert caught.value.source == line
