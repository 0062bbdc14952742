"""A quantised network in whole numbers on the host: what the machine's sums are, to the bit.

Decides nothing and knows no graph; it follows the definition in `quantisation`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinytpu.models.layers import MaxPool, pooled, windows
from tinytpu.models.quantisation import Quantised


def sums(network: Quantised, x: NDArray[np.int8]) -> NDArray[np.int64]:
    """The last layer's sums of inputs int8[batch, ...]: int64[batch, classes]."""
    h: NDArray[np.int64] = x.astype(np.int64)
    for layer in network.layers:
        if isinstance(layer, MaxPool):
            h = pooled(h, layer.size).max(-1)
            continue
        weight = layer.weight.reshape(len(layer.weight), -1).T.astype(np.int64)
        rows = windows(h, layer.window, layer.stride, layer.padding) if layer.window else h.reshape(len(h), -1)
        found = rows @ weight + layer.bias
        how = layer.rescale
        if how is not None:
            found = np.clip((found * how.factor + how.half) >> how.shift, how.low, 127)
        h = np.moveaxis(found, -1, 1)
    return h
