"""`ktpu.jit`: one trace per kind of arguments, the values of the eager program, constants that stay, refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from kohakuaccel import graph as gr
from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu
from kohakutpu.lazy.pytrees import flatten

RNG = np.random.default_rng(7)


def tensor(*shape: int) -> ktpu.Tensor:
    return ktpu.tensor(RNG.standard_normal(shape))


@dataclass(frozen=True)
class Layer:
    w: ktpu.Tensor
    bias: ktpu.Tensor
    name: str = "layer"


class Pair(NamedTuple):
    first: ktpu.Tensor
    second: ktpu.Tensor


def test_a_function_is_traced_once_per_kind_of_arguments() -> None:
    calls: list[tuple[int, ...]] = []

    @ktpu.jit
    def double(x: ktpu.Tensor, by: float = 2.0) -> ktpu.Tensor:
        calls.append(x.shape)
        return x * by

    a, b = tensor(3, 5), tensor(3, 5)
    assert np.array_equal(double(a).numpy(), (a * 2.0).numpy())
    assert np.array_equal(double(b).numpy(), (b * 2.0).numpy())
    assert calls == [(3, 5)]
    assert np.array_equal(double(b, 3.0).numpy(), (b * 3.0).numpy())
    double(tensor(5, 3))
    double(b.astype(np.float32))
    assert double.traces == 4
    double.clear()
    double(a)
    assert len(calls) == 5


def test_numbers_of_different_types_are_different_arguments() -> None:
    keys = [flatten(v, [], "f") for v in (1, 1.0, True, 0.0, -0.0, float("nan"), None, "1")]
    assert len({repr(k) for k in keys}) == len(keys)
    assert len(set(keys)) == len(keys)
    assert flatten(float("nan"), [], "f") == flatten(float("nan"), [], "f")


def test_arguments_and_results_are_trees() -> None:
    @ktpu.jit
    def step(layers: list[Layer], inputs: dict[str, Any]) -> dict[str, Any]:
        x = inputs["x"]
        for layer in layers:
            x = (x @ layer.w + layer.bias).relu()
        return {"y": Pair(x, inputs["x"]), "count": len(layers), "none": None}

    layers = [Layer(tensor(8, 8), tensor(8)) for _ in range(2)]
    x = tensor(4, 8)
    got = step(layers, {"x": x})
    eager = step.fn(layers, {"x": x})
    assert got["count"] == 2
    assert got["none"] is None
    assert isinstance(got["y"], Pair)
    assert np.array_equal(got["y"].first.numpy(), eager["y"].first.numpy())
    assert got["y"].second.numpy() is not None
    assert np.array_equal(got["y"].second.numpy(), x.numpy())
    names = {v.name for v in step.lower(layers, {"x": x}).inputs}
    assert names == {"inputs_x", "layers_0_w", "layers_0_bias", "layers_1_w", "layers_1_bias"}


def test_closures_are_constants_that_are_packed_once() -> None:
    w = tensor(64, 64)

    @ktpu.jit
    def product(x: ktpu.Tensor) -> ktpu.Tensor:
        return x @ w

    x = tensor(32, 64)
    first = product(x).numpy()
    ktpu.reset_stats()
    x2 = ktpu.tensor(x.numpy())
    assert np.array_equal(product(x2).numpy(), first)
    assert ktpu.stats()["bytes_to_device"] < 2 * 64 * 64  # x alone was sent


def test_arrays_are_tensors_and_results_keep_their_dtype() -> None:
    @ktpu.jit
    def add(x: Any, y: Any) -> ktpu.Tensor:
        return x + y

    single, half = np.array([1.5, 2.5], np.float32), np.ones(2, np.float16)
    assert add(single, half).numpy().dtype == np.float32
    assert np.array_equal(add(single, half).numpy(), [2.5, 3.5])
    assert add(half, half).numpy().dtype == np.float16


def test_traced_functions_nest_and_join() -> None:
    @ktpu.jit
    def inner(x: ktpu.Tensor) -> ktpu.Tensor:
        return x.relu() + 1.0

    @ktpu.jit
    def outer(x: ktpu.Tensor) -> ktpu.Tensor:
        with ktpu.graph():
            return inner(inner(x)) * 2.0

    x = tensor(5, 7)
    assert np.array_equal(outer(x).numpy(), outer.fn(x).numpy())
    assert inner.traces == 0  # its statements are the outer one's
    assert len(outer.lower(x).statements) == 5


def test_methods_are_traced() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = tensor(8, 8)

        @ktpu.jit
        def forward(self, x: ktpu.Tensor) -> ktpu.Tensor:
            return x @ self.w

    x, one, two = tensor(4, 8), Model(), Model()
    for model in (one, two, one):
        assert np.array_equal(model.forward(x).numpy(), (x @ model.w).numpy())


def test_a_result_may_be_an_argument_or_a_constant() -> None:
    w = tensor(3)

    @ktpu.jit
    def same(x: ktpu.Tensor) -> tuple[ktpu.Tensor, ...]:
        return x, x.reshape(6), w

    x = tensor(2, 3)
    first, flat, constant = same(x)
    assert flat.shape == (6,)
    assert np.array_equal(first.numpy().reshape(6), flat.numpy())
    assert np.array_equal(constant.numpy(), w.numpy())
    assert not same.program(x).steps


def test_what_is_not_used_is_not_computed() -> None:
    @ktpu.jit
    def some(x: ktpu.Tensor) -> ktpu.Tensor:
        unused = x.exp() @ x.exp()
        assert unused.shape == (4, 4)
        return x + 1.0

    assert len(some.lower(tensor(4, 8)).statements) == 1


def test_empty_tensors_need_no_graph() -> None:
    @ktpu.jit
    def f(x: ktpu.Tensor) -> ktpu.Tensor:
        return (x * 2.0).sum(0)

    assert np.array_equal(f(ktpu.zeros((0, 4))).numpy(), np.zeros(4))


def test_the_graph_and_the_plan_can_be_read() -> None:
    @ktpu.jit
    def f(x: ktpu.Tensor, w: ktpu.Tensor) -> ktpu.Tensor:
        return (x @ w).relu()

    x, w = tensor(8, 32), tensor(16, 32)
    program = f.lower(x, w)
    found = gr.run(program, {"x": x.numpy(), "w": w.numpy()})
    ((label, _),) = program.outputs
    assert np.allclose(found[label], np.maximum(x.numpy().astype(float) @ w.numpy().astype(float).T, 0))
    assert "1 product" in f.plan(x, w).pretty()


def test_reading_a_traced_value_is_refused_at_its_line() -> None:
    @ktpu.jit
    def reads(x: ktpu.Tensor) -> ktpu.Tensor:
        return x if x.numpy().max() > 0 else -x

    with pytest.raises(Refusal, match="shapes, not numbers") as refused:
        reads(tensor(3))
    assert refused.value.source is not None
    assert "x.numpy().max()" in refused.value.source.text

    @ktpu.jit
    def branches(x: ktpu.Tensor) -> ktpu.Tensor:
        return x if x else -x

    with pytest.raises(Refusal, match="no truth value"):
        branches(tensor(3))


def test_a_value_that_left_its_trace_has_no_numbers() -> None:
    kept: list[ktpu.Tensor] = []

    @ktpu.jit
    def leaks(x: ktpu.Tensor) -> ktpu.Tensor:
        kept.append(x * 2.0)
        return x

    leaks(tensor(3))
    with pytest.raises(Refusal, match="shapes, not numbers"):
        kept[0].numpy()


def test_errors_of_operators_keep_the_line_of_the_function() -> None:
    @ktpu.jit
    def wrong(x: ktpu.Tensor) -> ktpu.Tensor:
        return x @ tensor(3, 5)

    with pytest.raises(Refusal, match="LAST axis") as refused:
        wrong(tensor(2, 4))
    assert refused.value.source is not None
    assert "x @ tensor(3, 5)" in refused.value.source.text


def test_arguments_without_a_hash_are_refused() -> None:
    @ktpu.jit
    def f(x: Any) -> Any:
        return x

    with pytest.raises(Refusal, match="has a hash"):
        f({1, 2})


def test_a_wrong_word_for_host_is_refused() -> None:
    with pytest.raises(Refusal, match="allowed or refused"):
        ktpu.jit(host="never")


def test_two_devices_in_one_call_are_refused() -> None:
    @ktpu.jit
    def f(x: ktpu.Tensor, y: ktpu.Tensor) -> ktpu.Tensor:
        return x + y

    other = ktpu.tensor([1.0], device=ktpu.device("mini"))
    with pytest.raises(Refusal, match="one device"):
        f(tensor(1), other)
    assert np.array_equal(f(other, other).numpy(), [2.0])
