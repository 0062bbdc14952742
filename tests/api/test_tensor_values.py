"""What a tensor is to Python: shape, dtype, making, reading, and what it refuses to be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from kohakuaccel.diagnostics import KohakuError, Refusal
from kohakutpu import api as ktpu


def test_the_four_facts() -> None:
    x = ktpu.tensor(np.zeros((2, 3, 4), np.float32))
    assert (x.shape, x.ndim, x.size, x.dtype) == ((2, 3, 4), 3, 24, np.float32)
    assert len(x) == 2
    with pytest.raises(TypeError):
        len(ktpu.tensor(1.0))


def test_dtype_is_kept_or_asked() -> None:
    values = np.array([0.1, 2.0], np.float32)
    x = ktpu.tensor(values)
    assert x.numpy().dtype == np.float32
    assert np.array_equal(x.numpy(), values.astype(np.float16).astype(np.float32))
    assert ktpu.tensor(values, dtype=np.float16).numpy().dtype == np.float16
    assert ktpu.tensor([1, 2], dtype="float32").numpy().dtype == np.float32
    assert x.astype(np.float16).storage is x.storage
    for source in (values.astype(np.float64), [1.5], 3, True, np.arange(3)):
        assert ktpu.tensor(source).dtype == np.float16
    with pytest.raises(Refusal, match="float16 or float32"):
        ktpu.zeros(3, np.int32)


def test_making() -> None:
    assert np.array_equal(ktpu.zeros(3).numpy(), np.zeros(3))
    assert np.array_equal(ktpu.ones((2, 3)).numpy(), np.ones((2, 3)))
    assert ktpu.full((), 7).item() == 7.0
    assert np.array_equal(ktpu.full((2, 0), 7).numpy(), np.zeros((2, 0)))
    assert ktpu.full((1000, 1000), 0.1).storage.host().strides == (0, 0)
    with pytest.raises(Refusal, match="65504"):
        ktpu.full(3, 1e6)
    assert ktpu.full(3, 1e6, overflow="inf").numpy().tolist() == [np.inf] * 3
    for wrong in (-1, (2, -3), (2.0,)):
        with pytest.raises(Refusal, match="integers of at least 0"):
            ktpu.zeros(wrong)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(Refusal, match="one number"):
        ktpu.full(3, [1, 2, 3])  # type: ignore[arg-type]  # the point of the test


def test_a_tensor_of_a_tensor_is_the_same_value() -> None:
    x = ktpu.tensor([1.0, 2.0])
    assert ktpu.tensor(x) is x
    assert ktpu.tensor(x, np.float32).numpy().dtype == np.float32


def test_reading_gives_an_array_of_ones_own() -> None:
    x = ktpu.tensor([1.0, 2.0])
    out = x.numpy()
    out[0] = 9
    assert x.numpy().tolist() == [1.0, 2.0]
    assert np.asarray(x).tolist() == [1.0, 2.0]
    assert np.asarray(x, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="always a copy"):
        np.array(x, copy=False)


def test_reshape() -> None:
    x = ktpu.tensor(np.arange(24))
    for shape in [(2, 12), (-1,), (4, -1, 3), (24,), (1, 24, 1)]:
        assert np.array_equal(x.reshape(shape).numpy(), np.arange(24).reshape(shape))
        assert np.array_equal(x.reshape(*shape).numpy(), np.arange(24).reshape(shape))
    assert ktpu.tensor([3.0]).reshape(()).shape == ()
    assert ktpu.zeros((0, 3)).reshape(5, 0).shape == (5, 0)
    for wrong in [(5, 5), (-1, -1), (7, -1), (24, 0), (-2, 12)]:
        with pytest.raises(Refusal, match=r"reshape"):
            x.reshape(wrong)
    with pytest.raises(Refusal, match="keeps the number"):
        ktpu.zeros((0, 3)).reshape(0, -1)


def test_what_it_refuses_to_be() -> None:
    x = ktpu.ones((2, 2))
    with pytest.raises(Refusal, match="truth value"):
        bool(x)
    with pytest.raises(Refusal, match="comparison"):
        assert x == x  # the refusal is the point
    with pytest.raises(Refusal, match="one element"):
        x.item()
    with pytest.raises(TypeError):
        iter(x)  # type: ignore[call-overload]  # the point of the test
    with pytest.raises(TypeError):
        np.add(np.ones((2, 2)), x)
    assert len({x, x.T}) == 2


def test_functions_are_the_methods() -> None:
    a, b = np.array([1.0, 4.0]), np.array([2.0, 0.5])
    x = ktpu.tensor(a)
    for name in (
        "silu",
        "gelu",
        "relu",
        "sigmoid",
        "exp",
        "exp2",
        "log",
        "log2",
        "sqrt",
        "rsqrt",
        "abs",
        "softmax",
    ):
        assert np.array_equal(getattr(ktpu, name)(a).numpy(), getattr(x, name)().numpy())
    for name in ("sum", "max", "min", "mean"):
        assert getattr(ktpu, name)(a, axis=0).item() == getattr(x, name)(0).item()
    assert ktpu.add(a, b).numpy().tolist() == [3.0, 4.5]
    assert ktpu.sub(a, b).numpy().tolist() == [-1.0, 3.5]
    assert ktpu.mul(a, b).numpy().tolist() == [2.0, 2.0]
    assert np.allclose(ktpu.div(a, b).numpy(), [0.5, 8.0], rtol=1e-3)
    assert ktpu.add(1, 2).item() == 3.0
    assert ktpu.maximum(a, 2).numpy().tolist() == [2.0, 4.0]
    assert ktpu.minimum(2, b).numpy().tolist() == [2.0, 0.5]
    assert np.array_equal(ktpu.rmsnorm(a, b).numpy(), x.rmsnorm(b).numpy())
    assert np.array_equal(ktpu.layernorm(a, b, b).numpy(), x.layernorm(b, b).numpy())
    assert (+x) is x
    assert abs(-x).numpy().tolist() == a.tolist()


def test_stats_and_sync() -> None:
    ktpu.reset_stats()
    assert ktpu.stats()["dispatches"] == 0
    (ktpu.ones(5) + 1.0).numpy()
    ktpu.sync()
    stats = ktpu.stats()
    assert stats["dispatches"] == 1
    assert stats["bytes_from_device"] >= 10
    assert stats["resident_bytes"] >= 0


def test_choosing_the_machine() -> None:
    home = ktpu.device()
    try:
        assert ktpu.use("mini").machine.name == "mini"
        x = ktpu.ones(3)
        assert x.device.machine.name == "mini"
        assert (x + 1).numpy().tolist() == [2.0, 2.0, 2.0]
    finally:
        ktpu.use(home)
    assert ktpu.device() is home


@pytest.mark.slow
def test_methods_work_without_importing_the_api() -> None:
    code = "from kohakutpu.tensor import as_tensor; print((as_tensor([1.0, 2.0]) + 1).numpy().tolist())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[2.0, 3.0]"


def wrong_shapes() -> None:
    _ = ktpu.zeros((2, 3)) + ktpu.zeros((2, 4))  # line A


def wrong_value() -> None:
    ktpu.tensor([1e9])  # line B


def wrong_layout() -> None:
    ktpu.zeros(4).reshape(3)  # line C


def nan_operand() -> None:
    _ = ktpu.full((2, 2), np.nan) @ ktpu.ones((2, 2))  # line D


@pytest.mark.parametrize(
    ("wrong", "mark"), [(wrong_shapes, "A"), (wrong_value, "B"), (wrong_layout, "C"), (nan_operand, "D")]
)
def test_errors_carry_the_line_that_asked(wrong: Callable[[], None], mark: str) -> None:
    with pytest.raises(KohakuError) as error:
        wrong()
    assert error.value.source is not None
    assert error.value.source.file == __file__
    assert error.value.source.text.endswith(f"# line {mark}")
    assert f"test_tensor_values.py:{error.value.source.line}" in str(error.value)


def test_a_fault_at_a_fill_carries_the_line_that_asked() -> None:
    device = ktpu.device("singlemesh_2x2")
    x = ktpu.full((4, 4), np.inf, device=device)
    with pytest.raises(KohakuError, match=r"element \[0, 0\]") as error:
        _ = x @ x  # the product
    assert error.value.source is not None
    assert error.value.source.text.endswith("# the product")
