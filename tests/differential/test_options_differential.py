"""Revision 2 of the compiled cluster against the plain-Python reference: accumulators, descriptors, shared fills."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from differential.harness import ClusterBench, same_machine
from kohakuaccel.device.transport import replay
from kohakuaccel.diagnostics import Fault, Hang
from kohakuaccel.machine import Machine
from kohakutpu import machines
from kohakutpu.units.system import System
from reference import encode as enc
from reference import generate as gen
from reference.cluster import Cluster, subtile_granules
from reference.errors import Raised
from reference.machine import Machine as Reference
from reference.memory import Memory
from reference.presets import PRESETS, Preset

VC, MG = (1, 0), (1, 2)
ALL = ("r2_dual_acc", "r2_multicast", "r2_desc_fill")
HALVES = 0x6000  # bytes of FP16 data at 0


def r2_machine() -> Machine:
    return machines.load("ship_3x2").with_(name="r2", features=dict.fromkeys(ALL, True))


SHIP: Preset = replace(PRESETS["ship_3x2"], options=ALL)


@pytest.fixture(scope="module")
def bench() -> ClusterBench:
    return ClusterBench(options=ALL)


def dimension(rng: Random, index: int, d: int) -> int:
    stride = 64 * rng.randrange(-3, 9) + (32 if rng.random() < 0.06 else 0)
    axis = rng.choice([0, 1, 2, 3] if rng.random() < 0.02 else [0, 1, 2])
    return enc.walk_dim(index, d, rng.choice([0, 1, 2, 3, 4, 5]), stride, axis, rng.randrange(-2, 4))


def descriptor(rng: Random) -> list[int]:
    """Writes of one descriptor: all of it, in any order, or one field of it."""
    index = rng.randrange(4)
    base = 64 * rng.randrange(20, 420)
    writes = [enc.walk_base(index, base, rng.choice([7] if rng.random() < 0.02 else range(7)))]
    writes += [dimension(rng, index, d) for d in range(6)]
    first = (rng.randrange(-3, 3), rng.randrange(-3, 3))
    writes.append(enc.walk_axes(index, first, (rng.choice([0, 3, 8]), rng.choice([0, 2, 9, 65535]))))
    rng.shuffle(writes)
    return writes if rng.random() < 0.7 else writes[:1]


def step_of(rng: Random, unit: Cluster) -> list[int]:
    """One or more payloads that mostly make sense for the unit's state."""
    pick = rng.random()
    if unit.queue:
        return [gen.fill_instruction(rng, unit)]
    if pick < 0.15:
        return descriptor(rng)
    if pick < 0.35:
        sel, bank, n = rng.getrandbits(1), rng.getrandbits(1), rng.choice([1, 1, 2, 3, 8])
        return [enc.fill(0, n, sel, eoff=rng.randrange(60), fbank=bank, desc=1, dsel=rng.randrange(4))]
    if pick < 0.5:
        return [gen.fill_instruction(rng, unit)]
    tsel = rng.getrandbits(1)
    if pick < 0.8:
        emit = int(rng.random() < 0.3)
        opened = unit.openings[tsel]
        made = gen.gemm_instruction(rng, unit, emit)
        if made is None:
            return [gen.fill_instruction(rng, unit)]
        gm, gn, acc = made >> 192 & 255, made >> 184 & 255, made >> 200 & 1
        if acc and opened != (gm, gn) and rng.random() < 0.9:
            tsel ^= 1
        payload = made | tsel << 62
        if not emit:
            return [payload]
        wrong = int(rng.random() < 0.05)
        return [payload | 0x20000 << 218, enc.drain(0x20000, gm * gn, fuse=1, tsel=tsel ^ wrong)]
    held = len(unit.accumulators[tsel])
    n = min(max(held, 1), rng.choice([1, 2, 4, 8, 16]))
    node = {"dnode": 1, "dst_x": MG[0], "dst_y": MG[1], "dbuf": rng.choice([2, 5])} if rng.random() < 0.3 else {}
    return [enc.drain(0 if node else 0x20000 + 256 * rng.randrange(64), n, tsel=tsel, **node)]


