"""Quantised networks on the machine are their definition in whole numbers, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from tinytpu import machines
from tinytpu.lower import compile_graph
from tinytpu.models import reference
from tinytpu.models.layers import Layer, MaxPool
from tinytpu.models.network import lowered
from tinytpu.models.quantisation import Quantised, QuantisedLayer, quantise
from tinytpu.models.train import conv, dense, drawn
from tinytpu_rig import whole_numbers

Shape = tuple[int, ...]
CASES: dict[str, tuple[tuple[Layer, ...], Shape]] = {
    "dense": ((dense("a", 9, 6), dense("b", 6, 5, relu=False)), (9,)),
    "no relu inside": ((dense("a", 7, 5, relu=False), dense("b", 5, 3, relu=False)), (7,)),
    "convolution": ((conv("a", 2, 3), conv("b", 3, 5, stride=2), dense("c", 20, 4, relu=False)), (2, 4, 3)),
    "pools": (
        (MaxPool("p"), conv("a", 1, 3, 2, padding=1), MaxPool("q"), MaxPool("r"), dense("c", 3, 4, relu=False)),
        (1, 9, 8),
    ),
}


def network(name: str, *, per_channel: bool, bits: int | None) -> tuple[Quantised, np.ndarray]:
    """A case with random weights and biases, and int8 inputs that saturate."""
    layers, shape = CASES[name]
    rng = np.random.default_rng(3)
    full = tuple(
        layer
        if isinstance(layer, MaxPool)
        else replace(layer, bias=rng.normal(size=layer.bias.shape).astype(np.float32))
        for layer in drawn(layers, 3)
    )
    calibration = rng.normal(size=(20, *shape)).astype(np.float32)
    made = quantise(full, calibration, per_channel=per_channel, bits=bits)
    x = rng.integers(-128, 128, (5, *shape)).astype(np.int8)
    x[0], x[1] = 127, -128
    return made, x


@pytest.mark.parametrize("bits", [None, 20], ids=["words of 32 bits", "wide"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["one factor", "a factor a channel"])
@pytest.mark.parametrize("name", CASES)
def test_sums_are_the_definition_s(name: str, per_channel: bool, bits: int | None) -> None:
    made, x = network(name, per_channel=per_channel, bits=bits)
    sums = compile_graph(lowered(made, len(x), argmax=False).graph).run({"x": x}).outputs["sums"]
    assert np.array_equal(sums, whole_numbers.run(made, x))
    assert np.array_equal(sums, reference.sums(made, x))


@pytest.mark.parametrize("per_channel", [False, True])
def test_factors_of_31_bits_are_the_definition_s(per_channel: bool) -> None:
    made, x = network("no relu inside", per_channel=per_channel, bits=31)
    sums = compile_graph(lowered(made, len(x), argmax=False).graph).run({"x": x}).outputs["sums"]
    assert np.array_equal(sums, whole_numbers.run(made, x))


@pytest.mark.parametrize("name", ["dense", "pools"])
def test_another_size_of_the_array_gives_the_same(name: str) -> None:
    made, x = network(name, per_channel=True, bits=None)
    graph = lowered(made, len(x), argmax=False).graph
    ran = [compile_graph(graph, machine).run({"x": x}) for machine in (machines.load(), machines.load("tinytpu_8x8"))]
    assert np.array_equal(ran[0].outputs["sums"], ran[1].outputs["sums"])
    assert ran[1].counts.cycles < ran[0].counts.cycles


def test_both_ends_of_a_layer_s_numbers_are_met() -> None:
    made, x = network("no relu inside", per_channel=True, bits=None)
    first = made.layers[0]
    assert isinstance(first, QuantisedLayer)
    assert first.rescale is not None
    inner = whole_numbers.rescaled(
        x.astype(np.int64) @ first.weight.T.astype(np.int64) + first.bias,
        first.rescale.factor,
        first.rescale.shift,
        -128,
    )
    assert (inner.min(), inner.max()) == (-128, 127)


def test_the_label_is_the_first_greatest_sum() -> None:
    made, x = network("dense", per_channel=True, bits=None)
    last = made.layers[-1]
    assert isinstance(last, QuantisedLayer)
    tied = replace(last, weight=np.repeat(last.weight[:1], 5, 0), bias=np.array([1, 4, 2, 4, 0], np.int32))
    made = replace(made, layers=(*made.layers[:-1], tied))
    assert compile_graph(lowered(made, len(x)).graph).run({"x": x}).outputs["label"].tolist() == [1] * len(x)


def test_every_statement_is_of_a_layer() -> None:
    made, _ = network("pools", per_channel=True, bits=None)
    found = lowered(made, 2)
    assert {found.layers[s.name] for s in found.graph.statements} == {"p", "a", "q", "r", "c", "argmax"}


def test_an_empty_batch_is_refused() -> None:
    made, _ = network("dense", per_channel=True, bits=None)
    with pytest.raises(Refusal, match="a batch has an example"):
        lowered(made, 0)
