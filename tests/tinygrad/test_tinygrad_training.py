"""Training: gradients, optimizers, randomness, replayed steps, several devices, files; against tinygrad's emulator.

The emulator (the device PYTHON) runs tinygrad's own operations one by one and shares nothing with ours.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tinygrad import nn
from tinygrad.device import Device
from tinygrad.engine.jit import TinyJit
from tinygrad.helpers import Context
from tinygrad.nn import optim
from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save
from tinygrad.tensor import Tensor

import kohakutpu.tinygrad as kt
from kohakutpu.tinygrad.device import KTPUDevice

D, REFERENCE = "KTPU", "PYTHON"


def given(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def attention(x: Tensor, w: Tensor) -> Tensor:
    q = x @ w
    return (q @ x.T * 0.25).softmax(-1) @ x


FORWARD: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...], tuple[int, ...]]] = {
    "matmul": (lambda x, w: (x @ w).relu(), (4, 8), (8, 6)),
    "convolution": (lambda x, w: x.conv2d(w, padding=1).relu(), (2, 2, 4, 4), (3, 2, 3, 3)),
    "pool": (lambda x, w: cast(Tensor, (x * w).max_pool2d()), (1, 2, 4, 4), (1, 2, 4, 4)),
    "layer norm": (lambda x, w: x.layernorm() * w, (3, 8), (8,)),
    "attention": (attention, (6, 8), (8, 8)),
    "embedding": (lambda x, w: w[Tensor([1, 0, 2], device=w.device)] * x, (3, 4), (5, 4)),
}


def gradients(name: str, device: str) -> list[np.ndarray]:
    forward, *shapes = FORWARD[name]
    x, w = (Tensor(given(*s, seed=n), device=device) for n, s in enumerate(shapes))
    out = forward(x, w)
    loss = (out * Tensor(given(*(int(n) for n in out.shape), seed=7), device=device)).sum()
    return [g.numpy() for g in loss.gradient(x, w)]


@pytest.mark.slow
@pytest.mark.parametrize("name", FORWARD)
def test_gradients(name: str) -> None:
    wanted = gradients(name, REFERENCE)
    with kt.numerics(float32="host"):
        for got, want in zip(gradients(name, D), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)
    for got, want in zip(gradients(name, D), wanted, strict=True):
        assert np.linalg.norm(got - want) <= 0.05 * np.linalg.norm(want)


OPTIMIZERS: dict[str, Callable[[list[Tensor]], Any]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: optim.Adam(p, lr=0.1),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.1),
    "LAMB": lambda p: optim.LAMB(p, lr=0.1),
}


def optimized(name: str, device: str) -> np.ndarray:
    p = Tensor(given(4, 4), device=device).realize()
    aim = Tensor(given(4, 4, seed=1), device=device)
    optimizer = OPTIMIZERS[name]([p])
    with Context(TRAINING=1):
        for _ in range(3):
            optimizer.zero_grad()
            ((p - aim) ** 2).sum().backward()
            optimizer.step()
    return p.numpy()


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    # Parameters stay float32: only the gradient has passed through the machine's halves.
    np.testing.assert_allclose(optimized(name, D), optimized(name, REFERENCE), rtol=2e-3, atol=2e-3)


def drawn(device: str) -> list[np.ndarray]:
    Tensor.manual_seed(5)
    x = Tensor.rand(4, 5, device=device)
    with Context(TRAINING=1):
        dropped = Tensor.ones(6, 6, device=device).contiguous().dropout(0.5)
    return [x.numpy(), Tensor.randint(8, low=0, high=9, device=device).numpy(), dropped.numpy()]


def test_random_numbers_have_the_bits_of_other_devices() -> None:
    for got, want in zip(drawn(D), drawn(REFERENCE), strict=True):
        assert got.dtype == want.dtype
        assert (got == want).all()


class Net:
    """Two layers."""

    def __init__(self) -> None:
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def __call__(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def trained(steps: int, *, jit: bool, devices: tuple[str, ...] = (D,), state: Path | None = None) -> list[float]:
    """Losses of a perceptron's steps; `state`: its parameters go through a file after the first."""
    Tensor.manual_seed(1)
    with Context(DEV=D, TRAINING=1):
        net = Net()
        parameters = get_parameters(net)
        if len(devices) > 1:
            for p in parameters:
                p.to_(devices)
        optimizer = optim.SGD(parameters, lr=0.05)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (net(x) - y).square().mean().backward()
            return loss.realize(*optimizer.schedule_step())

        run = TinyJit(step) if jit else step
        losses: list[float] = []
        for n in range(steps):
            x, y = Tensor(given(8, 8, seed=n % 2)), Tensor(given(8, 4, seed=9 + n % 2))
            if len(devices) > 1:
                x, y = x.shard(devices, axis=0), y.shard(devices, axis=0)
            losses.append(float(run(x.realize(), y.realize()).item()))
            if state is not None and n == 0:
                safe_save(get_state_dict(net), str(state))
                for p in parameters:
                    p.assign(p.zeros_like()).realize()
                load_state_dict(net, safe_load(str(state)), verbose=False)
        return losses


@pytest.mark.slow
def test_a_replayed_step_is_the_step(tmp_path: Path) -> None:
    losses = trained(5, jit=False)
    assert losses[4] < losses[0]
    assert trained(5, jit=True) == losses
    assert trained(5, jit=False, state=tmp_path / "net.safetensors") == losses


@pytest.mark.slow
def test_a_step_on_two_devices() -> None:
    np.testing.assert_allclose(trained(4, jit=True, devices=(f"{D}:0", f"{D}:1")), trained(4, jit=False), rtol=2e-2)


@pytest.mark.slow
def test_memory_stays_flat_and_nothing_is_compiled_again() -> None:
    """Many replays leave the device's memory and every cache as they were."""
    from tinygrad.codegen import to_program_cache

    Tensor.manual_seed(1)
    engine = cast(KTPUDevice, Device[D]).engine
    seen: list[tuple[int, int, int]] = []
    with Context(DEV=D, TRAINING=1):
        net = Net()
        optimizer = optim.Adam(get_parameters(net), lr=0.01)

        @TinyJit
        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (net(x) - y).square().mean().backward()
            return loss.realize(*optimizer.schedule_step())

        x, y = Tensor(given(8, 8)).realize(), Tensor(given(8, 4)).realize()
        for n in range(60):
            step(x, y).item()
            if n in (20, 59):
                stats = engine.device.arena().stats()
                seen.append((stats.used, stats.blocks, len(to_program_cache)))
    assert seen[0] == seen[1]


def test_copies_from_and_to_other_devices() -> None:
    x = given(3, 5)
    there = (Tensor(x, device=D) * 2).realize()  # on the machine alone
    np.testing.assert_allclose((there.to(REFERENCE) + 1).numpy(), 2 * x + 1, atol=5e-3)
    for other in (REFERENCE, "NPY"):
        np.testing.assert_allclose((Tensor(x, device=other).to(D) + 1).numpy(), x + 1, atol=5e-3)
