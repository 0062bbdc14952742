"""How fast a training step of tinygrad's is replayed on the device, beside tinygrad's interpreter of the same step.

A step of a perceptron (64-96-64-10, batches of 64, Adam) under TinyJit on the device `KTPU`; on tinygrad's emulator,
the device PYTHON, the time inside its interpreter alone. Both are this machine's processor seconds; simulated time
plays no part. The device's seconds are the model of the hardware, host steps, and what lies around both.

    python benchmarks/tinygrad_speed.py [--check] [--quick]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

os.environ.setdefault("CACHELEVEL", "0")  # nothing is read from, or left in, tinygrad's cache on disk
os.environ.setdefault("PARALLEL", "0")

import numpy as np
from timing import Bar, Row, finish

import kohakutpu.tinygrad as kt

FASTER = 20.0
AROUND = 1000.0  # microseconds a kernel
BATCH, WARM = 64, 4


def stepper(device: str) -> Callable[[], object]:
    """One step of training on a device, as a call."""
    from tinygrad.engine.jit import TinyJit
    from tinygrad.helpers import Context
    from tinygrad.nn import Linear, optim
    from tinygrad.nn.state import get_parameters
    from tinygrad.tensor import Tensor

    rng = np.random.default_rng(0)
    pixels, labels = rng.random((BATCH, 64), np.float32), rng.integers(0, 10, BATCH).astype(np.int32)
    with Context(DEV=device):
        Tensor.manual_seed(0)
        layers = [Linear(64, 96), Linear(96, 64), Linear(64, 10)]
        optimizer = optim.Adam(get_parameters(layers), lr=3e-3)
        x, y = Tensor(pixels).realize(), Tensor(labels).realize()

    @TinyJit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        out = layers[2](layers[1](layers[0](x).relu()).relu())
        loss = out.sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    def run() -> object:
        with Context(DEV=device, TRAINING=1):
            return step(x, y).item()

    return run


def seconds(run: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    start = process_time()
    run()
    return process_time() - start


class Within:
    """Processor seconds inside some methods, while it is open."""

    def __init__(self, *methods: tuple[type, str]) -> None:
        self.methods, self.seconds = methods, 0.0
        self.before = [getattr(owner, name) for owner, name in methods]

    def __enter__(self) -> Within:
        for (owner, name), method in zip(self.methods, self.before, strict=True):
            setattr(owner, name, self._counted(method))
        return self

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            start = process_time()
            try:
                return method(*args, **named)
            finally:
                self.seconds += process_time() - start

        return counted

    def __exit__(self, *_: object) -> None:
        for (owner, name), method in zip(self.methods, self.before, strict=True):
            setattr(owner, name, method)


def main() -> int:
    """Measure; 1 where a bar is missed and `--check` asks."""
    from tinygrad.runtime.ops_python import PythonProgram

    from kohakuaccel.graph.native import Native
    from kohakutpu.auto import GraphPlan
    from kohakutpu.device import Device

    ours, theirs = stepper("KTPU"), stepper("PYTHON")
    for _ in range(WARM):
        ours()
    kt.reset()
    ours()
    report = kt.report()
    kernels = report.device_kernels + report.host_kernels
    did = {"on the device": report.device_kernels, "host steps": report.host_kernels}
    repeats = 5 if "--quick" in sys.argv else 15
    replayed = median(seconds(ours) for _ in range(repeats))
    with Within((Device, "run")) as model, Within((GraphPlan, "run"), (Native, "__call__")) as work:
        whole = sum(seconds(ours) for _ in range(repeats))
    with Within((PythonProgram, "__call__")) as interpreter:
        theirs()
    interpreted = interpreter.seconds
    around = (whole - work.seconds) / repeats / kernels * 1e6
    rows: list[Row] = [
        {"a replayed step": "KTPU", "processor ms": replayed * 1e3, **did},
        {"a replayed step": "  its model of the hardware", "processor ms": model.seconds / repeats * 1e3, **did},
        {
            "a replayed step": "  plans and host steps, model included",
            "processor ms": work.seconds / repeats * 1e3,
            **did,
        },
        {
            "a replayed step": "PYTHON, interpreting alone",
            "processor ms": interpreted * 1e3,
            "on the device": 0,
            "host steps": 0,
        },
    ]
    bars = [
        Bar("times faster than interpreting", interpreted / replayed, FASTER),
        Bar("microseconds around the work, a kernel", around, AROUND, below=True),
    ]
    return finish("tinygrad_speed", rows, bars, "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
