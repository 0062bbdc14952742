"""A graph on the machine beside the same graph on the host: what the tests of the lowering compare."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel import graph
from kohakuaccel.graph.native import Native
from tinytpu.lower import Plan, Ran, compile_graph
from tinytpu.lower.stage import Stage

Array = NDArray[Any]


def run(text: str, **inputs: Array) -> tuple[Plan, Ran]:
    """The graph's plan and what it gave. Cycles that the plan foresaw are the machine's."""
    plan = compile_graph(graph.parse(text))
    ran = plan.run(inputs)
    for step, cycles in zip(plan.steps, ran.cycles):
        assert not isinstance(step, Stage) or step.cycles in (0, cycles)
    return plan, ran


def check(text: str, *, tolerance: float = 0.0, **inputs: Array) -> Ran:
    """Every output equals the host's: to the bit, or of reals relatively (NaN where the host has NaN)."""
    _, ran = run(text, **inputs)
    for name, want in Native(graph.parse(text))(inputs).items():
        got = ran.outputs[name]
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=1.5e-45 if tolerance else 0.0)
        else:
            np.testing.assert_array_equal(got, want)
    return ran
