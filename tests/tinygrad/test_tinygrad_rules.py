"""Rules that kernels rely on: what is not valid is 0, gates before reads, stores in place, parts of buffers, variables;
random numbers and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tinygrad import Variable
from tinygrad.device import Device
from tinygrad.dtype import Invalid, dtypes
from tinygrad.engine.jit import TinyJit
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import KernelInfo, UOp

import kohakutpu.tinygrad as kt
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.frontends.tinygrad.compiling import clean
from kohakuaccel.frontends.tinygrad.indices import Symbolic
from kohakuaccel.frontends.tinygrad.translate import translate

D = "KTPU"


def given(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def kernel(ours: Any, *tensors: Tensor) -> np.ndarray:
    """The first tensor after a kernel that a function of their buffers describes."""
    return tensors[0].custom_kernel(*tensors[1:], fxn=ours)[0].numpy()


@pytest.mark.parametrize("dtype", [dtypes.float, dtypes.int32])
def test_an_invalid_value_is_zero_in_a_fold_and_is_not_stored(dtype: Any) -> None:
    def folded(out: UOp, x: UOp) -> UOp:
        i = UOp.range(4, 0)
        held = (i < 2).where(x[i], UOp.const(Invalid, dtype))
        return out[0].store(held.reduce(i, arg=(Ops.ADD, 0))).sink(arg=KernelInfo(name="folded"))

    def chosen(out: UOp, x: UOp) -> UOp:
        i = UOp.range(4, 0)
        held = (i < 2).where(x[i], UOp.const(Invalid, dtype))
        return out[i].store(held + 1).end(i).sink(arg=KernelInfo(name="chosen"))

    x = Tensor([5, 6, 7, 8], dtype=dtype, device=D).realize()
    assert kernel(folded, Tensor.zeros(1, dtype=dtype, device=D).contiguous().realize(), x).tolist() == [11]
    assert kernel(chosen, Tensor.full((4,), 3, dtype=dtype, device=D).contiguous().realize(), x).tolist() == [
        6,
        7,
        3,
        3,
    ]


def test_places_behind_a_gate_are_not_read() -> None:
    """Ids far outside a table, behind a gate; and pads on both sides of a gathered row."""
    table, at = given(4, 3), np.array([2, 10**6, -5, 0], np.int32)
    kept = Tensor((at >= 0) & (at < 4), device=D)
    ids = Tensor(at, device=D)
    rows = kept.reshape(4, 1).where(Tensor(table, device=D)[ids], 7.0).numpy()
    np.testing.assert_allclose(rows, np.where(((at >= 0) & (at < 4))[:, None], table[at % 4], 7), atol=2e-3)
    padded = Tensor(table, device=D)[Tensor([3, 1], device=D)].pad(((1, 1), (0, 2))).numpy()
    np.testing.assert_allclose(padded, np.pad(table[[3, 1]], ((1, 1), (0, 2))), atol=2e-3)


def test_an_index_beyond_its_buffer_is_refused() -> None:
    def outside(out: UOp, at: UOp, x: UOp) -> UOp:
        i = UOp.range(2, 0)
        return out[i].store(x[at[i].cast(dtypes.weakint)]).end(i).sink(arg=KernelInfo(name="outside"))

    with pytest.raises((Refusal, RuntimeError), match=r"a gathered index lies in what it promises|out of"):
        kernel(
            outside, Tensor.empty(2, device=D), Tensor([0, 9], device=D).realize(), Tensor.ones(3, device=D).realize()
        )


def test_stores_in_place_read_first() -> None:
    x = np.arange(12, dtype=np.int32)
    t = Tensor(x, device=D).contiguous().realize()
    t[2:].assign(t[:-2].contiguous()).realize()
    assert t.tolist() == [0, 1, *range(10)]
    t = Tensor(x, device=D).contiguous().realize()
    t.assign(t.reshape(3, 4).T.reshape(12) - t).realize()
    assert (t.numpy() == x.reshape(3, 4).T.reshape(12) - x).all()
    t[::5] = 1
    assert t.numpy()[::5].tolist() == [1, 1, 1]
    t += t
    assert t.numpy()[0] == 2


def test_two_buffers_change_places_in_one_kernel() -> None:
    def swapped(a: UOp, b: UOp) -> UOp:
        i = UOp.range(6, 0)
        return UOp.group(a[i].store(b[i]), b[i].store(a[i])).end(i).sink(arg=KernelInfo(name="swapped"))

    a, b = (Tensor(given(6, seed=n), device=D).realize() for n in (1, 2))
    found = a.custom_kernel(b, fxn=swapped)
    Tensor.realize(*found)
    assert (found[0].numpy() == given(6, seed=2)).all()
    assert (found[1].numpy() == given(6, seed=1)).all()


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.half, dtypes.float, dtypes.int64])
def test_parts_of_buffers_at_any_place(dtype: Any) -> None:
    """Bytes from a place that is no multiple of the type's size: an int8 buffer seen as another type."""
    size = dtype.itemsize
    raw = np.arange(1, 8 * size + 4, dtype=np.int8)
    part = Tensor(raw, device=D).contiguous().realize()[3 : 3 + 8 * size].bitcast(dtype)
    wanted = raw[3 : 3 + 8 * size].copy().view(np.dtype(dtype.fmt))
    assert (part.contiguous().numpy() == wanted).all()
    assert ((part + part).numpy() == wanted + wanted).all() or dtype is dtypes.int8
    t = Tensor(np.arange(10), dtype=dtype, device=D).contiguous().realize()
    assert ((t[3:7].contiguous() * 2).numpy() == np.arange(3, 7) * 2).all()