def play(bench: ClusterBench, seed: int, steps: int = 30) -> set[str]:
    """A random program; returns what happened, so that tests can tell that everything did."""
    rng = Random(seed)
    memory = Memory(1 << 20)
    gen.seed_memory(rng, memory, nonfinite=rng.random() < 0.3)
    unit = bench.reference(memory, rng.choice(["raise", "count"]))
    seen: set[str] = set()
    done = 0
    while done < steps:
        if rng.random() < 0.1:
            buf = rng.choice([2, 5])
            opened = len(unit.accumulators[buf == 5])
            count = rng.randrange(1, 4)
            data = [g for _ in range(count) for g in subtile_granules(gen.fp22_tile(rng))]
            expect, got = bench.receive(buf, 2 * rng.randrange(max(1, opened - count + 1)), data)
            assert got == expect, f"seed {seed}"
            seen.add(f"receive {buf} {expect}")
        for payload in step_of(rng, unit):
            done += 1
            outcome, model = bench.step(payload)
            assert model == outcome, f"seed {seed} step {done} payload {payload:064x}"
            kind = "by descriptor" if payload >> 252 == 1 and payload >> 53 & 1 else f"op {payload >> 252}"
            seen.add(f"{kind} {outcome[0]} {outcome[1] if outcome[0] == 'raised' else ''}".strip())
    bench.compare()
    return seen


@pytest.mark.slow
def test_random_programs(bench: ClusterBench) -> None:
    seen: set[str] = set()
    for seed in range(24):
        seen |= play(bench, seed)
    wanted = {"by descriptor retired", "by descriptor raised WALK", "by descriptor raised LIVE_SWEEP", "op 4 retired"}
    wanted |= {"op 2 retired", "op 3 retired", "receive 5 taken", "receive 2 taken"}
    assert wanted <= seen


@pytest.mark.slow
def test_many_random_programs(bench: ClusterBench) -> None:
    seen: set[str] = set()
    for seed in range(1000, 1150):
        seen |= play(bench, seed, 50)
    assert {"by descriptor raised ADDRESS", "by descriptor raised UNWRITTEN", "op 4 raised FIELD"} <= seen


def agree(bench: ClusterBench, payload: int, *what: object) -> None:
    expect, got = bench.step(payload)
    assert got == expect
    assert expect[: len(what)] == what


def prepared(bench: ClusterBench) -> None:
    """Sixteen entries a side in bank 0, a 2x2 tile open in the first accumulator, its sweep live."""
    memory = Memory(1 << 20)
    gen.seed_memory(Random(3), memory, nonfinite=False)
    bench.reference(memory, "raise")
    for sel in (0, 1):
        agree(bench, enc.fill(256 * 16 * sel, 16, sel), "retired")
    agree(bench, enc.gemm(2, 2, 2), "retired")


def test_a_drain_of_one_accumulator_leaves_the_others_sweep_live(bench: ClusterBench) -> None:
    """A FILL behind a DRAIN of tile 0 still may not touch what the sweep on tile 1 reads."""
    prepared(bench)
    agree(bench, enc.gemm(1, 1, 2, aoff=8, boff=8, tsel=1), "retired")
    agree(bench, enc.drain(0x20000, 4), "retired")
    agree(bench, enc.fill(0, 1, 0, eoff=8), "raised", "LIVE_SWEEP")
    agree(bench, enc.fill(0, 1, 0, eoff=0), "retired")
    agree(bench, enc.drain(0x20100, 1, tsel=1), "retired")
    agree(bench, enc.fill(0, 1, 0, eoff=8), "retired")
    bench.compare()


