"""Revision 2's drain quantiser and accumulator-width transfer against the plain-Python reference, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from differential.harness import ClusterBench, VectorBench, same_machine
from kohakuaccel.device.transport import replay
from kohakutpu import machines
from kohakutpu.units.system import System
from reference import encode as enc
from reference import generate as gen
from reference.cluster import subtile_granules
from reference.formats import mxfp7_entry, pack_entry
from reference.machine import Machine, MachineFault
from reference.memory import Memory, from_halves, halves
from reference.presets import SHIP_3X2
from reference.vector import VectorCore

OPTIONS = ("r2_vc_quant", "r2_acc_to_vc")
AGENT = 0x10 << 16  # acknowledgements to (0, 1)


@pytest.fixture(scope="module")
def bench() -> VectorBench:
    return VectorBench(options=OPTIONS)


@pytest.fixture(scope="module")
def plain() -> VectorBench:
    return VectorBench()


def entries(rng: Random, count: int, nonfinite: bool) -> list[int]:
    """L1 words of FP16 entries."""
    found: list[int] = []
    for _ in range(count):
        block = gen.half_block(rng, nonfinite)
        found += [from_halves(block[16 * w : 16 * w + 16]) for w in range(8)]
    return found


def drain_some(bench: VectorBench, seed: int) -> str:
    """Several node drains of one RUN, quantised or not; returns what became of it."""
    rng = Random(seed)
    unit = bench.reference(Memory(1 << 20), rng.choice(["raise", "count"]))
    unit.l1 = entries(rng, 64, rng.random() < 0.5)
    unit.written = set(range(512))
    bench.poke()
    words: list[int] = []
    descs: enc.Descriptors = {}
    for ad in range(rng.randrange(1, 4)):
        count = 8 * rng.choice([1, 2, 3, 16, 32]) if rng.random() < 0.9 else rng.randrange(1, 60)
        descs[ad] = 4 * rng.randrange(100) | AGENT, [(rng.randrange(-4, 5), count)]
        first = rng.randrange(512 - count + 1)
        buf = rng.choice([0, 0, 1, 1, 2])
        words.append(enc.vdrain_node(ad, first, 1, 1, buf, rng.getrandbits(1), quant=int(rng.random() < 0.8)))
    said = "retired"
    for payload in enc.vector_program([*words, enc.VHALT], 0, descs):
        expect, got = bench.step(payload)
        assert got == expect, f"seed {seed}"
        said = str(expect[0]) if expect[0] == "retired" else f"{expect[0]} {expect[1]}"
    bench.compare()
    return said


def test_quantised_drains(bench: VectorBench) -> None:
    """Finite or not, whole entries or not, either side: the same bursts, counters and faults."""
    seen = {drain_some(bench, seed) for seed in range(40)}
    assert seen == {"retired", "fault 5", "fault 10"}


@pytest.mark.slow
def test_many_quantised_drains(bench: VectorBench) -> None:
    for seed in range(1000, 1250):
        drain_some(bench, seed)


def test_without_the_option_the_bit_means_nothing(plain: VectorBench) -> None:
    assert {drain_some(plain, seed) for seed in range(20)} == {"retired"}


def test_a_drained_entry_is_the_uploads(bench: VectorBench) -> None:
    """What leaves a core is what the quantising upload makes of the same entry: another quantiser, another path."""
    rng = Random(3)
    system = System(bench.machine, nonfinite="count")
    for order in (0, 1):
        words = entries(rng, 24, True)
        unit = bench.reference(Memory(1 << 20), "count")
        unit.l1[:192], unit.written = words, set(range(192))
        bench.poke()
        program = [enc.vdrain_node(0, 0, 1, 1, order, quant=1), enc.VHALT]
        results = [bench.step(payload) for payload in enc.vector_program(program, 0, {0: (0, [(0, 192)])})]
        assert all(got == expect for expect, got in results)
        sent = results[-1][0][2]
        assert isinstance(sent, list)
        (burst,) = sent
        data = b"".join(w.to_bytes(32, "little") for w in words)
        replay([(enc.memory(0, 1 << 39 | (4 + order) << 32), data)], system)
        stored = bytes(system.read(enc.memory(0, 0), 128 * 24))
        assert stored == b"".join(g.to_bytes(32, "little") for g in burst.granules)


@pytest.mark.parametrize("seed", range(12))
def test_sub_tiles_arrive_in_accumulator_width(bench: VectorBench, seed: int) -> None:
    """FP22 becomes FP32 exactly; a VLD FP32 then has the accumulator's value. Halves of sub-tiles are bad bursts."""
    rng = Random(seed)
    bench.reference(Memory(1 << 20))
    for _ in range(8):
        n = rng.randrange(1, 6)
        offset = 2 * rng.randrange(256) if rng.random() < 0.8 else rng.randrange(512)
        data = [g for _ in range(n) for g in subtile_granules(gen.fp22_tile(rng))]
        if rng.random() < 0.1:
            data.pop()
        expect, got = bench.receive(2, offset, data)
        assert got == expect
        if expect == "bad":
            assert bench.step(enc.imem(0, enc.VHALT))[0][:2] == ("fault", 9)
    at = min(bench.ref.written, default=0)
    program = [enc.vld(1, 0, 0, 2), enc.VHALT]
    for payload in enc.vector_program(program, 0, {0: (at, [(0, 8)])}):
        expect, got = bench.step(payload)
        assert got == expect
    bench.compare()


def test_without_the_option_buffer_2_is_bad(plain: VectorBench) -> None:
    plain.reference(Memory(1 << 20))
    expect, got = plain.receive(2, 0, list(subtile_granules([0] * 16)))
    assert (expect, got) == ("bad", "12")  # the compiled core names the buffer, its machine raises E_NODE


