"""Random programs are scheduled without the host, stay near the ruler, and give the same bits at every level."""

from __future__ import annotations

import random

import numpy as np
import pytest

from auto.random_programs import random_program
from kohakuaccel import graph
from kohakutpu.auto import compile_graph
from kohakutpu.machines import load

NEAR = 0.08  # of the largest element; products are quantised


def _held(seed: int, machine: str, levels: bool) -> None:
    program = random_program(random.Random(seed))
    rng = np.random.default_rng(seed)
    data = {v.name: rng.standard_normal(v.shape).astype(np.float16) for v in program.inputs}
    plan = compile_graph(program, load(machine), substitutions=(), host="refuse")
    found = plan.run_schedule(data)
    for label, want in graph.run(program, data).items():
        assert found[label].shape == want.shape
        assert np.abs(found[label].astype(np.float64) - want).max() < NEAR * max(np.abs(want).max(), 1e-2), seed
    if levels:
        for other in (plan.run_program(data), plan.run_image(data)):
            assert all(other[label].tobytes() == found[label].tobytes() for label in found)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 10):
        _held(seed, "ship_3x2", levels=seed % 10 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 300, 50))
def test_more_random_programs(first: int) -> None:
    for seed in range(first, first + 50):
        _held(seed, ("ship_3x2", "mini")[seed % 2], levels=seed % 5 == 0)
