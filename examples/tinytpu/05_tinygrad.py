"""The quantised perceptron in tinygrad's words on its device TINYTPU: the same sums as the plan's, kernel by kernel.

.venv/bin/python examples/tinytpu/05_tinygrad.py

Needs scikit-learn (the extra `examples`), for its data set.
"""

import numpy as np
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor

import tinytpu.tinygrad as tt
from tinytpu.lower import compile_graph
from tinytpu.models import MaxPool, Quantised, digits, lowered, quantise
from tinytpu.models.digits import accuracy

DEVICE = "TINYTPU"


def sums(network: Quantised, x: Tensor) -> Tensor:
    """The last layer's sums of inputs int8[batch, ...] through a network of dense layers."""
    for layer in network.layers:
        assert not isinstance(layer, MaxPool)
        weight = Tensor(layer.weight.T.copy(), device=DEVICE)
        x = x.reshape(x.shape[0], -1).cast(dtypes.int32) @ weight.cast(dtypes.int32)
        how = layer.rescale
        if how is None:
            return x + Tensor(layer.bias, device=DEVICE)
        # Factors are chosen so that no product leaves 32 bits; the bias and the half that rounds are one number.
        offset = (layer.bias.astype(np.int64) * how.factor + how.half).astype(np.int32)
        factor = how.factor.astype(np.int32)
        x = x * Tensor(factor, device=DEVICE) + Tensor(offset, device=DEVICE)
        x = (x.clip(how.low << how.shift, (128 << how.shift) - 1) >> how.shift).cast(dtypes.int8)
    return x


def main(images: int = 64) -> float:
    """Accuracy of so many images of the test split."""
    data = digits.load()
    network = quantise(digits.perceptron(data), data.train[:200], scale=digits.SCALE)
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
