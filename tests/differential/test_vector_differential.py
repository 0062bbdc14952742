"""The compiled vector core against the plain-Python reference: random programs, all state, bit for bit."""

from __future__ import annotations

from random import Random

import pytest

from differential.harness import VectorBench
from reference import encode as enc
from reference import generate as gen
from reference.memory import Memory


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


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_many_random_programs(bench: VectorBench, block: int) -> None:
    for seed in range(1000 + 40 * block, 1040 + 40 * block):
        play(bench, seed)