@pytest.mark.parametrize("seed", range(8))
def test_clusters_drain_in_accumulator_width(seed: int) -> None:
    """A DRAIN to a core, buffer 2: the FP22 bursts of both models, fused ones refused, L1's end checked."""
    rng = Random(seed)
    bench = ClusterBench(options=OPTIONS)
    memory = Memory(1 << 20)
    gen.seed_memory(rng, memory, nonfinite=False)
    bench.reference(memory, "raise")
    gm, gn = rng.randrange(1, 5), rng.randrange(1, 5)
    node = {"dnode": 1, "dst_x": 1, "dbuf": 2, "dflags": 1, "dack_y": 1}
    fused = rng.random() < 0.3
    program = [enc.fill(0, 2 * gm, 0), enc.fill(0x2000, 2 * gn, 1)]
    first = 32 * rng.choice([0, 2, 100, 510, 512 - 2 * gm * gn, 514 - 2 * gm * gn])
    program += [enc.gemm(gm, gn, 2, emit=int(fused), addr=first, **(node if fused else {}))]
    program += [enc.drain(first, gm * gn, fuse=int(fused), **node)]
    for payload in program:
        expect, got = bench.step(payload)
        if fused and expect[0] == "raised":
            assert (expect[1], got) == ("DRAIN_MISMATCH", ("raised", "NODE"))
            return
        assert got == expect
        if expect[0] != "retired":
            return
    bench.compare()


def round_trip(spoil: bool, stops: bool = False) -> enc.Host:
    """Scores leave an accumulator in its width, a core squares them and sends entries back, the cluster sums them.

    The product A @ B of 16 x 32 x 128 goes to VC(1,0) as FP32 (64 words); the core keeps the squares of its first 8
    sub-tiles as one FP16 entry and drains it into both sides of the cluster's L1, where it is multiplied by itself.
    spoil: the squares are infinite. stops: the core's RUN ends at its first drain.
    """
    rng = Random(11)
    host = enc.Host()
    for base in (0, 0x10000):
        blocks = [gen.half_block(rng) for _ in range(64)]
        data = b"".join(from_halves(b[16 * w : 16 * w + 16]).to_bytes(32, "little") for b in blocks for w in range(8))
        host.store(0, base, data)
    vc, mg = (1, 0), (1, 1)
    node = {"dnode": 1, "dst_x": 1, "dbuf": 2, "dflags": 1, "dack_y": 1}
    program = [enc.fill(0, 16, 0), enc.fill(0x10000, 32, 1), enc.gemm(4, 8, 4), enc.drain(0, 32, **node)]
    host.round(0, [(mg, program)], acks={vc: 8})
    words = [*enc.vseti(0, 128), enc.vsetvl(0), enc.vld(1, 0, 0, 2), enc.alu(5, 2, 1, 1), enc.vst(2, 1, 0)]
    if spoil:
        words += [*enc.vseti(2, 0x7F8000), enc.alu(5, 2, 1, 2, sb=1), enc.vst(2, 1, 0)]
    words += [enc.vdrain_node(2, 300, 1, 1, 0, 1, quant=1), enc.vdrain_node(3, 300, 1, 1, 1, 1, quant=1), enc.VHALT]
    descs: enc.Descriptors = {0: (0, [(2, 8)]), 1: (300, [(1, 8)])}
    descs |= {2: (4 * 20 | AGENT, [(0, 8)]), 3: (4 * 40 | AGENT, [(0, 8)])}
    host.round(0, [(vc, enc.vector_program(words, descs=descs))], acks={mg: 1 if stops else 2})
    if stops:
        return host
    host.round(0, [(mg, [enc.gemm(1, 1, 1, aoff=20, boff=40), enc.drain(0x40000, 1)])])
    return host


def options(names: tuple[str, ...] = OPTIONS) -> tuple[Machine, System]:
    machine = machines.load("ship_3x2").with_(features=dict.fromkeys(names, True))
    return Machine(replace(SHIP_3X2, options=names), "count"), System(machine, nonfinite="count")


@pytest.mark.parametrize("spoil", [False, True])
def test_a_round_trip_without_memory(spoil: bool) -> None:
    """Both features in one machine; a non-finite square is counted by the core's CU_NUM under policy `count`."""
    ref, system = options()
    host = round_trip(spoil)
    ref.replay(host.writes)
    replay(host.writes, system)
    same_machine(system, ref)
    core = ref.units[0, 1, 0]
    assert isinstance(core, VectorCore)
    assert bool(core.nonfinite) == spoil
    # What the cluster multiplied is the quantised form of the entry that is still in the core's L1.
    entry, _ = mxfp7_entry([h for word in core.l1[300:308] for h in halves(word)])
    assert pack_entry(entry, False)[0] & 0xFFFFFFFF == pack_entry(entry, True)[0] & 0xFFFFFFFF


def test_a_non_finite_operand_faults_at_its_drain() -> None:
    host = round_trip(True, stops=True)
    ref = Machine(replace(SHIP_3X2, options=OPTIONS), "raise", "signal")
    ref.replay(host.writes)
    machine = machines.load("ship_3x2").with_(features=dict.fromkeys(OPTIONS, True))
    system = System(machine, nonfinite="raise", faults="signal")
    replay(host.writes, system)
    same_machine(system, ref)
    strict = Machine(replace(SHIP_3X2, options=OPTIONS), "raise")
    with pytest.raises(MachineFault) as caught:
        strict.replay(host.writes)
    assert (caught.value.where, caught.value.code) == ((0, 1, 0), 10)