def test_accumulators_are_opened_apart(bench: ClusterBench) -> None:
    prepared(bench)
    agree(bench, enc.gemm(2, 2, 2, acc=1, tsel=1), "raised", "TILE_UNOPENED")
    agree(bench, enc.drain(0x20000, 1, tsel=1), "raised", "TILE_UNOPENED")
    agree(bench, enc.gemm(2, 2, 1, acc=1, emit=1, addr=0x20000), "retired")
    agree(bench, enc.drain(0x20000, 4, fuse=1, tsel=1), "raised", "DRAIN_MISMATCH")
    agree(bench, enc.drain(0x20000, 4, fuse=1), "retired")


def test_a_convolutions_lanes_by_descriptor(bench: ClusterBench) -> None:
    """3x3 pixels of one output row with padding: outside the image lanes are zeros and nothing is read there."""
    prepared(bench)
    for write in (
        enc.walk_base(2, 0x1000 - 64 * 9, 3),
        enc.walk_dim(2, 0, 3, 64 * 8, 1, 1),
        enc.walk_dim(2, 1, 2, 64 * 4, 2, 4),
        enc.walk_dim(2, 2, 4, 64, 2, 1),
        enc.walk_axes(2, (-1, -1), (8, 7)),
    ):
        agree(bench, write, "retired")
    agree(bench, enc.fill(0, 6, 0, eoff=32, desc=1, dsel=2), "retired")
    assert [list(lane[0]) == [0] * 32 for lane in bench.ref.l1[0][32]] == [True] * 4
    assert [list(lane[0]) == [0] * 32 for lane in bench.ref.l1[0][34]] == [True, False, False, False]
    bench.compare()
    agree(bench, enc.fill(0, 7, 0, eoff=32, desc=1, dsel=2), "raised", "WALK")
    agree(bench, enc.fill(0, 6, 0, eoff=32, desc=1, dsel=2, preq=1), "raised", "FIELD")


PEERS = {"peers": 0x21, "npeer": 1}


@pytest.mark.parametrize(
    ("payload", "outcome"),
    [
        (enc.fill(0, 4, 0, eoff=32, **PEERS), ("waits", "SHARE")),
        (enc.fill(0, 4, 0, eoff=0, **PEERS), ("raised", "LIVE_SWEEP")),
        (enc.fill(0, 4, 0, eoff=32, desc=1, **PEERS), ("raised", "FIELD")),
        (enc.fill(0, 4, 0, eoff=32, peers=0x0121, npeer=2), ("raised", "NODE")),
        (enc.fill(0, 4, 0, eoff=32, peers=0x2121, npeer=2), ("raised", "FIELD")),
        (enc.fill(0, 4, 0, eoff=32, peers=0x01, npeer=1), ("raised", "NODE")),
    ],
)
def test_shared_fills_of_one_cluster(bench: ClusterBench, payload: int, outcome: tuple[str, str]) -> None:
    prepared(bench)
    agree(bench, payload, *outcome)


@pytest.mark.parametrize("options", [(), *((flag,) for flag in ALL)])
def test_an_option_that_is_off_is_not_there(options: tuple[str, ...]) -> None:
    """Each form is refused, or is an unknown opcode, exactly where its flag is off."""
    bench = ClusterBench(options=options)
    for payload, flag, off in (
        (enc.gemm(1, 1, 1, tsel=1), "r2_dual_acc", ("raised", "FIELD")),
        (enc.drain(0x20000, 1, tsel=1), "r2_dual_acc", ("raised", "FIELD")),
        (enc.fill(0, 1, 0, eoff=40, **PEERS), "r2_multicast", ("raised", "FIELD")),
        (enc.fill(0, 1, 0, eoff=40, desc=1), "r2_desc_fill", ("raised", "FIELD")),
        (enc.walk_base(0, 0, 1), "r2_desc_fill", ("fault", 0x12)),
    ):
        prepared(bench)
        expect, got = bench.step(payload)
        assert got == expect
        assert (expect[:2] == off) is (flag not in options)


# several clusters


