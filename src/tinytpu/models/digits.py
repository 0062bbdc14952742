"""The digits of scikit-learn, cut into a part to train on and one to test, and two networks for them.

Needs scikit-learn (the extra `examples`), for its data set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from tinytpu.models.layers import Floats, Layer, MaxPool
from tinytpu.models.train import Labels, conv, dense, drawn, fitted

TEST = 360
SCALE = 1 / 16
"""Of the pixels, which are sixteenths: int8 holds them exactly."""


@dataclass(frozen=True)
class Digits:
    """Images float32[n, 1, 8, 8] from 0 to 1, with their labels int64[n]."""

    train: Floats
    train_labels: Labels
    test: Floats
    test_labels: Labels


def load(seed: int = 0) -> Digits:
    """1437 digits to train on and 360 to test with, drawn by the seed. Raises Refusal without scikit-learn."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise Refusal("scikit-learn is installed", where="digits", hint="pip install 'kohakuaccel[examples]'") from None
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    images = (np.asarray(pixels) * SCALE).astype(np.float32).reshape(-1, 1, 8, 8)[order]
    found = np.asarray(labels, np.int64)[order]
    return Digits(images[TEST:], found[TEST:], images[:TEST], found[:TEST])


def perceptron(digits: Digits, seed: int = 0, epochs: int = 30) -> tuple[Layer, ...]:
    """64-32-10, trained."""
    layers = (dense("dense1", 64, 32), dense("dense2", 32, 10, relu=False))
    return _trained(layers, digits, seed, epochs)


def convnet(digits: Digits, seed: int = 0, epochs: int = 12) -> tuple[Layer, ...]:
    """A convolution with a 2x2 pool, one of stride 2, a dense layer; trained."""
    layers = (
        conv("conv1", 1, 8),
        MaxPool("pool1"),
        conv("conv2", 8, 16, stride=2),
        dense("dense", 64, 10, relu=False),
    )
    return _trained(layers, digits, seed, epochs)


def _trained(layers: tuple[Layer, ...], digits: Digits, seed: int, epochs: int) -> tuple[Layer, ...]:
    return fitted(drawn(layers, seed), digits.train, digits.train_labels, epochs=epochs, seed=seed)


def accuracy(found: NDArray[np.integer], labels: Labels) -> float:
    """The share of labels that were found."""
    return float(np.mean(found == labels))
