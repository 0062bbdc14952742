"""Bytes from core to core: all of them, in the cycles that records, packets and lines take."""

from __future__ import annotations

import numpy as np
import pytest

from tinytpu.cores.copying import copy
from tinytpu.machines import load

MACHINE = load()


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 31 * 64, 31 * 64 + 1, 5000])
def test_every_byte_arrives(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    done = copy(data, MACHINE)
    assert done.data.tobytes() == data.tobytes()
    assert done.padded == -size % 64
    assert done.packets == 4 * -(-size // 64)


@pytest.mark.parametrize("tiles", [1, 8, 31])
def test_cycles_are_those_of_records_packets_and_lines(tiles: int) -> None:
    """2 a record in; 4 packets a tile and 3 cycles; a HALT and the outputs as records; 5 cycles; a line a tile."""
    done = copy(np.zeros(64 * tiles, np.uint8), MACHINE)
    assert done.cycles == 2 * tiles + 4 * tiles + 3 + 2 * (1 + tiles) + 5 + tiles


def test_a_larger_machine_has_larger_tiles() -> None:
    data = np.arange(600, dtype=np.uint8)
    done = copy(data, load("tinytpu_8x8"))
    assert done.data.tobytes() == data.tobytes()
    assert (done.padded, done.packets) == (168, 48)
