"""Cycles of a cluster on its own against the measured points of datasheet 8.2."""

from __future__ import annotations

import numpy as np
import pytest

from kohakutpu import machines
from kohakutpu.units import state as s
from units_cluster.bench import Unit, random_entries


@pytest.fixture
def unit() -> Unit:
    """Cluster 1 of ship_3x2: two routers from its port; L = 10 as in the measurements."""
    made = Unit(machines.load("ship_3x2").with_(timing={"L": 10}), u=1)
    rng = np.random.default_rng(0)
    for side in (0, 1):
        made.put(side, 0, *random_entries(rng, 512))
    made.poke(0, np.zeros(0x8000, np.uint16))
    return made


@pytest.mark.parametrize(("n", "preq", "cycles"), [(64, 0, 1318), (64, 1, 926), (128, 1, 1822)])
def test_fill(unit: Unit, n: int, preq: int, cycles: int) -> None:
    assert unit.fill(addr=0, n=n, sel=0, preq=preq) == s.RETIRED
    assert (unit.cl.busy[1], unit.cl.fill_wait[1]) == (cycles, cycles)


@pytest.mark.parametrize(
    ("shape", "busy"), [((16, 16, 2), 532), ((1, 1, 4), 36), ((2, 1, 4), 42), ((2, 2, 4), 51), ((1, 1, 1), 21)]
)
def test_sweep(unit: Unit, shape: tuple[int, int, int], busy: int) -> None:
    assert unit.gemm(*shape) == s.RETIRED
    assert unit.cl.busy[1] == busy
    assert unit.cl.compute_cycles[1] == busy - 20


def test_chained_sweeps_start_534_apart_and_overlap_fills(unit: Unit) -> None:
    for i in range(3):
        assert unit.gemm(16, 16, 2, acc=int(i > 0)) == s.RETIRED
        assert unit.cl.busy[1] == 534 * i + 532
    assert unit.fill(addr=0, n=1, sel=0, fbank=1) == s.RETIRED
    assert unit.cl.busy[1] == 534 * 2 + 532


def test_a_small_sweep_holds_the_next_one_back(unit: Unit) -> None:
    assert unit.gemm(2, 2, 4) == s.RETIRED
    assert unit.gemm(2, 2, 4, acc=1) == s.RETIRED
    assert unit.cl.busy[1] == (31 + 31) + 51


@pytest.mark.parametrize(("n", "cycles"), [(1, 19), (8, 33), (12, 39), (64, 103), (256, 343)])
def test_plain_drain(unit: Unit, n: int, cycles: int) -> None:
    """The formula of 8.2 gives 343 for 256 words where 342 was measured."""
    assert unit.gemm(16, 16, 2) == s.RETIRED
    assert unit.drain(n, addr=0x20000) == s.RETIRED
    assert unit.cl.busy[1] == 512 + 31 + cycles


def test_transfer_counts_two_words_a_sub_tile(unit: Unit) -> None:
    assert unit.gemm(16, 16, 2) == s.RETIRED
    assert unit.drain(32, addr=0, dnode=1, dst_x=1, dst_y=1, dbuf=2) == s.RETIRED
    assert unit.cl.busy[1] == 512 + 31 + 103


def test_fused_drain_retires_84_after_the_sweep(unit: Unit) -> None:
    assert unit.gemm(16, 16, 2, emit=1, addr=0x20000) == s.RETIRED
    assert unit.drain(256, fuse=1, addr=0x20000) == s.RETIRED
    assert unit.cl.busy[1] == 532 + 84