def test_variables_as_extents_places_and_values() -> None:
    x = np.arange(30, dtype=np.int32).reshape(10, 3)
    t, v = Tensor(x, device=D).contiguous().realize(), Variable("n", 1, 9)
    for n in (2, 7, 2):
        bound = v.bind(n)
        assert (t[bound].numpy() == x[n]).all()
        assert int(t[:bound].sum().item()) == x[:n].sum()
        assert (t.shrink(((bound, bound + 1), None)).numpy() == x[n : n + 1]).all()
        assert (t[0] * Tensor(bound)).tolist() == (x[0] * n).tolist()
        assert int((Tensor.ones(bound, device=D).contiguous() * 3).sum().item()) == 3 * n


def test_a_recorded_step_takes_other_variables() -> None:
    cache = Tensor.zeros(8, 2, dtype=dtypes.int32, device=D).contiguous().realize()

    @TinyJit
    def step(x: Tensor, at: Any) -> Tensor:
        cache[at : at + 1].assign(x).realize()
        return cache[: at + 1].sum(0).realize()

    total = np.zeros(2, np.int64)
    for n in range(6):
        row = np.array([[n, 10 * n]], np.int32)
        total += row[0]
        found = step(Tensor(row, device=D).realize(), Variable("at", 0, 7).bind(n))
        assert found.tolist() == total.tolist()
    assert cache.numpy()[:6, 1].tolist() == [0, 10, 20, 30, 40, 50]


def test_a_variable_as_a_number_waits_for_its_value() -> None:
    ones, n = Tensor.ones(2, dtype=dtypes.int32, device=D).contiguous().realize(), Tensor(Variable("n", 1, 10).bind(3))
    (ast,) = [c.src[0] for c in (ones * n).linear_with_vars()[0].src if c.src[0].op is Ops.SINK]
    with pytest.raises(Symbolic):
        translate(clean(ast), "k")
    assert (ones * n).tolist() == [3, 3]


# random numbers


