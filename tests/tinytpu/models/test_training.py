"""Training on the host: gradients are those of the loss, and a network learns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tinytpu.models.layers import Layer, MaxPool, forward
from tinytpu.models.train import conv, dense, drawn, fitted, gradients_of

RNG = np.random.default_rng(2)
NETWORK = drawn((conv("c", 2, 3, stride=2), MaxPool("p"), dense("h", 12, 6), dense("d", 6, 10, relu=False)), 1)
X = RNG.normal(size=(5, 2, 8, 9)).astype(np.float32)
LABELS = np.array([1, 2, 3, 9, 0])


def loss(layers: tuple[Layer, ...]) -> float:
    logits = forward(layers, X)[-1].astype(np.float64)
    odds = np.exp(logits)
    return float(-np.log(odds[np.arange(5), LABELS] / odds.sum(1)).mean())


@pytest.mark.parametrize("which", [0, 2, 3])
@pytest.mark.parametrize("part", ["weight", "bias"])
def test_a_gradient_is_the_slope_of_the_loss(which: int, part: str) -> None:
    """By differences, at the elements with the greatest slope."""
    gradients = gradients_of(NETWORK, X, LABELS)
    found = gradients[which]
    assert found is not None
    slopes = found[part == "bias"]
    layer: Any = NETWORK[which]
    for place in np.argsort(-np.abs(slopes).ravel())[:4]:
        at = np.unravel_index(place, slopes.shape)
        sides: list[float] = []
        for step in (1e-3, -1e-3):
            moved = getattr(layer, part).astype(np.float64)
            moved[at] += step
            sides.append(loss((*NETWORK[:which], replace(layer, **{part: moved}), *NETWORK[which + 1 :])))
        assert (sides[0] - sides[1]) / 2e-3 == pytest.approx(float(slopes[at]), rel=2e-2)


def test_a_network_learns_and_a_seed_repeats_it() -> None:
    x = RNG.normal(size=(256, 5)).astype(np.float32)
    labels = x[:, :3].argmax(1)
    layers = drawn((dense("a", 5, 16), dense("b", 16, 3, relu=False)))
    found = [fitted(layers, x, labels, epochs=20) for _ in range(2)]
    assert np.array_equal(forward(found[0], x)[-1], forward(found[1], x)[-1])
    assert np.mean(forward(found[0], x)[-1].argmax(1) == labels) > 0.9
