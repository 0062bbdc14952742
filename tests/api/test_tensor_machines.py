"""One program on every machine: the bits depend on the formats, not on how many units share the work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import Fault, Unsupported
from kohakutpu import api as ktpu
from kohakutpu import machines
from kohakutpu.device import Device
from kohakutpu.machines.sizes import sized


def program(device: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    data = [rng.normal(size=shape) for shape in ((2, 37, 70), (45, 70), (45,))]
    x, w, b = (ktpu.tensor(values, device=device) for values in data)
    y = (x @ w + b).silu()
    return [y, y.softmax(), y.rmsnorm(b), y.sum(1), y.max(), x @ x, (y / (y.abs() + 1)).mean((0, 2))]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in machines.names() if name != "ship_3x2"])
def test_the_same_bits_on_every_machine(name: str) -> None:
    for got, want in zip(program(ktpu.device(name)), program(ktpu.device()), strict=True):
        assert got.device.machine.name == name
        assert np.array_equal(got.numpy().view(np.uint16), want.numpy().view(np.uint16))


@pytest.mark.parametrize("name", machines.names())
def test_the_quantiser_refuses_on_every_machine(name: str) -> None:
    """With and without a quantising upload: at the upload, or at the FILL that reads the operand."""
    device = ktpu.device(name)
    a = np.ones((5, 40))
    a[4, 39] = np.nan
    x, w = ktpu.tensor(a, device=device), ktpu.ones((6, 40), device=device)
    with pytest.raises(Fault, match=r"element \[4, 39\]") as fault:
        (x @ w).numpy()
    assert fault.value.code == 0x10
    assert np.array_equal(x.numpy(), a, equal_nan=True)
    assert np.array_equal((w @ w).numpy(), (ktpu.ones((6, 40)) @ ktpu.ones((6, 40))).numpy())
    with ktpu.nonfinite("count", device):
        (x @ w).numpy()
    assert ktpu.stats(device)["nonfinite"] >= 1


@pytest.mark.parametrize(("kind", "missing"), [("clusters", "MG"), ("cores", "VC")])
def test_work_for_a_unit_that_the_machine_lacks_is_refused(kind: str, missing: str) -> None:
    x = ktpu.tensor(np.ones((32, 64)), device=Device(sized(machines.load("ship_3x2"), {kind: 0})))
    calls = {"MG": (lambda: x @ x,), "VC": (x.silu, x.softmax, lambda: x.sum(axis=0))}
    for unit, some in calls.items():
        for call in some:
            if unit == missing:
                with pytest.raises(Unsupported, match=f"got no {missing} on mesh 0"):
                    call()
            else:
                call()
