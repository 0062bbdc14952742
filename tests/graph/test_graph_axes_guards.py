"""Ranges are not cut where guards would no longer show that a read is in bounds."""

from __future__ import annotations

import numpy as np

from kohakuaccel.graph import parse, run
from kohakuaccel.graph.rewrite.axes import cut_axes

RUNNING = """
input x: FP32[4,3]
y: FP32[i<4, j<3] = x[i, j] * 2.0
o: FP32[i<12] = sum[k<12] guard(y[(i + k - 11) // 3, (i + k + 1) % 3], 0.0, 11 <= i + k < 23)
output o
"""


def test_a_running_sum_over_a_flattened_value_keeps_its_ranges() -> None:
    graph = parse(RUNNING)
    x = np.arange(12.0).reshape(4, 3)
    cut = cut_axes(graph)
    assert cut.statement("o").ranges == graph.statement("o").ranges
    assert (run(cut, {"x": x})["o"] == 2 * x.reshape(-1).cumsum()).all()
