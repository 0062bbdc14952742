"""Quantisation: scales, factors and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from tinytpu.models.layers import Dense, Layer, MaxPool, forward, shapes
from tinytpu.models.quantisation import Quantised, QuantisedLayer, quantise
from tinytpu.models.reference import sums
from tinytpu.models.train import conv, dense, drawn


def reals(values: Any) -> NDArray[np.float32]:
    return np.array(values, np.float32)


RNG = np.random.default_rng(5)
X = RNG.normal(size=(50, 6)).astype(np.float32)
LAYERS = drawn((dense("a", 6, 4), dense("b", 4, 3, relu=False)), 1)


def first(made: Quantised) -> QuantisedLayer:
    layer = made.layers[0]
    assert isinstance(layer, QuantisedLayer)
    return layer


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_factor_is_the_ratio_of_scales(per_channel: bool) -> None:
    made = quantise(LAYERS, X, per_channel=per_channel, bits=12)
    layer = first(made)
    assert layer.rescale is not None
    after = forward(LAYERS, X)[1].max() / 127
    np.testing.assert_allclose(layer.rescale.factor / 2.0**layer.rescale.shift, layer.scales / after, rtol=2.0**-9)
    assert 1 << 11 <= layer.rescale.factor.max() < 1 << 12
    assert layer.rescale.low == 0
    assert layer.scales.shape == ((4,) if per_channel else (1,))


@pytest.mark.parametrize("per_channel", [False, True])
def test_numbers_times_scales_are_the_weights_and_biases(per_channel: bool) -> None:
    made = quantise(LAYERS, X, per_channel=per_channel)
    layer, real = first(made), LAYERS[0]
    assert isinstance(real, Dense)
    scales = layer.scales / made.scale
    assert np.abs(layer.weight * scales[:, None] - real.weight).max() <= 0.5001 * scales.max()
    reached = np.abs(layer.weight).max(1) if per_channel else [np.abs(layer.weight).max()]
    assert set(reached) == {127}
    assert np.abs(layer.bias * layer.scales - real.bias).max() <= 0.5001 * layer.scales.max()


def test_a_greatest_factor_that_rounds_up_keeps_its_bits() -> None:
    # sums / outputs = 1 - 2**-9 exactly: at 8 bits the factor would round to 256.
    layers: tuple[Layer, ...] = (
        Dense("a", reals([[1 - 2.0**-9]]), reals([0])),
        Dense("b", reals([[1]]), reals([0]), relu=False),
    )
    made = quantise(layers, reals([[1.0]]), bits=8)
    rescale = first(made).rescale
    assert rescale is not None
    assert rescale.factor.max() < 256


@pytest.mark.parametrize("near", [0.0, 1e-6, 1e-4])
def test_a_channel_of_no_weights_or_tiny_ones_costs_the_others_nothing(near: float) -> None:
    x = np.random.default_rng(0).random((64, 16)).astype(np.float32)
    hidden, last = drawn((dense("a", 16, 12), dense("b", 12, 5, relu=False)))
    assert isinstance(hidden, Dense)
    weight, bias = hidden.weight.copy(), hidden.bias.copy()
    weight[3] *= near
    bias[3] = 0.3
    layers = replace(hidden, weight=weight, bias=bias), last
    made = quantise(layers, x)
    assert np.abs(first(made).weight[3]).max() <= 1
    ending = made.layers[-1]
    assert isinstance(ending, QuantisedLayer)
    right = forward(layers, x)[-1]
    assert np.abs(sums(made, made.inputs(x)) * ending.scales - right).max() < 0.02 * np.abs(right).max()


def test_inputs_are_rounded_and_held_to_the_scale() -> None:
    made = quantise(LAYERS, X, scale=0.5)
    assert made.inputs(reals([[0.25, 0.75, -0.5, 63.5, -63.5, 0]])).tolist() == [[0, 2, -1, 127, -127, 0]]
    with pytest.raises(Refusal, match=r"an input is within the scale's int8; got 64\.0; the limit is 63\.5"):
        made.inputs(reals([[64.0, 0, 0, 0, 0, 0]]))
    with pytest.raises(Refusal, match="an input is within"):
        made.inputs(reals([[np.nan, 0, 0, 0, 0, 0]]))


def test_multiplications_are_counted() -> None:
    layers = (conv("c", 2, 3, stride=2), MaxPool("p"), dense("d", 12, 5, relu=False))
    made = quantise(drawn(layers), RNG.normal(size=(4, 2, 8, 8)).astype(np.float32))
    assert made.macs() == {"c": 4 * 4 * 3 * 2 * 9, "d": 60}
    assert made.shapes == ((2, 8, 8), (3, 4, 4), (3, 2, 2), (5,))


REFUSED: dict[str, tuple[tuple[Layer, ...], Any, dict[str, Any], str]] = {
    "all 0": (LAYERS, 0 * X, {}, r"input: calibration gives values that are not all 0, and finite; got 0\.0"),
    "a dead layer": (
        (dense("a", 6, 4), dense("b", 4, 3, relu=False)),
        X,
        {},
        "a: calibration gives values that are not all 0",
    ),
    "not a number": (LAYERS, X * np.float32(np.nan), {}, "calibration gives values"),
    "bits": (LAYERS, X, {"bits": 32}, r"a factor is an int32; got 32 bits; the limit is 2\.\.31"),
    "ends in relu": (LAYERS[:1], X, {}, "a network ends in a layer without max"),
    "ends in a pool": ((MaxPool("p"),), X, {}, "a network ends in a layer without max"),
    "a bias beyond 32 bits": (
        (Dense("a", reals([[1e-6] * 6]), reals([1e9]), relu=False),),
        X,
        {},
        r"a: sums fit 32 bits; got \d+; the limit is 2147483647",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    layers, x, options, text = REFUSED[name]
    with pytest.raises(Refusal, match=text):
        quantise(layers, x, **options)


def test_layers_that_do_not_fit_are_named() -> None:
    with pytest.raises(Refusal, match=r"b: layers fit each other; got \(4,\); the limit is 5 features"):
        shapes((dense("a", 6, 4), dense("b", 5, 3)), (6,))
    with pytest.raises(Refusal, match="c: layers fit each other"):
        shapes((conv("c", 2, 3),), (1, 8, 8))
    with pytest.raises(Refusal, match="c: a window fits its image"):
        shapes((conv("c", 1, 3, 5, padding=0),), (1, 4, 8))
    with pytest.raises(Refusal, match="p: a window fits its image"):
        shapes((MaxPool("p", 3),), (1, 2, 8))
