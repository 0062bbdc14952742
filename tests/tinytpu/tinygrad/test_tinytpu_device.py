"""The device TINYTPU: lookup, values of every kind, counts, refusals."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from tinygrad.dtype import DType, dtypes
from tinygrad.engine.jit import TinyJit
from tinygrad.tensor import Tensor

import tinytpu.tinygrad as tt
from kohakuaccel.diagnostics import Refusal
from tinytpu.tinygrad.engine import machine_of

D = "TINYTPU"


def given(dtype: type, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(dtype)


def test_an_addition_is_a_program_with_cycles() -> None:
    tt.reset()
    assert (Tensor([1, 2, 3], device=D) + 1).tolist() == [2, 3, 4]
    report = tt.report()
    assert (report.device_kernels, report.host_kernels, report.took.programs) == (1, 0, 1)
    assert report.took.cycles == 30
    assert report.seconds == pytest.approx(30 / 100e6)
    assert "E_3: 1 times, 30 cycles each, 1 programs\n  busy: load " in report.by_kernel()
    assert "1 kernels: 1 on the device, 0 steps of the host" in str(report)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float32])
def test_products_are_numpys(dtype: type) -> None:
    a, b = given(dtype, 8, 8), given(dtype, 8, 4, seed=1)
    tt.reset()
    found = (Tensor(a, device=D) @ Tensor(b, device=D)).numpy()
    assert found.dtype == dtype
    assert (found == a @ b).all()
    assert tt.report().host_kernels == 0


def test_the_array_multiplies_integers_that_are_int8() -> None:
    a, b = given(np.int32, 4, 8), given(np.int32, 8, 4, seed=1)
    tt.reset()
    assert ((Tensor(a, device=D) @ Tensor(b, device=D)).numpy() == a @ b).all()
    (kernel,) = tt.report().kernels.values()
    assert "on the array" in str(kernel)
    assert kernel.busy["MXU"] > kernel.busy["PSUM"] > 0
    assert kernel.busy["load"] == pytest.approx(24 * 2 / 113, abs=0.05)  # 2 cycles a record
    assert not tt.report().notes
    assert ((Tensor(a * 2, device=D) @ Tensor(b, device=D)).numpy() == 2 * a @ b).all()
    (note,) = tt.report().notes
    assert "on the vector unit, an activation of the array is an int8" in note
    with tt.numerics(mxu="demanded"), pytest.raises(Refusal, match=r"an activation of the array is an int8"):
        (Tensor(a * 2, device=D) @ Tensor(b, device=D)).numpy()


def test_what_lanes_do_not_hold_is_a_counted_step_of_the_host_or_refused() -> None:
    tt.reset()
    x = Tensor([1.5, 2.0], dtype=dtypes.double, device=D)
    assert (x * 2).tolist() == [3.0, 4.0]
    ((reason, count),) = tt.report().reasons.items()
    assert count == 1
    assert reason.endswith("; got FP64")
    with tt.numerics(host="refuse"), pytest.raises(NotImplementedError, match=r"kernel E_2, .*; got FP64"):
        (x * 3).tolist()


def test_options_come_from_the_environment_and_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinytpu.tinygrad.numerics import current

    monkeypatch.setenv("TINYTPU_HOST", "refuse")
    assert current() == tt.Numerics(host="refuse")
    with tt.numerics(join="off"):
        assert current() == tt.Numerics(host="refuse", join="off")
    monkeypatch.setenv("TINYTPU_MXU", "always")
    with pytest.raises(Refusal, match="TINYTPU_MXU is one of fits, demanded, never; got always"):
        current()


def test_an_arch_names_a_machine_and_its_changes() -> None:
    assert machine_of("").name == "tinytpu_4x4"
    assert machine_of("tinytpu_8x8,vregs=4").params.vregs == 4
    with pytest.raises(TypeError, match="a change is of a size, param"):
        machine_of("tinytpu_4x4,registers=4")


def test_elements_stored_at_places_of_their_own_are_the_machines() -> None:
    tt.reset()
    x = Tensor(list(range(12)), device=D).reshape(3, 4).clone().realize()
    x[1:, ::2] = Tensor([[-1, -2], [-3, -4]], device=D)
    assert x.tolist() == [[0, 1, 2, 3], [-1, 5, -2, 7], [-3, 9, -4, 11]]
    assert tt.report().host_kernels == 0


def test_a_captured_step_is_replayed_with_the_plans_it_has() -> None:
    from tinytpu.tinygrad.engine import planned

    @TinyJit
    def step(x: Tensor, w: Tensor) -> Tensor:
        return ((x @ w).relu() + 1).sum(1).realize()

    w = given(np.int32, 8, 6, seed=1)
    found: list[int] = []
    for n in range(4):
        x = given(np.int32, 5, 8, seed=n + 2)
        y = step(Tensor(x, device=D).realize(), Tensor(w, device=D).realize())
        assert (y.numpy() == (np.maximum(x @ w, 0) + 1).sum(1)).all()
        found.append(planned.cache_info().misses)
    assert len(set(found)) == 1


def test_kernels_that_belong_together_are_one_and_apart_with_join_off() -> None:
    x = np.linspace(-3, 3, 32, dtype=np.float32).reshape(4, 8)
    right = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    counts: list[int] = []
    for join in ("allow", "off"):
        tt.reset()
        with tt.numerics(join=join):
            assert np.allclose(Tensor(x, device=D).softmax().numpy(), right, rtol=1e-5)
        counts.append(tt.report().device_kernels)
        assert tt.report().host_kernels == 0
    assert counts == [1, 3]


def test_two_devices_share_plans_and_pass_values_on() -> None:
    one = Tensor([1, 2, 3], device="TINYTPU:1")
    tt.reset()
    assert (one + 1).to(D).tolist() == [2, 3, 4]
    assert (Tensor([1, 2, 3], device=D) + 1).tolist() == [2, 3, 4]
    assert [kernel.count for kernel in tt.report().kernels.values()] == [2]


def test_loops_that_are_no_graph_are_counted_or_refused() -> None:
    from tinytpu.tinygrad.engine import TinyTPUEngine

    engine = TinyTPUEngine("")
    tt.reset()
    engine.loops("k", 12)
    assert (tt.report().host_kernels, tt.report().host_bytes) == (1, 12)
    with tt.numerics(host="refuse"), pytest.raises(NotImplementedError, match="kernel k: a kernel is a graph"):
        engine.loops("k", 12)


@pytest.mark.slow
def test_dev_selects_the_machine_and_debug_shows_its_time() -> None:
    script = "import tinytpu.tinygrad; from tinygrad import Tensor; print((Tensor([1, 2, 3]) * 2).tolist())"
    environment = {**os.environ, "DEV": "TINYTPU:AST:tinytpu_8x8,vregs=8", "DEBUG": "2", "PARALLEL": "2"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[2, 4, 6]"
    (line,) = [line for line in done.stdout.splitlines() if "TINYTPU" in line and "E_3" in line]
    assert "us" in line


@pytest.mark.parametrize(("dtype", "kernels"), [(dtypes.half, 1), (dtypes.double, 3)])
def test_kernels_are_joined_whose_values_lanes_hold(dtype: DType, kernels: int) -> None:
    tt.reset()
    x = Tensor([[0.0, 1.0], [2.0, 2.0]], dtype=dtype, device=D)
    assert np.allclose(x.softmax().cast(dtypes.float).numpy()[1], 0.5)
    assert tt.report().device_kernels + tt.report().host_kernels == kernels
    assert (tt.report().host_kernels == 0) == (dtype is dtypes.half)
