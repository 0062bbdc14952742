"""Units that share a link, a FIFO or a port are slower than units that do not."""

from __future__ import annotations

import tomllib
from itertools import pairwise

import pytest

from kohakuaccel.image import Image
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.machine.describe import parse
from kohakuaccel.sim import Timeline
from kohakutpu.isa import cluster
from kohakutpu.sim import time_image
from sim.schedules import Stream

SENDS = 12


def machine(grid: tuple[int, int], clusters: list[list[int]], cores: list[list[int]], **timing: int) -> Machine:
    text = f"""
        name = "joint"
        family = "kohakutpu"
        [params]
        inst_fifo = 512
        [[mesh]]
        grid = {list(grid)}
        ports = [[0, 1]]
        dram = "1 GiB"
        units.MG = {clusters}
        units.VC = {cores}
    """
    return parse(tomllib.loads(text), "test").with_(timing={"L": 3, **timing})


def drains(unit: Unit, target: Unit) -> Stream:
    """Whole tiles from a cluster to a vector core, one after another: nine flits in ten cycles."""
    stream = Stream()
    stream.add(op=cluster.GEMM, gm=8, gn=8, nk=1)
    for _ in range(SENDS):
        stream.add(op=cluster.DRAIN, n=64, dnode=1, dst_x=target.x, dst_y=target.y)
    return stream


def sent(m: Machine, pairs: list[tuple[int, int]]) -> Timeline:
    """Clusters drain to vector cores, all pairs (cluster, core) at the same time."""
    clusters, cores = m.units_of("MG"), m.units_of("VC")
    programs = tuple(drains(clusters[a], cores[b]).program(clusters[a]) for a, b in pairs)
    t = time_image(m, Image(m.name, (programs,)))
    t.check()
    return t


# Two clusters in a row, vector cores on the ring right and left of them. Both drains to the right share a link.
ROW = machine((2, 1), [[1, 1], [2, 1]], [[3, 1], [1, 0], [2, 2]])


def test_two_drains_over_one_link_take_longer_than_over_two() -> None:
    alone = sent(ROW, [(0, 0)])
    apart = sent(ROW, [(0, 1), (1, 2)])
    joint = machine((3, 1), [[1, 1], [2, 1]], [[3, 0], [3, 2]])
    shared = sent(joint, [(0, 0), (1, 1)])
    assert not any(name.startswith("link") for name in apart.waits())
    assert any(name == "link (2,1)>(3,1)" for name in shared.waits())
    busy = {s.group: s.busy for s in shared.shares()}
    flits = 2 * SENDS * 64 // 8 * 9
    assert busy["link (2,1)>(3,1)"] >= flits
    # One link cannot carry nine flits in ten cycles twice; two links can.
    assert shared.cycles > flits
    assert apart.cycles < 0.75 * shared.cycles
    # The second program is dispatched after the first: a flit per five cycles.
    assert apart.cycles < alone.cycles + 10 * (SENDS + 1)


def test_a_link_carries_no_more_than_a_flit_per_cycle() -> None:
    joint = machine((3, 1), [[1, 1], [2, 1]], [[3, 0], [3, 2]])
    t = sent(joint, [(0, 0), (1, 1)])
    for name, points in t.series.items():
        if name.endswith("flits/cycle"):
            assert all(0 <= value <= 1 + 1e-9 for _, value in points), name
    assert max(value for _, value in t.series["link (2,1)>(3,1) flits/cycle"]) > 0.95


def test_shallow_router_fifos_are_never_faster() -> None:
    """Flits of one input wait behind each other: with a FIFO of one burst the waiting reaches the sender."""
    joint = machine((4, 1), [[1, 1], [2, 1], [3, 1]], [[4, 0], [4, 2], [5, 1]])
    cycles: list[int] = []
    for depth in (64, 32, 16, 9):
        m = joint.with_(params={"router_fifo": depth})
        cycles.append(sent(m, [(0, 0), (1, 1), (2, 2)]).cycles)
    retry = joint.timing.ctl_poll_retry  # the engine sees the end only at its next look
    assert all(b >= a - retry for a, b in pairwise(cycles))
    assert cycles[-1] > cycles[0] + retry


