"""A device runs images: results, counters, recordings, faults in the user's terms, several machines in one process."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kohakuaccel.device import Recording, replay
from kohakuaccel.diagnostics import Fault, Hang, OutOfMemory, Refusal, SourceLine
from kohakuaccel.image import EncodedProgram, Image, load, save
from kohakutpu import device as devices
from kohakutpu import machines
from kohakutpu.device import Device
from kohakutpu.isa import cluster, flit, vector
from kohakutpu.isa import control as reg
from kohakutpu.units.system import System

LINES = (SourceLine("kernel.py", 7, "acc += x @ w"), SourceLine("kernel.py", 8, "y <<= acc"))
SUM = 15 * 15 * 32  # one product of two blocks of 15, which MXFP7 holds exactly


def matmul(n: int, a: int, b: int, c: int) -> NDArray[np.uint64]:
    """n passes: FILL A, FILL B, GEMM 1x1x1, DRAIN one sub-tile to c + 256 * pass."""
    return cluster.assemble(
        "\n".join(
            f"FILL addr={a:#x} n=1 sel=A\nFILL addr={b:#x} n=1 sel=B\n"
            f"GEMM gm=1 gn=1 nk=1\nDRAIN addr={c + 256 * i:#x} n=1"
            for i in range(n)
        )
    )


class Setup:
    """Operands, a result buffer and an image of n passes on each of `units` clusters."""

    def __init__(self, d: Device, passes: int = 3, units: int = 2) -> None:
        self.a, self.b = d.alloc(256, label="a"), d.alloc(256, label="b")
        for buffer in (self.a, self.b):
            d.upload(buffer, np.full(128, 15, np.float16))
        self.c = d.alloc(256 * passes * units, label="c")
        programs: list[EncodedProgram] = []
        for i, unit in enumerate(d.machine.units_of("MG")[:units]):
            payloads = matmul(passes, self.a.address, self.b.address, self.c.address + 256 * passes * i)
            sources = np.tile(np.array([0, 0, 0, 1], np.int32), passes)
            programs.append(
                EncodedProgram(unit, payloads, sources=sources, passes=np.arange(0, 4 * passes, 4, dtype=np.int64))
            )
        self.image = Image(d.machine.name, (tuple(programs),), LINES)
        self.runs = (1, 8, passes * units)

    def check(self, d: Device) -> None:
        data = d.download(self.c, runs=self.runs).view(np.float16).reshape(-1, 128)
        assert (data[:, :16] == SUM).all()
        assert (data[:, 16:] == 0).all()


def test_one_round_and_its_counters() -> None:
    d = Device("mini")
    s = Setup(d, units=1)
    d.run(s.image)
    s.check(d)
    stats = d.stats()
    assert stats["machine"] == "mini"
    assert (stats["dispatches"], stats["rounds"], stats["faults"]) == (1, 1, 0)
    assert stats["flits"] == {"FILL": 6, "GEMM": 3, "DRAIN": 3}
    assert (stats["bytes_to_device"], stats["bytes_from_device"]) == (512, 768)
    assert stats["control_bytes"] == 12 * 40 + 8 * 32
    assert (stats["saturations"], stats["nonfinite"]) == (0, 0)
    assert (stats["buffers"], stats["memory_used"]) == (3, 1280)
    d.run(s.image)
    assert d.counters.dispatches == 2
    d.reset_stats()
    assert d.stats()["flits"] == {}


def test_many_rounds_on_all_clusters() -> None:
    d = Device()
    s = Setup(d, passes=60, units=6)
    d.run(s.image)
    s.check(d)
    assert d.counters.rounds > 10
    assert d.counters.flits == {"FILL": 720, "GEMM": 360, "DRAIN": 360}


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(8, 40),
    st.integers(2, 9),
    st.lists(st.integers(1, 7), min_size=1, max_size=6),
    st.booleans(),
)
def test_any_limits_run_to_completion(flits: int, commands: int, fifo: int, passes: list[int], engine: bool) -> None:
    machine = machines.load("ship_3x2").with_(
        params={"stage_flits": flits, "ncmd": commands, "inst_fifo": fifo}, features={"control_engine": engine}
    )
    d = Device(machine)
    a = d.alloc(512)
    d.upload(a, np.full(256, 15, np.float16))
    results = [d.alloc(256 * n) for n in passes]
    programs = tuple(
        EncodedProgram(unit, matmul(n, a.address, a.address + 256, c.address), passes=np.arange(0, 4 * n, 4))
        for unit, n, c in zip(machine.units_of("MG"), passes, results, strict=False)
    )
    for _ in range(2):
        d.run(Image("x", (programs,)))
    for n, c in zip(passes, results, strict=True):
        data = d.download(c, runs=(1, 8, n)).view(np.float16).reshape(-1, 128)
        assert (data[:, :16] == SUM).all()


def test_saturations_and_nonfinite_are_counted() -> None:
    d = Device("mini")
    s = Setup(d, units=1)
    half = np.full(128, 60000, np.float16)
    d.upload(s.a, half)
    d.upload(s.b, half)
    d.run(s.image)
    assert (d.stats()["saturations"], d.stats()["nonfinite"]) == (3 * 16, 0)
    half[0] = np.nan
    d.upload(s.a, half)
    d.nonfinite = "count"
    d.run(s.image)
    assert d.stats()["nonfinite"] == 3
    d.reset_stats()
    assert (d.stats()["saturations"], d.stats()["nonfinite"]) == (0, 0)
    preq = d.alloc(128)
    d.upload(preq, half, quantise="A")
    assert d.stats()["nonfinite"] == 1


def test_a_model_tells_the_numeric_counters_that_flits_would() -> None:
    for machine in ("mini", "ship_3x2"):
        d = Device(machine)
        s = Setup(d, units=1)
        half = np.full(128, 60000, np.float16)
        half[0] = np.inf
        d.upload(s.a, half)
        d.upload(s.b, half)
        d.nonfinite = "count"
        d.run(s.image)
        told = cast(System, d.transport).numeric_counters().tolist()
        assert sum(map(sum, told))
        values = [d.control_value(unit, flit.NUM_INDEX) for unit in d.machine.units]
        assert told == [[v >> 32, v & 0xFFFF_FFFF] for v in values]


def test_a_recording_replays_into_a_fresh_machine_byte_for_byte() -> None:
    machine = machines.load("ship_3x2")
    recording = Recording(System(machine))
    d = Device(machine, recording)
    s = Setup(d, passes=40, units=6)
    d.upload(d.alloc(128), np.full(128, 15, np.float16), quantise="B")
    d.run(s.image)
    d.run(s.image)
    s.check(d)
    assert recording.nbytes > 0
    fresh = System(machine)
    replay(recording.writes, fresh)
    want = d.download(s.c, runs=s.runs)
    assert np.array_equal(fresh.read(reg.memory_bus(0, s.c.address), s.c.nbytes, s.runs), want)
    inner = recording.inner
    assert isinstance(inner, System)
    used = int(s.c.address + s.c.nbytes) + 256
    assert np.array_equal(fresh.memory.byte[:used], inner.memory.byte[:used])
    assert np.array_equal(fresh.control.agent, inner.control.agent)
    assert np.array_equal(fresh.clusters.tile, inner.clusters.tile)


def test_a_recording_without_a_machine_captures_one_run() -> None:
    machine = machines.load("ship_3x2")
    recording = Recording()
    d = Device(machine, recording)
    s = Setup(d, passes=40, units=6)
    d.run(s.image)
    fresh = System(machine)
    replay(recording.writes, fresh)
    data = fresh.read(reg.memory_bus(0, s.c.address), s.c.nbytes, s.runs).view(np.float16)
    assert (data.reshape(-1, 128)[:, :16] == SUM).all()


def test_saved_images_run(tmp_path: Path) -> None:
    d = Device("mini")
    s = Setup(d, units=1)
    save(s.image, tmp_path / "image.npz")
    d.run(load(tmp_path / "image.npz"))
    s.check(d)


def test_a_machine_without_a_control_engine() -> None:
    machine = machines.load("ship_3x2").with_(features={"control_engine": False})
    recording = Recording(System(machine))
    d = Device(machine, recording)
    s = Setup(d, passes=10, units=6)
    d.run(s.image)
    s.check(d)
    assert all(bus >= reg.AGENT_BASE for bus, _ in recording.writes)
    payloads = cluster.assemble(f"DRAIN addr={s.c.address:#x} n=1 fuse")
    with pytest.raises(Hang) as caught:
        d.run(Image("x", ((EncodedProgram(machine.units_of("MG")[0], payloads),),)))
    assert caught.value.waits[0] == "the host, command 6, polls node(1,1) for 0x2901, has 0x2801"
    assert caught.value.waits[1].startswith("MG(1,1) instruction 0 (DRAIN")
    d.run(s.image)


def test_stages_wait_for_acknowledged_data() -> None:
    d = Device()
    s = Setup(d)
    mg, vc = d.machine.units_of("MG")[0], d.machine.units_of("VC")[0]
    producer = cluster.assemble(
        f"""
        FILL addr={s.a.address:#x} n=1 sel=A
        FILL addr={s.b.address:#x} n=1 sel=B
        GEMM gm=1 gn=1 nk=1
        DRAIN addr=0x0 n=1 dnode dst_x={vc.x} dst_y={vc.y} dbuf=0 dflags=0x1 dack_y=1
        """
    )
    rows = [(vector.ENV_IMEM, i, 0, w) for i, w in enumerate(vector.assemble("VDRAIN A0,0\nVHALT"))]
    rows += [(vector.ENV_DESC, 0, 0, s.c.address), (vector.ENV_RUN, 0, 0, 0)]
    consumer = vector.encode_envelopes(np.array(rows, np.int64))
    image = Image("x", ((EncodedProgram(mg, producer, acks=((vc, 1),)),), (EncodedProgram(vc, consumer),)))
    for _ in range(2):
        d.run(image)
    assert (d.download(s.c, 32).view(np.float16) == SUM).all()


def test_meshes_run_side_by_side() -> None:
    d = Device("multimesh_4")
    programs: list[EncodedProgram] = []
    results: list[tuple[object, object]] = []
    for mesh in range(4):
        a = d.alloc(512, mesh=mesh)
        c = d.alloc(256 * 50, mesh=mesh)
        d.upload(a, np.full(256, 15, np.float16))
        unit = d.machine.units_of("MG", mesh)[1]
        payloads = matmul(50, d.address(a), d.address(a) + 256, d.address(c))
        programs.append(EncodedProgram(unit, payloads))
        results.append((a, c))
    d.run(Image("multimesh_4", (tuple(programs),)))
    for _, c in results:
        data = d.download(c, runs=(1, 8, 50)).view(np.float16).reshape(-1, 128)  # type: ignore[arg-type]  # buffers
        assert (data[:, :16] == SUM).all()
    assert d.counters.rounds == 8


# memory


def test_memory_is_never_stale() -> None:
    d = Device("mini")
    first = d.alloc(512)
    address = first.address
    d.upload(first, np.full(512, 7, np.uint8))
    del first
    gc.collect()
    again = d.alloc(512)
    assert again.address == address
    with pytest.raises(Refusal, match="nobody wrote"):
        d.download(again)
    d.upload(again, np.full(32, 1, np.uint8), offset=64)
    assert (d.download(again, 32, offset=64) == 1).all()
    assert d.download(again, 0).size == 0
    kept = d.alloc(1 << 20)
    d.upload(kept, np.arange(1 << 20, dtype=np.uint8))
    free = d.alloc(1 << 20)
    d.upload(free, np.full(1 << 20, 9, np.uint8))
    free.free()
    d.empty_cache()
    assert np.array_equal(d.download(kept), np.arange(1 << 20, dtype=np.uint8))


def test_out_of_memory() -> None:
    d = Device("mini")
    kept = d.alloc(48 << 20, label="weights")
    with pytest.raises(OutOfMemory) as caught:
        d.alloc(32 << 20)
    text = str(caught.value)
    assert "DRAM of mesh 0 (mini): the device memory has no hole for a buffer; got 33554432 bytes (32.0 MiB)" in text
    assert "48.0 MiB  weights" in text
    del kept
    gc.collect()
    assert d.alloc(32 << 20).address == 0


def test_refused_transfers() -> None:
    d = Device("mini")
    buffer = d.alloc(100)
    with pytest.raises(Refusal, match="an upload stays inside its buffer"):
        d.upload(buffer, np.zeros(101, np.uint8))
    with pytest.raises(Refusal, match="a download stays inside its buffer"):
        d.download(buffer, 8, offset=96)
    with pytest.raises(Refusal, match="order is 'A' or 'B'"):
        d.upload(d.alloc(128), np.zeros(128, np.float16), quantise="C")
    buffer.free()
    with pytest.raises(Refusal, match="freed buffer"):
        d.upload(buffer, np.zeros(4, np.uint8))


# faults


def test_a_fault_names_the_stream_position_and_the_users_line() -> None:
    d = Device("mini")
    s = Setup(d, passes=60, units=1)
    program = s.image.stages[0][0]
    payloads = program.payloads.copy()
    payloads[201] = cluster.assemble(f"FILL addr={1 << 20:#x} n=1 sel=B")[0]
    broken = Image("mini", ((EncodedProgram(program.unit, payloads, sources=program.sources),),), LINES)
    with pytest.raises(Fault) as caught:
        d.run(broken)
    fault = caught.value
    assert (fault.unit, fault.index) == ("MG(1,1)", 201)
    assert fault.source == LINES[0]
    assert str(fault) == (
        "MG(1,1), instruction 201 (FILL addr=0x100000 n=1 sel=B): memory that nobody wrote is read: "
        "byte 0x100000 of mesh 0. Upload the operand first, or check the address and length of the transfer "
        "(datasheet 9.1)\n  at kernel.py:7: acc += x @ w"
    )
    assert d.counters.faults == 1
    # What ran before the fault is in memory; the next run is clean.
    assert (d.download(s.c, 32).view(np.float16) == SUM).all()
    d.run(s.image)
    s.check(d)


def test_a_signalled_fault_is_found_after_the_round() -> None:
    machine = machines.load("mini")
    d = Device(machine, System(machine, faults="signal"))
    payloads = np.array([[0, 0, 0, 15 << 60]], np.uint64)
    with pytest.raises(Fault, match=r"MG\(1,1\): an unknown opcode; got fault 0x12"):
        d.run(Image("mini", ((EncodedProgram(machine.units[0], payloads),),)))


def test_a_hang_names_the_stream_position_and_the_users_line() -> None:
    d = Device("mini")
    s = Setup(d, passes=40, units=1)
    program = s.image.stages[0][0]
    payloads = program.payloads.copy()
    payloads[150] = cluster.assemble(f"DRAIN addr={s.c.address:#x} n=1 fuse")[0]
    broken = Image("mini", ((EncodedProgram(program.unit, payloads, sources=program.sources),),), LINES)
    with pytest.raises(Hang) as caught:
        d.run(broken)
    assert caught.value.waits[0].startswith("control engine command ")
    unit = next(w for w in caught.value.waits if w.startswith("MG(1,1)"))
    assert "(instruction 150 of its stream) at kernel.py:7" in unit
    assert caught.value.source == LINES[0]
    d.run(s.image)
    s.check(d)


# devices


def test_two_machines_in_one_process() -> None:
    first, second = Device("mini"), Device("singlemesh_2x2")
    assert first.identity != second.identity
    small, large = Setup(first, units=1), Setup(second, units=2)
    first.run(small.image)
    second.run(large.image)
    small.check(first)
    large.check(second)
    with pytest.raises(Refusal, match="a program is for a unit of this machine"):
        first.run(large.image)


def test_the_default_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_default", None)
    d = devices.default()
    assert d.machine.name == "ship_3x2"
    assert devices.default() is d
    assert devices.use("ship_3x2") is d
    other = devices.use("mini")
    assert devices.default() is other
    assert devices.use(machines.load("mini")) is other
    assert devices.use(d) is d
    assert devices.default() is d


def test_threads_share_a_device() -> None:
    d = Device("ship_3x2")
    setups = [Setup(d, passes=5, units=6) for _ in range(4)]
    errors: list[BaseException] = []

    def work(s: Setup) -> None:
        try:
            for _ in range(10):
                d.run(s.image)
                s.check(d)
        except BaseException as error:  # reported by the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(s,)) for s in setups]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert d.counters.dispatches == 40
