"""Feed-forward blocks against float64 with the error their formats predict, down projection included."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.expected import Value, close, product
from kernels.test_linear import ACTIVATIONS, draw
from kohakutpu import kernels


def weights(k: int, f: int, n: int) -> list[Any]:
    return [draw(f, k, scale=k**-0.5), draw(f, k, seed=1, scale=k**-0.5), draw(n, f, scale=f**-0.5)]


def gated(x: Any, w: list[Any], activation: str, residual: Any = None) -> Value:
    gate, up, down = w
    left = product(Value.exact(x), Value.exact(gate)).map(ACTIVATIONS[activation])
    hidden = (left * product(Value.exact(x), Value.exact(up))).stored()
    y = product(hidden, Value.exact(down))
    return y if residual is None else y + Value.exact(residual)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (5, 70, 131, 19), (40, 64, 128, 64)])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_mlp(shape: tuple[int, int, int, int], activation: str) -> None:
    m, k, f, n = shape
    x = draw(m, k)
    up, _, down = weights(k, f, n)
    first, second, residual = draw(f), draw(n), draw(m, n)
    got = kernels.mlp(x, up, down, first, second, residual, activation=activation).numpy()
    hidden = (product(Value.exact(x), Value.exact(up)) + Value.exact(first)).map(ACTIVATIONS[activation]).stored()
    close(got, product(hidden, Value.exact(down)) + Value.exact(second) + Value.exact(residual))


@pytest.mark.parametrize(("kernel", "activation"), [(kernels.swiglu, "silu"), (kernels.geglu, "gelu")])
def test_gated(kernel: Any, activation: str) -> None:
    for m, k, f, n in [(1, 1, 1, 1), (7, 33, 67, 19), (40, 64, 128, 64)]:
        x, residual = draw(m, k), draw(m, n)
        w = weights(k, f, n)
        close(kernel(x, *w).numpy(), gated(x, w, activation))
        close(kernel(x, *w, residual).numpy(), gated(x, w, activation, residual))


def test_a_batch_is_its_elements() -> None:
    x, w = draw(3, 9, 33), weights(33, 40, 21)
    got = kernels.swiglu(x, *w).numpy()
    for n in range(3):
        assert got[n].tobytes() == kernels.swiglu(x[n], *w).numpy().tobytes()


def test_stages() -> None:
    # Products, one epilogue, the hidden values' way into operand order (two trips), one product.
    shapes = (64, 64), (128, 64), (128, 64), (64, 128)
    assert len(kernels.swiglu.plan(*shapes).schedule.stages) <= 6
    assert len(kernels.mlp.plan(*shapes[:2], shapes[3]).schedule.stages) <= 5


def test_a_preset_is_the_kernel_with_other_defaults() -> None:
    assert (kernels.swiglu.__name__, kernels.geglu.__name__) == ("swiglu", "geglu")
    x, w = draw(5, 33), weights(33, 20, 8)
    same = kernels.gated_mlp(x, *w, activation="gelu").numpy(), kernels.geglu(x, *w).numpy()
    assert same[0].tobytes() == same[1].tobytes()
