"""Accumulator epilogues: from a vector core's L1 where a tile fits, through memory otherwise, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import dims, grid, sweep
from kohakutpu import lang as L
from kohakutpu.lang import Kernel, kernel
from kohakutpu.lower.plan import Plan
from kohakutpu.machines import load

M, K, N = dims("M, K, N")


@kernel
def fused(x=L.In(M, K), w=L.In(N, K), b=L.In(N), r=L.In(M, N), y=L.Out(M, N), *, gm=4, gn=4, nk=2):
    for i, j in grid(x.tiles(gm), w.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            acc += x[i, k] @ w[j, k]
        y[i, j] <<= (acc + b[j]) * 0.5 + r[i, j]


@kernel
def staged(x=L.In(M, K), w=L.In(N, K), b=L.In(N), r=L.In(M, N), y=L.Out(M, N), *, gm=4, gn=4, nk=2):
    t = L.temp(M, N)
    for i, j in grid(x.tiles(gm), w.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            acc += x[i, k] @ w[j, k]
        t[i, j] <<= acc
    for i, j in grid(x.tiles(gm), w.tiles(gn)):
        y[i, j] <<= (t[i, j] + b[j]) * 0.5 + r[i, j]


def plan(k: Kernel, m: int, n: int, d: int, machine: str = "ship_3x2", **knobs: int) -> Plan:
    return k._plan(load(machine), [(m, d), (n, d), (n,), (m, n)], (None,) * 4, knobs)


def arrays(m: int, n: int, d: int) -> list[np.ndarray]:
    rng = np.random.default_rng(m * n + d)
    return [rng.standard_normal(s).astype(np.float16) for s in ((m, d), (n, d), (n,), (m, n))]


@pytest.mark.parametrize("machine", ["ship_3x2", "mini", "singlemesh_2x2"])
@pytest.mark.parametrize(("m", "n", "d"), [(16, 16, 64), (13, 30, 70), (32, 32, 100)])
def test_fused_and_staged_give_the_same_bits(machine: str, m: int, n: int, d: int) -> None:
    inputs = arrays(m, n, d)
    cores = len(load(machine).units_of("VC", mesh=0))
    tiles = -(-m // 16) * -(-n // 16)
    one, two = plan(fused, m, n, d, machine), plan(staged, m, n, d, machine)
    words = "taken from L1" if tiles <= cores else "staged through memory"
    assert words in one.pretty()
    (a,), (b,), (c,) = one.run_image(*inputs), one.run_schedule(*inputs), two.run_image(*inputs)
    assert a.tobytes() == b.tobytes() == c.tobytes()


def test_a_fused_accumulator_takes_no_memory() -> None:
    assert plan(fused, 16, 16, 64).workspace.nbytes == 0
    assert plan(staged, 16, 16, 64).workspace.nbytes > 0
    text = plan(fused, 16, 16, 64).disassemble()
    assert "dnode" in text


def test_why_an_epilogue_is_staged_is_told() -> None:
    assert "5 tiles, but one per vector core fits: 4" in plan(fused, 80, 16, 32).pretty()
    assert "do not fit a vector core's 512 L1 words" in plan(fused, 64, 128, 64, gm=16, gn=32, nk=1).pretty()


def test_an_epilogue_that_may_not_be_relaxed_is_refused() -> None:
    strict = Kernel(fused.fn, relax=False)
    assert plan(strict, 16, 16, 64).workspace.nbytes == 0
    with pytest.raises(Refusal, match=r"may not be relaxed.*5 tiles"):
        plan(strict, 80, 16, 32)
