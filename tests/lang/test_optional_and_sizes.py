"""Forms that say less or more of a kernel: optional ports, sizes in indices and temporaries, tables computed from
sizes, numbers per row, products whose operands stand at different chunks, presets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import dims, greatest, grid, least, sweep
from kohakutpu import lang as L
from kohakutpu.lang import Kernel, kernel
from kohakutpu.lower.plan import Plan
from kohakutpu.machines import load

B, C, H, G, M, K, N, P = dims("B C H G M K N P")


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float16)


def levels(k: Kernel, *inputs: Any, **knobs: object) -> tuple[Plan, list[Any]]:
    """The plan and its outputs, after every level gave the same bits."""
    shapes = [x.shape for x in inputs]
    plan = k._plan(load("ship_3x2"), shapes, (None,) * len(inputs), knobs)
    found = [plan.run_schedule(*inputs), plan.run_program(*inputs), plan.run_image(*inputs)]
    for one, two, three in zip(*found):
        assert one.tobytes() == two.tobytes() == three.tobytes()
    return plan, found[0]


@kernel
def biased(x=L.In(..., M, K), w=L.In(N, K), bias=L.In(N, optional=True), y=L.Out(..., M, N), *, g=2):
    for i, j in grid(x.tiles(g), w.tiles(g)):
        acc = L.tile(g, g, 1)
        for k in sweep(x.chunks32(1)):
            acc += x[i, k] @ w[j, k]
        y[i, j] <<= acc if bias is None else acc + bias[j]


def test_an_optional_port_may_be_left_out_or_passed_either_way() -> None:
    x, w, b = draw(5, 40), draw(6, 40), draw(6)
    plain, by_name, by_place = biased(x, w).numpy(), biased(x, w, bias=b).numpy(), biased(x, w, b).numpy()
    assert by_name.tobytes() == by_place.tobytes()
    assert np.abs(by_name - plain - b).max() < 0.02
    assert biased(x, w, bias=None).numpy().tobytes() == plain.tobytes()
    assert len(biased.plan(x, w).schedule.stages) == 1
    assert "bias In" not in biased.trace().pretty()
    assert "bias In(N, optional)" in biased.trace("bias").pretty()


def test_operands_that_are_missing_doubled_or_misspelt_are_named() -> None:
    x, w, b = draw(5, 40), draw(6, 40), draw(6)
    with pytest.raises(Refusal, match=r"one tensor per In port; got 1 tensors; the limit is 2: x, w"):
        biased(x)
    with pytest.raises(Refusal, match=r"passed once; got one by position and one by name"):
        biased(x, w, b, bias=b)
    with pytest.raises(Refusal, match=r"knob is a keyword.*got bais; the limit is g, bias"):
        biased(x, w, bais=b)
    with pytest.raises(Refusal, match=r"knob is a keyword.*got w"):
        biased.trace("w")
    with pytest.raises(Refusal, match=r"one tensor per In port; got 4"):
        biased(x, w, b, b)


def test_a_preset_has_its_own_defaults_and_name() -> None:
    wide = biased.preset("wide", g=4)
    assert wide.__name__ == "wide"
    assert "g=4" in wide.trace().pretty()
    assert "g=2" in biased.trace().pretty()
    with pytest.raises(Refusal, match="got h"):
        biased.preset("other", h=1)


@kernel
def halved(x=L.In(H, M, K), w=L.In(G, N, K), y=L.Out(H, M, N)):
    """Sizes in index arithmetic, and a temporary whose axes are computed."""
    t = L.temp(H, M, N // 2 + N - N // 2)
    for h, i, j in grid(x.each(0), x.tiles(1), w.tiles(2)):
        acc = L.tile(1, 2, 1)
        for k in sweep(x.chunks32(1)):
            acc += x[h, i, k] @ w[h // (H // G), j, k]
        t[h, i, j] <<= acc
    for h, r in grid(t.each(0), t.rows()):
        y[h, r] <<= t[h, r] * 2


def test_sizes_in_indices_and_axes() -> None:
    x, w = draw(4, 5, 40), draw(2, 9, 40)
    _, (y,) = levels(halved, x, w)
    want = 2 * x.astype(np.float64) @ np.repeat(w.astype(np.float64), 2, 0).swapaxes(1, 2)
    assert np.abs(y - want).max() < 1
    with pytest.raises(Refusal, match="divided by a number above zero"):
        halved.plan((1, 4, 8), (2, 4, 8))
    with pytest.raises(Refusal, match="stays inside its axis"):
        halved.plan((5, 4, 8), (2, 4, 8))


def test_an_input_is_declared_by_dims_alone() -> None:
    with pytest.raises(Refusal, match="dims and positive integers"):
        L.In(M, N // 2)


@kernel
def triangle(x=L.In(M, N), y=L.Out(M, N)):
    keep = L.table(lambda m, n: np.tri(m, n, n - m), M, N)
    for r in grid(x.rows()):
        y[r] <<= L.where(keep[r], x[r], 0.0)


def test_a_table_is_computed_from_sizes() -> None:
    for shape in [(3, 5), (5, 3), (1, 40)]:
        x = draw(*shape)
        _, (y,) = levels(triangle, x)
        assert np.array_equal(y, np.where(np.tri(*shape, shape[1] - shape[0]), x, 0))


def test_a_rule_of_another_shape_is_refused() -> None:
    @kernel
    def wrong(x=L.In(M, N), y=L.Out(M, N)):
        t = L.table(lambda m, n: np.zeros((n, m)), M, N)
        for r in grid(x.rows()):
            y[r] <<= x[r] * t[r]

    with pytest.raises(Refusal, match=r"array of the table's shape; got \(5, 3\); the limit is \(3, 5\)"):
        wrong.plan((3, 5))


@kernel
def per_channel(x=L.In(B, C, P), w=L.In(C), m=L.In(B, C), y=L.Out(B, C, P), z=L.Out(B, C), s=L.Out(B, C, P)):
    for b, c in grid(x.each(0), x.rows()):
        y[b, c] <<= L.fma(x[b, c], w[c], m[b, c])
        z[b, c] <<= L.maximum(m[b, c], L.row_max(x[b, c] * w[c]))
        s[b, c] <<= m[b, c] * w[c] + 1


@pytest.mark.parametrize("width", [1, 16, 100, 9000])
def test_numbers_per_row_go_in_and_spread_over_rows(width: int) -> None:
    x, w, m = draw(2, 5, width), draw(5), draw(2, 5)
    _, (y, z, s) = levels(per_channel, x, w, m)
    scaled = x.astype(np.float64) * w[:, None].astype(np.float64)
    assert np.abs(y - (scaled + m[..., None])).max() < 0.02
    assert np.abs(z - np.maximum(m, scaled.max(-1))).max() < 0.02
    assert np.abs(s - (m * w + 1.0)[..., None]).max() < 0.01
    assert (s == s[..., :1]).all()


def test_nothing_but_numbers_per_row() -> None:
    @kernel
    def update(x=L.In(M, N), a=L.In(M), b=L.In(M), y=L.Out(M)):
        for r in grid(x.rows()):
            y[r] <<= L.maximum(a[r] * 2, b[r])

    a, b = draw(7), draw(7, seed=1)
    _, (y,) = levels(update, draw(7, 30), a, b)
    assert np.array_equal(y, np.maximum(a * np.float16(2), b))


@kernel
def halves(x=L.In(..., M, 2, P), c=L.In(M, P), y=L.Out(..., M, 2, P)):
    for m in grid(c.rows()):
        y[m, 0] <<= x[m, 1] * c[m]
    for m in grid(c.rows()):
        y[m, 1] <<= x[m, 0] - c[m]


@pytest.mark.parametrize("width", [7, 32])
def test_rows_at_a_stride_share_a_run(width: int) -> None:
    x, c = draw(2, 9, 2, width), draw(9, width)
    plan, (y,) = levels(halves, x, c)
    assert np.array_equal(y[:, :, 1], x[:, :, 0] - c)
    assert np.abs(y[:, :, 0] - x[:, :, 1].astype(np.float64) * c).max() < 0.01
    assert "5 rows per RUN" in plan.pretty()


@kernel
def shifted(a=L.In(M, K), b=L.In(N, P), y=L.Out(M, N), *, by=1):
    """Chunk k of a against chunk k + by of b."""
    for i, j in grid(a.tiles(2), b.tiles(2)):
        acc = L.tile(2, 2, 1)
        for k in sweep(a.chunks32(1)):
            acc += a[i, k] @ b[j, k + by]
        y[i, j] <<= acc


def test_operands_of_a_product_at_different_chunks() -> None:
    a, b = draw(10, 40), draw(9, 72)
    _, (y,) = levels(shifted, a, b)
    assert np.abs(y - a.astype(np.float64) @ b[:, 32:].astype(np.float64).T).max() < 1
    with pytest.raises(Refusal, match="one contraction length; got 40 and 64"):
        shifted.plan((10, 40), (9, 72), by=0)
    with pytest.raises(Refusal, match="one of K's chunks"):
        shifted.plan((10, 40), (9, 40))


def test_a_bound_is_kept_between_two_others() -> None:
    @kernel
    def banded(a=L.In(M, K), b=L.In(N, K), y=L.Out(M, N)):
        for i, j in grid(a.tiles(1), b.tiles(2)):
            acc = L.tile(1, 2, 1)
            for k in sweep(least(greatest(i - 1, 1), -(-K // 32))):
                acc += a[i, k] @ b[j, k]
            y[i, j] <<= acc

    a, b = draw(24, 70), draw(8, 70)
    _, (y,) = levels(banded, a, b)
    for i in range(6):
        depth = 32 * min(max(i - 1, 1), 3)
        rows = slice(4 * i, 4 * i + 4)
        want = a[rows, :depth].astype(np.float64) @ b[:, :depth].astype(np.float64).T
        assert np.abs(y[rows] - want).max() < 1
    assert "least(greatest((i - 1), 1)" in banded.trace().pretty()
