"""A convolutional network that reads digits, quantised to int8: a pool, a stride, a timeline with the layers' names.

.venv/bin/python examples/tinytpu/11_quantised_cnn.py RUN.json
.venv/bin/kohaku report RUN.json --perfetto run.perfetto.json

Needs scikit-learn (the extra `examples`), for its data set.
"""

import sys
from pathlib import Path
from time import perf_counter

from tinytpu.lower import compile_graph
from tinytpu.models import digits, forward, lowered, quantise
from tinytpu.models.digits import accuracy
from tinytpu.models.figures import figures, timeline_of
from tinytpu.recording import recording


def main(images: int = digits.TEST, file: Path | None = None) -> tuple[float, float, float]:
    """Accuracy on the machine and in float32 of so many images of the test split, and cycles an image.

    file: where the timeline of a batch of 4 is kept.
    """
    data = digits.load()
    layers = digits.convnet(data)
    network = quantise(layers, data.train[:200], scale=digits.SCALE)
    made = lowered(network, images)
    plan = compile_graph(made.graph)
    start = perf_counter()
    labels = plan.run({"x": network.inputs(data.test[:images])}).outputs["label"]
    seconds = perf_counter() - start
    told = figures(network, made, plan)
    print(f"digits, two convolutions and a dense layer, {images} images in {seconds:.1f} s of the host")
    print(told.text())
    truth = data.test_labels[:images]
    ours, theirs = accuracy(labels, truth), accuracy(forward(layers, data.test[:images])[-1].argmax(1), truth)
    print(f"accuracy {100 * ours:.2f} % on the machine, {100 * theirs:.2f} % in float32")
    if file is not None:
        few = lowered(network, 4)
        plan = compile_graph(few.graph)
        with recording() as played:
            plan.run({"x": network.inputs(data.test[:4])})
        timeline_of(few, played, "digits").save(file)
        print(f"{file}: the timeline of 4 images")
    return ours, theirs, told.cycles


if __name__ == "__main__":
    ours, theirs, _ = main(file=Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    assert abs(ours - theirs) <= 0.01
