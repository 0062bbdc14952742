"""What words do besides arithmetic: the datasheet's encodings executed, lengths, predicates, chains, loops (6)."""

from __future__ import annotations

import numpy as np
import pytest

from kohakutpu.isa import vector as isa
from kohakutpu.units import state
from kohakutpu.units import vector_state as vs
from units_vector import exact
from units_vector.rig import Core

ONE, TWO, HALF, THREE = 0x3F8000, 0x400000, 0x3F0000, 0x404000


def floats(*values: float) -> list[int]:
    """E8M15 codes of floats that have 16 bits."""
    return [int(np.float32(v).view(np.uint32)) >> 8 for v in values]


def values(core: Core, v: int, n: int = 128) -> list[float]:
    return [float(x) for x in (core.v(v)[:n] << np.uint32(8)).view(np.float32)]


# Reset and envelopes


def test_reset_state(core: Core) -> None:
    assert [int(k) for k in core.vc.constant[0]] == [0, 0x3F8000, 0xBF8000, 0]
    assert list(core.vc.core[0]) == [128, isa.MODE.FLAT, 0]
    assert not core.vc.bits.reshape(-1, vs.ROWS, 128)[:, : vs.ROW_K].any()
    assert not core.marks(0, 512).any()
    assert all(list(d) == [0, 0, 0, 0, 0, 1, 1, 1, 1] for d in core.vc.descriptor)


def test_envelopes_write_state(core: Core) -> None:
    """The datasheet's payloads, decoded as the control plane does it."""
    payloads = [int("1028" + "0" * 52 + "deadbeef", 16), int("2640020004" + "0" * 54, 16)]
    payloads += [int("2600000004000000000000000000000000000000000000020000000000000000", 16)]
    table = np.array([[p >> 64 * k & (1 << 64) - 1 for k in range(4)] for p in payloads], np.uint64)
    for op, a, b, value in isa.decode_envelopes(table):
        assert core.step(op, a, b, value) == state.RETIRED
    assert int(core.vc.word[5]) == 0xDEADBEEF
    d = core.vc.descriptor[3]
    assert (d[vs.BASE], d[vs.STRIDE], d[vs.BOUND]) == (0x1000000040, 32, 64)
    assert list(isa.decode_envelopes(np.array([[0, 0, 0, 0x3038 << 48]], np.uint64))[0]) == [3, 7, 0, 0]
    assert int(core.vc.retired[0]) == 3


def test_descriptor_fields(core: Core) -> None:
    """Negative strides, bound 0 reads as 1, fields 5 to 7 are ignored."""
    core.step(isa.ENV_DESC, 2, 4, isa.dimension(-131072, 0))
    core.step(isa.ENV_DESC, 2, 1, isa.dimension(131071, 65535))
    before = core.vc.descriptor.copy()
    for fld in (5, 6, 7):
        assert core.step(isa.ENV_DESC, 2, fld, (1 << 34) - 1) == state.RETIRED
    np.testing.assert_array_equal(core.vc.descriptor, before)
    assert list(before[2]) == [0, 131071, 0, 0, -131072, 65535, 1, 1, 1]


def test_unknown_envelope_faults(core: Core) -> None:
    assert core.step(7) == state.FAULTED
    assert int(core.note[1]) == isa.FAULT.F_OPCODE


def test_state_persists_between_runs(core: Core) -> None:
    core.ok("VSETI S1,20\nVSETVL S1\nVSETMODE D2\nVSETI K3,0x404000")
    assert list(core.vc.core[0][:2]) == [20, isa.MODE.D2]
    core.set_v(1, [ONE] * 128)
    core.ok("VMOV v2,v1\n+ VMUL v3,C,K3", at=100)
    assert values(core, 3, 21) == [3.0] * 20 + [0.0]


# The datasheet's example words


EXAMPLES = [
    "00024000", "186E0020", "30862840", "280AAC12", "58000208", "A1460008", "AAAE3FFF",
    "E8000010", "F0600040", "F3642040", "98020000", "98040AA0", "C0000000", "C8004000",
    "D0080000", "D6000000", "D8002600", "B2042000", "E0000000", "F8000000",
]  # fmt: skip


def prepared(core: Core) -> Core:
    """Registers, descriptors and memory that every example word can work on."""
    for v in range(16):
        core.set_v(v, floats(*[v + i / 8 for i in range(128)]))
    core.ok("VSETI S0,64\nVSETI S1,2\nVSETI S4,0x400000")
    core.put(0, np.full(512 * 16, 0x3C00, np.uint16))
    core.dram(0, np.arange(4096, dtype=np.uint16))
    core.desc(0, 64, (32, 4))
    core.desc(2, 100, (1, 8))
    core.desc(3, 4096, (32, 64))
    core.desc(5, 301, (2, 8))
    return core


