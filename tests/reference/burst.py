"""What travels between units: one CU_DATA burst (datasheet 4.2)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Burst:
    """Granules for buffer `buf` of the unit at (mesh, x, y); flags bit 0 asks for DATA_RECEIVED at `ack`."""

    mesh: int
    x: int
    y: int
    buf: int
    offset: int
    granules: tuple[int, ...]
    flags: int
    ack: tuple[int, int]
