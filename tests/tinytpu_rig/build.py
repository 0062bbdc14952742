"""Programs as words, and runs of the compiled model, for the unit tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kohakuaccel.machine import Machine
from tinytpu.isa import FIELDS, SXU, VPU
from tinytpu.machines import load
from tinytpu.units.core import Image, Run, execute

Flat = Mapping[int, Sequence[int]]


def word(op: SXU, **fields: int) -> list[int]:
    """An instruction's nine fields; those not named are 0."""
    unknown = set(fields) - set(FIELDS)
    assert not unknown, unknown
    return [int(op), *(int(fields.get(name, 0)) for name in FIELDS[1:])]


def vpu(code: VPU, dst: int, src: int = 0, src2: int = 0, *, background: bool = False) -> list[int]:
    return word(SXU.VPU_BG if background else SXU.VPU, vpu=code, dst=dst, src=src, src2=src2)


HALT = word(SXU.HALT)


def image(program: Sequence[Sequence[int]], **items: Any) -> Image:
    return Image(np.array(program, np.int64), **items)


def run(program: Sequence[Sequence[int]], machine: Machine | None = None, **items: Any) -> Run:
    """Run a program; `items` are Image's, and silicon or log."""
    options = {name: items.pop(name) for name in ("silicon", "log") if name in items}
    return execute(machine or load(), image(program, **items), **options)


def signed(patterns: Sequence[int]) -> list[int]:
    """32-bit patterns as int32 values."""
    return [int(x) for x in np.array(patterns, np.uint32).view(np.int32)]


def patterns(values: Any) -> list[int]:
    """int32 values as 32-bit patterns."""
    return [int(x) & 0xFFFFFFFF for x in np.asarray(values).reshape(-1)]


def one(code: VPU, a: Sequence[int], b: Sequence[int] | None = None, machine: Machine | None = None) -> list[int]:
    """One VPU operation on tiles of patterns, as patterns."""
    load_b = [word(SXU.LOAD, vmem=1, dst=1)] if b is not None else []
    program = [word(SXU.LOAD, vmem=0), *load_b, vpu(code, 2, 0, 1), word(SXU.STORE, vmem=2, src=2), HALT]
    items = {0: signed(a)} | ({1: signed(b)} if b is not None else {})
    return patterns(run(program, machine, vmem=items, vmem_outputs=[2]).vmem[0])
