"""Fragments of the guide "Writing kernels", lines as written, each in the smallest kernel that gives it meaning."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import Value, dims, grid, stage, sweep, units
from kohakutpu import api as ktpu
from kohakutpu import lang as L
from kohakutpu.lang import Kernel, kernel

M, K, N = dims("M, K, N")


@kernel
def tiling(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=2, gn=2, nk=2):
    for i, j in grid(a.tiles(gm), b.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(a.chunks32(nk)):
            acc += a[i, k] @ b[j, k]
        c[i, j] <<= acc


@kernel
def placement(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=2, gn=2, nk=2):
    for i, j in grid(a.tiles(gm), b.tiles(gn)):
        ra, rb = L.region(gm, nk), L.region(gn, nk)
        acc = L.tile(gm, gn, nk)
        for k in sweep(a.chunks32(nk)):
            ra <<= a[i, k]
            rb <<= b[j, k]
            acc += ra @ rb
        c[i, j] <<= acc


@kernel
def schedule(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N), *, gm=2, gn=2, nk=2):
    with stage(a.tiles(gm), b.tiles(gn)) as (i, j):
        acc = L.tile(gm, gn, nk)
        for k in sweep(a.chunks32(nk)):
            acc += a[i, k] @ b[j, k]
        c[i, j] <<= acc


def test_all_three_rungs_emit_the_same_instructions() -> None:
    def streams(k: Kernel) -> list[tuple[str, bytes]]:
        return [(one.unit.name, one.rows.tobytes()) for s in k.plan((40, 200), (24, 200)).program.stages for one in s]

    assert streams(tiling) == streams(placement) == streams(schedule)


def sigmoid(v: Value) -> Value:
    return L.recip(L.exp2(v * -1.4426950408889634) + 1)


@kernel
def gate(x=L.In(M, K), w=L.In(N, K), y=L.Out(M, N), *, gm=2, gn=2, nk=2):
    with stage(x.tiles(gm), w.tiles(gn)) as (i, j):
        acc = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            acc += x[i, k] @ w[j, k]
        y[i, j] <<= acc * sigmoid(acc)  # elementwise ON the accumulator


def test_elementwise_work_on_the_accumulator() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((20, 70)), rng.standard_normal((12, 70))
    fused = gate(ktpu.tensor(x), ktpu.tensor(w), gm=2, gn=2, nk=2).numpy()
    product = ktpu.tensor(x) @ ktpu.tensor(w)
    assert np.array_equal(fused, product.silu().numpy())  # the documented FP16 step and no other difference


@kernel
def keep_old(x=L.In(...), block=L.In(...), corr=L.Out(...), new=L.Out(...), *, part=64):
    top = L.temp(...)
    with stage(x.parts(part)) as e:
        top[e] <<= x[e]
    with stage(x.parts(part)) as e:
        corr[e] <<= top[e]  # keep the old value
    with stage(x.parts(part)) as e:
        top[e] <<= L.maximum(top[e], block[e])  # before overwriting it
    with stage(x.parts(part)) as e:
        new[e] <<= top[e]


def test_separate_stages_keep_the_old_value() -> None:
    rng = np.random.default_rng(1)
    x, block = (rng.standard_normal(500).astype(np.float16) for _ in range(2))
    corr, new = keep_old(ktpu.tensor(x), ktpu.tensor(block))
    assert np.array_equal(corr.numpy(), x)
    assert np.array_equal(new.numpy(), np.maximum(x, block))


def test_one_stage_for_both_is_refused_and_names_both_statements() -> None:
    @kernel
    def stale(x=L.In(...), block=L.In(...), top=L.Out(...), corr=L.Out(...), *, part=64):
        with units(x.parts(part)) as e:
            top[e] <<= L.maximum(x[e], block[e])
            corr[e] <<= top[e]

    with pytest.raises(Refusal, match="stale bytes") as caught:
        stale.plan((64,), (64,))
    assert "corr[" in str(caught.value)
    assert "top[e] <<= L.maximum" in str(caught.value)


@kernel
def below_the_diagonal(x=L.In(M, N), y=L.Out(M, N), *, causal=False, block=16, blocks=4):
    """Row block i of y sums row blocks of x: those before it, and its own under the triangle."""
    tri = L.table(np.tril(np.ones((block, block), np.float16))) if causal else None
    total = L.temp(M, N)
    with units(x.rows()) as r:
        total[r] <<= x[r] * 0

    def key_block(i, j, mask):
        for r in grid(block):
            row = i * block + r
            value = x[j * block + r]
            total[row] <<= total[row] + (value if mask is None else value * mask[r])

    for i in sweep(blocks):
        if causal:
            for j in sweep(i):  # only the blocks below the diagonal
                key_block(i, j, None)
            key_block(i, i, tri)  # and the one straddling it
        else:
            for j in sweep(blocks):
                key_block(i, j, None)
    with units(x.rows()) as r:
        y[r] <<= total[r]


@pytest.mark.parametrize("causal", [False, True])
def test_compile_time_control_flow_and_a_bound_that_depends_on_the_loop_around_it(causal: bool) -> None:
    x = np.random.default_rng(2).integers(-8, 8, (64, 16)).astype(np.float16)
    got = below_the_diagonal(ktpu.tensor(x), causal=causal).numpy()
    blocks = x.reshape(4, 16, 16).astype(np.float64)
    want = np.empty_like(blocks)
    for i in range(4):
        own = blocks[i] * np.tril(np.ones((16, 16))) if causal else 0
        want[i] = blocks[: i if causal else 4].sum(0) + own
    assert np.array_equal(got, want.reshape(64, 16))
    trace = below_the_diagonal.trace(causal=causal).pretty()
    assert ("table" in trace) == causal  # an option that is off is not in the graph
