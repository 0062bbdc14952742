"""Every fault of datasheet 6.3, and everything that stops the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from kohakutpu import machines
from kohakutpu.isa import vector as isa
from kohakutpu.isa.vector import FAULT, OP, SRC
from kohakutpu.units import errors, state
from units_vector.rig import Core

W = isa.WORDS.encode


def fault(core: Core, program: str | list[int], code: int, pc: int) -> None:
    assert core.run(program) == state.FAULTED, core.note
    assert core.note[:2].tolist() == [state.FAULTED, code]
    assert int(core.note[6]) == pc
    assert errors.fault("VC", code).rule.startswith(FAULT(code).name)


def raised(core: Core, program: str | list[int], code: int, *details: int) -> None:
    retired = int(core.vc.retired[core.u])
    words = isa.assemble(program) if isinstance(program, str) else program
    assert core.run(program) == state.RAISED, core.note
    assert core.note[:2].tolist() == [state.RAISED, code]
    assert core.note[2 : 2 + len(details)].tolist() == list(details)
    assert int(core.vc.retired[core.u]) == retired + len(words) + 1  # the words written, not the RUN
    assert not errors.error(code, core.note[2:6].tolist()).rule.startswith("error ")


def plain(word: int, bits: int) -> int:
    """A word with some bits changed, whatever an encoder thinks of it."""
    return word ^ bits


@pytest.mark.parametrize("dtype", [0, 3, 4, 7])
def test_dtype(core: Core, dtype: int) -> None:
    change = (1 ^ dtype) << 24
    fault(core, [plain(W("VLD", vd=1), change)], FAULT.F_DTYPE, 0)
    fault(core, [plain(W("VST", vd=1), change)], FAULT.F_DTYPE, 0)
    fault(core, [W("VBAR"), plain(W("VCVT", vd=1, va=2), change)], FAULT.F_DTYPE, 1)


def test_chain_sources(core: Core) -> None:
    """A V selector in a word after the head faults even where the operation does not use it."""
    core.ok("VSETMODE D2")
    head = W("VADD", vd=1, va=2, vc=3)
    free = {"sa": SRC.C, "sb": SRC.K, "sc": SRC.K}
    assert core.run([head, W("VMOV", vd=1, **free)]) == state.RETIRED
    for which in ("sa", "sb", "sc"):
        fault(core, [head, W("VMOV", vd=1, **{**free, which: SRC.V})], FAULT.F_VSRC, 1)
    for bad in ({"sa": SRC.C}, {"sc": SRC.C}):
        fault(core, [W("VADD", vd=1, **bad), W("VMOV", vd=1, **free)], FAULT.F_CHAIN, 0)
    assert core.run([W("VADD", vd=1, sb=SRC.C), W("VMOV", vd=1, **free)]) == state.RETIRED  # VADD reads no b
    core.ok("VSETMODE FLAT")
    fault(core, [W("VMOV", vd=1, sa=SRC.C)], FAULT.F_CHAIN, 0)


def test_the_first_faulty_word_of_a_chain_counts(core: Core) -> None:
    core.ok("VSETMODE D4")
    good, bad = W("VMOV", vd=1, sa=SRC.C, sb=SRC.K, sc=SRC.K), W("VMOV", vd=1)
    fault(core, [W("VMOV", vd=1), good, bad, W("VBAR")], FAULT.F_VSRC, 2)
    fault(core, [W("VMOV", vd=1), good, W("VBAR"), bad], FAULT.F_OPCODE, 2)
    fault(core, [W("VMOV", vd=1, sa=SRC.C), W("VBAR"), bad, bad], FAULT.F_CHAIN, 0)
    assert not core.v(1).any()


@pytest.mark.parametrize("op", [op.name for op in isa.ALU_SOURCES])
def test_tree_runs_no_alu_word(core: Core, op: str) -> None:
    core.ok("VSETMODE TREE")
    fault(core, [W(op)], FAULT.F_OPCODE, 0)


@pytest.mark.parametrize("other", [op.name for op in OP if op >= OP.VCVT])
def test_a_chain_holds_alu_words_only(core: Core, other: str) -> None:
    core.ok("VSETMODE D2")
    fault(core, [W("VMOV"), W(other)], FAULT.F_OPCODE, 1)
    core.ok("VSETMODE FLAT")


@pytest.mark.parametrize("kind", ["SUM", "MAX", "MIN", "SUMSQ", "DOT", "EXPSUM"])
@pytest.mark.parametrize("mode", ["FLAT", "D2", "D4"])
def test_reductions_need_tree(core: Core, kind: str, mode: str) -> None:
    core.ok(f"VSETMODE {mode}")
    fault(core, [W("VRED", vd=1, kind=kind)], FAULT.F_OPCODE, 0)
    core.ok("VSETI S0,17\nVSETVL S0")
    fault(core, [W("VRED", vd=1, kind=kind)], FAULT.F_REDVL, 0)


def test_walks_beyond_256_words(core: Core) -> None:
    core.dram(0, np.zeros(256 * 16, np.uint16))
    core.put(0, np.zeros(512 * 16, np.uint16))
    core.desc(0, 0, (32, 256))
    core.ok("VFILL A0,0\nVBAR\nVDRAIN A0,0\nVDRAIN A0,0 -> (1,1) buf 0")
    for dims in ([(32, 257)], [(32, 128), (0, 3)], [(0, 65535), (0, 65535), (0, 65535), (0, 65535)]):
        core.desc(0, 0, *dims)
        for word in ("VFILL A0,0", "VDRAIN A0,0", "VDRAIN A0,0 -> (1,1) buf 0"):
            fault(core, word, FAULT.F_LEN, 0)


def test_nested_loops(core: Core) -> None:
    fault(core, "VSETI S1,3\nVLOOP S1,2\nVBAR\nVLOOP S1,1\nVBAR", FAULT.F_LOOP, 4)
    core.ok("VBAR")  # the loop is over with its RUN


@pytest.mark.parametrize("vl", [0, 129, 0x3F8000, 0xFFFFFF])
def test_vector_lengths(core: Core, vl: int) -> None:
    fault(core, f"VSETI S1,{vl}\nVSETVL S1", FAULT.F_VL, 2)
    assert int(core.vc.core[0, 0]) == 128


def test_a_fault_leaves_what_was_done(core: Core) -> None:
    core.ok("VSETI S1,20\nVSETVL S1")
    fault(core, "VSETI S1,16\nVSETVL S1\nVADD v1,v1,K1\nVSETMODE D2\nVLOOP S2,1\nVSETVL S2", FAULT.F_VL, 6)
    assert core.vc.core[0, :2].tolist() == [16, isa.MODE.D2]
    assert core.v(1)[:17].tolist() == [0x3F8000] * 16 + [0]
    assert int(core.vc.retired[0]) == 5 + 8 + 1


# A bad inbound burst


@pytest.mark.parametrize(("offset", "n"), [(512, 1), (510, 3), (65535, 1)])
def test_a_bad_burst_is_dropped_whole_and_reported_once(core: Core, offset: int, n: int) -> None:
    data = np.full((n, 4), 5, np.uint64)
    assert core.vector.vector_receive(core.vc, 0, 0, offset, data, n) == 0
    assert not core.marks(0, 512).any()
    assert core.step(isa.ENV_IMEM, 7, 0, 5) == state.FAULTED
    assert core.note[:2].tolist() == [state.FAULTED, FAULT.F_CUDATA]
    assert int(core.vc.word[7]) == 5
    core.ok("VSETI S3,9")


def test_a_bad_burst_is_reported_before_the_first_word(core: Core) -> None:
    core.write("VSETI S3,9\nVHALT")
    core.vector.vector_receive(core.vc, 0, 0, 600, np.zeros((1, 4), np.uint64), 1)
    assert core.step(isa.ENV_RUN) == state.FAULTED
    assert core.note[:2].tolist() == [state.FAULTED, FAULT.F_CUDATA]
    assert core.s(3) == 0
    assert core.step(isa.ENV_RUN) == state.RETIRED
    assert core.s(3) == 9


def test_a_buffer_it_does_not_have(core: Core) -> None:
    assert core.vector.vector_receive(core.vc, 0, 2, 0, np.zeros((1, 4), np.uint64), 1) == state.E_NODE


# What stops the simulator


def test_l1_ranges(core: Core) -> None:
    core.put(0, np.zeros(512 * 16, np.uint16))
    core.dram(0, np.zeros(64, np.uint16))
    for base, off in ((512, 0), (0, -1), (505, 0), (1 << 39, 0)):
        core.desc(0, base, (1, 8))
        first = base + off if not 0 <= base + off < 512 else 512
        raised(core, f"VLD v1,A0{off:+} FP16", state.E_L1_RANGE, first, 1, 512)
        raised(core, f"VST v1,A0{off:+} FP16", state.E_L1_RANGE, first, 1, 512)
    core.desc(0, 497, (2, 8))
    raised(core, "VLD v1,A0+0 FP32", state.E_L1_RANGE, 511, 2, 512)
    core.desc(0, 0, (32, 2))
    raised(core, "VFILL A0,511", state.E_L1_RANGE, 511, 2, 512)
    raised(core, "VDRAIN A0,511", state.E_L1_RANGE, 511, 2, 512)
    raised(core, "VDRAIN A0,511 -> (1,1) buf 0", state.E_L1_RANGE, 511, 2, 512)
    raised(core, [plain(W("VFILL", off=0), 0x3000)], state.E_L1_RANGE, 0x3000, 2, 512)


def test_l1_never_written(core: Core) -> None:
    core.put(0, np.zeros(4 * 16, np.uint16))
    core.desc(0, 0, (1, 8))
    core.desc(1, 0, (32, 5))
    raised(core, "VLD v1,A0+0 FP16", state.E_L1_UNWRITTEN, -1, 4)
    raised(core, "VLD v1,A0+3 FP32", state.E_L1_UNWRITTEN, -1, 4)
    raised(core, "VDRAIN A1,0", state.E_L1_UNWRITTEN, -1, 4)
    raised(core, "VDRAIN A1,0 -> (1,1) buf 0", state.E_L1_UNWRITTEN, -1, 4)
    assert int(core.out.used[0]) == 0
    core.ok("VSETI S0,64\nVSETVL S0\nVLD v1,A0+0 FP16")


def test_pending_fills(core: Core) -> None:
    """Until VBAR the words are not there; a second VFILL waits for the first; VHALT waits too."""
    core.dram(0, np.full(64 * 16, 0x3C00, np.uint16))
    core.put(8, np.zeros(16 * 8, np.uint16))
    core.desc(0, 0, (32, 2))
    core.desc(1, 0, (1, 8))
    raised(core, "VFILL A0,4\nVLD v1,A1+0 FP16", state.E_L1_UNWRITTEN, -1, 0)
    core.put(0, np.zeros(16 * 4, np.uint16))
    raised(core, "VFILL A0,4\nVLD v1,A1+0 FP16", state.E_VFILL_PENDING, 4)
    raised(core, "VFILL A0,4\nVST v1,A1-1 FP16\nVST v1,A1+0 FP16", state.E_L1_RANGE)
    raised(core, "VFILL A0,4\nVST v1,A1+0 FP16", state.E_VFILL_PENDING, 4)
    raised(core, "VFILL A0,4\nVDRAIN A0,5", state.E_VFILL_PENDING, 5)
    raised(core, "VFILL A0,4\nVDRAIN A0,3 -> (1,1) buf 0", state.E_VFILL_PENDING, 4)
    core.ok("VFILL A0,4\nVFILL A0,6\nVDRAIN A0,4\nVBAR\nVLD v1,A1+0 FP16")
    core.ok("VFILL A0,4")
    core.ok("VLD v1,A1+0 FP16")
    assert core.run("VFILL A0,4\nVSETVL S9") == state.FAULTED
    core.ok("VLD v1,A1+0 FP16")


@pytest.mark.parametrize("address", [1 << 20, (1 << 20) - 16, 1 << 36, 1 << 38, 1 << 39, 48, -32])
def test_dram_addresses(core: Core, address: int) -> None:
    core.put(0, np.zeros(16 * 2, np.uint16))
    core.desc(0, address & (1 << 40) - 1) if address >= 0 else core.desc(0, 0, (-32, 2))
    if address < 0:
        core.dram(0, np.zeros(16, np.uint16))
    raised(core, "VFILL A0,0", state.E_ADDRESS, address)
    core.put(0, np.zeros(16 * 2, np.uint16))
    raised(core, "VDRAIN A0,0", state.E_ADDRESS, address)


def test_another_mesh() -> None:
    core = Core(machines.load("multimesh_4"), u=2)
    assert core.unit.mesh == 2
    core.dram(64, np.arange(16, dtype=np.uint16))
    core.desc(0, 2 << 36 | 64)
    core.ok("VFILL A0,7\nVBAR")
    np.testing.assert_array_equal(core.halves(7), np.arange(16))
    core.desc(0, 64)
    raised(core, "VFILL A0,7", state.E_ADDRESS, 64)
    core.desc(0, 2 << 36 | 96)
    raised(core, "VFILL A0,7", state.E_UNWRITTEN, 2, 96)
    core.put(0, np.zeros(16, np.uint16))
    core.desc(1, isa.node_record(0))
    core.ok("VDRAIN A1,0 -> (1,1) buf 0")
    assert int(core.out.head[0, 0]) == 2


def test_dram_never_written(core: Core) -> None:
    core.dram(0, np.zeros(48, np.uint16))
    core.desc(0, 0, (32, 4))
    raised(core, "VFILL A0,0", state.E_UNWRITTEN, 0, 96)


def test_a_refused_transfer_moves_nothing(core: Core) -> None:
    core.dram(0, np.full(48, 7, np.uint16))
    core.put(0, np.full(64, 5, np.uint16))
    core.desc(0, 0, (32, 4))
    raised(core, "VFILL A0,0", state.E_UNWRITTEN, 0, 96)
    assert core.halves(0, 4).tolist() == [5] * 64
    assert core.marks(0, 5).tolist() == [1, 1, 1, 1, 0]
    core.desc(0, (1 << 20) - 64, (32, 4))
    raised(core, "VDRAIN A0,0", state.E_ADDRESS, 1 << 20)
    assert not core.mem.written[((1 << 20) - 64) // 32 :][:2].any()


def test_reserved_fields(core: Core) -> None:
    raised(core, [W("VMOV") | 3 << 1], state.E_FIELD)
    raised(core, [W("VLOOP") & ~(15 << 9)], state.E_FIELD)


def test_programs_without_an_end(core: Core) -> None:
    """Erased words are VMOV v0,v0; nothing wraps to word 0."""
    assert core.run(at=500) == state.RAISED
    assert core.note[1:3].tolist() == [state.E_FETCH, 512]
    assert int(core.note[6]) == 512
    core.write([W("VSETI")], at=511)
    assert core.run(at=511) == state.RAISED
    assert int(core.note[1]) == state.E_FETCH
    core.write([*isa.assemble("VSETMODE D4"), 0, W("VMOV", sa=SRC.K, sb=SRC.K, sc=SRC.K)], at=509)
    assert core.run(at=509) == state.RAISED
    assert core.note[[1, 6]].tolist() == [state.E_FETCH, 512]


def test_more_bursts_than_the_model_holds(core: Core) -> None:
    core.put(0, np.zeros(256 * 16, np.uint16))
    core.desc(0, 0, (0, 256))
    raised(core, "VSETI S1,9\nVLOOP S1,1\nVDRAIN A0,0 -> (1,1) buf 0", state.E_OUTBOX, 9, 9 * 256)
