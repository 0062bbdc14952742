"""What a plan keeps, refuses and says: residency, inputs, notes on what could not be fused, simplified expressions."""

from __future__ import annotations

import numpy as np
import pytest

from auto.cases import WORKLOADS
from kohakuaccel import graph
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import Graph
from kohakuaccel.graph import build as g
from kohakuaccel.numerics import FP16, INT32
from kohakutpu import api as ktpu
from kohakutpu.auto import GraphPlan, compile_graph, steps
from kohakutpu.device import Device
from kohakutpu.layouts import FP32
from kohakutpu.machines import load

SHIP = load("ship_3x2")


def _mlp() -> Graph:
    b = g.Builder()
    x, w = b.input("x", (12, 64), FP16), b.input("w", (48, 64), FP16)
    table = b.constant(np.linspace(-1, 1, 48 * 48).reshape(48, 48), FP16)
    return b.graph(y=g.linear(g.relu(g.linear(x, w)), table))


def _compiled(program: Graph) -> GraphPlan:
    return compile_graph(program, SHIP, substitutions=())


def test_weights_and_constants_are_packed_once() -> None:
    plan, device = _compiled(_mlp()), Device(SHIP)
    rng = np.random.default_rng(0)
    held = {n: ktpu.tensor(rng.standard_normal(s), device=device) for n, s in (("x", (12, 64)), ("w", (48, 64)))}
    first = plan.run(held)["y"].numpy()
    before = device.counters.bytes_to_device, device.counters.dispatches
    again = plan.run(held)["y"]
    assert (device.counters.bytes_to_device, device.counters.dispatches) == (before[0], before[1] + 1)
    assert again.numpy().tobytes() == first.tobytes()
    fresh = {**held, "x": ktpu.tensor(rng.standard_normal((12, 64)), device=device)}
    plan.run(fresh)
    assert 0 < device.counters.bytes_to_device - before[0] <= 2 * 64 * 64  # the new operand alone


def test_what_a_plan_left_on_the_device_is_read_there() -> None:
    device = Device(SHIP)
    b = g.Builder()
    one = _compiled(b.graph(y=g.relu(g.linear(b.input("x", (20, 64), FP16), b.input("w", (40, 64), FP16)))))
    b = g.Builder()
    two = _compiled(b.graph(y=g.softmax(b.input("y", (20, 40), FP16))))
    rng = np.random.default_rng(1)
    middle = one.run({"x": rng.standard_normal((20, 64)), "w": rng.standard_normal((40, 64)) / 8}, device=device)
    relayouts = device.counters.relayouts
    found = two.run(middle)["y"]
    assert device.counters.relayouts == relayouts  # none through the host
    assert np.allclose(found.numpy().astype(float).sum(1), 1, atol=4e-3)


def test_a_scalar_and_an_input_leave_as_they_are() -> None:
    b = g.Builder()
    x = b.input("x", (3, 5), FP16)
    data = np.arange(15.0).reshape(3, 5)
    found = _compiled(b.graph(m=g.max_(x), x=x)).run({"x": data})
    assert found["m"].shape == ()
    assert found["m"].item() == 14
    assert np.array_equal(found["x"].numpy(), data)


def test_wrong_inputs_are_refused() -> None:
    plan = _compiled(_mlp())
    x, w = np.zeros((12, 64)), np.zeros((48, 64))
    with pytest.raises(Refusal, match="every input is given; got nothing for w"):
        plan.run({"x": x})
    with pytest.raises(Refusal, match=r"input w: an input has its shape; got \(48, 63\); the limit is \(48, 64\)"):
        plan.run_schedule({"x": x, "w": w[:, 1:]})
    with pytest.raises(Refusal, match="inputs are the graph's; known: w, x; got v"):
        plan.run({"x": x, "w": w, "v": w})
    with pytest.raises(Refusal, match="a plan runs on the machine it was made for; got mini"):
        plan.run({"x": x, "w": w}, device=Device("mini"))


def test_an_expression_too_large_for_one_pass_is_cut_and_the_plan_says_so() -> None:
    b = g.Builder()
    inputs = [b.input(f"x{n}", (4, 64), FP16) for n in range(9)]
    total = inputs[0]
    for n, x in enumerate(inputs[1:]):
        total = total * 0.5 + x if n % 2 else g.maximum(total, x)
    program = b.graph(y=total)
    plan = compile_graph(program, SHIP, host="refuse")
    assert "is computed by itself: each operand, the result and the L1 walk take one descriptor" in plan.pretty()
    rng = np.random.default_rng(2)
    data = {f"x{n}": rng.standard_normal((4, 64)).astype(np.float16) for n in range(9)}
    assert np.allclose(plan.run_schedule(data)["y"], graph.run(program, data)["y"], atol=5e-3)


