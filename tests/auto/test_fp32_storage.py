"""Plans under storage="graph": a value typed FP32 is stored so where a vector stage makes it; a note says where not."""

from __future__ import annotations

import numpy as np
import pytest

from auto import cases
from kohakuaccel import graph
from kohakuaccel.graph import Graph
from kohakuaccel.graph import build as g
from kohakuaccel.numerics import FP16, FP32
from kohakutpu import api as ktpu
from kohakutpu.auto import compile_graph
from kohakutpu.machines import load

SHIP = load("ship_3x2")
CLOSE = 2.0**-13
"""A few roundings to E8M15, of the largest element."""
EXACT = ["softmax", "layernorm", "elementwise", "broadcast", "columns", "everything", "running sum"]
MIXED = ["gelu of a linear layer", "along the first axis", "values that leave and are read", "largest of windows"]


def typed(work: cases.Workload) -> Graph:
    b = g.Builder()
    made = work.make(*(b.input(name, shape, FP32) for name, shape in work.shapes.items()))
    outputs = made if isinstance(made, tuple) else (made,)
    return b.graph(**{f"y{n}": t for n, t in enumerate(outputs)})


@pytest.mark.parametrize("name", EXACT + MIXED)
def test_levels_agree_and_are_as_good_as_the_units(name: str) -> None:
    work = next(w for w in cases.WORKLOADS if w.name == name)
    asked = typed(work)
    inputs = {k: v.astype(np.float32) for k, v in work.inputs().items()}
    plan = compile_graph(asked, SHIP, storage="graph")
    assert not plan.host_steps
    by_schedule, by_image, found = plan.run_schedule(inputs), plan.run_image(inputs), plan.run(inputs)
    for label, want in graph.run(asked, inputs).items():
        host = found[label].storage.host()
        assert by_schedule[label].tobytes() == by_image[label].tobytes() == host.tobytes()
        error = np.abs(host.reshape(want.shape) - want).max() / np.abs(want).max()
        assert error <= (CLOSE if name in EXACT else work.tolerance)
        assert host.dtype == np.float32 or any("stored as FP16" in note for note in plan.notes)


def small_sums() -> Graph:
    b = g.Builder()
    x = b.input("x", (8, 40), FP32)
    return b.graph(y=g.sum_(x * x, 1) * 1e-6, h=g.cast(x * 1e9, FP16))


def test_neither_small_nor_large_values_are_lost_on_the_way() -> None:
    x = np.random.default_rng(0).uniform(1e-4, 2e-4, (8, 40)).astype(np.float32)
    plan = compile_graph(small_sums(), SHIP, storage="graph")
    found = plan.run({"x": x})
    assert found["y"].stored == np.float32
    assert np.allclose(found["y"].numpy(), (x.astype(float) ** 2).sum(1) * 1e-6, rtol=1e-3, atol=0)
    assert found["h"].stored == np.float16  # typed so
    assert (found["h"].numpy() == 65504).all()
    by_half = compile_graph(small_sums(), SHIP).run({"x": x})
    assert by_half["y"].stored == np.float16
    assert (by_half["y"].numpy() == 0).all()


def test_an_epilogue_in_fp32_is_a_stage_of_its_own() -> None:
    b = g.Builder()
    x, w = b.input("x", (8, 64), FP32), b.input("w", (16, 64), FP32)
    plan = compile_graph(b.graph(y=g.linear(x, w) * 1e-7), SHIP, storage="graph")
    assert "is typed FP32 and stored as FP16: clusters drain it so" in plan.pretty()
    X, W = (np.random.default_rng(1).uniform(0.5, 1, s) for s in ((8, 64), (16, 64)))
    y = plan.run({"x": X, "w": W})["y"]
    assert y.stored == np.float32
    assert np.allclose(y.numpy(), X @ W.T * 1e-7, rtol=0.02, atol=0)


def test_a_host_step_leaves_fp32_as_it_is() -> None:
    b = g.Builder()
    x = b.input("x", (4, 9), FP32)
    plan = compile_graph(b.graph(y=g.prod(x * 1e-3, 1) * 2.0), SHIP, storage="graph")
    assert plan.host_steps
    X = np.full((4, 9), 0.5, np.float32)
    assert np.allclose(plan.run({"x": X})["y"].numpy(), 2 * (0.5e-3) ** 9, rtol=1e-3, atol=0)


def test_a_recorded_function_keeps_tensors_in_fp32() -> None:
    @ktpu.jit
    def step(a: ktpu.Tensor, b: ktpu.Tensor) -> ktpu.Tensor:
        return (a * b).softmax() * 1e-9

    x = ktpu.tensor(np.random.default_rng(2).standard_normal((6, 20)) * 1e-7, dtype="float32")
    y = ktpu.tensor(np.full((6, 20), 3e7), dtype="float32")
    for _ in range(2):
        got = step(x, y)
        assert got.stored == np.float32
        assert np.allclose(got.numpy(), ((x * y).softmax() * 1e-9).numpy(), rtol=1e-3, atol=0)
