"""Schedules: their printed form, what they cover, and which form a stage gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.diagnostics import OutOfMemory, Refusal
from kohakutpu import kernels
from kohakutpu.lang import Kernel
from kohakutpu.lower.elementwise import ElementwiseBand
from kohakutpu.lower.plan import Plan
from kohakutpu.machines import load


def plan(k: Kernel, *shapes: tuple[int, ...], machine: str = "ship_3x2", **knobs: object) -> Plan:
    return k._plan(load(machine), list(shapes), (None,) * len(shapes), knobs)


def test_matmul_schedule_prints_every_decision() -> None:
    assert plan(kernels.matmul, (256, 512), (256, 512)).pretty().splitlines() == [
        "schedule matmul on ship_3x2",
        "  stage 0  MG  grid 4x2 of 64x128, 8 instances on 6 clusters",
        "    tile 16x32 sub-tiles, 4 K blocks per fill: 21.33 MACs per operand byte, 100.0% of the padded "
        "work is the problem's",
        "    A pack A(256x512, tile 16, chunk 4 preq), B pack B(256x512, tile 32, chunk 4 preq): 4 chunks",
        "    A in 4 buffers of 64 entries: 32 fills for 32 uses",
        "    B in 2 buffers of 128 entries: 32 fills for 32 uses",
        "    drain fused with the last K block, after the sweep for a cluster's last tile -> tiles(256x256, 16x32)",
        "  buffers",
        "    a in 256x512 fp16  pack A(256x512, tile 16, chunk 4 preq)  131,072 B",
        "    b in 256x512 fp16  pack B(256x512, tile 32, chunk 4 preq)  131,072 B",
        "    c out 256x256 fp16  tiles(256x256, 16x32)  131,072 B",
    ]


def test_b_stays_resident_when_its_chunks_fit() -> None:
    resident = plan(kernels.matmul, (512, 256), (128, 256))
    assert "B in 2 buffers of 128 entries: 12 fills for 16 uses" in resident.pretty()  # 2 chunks on 6 clusters
    (stream, *_) = resident.program.stages[0]
    sel = stream.rows[:, 3]
    fills_b = int(((stream.rows[:, 0] == 1) & (sel == 1)).sum())
    tiles = int((stream.rows[:, 0] == 3).sum())
    assert tiles > 1
    assert fills_b == 2  # both chunks once, whatever the number of tiles


def test_softmax_schedule() -> None:
    text = plan(kernels.softmax, (512, 512)).pretty()
    assert "512 rows of 512 on 4 cores" in text
    assert "resident in L1 for every pass" in text
    wide = plan(kernels.softmax, (3, 20000)).pretty()
    assert "rows wider than L1" in wide
    assert "filled again in each of the 3 passes" in wide


def test_coverage_is_verified() -> None:
    good = plan(kernels.silu, (5000,)).schedule
    good.verify()
    (stage,) = good.stages
    (band,) = stage.bands
    assert isinstance(band, ElementwiseBand)

    class Gap(ElementwiseBand):
        def writes(self) -> Sequence[tuple[int, NDArray[np.int64]]]:
            ((buffer, ranges),) = ElementwiseBand.writes(self)
            return ((buffer, ranges[1:]),)

    class Twice(ElementwiseBand):
        def writes(self) -> Sequence[tuple[int, NDArray[np.int64]]]:
            ((buffer, ranges),) = ElementwiseBand.writes(self)
            return ((buffer, np.concatenate([ranges, ranges[:1]])),)

    fields = {name: getattr(band, name) for name in ElementwiseBand.__dataclass_fields__}
    for broken, times in ((Gap, 0), (Twice, 2)):
        bad = replace(good, stages=(replace(stage, bands=(broken(**fields),)),))
        with pytest.raises(Refusal, match=f"exactly once; got written {times} times"):
            bad.verify()


def test_plans_are_cached_by_machine_shape_and_knobs() -> None:
    first = plan(kernels.matmul, (8, 32), (8, 32))
    assert plan(kernels.matmul, (8, 32), (8, 32)) is first
    assert plan(kernels.matmul, (8, 32), (8, 32), machine="mini") is not first
    assert plan(kernels.matmul, (8, 32), (8, 32), gm=1, gn=1, nk=1) is not first
    assert plan(kernels.matmul, (8, 64), (8, 64)) is not first


def test_disassembly_names_units_and_instructions() -> None:
    text = plan(kernels.matmul, (4, 32), (4, 32)).disassemble()
    assert "MG(1,1): 4 instructions" in text
    assert "FILL" in text
    assert "DRAIN" in text
    text = plan(kernels.silu, (16,)).disassemble()
    for word in ("VEXP2", "VINV", "VFILL", "VDRAIN", "RUN"):
        assert word in text


def test_constants_fold_with_the_machines_arithmetic() -> None:
    from kohakuaccel.lang import grid
    from kohakutpu import lang as L
    from kohakutpu.lang import kernel

    @kernel
    def folded(x=L.In(...), y=L.Out(...)):
        for e in grid(x.parts()):
            y[e] <<= x[e] * L.recip(L.where(1.0, 3.0, 0.0))

    assert "VINV" not in plan(folded, (16,)).disassemble()
    (got,) = plan(folded, (1,)).run_schedule(np.array([3.0], np.float16))
    assert abs(float(got[0]) - 1.0) < 1e-3


def test_all_rungs_emit_the_same_instructions() -> None:
    from levels.language_cases import by_regions, by_stage

    spellings = [kernels.matmul, by_regions, by_stage]
    plans = [plan(k, (70, 200), (50, 200), gm=2, gn=4, nk=2) for k in spellings]
    streams = [[(one.unit.name, one.rows.tobytes()) for one in p.program.stages[0]] for p in plans]
    assert streams[0] == streams[1] == streams[2]


def test_temporaries_share_memory_only_when_they_never_live_together() -> None:
    from levels.language_cases import gated, running

    p = plan(gated, (64, 64), (64, 64), (64, 64))
    space = p.workspace
    assert len(space.offsets) == 2
    assert space.nbytes == space.total  # both accumulators are alive in the epilogue
    for q in (p, plan(running, (300,), (300,))):
        space = q.workspace
        for a, (first, last) in space.lifetimes.items():
            for b, (begin, end) in space.lifetimes.items():
                if a < b and first <= end and begin <= last:
                    size = q.buffers[a].layout.nbytes
                    apart = space.offsets[a] + size <= space.offsets[b]
                    assert apart or space.offsets[b] + q.buffers[b].layout.nbytes <= space.offsets[a]


def test_a_tile_says_what_padding_costs() -> None:
    assert "73.2% of the padded work is the problem's" in plan(kernels.matmul, (300, 128), (300, 128)).pretty()


def test_a_footprint_that_no_order_can_fit_is_refused() -> None:
    with pytest.raises(OutOfMemory, match="live temporaries fit the device memory") as caught:
        plan(kernels.silu, (20_000_000,), machine="mini")
    assert caught.value.limit == "67,108,864 bytes"
    assert plan(kernels.silu, (16_000_000,), machine="mini").footprint == 64_000_000
