"""The digits of scikit-learn, cut into a part to train on and one to test, and two networks for them.

Needs scikit-learn (the extra `examples`), for its data set.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

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
    table = np.loadtxt(_file(), delimiter=",")
    order = np.random.default_rng(seed).permutation(len(table))
    images = (table[order, :-1] * SCALE).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = table[order, -1].astype(np.int64)
    return Digits(images[TEST:], labels[TEST:], images[:TEST], labels[:TEST])


def _file() -> Path:
    """The data set's own file: importing scikit-learn for it takes longer than training a network here."""
    package = find_spec("sklearn")
    folders = [] if package is None else package.submodule_search_locations or []
    found = [file for folder in folders if (file := Path(folder) / "datasets" / "data" / "digits.csv.gz").is_file()]
    if not found:
        raise Refusal("scikit-learn is installed, with its digits", where="digits", hint="install the extra `examples`")
    return found[0]


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
