"""Tile choice: the ranking of the software-stack page, and its limits on every preset."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohakutpu.lower import tiling
from kohakutpu.machines import capacity, load, names


def shape(machine: str, m: int, n: int, k: int) -> tuple[int, int, int]:
    tile = tiling.choose(load(machine), m, n, k)
    return tile.gm, tile.gn, tile.nk


def test_large_problems_take_the_most_intense_tile() -> None:
    assert shape("ship_3x2", 1024, 1024, 1024) == (16, 32, 4)
    assert shape("mini", 1024, 1024, 1024) == (16, 32, 4)
    assert shape("singlemesh_2x2", 1024, 1024, 1024) == (16, 16, 1)


def test_padding_discounts_a_tile() -> None:
    # 64 x 128 blocks are the most intense, but would pad 36 columns to 128
    assert shape("mini", 36, 36, 512)[:2] == (16, 16)
    # 300 x 300 pads 36.5% in 64 x 128 blocks and still gains by their intensity
    assert shape("ship_3x2", 300, 300, 512)[:2] == (16, 32)


def test_tiles_keep_every_port_busy() -> None:
    # one 64 x 64 block would leave two ports of three idle
    assert shape("ship_3x2", 36, 36, 512)[:2] == (4, 16)
    # 512 columns of one row: 8 blocks of 64, not one of 512
    assert shape("ship_3x2", 1, 512, 256)[:2] == (1, 16)
    # 3 blocks of 64 x 128 keep the 3 ports as busy as 6 smaller ones that fetch more
    assert shape("ship_3x2", 64, 384, 1536)[:2] == (16, 32)


def test_a_batch_and_several_terms_count() -> None:
    machine = load("ship_3x2")
    assert tiling.choose(machine, 128, 64, 64).gm == 16
    assert tiling.choose(machine, 128, 64, 64, batch=12).gm == 32
    tile = tiling.choose(machine, 64, 64, 32, 4)
    assert tiling.cycles(machine, tile, 64, 64, 32, 8) > tiling.cycles(machine, tile, 64, 64, 32, 4)
    assert tiling.cycles(machine, tile, 64, 64, 32, terms=8) > 4 * tiling.cycles(machine, tile, 64, 64, 32)


def test_the_decision_is_explained() -> None:
    assert "21.33 MACs per operand byte" in tiling.choose(load("ship_3x2"), 1024, 1024, 1024).why


@pytest.mark.parametrize("name", names())
@settings(max_examples=60, deadline=None)
@given(m=st.integers(1, 3000), n=st.integers(1, 3000), k=st.integers(1, 5000))
def test_every_choice_is_legal(name: str, m: int, n: int, k: int) -> None:
    machine = load(name)
    tile = tiling.choose(machine, m, n, k)
    tiling.check(machine, tile.gm, tile.gn, tile.nk, None)
    assert tile.gm * tile.gn % 8 == 0  # whole drain bursts: the result has no holes


def test_slots_never_cross_a_bank() -> None:
    side = tiling.slots(2, 256, 96)
    assert (side.per_bank, side.count) == (2, 4)
    for slot in range(side.count):
        assert side.offset(slot) + side.size <= 256
    cap = capacity(load("singlemesh_2x2"))
    assert tiling.slots(cap.banks_a, cap.bank_entries_a, 16).count == 2
