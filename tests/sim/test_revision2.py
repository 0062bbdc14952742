"""What revision-2 options do to time (datasheet 10): single instructions, and compiled kernels on both revisions."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.image import Image
from kohakuaccel.machine import Machine
from kohakuaccel.sim import Timeline
from kohakutpu import kernels, machines
from kohakutpu.isa import cluster, vector
from kohakutpu.isa.cluster_tdesc import row_of
from kohakutpu.sim import programs, time_image
from sim.schedules import Stream, single

SHIP = machines.load("ship_3x2").with_(timing={"L": 10})
FILL, GEMM, DRAIN = ({"op": op} for op in (cluster.FILL, cluster.GEMM, cluster.DRAIN))


def option(*names: str, base: Machine = SHIP) -> Machine:
    return base.with_(name="+".join(names), features=dict.fromkeys(names, True))


def spans(t: Timeline, text: str) -> list[tuple[int, int]]:
    return sorted((s.start, s.end) for s in t.spans if s.text.startswith(text) and s.kind != "serve")


@pytest.mark.parametrize(("tsel", "waits"), [(0, True), (1, False)])
def test_a_drain_waits_for_sweeps_of_its_own_accumulator_only(tsel: int, waits: bool) -> None:
    machine = option("r2_dual_acc").with_(params={"acc_count": 2})
    first, long = GEMM | {"gm": 2, "gn": 4, "nk": 1}, GEMM | {"gm": 16, "gn": 16, "nk": 4, "tsel": tsel}
    unit = machine.units_of("MG")[0]
    t = time_image(machine, single(machine, unit, first, long, DRAIN | {"n": 8}, DRAIN | {"n": 8, "tsel": tsel}))
    t.check()
    sweep = max(end for _, end in spans(t, "GEMM 16x16x4"))
    drained = spans(t, "DRAIN 8")[0][1]
    assert (drained > sweep) == waits
    if not waits:
        # 33 after the first sweep is out of the array (8.2), beside the long one.
        assert drained - (max(end for _, end in spans(t, "GEMM 2x4x1")) - 20 + 31) == 33


def shared(machine: Machine, units: list[int], together: bool, n: int = 64) -> Timeline:
    """The same entries for several clusters of one port, each asking for itself or all sharing one fetch."""
    clusters = [machine.units_of("MG")[k] for k in units]
    streams = []
    for unit in clusters:
        others = [u.y << 4 | u.x for u in clusters if u is not unit]
        packed = sum(node << 8 * k for k, node in enumerate(others))
        extra = {"peers": packed, "npeer": len(others), "tag": 7} if together else {}
        stream = Stream()
        stream.add(**FILL, n=n, preq=1, **extra)
        streams.append(stream.program(unit))
    t = time_image(machine, Image(machine.name, (tuple(streams),)))
    t.check()
    return t


def test_a_shared_fetch_reads_once_and_sends_to_everybody() -> None:
    machine = option("r2_multicast").with_(timing={"L": 3})
    own, one = shared(machine, [0, 1], False), shared(machine, [0, 1], True)
    assert own.counters["bytes read"] == 2 * one.counters["bytes read"] == 2 * 64 * 128
    # One entry takes 4 + L alone and four flits for each of two (datasheet 10); apart they follow each other.
    ((start, end),) = [(s.start, s.end) for s in one.spans if s.kind == "serve" and "FILL" in s.text]
    assert end - start == 64 * max(4 + 3, 4 * 2)
    assert one.cycles < 0.7 * own.cycles
    assert {s.text for s in one.spans if s.kind == "filling"} == {"FILL A 64 preq"}
    assert sum(s.kind == "filling" for s in one.spans) == 2


def test_the_leader_waits_for_its_followers() -> None:
    """The follower's program comes a whole fill later."""
    machine = option("r2_multicast")
    leader, follower = machine.units_of("MG")[:2]
    share = {"npeer": 1, "tag": 1, "preq": 1, "n": 16}
    late, early = Stream(), Stream()
    early.add(**FILL, **share, peers=follower.y << 4 | follower.x)
    late.add(**FILL, n=200, preq=1, sel=1)
    late.add(**FILL, **share, peers=leader.y << 4 | leader.x)
    t = time_image(machine, Image(machine.name, ((early.program(leader), late.program(follower)),)))
    t.check()
    one, two = (end for _, end in spans(t, "FILL A 16"))
    assert abs(one - two) < 16  # the way to the farther of them
    waits = [s for s in t.spans if s.text == "peers not ready"]
    assert len(waits) == 1
    assert waits[0].end - waits[0].start > 200 * 14


def test_a_descriptor_fill_takes_as_long_as_fp16_entries() -> None:
    """Four reads of two words per entry, period 8 + L + 2: that of an FP16 entry. A TDESC takes a slot."""
    machine = option("r2_desc_fill")
    unit = machine.units_of("MG")[1]
    plain = time_image(machine, single(machine, unit, FILL | {"n": 64}))
    walked = time_image(machine, single(machine, unit, FILL | {"n": 64, "desc": 1, "dsel": 2}))
    assert spans(plain, "FILL") == spans(walked, "FILL")
    payloads = cluster.encode_rows(np.array([row_of(index=1, field=1, count=300, stride=1 << 20)], np.int64))
    stream = single(machine, unit, FILL | {"n": 64}).stages[0][0]
    both = type(stream)(unit, np.concatenate([payloads, stream.payloads]))
    t = time_image(machine, Image(machine.name, ((both,),)))
    t.check()
    ((start, end),) = spans(t, "FILL")
    assert end - start == 1318


def test_quantised_words_leave_as_half_as_many_flits() -> None:
    words = vector.assemble("VDRAIN A0,0 -> (1,1) buf 1 quant ack\nVHALT")
    rows = [(vector.ENV_IMEM, i, 0, word) for i, word in enumerate(words)]
    rows += [(vector.ENV_DESC, 0, 1, vector.dimension(1, 64)), (vector.ENV_RUN, 0, 0, 0)]
    found = np.zeros((len(rows), programs.FOUND), np.int64)
    programs.traffic(programs.cores(1), np.zeros(len(rows), np.int64), np.array(rows, np.int64), found)
    assert found[-1].tolist() == [0, 0, 32, 0x11, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("wide", [False, True])
def test_attention_stays_on_the_chip_and_is_faster(wide: bool) -> None:
    """Flash attention with r2_vc_quant makes no round trip through memory per key block."""
    names = ("r2_vc_quant", "r2_acc_to_vc") if wide else ("r2_vc_quant",)
    shapes = [(1, 2, 128, 64)] * 3
    times = []
    for machine in (SHIP, option(*names)):
        plan = kernels.online_attention._plan(machine, shapes, (None,) * 3, {})
        times.append(time_image(machine, plan.image(plan.nominal_addresses())))
    old, new = times
    new.check()
    assert new.levels["DRAM written"] < old.levels["DRAM written"] / 2
    assert new.cycles < old.cycles
