"""The compiled machine against the plain-Python reference: recorded host writes from start to end.

The same bytes go to both buses; afterwards memory, every unit, node status and credits must be the same.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from differential.harness import register, same_machine, same_memory
from kohakuaccel.device import Recording
from kohakuaccel.device.transport import replay
from kohakuaccel.diagnostics import Fault, Hang
from kohakutpu import machines
from kohakutpu.units.system import System
from reference import encode as enc
from reference.cluster import Cluster
from reference.errors import Raised, UnitFault, Waits
from reference.generate import packed_words
from reference.machine import Machine, MachineFault
from reference.presets import PRESETS
from reference.recordings import random_recording

Writes = list[tuple[int, bytes]]


def play(name: str, seed: int) -> None:
    writes = random_recording(seed, PRESETS[name])
    system = System(machines.load(name), nonfinite="count")
    replay(writes, system)
    ref = Machine(PRESETS[name], nonfinite="count")
    ref.replay(writes)
    same_machine(system, ref)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("seed", range(2))
def test_random_recordings(name: str, seed: int) -> None:
    play(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_many_random_recordings(name: str) -> None:
    for seed in range(1000, 1004):
        play(name, seed)
        play_on(name, seed, "count")


def play_on(name: str, seed: int, nonfinite: str) -> None:
    """A run with faults on machines that signal them and go on, as a card does."""
    writes = random_recording(seed, PRESETS[name], nonfinite=nonfinite, faults=True)
    system = System(machines.load(name), nonfinite=nonfinite, faults="signal")
    replay(writes, system)
    ref = Machine(PRESETS[name], nonfinite, "signal")
    ref.replay(writes)
    same_machine(system, ref)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("seed", range(2))
def test_faults_are_signalled_and_the_run_goes_on(name: str, seed: int) -> None:
    play_on(name, seed, "count")


def test_a_recording_captures_what_it_is_given() -> None:
    """Through `Recording` the same bytes arrive, and a replay of the capture gives the same machine."""
    writes = random_recording(5, PRESETS["mini"])
    recording = Recording(System(machines.load("mini"), nonfinite="count"))
    replay(writes, recording)
    assert recording.writes == writes
    ref = Machine(PRESETS["mini"], nonfinite="count")
    ref.replay(recording.writes)
    assert isinstance(recording.inner, System)
    same_machine(recording.inner, ref)


def both(writes: Writes, name: str = "ship_3x2", nonfinite: str = "raise") -> tuple[Exception, Exception, Machine]:
    """The exceptions that stop the two machines, and the reference."""
    ref = Machine(PRESETS[name], nonfinite)
    with pytest.raises((MachineFault, Raised, Waits)) as expect:
        ref.replay(writes)
    with pytest.raises(Fault) as got:
        replay(writes, System(machines.load(name), nonfinite=nonfinite))
    return expect.value, got.value, ref


ONES = np.full(16 * 1024, 1.0, np.float16).tobytes()


@pytest.mark.parametrize(
    ("xy", "program", "code"),
    [
        ((2, 2), [enc.fill(0, 8, 0), enc.cluster(9)], 0x12),
        ((2, 2), [enc.fill(0, 1, 0), enc.fill(0x4000, 2, 1)], 0x10),
        ((1, 0), enc.vector_program([enc.vsetmode(3), enc.alu(0, 1, 2), enc.VHALT]), 4),
        ((2, 4), enc.vector_program([enc.VBAR, enc.vld(0, 0, dtype=7), enc.VHALT], at=9), 1),
    ],
)
def test_faults(xy: tuple[int, int], program: list[int], code: int) -> None:
    """The same code at the same instruction of the same unit."""
    host = enc.Host()
    host.store(0, 0, ONES)
    host.store(0, 0x4000, b"\x00\x7c" * 256)
    host.round(0, [(xy, program)])
    expect, got, _ = both(host.writes)
    assert isinstance(expect, MachineFault)
    assert isinstance(got, Fault)
    kind = "MG" if xy[1] in (1, 2, 3) else "VC"
    assert (expect.code, expect.where) == (code, (0, *xy))
    assert (got.code, got.index, got.unit) == (code, expect.index, f"{kind}({xy[0]},{xy[1]})")


SOME_L1 = [enc.vst(0, 1)]  # descriptor 1 as it resets: every chunk to word 0


def test_a_bad_burst_faults_at_the_receivers_next_retirement() -> None:
    """VC(1,0) sends past the end of VC(2,0)'s L1; the burst is dropped, acknowledged and reported later."""
    host = enc.Host()
    words = [*SOME_L1, enc.vdrain_node(0, 0, 2, 0, ack=1), enc.VHALT]
    host.round(0, [((1, 0), enc.vector_program(words, descs={0: (512 | 0x10 << 16, [])}))], {(2, 0): 1})
    host.round(0, [((2, 0), [enc.imem(0, enc.VHALT), enc.run(0)])])
    expect, got, _ = both(host.writes)
    assert isinstance(expect, MachineFault)
    assert isinstance(got, Fault)
    assert (expect.where, expect.code, expect.index) == ((0, 2, 0), 9, 0)
    assert (got.code, got.index, got.unit) == (9, 0, "VC(2,0)")


