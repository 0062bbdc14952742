"""Kernels that tinygrad cuts apart and the device runs as one: which go together, the same bits, and when they part."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tinygrad.dtype import dtypes
from tinygrad.engine.jit import TinyJit
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops

import kohakutpu.tinygrad as kt
from kohakuaccel.frontends.tinygrad.joined.choice import Item, groups
from kohakuaccel.frontends.tinygrad.joined.running import Apart, Group, GroupRun, decode_group
from kohakuaccel.frontends.tinygrad.memory import Memory, View
from kohakuaccel.frontends.tinygrad.program import Engine, Prepared
from kohakutpu.tinygrad.engine import KTPUEngine
from kohakutpu.tinygrad.numerics import from_environment

D = "KTPU"


def item(reads: str, writes: str, inner: str = "", size: int = 1) -> Item:
    """A launch over buffers of one letter each."""
    return Item(buffers(reads), buffers(writes), buffers(inner), size)


def buffers(letters: str) -> frozenset[Hashable]:
    return frozenset(letters)


def test_a_value_nobody_keeps_joins_its_readers() -> None:
    softmax = [item("x", "m", "m"), item("xm", "s", "s"), item("xms", "y")]
    assert groups(softmax, 9) == [[0, 1, 2]]


def test_values_that_are_kept_join_nothing() -> None:
    assert groups([item("x", "m"), item("m", "y")], 9) == [[0], [1]]


def test_a_reader_of_another_kind_keeps_its_source_apart() -> None:
    assert groups([item("x", "m", "m"), item("m", "y"), item("m", "z", size=0)], 9) == [[0], [1], [2]]


def test_what_would_follow_itself_is_not_joined() -> None:
    # The last one needs m, and n, which a launch of another kind makes of m.
    circle = [item("x", "am", "a"), item("m", "n", size=0), item("an", "y")]
    assert groups(circle, 9) == [[0], [1], [2]]


def test_others_move_out_of_the_way_of_a_group() -> None:
    between = [item("x", "m", "m"), item("p", "q", size=0), item("mq", "y")]
    assert groups(between, 9) == [[1], [0, 2]]


def test_a_write_stays_behind_earlier_reads() -> None:
    # The second launch writes x, which the first has to read before; the third writes m.
    assert groups([item("x", "m", "m"), item("p", "x", size=0), item("m", "y")], 9) == [[0, 2], [1]]
    assert groups([item("x", "m", "m"), item("x", "x", size=0), item("mx", "y")], 9) == [[0], [1], [2]]


def test_a_group_has_a_limit_and_writes_a_buffer_once() -> None:
    chain = [item("x", "a", "a", 3), item("a", "b", "b", 3), item("b", "y", size=3)]
    assert groups(chain, 6) == [[0, 1], [2]]
    assert groups([item("x", "ay", "a"), item("a", "y")], 9) == [[0], [1]]


def scheduled(tensor: Tensor) -> list[Group | str]:
    """The launches that a tensor needs: groups, and the names of other operations."""
    linear, _ = tensor.linear_with_vars()
    found: list[Group | str] = []
    for call in linear.src:
        ast = call.src[0]
        found.append(decode_group(json.loads(ast.src[3].arg)) if ast.op is Ops.PROGRAM else ast.op.name)
    return found


def halves(*shape: int) -> Tensor:
    rng = np.random.default_rng(sum(shape))
    return Tensor(rng.standard_normal(shape).astype(np.float16), device=D).realize()


def attention(keys: int, causal: bool) -> Tensor:
    q, k, v = halves(2, 4, 16, 32), halves(2, 4, keys, 32), halves(2, 4, keys, 32)
    return q.scaled_dot_product_attention(k, v, is_causal=causal)


PROGRAMS: dict[str, Callable[[], Tensor]] = {
    "softmax": lambda: halves(24, 48).softmax(),
    "softmax of columns": lambda: halves(24, 48).softmax(0),
    "log softmax": lambda: halves(3, 8, 48).log_softmax(),
    "layernorm": lambda: halves(24, 48).layernorm() * halves(48) + halves(1, 48),
    "layernorm of two axes": lambda: halves(4, 6, 8, 16).layernorm(axis=(-1, -2)),
    "rmsnorm": lambda: halves(24, 48) * (halves(24, 48).square().mean(-1, keepdim=True) + 1e-6).rsqrt(),
    "attention": lambda: attention(24, False),
    "causal attention": lambda: attention(16, True),
    "grouped heads": lambda: halves(1, 4, 16, 32).scaled_dot_product_attention(
        halves(1, 2, 16, 32), halves(1, 2, 16, 32), enable_gqa=True
    ),
    "attention with a mask": lambda: halves(1, 2, 16, 32).scaled_dot_product_attention(
        halves(1, 2, 16, 32), halves(1, 2, 16, 32), attn_mask=halves(16, 16)
    ),
    "two products": lambda: (halves(16, 32) @ halves(32, 48)).gelu() @ halves(48, 16),
    "flipped and padded": lambda: halves(8, 16).softmax().flip(1).pad(((1, 1), (2, 0))).sum(0).softmax(),
    "shrunk and moved": lambda: halves(8, 16).softmax().shrink(((1, 7), (2, 14))).permute(1, 0).softmax(),
    "variance": lambda: halves(8, 40).std(1),
    "merged heads": lambda: halves(2, 8, 32).softmax().transpose(0, 1).reshape(8, 64) @ halves(64, 16),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_kernel_computes_the_bits_of_its_parts(name: str) -> None:
    launches = scheduled(PROGRAMS[name]())
    (group,) = launches
    assert isinstance(group, Group)
    assert len(group.parts) > 1
    assert len(group.hidden) == len(group.parts) - 1
    rng = np.random.default_rng(1)
    slots = {s.slot for s in group.whole.stores} | set(group.whole.reads)
    sizes = {int(v.name[1:]): int(np.prod(v.shape)) for v in group.whole.graph.inputs}
    sizes |= {s.slot: int(np.prod(group.whole.graph[s.value].shape)) for s in group.whole.stores}
    order = sorted(slots)

    def memories() -> list[View]:
        return [View(Memory(2 * sizes[slot]), 0, 2 * sizes[slot]) for slot in order]

    one, other = memories(), memories()
    for a, b in zip(one, other):
        numbers = rng.standard_normal(a.nbytes // 2).astype(np.float16).view(np.uint8)
        a.write()[:] = numbers
        b.write()[:] = numbers
    Prepared(group.whole, order).on_host(one)
    hidden = [View(Memory(n), 0, n) for n in group.hidden]
    behind = range(len(order), len(order) + len(hidden))
    for part in group.parts:
        Prepared(part, (*order, *behind)).on_host([*other, *hidden])
    for store in group.whole.stores:
        at = order.index(store.slot)
        assert np.isfinite(one[at].read().view(np.float16)).all()
        assert one[at].read().tobytes() == other[at].read().tobytes()


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_a_softmax_is_one_kernel_of_the_device() -> None:
    x = halves(24, 48)
    kt.reset()
    y = x.softmax().numpy()
    report = kt.report()
    assert (report.device_kernels, report.host_kernels, report.parted) == (1, 0, {})
    assert np.abs(y - softmax(x.numpy().astype(np.float64))).max() < 1e-3


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_one_kernel_of_the_device(causal: bool) -> None:
    q, k, v = halves(2, 4, 16, 32), halves(2, 4, 16, 32) * 0.5, halves(2, 4, 16, 32).flip(2)
    q, k, v = (t.contiguous().realize() for t in (q, k, v))
    kt.reset()
    y = q.scaled_dot_product_attention(k, v, is_causal=causal).numpy()
    report = kt.report()
    assert (report.device_kernels, report.host_kernels) == (1, 0)
    a, b, c = (t.numpy().astype(np.float64) for t in (q, k, v))
    scores = a @ b.swapaxes(-1, -2) / np.sqrt(32)
    if causal:
        scores = np.where(np.tril(np.ones((16, 16), bool)), scores, -np.inf)
    assert np.abs(y - softmax(scores) @ c).max() < 0.1


def test_captured_groups_are_replayed_with_other_values() -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        return (x.layernorm() @ x.softmax().transpose()).realize()

    for n in range(4):
        values = np.random.default_rng(n).standard_normal((16, 32)).astype(np.float16)
        got = step(Tensor(values, device=D).realize()).numpy()
        x = values.astype(np.float64)
        norm = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        want = norm @ softmax(x).T
        assert np.abs(got - want).max() < 0.05


@pytest.mark.slow
def test_backward_of_attention_on_the_device() -> None:
    given = [np.random.default_rng(n).standard_normal((1, 2, 16, 32)).astype(np.float32) for n in range(3)]

    def gradients(device: str) -> list[np.ndarray]:
        q, k, v = (Tensor(a, device=device).realize() for a in given)
        y = q.scaled_dot_product_attention(k, v)
        grads = (y * Tensor(given[0], device=device)).sum().gradient(q, k, v)
        return [g.numpy() for g in grads]

    with kt.numerics(float32="host"):
        want = gradients(D)
    kt.reset()
    for g, w in zip(gradients(D), want):
        assert np.abs(g - w).max() < 0.05 * np.abs(w).max()
    assert kt.report().device_kernels


def test_values_the_device_cannot_take_part_the_kernels() -> None:
    values = np.ones((8, 32), np.float32)
    values[3, 3] = -np.inf
    kt.reset()
    y = Tensor(values, device=D).softmax().numpy()
    report = kt.report()
    assert report.parted == {"operands with NaN or Inf": 1}
    assert report.host_kernels
    assert "not joined: operands with NaN or Inf" in str(report)
    assert y[3, 3] == 0
    assert np.allclose(y[0], 1 / 32)


def test_joining_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    x = halves(24, 40)
    with kt.numerics(join="off"):
        kt.reset()
        apart = x.softmax().numpy()
        assert kt.report().device_kernels == 3
    kt.reset()
    assert np.abs(x.softmax().numpy() - apart).max() < 1e-3
    assert kt.report().device_kernels == 1
    monkeypatch.setenv("KTPU_JOIN", "off")
    assert from_environment().join == "off"


def test_integers_and_places_stay_apart() -> None:
    launches = scheduled((halves(8, 16).argmax(1).cast(dtypes.half) * 2).softmax())
    assert launches[0] == "SINK"
    assert any(isinstance(one, Group) for one in launches)


def test_other_devices_are_left_alone() -> None:
    x = Tensor(np.ones((8, 16), np.float32), device="PYTHON").realize()
    assert scheduled(x.softmax()) == ["SINK"] * 3


def test_several_devices_join_what_they_hold() -> None:
    x = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float16)
    y = Tensor(x).shard((f"{D}:0", f"{D}:1"), axis=0).softmax()
    assert np.abs(y.numpy() - softmax(x.astype(np.float64))).max() < 1e-3


class Small(Engine):
    """Takes kernels of at most so many statements, on the host."""

    def __init__(self, most: int) -> None:
        self.most, self.ran, self.parted = most, list[str](), list[str]()

    def run(self, prepared: Prepared, buffers: Sequence[View]) -> float | None:
        self.ran.append(prepared.kernel.name)
        prepared.on_host(buffers)
        return 1.0

    def loops(self, name: str, nbytes: int) -> None:
        raise AssertionError(name)

    def run_whole(self, prepared: Prepared, buffers: Sequence[View]) -> float | None:
        if not self.takes(prepared):
            raise Apart("too large", lasting=True)
        return self.run(prepared, buffers)

    def takes(self, prepared: Prepared) -> bool:
        return len(prepared.kernel.graph.statements) <= self.most

    def apart(self, name: str, parts: int, reason: str) -> None:
        self.parted.append(reason)


@pytest.mark.parametrize(("most", "sizes"), [(99, [4]), (7, [3, 1]), (4, [2, 2]), (1, [1, 1, 1, 1])])
def test_a_group_too_large_for_the_machine_runs_in_smaller_ones(most: int, sizes: list[int]) -> None:
    (group,) = scheduled(attention(24, False))
    assert isinstance(group, Group)
    order = sorted({s.slot for s in group.whole.stores} | set(group.whole.reads))
    counts = {int(v.name[1:]): int(np.prod(v.shape)) for v in group.whole.graph.inputs}
    counts |= {s.slot: int(np.prod(group.whole.graph[s.value].shape)) for s in group.whole.stores}
    rng = np.random.default_rng(2)
    buffers = [View(Memory(2 * counts[slot]), 0, 2 * counts[slot]) for slot in order]
    for b in buffers:
        b.write()[:] = rng.standard_normal(b.nbytes // 2).astype(np.float16).view(np.uint8)
    (store,) = group.whole.stores
    target = buffers[order.index(store.slot)]
    Prepared(group.whole, order).on_host(buffers)
    want = target.read().tobytes()
    engine, run = Small(most), GroupRun(group, order, Prepared)
    for _ in range(2):
        target.write()[:] = 0
        assert run(engine, buffers) == len(sizes)
        assert target.read().tobytes() == want
    assert [int(name[1]) if name[0] == "j" else 1 for name in engine.ran] == sizes * 2
    assert engine.parted == ["too large"] * (len(sizes) > 1)


def test_the_report_says_what_each_kernel_took_and_what_limits_it() -> None:
    x, w = halves(24, 48), halves(64, 48)
    device = x.uop.buffer.allocator.dev  # pyright: ignore[reportAttributeAccessIssue] - a device of ours
    engine, device.engine = device.engine, KTPUEngine("ship_3x2", timed=True)
    try:
        kt.reset()
        for _ in range(2):
            ((x @ w.T).softmax() * 2).contiguous().realize()
        report = kt.report()
        lines = report.by_kernel().splitlines()
    finally:
        device.engine = engine
    (ran,) = report.kernels.values()
    assert ran.count == 2
    assert ran.seconds == report.seconds > 1e-5
    assert lines[0] == f"{ran.name}: 2 times, {report.seconds / 2 * 1e6:.1f} us each"
    assert lines[1].split()[0] == "tile"
    assert sum("% full" in line for line in lines) >= 2
    kt.reset()
    for n in range(3):
        (x * float(n + 2)).contiguous().realize()
    assert kt.report().by_kernel(2).endswith("and 1 more")


@pytest.mark.slow
def test_the_first_schedule_is_joined_and_other_devices_load_nothing() -> None:
    lines = (
        "import sys",
        "import kohakutpu.tinygrad as kt",
        "from tinygrad import Tensor",
        "Tensor.full((8, 32), 0.5, device='PYTHON').contiguous().realize()",
        "assert 'kohakutpu.tinygrad.device' not in sys.modules",
        "Tensor.full((8, 32), 0.5, device='KTPU').contiguous().softmax().realize()",
        "assert kt.report().device_kernels == 1, kt.report()",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, timeout=300)


@pytest.mark.slow
def test_quick_kernels_are_near_the_library() -> None:
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "tinygrad_kernels.py"
    command = [sys.executable, str(script), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert len(rows) >= 10
    for row in rows:
        assert (row["kernels"], row["host steps"]) == (1, 0)
        assert row["ratio"] < 1.5, row["function"]  # the bar of 1.2 is for the full sizes
        assert row["difference"] < 0.02
