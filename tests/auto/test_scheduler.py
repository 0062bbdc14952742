"""Plans of the automatic scheduler: within the ruler's bounds, and the same bits at every level."""

from __future__ import annotations

import pytest

from auto.cases import WORKLOADS, Workload
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import build as g
from kohakuaccel.numerics import FP16
from kohakutpu.auto import compile_graph
from kohakutpu.machines import load

SHIP = load("ship_3x2")


@pytest.mark.parametrize("work", WORKLOADS, ids=lambda w: w.name)
def test_levels_agree_and_stay_near_the_ruler(work: Workload) -> None:
    plan = compile_graph(work.graph(), SHIP, host="refuse")
    one, two, three = (run(work.inputs()) for run in (plan.run_schedule, plan.run_program, plan.run_image))
    for label in one:
        assert one[label].tobytes() == two[label].tobytes() == three[label].tobytes()
    assert work.error(one) < work.tolerance


def test_a_softmax_is_one_stage() -> None:
    work = next(w for w in WORKLOADS if w.name == "softmax")
    text = compile_graph(work.graph(), SHIP).pretty()
    assert text == (
        "plan on ship_3x2: 5 statements in 1 steps\n"
        "kernel auto0: 1 stage\n"
        "  row   softmax: 15 rows of 50, takes in t_sum, exps, t_max, t_mul"
    )


def test_what_no_unit_computes_is_the_hosts_or_refused() -> None:
    b = g.Builder()
    x = b.input("x", (4, 8), FP16)
    program = b.graph(y=g.sin(x * 2.0) + x)
    plan = compile_graph(program, SHIP)
    assert [s.statements for s in plan.host_steps] == [("t_sin",)]
    assert "host  t_sin: the vector cores have no sin" in plan.pretty()
    with pytest.raises(Refusal, match="statement t_sin: every statement is computed by the machine"):
        compile_graph(program, SHIP, host="refuse")


def _first_stage(made: g.Tensor, b: g.Builder) -> str:
    return compile_graph(b.graph(y=made), SHIP, substitutions=(), host="refuse").pretty().splitlines()[2]


def test_a_product_with_one_row_is_made_of_tiles_where_the_estimate_says_so() -> None:
    for lead in ((), (1,), (3, 1)):
        b = g.Builder()
        x, w = b.input("x", (*lead, 64), FP16), b.input("w", (*lead[:-1], 48, 64), FP16)
        product = g.matmul(w, x) if not lead else g.matmul(x, g.transpose(w))
        text = _first_stage(product, b)
        assert text.startswith("  tile")
        assert "(one row: " in text
        assert "cycles estimated on clusters" in text


def test_a_bias_beside_one_row_is_a_vector_for_every_column() -> None:
    b = g.Builder()
    x, w, c = b.input("x", (1, 64), FP16), b.input("w", (48, 64), FP16), b.input("c", (48,), FP16)
    plan = compile_graph(b.graph(y=g.linear(x, w, c)), SHIP, substitutions=())
    assert "c in 48 fp16  per col(" in plan.pretty(detail=True)


def test_a_broadcast_and_what_follows_it_are_one_pass() -> None:
    b = g.Builder()
    old, new, here = b.input("old", (2, 24, 32), FP16), b.input("new", (2, 1, 32), FP16), b.input("here", (24, 1), FP16)
    plan = compile_graph(b.graph(y=old + (new - old) * here), SHIP, host="refuse")
    assert [len(s.stages) for s in plan.kernel_steps] == [1]


def test_a_matrix_that_rows_compute_on_the_way_is_not_written_for_one_product() -> None:
    b = g.Builder()
    x, v = b.input("x", (12, 64), FP16), b.input("v", (64,), FP16)
    assert _first_stage(g.matmul(g.exp(x), v), b) == (
        "  row   reshaped_1: 12 rows of 64 (one row: exp is not written to memory for it alone), takes in exp"
    )
    b = g.Builder()
    x, v = b.input("x", (12, 64), FP16), b.input("v", (64,), FP16)
    assert _first_stage(g.sum_(x * v, -1), b) == "  row   t_sum: 12 rows of 64, takes in t_mul"  # written so: E8M15
