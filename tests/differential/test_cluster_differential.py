"""The compiled matmul cluster against the plain-Python reference: random programs, all state, bit for bit."""

from __future__ import annotations

from random import Random

import pytest

from differential.harness import ClusterBench
from reference import encode as enc
from reference import generate as gen
from reference.cluster import subtile_granules
from reference.memory import Memory, from_halves

VC, MG = (1, 0), (1, 2)


@pytest.fixture(scope="module")
def bench() -> ClusterBench:
    return ClusterBench()


def burst(rng: Random, bench: ClusterBench) -> tuple[int, int, list[int]]:
    """A CU_DATA burst: whole entries, sub-tiles, pieces, and some that do not fit."""
    pick = rng.random()
    if pick < 0.4:
        data = [w for _ in range(rng.randrange(1, 3)) for w in gen.packed_words(rng)]
        return rng.getrandbits(1), 4 * rng.randrange(511), data
    if pick < 0.8:
        n = rng.randrange(1, 5)
        opened = bench.ref.open_tiles
        first = rng.randrange(max(1, opened - n + 1)) if opened else 0
        values = [gen.fp22_tile(rng) for _ in range(n)]
        return 2, 2 * first, [g for tile in values for g in subtile_granules(tile)]
    return rng.choice([0, 1, 2, 3, 9]), rng.choice([1023, 1024, 2045, 2046, 2047]), gen.packed_words(rng)


def play(bench: ClusterBench, seed: int, steps: int = 24) -> None:
    rng = Random(seed)
    memory = Memory(1 << 20)
    policy = rng.choice(["raise", "count"])
    gen.seed_memory(rng, memory, nonfinite=policy == "count" or rng.random() < 0.2)
    unit = bench.reference(memory, policy)
    done = 0
    while done < steps:
        if rng.random() < 0.1:
            expect, got = bench.receive(*burst(rng, bench))
            assert got == expect, f"seed {seed}"
            if expect not in ("taken", "bad"):
                break
        for payload in gen.cluster_instructions(rng, unit, VC, MG):
            done += 1
            outcome, model = bench.step(payload)
            assert model == outcome, f"seed {seed} step {done} payload {payload:064x}"
    bench.compare()


