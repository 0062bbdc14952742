"""Single instructions on the clock against the measured points of datasheet 8.1 and 8.2 (h = 2, L = 10)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kohakuaccel.image import EncodedProgram, Image
from kohakuaccel.sim import Timeline
from kohakutpu import machines
from kohakutpu.isa import cluster, vector
from kohakutpu.sim import time_image
from sim.schedules import single

MACHINE = machines.load("ship_3x2").with_(timing={"L": 10})
UNIT = MACHINE.units_of("MG")[1]
FILL, GEMM, DRAIN = ({"op": op} for op in (cluster.FILL, cluster.GEMM, cluster.DRAIN))


def timed(*rows: dict[str, int]) -> Timeline:
    t = time_image(MACHINE, single(MACHINE, UNIT, *rows))
    t.check()
    return t


def spans(t: Timeline, text: str) -> list[tuple[int, int]]:
    return [(s.start, s.end) for s in t.spans if s.text.startswith(text)]


@pytest.mark.parametrize(("n", "preq", "cycles"), [(64, 0, 1318), (64, 1, 926), (128, 1, 1822)])
def test_fill(n: int, preq: int, cycles: int) -> None:
    ((start, end),) = spans(timed(FILL | {"n": n, "preq": preq}), "FILL")
    assert end - start == cycles


@pytest.mark.parametrize(
    ("shape", "busy"), [((16, 16, 2), 532), ((1, 1, 4), 36), ((2, 1, 4), 42), ((2, 2, 4), 51), ((1, 1, 1), 21)]
)
def test_sweep(shape: tuple[int, int, int], busy: int) -> None:
    rows = GEMM | dict(zip(("gm", "gn", "nk"), shape))
    # A DRAIN keeps the round open until the sweep is over.
    t = timed(rows, DRAIN | {"n": 1})
    assert sum(s.end - s.start for s in t.spans if s.kind == "compute") == busy


def test_chained_sweeps_start_534_apart() -> None:
    rows = [GEMM | {"gm": 16, "gn": 16, "nk": 2, "acc": int(i > 0)} for i in range(3)]
    starts = sorted(s.start for s in timed(*rows, DRAIN | {"n": 256}).spans if s.kind == "compute")
    firsts = starts[::2]
    assert [b - a for a, b in pairwise(firsts)] == [534, 534]


# The formula of 8.2 gives 343 for 256 words where 342 was measured.
@pytest.mark.parametrize(("n", "cycles"), [(1, 19), (8, 33), (12, 39), (64, 103), (256, 343)])
def test_plain_drain(n: int, cycles: int) -> None:
    t = timed(GEMM | {"gm": 16, "gn": 16, "nk": 2}, DRAIN | {"n": n})
    sweep = max(s.end for s in t.spans if s.kind == "compute")
    ((_, end),) = spans(t, "DRAIN")
    assert end - (sweep - 20 + 31) == cycles


def test_fused_drain_retires_84_after_the_sweep() -> None:
    t = timed(GEMM | {"gm": 16, "gn": 16, "nk": 2, "emit": 1}, DRAIN | {"n": 256, "fuse": 1})
    sweep = max(s.end for s in t.spans if s.kind == "compute")
    ((_, end),) = spans(t, "DRAIN")
    assert end - sweep == 84


def test_a_large_emission_stalls_its_sweep_on_the_drain_queue() -> None:
    """A burst of 8 leaves every 10 cycles; 512 sub-tiles are handed out faster than that, with 112 on their way."""
    t = timed(GEMM | {"gm": 16, "gn": 32, "nk": 4, "emit": 1}, DRAIN | {"n": 512, "fuse": 1})
    stalled = sum(s.end - s.start for s in t.spans if s.text == "drain queue full")
    assert stalled == 36  # what the closed form of datasheet 8.4 adds per tile
    compute = [s for s in t.spans if s.kind == "compute"]
    assert sum(s.end - s.start for s in compute) == 2048 + 20
    assert max(s.end for s in compute) - min(s.start for s in compute) == 2048 + 20 + stalled


def test_gemm_slot() -> None:
    """A cluster instruction that waits for nothing takes 6 cycles: 2 from retirement to accept, 4 to its effect."""
    t = timed(FILL | {"n": 1, "preq": 1}, GEMM | {"gm": 1, "gn": 1}, DRAIN | {"n": 1})
    ((_, filled),) = spans(t, "FILL A 1")
    assert min(s.start for s in t.spans if s.text == "GEMM 1x1x1") == filled + 6


def test_vector_slots_and_the_measured_run() -> None:
    """A DESC or IMEM takes 3 cycles to the next accept; a RUN of VFILL 64, VBAR, VHALT takes 806."""
    core = MACHINE.units_of("VC")[0]
    words = vector.assemble("VFILL A0,0\nVBAR\nVHALT")
    image = Image(MACHINE.name, ((_core(core.index, words),),))
    t = time_image(MACHINE, image, kernel_cycles={core.name: [802]})
    t.check()
    # Three IMEMs and a DESC arrive every 5 cycles; the last of them takes 3, less the 2 to the next accept.
    assert [b - a for a, b in spans(t, "4 DESC, IMEM")] == [3 * 5 + 1]
    ((start, end),) = spans(t, "RUN")
    assert end - start == 806
    # 64 words at L + 2, the one port behind it idle before.
    ((first, last),) = [(s.start, s.end) for s in t.spans if "VFILL 64" in s.text]
    assert last - first == 64 * 12


def _core(index: int, words: list[int]) -> EncodedProgram:
    import numpy as np

    rows = [(vector.ENV_IMEM, i, 0, word) for i, word in enumerate(words)]
    rows += [(vector.ENV_DESC, 0, 1, vector.dimension(32, 64)), (vector.ENV_RUN, 0, 0, 0)]
    return EncodedProgram(MACHINE.units_of("VC")[index], vector.encode_envelopes(np.array(rows, np.int64)))
