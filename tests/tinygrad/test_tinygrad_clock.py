"""Simulated time of a part of a script: a scope on devices that have no clock."""

from __future__ import annotations

import numpy as np
import pytest
from tinygrad.tensor import Tensor

import kohakutpu.tinygrad as kt
from kohakuaccel.diagnostics import Refusal


def test_a_scope_takes_simulated_time_and_ends() -> None:
    x = Tensor(np.ones((16, 32), np.float32), device="KTPU").realize()
    kt.reset()
    (x + 1).relu().realize()
    assert kt.report().seconds == 0
    with kt.clock() as report:
        (x + 2).relu().realize()
    first = report.seconds
    assert 0 < first < 1e-3
    assert "us each" in report.by_kernel()
    (x + 3).relu().realize()
    assert report.seconds == first


def test_only_machines_are_clocked() -> None:
    with pytest.raises(Refusal, match="a clocked device is a KohakuTPU; got PYTHON"), kt.clock("KTPU", "PYTHON"):
        pass