def test_two_clusters_write_through_one_port_slower_than_one() -> None:
    """A port serves a burst in 11 cycles, a cluster makes one in 10."""

    def writes(units: list[int]) -> int:
        clusters = ROW.units_of("MG")
        programs = tuple(stored(clusters[n]).program(clusters[n]) for n in units)
        t = time_image(ROW, Image(ROW.name, (programs,)))
        assert t.counters["bytes written"] == len(units) * SENDS * 64 * 32
        return t.cycles

    def stored(unit: Unit) -> Stream:
        stream = Stream()
        stream.add(op=cluster.GEMM, gm=8, gn=8, nk=1)
        for n in range(SENDS):
            stream.add(op=cluster.DRAIN, n=64, addr=1 << 20 | unit.index << 18 | 2048 * n)
        return stream

    one, two = writes([0]), writes([0, 1])
    assert two > 1.15 * one
    assert two > 2 * SENDS * 8 * 11


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("L", (0, 3, 10, 30, 80)),
        ("router_latency", (1, 4, 9)),
        ("endpoint_in", (0, 2, 7)),
        ("flit_interval", (1, 5, 11)),
        ("kick_to_flit", (1, 8, 40)),
        ("drain_burst", (8, 10, 16)),
        ("write_burst", (8, 11, 20)),
        ("sweep_tail", (0, 20, 50)),
        ("emit_latency", (7, 27, 60)),
        ("fill_base", (0, 8, 30)),
        ("retire_to_accept", (0, 2, 4)),
    ],
)
def test_a_faster_part_is_never_slower(name: str, values: tuple[int, ...]) -> None:
    from sim.schedules import gemm, mesh

    cycles: list[int] = []
    for value in values:
        m = mesh(2, 2).with_(timing={name: value})
        cycles.append(time_image(m, gemm(m, 256, 256, 256, [2])).cycles)
    assert cycles == sorted(cycles)


def test_remote_drains_cross_every_interlink_between_their_meshes() -> None:
    """From mesh 0 to its neighbour 1 is one link of the chain 0-1-3-2, to mesh 2 three (datasheet 1.2)."""
    from kohakutpu import machines

    m = machines.load("multimesh_4").with_(timing={"L": 3})
    source = m.units_of("MG", 0)[1]

    def cycles(mesh: int) -> Timeline:
        target = m.units_of("MG", mesh)[3]
        agent = m.meshes[mesh]
        stream = Stream()
        stream.add(op=cluster.GEMM, gm=8, gn=8, nk=1)
        port = m.port_of(source)
        stream.add(op=cluster.DRAIN, n=64, dnode=1, dbuf=2, dmesh=mesh, dfin=target.y << 4 | target.x, dst_x=port.x,
                   dst_y=port.y, dflags=1, dack_x=agent.agent_x, dack_y=agent.agent_y)  # fmt: skip
        t = time_image(m, Image(m.name, ((stream.program(source),),)))
        t.check()
        return t

    near, far = cycles(1), cycles(2)
    assert {s.group for s in near.shares()} >= {"link mesh 0>mesh 1"}
    assert {s.group for s in far.shares()} >= {"link mesh 0>mesh 1", "link mesh 1>mesh 3", "link mesh 3>mesh 2"}
    extra = far.cycles - near.cycles
    assert extra >= 2 * m.timing.link_latency
    # 128 granules and a descriptor per eight, at two cycles each (link_word, link_beat_extra).
    busy = {s.group: s.busy for s in far.shares()}
    assert busy["link mesh 0>mesh 1"] == 2 * (128 + 16)
    slow = m.with_(timing={"link_word": 4})
    assert time_image(slow, _image(m, source)).cycles > time_image(m, _image(m, source)).cycles


def _image(m: Machine, source: Unit) -> Image:
    agent, target, port = m.meshes[2], m.units_of("MG", 2)[3], m.port_of(source)
    stream = Stream()
    stream.add(op=cluster.GEMM, gm=8, gn=8, nk=1)
    stream.add(op=cluster.DRAIN, n=64, dnode=1, dbuf=2, dmesh=2, dfin=target.y << 4 | target.x, dst_x=port.x,
               dst_y=port.y, dflags=1, dack_x=agent.agent_x, dack_y=agent.agent_y)  # fmt: skip
    return Image(m.name, ((stream.program(source),),))


def test_levels_stages_and_flows_of_a_product() -> None:
    from sim.schedules import gemm, mesh

    m = mesh(1, 2)
    t = time_image(m, gemm(m, 256, 256, 256, [4]))
    assert sum(stage.macs for stage in t.stages) == 256**3
    assert t.levels["DRAM written"] == t.levels["accumulator drained"] == 2 * 256 * 256
    assert t.levels["DRAM read"] == t.levels["L1 A filled"] + t.levels["L1 B filled"] == t.counters["bytes read"]
    assert sum(stage.nbytes for stage in t.stages) == t.counters["bytes read"] + t.counters["bytes written"]
    assert t.peaks["MAC/cycle"] == 1024
    names = [track.name for track in t.tracks]
    assert t.flows
    for flow in t.flows:
        assert names[flow.to_track] == f"{names[flow.from_track]} array"
        assert any(s.track == flow.from_track and s.end == flow.from_cycle and s.kind == "filling" for s in t.spans)
        assert any(s.track == flow.to_track and s.start == flow.to_cycle and s.kind == "compute" for s in t.spans)
    for port in range(2):
        points = [*t.series[f"port {port} read B/cycle"], (t.cycles, 0.0)]
        total = sum(value * (b - a) for (a, value), (b, _) in pairwise(points))
        assert total == pytest.approx(t.counters["bytes read"] / 2, rel=1e-6)