def test_a_bad_burst_faults_at_a_clusters_next_retirement() -> None:
    host = enc.Host()
    words = [*SOME_L1, enc.vdrain_node(0, 0, 1, 1, buf=1, ack=1), enc.VHALT]
    host.store(0, 0, ONES)
    descs: enc.Descriptors = {0: (2048 | 0x10 << 16, [])}
    host.round(0, [((1, 0), enc.vector_program(words, descs=descs))], {(1, 1): 1})
    host.round(0, [((1, 1), [enc.fill(0, 1, 0), enc.fill(0, 1, 1)])])
    expect, got, _ = both(host.writes)
    assert isinstance(expect, MachineFault)
    assert isinstance(got, Fault)
    assert (expect.where, expect.code, expect.index) == ((0, 1, 1), 0x11, 0)
    assert (got.code, got.index, got.unit) == (0x11, 0, "MG(1,1)")


@pytest.mark.parametrize(("xy", "buf"), [((9, 9), 0), ((0, 2), 0), ((1, 1), 3), ((2, 0), 1)])
def test_a_node_drain_to_nobody_is_refused(xy: tuple[int, int], buf: int) -> None:
    host = enc.Host()
    words = [*SOME_L1, enc.vdrain_node(0, 0, *xy, buf), enc.VHALT]
    host.round(0, [((1, 0), enc.vector_program(words))])
    expect, got, _ = both(host.writes)
    assert isinstance(expect, Raised)
    assert expect.what == "NODE"
    assert f"({xy[0]},{xy[1]})" in str(got)


@pytest.mark.parametrize(
    ("bus", "data"),
    [
        (enc.memory(0, 0), b"\x00\x7c" * 128),
        (enc.memory(0, 1 << 39 | 4 << 32), b"\x00\x7c" * 128),
    ],
)
def test_nonfinite_uploads(bus: int, data: bytes) -> None:
    """Plain memory takes anything; the quantising upload faults or counts, as the policy says."""
    for policy in ("raise", "count"):
        ref, system = Machine(PRESETS["mini"], policy), System(machines.load("mini"), nonfinite=policy)
        if bus >> 39 & 1 and policy == "raise":
            with pytest.raises(UnitFault):
                ref.write(bus, data)
            with pytest.raises(Fault) as got:
                system.write(bus, np.frombuffer(data, np.uint8))
            assert got.value.code == 0x10
        else:
            ref.write(bus, data)
            system.write(bus, np.frombuffer(data, np.uint8))
            same_memory(system.memory, 0, ref.memories[0], 1 << 16)
            assert system.upload_nonfinite == ref.upload_nonfinite


def test_partial_words() -> None:
    """A word counts as written once all its bytes were, on both."""
    ref, system = Machine(PRESETS["mini"]), System(machines.load("mini"))
    for at, n in ((0, 16), (40, 8), (16, 24), (48, 16), (100, 2), (96, 40)):
        data = bytes(range(at, at + n))
        ref.write(enc.memory(0, at), data)
        system.write(enc.memory(0, at), np.frombuffer(data, np.uint8))
        same_memory(system.memory, 0, ref.memories[0], 4096)


def test_control_flits() -> None:
    """CU_CAPS, CU_STATUS and CU_NUM of a cluster and a core, read by raw flits after one and the same run."""
    writes = random_recording(2, PRESETS["mini"])
    ref, system = Machine(PRESETS["mini"], "count"), System(machines.load("mini"), nonfinite="count")
    ref.replay(writes)
    replay(writes, system)
    assert register(system, 0, enc.AGENT + 0x1C8) == register(ref, 0, enc.AGENT + 0x1C8) == 1 << 16
    for x, y in ((1, 1), (1, 0)):
        for index in (0, 1, 4):
            flit = x << 284 | y << 280 | 1 << 272 | 7 << 268 | 0x5A << 260 | 1 << 259 | index << 240
            answers: list[int] = []
            for machine in (ref, system):
                for i in range(5):
                    send(machine, 0x100 + 8 * i, flit >> 64 * i & (1 << 64) - 1)
                send(machine, 0x140, 1)
                assert register(machine, 0, enc.AGENT + 0x1C8) >> 16 & 1 == 0
                answers.append(sum(register(machine, 0, enc.AGENT + 0x180 + 8 * i) << 64 * i for i in range(5)))
                send(machine, 0x1C0, 1)
                assert register(machine, 0, enc.AGENT + 0x1C8) >> 16 & 1 == 1
            assert answers[0] == answers[1], f"index {index} of ({x},{y})"


