"""Layouts: the byte formulas of datasheet 3.3, and packing that loses nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohakuaccel.diagnostics import Refusal
from kohakutpu.layouts import DrainedTiles, OperandPack, RowMajor, WordRuns

sizes = st.integers(1, 150)


def numbered(n: int) -> np.ndarray:
    return (np.arange(n) % 2048).astype(np.float16)


def test_operand_pack_formula() -> None:
    rows, cols, gt, bc = 70, 200, 3, 2
    layout = OperandPack(rows, cols, gt, bc)
    values = np.random.default_rng(0).standard_normal((rows, cols)).astype(np.float16)
    halves = layout.pack(values.reshape(-1)).view(np.float16)
    chunks = layout.chunks
    for row in range(rows):
        for k in range(cols):
            t, g, i = row // 4 // gt, row // 4 % gt, row % 4
            c, b, kk = k // 32 // bc, k // 32 % bc, k % 32
            assert halves[((((t * chunks + c) * gt + g) * bc + b) * 4 + i) * 32 + kk] == values[row, k]
    assert layout.run_offset(0, 1, 1) == 256 * (1 * chunks + 1) * gt * bc


def test_padding_is_zero() -> None:
    packed = OperandPack(5, 7, 2, 1).pack(np.ones(35, np.float16)).view(np.float16)
    assert packed.sum() == 35
    assert DrainedTiles(5, 7, 1, 1).pack(np.ones(35, np.float16)).view(np.float16).sum() == 35
    assert RowMajor.of(5, 7).pack(np.ones(35, np.float16)).view(np.float16).sum() == 35


@settings(max_examples=80, deadline=None)
@given(rows=sizes, cols=sizes, a=st.integers(1, 17), b=st.integers(1, 9), batch=st.integers(1, 3))
def test_unpack_undoes_pack(rows: int, cols: int, a: int, b: int, batch: int) -> None:
    values = numbered(batch * rows * cols)
    for layout in (
        RowMajor.of(batch * rows, cols),
        OperandPack(rows, cols, a, b, batch),
        DrainedTiles(rows, cols, a, b, batch),
    ):
        data = layout.pack(values)
        assert data.nbytes == layout.nbytes
        assert layout.size == values.size
        assert np.array_equal(layout.unpack(data), values)


def test_drained_tile_formula_and_holes() -> None:
    layout = DrainedTiles(12, 20, 3, 1)
    assert layout.region_words == 8
    assert layout.runs == WordRuns(3, 8, 5)
    halves = layout.pack(numbered(240)).view(np.float16)
    for row in range(12):
        for col in range(20):
            g, i, h, j = row // 4, row % 4, col // 4, col % 4
            at = (layout.tile_offset(0, 0, h) + 32 * g) // 2 + 4 * i + j
            assert halves[at] == (row * 20 + col) % 2048
    assert DrainedTiles(64, 128, 16, 32).runs.count == 1


def test_row_major_of_shapes() -> None:
    assert RowMajor.of_shape(()) == RowMajor(1, 1, 16)
    assert RowMajor.of_shape((5,)) == RowMajor(1, 5, 16)
    assert RowMajor.of_shape((2, 3, 17)) == RowMajor(6, 17, 32)


def test_a_quantised_operand_cannot_be_read_back() -> None:
    layout = OperandPack(4, 32, 1, 1, preq=True)
    assert layout.nbytes == 128
    with pytest.raises(Refusal, match="quantised operand"):
        layout.unpack(np.zeros(128, np.uint8))
