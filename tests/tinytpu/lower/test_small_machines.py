"""Machines with little of something: programs are cut to it, or the size that is too small is named."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel import graph
from tinytpu import machines
from tinytpu.lower import NotLowered, compile_graph

PRODUCT = """
input a: S8[5,9]
input w: S8[9,6]
p: S32[i<5,j<6] = sum[k<9] cast(a[i, k], S32) * cast(w[k, j], S32)
q: S32[i<5] = max[j<6] p[i, j]
output p
output q
"""
POWERS = "input x: FP32[600]\no: FP32[i<600] = exp2(x[i])\noutput o\n"


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize("size", [{"amem_vectors": 1}, {"amem_vectors": 3, "vregs": 3}])
def test_a_product_and_a_fold_behind_it(size: dict[str, int]) -> None:
    a, w = drawn(5, 9), drawn(9, 6)
    ran = compile_graph(graph.parse(PRODUCT), machines.load().with_(params=size)).run({"a": a, "w": w})
    right = a.astype(np.int32) @ w.astype(np.int32)
    assert (ran.outputs["p"] == right).all()
    assert (ran.outputs["q"] == right.max(1)).all()


def test_a_program_is_no_longer_than_a_run_may_take() -> None:
    x = np.linspace(-9, 9, 600, dtype=np.float32)
    parsed = graph.parse(POWERS)
    whole = compile_graph(parsed, functions="unit").run({"x": x})
    cut = compile_graph(parsed, machines.load().with_(params={"cycle_limit": 1000}), functions="unit").run({"x": x})
    assert (whole.outputs["o"] == cut.outputs["o"]).all()
    assert cut.counts.programs > whole.counts.programs
    assert cut.counts.cycles // cut.counts.programs <= 1000


def test_terms_that_fit_no_program_are_values_of_their_own() -> None:
    x = np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32)
    parsed = graph.parse("input x: FP32[3,7]\no: FP32[i<3] = sum[k<7] exp2(x[i, k])\noutput o\n")
    plan = compile_graph(parsed, machines.load().with_(params={"program_words": 12}))
    ran = plan.run({"x": x})
    assert plan.text().startswith("o_terms: ")
    assert np.allclose(ran.outputs["o"], np.exp2(x).sum(1), rtol=1e-6)
    assert ran.counts.carried > 0


@pytest.mark.parametrize("vregs", [1, 2])
def test_fewer_registers_than_an_instruction_reads_are_refused(vregs: int) -> None:
    machine = machines.load().with_(params={"vregs": vregs})
    wanted = rf"params.vregs: an instruction's operands stand in vregs; got {vregs}; the limit is {vregs + 1} at least"
    with pytest.raises(NotLowered, match=wanted):
        compile_graph(graph.parse(PRODUCT), machine, mxu="never")