def test_the_kernel_behind_a_plan_can_be_read() -> None:
    work = next(w for w in WORKLOADS if w.name == "gelu of a linear layer")
    text = compile_graph(work.graph(), SHIP).pretty(detail=True)
    assert "kernel auto0  x In(1,18,40)  w In(1,24,40)  c In(1,24)  gelu Out(18,24)" in text
    assert "acc += x[0, i, k] @ w[0, j, k]" in text
    assert "graph:1" in text  # the stage that each line was written for
    # The cubic's numbers went into its polynomial, the halves and doubles into nothing.
    assert "fma(mul(add(acc, c[0, j]), add(acc, c[0, j])), -0.102943, -2.30221)" in text


def test_positions_beyond_fp16_are_compared_in_order() -> None:
    """A causal mask over more positions than halves have whole numbers."""
    b = g.Builder()
    x = b.input("x", (2, 3000), FP16)
    rows, columns = graph.Range("r", 2), graph.Range("c", 3000)
    late = graph.Op("less", (graph.Iota(graph.Index.of(rows) * 1500 + 1400), graph.Iota(graph.Index.of(columns))))
    body = graph.Op("where", (late, graph.Const(0.0), x.at(rows, columns)))
    program = b.graph(y=b.statement(FP16, (rows, columns), body))
    data = {"x": np.ones((2, 3000), np.float16)}
    found = compile_graph(program, SHIP, host="refuse").run_schedule(data)["y"]
    assert np.array_equal(found, graph.run(program, data)["y"])


def test_gathers_by_constants_are_lookups() -> None:
    b = g.Builder()
    x = b.input("x", (6, 40), FP16)
    taken = g.take(x, b.constant([5, 0, 0, 3], INT32), 0)
    program = b.graph(y=taken * 2.0)
    data = {"x": np.random.default_rng(3).standard_normal((6, 40)).astype(np.float16)}
    found = compile_graph(program, SHIP, host="refuse").run_image(data)["y"]
    assert np.array_equal(found, 2 * data["x"][[5, 0, 0, 3]])


@pytest.mark.parametrize("shape", [(66, 3), (3, 22, 5)])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_lie_as_their_operands_before_the_host_is_asked(shape: tuple[int, ...], axis: int) -> None:
    """Rows padded to whole words are no longer rows of all axes."""
    b = g.Builder()
    cut = g.slice_(g.softmax(b.input("x", shape, FP16)), axis, 1)
    program = b.graph(y=g.concat([cut, cut * 0.5], axis))
    plan = compile_graph(program, SHIP, host="refuse")
    data = {"x": np.random.default_rng(4).uniform(-2, 2, shape).astype(np.float16)}
    assert np.allclose(plan.run_schedule(data)["y"], graph.run(program, data)["y"], atol=1e-3)


def test_a_reciprocal_root_is_one_operation_whatever_casts_stand_between() -> None:
    b = g.Builder()
    x = b.input("x", (8, 64), FP16)
    rounded = g.cast(g.mean(x * x, -1, keep=True), FP16) + 1e-5
    program = b.graph(y=x * g.recip(g.sqrt(rounded)))
    plan = compile_graph(program, SHIP, host="refuse")
    text = plan.pretty(detail=True)
    assert "fma(" in text  # the mean's factor and the number added to it
    assert "rsqrt(" in text
    assert "recip(" not in text
    data = {"x": np.random.default_rng(5).standard_normal((8, 64)).astype(np.float16)}
    assert np.allclose(plan.run_schedule(data)["y"], graph.run(program, data)["y"], atol=2e-3)


def test_a_refused_order_of_operands_is_not_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever falls back to other kernels asks at every call."""
    (step,) = _compiled(_mlp()).kernel_steps
    tried: list[str] = []

    def refuse(*_: object) -> None:
        tried.append("planned")
        raise Refusal("an order that no unit reads", where="here")

    monkeypatch.setattr(steps, "build_schedule", refuse)
    for _ in range(3):
        with pytest.raises(Refusal, match="an order that no unit reads"):
            step.planned((None,) * len(step.inputs), (FP32,) * len(step.inputs))
    assert tried == ["planned"]
