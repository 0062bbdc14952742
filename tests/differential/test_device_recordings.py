"""What the device really writes for tensor programs, captured and replayed on the plain-Python machine.

From operators down to staging words nothing is written for the test: the reference must arrive at the same
memory, units and node status as the compiled models did.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from differential.harness import same_machine
from kohakuaccel.device import Recording
from kohakutpu import api as ktpu
from kohakutpu import machines
from kohakutpu.device import Device
from kohakutpu.tensor import Tensor
from kohakutpu.units.system import System
from reference.machine import Machine
from reference.presets import PRESETS

Make = Callable[..., Tensor]


def linear_silu(make: Make) -> Tensor:
    return (make(24, 96) @ make(40, 96)).silu()


def softmax(make: Make) -> Tensor:
    return make(5, 70).softmax()


def layernorm(make: Make) -> Tensor:
    return make(3, 2, 48).layernorm(make(48), make(48))


def batched(make: Make) -> Tensor:
    return (make(2, 17, 33) @ make(2, 9, 33)).relu() + make(9)


def chained(make: Make) -> Tensor:
    return (make(20, 64) @ make(16, 64)) @ make(12, 16)


def many_tiles(make: Make) -> Tensor:
    """Several rounds: more tiles than clusters, rows wider than one pass, uneven edges."""
    return (make(150, 200) @ make(170, 200)).rmsnorm(make(170)) * make(150, 170)


PROGRAMS = [linear_silu, softmax, layernorm, batched, chained]


def capture_and_compare(name: str, program: Callable[[Make], Tensor]) -> None:
    rng = np.random.default_rng(len(name))
    system = System(machines.load(name))
    recording = Recording(system)
    device = Device(machines.load(name), recording)

    def make(*shape: int) -> Tensor:
        return ktpu.tensor(rng.standard_normal(shape).astype(np.float32), device=device)

    result = program(make).numpy()
    assert np.isfinite(result).all()
    ref = Machine(PRESETS[name])
    ref.replay(recording.writes)
    same_machine(system, ref, extent=1 << 20, forgets=True)
    assert sum(unit.retired for unit in ref.units.values()) >= 8


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_tensor_programs(name: str, program: Callable[[Make], Tensor]) -> None:
    capture_and_compare(name, program)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_programs_of_many_rounds(name: str) -> None:
    capture_and_compare(name, many_tiles)
