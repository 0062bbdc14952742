"""Relayouts on the vector cores: every level gives the same bits, and the bytes are those of the host's pack.

The source's padding is garbage on the device, so that a pad which leaks through shows.
"""

from __future__ import annotations

import zlib
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.schedule import BufferSpec, Schedule, Stage
from kohakutpu.device import Device
from kohakutpu.layouts import WORD_BYTES, DrainedTiles, OperandPack, RowMajor
from kohakutpu.lower.plan import Plan
from kohakutpu.lower.relayout import RelayoutBand, can_relayout, path, trips
from kohakutpu.lower.relayout_walks import Axis, Matrix, merged
from kohakutpu.machines import load

LINE = SourceLine("test", 1)
Bits = NDArray[np.uint16]
rows = RowMajor.of


def data_words(layout: Matrix) -> NDArray[np.int64]:
    """int64[n, 2]: the (first word, count) that a writer covers."""
    if isinstance(layout, OperandPack):
        return np.array([[0, layout.nbytes // WORD_BYTES]], np.int64)
    runs = layout.runs
    first = np.arange(runs.count, dtype=np.int64) * runs.pitch
    return np.stack([first, np.full_like(first, runs.words)], axis=1)


def plan_of(machine: str, source: Matrix, target: Matrix, transpose: bool = False, batch: int = 1) -> Plan:
    found = load(machine)
    band = RelayoutBand(found, 0, 1, source, target, transpose, batch, LINE)
    buffers = (BufferSpec("x", "in", (source.size,), source), BufferSpec("y", "out", (target.size,), target))
    expected = (np.zeros((0, 2), np.int64), data_words(target))
    schedule = Schedule("relayout", found.name, buffers, (Stage((band,)),), expected)
    schedule.verify()
    return Plan(found, schedule)


def moved(bits: Bits, source: Matrix, target: Matrix, transpose: bool, batch: int) -> Bits:
    """What arrives, told apart from the band: which words only move decides what becomes of a NaN."""
    nan = (bits & 0x7FFF) > 0x7C00
    out = bits.copy()
    column = np.arange(bits.size) % source.cols
    if transpose or isinstance(source, DrainedTiles) or isinstance(target, DrainedTiles):
        out[nan] = 0x7E00
    elif source.cols % 16:
        out[nan & (column // 16 == source.cols // 16)] |= 0x0200
    if transpose:
        out = out.reshape(batch, -1, source.cols).swapaxes(1, 2).reshape(-1)
    return out


def on_device(
    plan: Plan, source: Matrix, target: Matrix, values: NDArray[np.float16], rng: np.random.Generator
) -> Bits:
    """The target's raw halves after a run from a source whose padding is garbage."""
    pads = source.pack(np.ones(source.size, np.float16)).view(np.float16) == 0
    halves = source.pack(values).view(np.uint16).copy()
    halves[pads] = rng.integers(0, 1 << 16, int(pads.sum()), np.uint16)
    device = Device(plan.machine)
    x, y = device.alloc(source.nbytes), device.alloc(target.nbytes)
    for first, count in data_words(source):
        at = int(first) * WORD_BYTES
        device.upload(x, halves.view(np.uint8)[at : at + int(count) * WORD_BYTES], offset=at)
    device.run(plan.image([x.address, y.address]))
    runs = None if isinstance(target, OperandPack) else astuple(target.runs)
    return device.download(y, target.nbytes, runs=runs).view(np.uint16)


def check(machine: str, source: Matrix, target: Matrix, transpose: bool = False, batch: int = 1) -> Plan:
    rng = np.random.default_rng(zlib.crc32(f"{source}{target}{transpose}".encode()))
    values = rng.integers(0, 1 << 16, source.size, np.uint16).view(np.float16)
    plan = plan_of(machine, source, target, transpose, batch)
    want = moved(values.view(np.uint16), source, target, transpose, batch)
    for level in (plan.run_schedule, plan.run_program, plan.run_image):
        (got,) = level(values)
        assert np.array_equal(got.reshape(-1).view(np.uint16), want)
    raw = on_device(plan, source, target, values, rng)
    assert np.array_equal(raw, target.pack(want.view(np.float16)).view(np.uint16))
    return plan


CASES: list[tuple[Matrix, Matrix, bool, int]] = [
    (DrainedTiles(64, 128, 16, 32), rows(64, 128), False, 1),
    (DrainedTiles(37, 71, 2, 3), rows(37, 71), False, 1),
    (DrainedTiles(10, 5, 1, 2, 3), rows(30, 5), False, 3),
    (DrainedTiles(9, 530, 1, 33), rows(9, 530), False, 1),
    (DrainedTiles(5, 600, 1, 128), RowMajor(5, 600, 672), False, 1),
    (rows(64, 128), DrainedTiles(64, 128, 16, 32), False, 1),
    (rows(37, 71), DrainedTiles(37, 71, 2, 3), False, 1),
    (rows(30, 5), DrainedTiles(10, 5, 8, 4, 3), False, 3),
    (rows(5, 530), DrainedTiles(5, 530, 1, 128), False, 1),
    (rows(20, 64), OperandPack(20, 64, 2, 1), False, 1),
    (rows(33, 71), OperandPack(33, 71, 3, 2), False, 1),
    (rows(21, 131), OperandPack(7, 131, 16, 4, 3), False, 3),
    (OperandPack(33, 71, 3, 2), rows(33, 71), False, 1),
    (rows(16, 16), rows(16, 16), True, 1),
    (rows(37, 71), rows(71, 37), True, 1),
    (rows(60, 33), RowMajor(99, 20, 64), True, 3),
    (rows(1, 300), rows(300, 1), True, 1),
    (rows(10, 20), RowMajor(10, 20, 64), False, 1),
    (rows(10, 64), rows(40, 16), False, 1),
    (RowMajor(12, 16, 32), RowMajor(4, 48, 64), False, 1),
    (rows(2, 48), rows(3, 32), False, 1),
]


@pytest.mark.parametrize("machine", ["ship_3x2", "mini", "singlemesh_2x2"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} to {c[1]}{' transposed' if c[2] else ''}")
def test_every_conversion_on_every_level(case: tuple[Matrix, Matrix, bool, int], machine: str) -> None:
    check(machine, *case)


size = st.integers(1, 70) | st.sampled_from([128, 129, 257])
tile = st.sampled_from([1, 2, 3, 4, 5, 8, 16])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(batch=st.integers(1, 3), m=size, n=size, gm=tile, gn=tile, extra=st.integers(0, 2), kind=st.integers(0, 4))
def test_any_size(batch: int, m: int, n: int, gm: int, gn: int, extra: int, kind: int) -> None:
    plain = rows(batch * m, n)
    wide = RowMajor(plain.rows, n, plain.pitch + 16 * extra)
    match kind:
        case 0:
            check("ship_3x2", DrainedTiles(m, n, gm, gn, batch), wide, False, batch)
        case 1:
            check("ship_3x2", wide, DrainedTiles(m, n, gm, gn, batch), False, batch)
        case 2:
            check("ship_3x2", wide, OperandPack(m, n, gm, gn, batch), False, batch)
        case 3:
            check("ship_3x2", OperandPack(m, n, gm, gn, batch), wide, False, batch)
        case _:
            check("ship_3x2", wide, rows(batch * n, m), True, batch)


def test_every_half_keeps_its_bits_when_words_move() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    plan = plan_of("ship_3x2", rows(256, 256), OperandPack(256, 256, 4, 2))
    (got,) = plan.run_image(halves.view(np.float16))
    assert np.array_equal(got.view(np.uint16), halves)


def test_every_half_but_nan_keeps_its_bits_when_lanes_merge() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    want = np.where((halves & 0x7FFF) > 0x7C00, 0x7E00, halves)
    (got,) = plan_of("ship_3x2", DrainedTiles(256, 256, 4, 4), rows(256, 256)).run_image(halves.view(np.float16))
    assert np.array_equal(got.view(np.uint16), want)
    (got,) = plan_of("ship_3x2", rows(256, 256), rows(256, 256), True).run_image(halves.view(np.float16))
    assert np.array_equal(got.view(np.uint16), want.reshape(256, 256).T.reshape(-1))


def test_trips_go_through_row_major_orders() -> None:
    tiles, pack, plain = DrainedTiles(10, 40, 2, 4, 3), OperandPack(10, 40, 2, 1, 3), rows(30, 40)
    turned = OperandPack(40, 10, 2, 1, 3)
    assert path(plain, pack, batch=3) == []
    assert path(tiles, pack) == [plain]
    assert path(tiles, turned, transpose=True) == [plain, rows(120, 10)]
    assert path(plain, turned, transpose=True, batch=3) == [rows(120, 10)]
    assert path(pack, OperandPack(10, 40, 1, 2, 3)) == [plain]
    assert path(rows(2, 40), rows(5, 16)) is None  # rows that end inside a word
    assert path(plain, OperandPack(10, 40, 2, 1, 3, preq=True), batch=3) is None
    values = np.arange(1200).astype(np.float16)
    want = values.reshape(3, 10, 40).swapaxes(1, 2).reshape(-1)
    for trip in trips(tiles, turned, transpose=True) or []:
        (values,) = plan_of("mini", trip.source, trip.target, trip.transpose, 3).run_program(values)
    assert np.array_equal(values, want)


def test_what_the_cores_cannot_do_is_refused_by_name() -> None:
    assert not can_relayout(rows(2, 40), rows(5, 16))
    assert not can_relayout(rows(4, 40), rows(40, 4))
    assert not can_relayout(DrainedTiles(4, 2000, 1, 125), rows(4, 2000))  # a tile edge inside a word, too wide
    band = RelayoutBand(load("mini"), 0, 1, rows(2, 40), rows(5, 16), False, 1, LINE)
    with pytest.raises(Refusal, match="whole words, sub-tiles or 16x16 blocks") as refused:
        band.describe()
    assert refused.value.source == LINE
    assert "through the host" in str(refused.value)


def test_the_schedule_names_the_relayout() -> None:
    text = plan_of("ship_3x2", rows(100, 40), OperandPack(100, 40, 16, 2)).pretty().splitlines()
    assert text[1:5] == [
        "  stage 0  VC  relayout rows(100x40, pitch 48) -> pack A(100x40, tile 16, chunk 2): 512 words in 19 pieces "
        "on 4 cores",
        "    whole words, no arithmetic: 200 words, at most 32 per RUN",
        "    last columns' words, lanes cleared: 100 words, at most 32 per RUN",
        "    padding, zeros: 212 words, at most 32 per RUN",
    ]


def test_moves_are_few_flits_and_spread_over_the_cores() -> None:
    plan = plan_of("ship_3x2", rows(256, 1024), OperandPack(256, 1024, 16, 4))
    (streams,) = plan.program.stages
    assert len(streams) == 4
    assert sum(len(s.rows) for s in streams) < 0.03 * 256 * 64
    lengths = [len(s.rows) for s in streams]
    assert max(lengths) == min(lengths)


def test_spans_are_whole_digits() -> None:
    axis = Axis((4, 3, 5), (1, 4, 12), (1, 100, 1000))
    for low in range(60):
        for high in range(low, 61):
            covered: list[int] = []
            for start, (a, b, c) in axis.spans(low, high):
                covered += [start + i + 4 * j + 12 * k for k in range(c) for j in range(b) for i in range(a)]
            assert covered == list(range(low, high))
    assert axis.at(4 * 3 * 2 + 4 * 1 + 3) == (31, 2103)
    assert merged(((1, 4), (4, 3), (7, 1), (24, 2))) == ((1, 12), (24, 2))
