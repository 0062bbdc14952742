"""Small networks on the machine: trained in float32 on the host, quantised to int8, run as one plan.

`layers` and `train` are float32 on the host, `quantisation` decides the whole numbers, `network` makes the graph.
"""

from tinytpu.models.layers import Conv, Dense, Layer, MaxPool, forward
from tinytpu.models.network import Lowered, lowered
from tinytpu.models.quantisation import Quantised, QuantisedLayer, Rescale, quantise

__all__ = [
    "Conv",
    "Dense",
    "Layer",
    "Lowered",
    "MaxPool",
    "Quantised",
    "QuantisedLayer",
    "Rescale",
    "forward",
    "lowered",
    "quantise",
]