def one(core: Core, word: str) -> Core:
    code = int(word, 16)
    assert core.run([code, *([0] if code >> 27 == isa.OP.VSETI else [])]) == state.RETIRED, core.note
    return core


def test_every_example_word_executes(core: Core) -> None:
    for word in EXAMPLES:
        code = int(word, 16)
        if code >> 27 == isa.OP.VRED:
            continue  # in TREE, below
        prepared(core)
        words = [code, *([0] if code >> 27 == isa.OP.VSETI else [])]
        words += [isa.WORDS.encode("VBAR")] * 3 if code >> 27 == isa.OP.VLOOP else []
        assert core.run([*words, *isa.assemble("VSETMODE FLAT")]) == state.RETIRED, word


def test_examples_of_arithmetic_words(core: Core) -> None:
    prepared(core)
    v = {i: values(core, i) for i in range(16)}
    assert values(one(core, "00024000"), 1) == v[2]
    assert values(one(core, "186E0020"), 7) == [x + 1 for x in v[0]]
    prepared(core)
    expect = [exact.fma(a, TWO, c) for a, c in zip(core.v(1).tolist(), core.v(2).tolist())]
    assert one(core, "30862840").v(3).tolist() == expect
    prepared(core)
    core.p(2)[::2] = 1
    expect = [exact.mul(a, b) for a, b in zip(core.v(5).tolist(), core.v(6).tolist())]
    old = core.v(5).tolist()
    got = one(core, "280AAC12").v(5).tolist()
    assert got[::2] == expect[::2]
    assert got[1::2] == old[1::2]
    prepared(core)
    assert one(core, "58000208").p(1).all()


