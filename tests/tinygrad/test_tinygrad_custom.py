"""Kernels of the kernel language called with tinygrad's Tensors: values, gradients, TinyJit, and what is refused."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tinygrad.dtype import dtypes
from tinygrad.engine.jit import TinyJit
from tinygrad.tensor import Tensor

import kohakutpu.tinygrad as kt
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import dims, grid
from kohakutpu import kernels
from kohakutpu import lang as L
from kohakutpu.lang import kernel
from kohakutpu.tinygrad.custom import Call

D = "KTPU"
M, N = dims("M N")


@kernel
def halved_sum(x=L.In(..., M, N), y=L.In(..., M, N), z=L.Out(..., M, N), *, factor=0.5):  # pyright: ignore[reportMissingParameterType,reportUntypedFunctionDecorator] - ports are defaults
    """factor * (x + y)."""
    for e in grid(x.parts()):
        z[e] <<= (x[e] + y[e]) * factor


@kernel
def both(x=L.In(M, N), low=L.Out(M), high=L.Out(M)):  # pyright: ignore[reportMissingParameterType,reportUntypedFunctionDecorator] - ports are defaults
    """The least and the greatest of each row."""
    for r in grid(x.rows()):
        low[r] <<= L.row_min(x[r])
        high[r] <<= L.row_max(x[r])


def given(*shape: int, seed: int = 0, dtype: Any = np.float16) -> Tensor:
    values = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    return Tensor(values, device=D).realize()


def test_a_kernel_of_a_users_own() -> None:
    x, y = given(24, 40), given(24, 40, seed=1)
    kt.reset()
    z = kt.custom(halved_sum)(x * 2, y, factor=0.25)  # the first operand is computed, so a kernel makes it
    want = 0.25 * (2 * x.numpy().astype(np.float64) + y.numpy())
    assert z.dtype is dtypes.half
    assert np.abs(z.numpy() - want).max() < 2e-3
    assert (kt.report().device_kernels, kt.report().host_kernels) == (2, 0)


def test_a_library_kernel_and_what_follows() -> None:
    q, k, v = (given(1, 2, 16, 32, seed=n) for n in range(3))
    attend = kt.custom(kernels.flash_attention)
    y = (attend(q, k, v, causal=True) + 1).numpy()
    want = (q.scaled_dot_product_attention(k, v, is_causal=True) + 1).numpy()
    assert np.abs(y.astype(np.float64) - want).max() < 0.02
    keep = Tensor(np.tril(np.ones((1, 16), np.float16)), device=D).realize()
    only = attend(q, k, v, keep=keep).numpy()  # an optional operand: the first key alone
    assert np.abs(only - np.broadcast_to(v.numpy()[:, :, :1], only.shape)).max() < 0.05


def test_float32_operands_give_float32() -> None:
    x, w, b = given(16, 32, dtype=np.float32), given(24, 32, seed=1), given(24, seed=2)
    y = kt.custom(kernels.linear)(x, w, bias=b, activation="relu")
    assert y.dtype is dtypes.float
    want = np.maximum(x.numpy().astype(np.float64) @ w.numpy().astype(np.float64).T + b.numpy(), 0)
    assert np.abs(y.numpy() - want).max() < 0.02 * np.abs(want).max()


def test_several_outputs() -> None:
    x = given(12, 40)
    low, high = kt.custom(both)(x)
    assert np.array_equal(low.numpy(), x.numpy().min(1))
    assert np.array_equal(high.numpy(), x.numpy().max(1))


def slope(gradient: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, None]:
    return gradient * 0.5, None


def test_a_gradient_function() -> None:
    x, y = given(8, 16), given(8, 16, seed=1)
    z = (kt.custom(halved_sum, grad=slope)(x, y) * 4).sum()
    (found,) = z.gradient(x)
    assert np.array_equal(found.numpy(), np.full((8, 16), 2.0))


def linear(x: Tensor, w: Tensor, **knobs: Any) -> Tensor:
    return (x @ w.T).relu()


def test_the_gradient_of_a_reference() -> None:
    x, w = given(16, 32), given(24, 32, seed=1)
    along = given(16, 24, seed=2)

    def gradients(f: Callable[..., Tensor]) -> list[np.ndarray]:
        return [g.numpy() for g in (f(x, w, activation="relu") * along).sum().gradient(x, w)]

    for one, other in zip(gradients(kt.custom(kernels.linear, reference=linear)), gradients(linear)):
        assert np.abs(one - other).max() <= 0.02 * np.abs(other).max()


def test_captured_and_replayed() -> None:
    mix = kt.custom(halved_sum, grad=slope)

    @TinyJit
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = mix(x, y).exp()
        (dx,) = z.sum().gradient(x)
        Tensor.realize(z, dx)
        return z, dx

    for n in range(4):
        x, y = given(8, 16, seed=n), given(8, 16, seed=n + 10)
        z, dx = step(x, y)
        want = np.exp(0.5 * (x.numpy().astype(np.float64) + y.numpy()))
        assert np.abs(z.numpy() - want).max() < 0.02 * want.max()
        assert np.abs(dx.numpy() - 0.5 * want).max() < 0.02 * want.max()


@pytest.mark.slow
def test_a_captured_program_finds_its_kernel_in_another_process(tmp_path: Any) -> None:
    run = TinyJit(lambda x: kt.custom(kernels.softmax)(x).realize())
    for n in range(3):
        run(given(8, 32, seed=n))
    file = tmp_path / "step.pkl"
    file.write_bytes(pickle.dumps(run))
    lines = (
        "import pickle, sys, numpy as np, kohakutpu.tinygrad",
        "from tinygrad import Tensor",
        "run = pickle.load(open(sys.argv[1], 'rb'))",
        "y = run(Tensor(np.zeros((8, 32), np.float16), device='KTPU').realize()).numpy()",
        "assert np.array_equal(y, np.full((8, 32), 1 / 32)), y",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines), str(file)], check=True, timeout=300)


def test_simulated_time_of_a_kernel() -> None:
    from kohakutpu.tinygrad.engine import KTPUEngine

    found: list[dict[str, Any]] = []

    class Recorded(KTPUEngine):
        def own(self, name: str, record: Any) -> Any:
            found.append(record)
            return super().own(name, record)

    x = given(8, 32)
    device = x.uop.buffer.allocator.dev  # pyright: ignore[reportAttributeAccessIssue] - a device of ours
    engine, device.engine = device.engine, Recorded("ship_3x2", timed=True)
    try:
        kt.reset()
        kt.custom(kernels.softmax)(x, scale=0.125).realize()
    finally:
        device.engine = engine
    assert kt.report().seconds > 1e-6
    assert found[0]["knobs"] == {"scale": 0.125}
    assert json.loads(json.dumps(found[0])) == found[0]


def test_kernels_that_no_module_names_are_refused() -> None:
    @kernel
    def inner(x=L.In(M, N), y=L.Out(M, N)):  # pyright: ignore[reportMissingParameterType] - ports are defaults
        """x."""
        for e in grid(x.parts()):
            y[e] <<= x[e] * 2.0

    with pytest.raises(Refusal, match=r"kernel inner: .* is a name of its module.*got no name of"):
        kt.custom(inner)


def test_a_program_whose_kernel_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("changing")
    monkeypatch.setitem(sys.modules, "changing", module)
    record = {"module": "changing", "name": "softmax", "code": "0", "shapes": [], "operands": 0, "named": []}
    with pytest.raises(Refusal, match=r"changing\.softmax: .* found where it was; got no kernel"):
        Call(record)
    vars(module)["softmax"] = kernels.softmax
    with pytest.raises(Refusal, match="found where it was; got another kernel"):
        Call(record)


def test_operands_and_knobs_that_no_program_holds_are_refused() -> None:
    x = given(8, 16)
    with pytest.raises(Refusal, match="operands are float16 or float32"):
        kt.custom(kernels.softmax)(x.cast(dtypes.int))
    with pytest.raises(Refusal, match="a knob in a tinygrad program is a number"):
        kt.custom(kernels.softmax)(x, scale=np.float16(2))
    with pytest.raises(Refusal, match="dim M has one value"):
        kt.custom(halved_sum)(x, given(9, 16))
    with pytest.raises(Refusal, match="lie on one device"):
        kt.custom(halved_sum)(x, x.to("PYTHON"))
    with pytest.raises(Refusal, match="numbers that the device stores"):
        kt.custom(kernels.softmax)(Tensor(np.full((8, 16), np.inf, np.float16), device=D)).realize()


def test_gradients_that_do_not_fit_are_refused() -> None:
    x, y = given(8, 16), given(8, 16, seed=1)
    with pytest.raises(Refusal, match="a gradient is given once"):
        kt.custom(halved_sum, grad=slope, reference=linear)
    with pytest.raises(Refusal, match="one gradient per operand"):
        kt.custom(halved_sum, grad=lambda g, x, y: [g])(x, y).sum().gradient(x)
    with pytest.raises(Refusal, match="has its operand's shape"):
        kt.custom(halved_sum, grad=lambda g, x, y: [g.sum(0), None])(x, y).sum().gradient(x)
    with pytest.raises(Refusal, match="a kernel with a gradient has one output"):
        kt.custom(both, grad=lambda g, x: g)(x)
