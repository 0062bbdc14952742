"""The linear layer against float64 with the error its formats predict: every option, any shape, stage counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.expected import Value, close, product
from kohakuaccel.diagnostics import Refusal
from kohakutpu import kernels


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    return np.random.default_rng((seed, *shape)).normal(0, scale, shape).astype(np.float16)


ACTIVATIONS: dict[str, Any] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def expected(
    x: Any, w: Any, bias: Any = None, gate: Any = None, residual: Any = None, activation: str = "none"
) -> Value:
    y = product(Value.exact(x), Value.exact(w))
    if bias is not None:
        y = y + Value.exact(bias)
    y = y.map(ACTIVATIONS[activation])
    y = y if gate is None else y * Value.exact(gate)
    return y if residual is None else y + Value.exact(residual)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (37, 19, 70), (7, 131, 33)])
def test_activations_and_bias(shape: tuple[int, int, int], activation: str) -> None:
    m, n, k = shape
    x, w, bias = draw(m, k), draw(n, k, scale=k**-0.5), draw(n)
    close(kernels.linear(x, w, bias, activation=activation).numpy(), expected(x, w, bias, activation=activation))


@pytest.mark.parametrize("options", [(), ("bias",), ("gate",), ("residual",), ("bias", "gate", "residual")])
def test_every_option_may_be_left_out(options: tuple[str, ...]) -> None:
    x, w = draw(2, 13, 70), draw(29, 70, scale=0.12)
    operands = {"bias": draw(29), "gate": draw(2, 13, 29, seed=1), "residual": draw(2, 13, 29, seed=2)}
    chosen = {name: operands[name] for name in options}
    got = kernels.linear(x, w, **chosen, activation="silu").numpy()
    close(got, expected(x, w, **chosen, activation="silu"))


def test_what_is_left_out_is_not_in_the_program() -> None:
    x, w = draw(13, 70), draw(29, 70)
    plain = kernels.linear.plan(x, w)
    assert len(plain.schedule.stages) == 1
    biased = kernels.linear.plan(x, w, bias=draw(29), residual=draw(13, 29))
    assert len(biased.schedule.stages) == 2
    assert {spec.name for spec in biased.buffers if spec.role == "in"} == {"x", "w", "bias", "residual"}
    same = kernels.linear(x, w).numpy(), kernels.matmul(x, w).numpy()
    assert same[0].tobytes() == same[1].tobytes()


@pytest.mark.parametrize("value", [300.0, -300.0])
def test_activations_of_large_values_are_their_limits(value: float) -> None:
    x, w = np.full((1, 32), value), np.ones((1, 32)) / 32
    for name in ("silu", "gelu", "sigmoid"):
        got = float(kernels.linear(x, w, activation=name).numpy()[0, 0])
        limit = {"sigmoid": 1.0}.get(name, 300.0) if value > 0 else 0.0
        assert abs(got - limit) <= 0.02 * abs(limit), (name, got)


def test_an_unknown_activation_is_named() -> None:
    with pytest.raises(Refusal, match=r"'swish'.*none, relu, silu, gelu, sigmoid"):
        kernels.linear.plan((4, 4), (4, 4), activation="swish")


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_drawn_call(data: st.DataObject) -> None:
    """Random shapes, options and tiles: the error the formats predict, whatever is drawn."""
    m, n, k = (data.draw(st.integers(1, 100)) for _ in range(3))
    lead = data.draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    seed = data.draw(st.integers(0, 99))
    x, w = draw(*lead, m, k, seed=seed), draw(n, k, seed=seed, scale=k**-0.5)
    options: dict[str, Any] = {"activation": data.draw(st.sampled_from(sorted(ACTIVATIONS)))}
    for name, shape in (("bias", (n,)), ("gate", (*lead, m, n)), ("residual", (*lead, m, n))):
        if data.draw(st.booleans()):
            options[name] = draw(*shape, seed=seed + 1)
    knobs = {name: data.draw(st.integers(1, 6)) for name in ("gm", "gn", "nk")}
    close(kernels.linear(x, w, **options, **knobs).numpy(), expected(x, w, **options))
