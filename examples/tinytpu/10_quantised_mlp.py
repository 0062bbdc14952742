"""A perceptron that reads digits: trained in float32 on the host, quantised to int8, run on the machine as one plan.

.venv/bin/python examples/tinytpu/10_quantised_mlp.py

Needs scikit-learn (the extra `examples`), for its data set.
"""

from time import perf_counter

from tinytpu.lower import compile_graph
from tinytpu.models import digits, forward, lowered, quantise
from tinytpu.models.digits import accuracy
from tinytpu.models.figures import figures


def main(images: int = digits.TEST) -> tuple[float, float, float]:
    """Accuracy on the machine and in float32 of so many images of the test split, and cycles an image."""
    data = digits.load()
    layers = digits.perceptron(data)
    network = quantise(layers, data.train[:200], scale=digits.SCALE)
    made = lowered(network, images)
    plan = compile_graph(made.graph)
    start = perf_counter()
    labels = plan.run({"x": network.inputs(data.test[:images])}).outputs["label"]
    seconds = perf_counter() - start
    told = figures(network, made, plan)
    print(f"digits 64-32-10, {images} images in {seconds:.1f} s of the host")
    print(told.text())
    truth = data.test_labels[:images]
    ours, theirs = accuracy(labels, truth), accuracy(forward(layers, data.test[:images])[-1].argmax(1), truth)
    print(f"accuracy {100 * ours:.2f} % on the machine, {100 * theirs:.2f} % in float32")
    return ours, theirs, told.cycles


if __name__ == "__main__":
    ours, theirs, _ = main()
    assert abs(ours - theirs) <= 0.01
