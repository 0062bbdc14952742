"""Values that travel keep their bits: after any history of layouts, an operator gives what it gives on fresh data."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import OutOfMemory
from kohakutpu import api as ktpu


def bits(x: ktpu.Tensor) -> Any:
    return x.numpy().view(np.uint16)


def fresh(x: ktpu.Tensor) -> ktpu.Tensor:
    return ktpu.tensor(x.numpy())


def step(rng: np.random.Generator, x: ktpu.Tensor, y: ktpu.Tensor) -> ktpu.Tensor:
    """One random operator on a (M, N) and a (P, N) tensor; the result has two axes and modest values."""
    match int(rng.integers(12)):
        case 0:
            return (x @ y) * 0.1
        case 1:
            return x.softmax()
        case 2:
            return x + y.mean(0)
        case 3:
            return (x * y.max(0, keepdims=True)).sigmoid()
        case 4:
            return x.T.rmsnorm(np.ones(x.shape[0]))
        case 5:
            return x - x.mean(-1, keepdims=True)
        case 6:
            return (x.reshape(-1) * 0.5).reshape(x.shape)
        case 7:
            return x.layernorm(y.max(0), y.min(0)).silu()
        case 8:
            return (x.reshape(1, *x.shape) @ y).reshape(-1, y.shape[0]) / 8
        case 9:
            return x.maximum(y.sum() * 0.01)
        case 10:
            return x / (x.abs().max() + 1)
        case _:
            return -x


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 8))])
def test_random_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [ktpu.tensor(rng.normal(size=(int(rng.integers(1, 40)), int(rng.integers(1, 70))))) for _ in range(3)]
    for _ in range(25):
        x = values[int(rng.integers(len(values)))]
        y = ktpu.tensor(rng.normal(size=(int(rng.integers(1, 40)), x.shape[1])))
        choice = int(rng.integers(1 << 30))
        if rng.random() < 0.2:
            ktpu.empty_cache()
        got = step(np.random.default_rng(choice), x, y)
        want = step(np.random.default_rng(choice), fresh(x), fresh(y))
        assert np.array_equal(bits(got), bits(want))
        values.append(got)


def test_every_operator_on_every_history() -> None:
    """The same FP16 values from the host, from a product (tiles), from rows, transposed and stretched."""
    rng = np.random.default_rng(7)
    product = ktpu.tensor(rng.normal(size=(21, 40))) @ ktpu.tensor(rng.normal(size=(18, 40)))
    values = product.numpy()
    untouched = ktpu.tensor(rng.normal(size=(21, 18)))
    histories: dict[str, ktpu.Tensor] = {
        "tiles": ktpu.tensor(np.zeros((21, 18))) + product,
        "rows": product.reshape(1, 21, 18).reshape(21, 18) * ktpu.ones(18),
        "transposed": (-(-product).T).T,
        "stretched": product.reshape(21, 18, 1) * ktpu.ones((1, 1, 1)),
    }
    histories["stretched"] = histories["stretched"].reshape(21, 18)
    host = ktpu.tensor(values)
    for name, x in histories.items():
        assert np.array_equal(bits(x), bits(host)), name
        for got, want in [
            (x + untouched, host + untouched),
            (untouched - x, untouched - host),
            (x @ untouched, host @ untouched),
            (untouched @ x, untouched @ host),
            (x.softmax(), host.softmax()),
            (x.sum(0), host.sum(0)),
            (x.T.max(0), host.T.max(0)),
            (x.silu(), host.silu()),
        ]:
            assert np.array_equal(bits(got), bits(want)), name


@pytest.mark.slow
def test_a_loop_holds_no_memory() -> None:
    x, w, b = ktpu.ones((40, 64)), ktpu.ones((48, 64)), ktpu.ones(48)
    held: list[tuple[Any, Any]] = []
    for _ in range(3):
        for _ in range(10):
            (x @ w + b).softmax().sum(0).numpy()
        gc.collect()
        stats = ktpu.stats()
        held.append((stats["buffers"], stats["memory_used"]))
    assert held[1] == held[2]


@pytest.mark.slow
def test_a_small_memory_serves_a_long_program() -> None:
    device = ktpu.device("mini")  # 64 MiB
    parts = [ktpu.full((4 << 20,), value, device=device) for value in range(12)]  # 8 MiB each
    for value, part in enumerate(parts):
        assert (part + 1.0).max().item() == value + 1
    parts[0].pin()
    _ = parts[0] + 1.0
    assert parts[0].layouts()
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    assert parts[0].layouts()
    assert total.max().item() == sum(range(12))
    with pytest.raises(OutOfMemory):
        _ = ktpu.full((40 << 20,), 1.0, device=device) + 1.0
    assert total.min().item() == sum(range(12))


def test_what_a_kernel_reads_survives_the_end_of_its_tensor() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=(16, 16))
    got = ((ktpu.tensor(a) + 1.0) * (ktpu.tensor(a) + 2.0)).numpy()
    assert np.allclose(got, (a + 1) * (a + 2), rtol=4e-3, atol=4e-3)