def recording(seed: int) -> list[tuple[int, bytes]]:
    """Clusters that share some fills, each in its own company, and drain what they computed."""
    rng = Random(seed)
    host = enc.Host()
    host.store(0, 0, b"".join(np.float16(rng.uniform(-4, 4)).tobytes() for _ in range(HALVES // 2)))
    for number in range(3):
        crew = rng.sample(SHIP.meshes[0].mg, rng.randrange(2, 5))
        programs: dict[tuple[int, int], list[int]] = {xy: [] for xy in crew}
        sizes = {xy: [0, 0] for xy in crew}
        for _ in range(rng.randrange(2, 5)):
            members = rng.sample(crew, rng.randrange(1, min(4, len(crew)) + 1))
            sel, n, tag = rng.getrandbits(1), rng.randrange(1, 6), rng.randrange(256)
            first, addr = max(sizes[xy][sel] for xy in members), 256 * rng.randrange(HALVES // 256 - n)
            for xy in members:
                peers = [p for p in members if p != xy]
                rng.shuffle(peers)
                packed = sum((y << 4 | x) << 8 * i for i, (x, y) in enumerate(peers))
                share = {"peers": packed, "npeer": len(peers), "tag": tag} if peers else {}
                if first > sizes[xy][sel]:
                    programs[xy].append(enc.fill(0, first - sizes[xy][sel], sel, eoff=sizes[xy][sel]))
                programs[xy].append(enc.fill(addr, n, sel, eoff=first, **share))
                sizes[xy][sel] = first + n
        for xy, program in programs.items():
            gm, gn = (min(3, size) for size in sizes[xy])
            if gm and gn:
                tsel, base = rng.getrandbits(1), 0x100000 + 0x10000 * (16 * xy[1] + xy[0]) + 0x1000 * number
                program += [enc.gemm(gm, gn, 1, tsel=tsel), enc.drain(base, gm * gn, tsel=tsel)]
        host.round(0, [(xy, program) for xy, program in programs.items() if program], {}, 31)
    return host.writes


@pytest.mark.parametrize("seed", range(6))
def test_shared_fills_between_clusters(seed: int) -> None:
    writes = recording(seed)
    system = System(r2_machine())
    replay(writes, system)
    ref = Reference(SHIP)
    ref.replay(writes)
    same_machine(system, ref, 0x700000)


def two(first: list[int], second: list[int]) -> tuple[System, list[tuple[int, bytes]]]:
    host = enc.Host()
    host.store(0, 0, np.ones(HALVES // 2, np.float16).tobytes())
    host.round(0, [((1, 1), first), ((1, 2), second)])
    return System(r2_machine()), host.writes


TO_LOWER, TO_UPPER = {"peers": 0x21, "npeer": 1}, {"peers": 0x11, "npeer": 1}


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"addr": 256}, "addr"),
        ({"n": 2}, "n"),
        ({"sel": 1}, "sel"),
        ({"eoff": 5}, "eoff"),
        ({"fbank": 1}, "fbank"),
        ({"preq": 1}, "preq"),
        ({"peers": 0x3111, "npeer": 2}, "its members"),
    ],
)
def test_members_that_disagree(other: dict[str, int], name: str) -> None:
    theirs = {"addr": 0, "n": 1, "sel": 0, "tag": 7, **TO_UPPER} | other
    system, writes = two([enc.fill(0, 1, 0, tag=7, **TO_LOWER)], [enc.fill(**theirs)])  # type: ignore[arg-type] - fields
    with pytest.raises(Fault, match=f"tag 7 differs from that of .* in {name}"):
        replay(writes, system)
    with pytest.raises(Raised, match="SHARE"):
        Reference(SHIP).replay(writes)


def test_members_in_another_order_hang_with_their_names() -> None:
    a = [enc.fill(0, 1, 0, tag=t, **TO_LOWER) for t in (1, 2)]
    b = [enc.fill(0, 1, 0, tag=t, **TO_UPPER) for t in (2, 1)]
    system, writes = two(a, b)
    with pytest.raises(Hang) as caught:
        replay(writes, system)
    text = str(caught.value)
    assert "MG(1,1) instruction 0" in text
    assert "waits for (1,2) to reach the shared FILL with tag 1" in text
    assert "waits for (1,1) to reach the shared FILL with tag 2" in text
