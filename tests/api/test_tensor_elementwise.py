"""Elementwise operators on the machine against float64, with broadcasting, constants, NaN and Inf."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from api.bounds import STEP, check
from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu

SHAPES = [(), (1,), (7,), (16,), (17, 31), (2, 3, 5, 7), (1, 1), (300, 1), (1, 129), (64, 64)]


def data(shape: tuple[int, ...], seed: int = 0, scale: float = 1.0) -> Any:
    return np.asarray(np.random.default_rng(seed).normal(0, scale, shape), np.float16)


def double(x: Any) -> Any:
    return np.asarray(x, np.float64)


BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any], float]] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b, 1),
    "sub": (lambda a, b: a - b, lambda a, b: a - b, 1),
    "mul": (lambda a, b: a * b, lambda a, b: a * b, 1),
    "div": (lambda a, b: a / b, lambda a, b: a / b, 3),
    "maximum": (ktpu.maximum, np.maximum, 0),
    "minimum": (ktpu.minimum, np.minimum, 0),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", BINARY)
def test_same_shape(name: str, shape: tuple[int, ...]) -> None:
    ours, numpys, steps = BINARY[name]
    a, b = data(shape, 1), data(shape, 2)
    got = ours(ktpu.tensor(a), ktpu.tensor(b))
    assert (got.shape, got.dtype) == (shape, np.float16)
    check(got.numpy(), numpys(double(a), double(b)), steps)


FORMS = [
    (),
    (1,),
    (5,),
    (3, 1),
    (3, 5),
    (1, 5),
    (2, 1, 1),
    (2, 3, 5),
    (2, 1, 5),
    (1, 3, 5),
    (2, 3, 1),
    (1, 1, 1),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", BINARY)
def test_broadcasting_matrix(name: str) -> None:
    ours, numpys, steps = BINARY[name]
    for left, right in itertools.product(FORMS, FORMS):
        a, b = data(left, 3), data(right, 4)
        check(ours(ktpu.tensor(a), ktpu.tensor(b)).numpy(), numpys(double(a), double(b)), steps)


@pytest.mark.parametrize("name", BINARY)
def test_broadcasting_of_computed_operands(name: str) -> None:
    ours, numpys, steps = BINARY[name]
    for left, right in [
        ((4, 5), (5,)),
        ((5,), (4, 5)),
        ((4, 1), (4, 5)),
        ((4, 5), ()),
        ((4, 1), (1, 5)),
        ((2, 4, 5), (4, 5)),
    ]:
        a, b = data(left, 5), data(right, 6)
        x, y = -ktpu.tensor(a), -ktpu.tensor(b)
        check(ours(x, y).numpy(), numpys(-double(a), -double(b)), steps)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_a_shared_row_and_a_stretched_operand_give_the_same_bits(name: str) -> None:
    ours = BINARY[name][0]
    a, v = data((23, 50), 12), data((50,), 13)
    shared = ours(ktpu.tensor(a), ktpu.tensor(v)).numpy()
    stretched = ours(ktpu.tensor(a), ktpu.tensor(np.broadcast_to(v, a.shape))).numpy()
    assert np.array_equal(shared.view(np.uint16), stretched.view(np.uint16))
    one = ours(ktpu.tensor(a), ktpu.tensor(v[:1])).numpy()
    assert np.array_equal(one, ours(ktpu.tensor(a), ktpu.full(a.shape, v[0])).numpy())


def test_shapes_that_do_not_broadcast_are_refused() -> None:
    with pytest.raises(Refusal, match=r"\(3, 4\) and \(3, 5\)"):
        _ = ktpu.zeros((3, 4)) + ktpu.zeros((3, 5))


@pytest.mark.parametrize(
    "value", [2, -3.25, 0, -0.0, 0.1, 1e-6, 3e4, True, np.float32(0.3), np.int16(-7), np.array(1.5)]
)
def test_constants_on_both_sides(value: Any) -> None:
    a = data((5, 9), 7)
    x, v = ktpu.tensor(a), float(value)
    with np.errstate(divide="ignore", over="ignore"):
        for got, want, steps in [
            (x + value, double(a) + v, 1),
            (value + x, v + double(a), 1),
            (x - value, double(a) - v, 1),
            (value - x, v - double(a), 1),
            (x * value, double(a) * v, 2),
            (value * x, v * double(a), 2),
            (value / x, v / double(a), 4),
            (x.maximum(value), np.maximum(double(a), v), 1),
            (x.minimum(value), np.minimum(double(a), v), 1),
        ]:
            check(got.numpy(), np.clip(want, -65504, 65504), steps, absolute=abs(v) * STEP)
        if v:
            check((x / value).numpy(), np.clip(double(a) / v, -65504, 65504), 3)


def test_a_python_scalar_does_not_change_the_dtype() -> None:
    assert (ktpu.tensor(np.ones(3, np.float16)) * 2.5).dtype == np.float16
    assert (np.float64(2.5) * ktpu.tensor(np.ones(3, np.float32))).dtype == np.float32


def test_division_by_a_zero_constant_follows_ieee() -> None:
    x = ktpu.tensor([1.0, -1.0, 0.0])
    assert np.array_equal((x / 0).numpy(), [np.inf, -np.inf, np.nan], equal_nan=True)
    assert np.array_equal((x / -0.0).numpy(), [-np.inf, np.inf, np.nan], equal_nan=True)
    assert np.array_equal((x / math.inf).numpy(), [0, 0, 0])


def test_nan_and_inf_constants_are_allowed() -> None:
    x = ktpu.tensor([1.0, -2.0])
    assert np.isnan((x + math.nan).numpy()).all()
    assert np.array_equal((x * math.inf).numpy(), [np.inf, -np.inf])


def test_constants_beyond_e8m15_are_refused() -> None:
    for beyond in (1e39, 10**400):
        with pytest.raises(Refusal, match="E8M15 immediate"):
            _ = ktpu.tensor([1.0]) + beyond


def test_arrays_and_lists_are_operands() -> None:
    a, b = data((3, 4), 8), np.arange(4.0)
    x = ktpu.tensor(a)
    for got, want in [
        (x + b, double(a) + b),
        (b + x, b + double(a)),
        (b - x, b - double(a)),
        (x * [1, 2, 3, 4], double(a) * [1, 2, 3, 4]),
    ]:
        assert isinstance(got, ktpu.Tensor)
        check(got.numpy(), want, 1)
    assert (x + b).dtype == np.float16
    assert (x + b.astype(np.float32)).dtype == np.float32
    with pytest.raises(Refusal, match="65504"):
        _ = x + np.array([1e6, 0, 0, 0])
    with pytest.raises(Refusal, match="real numbers"):
        _ = x + "text"


# name -> (float64 ruler, E8M15 steps, extra error as a function of x). exp's argument x*log2(e) is rounded
# before its table, which moves the result by |x| * 2^-16 or so relatively: three roundings of a value up to
# |x|*1.45.
UNARY: dict[str, tuple[Callable[[Any], Any], float, Callable[[Any], Any]]] = {
    "neg": (np.negative, 0, lambda x: 0.0),
    "abs": (np.abs, 0, lambda x: 0.0),
    "relu": (lambda x: np.maximum(x, 0), 0, lambda x: 0.0),
    "exp2": (np.exp2, 2, lambda x: np.exp2(x) * 2.0**-18),
    "exp": (np.exp, 2, lambda x: np.exp(x) * (np.abs(x) + 1) * 3 * STEP),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 6, lambda x: (np.abs(x) + 1) * 3 * STEP / (1 + np.exp(-x))),
    "silu": (
        lambda x: x / (1 + np.exp(-x)),
        7,
        lambda x: (np.abs(x) + 1) * np.abs(x) * 3 * STEP / (1 + np.exp(-x)),
    ),
}
POSITIVE: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "sqrt": (np.sqrt, 4, 0.0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2, 0.0),
    "recip": (lambda x: 1 / x, 2, 0.0),
    "log2": (np.log2, 2, 2.0**-19),
    "log": (np.log, 4, 2.0**-19),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, shape: tuple[int, ...]) -> None:
    ruler, steps, extra = UNARY[name]
    a = data(shape, 9, 2.0)
    x = ktpu.tensor(a)
    got = -x if name == "neg" else getattr(x, name)()
    check(got.numpy(), ruler(double(a)), steps, extra(double(a)))


@pytest.mark.parametrize("name", POSITIVE)
def test_unary_of_positive_values(name: str) -> None:
    ruler, steps, absolute = POSITIVE[name]
    a = np.abs(data((13, 11), 10, 30.0)) + np.float16(0.01)
    check(getattr(ktpu.tensor(a), name)().numpy(), ruler(double(a)), steps, absolute)


def test_gelu_is_its_tanh_form() -> None:
    a = np.linspace(-8, 8, 1001).astype(np.float16)
    x = double(a)
    inner = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    want = x / (1 + np.exp(-inner))
    got = ktpu.gelu(a).numpy()
    check(got, want, 8, np.abs(want) * (np.abs(inner) + 1) * 4 * STEP)
    exact = x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    assert np.abs(want - exact).max() < 5e-4


def test_every_half_through_one_kernel() -> None:
    codes = np.arange(65536, dtype=np.uint16).view(np.float16)
    x = ktpu.tensor(codes)
    assert np.array_equal((-x).numpy(), -codes, equal_nan=True)
    assert np.array_equal(x.abs().numpy(), np.abs(codes), equal_nan=True)
    assert np.array_equal((x * 1.0).numpy(), codes, equal_nan=True)


def test_nan_and_inf_flow_through_vector_work() -> None:
    a = np.array([np.nan, np.inf, -np.inf, 1.0, -0.0], np.float16)
    x = ktpu.tensor(a)
    with np.errstate(invalid="ignore", divide="ignore"):
        for got, want in [
            (x + 1, a + 1),
            (x - x, a - a),
            (x * 0, a * 0),
            (1 / x, 1 / a),
            (x.exp2(), np.exp2(a)),
        ]:
            assert np.array_equal(got.numpy(), want, equal_nan=True)
    # MAX is a < b ? b : a (datasheet 2.6): NaN in the first operand stays, in the second it is dropped.
    nan, one = ktpu.tensor([np.nan]), ktpu.tensor([1.0])
    assert np.isnan(nan.maximum(one).item())
    assert one.maximum(nan).item() == 1.0


def test_results_beyond_the_range_saturate_and_are_counted() -> None:
    x = ktpu.tensor([60000.0, -60000.0, 1.0])
    before = ktpu.stats()["saturations"]
    assert (x + x).numpy().tolist() == [65504.0, -65504.0, 2.0]
    assert ktpu.stats()["saturations"] >= before + 2


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4, 2)])
def test_empty_tensors_need_no_device(shape: tuple[int, ...]) -> None:
    x = ktpu.zeros(shape)
    before = ktpu.stats()["dispatches"]
    for got in (x + x, x * 2, 1 / x, x.silu(), -x, x.maximum(x), x.softmax() if shape else x):
        assert got.numpy().shape == shape
    assert (x.reshape(*shape, 1) + ktpu.ones((*shape, 5))).shape == (*shape, 5)
    assert ktpu.stats()["dispatches"] == before


def test_non_contiguous_inputs() -> None:
    base = data((20, 30), 11)
    for view in (
        base[::2, ::3],
        base.T,
        base[:, ::-1],
        np.asfortranarray(base),
        np.broadcast_to(base[:1], (4, 30)),
    ):
        check((ktpu.tensor(view) + ktpu.tensor(view)).numpy(), double(view) * 2, 1)


def test_integers_bools_and_doubles_are_inputs() -> None:
    for source in (np.arange(-5, 6), np.array([True, False]), np.arange(5.0), [1, 2, 3], 4):
        x = ktpu.tensor(source)
        assert x.dtype == np.float16
        assert np.array_equal((x + 1).numpy(), np.asarray(source) + 1)


def test_operands_of_two_machines_are_refused() -> None:
    other = ktpu.device("mini")
    with pytest.raises(Refusal, match="one device"):
        _ = ktpu.ones(3) + ktpu.ones(3, device=other)
    assert (ktpu.ones(3, device=other) + np.ones(3)).device is other