@pytest.mark.parametrize("seed", range(16))
def test_random_programs(bench: ClusterBench, seed: int) -> None:
    play(bench, seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_many_random_programs(bench: ClusterBench, block: int) -> None:
    for seed in range(1000 + 10 * block, 1010 + 10 * block):
        play(bench, seed, 40)


def test_long_k_and_the_largest_tile(bench: ClusterBench) -> None:
    """16x32 sub-tiles, K = 8 blocks in uneven cuts, then a fused and a plain drain of all 512."""
    rng = Random(7)
    memory = Memory(1 << 20)
    for e in range(384):
        for w, word in enumerate(gen.packed_words(rng)):
            memory.store(128 * e + 32 * w, word)
    bench.reference(memory, "raise")
    program: list[int] = []
    for first, nk, emit in ((0, 1, 0), (1, 3, 0), (4, 4, 1)):
        bank = first & 1
        program.append(enc.fill(128 * first, 16 * nk, 0, preq=1, fbank=bank))
        program.append(enc.fill(128 * (64 + first), 32 * nk, 1, preq=1, fbank=bank))
        acc = int(first > 0)
        program.append(
            enc.gemm(16, 32, nk, acc=acc, emit=emit, abank=bank, bbank=bank) | (0x20000 if emit else 0) << 218
        )
    program += [enc.drain(0x20000, 512, fuse=1), enc.drain(0x30000, 512)]
    for payload in program:
        expect, got = bench.step(payload)
        assert got == expect
    bench.compare()


def prepared(bench: ClusterBench, memory_words: int = 4096) -> None:
    """Both sides filled (16 entries a bank), a 2x2 tile open."""
    rng = Random(3)
    memory = Memory(1 << 20)
    gen.seed_memory(rng, memory, nonfinite=False)
    bench.reference(memory, "raise")
    for sel in (0, 1):
        for bank in (0, 1):
            agree(bench, enc.fill(256 * 16 * (2 * sel + bank), 16, sel, fbank=bank), "retired")
    agree(bench, enc.gemm(2, 2, 2), "retired")


def agree(bench: ClusterBench, payload: int, *what: object) -> None:
    """Both say the same, and say `what`."""
    expect, got = bench.step(payload)
    assert got == expect
    assert expect[: len(what)] == what


NODE = {"dnode": 1, "dst_x": VC[0], "dst_y": VC[1]}


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (enc.fill(0, 0, 0), "FIELD"),
        (enc.fill(0, 256, 0), "FIELD"),
        (enc.fill(0, 1, 0, npeer=1), "FIELD"),
        (enc.fill(0, 1, 0, eoff=255, anchor=39), "FIELD"),
        (enc.fill(0, 2, 0, eoff=255), "L1_RANGE"),
        (enc.fill(0, 1, 0, eoff=3), "LIVE_SWEEP"),
        (enc.fill(16, 1, 0, fbank=1), "ADDRESS"),
        (enc.fill(1 << 36, 1, 0, fbank=1), "ADDRESS"),
        (enc.fill(1 << 38, 1, 0, fbank=1), "ADDRESS"),
        (enc.fill(1 << 39, 1, 0, fbank=1), "ADDRESS"),
        (enc.fill((1 << 20) - 256, 2, 0, fbank=1), "ADDRESS"),
        (enc.fill(0xF20, 1, 0, fbank=1), "PAGE"),
        (enc.fill(0x10FA0, 1, 0, fbank=1, preq=1), "PAGE"),
        (enc.fill(0x80000, 1, 0, fbank=1), "UNWRITTEN"),
        (enc.gemm(0, 1, 1), "FIELD"),
        (enc.gemm(1, 0, 1), "FIELD"),
        (enc.gemm(1, 1, 0), "FIELD"),
        (enc.gemm(1, 1, 1, anchor=41), "FIELD"),
        (enc.gemm(32, 32, 1), "TILE_RANGE"),
        (enc.gemm(2, 2, 4, aoff=249), "L1_RANGE"),
        (enc.gemm(2, 2, 4, boff=249, bbank=1), "L1_RANGE"),
        (enc.gemm(2, 2, 1, aoff=15), "L1_UNWRITTEN"),
        (enc.gemm(2, 2, 1, boff=100, bbank=1), "L1_UNWRITTEN"),
        (enc.gemm(1, 4, 1, acc=1), "TILE_UNOPENED"),
        (enc.drain(0x20000, 0), "FIELD"),
        (enc.drain(0x20000, 513), "TILE_RANGE"),
        (enc.drain(0x20000, 5), "TILE_UNOPENED"),
        (enc.drain(0x20010, 4), "ADDRESS"),
        (enc.drain((1 << 20) - 64, 4), "ADDRESS"),
        (enc.drain(1 << 37, 4), "ADDRESS"),
        (enc.drain(0x20FA0, 4), "PAGE"),
        (enc.drain(0, 4, dnode=1, dst_x=9, dst_y=9), "NODE"),
        (enc.drain(0, 4, dnode=1, dst_x=MG[0], dst_y=MG[1]), "NODE"),
        (enc.drain(0, 4, dnode=1, dst_x=MG[0], dst_y=MG[1], dbuf=1), "NODE"),
        (enc.drain(0, 4, **NODE, dbuf=2), "NODE"),
        (enc.drain(0, 4, **NODE, dbuf=3), "NODE"),
        (enc.drain(32 * 509, 4, **NODE), "L1_RANGE"),
        (enc.drain(32 * 1018, 4, dnode=1, dst_x=MG[0], dst_y=MG[1], dbuf=2), "L1_RANGE"),
        (enc.drain(16, 4, **NODE), "ADDRESS"),
        (enc.drain(0, 4, dnode=1, dst_x=2, dst_y=1, dfin=0x11), "NODE"),
        (enc.drain(0, 4, dnode=1, dst_x=0, dst_y=1, dfin=0x01, dflags=1), "FIELD"),
    ],
)
def test_refused_alike(bench: ClusterBench, payload: int, what: str) -> None:
    """Every condition of 5.6 that a unit can see: the same rule on both, and nothing has changed."""
    prepared(bench)
    agree(bench, payload, "raised", what)
    bench.compare()