def test_examples_of_memory_words(core: Core) -> None:
    prepared(core)
    core.put(108, np.full(8 * 16, 0x4000, np.uint16))
    assert values(one(core, "A1460008"), 3) == [2.0] * 128
    expect = values(core, 7)
    one(core, "AAAE3FFF")
    assert core.singles(300, 16).view(np.float32).tolist() == expect
    one(core, "E8000010")
    np.testing.assert_array_equal(core.halves(16, 4), np.arange(32, 96))
    core.put(64, np.arange(64 * 16, dtype=np.uint16) + 7)
    one(core, "F0600040")
    at = int(core.mem.base[0]) + 4096
    np.testing.assert_array_equal(core.mem.half[at // 2 : at // 2 + 1024], np.arange(1024) + 7)
    assert core.mem.written[at // 32 : at // 32 + 64].all()


def test_examples_of_scalar_words(core: Core) -> None:
    prepared(core)
    assert int(one(core, "C0000000").vc.core[0, vs.VL]) == 64
    assert int(one(core, "C8004000").vc.core[0, vs.MODE]) == isa.MODE.D4
    core.ok("VSETMODE FLAT")
    assert core.run([int("D0080000", 16), 0xABCDEF]) == state.RETIRED
    assert core.s(4) == 0xABCDEF
    assert core.run([int("D6000000", 16), 0x123456]) == state.RETIRED
    assert int(core.vc.constant[0, 3]) == 0x123456
    prepared(core)
    core.ok("VSETI S1,0x404000")
    assert values(one(core, "B2042000"), 2, 64) == [3.0] * 64
    prepared(core)
    core.ok("VSETI S1,5\nVSETI S0,0x3F8000\nVMOV v0,K0")
    core.run([int("D8002600", 16), *isa.assemble("VADD v0,v0,S0\nVADD v0,v0,S0\nVADD v0,v0,S0")])
    assert values(core, 0, 1) == [15.0]


def test_examples_of_reductions(core: Core) -> None:
    prepared(core)
    core.ok("VSETI S0,128\nVSETVL S0\nVSETMODE TREE")
    core.set_v(0, [ONE] * 128)
    assert one(core, "98020000").s(1) == floats(128.0)[0]
    assert one(core, "98040AA0").s(2) == floats(256.0)[0]
    assert values(core, 5) == [2.0] * 128


# Lengths and predicates


@pytest.mark.parametrize("vl", [1, 2, 15, 16, 17, 31, 33, 64, 100, 127, 128])
def test_lengths(core: Core, vl: int) -> None:
    """ALU words write VL elements; VLD, VSHUF, VBCAST write and VST stores whole chunks."""
    end = -(-vl // 16) * 16
    core.put(0, np.full(128, 0x4200, np.uint16))
    for v in range(1, 9):
        core.set_v(v, [TWO] * 128)
    core.desc(0, 0, (1, 8))
    core.halves(20, 8)[:] = 0x1234
    core.ok(
        f"VSETI S0,{vl}\nVSETVL S0\nVSETI S1,0x404000\nVADD v1,v8,K1\nVADD v2,v2,K1\nVCMPGT P1,v8,K1\n"
        "VLD v3,A0+0 FP16\nVSHUF v4,v3,S0\nVBCAST v5,S1\nVST v8,A0+20 FP16\nVCVT v6,v3 FP32"
    )
    for v, n in {1: vl, 2: vl, 3: end, 4: end, 5: end, 6: end}.items():
        assert values(core, v) == [3.0] * n + [2.0] * (128 - n), v
    assert core.p(1).tolist() == [1] * vl + [0] * (128 - vl)
    assert core.halves(20, 8).tolist() == [0x4000] * end + [0x1234] * (128 - end)
    assert core.marks(20, 8).tolist() == [1] * (end // 16) + [0] * (8 - end // 16)


def test_predicated_compares_and_and_or(core: Core) -> None:
    a, b = [i % 4 for i in range(128)], [i % 7 for i in range(128)]
    core.set_v(0, floats(*a))
    core.set_v(1, floats(*b))
    core.set_v(2, [TWO] * 128)
    core.ok("VCMPEQ P0,v0,v2\nVCMPEQ P0,v1,v2 ?P0\nVCMPEQ P1,v0,v2\nVCMPEQ P1,v1,v2 ?!P1\nVMOV v3,K1 ?!P1")
    assert core.p(0).tolist() == [int(x == 2 and y == 2) for x, y in zip(a, b)]
    either = [int(x == 2 or y == 2) for x, y in zip(a, b)]
    assert core.p(1).tolist() == either
    assert values(core, 3) == [1.0 - e for e in either]


def test_a_masked_tail_stays(core: Core) -> None:
    core.p(3)[:] = 1
    core.ok("VSETI S0,20\nVSETVL S0\nVMOV v1,K1 ?P3\nVMOV v2,K1 ?!P3")
    assert values(core, 1) == [1.0] * 20 + [0.0] * 108
    assert values(core, 2) == [0.0] * 128


def test_shuffle(core: Core) -> None:
    core.set_v(1, floats(*range(128)))
    for count in (0, 1, 15, 16, 0x3F8005):
        core.ok(f"VSETI S2,{count}\nVSHUF v2,v1,S2\nVSHUF v3,v1,S2")
        want = [16 * (i // 16) + (i + count) % 16 for i in range(128)]
        assert values(core, 2) == want
        core.ok("VMOV v4,v1\nVSHUF v4,v4,S2")
        assert values(core, 4) == want


def test_scalars_are_sampled_at_issue(core: Core) -> None:
    core.ok("VSETI S1,0x3F8000\nVADD v1,S1,K0\nVSETI S1,0x400000\nVADD v2,S1,K0\nVBCAST S2,v1\nVADD v3,S2,S1")
    assert [values(core, v, 1) for v in (1, 2, 3)] == [[1.0], [2.0], [3.0]]


# Chains


def test_chains_round_every_stage(core: Core) -> None:
    a = [0x3F8001 + 2 * i for i in range(128)]
    core.set_v(0, a)
    core.set_v(1, a[::-1])
    core.ok("VSETI S1,0x3FC001\nVSETMODE D4\nVMUL v9,v0,v1\n+ VADD v9,C,S1\n+ VEXP2 v9,C\n+ VMUL v2,C,C\nVSETMODE FLAT")
    want: list[int] = []
    for x, y in zip(a, a[::-1]):
        stage = exact.exp2(exact.add(exact.mul(x, y), 0x3FC001))
        want.append(exact.mul(stage, stage))
    assert core.v(2).tolist() == want
    assert not core.v(9).any()


def test_only_the_last_word_of_a_chain_writes(core: Core) -> None:
    """Its vd, predicate and compare-ness count; a compare inside is 1.0 or +0."""
    core.set_v(0, floats(*[i - 64 for i in range(128)]))
    core.p(1)[:64] = 1
    core.ok(
        "VSETMODE D2\nVCMPLT P3,v0,K0\n+ VADD v2,C,C ?P1\nVADD v9,v0,v0\n+ VCMPGT P2,C,K1\n"
        "VCMPGT P3,v0,K1 ?P3\n+ VMOV v3,C\nVSETMODE FLAT"
    )
    assert values(core, 2) == [2.0] * 64 + [0.0] * 64
    assert core.p(2).tolist() == [int(2 * (i - 64) > 1) for i in range(128)]
    assert values(core, 3) == [float(i - 64 > 1) for i in range(128)]
    assert not core.p(3).any()
    assert not core.v(9).any()


# Descriptors


def test_walks(core: Core) -> None:
    """Dimension 0 is fastest; past its end a walk repeats its last address."""
    core.put(0, np.repeat(np.arange(512, dtype=np.uint16), 16))
    core.desc(0, 100, (3, 2), (-20, 2), (7, 2))
    core.write("VLD v1,A0-4 FP16\nVST v1,A1+0 FP16\nVHALT")
    core.desc(1, 200, (1, 8))
    assert core.step(3) == state.RETIRED
    want = [96, 99, 76, 79, 103, 106, 83, 86]
    assert core.halves(200, 8)[::16].tolist() == want
    core.desc(0, 100, (3, 2), (-20, 2))
    assert core.step(3) == state.RETIRED
    assert core.halves(200, 8)[::16].tolist() == [96, 99, 76, 79, 79, 79, 79, 79]


def test_fills_and_drains_follow_their_walk(core: Core) -> None:
    core.dram(0, np.arange(8192, dtype=np.uint16))
    core.desc(0, 4096, (-64, 3), (32, 2))
    core.desc(1, 65536, (64, 3), (4096, 2))
    core.ok("VFILL A0,506\nVBAR\nVDRAIN A1,506")
    want = [2048 - 32 * j + 16 * i for i in range(2) for j in range(3)]
    assert core.halves(506, 6)[::16].tolist() == want
    got = [int(core.mem.half[(65536 + 4096 * i + 64 * j) // 2]) for i in range(2) for j in range(3)]
    assert got == want
    assert not core.mem.written[65536 // 32 + 1]


def test_loops_reuse_their_words(core: Core) -> None:
    """A count of 0 runs once; immediates count as words; the word after the body runs once."""
    for count, times in ((0, 1), (1, 1), (4, 4)):
        core.ok(
            f"VMOV v1,K0\nVMOV v2,K0\nVSETI S1,{count}\nVLOOP S1,3\nVSETI S2,0x3F8000\nVADD v1,v1,S2\nVADD v2,v2,K1"
        )
        assert (values(core, 1, 1), values(core, 2, 1)) == ([float(times)], [1.0])
    core.ok("VMOV v1,K0\nVSETI S1,2\nVLOOP S1,1\nVADD v1,v1,K1\nVLOOP S1,1\nVADD v1,v1,K1")
    assert values(core, 1, 1) == [4.0]


def test_long_loop_body(core: Core) -> None:
    core.ok("VMOV v1,K0\nVSETI S1,100\nVLOOP S1,15\n" + "VADD v1,v1,K1\n" * 15)
    assert values(core, 1, 1) == [1500.0]


# Nodes


def test_vdrain_to_a_node(core: Core) -> None:
    core.put(64, np.arange(3 * 16, dtype=np.uint16))
    core.desc(3, isa.node_record(300, ack=(1, 4)), (999, 3))
    core.ok("VDRAIN A3,64 -> (2,1) buf 0 ack")
    assert core.out.used.tolist() == [1, 3]
    assert core.out.head[0].tolist() == [0, 2, 1, 0, 300, 3, 1, 1, 4, 0]
    np.testing.assert_array_equal(core.out.data[:3].view(np.uint16).ravel(), np.arange(48))
    core.ok("VDRAIN A3,64 -> (1,1) buf 5")
    assert core.out.used.tolist() == [2, 6]
    assert core.out.head[1].tolist() == [0, 1, 1, 5, 300, 3, 0, 1, 4, 3]


def test_vdrain_to_a_remote_node(core: Core) -> None:
    """The final coordinate and mesh of the record; dst is only the way out."""
    core.put(0, np.zeros(16, np.uint16))
    core.desc(3, isa.node_record(7, ack=(0, 1), mesh=2, final=(2, 3)))
    core.ok("VDRAIN A3,0 -> (0,1) buf 2")
    assert core.out.head[0].tolist() == [2, 2, 3, 2, 7, 1, 0, 0, 1, 0]


def test_a_received_burst_is_in_l1(core: Core) -> None:
    data = np.arange(8 * 4, dtype=np.uint64).reshape(8, 4)
    assert core.vector.vector_receive(core.vc, 0, 0, 504, data, 8) == 0
    np.testing.assert_array_equal(core.vc.wide[504 * 4 : 512 * 4], data.ravel())
    assert core.marks(504, 8).all()


def test_cores_are_apart() -> None:
    core, other = Core(u=2), Core()
    other.vc, other.u = core.vc, 3
    core.ok("VSETI S1,0x404000\nVADD v1,S1,K0\nVCMPGT P1,v1,K0")
    other.ok("VSETI S1,0x400000\nVADD v1,S1,K1")
    assert (core.s(1), values(core, 1, 1), int(core.p(1)[0])) == (THREE, [3.0], 1)
    assert (other.s(1), values(other, 1, 1), int(other.p(1)[0])) == (TWO, [3.0], 0)
    assert core.vc.retired.tolist()[:2] == [0, 0]
