"""The compiled vector core against the plain-Python reference: random programs, all state, bit for bit."""

from __future__ import annotations

from random import Random

import pytest

from differential.harness import VectorBench
from reference import encode as enc
from reference import generate as gen
from reference.memory import Memory
from reference.vector import LAST_ALU, USES_B, USES_C


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
        words = gen.vector_words(rng, (2, 0))
        for payload in enc.vector_program(words, at, gen.vector_descriptors(rng)):
            expect, got = bench.step(payload)
            assert got == expect, f"seed {seed} payload {payload:064x}"
    bench.compare()


@pytest.mark.parametrize("seed", range(25))
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


@pytest.mark.parametrize("seed", range(15))
def test_hard_operands(bench: VectorBench, seed: int) -> None:
    sweep(bench, seed)


@pytest.mark.slow
def test_many_hard_operands(bench: VectorBench) -> None:
    for seed in range(1000, 1400):
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
    for seed in range(1000, 1200):
        reduce_once(bench, seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_many_random_programs(bench: VectorBench, block: int) -> None:
    for seed in range(1000 + 20 * block, 1020 + 20 * block):
        play(bench, seed)


def agree(bench: VectorBench, words: list[int], *what: object, **descs: tuple[int, list[tuple[int, int]]]) -> None:
    """Load and run `words` on both; both say `what` to the RUN, and hold the same afterwards."""
    program = enc.vector_program([*words, enc.VHALT], 0, {int(k[1]): v for k, v in descs.items()})
    for payload in program[:-1]:
        expect, got = bench.step(payload)
        assert got == expect
    expect, got = bench.step(program[-1])
    assert got == expect
    assert expect[: len(what)] == what


@pytest.fixture
def fresh(bench: VectorBench) -> VectorBench:
    """Memory with 600 written words, random registers, all of L1 written."""
    rng = Random(1)
    memory = Memory(1 << 20)
    gen.seed_vector_memory(rng, memory)
    gen.seed_vector_state(rng, bench.reference(memory))
    bench.poke()
    return bench


WORDS8 = [(32, 8)]


@pytest.mark.parametrize(
    ("words", "base", "what"),
    [
        ([enc.vld(0, 0, 500)], 10, "L1_RANGE"),
        ([enc.vld(0, 0, -11)], 10, "L1_RANGE"),
        ([enc.vst(0, 0, 500)], 10, "L1_RANGE"),
        ([enc.vfill(0, 505)], 0, "L1_RANGE"),
        ([enc.vfill(0, 0)], 16, "ADDRESS"),
        ([enc.vfill(0, 0)], 1 << 20, "ADDRESS"),
        ([enc.vfill(0, 0)], 1 << 36, "ADDRESS"),
        ([enc.vfill(0, 0)], 1 << 38, "ADDRESS"),
        ([enc.vfill(0, 0)], 1 << 39, "ADDRESS"),
        ([enc.vfill(0, 0)], 599 * 32, "UNWRITTEN"),
        ([enc.vdrain(0, 505)], 0, "L1_RANGE"),
        ([enc.vdrain(0, 0)], 8, "ADDRESS"),
        ([enc.vdrain(0, 0)], 1 << 37, "ADDRESS"),
        ([enc.vdrain_node(0, 505, 1, 0)], 0, "L1_RANGE"),
        ([enc.vfill(0, 20), enc.vld(1, 1, 27)], 0, "VFILL_PENDING"),
        ([enc.vfill(0, 20), enc.vdrain(0, 26)], 0, "VFILL_PENDING"),
        ([enc.vfill(0, 20), enc.vdrain_node(0, 19, 1, 0)], 0, "VFILL_PENDING"),
        ([enc.alu(0, 1, 2, pm=3)], 0, "FIELD"),
    ],
)
def test_refused_alike(fresh: VectorBench, words: list[int], base: int, what: str) -> None:
    """What a core cannot do stops both models for the same reason."""
    agree(fresh, words, "raised", what, d0=(base, [(32, 8)] if words[0] >> 27 > 0x1C else [(1, 8)]), d1=(0, [(1, 1)]))


def test_an_unwritten_l1_word_is_refused(bench: VectorBench) -> None:
    bench.reference(Memory(1 << 20))
    agree(bench, [enc.vld(0, 0)], "raised", "L1_UNWRITTEN")
    agree(bench, [enc.vst(0, 0, 8), enc.vst(0, 0, 9, 2), enc.vld(1, 0, 8), enc.vld(1, 0, 9, 2)], "retired")
    bench.compare()


@pytest.mark.parametrize(
    "words",
    [
        # Only a later VFILL, VBAR or VHALT makes a fill's words readable; another fill waits for the first.
        [enc.vfill(0, 20), enc.vfill(0, 40), enc.vld(1, 1, 20), enc.VBAR, enc.vld(2, 1, 40)],
        [enc.vfill(0, 20), enc.alu(3, 1, 2, vc=3), enc.vld(1, 1, 28)],
        # Scalars and constants keep what was written, and every operation reads them as signed zeros.
        [*enc.vseti(3, 0x807FFF), enc.vbcast(4, 3, 1), enc.alu(0, 5, 3, sa=1), enc.vbcast(6, 4, 0)],
        [*enc.vseti_k3(0x000123), enc.alu(2, 5, 3, sa=3), enc.alu(10, 6, 1, 2, 3, sc=3)],
        # A loop of no passes runs once; two loops in a row are not nested.
        [*enc.vseti(1, 0), enc.vloop(1, 2), *enc.vseti(2, 7), enc.vloop(1, 1), enc.alu(3, 1, 1, vc=1, sc=3)],
        # Predicated compares, the predicate being source and destination.
        [enc.alu(11, 0, 1, 2, pr=1, pm=1), enc.alu(12, 0, 3, 4, pr=1, pm=2), enc.vred(3, 6, pr=1)],
        # Unused selectors of a head may be anything but C.
        [enc.alu(0, 1, 2, 3, 4, 0, 1, 3), enc.alu(14, 1, 2, 3, 4, 1, 3, 1)],
        # EXPSUM onto its own source.
        [enc.vsetmode(3), enc.vred(1, 5, 7, 7), enc.vsetmode(0)],
        # Converting in place; a shuffle in place.
        [enc.vcvt(3, 3, 1), enc.vshuf(4, 4, 1), enc.vcvt(5, 6, 2)],
        # A walk that is longer than its descriptor stays at its end.
        [enc.vld(3, 2), enc.vst(4, 2, 30), enc.vst(5, 2, 60, 2)],
    ],
)
def test_small_programs(fresh: VectorBench, words: list[int]) -> None:
    agree(fresh, words, "retired", d0=(0, WORDS8), d1=(0, [(1, 8)]), d2=(100, [(2, 3)]))
    fresh.compare()


@pytest.mark.parametrize("op", range(LAST_ALU + 1))
def test_chain_source_in_a_head(fresh: VectorBench, op: int) -> None:
    """A selector C in a head faults where the operation uses that source, and only there."""
    for i, used in enumerate((True, op in USES_B, op in USES_C)):
        selectors = [0, 1, 3]
        selectors[i] = 2
        words = [enc.vsetmode(1), enc.alu(op, 1, 2, 3, 4, *selectors), enc.alu(0, 1, 0, sa=2, sb=3, sc=3)]
        agree(fresh, [*words, enc.vsetmode(0)], *(["fault", 3, 1] if used else ["retired"]))


@pytest.mark.parametrize("op", range(LAST_ALU + 1))
def test_vector_source_in_a_link(fresh: VectorBench, op: int) -> None:
    """A selector V in a later word faults, whether the operation uses that source or not."""
    for i in range(3):
        selectors = [2, 3, 3]
        selectors[i] = 0
        agree(fresh, [enc.vsetmode(1), enc.alu(0, 1, 2), enc.alu(op, 1, 2, 0, 0, *selectors)], "fault", 2, 2)


def test_a_run_behind_a_bad_burst_does_not_start(fresh: VectorBench) -> None:
    for payload in enc.vector_program([enc.alu(0, 1, 2), enc.VHALT])[:-1]:
        fresh.step(payload)
    assert fresh.receive(0, 512, [0]) == ("bad", "bad")
    for what in (("fault", 9, 0, []), ("retired", 0, [])):
        assert fresh.step(enc.run(0)) == (what, what)
        fresh.compare()


@pytest.mark.parametrize(("buf", "offset", "n", "fate"), [(0, 500, 12, "taken"), (0, 501, 12, "bad")])
def test_bursts(fresh: VectorBench, buf: int, offset: int, n: int, fate: str) -> None:
    rng = Random(5)
    assert fresh.receive(buf, offset, [rng.getrandbits(256) for _ in range(n)]) == (fate, fate)
    expect, got = fresh.step(enc.imem(3, 0x12345678))
    assert got == expect == (("retired", 0, []) if fate == "taken" else ("fault", 9, -1, []))
    fresh.compare()
