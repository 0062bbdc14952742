"""Quantised networks on TinyTPU: accuracy beside float32, cycles and records an image, layer by layer.

The whole test split is read and compared with the network's definition in whole numbers first. Cycles are modelled; the
host's time is of the machine model, whole split, plan compiled before.

    python benchmarks/tinytpu_models.py [--check] [--quick]
"""

from __future__ import annotations

import sys
from time import perf_counter

from timing import Bar, arguments, finish

from tinytpu.lower import compile_graph
from tinytpu.models import digits, forward, lowered, quantise, reference
from tinytpu.models.digits import accuracy
from tinytpu.models.figures import figures

CYCLES = {"perceptron": 1250, "convnet": 6950}
"""Bars: cycles an image, as measured."""


def main() -> int:
    options = arguments("quantised networks on TinyTPU")
    data = digits.load()
    images = 32 if options.quick else digits.TEST
    x, truth = data.test[:images], data.test_labels[:images]
    rows: list[dict[str, float | int | str]] = []
    bars: list[Bar] = []
    for name, trained in (("perceptron", digits.perceptron), ("convnet", digits.convnet)):
        layers = trained(data)
        network = quantise(layers, data.train[:200], scale=digits.SCALE)
        made = lowered(network, images)
        plan = compile_graph(made.graph)
        given = network.inputs(x)
        start = perf_counter()
        labels = plan.run({"x": given}).outputs["label"]
        seconds = perf_counter() - start
        assert (labels == reference.sums(network, given).argmax(1)).all()
        ours, theirs = accuracy(labels, truth), accuracy(forward(layers, x)[-1].argmax(1), truth)
        told = figures(network, made, plan)
        print(f"{name}: {images} images in {seconds:.2f} s of the host\n{told.text()}\n")
        rows += [
            {
                "network": name,
                "layer": layer.name,
                "cycles an image": round(layer.took.cycles / images, 1),
                "of the array's peak": round(layer.macs / layer.took.cycles / told.peak, 3),
                **{f"{unit} busy": round(share, 3) for unit, share in layer.took.shares().items()},
                "records an image": round(layer.took.records / images, 1),
                "bytes an image": round(layer.took.nbytes / images, 1),
                "accuracy": round(ours, 4),
                "accuracy in float32": round(theirs, 4),
            }
            for layer in (*told.layers, told.total)
        ]
        bars.append(Bar(f"{name}: cycles an image", told.cycles, CYCLES[name], below=True))
        bars.append(Bar(f"{name}: points of accuracy lost", 100 * (theirs - ours), 1.0001, below=True))
    return finish("tinytpu_models", rows, bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
