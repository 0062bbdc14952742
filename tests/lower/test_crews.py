"""How tiles are dealt to clusters on machines of revision 2, and what a plan says about it."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.machine import Machine
from kohakutpu import kernels
from kohakutpu.isa import cluster
from kohakutpu.lower.contraction import ContractionBand
from kohakutpu.lower.crews import PLAIN, Mode, crews_of, modes
from kohakutpu.lower.plan import Plan
from kohakutpu.machines import load

DUAL, MULTICAST = "r2_dual_acc", "r2_multicast"


def machine(*features: str, **timing: int) -> Machine:
    return load("ship_3x2").with_(features=dict.fromkeys(features, True), timing=timing)


def matmul(on: Machine, m: int, n: int, k: int) -> tuple[Plan, ContractionBand]:
    plan = kernels.matmul._plan(on, [(m, k), (n, k)], (None, None), {})
    band = plan.schedule.stages[0].bands[0]
    assert isinstance(band, ContractionBand)
    return plan, band


def test_modes_follow_the_flags() -> None:
    assert modes(machine()) == (PLAIN,)
    assert modes(machine(DUAL)) == (PLAIN, Mode(2), Mode(2, "B"), Mode(2, "A"))
    assert modes(machine(MULTICAST)) == (PLAIN, Mode(1, "B", True), Mode(1, "A", True))
    assert len(modes(machine(DUAL, MULTICAST))) == 8
    assert modes(load("singlemesh_2x2").with_(features={MULTICAST: True})) == (PLAIN,)  # one cluster behind a port


def test_crews_are_the_clusters_behind_a_port() -> None:
    names = [[u.name for u in crew] for crew in crews_of(load("ship_3x2"))]
    assert names == [["MG(1,1)", "MG(2,1)"], ["MG(1,2)", "MG(2,2)"], ["MG(1,3)", "MG(2,3)"]]
    assert {len(crew) for crew in crews_of(load("multimesh_4"))} == {3}


def test_left_over_tiles_go_to_clusters_of_different_ports() -> None:
    """Eight tiles on six clusters: the two with a second tile do not share a port."""
    _, band = matmul(machine(), 256, 256, 512)
    busy = [crew[0] for crew, turns in band.deal() if len(turns) == 2]
    assert len(busy) == 2
    assert busy[0].port != busy[1].port


@pytest.mark.parametrize("features", [(), (DUAL,), (MULTICAST,), (DUAL, MULTICAST)])
@pytest.mark.parametrize("shape", [(512, 512, 256), (1000, 130, 96), (60, 2000, 64), (64, 128, 32)])
def test_every_tile_is_dealt_once(features: tuple[str, ...], shape: tuple[int, int, int]) -> None:
    _, band = matmul(machine(*features), *shape)
    dealt = [n for _, turns in band.deal() for turn in turns for mine in turn for n in mine]
    assert sorted(dealt) == list(range(len(band.out_at)))
    for _, turns in band.deal():
        for turn in turns:
            sizes = [len(mine) for mine in turn]
            assert max(sizes) <= band.mode.accumulators
            assert max(sizes) - min(sizes) <= 1


def entries(plan: Plan) -> tuple[int, int]:
    """Entries that memory delivers (a shared one once), and that clusters receive."""
    found = [0, 0]
    for one in plan.program.stages[0]:
        rows = one.rows[one.rows[:, 0] == cluster.FILL]
        n, peers = (rows[:, cluster.CLUSTER.column(name)] for name in ("n", "npeer"))
        found[1] += int(n.sum())
        found[0] += int(np.sum(n / (1 + peers)))
    return found[0], found[1]


def test_sharing_saves_fetches() -> None:
    """Both accumulators use a B chunk that is filled once; a crew's chunk is fetched once."""
    read, received = entries(matmul(machine(), 512, 512, 512)[0])
    assert read == received
    dual = entries(matmul(machine(DUAL), 512, 512, 512)[0])
    both = entries(matmul(machine(DUAL, MULTICAST), 512, 512, 512)[0])
    crew = entries(matmul(machine(MULTICAST), 512, 512, 512)[0])
    assert dual[0] == dual[1]
    assert dual[0] < 0.75 * read
    assert crew[1] == received
    assert crew[0] < 0.75 * read
    assert both[0] < 0.6 * read


def test_the_plan_says_what_was_chosen_and_why() -> None:
    text = matmul(machine(DUAL, MULTICAST), 512, 512, 512)[0].pretty()
    assert "two accumulators, B shared by the clusters behind a port: 165,376 cycles estimated, 287,232 one" in text
    assert "crews MG(1,1) + MG(2,1); MG(1,2) + MG(2,2); MG(1,3) + MG(2,3)" in text
    assert "a drain runs beside the next sweep" in text
    assert "B in 2 buffers of 128 entries: 40 fills for 128 uses" in text


def test_with_fast_memory_the_second_accumulator_hides_drains() -> None:
    """At L = 3 sweeps take the time: no DRAIN is fused, each follows a GEMM on the other accumulator."""
    plan, band = matmul(machine(DUAL, L=3), 512, 512, 512)
    assert band.mode.accumulators == 2
    op, tsel, fuse = (cluster.CLUSTER.column(name) for name in ("op", "tsel", "fuse"))
    for one in plan.program.stages[0]:
        drains = np.flatnonzero(one.rows[:, op] == cluster.DRAIN)
        assert not one.rows[drains, fuse].any()
        for at in drains[:-1].tolist():
            before = one.rows[:at]
            last = before[before[:, op] == cluster.GEMM][-1]
            assert last[tsel] != one.rows[at, tsel]


def test_nothing_to_share_is_left_alone() -> None:
    plan, band = matmul(machine(MULTICAST), 60, 100, 64)
    assert band.mode == PLAIN
    assert "estimated" not in plan.pretty()
