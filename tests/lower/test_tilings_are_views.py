"""A tiling is a view, not a memory checkpoint: of the four shapes of the guide only the last writes memory."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import dims, grid, sweep, units
from kohakutpu import kernels
from kohakutpu import lang as L
from kohakutpu.lang import Kernel, kernel
from kohakutpu.lower.plan import Plan
from kohakutpu.machines import load
from levels import language_cases as cases

M, K, N = dims("M, K, N")


def plan(k: Kernel, *shapes: tuple[int, ...], **knobs: int) -> Plan:
    return k._plan(load("ship_3x2"), list(shapes), (None,) * len(shapes), knobs)


def memory_tiles(p: Plan) -> int:
    """Buffers in device memory beyond the kernel's own inputs and outputs."""
    return sum(spec.role == "temp" for spec in p.buffers)


def bytes_written(p: Plan) -> int:
    """Bytes that bands write to device memory."""
    total = 0
    for stage in p.schedule.stages:
        for band in stage.bands:
            for number, ranges in band.writes():
                if p.buffers[number].role != "l1":
                    total += 32 * int(ranges[:, 1].sum())
    return total


def test_one_tiling_covers_operands_that_tile_differently() -> None:
    p = plan(kernels.matmul, (64, 64), (48, 64), gm=4, gn=2, nk=1)
    assert memory_tiles(p) == 0
    assert bytes_written(p) == 2 * 64 * 48


def test_a_tiling_inside_a_tile_makes_no_memory_tile() -> None:
    p = plan(cases.nested, (32, 64), (32, 64))
    assert memory_tiles(p) == 0
    assert bytes_written(p) == 2 * 32 * 32
    flat = plan(cases.nested, (32, 64), (32, 64), part=128)
    assert bytes_written(flat) == bytes_written(p)


def test_a_loop_inside_a_tile_makes_no_checkpoint_per_iteration() -> None:
    few, many = plan(kernels.matmul, (32, 64), (32, 64)), plan(kernels.matmul, (32, 4096), (32, 4096))
    assert memory_tiles(few) == memory_tiles(many) == 0
    assert bytes_written(few) == bytes_written(many)


def test_only_a_second_top_level_tiling_writes_memory() -> None:
    @kernel
    def twice(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, g=4):
        t = L.temp(M, N)
        with units(a.tiles(g), b.tiles(g)) as (i, j):
            acc = L.tile(g, g, 1)
            for k in sweep(a.chunks32(1)):
                acc += a[i, k] @ b[j, k]
            t[i, j] <<= acc
        with units(t.tiles(g), b.tiles(g)) as (i, j):
            c[i, j] <<= L.maximum(t[i, j], 0)

    p = plan(twice, (32, 64), (32, 64))
    assert memory_tiles(p) == 1
    assert bytes_written(p) == 2 * 2 * 32 * 32
    # the same values as the nested spelling, which writes half as much
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((32, 64)).astype(np.float16) for _ in range(2)]
    (one,), (two,) = p.run_image(*inputs), plan(cases.nested, (32, 64), (32, 64)).run_image(*inputs)
    assert one.tobytes() == two.tobytes()


def test_a_forced_checkpoint_is_told_with_its_cause() -> None:
    p = plan(cases.nested, (320, 64), (32, 64))
    assert memory_tiles(p) == 1
    assert "accumulator staged through memory: 40 tiles, but one per vector core fits: 4" in p.pretty()


def test_a_tensor_is_not_tiled_inside_a_tile() -> None:
    @kernel
    def inner(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N)):
        for i, j in grid(a.tiles(1), b.tiles(1)):
            acc = L.tile(1, 1, 1)
            for k in sweep(a.chunks32(1)):
                acc += a[i, k] @ b[j, k]
            with units(a.rows()) as r:
                c[i, j] <<= acc + a[r]

    with pytest.raises(Refusal, match="view of that tile"):
        plan(inner, (8, 32), (8, 32))


def test_split_k_is_a_grid_axis_of_its_own() -> None:
    p = plan(cases.split_k, (16, 1024), (16, 1024), (16,), gm=4, gn=4, split=4)
    assert "grid 4 x 1x1 of 16x16, 4 instances on 4 clusters" in p.pretty()
    assert memory_tiles(p) == 1
    with pytest.raises(Refusal, match="split over the chunks"):
        plan(cases.split_k, (16, 64), (16, 64), (16,), split=3)
