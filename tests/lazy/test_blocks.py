"""`with ktpu.graph():` records, runs at its end, and says where it broke."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import dims, grid
from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu import lang as L
from kohakutpu.lang import kernel

RNG = np.random.default_rng(3)


def tensor(*shape: int) -> ktpu.Tensor:
    return ktpu.tensor(RNG.standard_normal(shape))


def test_a_block_runs_at_its_end_as_one_program() -> None:
    x, w = tensor(16, 32), tensor(8, 32)
    eager = (x @ w).relu().numpy()
    ktpu.reset_stats()
    with ktpu.graph() as g:
        y = (x @ w).relu()
        assert "not computed yet" in repr(y)
        assert ktpu.stats()["dispatches"] == 0
    assert ktpu.stats()["dispatches"] == 1
    assert np.array_equal(y.numpy(), eager)
    assert len(g.programs) == 1
    assert "takes in product" in g.pretty()


def test_every_value_that_is_still_held_is_computed() -> None:
    x = tensor(4, 8)
    with ktpu.graph():
        a = x * 2.0
        b = a + 1.0
        c = b.sum(-1)
        del b
    assert np.array_equal(a.numpy(), (x * 2.0).numpy())
    exact = (x.numpy().astype(float) * 2.0 + 1.0).sum(-1)  # fused: no rounding to FP16 before the sum
    assert np.abs(c.numpy() - exact).max() <= 2.0**-10 * max(1.0, np.abs(exact).max())


def test_named_outputs_are_the_only_ones() -> None:
    x = tensor(4, 8)
    with ktpu.graph() as g:
        a = x * 2.0
        y = a + 1.0
        g.output(y)
    assert np.array_equal(y.numpy(), (x * 2.0 + 1.0).numpy())
    with pytest.raises(Refusal, match="computed where it is asked for") as refused:
        a.numpy()
    assert refused.value.source is not None
    assert "a.numpy()" in refused.value.source.text


def test_reading_inside_is_a_break_that_is_counted() -> None:
    x = tensor(4, 8)
    before = ktpu.stats()["graph_breaks"]
    with ktpu.graph() as g:
        a = x * 2.0
        peak = float(a.numpy().max())
        b = a + peak
    assert ktpu.stats()["graph_breaks"] == before + 1
    (line,) = g.breaks
    assert line is not None
    assert "a.numpy().max()" in line.text
    assert len(g.programs) == 2
    assert np.array_equal(b.numpy(), (x * 2.0 + peak).numpy())


def test_forms_of_recorded_values_are_recorded() -> None:
    x = tensor(2, 3, 4)
    host = x.numpy()
    with ktpu.graph():
        y = x * 1.0
        turned, flat = y.transpose(2, 0, 1) + 0.0, y.reshape(6, 4).T + 0.0
        wide = y.reshape(24) + 0.0
    assert np.array_equal(turned.numpy(), host.transpose(2, 0, 1))
    assert np.array_equal(flat.numpy(), host.reshape(6, 4).T)
    assert np.array_equal(wide.numpy(), host.reshape(24))


def test_an_error_drops_what_was_recorded() -> None:
    x = tensor(3)
    kept: list[ktpu.Tensor] = []

    def fails() -> None:
        with ktpu.graph():
            kept.append(x * 2.0)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    with pytest.raises(Refusal, match="ended with an error"):
        kept[0].numpy()
    assert np.array_equal((x * 2.0).numpy(), x.numpy() * 2)  # nothing records any more


def test_a_block_in_a_block_is_part_of_it() -> None:
    x = tensor(4)
    with ktpu.graph() as g:
        with ktpu.graph():
            y = x + 1.0
        z = y * 2.0
        with pytest.raises(Refusal, match="part of it"), ktpu.graph(host="refuse"):
            pass
    assert len(g.programs) == 1
    assert np.array_equal(z.numpy(), ((x + 1.0) * 2.0).numpy())


def test_a_kernel_without_an_expression_stays_a_call() -> None:
    q, k, v = (tensor(1, 2, 16, 8) for _ in range(3))
    eager = (kernels.online_attention(q * 2.0, k, v) + 1.0).numpy()
    with ktpu.graph() as g:
        y = kernels.online_attention(q * 2.0, k, v) + 1.0
    assert np.array_equal(y.numpy(), eager)
    assert "call  kernel online_attention(1x2x16x8, 1x2x16x8, 1x2x16x8)" in g.pretty()
    assert "test_blocks.py" in g.pretty()
    assert len(g.programs[0].steps) == 3


M, N = dims("M N")


@kernel
def both(x=L.In(M, N), w=L.In(N, optional=True), total=L.Out(M), scaled=L.Out(M, N), *, by=1.0):
    """Two results, an optional operand."""
    for r in grid(x.rows()):
        total[r] <<= L.row_sum(x[r])
        scaled[r] <<= x[r] * by if w is None else x[r] * w * by


def test_a_kernel_of_ones_own_with_two_results_stays_a_call() -> None:
    x, w = tensor(6, 32), tensor(32)
    for more in ({}, {"w": w}):
        eager = both(x, by=0.5, **more)
        with ktpu.graph() as g:
            total, scaled = both(x + 0.0, by=0.5, **more)
            y = scaled + total.reshape(6, 1)
        assert np.array_equal(total.numpy(), eager[0].numpy())
        assert np.array_equal(scaled.numpy(), eager[1].numpy())
        assert np.array_equal(y.numpy(), (eager[1] + eager[0].reshape(6, 1)).numpy())
        assert f"kernel both(6x32, {'32' if more else '-'})" in g.pretty()
    traced = ktpu.jit(lambda x: both(x * 2.0)[0].max())
    assert np.array_equal(traced(x).numpy(), both(x * 2.0)[0].max().numpy())
    with pytest.raises(Refusal, match="one graph"):
        traced.plan(x)
    assert len(traced.program(x).plans) == 2


def test_a_recorded_call_is_refused_like_an_eager_one() -> None:
    with ktpu.graph():
        with pytest.raises(Refusal, match="one tensor per In port"):
            kernels.matmul(tensor(4, 4))
        with pytest.raises(Refusal, match="at least one element"):
            kernels.matmul(ktpu.zeros((0, 4)), tensor(4, 4))


def test_a_knob_asks_for_the_kernel_itself() -> None:
    x, w = tensor(16, 64), tensor(16, 64)
    with ktpu.graph() as g:
        y = kernels.matmul(x, w, gm=1, gn=1)
    assert "call  kernel matmul" in g.pretty()
    assert np.array_equal(y.numpy(), kernels.matmul(x, w, gm=1, gn=1).numpy())


def test_one_device_in_one_recording() -> None:
    other = ktpu.tensor([1.0], device=ktpu.device("mini"))
    with ktpu.graph():
        here = tensor(1) * 2.0
        with pytest.raises(Refusal, match="one device"):
            here.maximum(other)
    assert here.size == 1


def test_a_block_in_a_loop_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from kohakutpu import auto

    compiled: list[object] = []
    original = auto.compile_graph
    monkeypatch.setattr(auto, "compile_graph", lambda *a, **k: compiled.append(a) or original(*a, **k))
    x = tensor(9, 7)
    for _ in range(3):
        with ktpu.graph():
            x = x * 0.75 + 0.125
    assert len(compiled) == 1
