"""The reference's units against the datasheet's printed words and small programs worked out by hand."""

from __future__ import annotations

import pytest

from reference import encode as enc
from reference import formats as f
from reference.cluster import Cluster, decode
from reference.errors import Raised, UnitFault, Waits
from reference.machine import Machine, MachineFault
from reference.memory import Memory, from_halves
from reference.presets import MINI
from reference.vector import VectorCore

HALF_ONE = 0x3C00


def head(payload: int) -> str:
    return f"{payload:064x}"


def test_cluster_words() -> None:
    words = {
        enc.fill(0, 32, 0): "1000000000008000000128000000000000000000000000000000000000000000",
        enc.fill(0x2000, 32, 1): "1000008000008200000128000000000000000000000000000000000000000000",
        enc.gemm(8, 8, 4): "2000000000000008080428000000000000000000000000000000000000000000",
        enc.drain(0x4000, 64): "3000010000010000000128000000000000000000000000000000000000000000",
        enc.fill(0x1000002000, 64, 1, preq=1, eoff=16, fbank=1): (
            "1000008000010200000128000000220000010000000000020000000000000000"
        ),
        enc.drain(0, 64, dnode=1, dst_x=1, dflags=1, dack_y=1): (
            "3000000000010000000128000000000000008800008800000000000000000000"
        ),
    }
    for payload, text in words.items():
        assert head(payload) == text
    node = decode(enc.drain(0, 64, dnode=1, dst_x=1, dflags=1, dack_y=1))
    assert (node.dst, node.dack, node.dflags, node.n) == ((1, 0), (0, 1), 1, 64)
    assert decode(enc.fill(0x1000002000, 64, 1)).addr == 0x1000002000


def test_vector_words() -> None:
    assert head(enc.imem(5, 0xDEADBEEF)).startswith("10280")
    assert head(enc.imem(5, 0xDEADBEEF)).endswith("0deadbeef")
    assert head(enc.dim(3, 0, 32, 64)) == "2640020004" + "0" * 54
    assert head(enc.desc(3, 0, 0x1000000040)) == "2600000004000000000000000000000000000000000000020000000000000000"
    assert head(enc.run(7)) == "3038" + "0" * 60
    words = {
        enc.alu(0, 1, 2): 0x00024000,
        enc.alu(3, 7, 0, vc=1, sc=3): 0x186E0020,
        enc.alu(6, 3, 1, 4, 2, sb=1): 0x30862840,
        enc.alu(5, 5, 5, 6, pr=2, pm=1): 0x280AAC12,
        enc.alu(0xB, 0, 0, 1, pr=1): 0x58000208,
        enc.vld(3, 2, 8): 0xA1460008,
        enc.vst(7, 5, -1, 2): 0xAAAE3FFF,
        enc.vfill(0, 16): 0xE8000010,
        enc.vdrain(3, 64): 0xF0600040,
        enc.vdrain_node(3, 64, 2, 1, ack=1): 0xF3642040,
        enc.vred(1, 0): 0x98020000,
        enc.vred(2, 5, 0, 5): 0x98040AA0,
        enc.vsetvl(0): 0xC0000000,
        enc.vsetmode(2): 0xC8004000,
        enc.vseti(4, 0)[0]: 0xD0080000,
        enc.vseti_k3(0)[0]: 0xD6000000,
        enc.vloop(1, 3): 0xD8002600,
        enc.vbcast(2, 1, 1): 0xB2042000,
        enc.VBAR: 0xE0000000,
        enc.VHALT: 0xF8000000,
    }
    for word, text in words.items():
        assert word == text


def small_matmul(n: int) -> tuple[Cluster, Memory]:
    """16x16x64: A is row index + 1 at k = row, else 0; B is all ones."""
    memory = Memory(1 << 20)
    rows = [[0x3C00 + 0x40 * r if k == r else 0 for k in range(64)] for r in range(16)]
    for side, base in ((0, 0), (1, 0x4000)):
        for g in range(4):
            for b in range(2):
                block = [rows[4 * g + i][32 * b + k] if side == 0 else HALF_ONE for i in range(4) for k in range(32)]
                for w in range(8):
                    memory.store(base + 256 * (2 * g + b) + 32 * w, from_halves(block[16 * w : 16 * w + 16]))
    unit = Cluster(memory, tiles=n)
    unit.execute(enc.fill(0, 8, 0))
    unit.execute(enc.fill(0x4000, 8, 1))
    return unit, memory


