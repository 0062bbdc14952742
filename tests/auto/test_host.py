"""Host steps: what they compute, what they count, and how they are refused."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel import graph as gr
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import BOOL, Graph
from kohakuaccel.graph import build as g
from kohakuaccel.numerics import FP16, INT32
from kohakutpu import api as ktpu
from kohakutpu.auto import HostStep, compile_graph
from kohakutpu.machines import load

SHIP = load("ship_3x2")


@pytest.fixture(autouse=True)
def _sine_is_a_word(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction] - a fixture
    """The tensor level has no word that only the host computes, so the tests add one."""
    from kohakutpu.auto import patterns_forms

    monkeypatch.setitem(patterns_forms.OPERATORS, "sin", g.sin)


def sines() -> Graph:
    b = g.Builder()
    return b.graph(y=g.sin(b.input("x", (4, 8), FP16) * 2.0) + 1.0)


def test_a_step_is_counted_with_its_bytes() -> None:
    plan = compile_graph(sines(), SHIP)
    (step,) = plan.host_steps
    assert step.reason in plan.pretty()
    x = ktpu.tensor(np.linspace(-2, 2, 32).reshape(4, 8))
    ktpu.reset_stats()
    got = plan.run({"x": x})["y"].numpy()
    assert np.abs(got - (np.sin(2 * x.numpy().astype(float)) + 1)).max() < 2e-3
    stats = ktpu.stats()
    assert stats["host_steps"] == 1
    assert stats["host_step_bytes"] == step.nbytes(plan.graph) == 2 * 2 * 32


def test_it_is_refused_with_statement_and_reason() -> None:
    with pytest.raises(Refusal, match=r"statement t_sin: every statement is computed by the machine; got .*no sin"):
        compile_graph(sines(), SHIP, host="refuse")


def test_every_level_rounds_host_results_alike() -> None:
    plan = compile_graph(sines(), SHIP)
    data = {"x": np.linspace(-3, 3, 32).reshape(4, 8).astype(np.float16)}
    want = plan.run(data)["y"].numpy()
    for run in (plan.run_schedule, plan.run_program, plan.run_image):
        assert run(data)["y"].tobytes() == want.tobytes()


def test_whole_numbers_and_truth_values_go_through_the_host() -> None:
    b = g.Builder()
    x, ids = b.input("x", (6, 8), FP16), b.input("ids", (4,), INT32)
    best = g.argmax(x, -1)
    rows = g.embedding(x, ids)
    program = b.graph(best=best, rows=rows, product=g.prod(x, -1))
    plan = compile_graph(program, SHIP)
    rng = np.random.default_rng(2)
    data = {"x": rng.uniform(0.5, 1.5, (6, 8)).astype(np.float16), "ids": np.array([5, 0, 2, 2])}
    got, want = plan.run(data), gr.run(program, data)
    assert np.array_equal(np.asarray(got["best"]), want["best"])
    assert np.array_equal(got["rows"].numpy(), want["rows"])
    assert np.abs(got["product"].numpy() - want["product"]).max() <= 2.0**-8 * want["product"].max()
    assert plan.host_steps


def test_a_gathered_index_outside_its_promise_is_refused() -> None:
    b = g.Builder()
    program = b.graph(y=g.embedding(b.input("x", (6, 8), FP16), b.input("ids", (1,), INT32)))
    with pytest.raises(Refusal, match="lies in what it promises"):
        compile_graph(program, SHIP).run({"x": np.zeros((6, 8), np.float16), "ids": np.array([6])})


def step_of(make: str) -> tuple[Graph, HostStep]:
    b = g.Builder()
    x, m = b.input("x", (5,), FP16), b.input("m", (5,), BOOL)
    made = {"square": lambda: x * x, "where": lambda: g.where(m, x, 0.0), "less": lambda: g.less(x, 1.0)}[make]()
    graph = b.graph(y=made)
    reads = tuple(v.name for v in graph.inputs if graph.readers(v.name))
    return graph, HostStep((made.name,), "a test", reads, (made.name,))


def test_results_are_rounded_once_and_saturation_is_counted() -> None:
    graph, step = step_of("square")
    values = np.array([1.0 + 2**-10, 256.0, -300.0, np.inf, np.nan], np.float16)
    x = ktpu.tensor(values)
    ktpu.reset_stats()
    (made,) = step.launch(graph, {"x": x}, x.device).values()
    assert np.array_equal(
        made.numpy(), np.array([1.0 + 2**-9, 65504, 65504, np.inf, np.nan], np.float16), equal_nan=True
    )
    assert ktpu.stats()["saturations"] == 2
    (level,) = step.run(graph, {"x": values}).values()
    assert level.tobytes() == made.numpy().tobytes()


def test_truth_values_are_stored_as_one_and_zero() -> None:
    graph, step = step_of("where")
    x = np.arange(5, dtype=np.float16)
    (made,) = step.run(graph, {"x": x, "m": np.array([1, 0, 1, 0, 2], np.float16)}).values()
    assert np.array_equal(made, [0, 0, 2, 0, 4])
    graph, step = step_of("less")
    (made,) = step.run(graph, {"x": x}).values()
    assert made.dtype == np.float16
    assert np.array_equal(made, [1, 0, 0, 0, 0])


def test_the_users_line_stands_in_the_refusal() -> None:
    @ktpu.jit(host="refuse")
    def picks(x: ktpu.Tensor) -> ktpu.Tensor:
        return _host_only(x.relu())

    with pytest.raises(Refusal, match="every statement is computed by the machine") as refused:
        picks(ktpu.ones((4, 8)))
    assert refused.value.source is not None
    assert refused.value.source.file == __file__
    assert refused.value.source.text == 'return recorder.operator("sin", x)'


def _host_only(x: ktpu.Tensor) -> ktpu.Tensor:
    from kohakutpu import recording

    recorder = recording.current()
    assert recorder is not None
    return recorder.operator("sin", x)


def test_a_block_may_refuse_the_host_too() -> None:
    x = ktpu.ones((4, 8))

    def run() -> None:
        with ktpu.graph(host="refuse"):
            y = _host_only(x)
            assert y.shape == (4, 8)

    with pytest.raises(Refusal, match="statement t_sin"):
        run()
    with ktpu.graph() as recorded:
        y = _host_only(x)
    assert len(recorded.programs[0].host_steps) == 1
    assert np.abs(y.numpy() - np.sin(1.0)).max() < 1e-3
