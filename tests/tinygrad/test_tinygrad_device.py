"""The device KTPU: lookup, versions, memory, numerics, host steps, several devices, files."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from tinygrad import Variable
from tinygrad.dtype import dtypes
from tinygrad.engine.jit import TinyJit
from tinygrad.nn.state import safe_load, safe_save
from tinygrad.tensor import Tensor

import kohakutpu.tinygrad as kt
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.frontends.tinygrad import register, version
from kohakuaccel.frontends.tinygrad.memory import Memory, View
from kohakutpu.tinygrad.engine import machine_of
from kohakutpu.tinygrad.numerics import from_environment

D = "KTPU"


def given(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "0.13.1")
    with pytest.raises(Refusal, match=r"one version of tinygrad.*0\.13\.1.*0\.14\.0"):
        version.check()


def test_no_tinygrad_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(Refusal, match="none installed"):
        version.check()


@pytest.mark.parametrize("name", ["CLOUD", "ktpu", "NULLS", "A:1"])
def test_names_that_tinygrad_treats_specially_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="written in capitals"):
        register.register(name, "somewhere")


def test_arch_names_a_machine_and_its_changes() -> None:
    assert machine_of("mini").name == "mini"
    assert machine_of("ship_3x2,L=10").timing["L"] == 10
    with pytest.raises(TypeError, match="a change is of a size"):
        machine_of("ship_3x2,LL=10")


def test_bytes_and_kept_forms_agree() -> None:
    memory = Memory(64)
    low, high = View(memory, 0, 32), View(memory, 32, 32)
    low.keep("form", "value", lambda: np.full(32, 7, np.uint8), ahead=True)
    assert low.kept("form") == "value"
    assert (high.read() == 0).all()
    assert memory.kept[0].ahead
    assert (View(memory, 4, 8).read() == 7).all()
    assert not memory.kept[0].ahead
    high.write()[:] = 1
    assert low.kept("form") == "value"
    View(memory, 30, 4).write()[:] = 2
    assert low.kept("form") is None
    assert list(low.read()[28:]) == [7, 7, 2, 2]


def test_a_value_stays_on_the_device_between_kernels() -> None:
    kt.reset()
    x, w = given(32, 64), given(48, 64, seed=1)
    h = (Tensor(x, device=D) @ Tensor(w, device=D).T).realize()
    y = h.relu().realize()
    assert kt.report().host_kernels == 0
    np.testing.assert_allclose(y.numpy(), np.maximum(x @ w.T, 0), atol=0.8)


def test_host_steps_can_be_refused() -> None:
    with kt.numerics(host="refuse"), pytest.raises(Refusal, match=r"every kernel is computed by the machine.*integers"):
        (Tensor([1, 2, 3], device=D) + 1).numpy()


def test_simulated_time_says_what_it_leaves_out() -> None:
    found = kt.Report(device_kernels=1, seconds=2e-6)
    assert "simulated time 2.0 us" in str(found).splitlines()[1]
    assert "host" not in str(found).splitlines()[1]
    found.host("integers", "E_3", 24)
    assert str(found).splitlines()[1] == "  simulated time 2.0 us, without the steps of the host"


def test_unknown_options_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KTPU_MATMUL", "exact")
    with pytest.raises(Refusal, match="mxfp7, split"):
        from_environment()


def test_assigning_in_place_reads_before_it_writes() -> None:
    t = Tensor(np.arange(6, dtype=np.int32), device=D).contiguous().realize()
    t.assign(t.flip(0) + t).realize()
    assert t.tolist() == [5] * 6


def test_slices_are_views_at_any_offset() -> None:
    t = Tensor(np.arange(10, dtype=np.float32), device=D).contiguous().realize()
    assert (t[3:7].contiguous() + 1).tolist() == [4, 5, 6, 7]
    t[2:4] = Tensor([9.0, 8.0], device=D)
    assert t.tolist() == [0, 1, 9, 8, 4, 5, 6, 7, 8, 9]


def test_random_numbers_are_tinygrads_own() -> None:
    Tensor.manual_seed(3)
    ours = Tensor.rand(5, device=D).numpy()
    Tensor.manual_seed(3)
    assert (Tensor.rand(5, device=D).numpy() == ours).all()
    # Threefry of tinygrad 0.14.0 for this seed, on any device.
    assert ((ours >= 0) & (ours < 1)).all()


def test_several_devices() -> None:
    x = given(4, 8)
    t = Tensor(x).shard((f"{D}:0", f"{D}:1"), axis=0)
    np.testing.assert_allclose((t + 1).sum(1).numpy(), (x + 1).sum(1), atol=2e-2)
    both = Tensor.stack(t, t * 2).numpy()  # its kernels know which device they run on
    np.testing.assert_allclose(both, np.stack([x, x * 2]), atol=2e-2)
    moved = Tensor(x, device=D).to(f"{D}:1")
    assert (moved.numpy() == x).all()


def test_safetensors_round_trip(tmp_path: Path) -> None:
    x = given(3, 5)
    state = {"w": Tensor(x, device=D), "n": Tensor([1, 2], dtype=dtypes.int64, device=D)}
    safe_save(state, str(tmp_path / "s.safetensors"))
    back = safe_load(str(tmp_path / "s.safetensors"))
    assert (back["w"].to(D).numpy() == x).all()
    assert back["n"].to(D).tolist() == [1, 2]


def test_jit_replays_with_other_inputs() -> None:
    @TinyJit
    def f(a: Tensor, b: Tensor) -> Tensor:
        return ((a + b).relu().contiguous() * 2).realize()

    for n in range(4):
        a, b = given(4, 8, seed=n), given(4, 8, seed=n + 9)
        out = f(Tensor(a, device=D).realize(), Tensor(b, device=D).realize())
        np.testing.assert_allclose(out.numpy(), np.maximum(a + b, 0) * 2, atol=1e-2)


def test_variables() -> None:
    x = np.arange(30, dtype=np.int32).reshape(10, 3)
    t, v = Tensor(x, device=D), Variable("n", 1, 10)
    assert [int(t[: v.bind(n)].sum().item()) for n in (3, 5, 3)] == [x[:n].sum() for n in (3, 5, 3)]


SCRIPT = """
import sys
from kohakuaccel.frontends.tinygrad import register
register.register("KTPU", "kohakutpu.tinygrad.device")
assert not any(m.startswith("tinygrad") for m in sys.modules), "a start of Python imports tinygrad"
from tinygrad import Tensor, Device
assert Device.DEFAULT == "KTPU"
x = Tensor([1.0, 2.0]) + 1
from tinygrad.uop import Ops
from tinygrad.helpers import GlobalCounters
assert x.tolist() == [2.0, 3.0]
import ktpugrad
print(type(Device["KTPU"].iface).__name__, Device["KTPU"].engine.machine.name, GlobalCounters.time_sum_s > 0)
print(ktpugrad.report().seconds > 0)
"""


@pytest.mark.slow
def test_a_script_selects_machine_and_clock_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEV", "TIMED+KTPU:AST:ship_3x2,L=10")
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["TIMEDIface ship_3x2 with L=10 True", "True"]
