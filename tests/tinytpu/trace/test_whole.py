"""Recordings: what is kept of a process's programs, their timeline and table; nothing outside of one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from kohakuaccel import graph
from kohakuaccel.diagnostics import Refusal
from tinytpu import kernels, machines, runner
from tinytpu.lower import compile_graph
from tinytpu.recording import Played, labelled, recording
from tinytpu.trace.whole import table, usages, whole

ROOT = Path(__file__).resolve().parents[3]
LAYER = """
input a: S8[24,8]
input w: S8[8,12]
p: S32[i<24,j<12] = sum[k<8] cast(a[i, k], S32) * cast(w[k, j], S32)
s: S32[i<24] = max[k<12] p[i, k]
output s
"""


@pytest.fixture(scope="module")
def played() -> list[Played]:
    machine = machines.load()
    plan = compile_graph(graph.parse(LAYER), machine)
    gemm = runner.read(ROOT / "examples" / "tinytpu" / "gemm.tasm", machine)
    rng = np.random.default_rng(0)
    a, w = rng.integers(-128, 128, (24, 8), np.int8), rng.integers(-128, 128, (8, 12), np.int8)
    plan.run({"a": a, "w": w})
    with recording() as found:
        for name in ("layer 0", "layer 1"):
            with labelled(name):
                assert (plan.run({"a": a, "w": w}).outputs["s"] == (a.astype(int) @ w).max(1)).all()
        with recording() as inner:
            runner.run(gemm, machine)
        runner.run(gemm, machine, name="again")
    assert [one.name for one in inner] == ["gemm"]
    plan.run({"a": a, "w": w})
    assert {one.name.partition(" / ")[0] for one in found} == {"layer 0", "layer 1", "again"}
    counts = plan.run({"a": a, "w": w}).counts
    layer = [one for one in found if one.name.startswith("layer 1")]
    assert sum(one.times for one in layer) == counts.programs
    assert sum(one.times * one.cycles for one in layer) == counts.cycles
    return found


def test_everything_stands_on_one_timeline(played: list[Played], tmp_path: Path) -> None:
    timeline = whole(played, "both layers", machines.load())
    timeline.check()
    assert timeline.cycles == sum(one.times * one.cycles for one in played)
    assert [t.name for t in timeline.tracks] == ["SXU", "VPU", "XLU", "MXU", "PSUM"]
    stages = [stage.name for stage in timeline.stages]
    assert stages[-3:] == ["again load", "again execute", "again output"]
    assert len(stages) == 3 * sum(one.times for one in played)
    timeline.perfetto(tmp_path / "trace.json")
    names = {event.get("name") for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert {"layer 0 / p, s execute", "layer 1 / p, s execute", "again load"} <= names
    assert [stage.nbytes for stage in timeline.stages[-3:]] == [16 + 4 * 4, 0, 64]
    assert timeline.levels["result lines"] == sum(one.times * 64 * len(one.image.vmem_outputs) for one in played)
    last = timeline.summary().stages[-2].placement
    assert last is not None
    assert (last.roof.bandwidth, last.limit, last.attained) == (32.0, 16.0, 64 / 44)
    assert whole([], "nothing", machines.load()).cycles == 0


def test_the_table_sums_up_by_name(played: list[Played]) -> None:
    rows = usages(played)
    assert sum(row.cycles for row in rows) == sum(one.times * one.cycles for one in played)
    by_name = {row.name: row for row in rows}
    again = by_name["again"]
    assert (again.programs, again.load, again.execute, again.output) == (1, 31, 44, 2)
    assert (again.macs, again.peak, again.instructions) == (64, 77 * 16, 8)
    assert again.busy["MXU"] == 16
    first, *rest = table(rows).splitlines()
    assert (
        first
        == f"{sum(row.cycles for row in rows):,} cycles in {sum(row.programs for row in rows):,} programs (modelled)"
    )
    head = ["programs", "cycles", "of", "all", "load", "execute", "output", "SXU", "VPU", "XLU", "MXU", "PSUM"]
    assert rest[0].split() == [*head, "of", "peak"]
    assert len(rest) == 1 + len(rows)


def test_a_program_that_takes_another_time_is_no_replay(played: list[Played]) -> None:
    with pytest.raises(Refusal, match="a program run again takes as long; got 77; the limit is 78"):
        whole([dataclasses.replace(played[-1], cycles=78)], "wrong", machines.load())


def test_an_image_and_its_bundle_are_one(played: list[Played]) -> None:
    for one in played:
        bundle = runner.bundle_of(one.image)
        assert runner.run(bundle, one.machine).cycles == one.cycles
    known = kernels.known()["sum_256"].plan().bundle
    assert runner.bundle_of(runner.image(known)) == known
