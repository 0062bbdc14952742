"""Digits of scikit-learn, the whole test split: bit for bit the definition's, within a point of float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from tinytpu.lower import compile_graph
from tinytpu.models import digits, forward, lowered, quantise, reference
from tinytpu.models.digits import Digits, accuracy
from tinytpu.models.layers import Layer


@pytest.fixture(scope="module")
def data() -> Digits:
    return digits.load()


@pytest.mark.slow
@pytest.mark.parametrize("trained", [digits.perceptron, digits.convnet])
def test_digits_are_read_as_in_float32(data: Digits, trained: Callable[[Digits], tuple[Layer, ...]]) -> None:
    layers = trained(data)
    made = quantise(layers, data.train[:200], scale=digits.SCALE)
    x = made.inputs(data.test)
    assert np.array_equal(x * digits.SCALE, data.test)
    float32 = accuracy(forward(layers, data.test)[-1].argmax(1), data.test_labels)
    assert float32 > 0.95
    plan = compile_graph(lowered(made, len(x)).graph, mxu="demanded")
    ran = plan.run({"x": x})
    assert np.array_equal(ran.outputs["label"], reference.sums(made, x).argmax(1))
    assert abs(accuracy(ran.outputs["label"], data.test_labels) - float32) <= 0.01
    assert ran.notes == ()


@pytest.mark.slow
def test_the_digits_are_scikit_learn_s(data: Digits) -> None:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    ours = np.concatenate([data.test, data.train]).reshape(-1, 64) / digits.SCALE
    order = np.random.default_rng(0).permutation(len(labels))
    assert np.array_equal(ours, pixels[order])
    assert np.array_equal(np.concatenate([data.test_labels, data.train_labels]), labels[order])


def test_without_scikit_learn_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    with pytest.raises(Refusal, match="scikit-learn is installed, with its digits"):
        digits.load()


def test_the_split_is_by_seed(data: Digits) -> None:
    assert data.train.shape == (1437, 1, 8, 8)
    assert data.test.shape == (360, 1, 8, 8)
    assert np.array_equal(digits.load().test, data.test)
    assert not np.array_equal(digits.load(1).test, data.test)
