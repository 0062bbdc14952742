"""The compiled vector core against the plain-Python reference: random programs, all state, bit for bit."""

from __future__ import annotations

from random import Random

import pytest

from differential.harness import VectorBench
from reference import encode as enc
from reference import generate as gen
from reference.memory import Memory
from reference.vector import LAST_ALU


@pytest.fixture(scope="module")
def bench() -> VectorBench:
    return VectorBench()


def play(bench: VectorBench, seed: int) -> None:
    """Two programs in a row on one core: state persists between RUNs."""
    rng = Random(seed)
    memory = Memory(1 << 20)
    gen.seed_vector_memory(rng, memory)
    unit = bench.reference(memory)
    gen.seed_vector_state(rng, unit)
    bench.poke()
    for _ in range(2):
        at = rng.randrange(64)
        words = gen.vector_words(rng)
        for payload in enc.vector_program(words, at, gen.vector_descriptors(rng)):
            expect, got = bench.step(payload)
            assert got == expect, f"seed {seed} payload {payload:064x}"
        if expect[0] == "raised":
            return
    bench.compare()


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(bench: VectorBench, seed: int) -> None:
    play(bench, seed)


def sweep(bench: VectorBench, seed: int) -> None:
    """Every ALU operation once over registers of hard operands, FLAT, results and predicates compared."""
    rng = Random(seed)
    unit = bench.reference(Memory(1 << 20))
    triples = [gen.triple(rng) for _ in range(128)]
    unit.v[:3] = [[t[i] for t in triples] for i in range(3)]
    bench.poke()
    words = [enc.alu(op, 3 + op % 13, 0, 1, 2, pr=op % 4) for op in range(LAST_ALU + 1)]
    for first in range(0, len(words), 9):
        for payload in enc.vector_program([*words[first : first + 9], enc.VHALT]):
            expect, got = bench.step(payload)
            assert got == expect
        bench.compare()


@pytest.mark.parametrize("seed", range(30))
def test_hard_operands(bench: VectorBench, seed: int) -> None:
    sweep(bench, seed)


@pytest.mark.slow
def test_many_hard_operands(bench: VectorBench) -> None:
    for seed in range(1000, 2000):
        sweep(bench, seed)


def reduce_once(bench: VectorBench, seed: int) -> None:
    """Every reduction over operands of one magnitude, where the order of additions shows."""
    rng = Random(seed)
    unit = bench.reference(Memory(1 << 20))
    spread = rng.choice([1, 3, 10])
    for v in range(4):
        unit.v[v] = [
            rng.getrandbits(1) << 23 | rng.randrange(127 - spread, 127 + spread) << 15 | rng.getrandbits(15)
            for _ in range(128)
        ]
    if rng.random() < 0.3:
        unit.v[rng.randrange(2)][rng.randrange(128)] = gen.e8(rng)
    bench.poke()
    vl = 16 * rng.randrange(1, 9)
    words = [*enc.vseti(15, vl), enc.vsetvl(15), enc.vsetmode(3)]
    words += [enc.vred(kind, kind, 0, 4 if kind == 5 else 1) for kind in range(6)]
    for payload in enc.vector_program([*words, enc.VHALT]):
        expect, got = bench.step(payload)
        assert got == expect
    bench.compare()


@pytest.mark.parametrize("seed", range(20))
def test_reductions(bench: VectorBench, seed: int) -> None:
    reduce_once(bench, seed)


@pytest.mark.slow
def test_many_reductions(bench: VectorBench) -> None:
    for seed in range(1000, 1400):
        reduce_once(bench, seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_many_random_programs(bench: VectorBench, block: int) -> None:
    for seed in range(1000 + 40 * block, 1040 + 40 * block):
        play(bench, seed)
