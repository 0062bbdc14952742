"""What a field can stand for, and the values that a machine allows there (datasheet 1, 8).

The one place where a capacity becomes a limit of an instruction. It knows no opcodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from kohakuaccel.machine import Machine


@dataclass(frozen=True)
class Role:
    """name: in error texts. values: what a machine allows."""

    name: str
    values: Callable[[Machine], range]


VREG = Role("vreg", lambda m: range(m.params.vregs))
VMEM = Role("VMEM tile", lambda m: range(m.params.vmem_tiles))
WMEM = Role("WMEM tile", lambda m: range(m.params.wmem_tiles))
AMEM = Role("AMEM vector", lambda m: range(m.params.amem_vectors))
BUCKET = Role("PSUM bucket", lambda m: range(m.params.psum_buckets))
ROW = Role("row", lambda m: range(m.params.rows))
COLUMN = Role("column", lambda m: range(m.params.columns))
AMOUNT = Role("amount of lanes", lambda m: range(m.params.columns))
ELEMENT = Role("element, row * columns + column", lambda m: range(m.params.rows * m.params.columns))
TILES = Role("number of activation vectors", lambda m: range(1, m.params.tiles_max + 1))
DEPTH = Role("depth k", lambda m: range(1, m.params.rows + 1))
COUNT = Role("loop count", lambda m: range(1, 256))
IMMEDIATE = Role("immediate", lambda m: range(-128, 128))
SHIFT = Role("shift", lambda m: range(1, 32))


@lru_cache(maxsize=32)
def widths(machine: Machine) -> dict[str, int]:
    """Bits of the nine fields: the datasheet's, wider where a machine needs more (datasheet 1, 2)."""
    p = machine.params

    def bits(default: int, *counts: int) -> int:
        return max(default, *((count - 1).bit_length() for count in counts))

    return {
        "op": 6,
        "vmem": bits(8, p.vmem_tiles, p.psum_buckets, p.amem_vectors),
        "dst": bits(4, p.vregs, p.psum_buckets, p.rows),
        "src": bits(4, p.vregs, p.rows),
        "vpu": 7,
        "src2": bits(4, p.vregs, p.rows * p.columns),
        "wbase": bits(8, p.wmem_tiles, p.vregs),
        "abase": bits(8, p.amem_vectors),
        "tlen": bits(8, p.tiles_max + 1),
    }