@pytest.mark.parametrize("ack", [(0, 0), (0, 1), (2, 2)])
def test_data_from_staging(ack: tuple[int, int]) -> None:
    """The dispatcher passes CU_DATA through: L1 words for a core, a packed entry for a cluster, no credits."""
    rng = Random(11)
    host = enc.Host()
    bursts = [((1, 0), 0, 509, [rng.getrandbits(256) for _ in range(3)]), ((1, 1), 1, 40, packed_words(rng))]
    staged: list[int] = []
    commands: list[tuple[int, int, int, int]] = [(1, enc.AGENT + 0x60, 0, 0)]
    for xy, buf, offset, words in bursts:
        slot = len(staged) // 5
        staged += enc.stage_flit(enc.data_descriptor(buf, offset, len(words), 1, ack), 0, False, kind=8)
        for i, word in enumerate(words):
            staged += enc.stage_flit(word, 0, i == len(words) - 1, kind=8)
        values = ((0x40, xy[1] << 4 | xy[0]), (0x68, slot), (0x48, len(words) + 1), (0x50, 1))
        commands.append((2, enc.AGENT + 0x58, 0, 1))
        commands += [(1, enc.AGENT + at, value, 0) for at, value in values]
        if ack != (2, 2):
            commands.append((2, enc.AGENT + 0x1000 + 8 * values[0][1], 1 << 8 | 1, 0x00FFFF01))
    commands.append((3, 0, 0x77, 0))
    host.writes.append((enc.AGENT + 0x2000, enc.quads(staged)))
    host.writes.append((0x1000, enc.quads([v for command in commands for v in command])))
    host.writes.append((0, enc.quads([1])))
    ref, system = Machine(PRESETS["ship_3x2"]), System(machines.load("ship_3x2"))
    ref.replay(host.writes)
    replay(host.writes, system)
    same_machine(system, ref)
    core, cluster = ref.units[0, 1, 0], ref.units[0, 1, 1]
    assert not isinstance(core, Cluster)
    assert isinstance(cluster, Cluster)
    assert core.l1[509:] == bursts[0][3]
    assert list(cluster.l1[1]) == [10]


def send(machine: System | Machine, offset: int, value: int) -> None:
    data = value.to_bytes(8, "little")
    if isinstance(machine, System):
        machine.write(enc.AGENT + offset, np.frombuffer(data, np.uint8))
    else:
        machine.write(enc.AGENT + offset, data)


def test_raises_at_the_same_instruction() -> None:
    host = enc.Host()
    host.store(0, 0, ONES)
    host.round(0, [((1, 1), [enc.fill(0, 8, 0), enc.fill(0, 8, 1), enc.drain(0x10000, 4)])])
    expect, got, _ = both(host.writes)
    assert isinstance(expect, Raised)
    assert expect.what == "TILE_UNOPENED"
    assert isinstance(got, Fault)
    assert (got.index, got.unit) == (2, "MG(1,1)")


@pytest.mark.parametrize("what", ["POLL", "CREDIT", "NO_EMIT"])
def test_hangs(what: str) -> None:
    host = enc.Host()
    if what == "POLL":
        host.round(0, [((1, 0), [enc.imem(0, 0)])], acks={(1, 0): 1})
    elif what == "CREDIT":
        host.round(0, [((1, 0), [enc.imem(0, 0)]), ((2, 0), [enc.imem(0, 0)] * 2)], credits=1)
    else:
        host.round(0, [((1, 1), [enc.drain(0, 4, fuse=1)])])
    expect, got, _ = both(host.writes)
    assert isinstance(expect, Waits)
    assert expect.why == what
    assert isinstance(got, Hang)


def test_remote_transfers() -> None:
    """An FP22 drain from mesh 0 into an opened tile of mesh 1, and an FP16 one into a core of mesh 2."""
    host = enc.Host()
    for mesh in (0, 1):
        host.store(mesh, mesh << 36, ONES)
        fills = [enc.fill(mesh << 36, 8, side) for side in (0, 1)]
        host.round(mesh, [((1, 1), [*fills, enc.gemm(4, 4, 2)])])
    remote = {"dnode": 1, "dst_x": 0, "dst_y": 1, "dflags": 1, "dack_y": 1}
    to_mesh1 = enc.drain(0, 16, **remote, dbuf=2, dmesh=1, dfin=0x11)
    to_mesh2 = enc.drain(32 * 5, 16, **remote, dmesh=2, dfin=0x02)
    host.round(0, [((1, 1), [to_mesh1, to_mesh2])])
    host.counts[1, 1, 1] += 4
    host.round(1, [((1, 1), [enc.drain(1 << 36 | 0x10000, 16)])])
    ref = Machine(PRESETS["multimesh_4"])
    ref.replay(host.writes)
    system = System(machines.load("multimesh_4"))
    replay(host.writes, system)
    same_machine(system, ref)
    doubled = bytes(ref.read(enc.memory(1, 1 << 36 | 0x10000), 2))
    assert np.frombuffer(doubled, np.float16)[0] > 100