def threefry(counter: int, key: int) -> int:
    """Threefry-2x32 with 20 rounds, in Python's integers, as its paper has it."""
    mask = 0xFFFFFFFF
    x = [counter & mask, counter >> 32]
    ks = [key & mask, key >> 32]
    ks.append(ks[0] ^ ks[1] ^ 0x1BD11BDA)
    ks = [ks[1], ks[2], ks[0]]
    x = [(x[0] + ks[2]) & mask, (x[1] + ks[0]) & mask]
    for i in range(20):
        x[0] = (x[0] + x[1]) & mask
        turn = (13, 15, 26, 6, 17, 29, 16, 24)[i % 8]
        x[1] = ((x[1] << turn | x[1] >> (32 - turn)) & mask) ^ x[0]
        if i % 4 == 3:
            n = i // 4
            x = [(x[0] + ks[n % 3]) & mask, (x[1] + ks[(n + 1) % 3] + n + 1) & mask]
    return x[1] << 32 | x[0]


def test_threefry() -> None:
    numbers, key = [0, 1, 77, 1 << 40, (1 << 64) - 1], 0x0123456789ABCDEF
    counters = Tensor(np.array(numbers, np.uint64), device=D)
    found = counters.threefry(Tensor(np.full(5, key, np.uint64), device=D)).tolist()
    assert found == [threefry(n, key) for n in numbers]


@pytest.mark.slow
def test_random_tensors_are_those_of_any_device() -> None:
    def made(device: str) -> list[np.ndarray]:
        Tensor.manual_seed(11)
        like = Tensor.empty(2, 3, device=device)
        tensors = (Tensor.rand(7, device=device), Tensor.randint(5, low=-3, high=9, device=device), like.rand_like())
        return [t.numpy() for t in tensors]

    for ours, theirs in zip(made(D), made("PYTHON")):
        assert (ours == theirs).all()


@pytest.mark.slow
def test_distributions() -> None:
    Tensor.manual_seed(5)
    with kt.numerics(matmul="split"):
        near = Tensor.randn(4000, device=D).numpy()
        spread = Tensor.uniform(4000, low=-2, high=6, device=D).numpy()
        wide = Tensor.normal(4000, mean=3, std=2, device=D).numpy()
        order = Tensor.randperm(50, device=D).numpy()
        glorot = Tensor.glorot_uniform(30, 70, device=D).numpy()
        drawn = Tensor([1.0, 0.0, 3.0], device=D).multinomial(400, replacement=True).numpy()
        for name in ("scaled_uniform", "kaiming_uniform", "kaiming_normal"):
            assert np.isfinite(getattr(Tensor, name)(30, 20, device=D).numpy()).all()
    assert abs(near.mean()) < 0.06
    assert abs(near.std() - 1) < 0.05
    assert spread.min() >= -2
    assert spread.max() < 6
    assert abs(spread.mean() - 2) < 0.15
    assert abs(wide.mean() - 3) < 0.12
    assert sorted(order.tolist()) == list(range(50))
    assert abs(glorot).max() <= (6 / 100) ** 0.5
    assert set(drawn.tolist()) == {0, 2}
    assert abs((drawn == 2).mean() - 0.75) < 0.08


# gradients


def test_gradients() -> None:
    x, w = given(5, 4), given(4, 3, seed=1)
    a, b = Tensor(x, device=D), Tensor(w, device=D)
    with kt.numerics(matmul="split"):
        loss = ((a @ b).tanh() * 2).sum()
        by_call = loss.gradient(a, b)
        loss.backward()
        assert a.grad is not None
        found = [a.grad.numpy(), *(g.numpy() for g in by_call)]
    inner = 2 * (1 - np.tanh(x.astype(np.float64) @ w) ** 2)
    wanted = [inner @ w.T, inner @ w.T, x.T @ inner]
    for got, want in zip(found, wanted):
        np.testing.assert_allclose(got, want, atol=2e-5)


def test_the_device_says_what_it_takes() -> None:
    assert set(dtypes.all) <= Device[D].renderer.supported_dtypes()
