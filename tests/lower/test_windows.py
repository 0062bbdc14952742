"""Convolution by descriptor: the same bits as gathered rows, fewer bytes moved, and what is refused."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine
from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu.isa import cluster
from kohakutpu.lower.plan import Plan
from kohakutpu.lower.windows import WindowPack
from kohakutpu.machines import load

SHIP = load("ship_3x2")
DESC = SHIP.with_(name="desc", features={"r2_desc_fill": True})


def plan(image: tuple[int, ...], outputs: int, pixels: int, machine: Machine = DESC, **knobs: object) -> Plan:
    size = knobs.get("size", (1, 1))
    assert isinstance(size, tuple)
    taps = int(np.prod(size))
    shapes = [image, (taps, outputs, image[3])]
    return kernels.conv2d_windows._plan(machine, shapes, (None, None), {"pixels": pixels, **knobs})


@pytest.mark.parametrize("seed", range(12))
def test_pieces_cover_a_chunk_once_and_name_the_right_pixels(seed: int) -> None:
    """Every lane of every entry, walked as the datasheet says, against the pixel its number stands for."""
    rng = Random(seed)
    count, channels, chunk = rng.randrange(1, 3), 64, rng.choice([1, 2])
    size, stride, dilation = ((rng.randrange(1, 4), rng.randrange(1, 4)) for _ in range(3))
    out = (rng.randrange(1, 6), 4 * rng.randrange(1, 4))
    before = (rng.randrange(3), rng.randrange(3))
    high, wide = (rng.randrange(3, 12) for _ in range(2))
    pack = WindowPack((count, high, wide, channels), out, size, stride, dilation, before, rng.choice([1, 3, 8]), chunk)
    numbers = np.arange(count * high * wide * channels).reshape(count, high, wide, channels)
    for _ in range(6):
        tap, tile = rng.randrange(size[0] * size[1]), rng.randrange(pack.tiles)
        k0, most = rng.randrange(pack.chunks), rng.choice([4, 6, 255])
        seen: dict[int, list[int]] = {}
        for piece in pack.pieces(tap, tile, k0, most):
            assert piece.n <= most
            assert len(piece.dims) <= 6
            lanes: list[int] = []
            for index in np.ndindex(*(d[0] for d in piece.dims)):
                at = [piece.axes[0][0], piece.axes[1][0]]
                address = piece.base
                for i, (_, step, axis, astep) in zip(index, piece.dims):
                    address += i * step
                    if axis:
                        at[axis - 1] += i * astep
                exists = all(e == 0 or 0 <= a < e for a, (_, e) in zip(at, piece.axes))
                lanes.append(address // 2 if exists else -1)
            for entry in range(piece.n):
                assert piece.first + entry not in seen
                seen[piece.first + entry] = lanes[4 * entry : 4 * entry + 4]
        assert sorted(seen) == list(range(pack.tile * chunk))
        down, across = divmod(tap, size[1])
        for entry, lanes in seen.items():
            group, block = divmod(entry, chunk)
            for lane, first in enumerate(lanes):
                pixel = 4 * (tile * pack.tile + group) + lane
                row, j = divmod(pixel, out[1])
                b, i = divmod(row, out[0])
                y = i * stride[0] + down * dilation[0] - before[0]
                x = j * stride[1] + across * dilation[1] - before[1]
                inside = b < count and 0 <= y < high and 0 <= x < wide
                want = int(numbers[b, y, x, 32 * (k0 * chunk + block)]) if inside else -1
                assert first == want, (entry, lane)


def test_no_pass_over_memory_is_left() -> None:
    """One stage, of clusters; the image's own bytes are an operand."""
    one = plan((1, 8, 8, 32), 16, 64, size=(3, 3), padding=((1, 1), (1, 1)))
    assert [band.engine for stage in one.schedule.stages for band in stage.bands] == ["MG"]
    text = one.pretty()
    assert "A windows 3x3 of 1x8x8x32 by descriptor (tile 8, chunk 1)" in text
    assert "x in 1x8x8x32 fp16  rows(64x32, pitch 32)" in text
    shapes = [(1, 8, 8, 32), (9, 16, 32)]
    knobs = {"size": (3, 3), "padding": ((1, 1), (1, 1)), "pixels": 64}
    taps = kernels.conv2d_taps._plan(SHIP, shapes, (None, None), knobs)
    assert taps.footprint > 5 * one.footprint


def test_a_descriptor_is_written_as_far_as_it_changes() -> None:
    """Dimensions once, then base and axes for each fill of another tap."""
    (stream, *_) = plan(
        (1, 16, 16, 32), 16, 256, size=(3, 3), padding=((1, 1), (1, 1)), gm=16, gn=4, nk=1
    ).program.stages[0]
    fields = stream.rows[stream.rows[:, 0] == cluster.TDESC][:, 3]
    fills = int((stream.rows[:, cluster.CLUSTER.column("desc")] * (stream.rows[:, 0] == cluster.FILL)).sum())
    assert np.count_nonzero((fields >= 1) & (fields <= 6)) <= 8
    assert np.count_nonzero(fields == 0) == fills


@pytest.mark.parametrize(
    ("image", "pixels", "knobs", "said"),
    [
        ((1, 8, 8, 48), 64, {}, "48 channels is not whole K blocks"),
        ((1, 8, 6, 32), 48, {}, "output rows of 6 pixels"),
        ((1, 8, 8, 96), 64, {"gm": 2, "gn": 4, "nk": 2}, "3 K blocks are not whole chunks of 2"),
        ((1, 8, 8, 32), 60, {}, "one row per output pixel"),
    ],
)
def test_refused(image: tuple[int, ...], pixels: int, knobs: dict[str, int], said: str) -> None:
    with pytest.raises(Refusal) as caught:
        plan(image, 8, pixels, DESC, **knobs)
    assert said in str(caught.value)


def test_without_the_option_it_is_refused_by_name() -> None:
    with pytest.raises(Refusal, match="the machine has no r2_desc_fill"):
        plan((1, 8, 8, 32), 8, 64, SHIP)


def test_windows_are_read_by_clusters_only() -> None:
    from kohakuaccel.lang import dims, grid
    from kohakutpu import lang as L
    from kohakutpu.lang import kernel

    b, h, w, c = dims("b h w c")

    @kernel
    def rows(x=L.In(b, h, w, c), y=L.Out(1, 16, c)):
        seen = L.windows(x, 16, size=(1, 1), stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1))
        for t, r in grid(1, 16):
            y[t, r] <<= seen[t, r] + 1

    with pytest.raises(Refusal, match="read before a stage wrote it"):
        rows._plan(DESC, [(1, 4, 4, 32)], (None,), {})


def test_the_tensor_operation_takes_it_where_it_can() -> None:
    """conv2d on a machine with the option: the same bits, no gathered rows; shapes it cannot take still work."""
    rng = np.random.default_rng(0)
    for shape, outputs in (((1, 8, 8, 32), 16), ((1, 7, 7, 32), 8)):
        x = rng.standard_normal(shape).astype(np.float16)
        w = rng.standard_normal((outputs, 3, 3, shape[3])).astype(np.float16)
        found = []
        for machine in (DESC, SHIP):
            device = ktpu.device(machine)
            a, b = ktpu.tensor(x, device=device), ktpu.tensor(w, device=device)
            found.append(np.asarray(kernels.conv2d(a, b, padding=1).numpy()))
        np.testing.assert_array_equal(found[0], found[1])
