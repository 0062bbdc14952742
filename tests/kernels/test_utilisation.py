"""How much of the clusters' peak a large product's instructions can use, by the units' own cost (datasheet 8.2)."""

from __future__ import annotations

import numpy as np
import pytest

from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu.machines import load


@pytest.mark.parametrize(("latency", "with_fills"), [(3, 0.94), (10, 0.72), (30, 0.30)])
def test_matmul_1024(latency: int, with_fills: float) -> None:
    """Sweeps alone are above 90 % of peak; with its fills a cluster is fetch bound where memory is slow."""
    machine = load("ship_3x2").with_(name="timed", timing={"L": latency})
    device = ktpu.device(machine)
    a, b = (ktpu.tensor(np.ones((1024, 1024), np.float16), device=device) for _ in range(2))
    c = kernels.matmul(a, b)
    assert np.all(c.numpy() == 1028)  # the format's 1.0 is 57 * 9/512, so this is 1024 * (513/512)^2 in FP16
    clusters = machine.units_of("MG")
    peak = 1024**3 / (512 * len(clusters))
    sweeps = max(device.control_value(u, 3) >> 32 for u in clusters)
    busy = max(device.control_value(u, 2) & 0xFFFFFFFF for u in clusters)
    assert peak / sweeps > 0.96
    assert peak / busy == pytest.approx(with_fills, abs=0.01)
