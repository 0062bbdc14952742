"""A perceptron that reads digits: trained in float32 on the host, run on the machine.

kohaku run examples/kohakutpu/10_digits_mlp.py

Needs scikit-learn (the extra `examples`), for its data set and its training.
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from kohakutpu.models import MLP, Linear, reference
from kohakutpu.models.figures import jitted, measured


def main() -> None:
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    pixels, labels = (pixels[order] / 16).astype(np.float32), labels[order]
    cut = len(pixels) // 2  # half of the 1797 digits for training, half for the test
    options: dict[str, Any] = {"learning_rate_init": 3e-3, "tol": 1e-3, "batch_size": 64, "random_state": 0}
    net = MLPClassifier((96, 64), **options)
    net.fit(pixels[:cut], labels[:cut])
    model = MLP.from_numpy([w.T for w in net.coefs_], net.intercepts_, activation="relu")

    test, truth = pixels[cut:], labels[cut:]
    layers = [Linear(w.T, b) for w, b in zip(net.coefs_, net.intercepts_)]
    want = reference.mlp(layers, test, lambda x: np.maximum(x, 0))
    got, figures = measured(lambda: model(test), want)
    print(f"digits 64-96-64-10, a batch of {len(test)}")
    print(figures.pretty())
    one = MLP.from_numpy([w.T for w in net.coefs_], net.intercepts_, activation="relu", jit=True)
    print(jitted(figures, lambda: one(test), want))
    ours, float32 = (float(np.mean(logits.argmax(-1) == truth)) for logits in (got, want))
    print(f"accuracy {100 * ours:.2f} % on the machine, {100 * float32:.2f} % in float32")
    assert abs(ours - float32) <= 0.01


if __name__ == "__main__":
    main()
