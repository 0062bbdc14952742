"""What is told of a forward pass: an error that is one, cycles that are the clock's, counts that are the device's."""

from __future__ import annotations

import numpy as np
import pytest

from kohakutpu import api as ktpu
from kohakutpu.models.figures import measured, relative


def test_figures_are_those_of_the_run() -> None:
    x, w = np.ones((8, 32), np.float32), np.eye(16, 32, dtype=np.float32)
    a, b = ktpu.tensor(x), ktpu.tensor(w)
    got, figures = measured(lambda: a @ b, x @ w.T)
    assert np.array_equal(got, (a @ b).numpy())
    assert figures.error == relative(got, x @ w.T)
    assert figures.launches == 1
    assert (figures.host_steps, figures.relayouts, figures.saturations) == (0, 0, 0)
    _, timeline = ktpu.time(lambda: a @ b)
    assert figures.cycles == timeline.cycles
    assert figures.milliseconds == pytest.approx(timeline.seconds * 1e3)
    assert "% full" in figures.limiter
    assert "modelled" in figures.pretty()


def test_an_error_is_relative_to_what_is_wanted() -> None:
    assert relative([3.0, 0.0], [3.0, 4.0]) == pytest.approx(0.8)
