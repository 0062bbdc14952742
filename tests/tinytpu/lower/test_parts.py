"""Folds cut in parts: lanes of a short last part hold no term, in whichever step."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel import graph
from tinytpu import machines
from tinytpu.lower import compile_graph
from tinytpu.lower.data import Layout

SMALL = machines.load().with_(name="small", params={"vmem_tiles": 6, "program_words": 48})
FOLDS = {"max": np.maximum, "min": np.minimum, "sum": np.add, "prod": np.multiply}


@pytest.mark.parametrize("op", FOLDS)
@pytest.mark.parametrize("terms", [33, 65, 97, 130, 179, 333])
def test_what_lanes_without_a_term_would_hold_changes_nothing(op: str, terms: int) -> None:
    """A body that is far from neutral where nothing is read."""
    text = f"input a: S32[2,{terms}]\no: S32[i<2] = {op}[k<{terms}] xor(a[i, k], cast(-7654321, S32))\noutput o"
    plan = compile_graph(graph.parse(text), SMALL)
    a = np.random.default_rng(terms).integers(-(2**31), 2**31, (2, terms)).astype(np.int32)
    want = FOLDS[op].reduce(a ^ np.int32(-7654321), axis=1, dtype=np.int32)
    assert plan.run({"a": a}).outputs["o"].tolist() == want.tolist()


def test_the_greatest_quotient_of_parts() -> None:
    """Nothing divided by nothing, in lanes without a term, is no number."""
    text = "input a: FP32[700]\ninput b: FP32[700]\no: FP32[] = max[k<700] a[k] * recip(b[k])\noutput o"
    a, b = np.random.default_rng(1).uniform(1, 2, (2, 700)).astype(np.float32)
    got = compile_graph(graph.parse(text), SMALL).run({"a": a, "b": b}).outputs["o"]
    np.testing.assert_allclose(got, (a / b).max(), rtol=1e-6)


def test_full_steps_hold_a_term_in_every_lane_of_every_tile() -> None:
    for folds in range(1, 80):
        for depth in (1, 4, 16):
            for steps in range(1, 6):
                layout = Layout(16, 3, folds, depth, steps * depth)
                held = (layout.fold() < folds).all(axis=(0, 2))
                first = int(np.argmin(held)) if not held.all() else layout.steps
                assert layout.full == first, layout
