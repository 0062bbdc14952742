"""The quantised perceptron in tinygrad's words on its device TINYTPU: the same sums as the plan's, kernel by kernel.

.venv/bin/python examples/tinytpu/12_quantised_tinygrad.py

Needs scikit-learn (the extra `examples`), for its data set.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor

import tinytpu.tinygrad as tt
from tinytpu.lower import compile_graph
from tinytpu.models import Layer, MaxPool, Quantised, digits, lowered, quantise
from tinytpu.models.digits import Digits, accuracy

DEVICE = "TINYTPU"


def sums(network: Quantised, x: Tensor) -> Tensor:
    """The last layer's sums of inputs int8[batch, ...]."""
    for layer in network.layers:
        if isinstance(layer, MaxPool):
            found = x.max_pool2d((layer.size, layer.size))
            assert isinstance(found, Tensor)
            x = found
            continue
        weight = Tensor(layer.weight, device=DEVICE).cast(dtypes.int32)
        if layer.window:
            x = x.cast(dtypes.int32).conv2d(weight, stride=layer.stride, padding=layer.padding)
        else:
            x = x.flatten(1).cast(dtypes.int32) @ weight.T
        how, bias = layer.rescale, layer.bias.astype(np.int64)
        if how is None:
            return x + channels(bias, x)
        # Factors are chosen so that no product leaves 32 bits; the bias and the half that rounds are one number.
        x = x * channels(how.factor, x) + channels(bias * how.factor + how.half, x)
        x = (x.clip(how.low << how.shift, (128 << how.shift) - 1) >> how.shift).cast(dtypes.int8)
    return x


def channels(values: NDArray[np.int64], x: Tensor) -> Tensor:
    """A number for every channel of x."""
    return Tensor(values.astype(np.int32), device=DEVICE).reshape(-1, *(1,) * (x.ndim - 2))


def main(images: int = 64, trained: Callable[[Digits], tuple[Layer, ...]] = digits.perceptron) -> float:
    """Accuracy of so many images of the test split."""
    data = digits.load()
    network = quantise(trained(data), data.train[:200], scale=digits.SCALE)
    x = network.inputs(data.test[:images])
    given = Tensor(x, device=DEVICE).realize()
    tt.reset()
    found = sums(network, given).numpy()
    print(tt.report())
    print(tt.report().by_kernel())
    plan = compile_graph(lowered(network, images, argmax=False).graph)
    assert (found == plan.run({"x": x}).outputs["sums"]).all()
    share = accuracy(found.argmax(1), data.test_labels[:images])
    print(f"accuracy {100 * share:.2f} % of {images} images; the sums are those of the plan, bit for bit")
    return share


if __name__ == "__main__":
    main()
