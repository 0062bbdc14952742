"""From any byte order to any other, also under another shape: every level gives the elements in their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.schedule import BufferSpec, Schedule, Stage
from kohakutpu.layouts import DrainedTiles, Layout, OperandPack, RowMajor, TilePattern
from kohakutpu.lower import reorder
from kohakutpu.lower.plan import Plan
from kohakutpu.lower.work import data_words
from kohakutpu.machines import load

MINI = load("mini")


def check(held: Layout, wanted: Layout, transpose: bool, matrices: int, rows: int, cols: int) -> list[str]:
    """Runs the steps at every level; their names."""
    steps = reorder.steps(MINI, held, wanted, transpose, matrices, rows, cols)
    assert steps is not None
    size = held.size
    buffers = [BufferSpec("x", "in", (size,), held, 0)]
    stages: list[Stage] = []
    for number, step in enumerate(steps):
        role = "out" if number == len(steps) - 1 else "temp"
        buffers.append(BufferSpec(f"b{number}", role, (size,), step.target, 0))
        stages.append(Stage((reorder.band(step, MINI, number, number + 1, SourceLine("", 0)),)))
    words = tuple(data_words(spec.layout) for spec in buffers if isinstance(spec.layout, Layout))
    schedule = Schedule("steps", MINI.name, tuple(buffers), tuple(stages), words)
    schedule.verify()
    plan = Plan(MINI, schedule)
    assert plan.relayouts == len(steps)
    x = (np.arange(size) % 2039).astype(np.float16)
    want = x.reshape(matrices, rows, cols)
    want = (want.transpose(0, 2, 1) if transpose else want).reshape(-1)
    for run in (plan.run_schedule, plan.run_program, plan.run_image):
        (got,) = run(x)
        assert np.array_equal(got.reshape(-1), want)
    return [type(step).__name__ for step in steps]


ROWS = RowMajor.of


@pytest.mark.parametrize(
    ("held", "wanted", "transpose", "shape", "steps"),
    [
        (ROWS(6, 20), ROWS(20, 6), False, (1, 20, 6), ["Resplit"]),
        (ROWS(20, 6), ROWS(6, 20), False, (1, 6, 20), ["Resplit"]),
        (ROWS(1, 960), ROWS(32, 30), False, (1, 32, 30), ["Resplit"]),
        (ROWS(32, 30), ROWS(1, 960), False, (1, 1, 960), ["Resplit"]),
        (ROWS(7, 500), ROWS(70, 50), False, (1, 70, 50), ["Resplit"]),
        (ROWS(30, 1), ROWS(5, 6), False, (1, 5, 6), ["Trip"]),
        (ROWS(5, 6), ROWS(30, 1), False, (1, 30, 1), ["Trip"]),
        (ROWS(8, 32), ROWS(16, 16), False, (1, 16, 16), ["Trip"]),
        (DrainedTiles(30, 40, 2, 4), ROWS(75, 16), False, (3, 25, 16), ["Trip", "Resplit"]),
        (DrainedTiles(30, 40, 2, 4), ROWS(120, 10), True, (3, 10, 40), ["Trip", "Trip"]),
        (DrainedTiles(30, 40, 2, 4), OperandPack(10, 40, 2, 1, 3), False, (3, 10, 40), ["Trip", "Trip"]),
        (ROWS(35, 33), OperandPack(33, 35, 2, 1), False, (1, 33, 35), ["Resplit", "Trip"]),
        (ROWS(3, 40), ROWS(1, 120), False, (1, 3, 40), ["Resplit"]),
    ],
)
def test_steps(held: Layout, wanted: Layout, transpose: bool, shape: tuple[int, int, int], steps: list[str]) -> None:
    assert check(held, wanted, transpose, *shape) == steps


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.integers(4, 60), st.integers(4, 60), st.integers(4, 12))
def test_any_cut(rows: int, cols: int, pieces: int) -> None:
    held, wanted = ROWS(rows * pieces, cols), ROWS(rows, cols * pieces)
    check(held, wanted, False, 1, wanted.rows, wanted.cols)
    check(wanted, held, False, 1, held.rows, held.cols)


def test_what_the_cores_cannot_do() -> None:
    """Orders without a way back, quantised ones, and words that gather too many rows."""
    rows = ROWS(64, 32)
    assert reorder.steps(MINI, rows, TilePattern(2048, 8, "col"), False, 1, 64, 32) is None
    assert reorder.steps(MINI, rows, OperandPack(64, 32, 4, 1, preq=True), False, 1, 64, 32) is None
    assert reorder.steps(MINI, OperandPack(64, 32, 4, 1), rows, False, 1, 64, 32) is None
    assert reorder.steps(MINI, ROWS(60, 2), ROWS(6, 20), False, 1, 6, 20) is None
