"""`ktpu.time`: the results are the device's, and the timeline holds every launch."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.diagnostics import Hang, Refusal
from kohakuaccel.image import Image
from kohakutpu import api as ktpu
from kohakutpu import kernels, machines
from kohakutpu.device import Device
from kohakutpu.sim import host_cycles, time_image
from kohakutpu.sim.signature import signature
from kohakutpu.sim.timing import recorded, rehearse
from sim.schedules import gemm, mesh

RNG = np.random.default_rng(3)


def tensors(device: Device, *shapes: tuple[int, int]) -> list[ktpu.Tensor]:
    return [ktpu.tensor(RNG.standard_normal(shape).astype(np.float16), device=device) for shape in shapes]


def captured(device: Device, fn: str, *args: ktpu.Tensor) -> tuple[Image, dict[str, list[int]]]:
    """The image of a call, and the kernel cycles that its run counted."""
    found: list[tuple[Image, dict[str, list[int]]]] = []
    device.on_run = lambda image, kernels: found.append((image, kernels))
    getattr(ktpu, fn)(*args)
    device.on_run = None
    return found[-1]


def test_results_and_time_of_a_matmul_with_an_activation() -> None:
    device = Device("ship_3x2")
    a, b = tensors(device, (64, 128), (128, 128))

    def layer(x: ktpu.Tensor) -> ktpu.Tensor:
        return ktpu.silu(x @ b)

    plain = layer(a).numpy()
    result, t = ktpu.time(layer, a, device=device)
    t.check()
    assert np.array_equal(result.numpy(), plain)
    assert t.name == "layer"
    assert t.counters["launches"] == 2
    assert t.cycles == sum(s.end - s.start for s in t.stages) > 0
    assert t.seconds == t.cycles / 300e6
    assert "modelled, not measured" in t.report()
    kinds = {s.group: s.kinds for s in t.shares()}
    assert kinds["MG(1,1)"]["compute"] > 0
    assert sum(kinds[f"VC({x},{y})"].get("compute", 0) for x, y in ((1, 0), (2, 0), (1, 4), (2, 4))) > 0
    assert device.on_run is None
    assert ktpu.time(layer, a, device=device)[1].cycles == t.cycles


def test_a_call_that_runs_nothing() -> None:
    device = Device("mini")
    _, t = ktpu.time(lambda: ktpu.zeros((4, 4), device=device), device=device)
    t.check()
    assert t.cycles == 0
    assert "nothing ran" in t.report()


def test_the_device_is_that_of_the_arguments() -> None:
    x = ktpu.tensor(np.ones((16, 32)), device=Device("mini"))
    for call in (lambda: ktpu.time(lambda x: x + x, x), lambda: ktpu.time(lambda k: k["x"][0] + 1.0, {"x": [x]})):
        _, timeline = call()
        assert timeline.machine == "mini"
        assert timeline.cycles > 0


def test_data_that_the_host_moves_is_apart() -> None:
    device = Device("mini")
    (x,) = tensors(device, (32, 32))
    _, t = ktpu.time(lambda: ktpu.silu(x).numpy(), device=device)
    assert t.host["data in"] == t.host["data out"] == 32 * 32 * 2 // 32
    assert t.host["data transactions"] == 2 * 300
    assert "quantising upload" not in t.host
    assert host_cycles(device.machine, 33) == 302
    assert host_cycles(device.machine, 33, 2) == 602


def test_a_quantising_upload_and_each_transaction_cost() -> None:
    """12 cycles an entry, of which the link has 8 (datasheet 8.1); operands of a product are quantised on their way."""
    device = Device("mini")
    raw = np.zeros(64 * 256, np.uint8)
    buffer = device.alloc(64 * 128)

    def move() -> None:
        device.upload(buffer, raw, "A")
        device.download(buffer, 128)

    _, t = ktpu.time(move, device=device)
    assert t.host == {"data in": 64 * 8, "data out": 4, "quantising upload": 64 * 4, "data transactions": 600}
    assert t.host_cycles == sum(t.host.values())


def test_a_run_and_a_rehearsal_count_the_same_kernel_cycles() -> None:
    """Vector time depends on instructions, not on data."""
    device = Device("ship_3x2")
    image, kernels = captured(device, "silu", *tensors(device, (64, 256)))
    assert kernels
    assert rehearse(device.machine, image) == kernels
    assert time_image(device.machine, image).cycles == time_image(device.machine, image, kernel_cycles=kernels).cycles


def test_kernel_cycles_of_another_image_are_refused() -> None:
    device = Device("mini")
    image, _ = captured(device, "silu", *tensors(device, (64, 256)))
    with pytest.raises(Refusal, match="kernel cycles"):
        time_image(device.machine, image, kernel_cycles={})


def test_vector_cores_behind_one_port_wait_for_each_other() -> None:
    device = Device("ship_3x2")
    image, kernels = captured(device, "add", *tensors(device, (128, 256), (128, 256)))
    t = time_image(device.machine, image, kernel_cycles=kernels)
    t.check()
    assert t.waits()["port 0 read"] > 0


def test_a_fused_drain_without_its_gemm_is_no_timeline() -> None:
    machine = mesh(1, 1)
    image = gemm(machine, 64, 128, 128, [1])
    stage = image.stages[0]
    cut = type(stage[0])(stage[0].unit, stage[0].payloads[-1:])
    with pytest.raises(Refusal, match="emitting GEMM"):
        time_image(machine, Image(machine.name, ((cut,),)))


def test_what_never_comes_is_a_hang() -> None:
    """A stated acknowledgement that nothing sends."""
    device = Device("mini")
    image, kernels = captured(device, "silu", *tensors(device, (16, 16)))
    rounds = device.loader.rounds(image)
    rounds[-1].expected[0] += 1
    with pytest.raises(Hang, match="which has sent"):
        time_image(device.machine, image, kernel_cycles=kernels, loader=device.loader)
    rounds[-1].expected[0] -= 1


def moved(*envelopes: tuple[int, int, int, int]) -> list[int]:
    """What the last envelope, a RUN, moves: `programs.traffic`."""
    from kohakutpu.sim import programs

    rows = np.array(envelopes, np.int64)
    found = np.zeros((len(rows), programs.FOUND), np.int64)
    programs.traffic(programs.cores(1), np.zeros(len(rows), np.int64), rows, found)
    return found[-1, :5].tolist()


def test_traffic_of_a_program() -> None:
    from kohakutpu.isa import vector

    def program(text: str) -> list[tuple[int, int, int, int]]:
        return [(vector.ENV_IMEM, i, 0, word) for i, word in enumerate(vector.assemble(text))]

    def describe(ad: int, field: int, value: int) -> tuple[int, int, int, int]:
        return (vector.ENV_DESC, ad, field, value)

    run = (vector.ENV_RUN, 0, 0, 0)
    looped = program("VSETI S1,3\nVLOOP S1,2\nVFILL A0,0\nVBAR\nVDRAIN A1,64\nVHALT")
    walks = [describe(0, 1, vector.dimension(32, 8)), describe(1, 1, vector.dimension(32, 4))]
    assert moved(*looped, *walks, describe(1, 2, vector.dimension(512, 2)), run) == [24, 8, 0, 0, 0]
    assert moved(*looped, *walks, describe(0, 0, 4096), describe(1, 2, vector.dimension(512, 0)), run)[:2] == [24, 4]
    assert moved(*looped, *walks, (vector.ENV_IMEM, 6, 0, vector.assemble("VHALT")[0]), run)[:2] == [24, 4]
    sent = program("VDRAIN A1,0 -> (2,1) buf 0 ack\nVHALT")
    assert moved(*sent, *walks, run) == [0, 0, 4, 0x12, 0]
    record = vector.node_record(0, mesh=3, final=(1, 2))
    assert moved(*sent, *walks, describe(1, 0, record), run) == [0, 0, 4, 3 << 8 | 0x21, 1]


def test_recorded_leaves_the_hook_as_it_was() -> None:
    device = Device("mini")
    image, kernels = captured(device, "silu", *tensors(device, (16, 16)))
    assert recorded(device, image) == kernels
    assert device.on_run is None


@pytest.mark.parametrize("preset", machines.names())
def test_every_preset_has_a_clock(preset: str) -> None:
    device = Device(preset)
    a, b = tensors(device, (32, 64), (64, 64))
    _, t = ktpu.time(ktpu.matmul, a, b, device=device)
    t.check()
    assert t.cycles > 0


def test_a_signature_leaves_out_addresses_and_nothing_else() -> None:
    device = Device("ship_3x2")
    a, b, c = tensors(device, (64, 128), (128, 128), (64, 128))
    first, second = captured(device, "matmul", a, b), captured(device, "matmul", c, b)
    assert any((p.payloads != q.payloads).any() for p, q in zip(first[0].stages[-1], second[0].stages[-1]))
    assert signature(*first) == signature(*second)
    times = [time_image(device.machine, image, kernel_cycles=kernels) for image, kernels in (first, second)]
    assert times[0].spans == times[1].spans
    other = captured(device, "matmul", a, a)
    assert signature(*other) != signature(*first)
    image, kernels = captured(device, "silu", a)
    assert signature(image, kernels) != signature(
        image, {unit: [n + 1 for n in each] for unit, each in kernels.items()}
    )


def test_launches_are_named_and_bring_their_levels() -> None:
    device = Device("mini")
    a, b, c = tensors(device, (16, 32), (16, 32), (32, 32))

    def both() -> None:
        for operand in (b, c, b):
            ktpu.matmul(a, operand)

    seen: list[str] = []
    device.on_run = lambda image, kernels: seen.append(image.name)
    _, t = ktpu.time(both, device=device)
    device.on_run = None
    assert [s.name for s in t.stages] == ["matmul stage 0", "matmul (2) stage 0", "matmul stage 0"]
    assert seen == ["matmul"] * 3
    assert set(t.texts) == {
        f"{k}/{level}" for k in ("matmul", "matmul (2)") for level in ("your lines", "trace", "schedule", "program")
    }
    assert t.texts["matmul/schedule"].startswith("schedule matmul on mini")
    assert "GEMM" in t.texts["matmul (2)/program"]
    assert "sweep" in t.texts["matmul/trace"]
    shown = t.texts["matmul/your lines"].splitlines()
    body = kernels.matmul.fn.__code__.co_firstlineno + 3  # below the decorator, the signature and the docstring
    assert [line.split()[0] for line in shown] == [f"products.py:{n}" for n in range(body, body + len(shown))]
    assert any("acc += a[i, k] @ b[j, k]" in line for line in shown)
