"""The quantising upload and what the memory agent refuses (datasheet 2.2, 3.1)."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal, Unsupported
from kohakutpu import machines
from kohakutpu.units import state as s
from reference import formats


def memory(meshes: int = 1) -> s.Memory:
    return s.make_memory([1 << 18] * meshes)


@pytest.mark.parametrize("order", [0, 1])
def test_upload_equals_the_reference(order: int) -> None:
    from kohakutpu.units.memory import quantising_upload

    rng = np.random.default_rng(order)
    half = rng.integers(0, 1 << 16, (150, 128)).astype(np.uint16)
    half &= np.where(half & 0x7C00 == 0x7C00, 0xBFFF, 0xFFFF).astype(np.uint16)
    mem, note = memory(2), np.zeros(s.NOTE_WORDS, np.int64)
    assert quantising_upload(mem, 1, order, 0x400, half.ravel(), 0, note) == s.RETIRED
    assert note[2] == 0
    first = (int(mem.base[1]) + 0x400) // 32
    assert np.flatnonzero(mem.written).tolist() == list(range(first, first + 600))
    for e in range(0, 150, 7):
        entry, _ = formats.mxfp7_entry([int(h) for h in half[e]])
        at = 4 * first + 16 * e
        got = [sum(int(v) << 64 * i for i, v in enumerate(mem.wide[at + 4 * w : at + 4 * w + 4])) for w in range(4)]
        assert got == formats.pack_entry(entry, order == 1)


def test_upload_policy_on_non_finite_operands() -> None:
    from kohakutpu.units.memory import quantising_upload

    half = np.zeros(128 * 70, np.uint16)
    half[[5, 8800]] = 0x7C00, 0xFE00
    mem, note = memory(), np.zeros(s.NOTE_WORDS, np.int64)
    assert quantising_upload(mem, 0, 0, 0, half, 0, note) == s.FAULTED
    assert note[:3].tolist() == [s.FAULTED, 0x10, 2]
    assert not mem.written.any()
    assert not mem.byte.any()
    assert quantising_upload(mem, 0, 0, 0, half, 1, note) == s.RETIRED
    assert note[2] == 2
    assert mem.written.sum() == 280


@pytest.mark.parametrize(("dst", "count"), [(64, 128), (1 << 18, 128), ((1 << 18) - 128, 256), (0, 100), (-128, 128)])
def test_upload_raises_outside_its_rules(dst: int, count: int) -> None:
    from kohakutpu.units.memory import quantising_upload

    note = np.zeros(s.NOTE_WORDS, np.int64)
    assert quantising_upload(memory(), 0, 0, dst, np.zeros(count, np.uint16), 0, note) == s.RAISED
    assert note[1] == s.E_ADDRESS


def test_host_refusals() -> None:
    from kohakutpu.units.memory import check_quantising_upload as check

    ship = machines.load("ship_3x2")
    check(ship, 0, 0x80, 512)
    check(ship, 0, (4 << 30) - 128, 256)
    with pytest.raises(Refusal, match=r"256 bytes; got 300"):
        check(ship, 0, 0, 300)
    with pytest.raises(Refusal, match=r"aligned; got 0x40; the limit is a multiple of 128"):
        check(ship, 0, 0x40, 256)
    with pytest.raises(Refusal, match=r"inside DRAM; got 0xffffff80 \+ 256; the limit is 4294967296"):
        check(ship, 0, (4 << 30) - 128, 512)
    with pytest.raises(Unsupported, match=r"singlemesh_2x2: this machine has no quantising upload path\. Upload FP16"):
        check(machines.load("singlemesh_2x2"), 0, 0, 256)
