"""A row that is a bundle: TASM, what it outputs, and what it must cost.

Values are compared with the row's own, cycles and values with the slow reference, which shares no code with the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinytpu import machines
from tinytpu.asm import assemble
from tinytpu.bundle import Bundle
from tinytpu.isa import Record
from tinytpu.runner import run
from tinytpu_acceptance.table import Check
from tinytpu_rig import machine as slow

Values = Any
"""Anything numpy makes an array of."""
MACHINE = machines.load()


def tile(memory: str, slot: int, values: Values) -> str:
    """A line that fills a slot, with int32 or int8 values, or binary32 as bit patterns."""
    array = np.asarray(values)
    words = array.reshape(-1)
    if array.dtype.kind == "f":
        words = words.astype(np.float32).view(np.int32)
    return f"{memory}[{slot}] = " + " ".join(str(int(x)) for x in words)


def lines(memory: str, first: int, rows: Sequence[Values]) -> str:
    return "\n".join(tile(memory, first + i, row) for i, row in enumerate(rows))


def _reference(bundle: Bundle) -> tuple[slow.Core, int]:
    core = slow.Core()
    core.fill(bundle.memory(Record.VMEM), bundle.memory(Record.WMEM), bundle.memory(Record.AMEM))
    halt = core.run(bundle.instructions.tolist(), 2 * len(bundle.entries) + 3)
    return core, halt


def bits(values: Values) -> list[int]:
    array = np.asarray(values)
    if array.dtype.kind == "f":
        return [int(x) for x in array.astype(np.float32).reshape(-1).view(np.uint32)]
    return [int(x) & 0xFFFFFFFF for x in array.reshape(-1)]


def bundle(
    name: str, text: str, *, vmem: Mapping[int, Values] | None = None, amem: Mapping[int, Values] | None = None,
    sums: Values = None, cycles: int = 0,
) -> Check:  # fmt: skip
    """A row. text: data and instructions without HALT. vmem, amem: slots output after the run and what they hold: of a
    tile all 16 values, or a row 0 of 4 with zeros below. sums: what mxu_result is. cycles: of the whole run, where
    the datasheet's rules are worked out by hand; the reference's are compared always."""
    tiles, vectors = vmem or {}, amem or {}
    ends = [*(f"OUTPUT_VMEM VMEM[{s}]" for s in tiles), *(f"OUTPUT_ASRAM AMEM[{s}]" for s in vectors)]
    ends += [] if sums is None else ["OUTPUT_MXU"]
    whole = "\n".join([text, "HALT", *ends, "END"])

    def check() -> None:
        made = assemble(whole, MACHINE)
        done = run(made, MACHINE)
        for (slot, want), got in zip(tiles.items(), done.vmem, strict=True):
            expected = bits(want)
            expected += [0] * (16 - len(expected))
            assert bits(got) == expected, f"VMEM[{slot}] is {got.tolist()}, not {expected}"
        for (slot, want), got in zip(vectors.items(), done.amem, strict=True):
            assert got.tolist() == np.asarray(want).tolist(), f"AMEM[{slot}] is {got.tolist()}, not {want}"
        if sums is not None:
            assert done.mxu_result is not None
            assert done.mxu_result.tolist() == np.asarray(sums).tolist(), f"mxu_result is {done.mxu_result.tolist()}"
        core, halt = _reference(made)
        for slot, got in zip(tiles, done.vmem, strict=True):
            assert got.tolist() == core.vmem[slot], f"the reference's VMEM[{slot}] is {core.vmem[slot]}"
        if sums is None:
            own = halt + 2 + len(ends)
            assert done.cycles == own, f"{done.cycles} cycles, the reference takes {own}"
        assert cycles in (0, done.cycles), f"{done.cycles} cycles, not {cycles}"

    return Check(name, check, text=whole)
