"""A convolutional network of tinygrad's, trained on the machine: AdamW, a batch norm, a whole step replayed by TinyJit.

kohaku run examples/tinygrad/11_digits_convnet.py [steps]

Trained twice from one seed: on the KohakuTPU, and in float32 by the host. Needs scikit-learn, for its digits.
"""

import sys
from contextlib import nullcontext
from dataclasses import replace
from time import perf_counter

import numpy as np
from sklearn.datasets import load_digits
from tinygrad.engine.jit import TinyJit
from tinygrad.helpers import Context
from tinygrad.nn import BatchNorm, Conv2d, Linear, optim
from tinygrad.nn.state import get_parameters
from tinygrad.tensor import Tensor

import kohakutpu.tinygrad as kt

STEPS, BATCH, HELD_OUT = 200, 16, 597


class Convnet:
    """8x8 pixels, 4x4 of 8 channels, 2x2 of 16, 10 classes."""

    def __init__(self) -> None:
        self.first, self.second = Conv2d(1, 8, 3, stride=2, padding=1), Conv2d(8, 16, 3, stride=2, padding=1)
        self.norm, self.last = BatchNorm(16), Linear(64, 10)

    def __call__(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.second(self.first(x).relu())).relu().flatten(1))


def train(steps: int, *, timed: bool = False) -> tuple[float, list[float], kt.Report]:
    """Accuracy on the digits held out, the loss every tenth step, and what the last step was on the machine.

    timed: whether that step is clocked."""
    pixels, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(labels))
    pixels = (pixels[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = labels[order].astype(np.int32)
    Tensor.manual_seed(0)
    net = Convnet()
    optimizer = optim.AdamW(get_parameters(net), lr=5e-3)

    @TinyJit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    losses: list[float] = []
    with Context(TRAINING=1):
        for n in range(steps):
            batch = rng.integers(HELD_OUT, len(labels), BATCH)
            x, y = Tensor(pixels[batch]).realize(), Tensor(labels[batch]).realize()
            kt.reset()
            with kt.clock() if timed and n == steps - 1 else nullcontext():
                loss = step(x, y)
            if n % 10 == 0:
                losses.append(float(loss.item()))
    one = replace(kt.report())
    found = np.concatenate([net(Tensor(part)).argmax(-1).numpy() for part in pixels[:HELD_OUT].reshape(3, -1, 1, 8, 8)])
    return float(np.mean(found == labels[:HELD_OUT])), losses, one


def main(steps: int = STEPS) -> tuple[float, float]:
    """Accuracy on the machine and in float32."""
    with Context(DEV="KTPU"):
        start = perf_counter()
        ours, losses, one = train(steps, timed=True)
        seconds = perf_counter() - start
        with kt.numerics(float32="host"):
            theirs, exact, _ = train(steps)
    print(f"digits, two convolutions, {steps} steps of AdamW, batches of {BATCH}, in {seconds:.1f} s of the host")
    print(f"one step: {one}")
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.4f}; in float32 {exact[0]:.3f} -> {exact[-1]:.4f}")
    print(f"accuracy {100 * ours:.2f} % on the machine, {100 * theirs:.2f} % in float32")
    return ours, theirs


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    ours, theirs = main(steps)
    assert abs(ours - theirs) <= 0.01 or steps < STEPS
