"""The host's memory window: written words, partial words, padding, apertures and refusals (datasheet 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohakuaccel.diagnostics import Fault, Refusal, Unsupported
from kohakutpu import machines
from kohakutpu.isa import cluster
from kohakutpu.isa import control as reg
from kohakutpu.units.system import System

Make = Callable[..., Any]
SPAN = 512
APERTURE = {"A": 1 << 39 | 4 << 32, "B": 1 << 39 | 5 << 32}


@pytest.fixture(scope="module")
def shared() -> System:
    return System(machines.load("mini"))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, SPAN - 1), st.integers(0, 130)), min_size=1, max_size=8))
def test_reads_give_what_was_written_and_nothing_else(shared: System, writes: list[tuple[int, int]]) -> None:
    shared.forget(0, 0, SPAN)
    model = np.zeros(SPAN, np.uint8)
    known = np.zeros(SPAN, np.bool_)
    for number, (start, n) in enumerate(writes):
        n = min(n, SPAN - start)
        data = (np.arange(n) * 7 + number).astype(np.uint8)
        shared.write(reg.memory_bus(0, start), data)
        model[start : start + n] = data
        known[start : start + n] = True
    whole = known.reshape(-1, 32).all(axis=1)
    assert np.array_equal(shared.memory.written[: SPAN // 32] == 1, whole)
    for start, n in writes:
        n = min(n, SPAN - start)
        assert np.array_equal(shared.read(reg.memory_bus(0, start), n), model[start : start + n])
    if known.all():
        assert np.array_equal(shared.read(reg.memory_bus(0, 0), SPAN), model)
    else:
        first = int((~known).argmax())
        with pytest.raises(Refusal, match="memory that nobody wrote is read; got byte") as caught:
            shared.read(reg.memory_bus(0, 0), SPAN)
        # The text names the word's first byte that was asked for.
        assert int(str(caught.value.got).split()[1], 16) // 32 == first // 32


def test_a_unit_may_not_read_a_partial_word(host: Make) -> None:
    h = host("mini")
    h.system.write(reg.memory_bus(0, 0), np.ones(120, np.float16))
    with pytest.raises(Fault, match="memory that nobody wrote is read: byte 0xe0 of mesh 0"):
        h.run(("MG(1,1)", cluster.assemble("FILL addr=0x0 n=1 sel=A")))
    h.system.write(reg.memory_bus(0, 240), np.ones(8, np.float16))
    h.run(("MG(1,1)", cluster.assemble("FILL addr=0x0 n=1 sel=A")))


def test_padding_between_runs_reads_as_zero(shared: System) -> None:
    shared.forget(0, 0, 1024)
    shared.write(reg.memory_bus(0, 0), np.full(512, 9, np.uint8))
    shared.forget(0, 0, 1024)
    shared.write(reg.memory_bus(0, 0), np.full(64, 1, np.uint8))
    shared.write(reg.memory_bus(0, 256), np.full(64, 2, np.uint8))
    with pytest.raises(Refusal, match="got byte 0x40"):
        shared.read(reg.memory_bus(0, 0), 512)
    data = shared.read(reg.memory_bus(0, 0), 512, runs=(2, 8, 2))
    want = np.zeros(512, np.uint8)
    want[:64], want[256:320] = 1, 2
    assert np.array_equal(data, want)  # stale bytes never show
    with pytest.raises(Refusal, match="got byte 0x40"):
        shared.read(reg.memory_bus(0, 0), 512, runs=(3, 8, 2))
    part = shared.read(reg.memory_bus(0, 48), 224, runs=(1, 99, 1))  # an unaligned piece: word 1 matters
    assert np.array_equal(part, want[48:272])


def test_large_transfers(shared: System) -> None:
    data = np.random.default_rng(0).integers(0, 256, 8 << 20, np.uint8)
    shared.write(reg.memory_bus(0, 1 << 20), data)
    assert np.array_equal(shared.read(reg.memory_bus(0, 1 << 20), data.size), data)
    shared.release(0, 1 << 20, data.size)
    with pytest.raises(Refusal, match="nobody wrote"):
        shared.read(reg.memory_bus(0, 1 << 20), 32)


def test_quantising_upload(shared: System) -> None:
    rng = np.random.default_rng(3)
    entries = rng.integers(-15, 16, (3, 4, 32)).astype(np.float16)
    entries[:, :, 0] = 15
    for order in "AB":
        shared.write(reg.memory_bus(0, APERTURE[order] | 0x8000), entries)
        data = shared.read(reg.memory_bus(0, 0x8000), 3 * 128)
        scales = data.reshape(3, 4, 32)[:, 0, :4]
        assert (scales == (18 << 3)).all()  # q = 4x: 15 is 60, scale 1/4 = 2**-2, es + 20 = 18
        top = data.reshape(12, 32)[0, 31] >> 1
        assert top == 60  # slot 0 of word 0 is bits 255:249: lane 0, k = 0


def test_quantising_upload_and_nonfinite(host: Make) -> None:
    h = host("mini")
    entry = np.ones(128, np.float16)
    entry[5] = np.nan
    with pytest.raises(Fault) as caught:
        h.system.write(reg.memory_bus(0, APERTURE["A"]), entry)
    assert (caught.value.unit, caught.value.code) == ("quantising upload of mesh 0", 0x10)
    assert "a non-finite operand at the quantiser (1 elements)" in str(caught.value)
    with pytest.raises(Refusal, match="nobody wrote"):
        h.system.read(reg.memory_bus(0, 0), 32)
    h.system.nonfinite = "count"
    h.system.write(reg.memory_bus(0, APERTURE["A"]), entry)
    assert h.system.upload_nonfinite == 1


def test_refusals(shared: System) -> None:
    size = shared.machine.memories[0].size
    byte = np.zeros(1, np.uint8)
    cases = [
        (reg.memory_bus(0, size), "an access stays inside the mesh's DRAM; got 0x4000000 \\+ 1"),
        (reg.memory_bus(0, 1 << 36), "a memory address names the mesh of its window"),
        (reg.memory_bus(0, 1 << 38), "a memory address names the mesh of its window"),
        (reg.memory_bus(1, 0), "nothing answers at this bus address"),
    ]
    for bus, text in cases:
        with pytest.raises(Refusal, match=text):
            shared.write(bus, byte)
        with pytest.raises(Refusal, match=text):
            shared.read(bus, 1)
    for aperture in (0, 3, 6, 15):
        with pytest.raises(Refusal, match="no such special aperture"):
            shared.write(reg.memory_bus(0, 1 << 39 | aperture << 32), np.zeros(256, np.uint8))
    with pytest.raises(Refusal, match="a special aperture cannot be read"):
        shared.read(reg.memory_bus(0, APERTURE["A"]), 256)
    with pytest.raises(Refusal, match="256"):
        shared.write(reg.memory_bus(0, APERTURE["A"]), np.zeros(100, np.uint8))
    with pytest.raises(Refusal, match="128"):
        shared.write(reg.memory_bus(0, APERTURE["A"] | 64), np.zeros(256, np.uint8))
    small = System(machines.load("singlemesh_2x2"))
    with pytest.raises(Unsupported, match="quantising upload"):
        small.write(reg.memory_bus(0, APERTURE["A"]), np.zeros(256, np.uint8))


def test_each_mesh_has_its_own_memory(host: Make) -> None:
    system = host("multimesh_4").system
    for mesh in range(4):
        system.write(reg.memory_bus(mesh, mesh << 36 | 0x100), np.full(32, mesh + 1, np.uint8))
    for mesh in range(4):
        assert (system.read(reg.memory_bus(mesh, mesh << 36 | 0x100), 32) == mesh + 1).all()
    with pytest.raises(Refusal, match="names the mesh of its window"):
        system.write(reg.memory_bus(1, 0), np.zeros(32, np.uint8))