def test_faults_alike(bench: ClusterBench) -> None:
    prepared(bench)
    for op in (0, 4, 15):
        agree(bench, enc.cluster(op), "fault", 0x12)
    memory = Memory(1 << 20)
    for w in range(16):
        memory.store(32 * w, from_halves([0x7C00 if w == 9 else 0x3C00] * 16))
    for policy in ("raise", "count"):
        bench.reference(memory, policy)
        agree(bench, enc.fill(0, 1, 0), "retired")
        agree(bench, enc.fill(0, 2, 1), *(["fault", 0x10] if policy == "raise" else ["retired", 2]))
        bench.compare()


def test_waits_alike(bench: ClusterBench) -> None:
    """A fused DRAIN without an emission; an instruction behind a sweep that 112 sub-tiles have stopped."""
    prepared(bench)
    agree(bench, enc.drain(0x20000, 4, fuse=1), "waits", "NO_EMIT")
    agree(bench, enc.gemm(2, 2, 1, emit=1), "retired")  # LOAD wins: nothing is handed out
    agree(bench, enc.drain(0, 4, fuse=1), "waits", "NO_EMIT")
    agree(bench, enc.gemm(8, 14, 1), "retired")
    agree(bench, enc.gemm(8, 14, 1, acc=1, emit=1), "retired")
    agree(bench, enc.drain(0x20000, 112), "retired")
    agree(bench, enc.gemm(1, 1, 2, emit=1), "retired")
    agree(bench, enc.gemm(1, 1, 1), "waits", "DRAIN_QUEUE")
    agree(bench, enc.drain(0x20000, 112), "waits", "DRAIN_QUEUE")
    agree(bench, enc.drain(32, 112, fuse=1), "raised", "DRAIN_MISMATCH")
    agree(bench, enc.drain(0, 111, fuse=1), "raised", "DRAIN_MISMATCH")
    agree(bench, enc.drain(0, 112, fuse=1), "retired")
    agree(bench, enc.drain(0, 1, fuse=1), "retired")
    bench.compare()


def test_a_half_received_entry_is_not_readable(bench: ClusterBench) -> None:
    prepared(bench)
    words = gen.packed_words(Random(1))
    assert bench.receive(0, 4 * 100, words[:3]) == ("taken", "taken")
    agree(bench, enc.gemm(1, 1, 1, aoff=100), "raised", "L1_UNWRITTEN")
    assert bench.receive(0, 4 * 100 + 3, words[3:]) == ("taken", "taken")
    agree(bench, enc.gemm(1, 1, 1, aoff=100), "retired")
    bench.compare()


def test_emission_at_the_edges_of_fp16(bench: ClusterBench) -> None:
    """FP22 values around 65504, 65520, the smallest normal half and the ties of subnormals, drained."""
    memory = Memory(1 << 20)
    for w in range(8):
        memory.store(32 * w, 0)
    bench.reference(memory, "raise")
    for side in (0, 1):
        agree(bench, enc.fill(0, 1, side), "retired")
    agree(bench, enc.gemm(1, 1, 1), "retired")
    near = [0x13BFE0, 0x13BFF0, 0x13C000, 0x0BC000, 0x0C0000, 0x098000, 0x09C000, 0x094000, 0x0A0000, 0x1FFFFF, 0x4000]
    codes = [c + d for c in near for d in range(-4, 5) if 0x4000 <= c + d <= 0x1FFFFF and (c + d) >> 14 != 127]
    codes += [c | 1 << 21 for c in codes] + [0x1FFFFF, 0x3FFFFF]
    for i in range(0, len(codes), 16):
        tile = (codes[i : i + 16] + [0] * 16)[:16]
        # Opened with zeros, so the peer's values are what the tile holds.
        agree(bench, enc.gemm(1, 1, 1), "retired")
        assert bench.receive(2, 0, list(subtile_granules(tile))) == ("taken", "taken")
        assert bench.ref.tile[0] == tile
        agree(bench, enc.drain(0x20000 + 256 * (i // 16), 1), "retired")
    bench.compare()
    assert bench.ref.saturated > 0
