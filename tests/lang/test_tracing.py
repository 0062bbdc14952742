"""Tracing: what a kernel body becomes before any shape is known, and the names users import."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import dims, grid, loop, stage, sweep, units
from kohakuaccel.lang.trace import StageNode
from kohakutpu import lang as L
from kohakutpu.lang import Kernel, kernel

M, K, N = dims("M, K, N")
HERE = Path(__file__).name


@kernel
def matmul(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=2, gn=1, nk=2):
    for i, j in grid(a.tiles(gm), b.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(a.chunks32(nk)):
            acc += a[i, k] @ b[j, k]
        c[i, j] <<= acc


def test_stage_and_units_are_one_class_and_so_are_loop_and_sweep() -> None:
    assert stage is units
    assert loop is sweep


def test_dims() -> None:
    assert [d.name for d in dims("M, K, N")] == ["M", "K", "N"]
    assert (2 * M + 1).value({"M": 5}) == 11
    assert (1 / N).value({"N": 8}) == 0.125
    with pytest.raises(Refusal, match="named like a Python variable"):
        dims("M, 3x")
    with pytest.raises(Refusal, match="own name"):
        dims("M M")


def test_pretty_shows_ports_knobs_statements_and_lines() -> None:
    text = re.sub(r" {2,}", "  ", matmul.trace(gm=16).pretty())
    first = Path(__file__).read_text().splitlines().index("    for i, j in grid(a.tiles(gm), b.tiles(gn)):") + 1
    assert text.splitlines() == [
        "kernel matmul  a In(M,K)  b In(N,K)  c Out(M,N)  gm=16 gn=1 nk=2",
        f"  s0  grid i<-a.tiles(16) j<-b.tiles(1)  {HERE}:{first}",
        f"  s1  acc = tile(16,1,2)  {HERE}:{first + 1}",
        f"  s2  sweep k<-a.chunks32(2)  {HERE}:{first + 2}",
        f"  s3  acc += a[i, k] @ b[j, k]  {HERE}:{first + 3}",
        f"  s4  c[i, j] <<= acc  {HERE}:{first + 4}",
    ]


def test_traces_are_kept_per_knobs() -> None:
    assert matmul.trace(gm=4) is matmul.trace(gm=4)
    assert matmul.trace(gm=4) is not matmul.trace(gm=8)
    matmul.clear()
    assert not matmul.cached()


def test_knob_types_are_part_of_their_identity() -> None:
    @kernel
    def scaled(x=L.In(...), y=L.Out(...), *, s=1):
        for e in grid(x.parts()):
            y[e] <<= x[e] * (2.0 if s is True else s)

    assert "2" in scaled.trace(s=True).pretty()
    assert scaled.trace(s=1) is not scaled.trace(s=True)
    assert scaled.trace(s=0.0) is not scaled.trace(s=-0.0)


def test_two_kernels_of_one_name_and_constants_from_outside() -> None:
    def make(table: np.ndarray) -> Kernel:
        @kernel
        def scaled(x=L.In(...), y=L.Out(...)):
            for e in grid(x.parts()):
                y[e] <<= x[e] * float(table[0])

        return scaled

    one, two = make(np.array([2.0])), make(np.array([3.0]))
    assert "2" in one.trace().pretty()
    assert "3" in two.trace().pretty()
    table = np.array([4.0])
    changing = make(table)
    assert "4" in changing.trace().pretty()
    table[0] = 5.0
    assert "5" in changing.trace().pretty()


def test_a_stage_asks_for_a_barrier_and_a_grid_does_not() -> None:
    @kernel
    def both(x=L.In(...), y=L.Out(...), z=L.Out(...)):
        for e in grid(x.parts()):
            y[e] <<= x[e]
        with stage(x.parts()) as e:
            z[e] <<= -x[e]

    first, second = both.trace().body
    assert isinstance(first, StageNode)
    assert isinstance(second, StageNode)
    assert (first.barrier, second.barrier) == (False, True)


def test_compile_time_control_flow_specialises() -> None:
    @kernel
    def gated(x=L.In(...), y=L.Out(...), *, square=False):
        for e in grid(x.parts()):
            y[e] <<= x[e] * x[e] if square else x[e] + 1

    assert "*" in gated.trace(square=True).pretty()
    assert "+" in gated.trace(square=False).pretty()
