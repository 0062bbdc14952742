"""Devices TINYTPU:0, TINYTPU:1, .. are cores of one system: tensors in shards, copies over the network, counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tinygrad.engine.jit import TinyJit
from tinygrad.tensor import Tensor

import tinytpu.tinygrad as tt
from tinytpu.cores.copying import copy
from tinytpu.machines import load


def names(cores: int) -> tuple[str, ...]:
    return tuple(f"TINYTPU:{core}" for core in range(cores))


def operands() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.integers(-128, 128, (16, 16)).astype(np.int32), rng.integers(-128, 128, (16, 8)).astype(np.int32)


@pytest.mark.parametrize("cores", [2, 4])
def test_rows_in_shards_are_multiplied_side_by_side(cores: int) -> None:
    a, b = operands()
    left = Tensor(a, device="TINYTPU").shard(names(cores), axis=0).realize()
    right = Tensor(b, device="TINYTPU").shard(names(cores)).realize()
    tt.reset()
    found = (left @ right).realize()
    report = tt.report()
    assert (report.device_kernels, report.host_kernels, report.copies) == (cores, 0, 0)
    cycles = list(report.cycles.values())
    assert len(cycles) == cores
    assert len(set(cycles)) == 1
    assert "cycles by device, which work side by side: TINYTPU " in str(report)
    tt.reset()
    alone = (Tensor(a, device="TINYTPU") @ Tensor(b, device="TINYTPU")).realize()
    assert sum(tt.report().cycles.values()) > 0.8 * cores * cycles[0]
    assert found.tolist() == alone.tolist() == (a @ b).tolist()


def test_depth_in_shards_is_reduced_over_the_network() -> None:
    a, b = operands()
    left = Tensor(a, device="TINYTPU").shard(names(2), axis=1)
    right = Tensor(b, device="TINYTPU").shard(names(2), axis=0)
    tt.reset()
    assert (left @ right).tolist() == (a @ b).tolist()
    report = tt.report()
    assert report.host_kernels == 0
    assert report.copied_bytes >= 16 * 8 * 4
    assert f"{report.copies} copies between devices over the network: " in str(report)


def test_a_copy_takes_the_cycles_of_the_network() -> None:
    data = np.arange(100, dtype=np.int32)
    there = Tensor(data, device="TINYTPU").realize()
    tt.reset()
    here = there.to("TINYTPU:1").realize()
    report = tt.report()
    assert (report.copies, report.copied_bytes, report.device_kernels) == (1, 400, 0)
    assert report.copy_cycles == copy(data.view(np.uint8), load()).cycles
    assert report.seconds == pytest.approx(report.copy_cycles / 100e6)
    assert here.tolist() == data.tolist()


def test_a_captured_step_on_shards_is_replayed_with_its_copies() -> None:
    @TinyJit
    def step(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).sum(0).realize()

    a, b = operands()
    counts: list[tuple[int, int]] = []
    for turn in range(4):
        x = Tensor(a + turn, device="TINYTPU").shard(names(2), axis=0).realize()
        w = Tensor(b, device="TINYTPU").shard(names(2)).realize()
        tt.reset()
        assert step(x, w).tolist() == ((a + turn) @ b).sum(0).tolist()
        counts.append((tt.report().copies, tt.report().device_kernels))
    assert counts[3] == counts[1]
    assert min(counts[3]) > 0