def test_matmul_and_drains() -> None:
    unit, memory = small_matmul(16)
    unit.execute(enc.gemm(4, 4, 2, emit=1) | 0x8000 << 218)
    unit.execute(enc.drain(0x8000, 16, fuse=1))
    assert unit.execute(enc.drain(0x9000, 16))[0] == 5
    for t in range(16):
        word = memory.load(0x8000 + 32 * t)
        assert word == memory.load(0x9000 + 32 * t)
        for i in range(4):
            (q, scale), _ = f.mxfp7_lane([0x3C00 + 0x40 * (4 * (t // 4) + i)] + [0] * 31)
            (q1, one), _ = f.mxfp7_lane([HALF_ONE] * 32)
            expect, _ = f.emit16(f.partial22(q[0] * q1[0], scale, one))
            assert word >> 64 * i & (1 << 64) - 1 == expect * 0x0001000100010001


def test_cluster_refuses() -> None:
    unit, _ = small_matmul(16)
    for payload, what in (
        (enc.drain(0x8000, 4), "TILE_UNOPENED"),
        (enc.gemm(4, 4, 2, acc=1), "TILE_UNOPENED"),
        (enc.gemm(5, 4, 1), "TILE_RANGE"),
        (enc.gemm(4, 4, 2, aoff=1), "L1_UNWRITTEN"),
        (enc.gemm(4, 4, 2, aoff=250), "L1_RANGE"),
        (enc.gemm(2, 0, 1), "FIELD"),
        (enc.fill(0x10000, 1, 0), "UNWRITTEN"),
        (enc.fill(16, 1, 0), "ADDRESS"),
        (enc.fill(1 << 36, 1, 0), "ADDRESS"),
        (enc.fill(0, 0, 0), "FIELD"),
        (enc.fill(0xFE0, 1, 0), "PAGE"),
    ):
        with pytest.raises(Raised) as caught:
            unit.execute(payload)
        assert caught.value.what == what
    with pytest.raises(Waits):
        unit.execute(enc.drain(0x8000, 4, fuse=1))
    with pytest.raises(UnitFault) as fault:
        unit.execute(7 << 252)
    assert fault.value.code == 0x12
    unit.execute(enc.gemm(4, 4, 2))
    with pytest.raises(Raised, match="LIVE_SWEEP"):
        unit.execute(enc.fill(0, 1, 0, eoff=7))
    unit.execute(enc.fill(0, 1, 0, eoff=8))
    unit.execute(enc.drain(0x8000, 16))
    unit.execute(enc.fill(0, 1, 0, eoff=7))


def run_words(unit: VectorCore, words: list[int]) -> None:
    for payload in enc.vector_program([*words, enc.VHALT]):
        unit.execute(payload)


def test_vector_loop_and_predicates() -> None:
    unit = VectorCore(Memory(1 << 20))
    run_words(
        unit,
        [
            *enc.vseti(0, 5),
            *enc.vseti(1, 20),
            enc.vsetvl(1),
            enc.vloop(0, 1),
            enc.alu(3, 1, 1, vc=1, sc=3),  # v1 += 1, five times
        ],
    )
    assert unit.v[1][:21] == [0x40A000 - 0 if i < 20 else 0 for i in range(21)]
    unit.v[2] = [f.rnd8(i + 1, 0) for i in range(128)]
    run_words(unit, [enc.alu(0xB, va=2, vb=1, pr=1), enc.alu(1, 3, 2, pr=1, pm=1), enc.alu(0, 3, 1, pr=1, pm=2)])
    assert unit.p[1][:20] == [int(i + 1 < 5) for i in range(20)]
    assert unit.v[3][:6] == [0xBF8000, 0xC00000, 0xC04000, 0xC08000, 0x40A000, 0x40A000]


def test_vector_chain_and_faults() -> None:
    unit = VectorCore(Memory(1 << 20))
    unit.v[1] = [f.rnd8(i + 1, 0) for i in range(128)]
    k0 = {"sa": 3, "sb": 3, "sc": 3}
    run_words(
        unit,
        [
            enc.vsetmode(1),
            enc.alu(5, 0, 1, 1, sc=3),
            enc.alu(3, 4, 0, vc=1, **{**k0, "sa": 2}),
            enc.vsetmode(0),
        ],
    )
    assert unit.v[4][:3] == [0x400000, 0x40A000, 0x412000]
    for words, code in (
        ([enc.alu(0, 1, 1, sa=2)], 3),
        ([enc.vsetmode(1), enc.alu(0, 1, 1), enc.alu(0, 1, 1)], 2),
        ([enc.vsetmode(1), enc.alu(0, 1, 1), enc.VBAR], 4),
        ([enc.vsetmode(3), enc.alu(0, 1, 1)], 4),
        ([enc.vsetmode(0), enc.vred(0, 0)], 4),
        ([*enc.vseti(2, 17), enc.vsetvl(2), enc.vred(0, 0)], 8),
        ([*enc.vseti(2, 0), enc.vsetvl(2)], 7),
        ([enc.vld(0, 0, dtype=3)], 1),
        ([*enc.vseti(2, 2), enc.vloop(2, 2), enc.vloop(2, 1), enc.VBAR], 6),
    ):
        with pytest.raises(UnitFault) as fault:
            run_words(unit, words)
        assert fault.value.code == code
        unit.mode, unit.vl = 0, 128


def test_vector_memory() -> None:
    memory = Memory(1 << 20)
    for i in range(8):
        memory.store(32 * i, from_halves([HALF_ONE + 16 * i + j for j in range(16)]))
    unit = VectorCore(memory)
    descs = {0: (0, [(32, 8)]), 1: (0, [(1, 8)]), 2: (0x1000, [(32, 8)])}
    words = [enc.vfill(0, 0), enc.VBAR, enc.vld(1, 1), enc.vst(1, 1, 64), enc.vdrain(2, 64), enc.VHALT]
    for payload in enc.vector_program(words, descs=descs):
        unit.execute(payload)
    assert [memory.load(0x1000 + 32 * i) for i in range(8)] == [memory.load(32 * i) for i in range(8)]
    *load, run = enc.vector_program([enc.vfill(0, 0), enc.vld(1, 1), enc.VHALT], descs=descs)
    for payload in load:
        unit.execute(payload)
    with pytest.raises(Raised, match="VFILL_PENDING"):
        unit.execute(run)


def test_machine_round() -> None:
    host = enc.Host()
    host.store(0, 0, b"\x00\x3c" * 4096)
    host.round(
        0,
        [
            ((1, 1), [enc.fill(0, 8, 0), enc.fill(2048, 8, 1), enc.gemm(4, 4, 2), enc.drain(0x8000, 16)]),
            (
                (1, 0),
                enc.vector_program(
                    [enc.vfill(0, 0), enc.VBAR, enc.vld(1, 1), enc.vst(1, 1), enc.vdrain(2, 0), enc.VHALT],
                    descs={0: (0x8000, [(32, 8)]), 1: (0, [(1, 8)]), 2: (0x9000, [(32, 8)])},
                ),
            ),
        ],
    )
    machine = Machine(MINI)
    machine.replay(host.writes)
    product = f.emit16(f.add22(*[f.partial22(57 * 57 * 32, 0x71, 0x71)] * 2))[0]
    assert machine.read(enc.memory(0, 0x9000), 256) == product.to_bytes(2, "little") * 128
    assert int.from_bytes(machine.read(enc.AGENT + 0x1000 + 8 * 0x11, 8), "little") == 1 << 56 | 3 << 24 | 4 << 8 | 1


def test_machine_faults_and_hangs() -> None:
    host = enc.Host()
    host.round(0, [((1, 1), [7 << 252])])
    with pytest.raises(MachineFault) as fault:
        Machine(MINI).replay(host.writes)
    assert fault.value.code == 0x12
    host = enc.Host()
    host.round(0, [((1, 0), [enc.imem(0, 0)] * 2)], credits=0)
    with pytest.raises(Waits, match="CREDIT"):
        Machine(MINI).replay(host.writes)
    host = enc.Host()
    host.round(0, [((1, 0), [enc.imem(0, 0)])], acks={(1, 0): 1})
    with pytest.raises(Waits, match="POLL"):
        Machine(MINI).replay(host.writes)
