"""The texts of what stops a run and of its lints (datasheet 9).

Decides the words only; which code a run ends with is the interpreter's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tinytpu.units.faults import F, Lint


class Message(NamedTuple):
    """What is wrong, and the way out."""

    what: str
    hint: str = ""


_FAULTS: Mapping[F, Callable[[int, int], Message]] = {
    F.OPCODE: lambda g, m: Message(f"opcode {g} is not defined; the limit is {m}"),
    F.VPU_CODE: lambda g, m: Message(f"VPU operation {g} is not defined; the limit is {m}"),
    F.VREG: lambda g, m: Message(f"there is no register v{g}; the limit is v{m}"),
    F.VMEM_ADDRESS: lambda g, m: Message(f"VMEM[{g}] is beyond VMEM; the limit is {m}", "reuse slots, or split"),
    F.WMEM_ADDRESS: lambda g, m: Message(f"WMEM[{g}] is beyond WMEM; the limit is {m}", "split the program"),
    F.AMEM_ADDRESS: lambda g, m: Message(f"AMEM[{g}] is beyond AMEM; the limit is {m}", "split the program"),
    F.AMEM_RANGE: lambda g, m: Message(f"the dispatch reads up to AMEM[{g - 1}]; the limit is {m - 1}"),
    F.BUCKET: lambda g, m: Message(f"PSUM[{g}] is beyond PSUM; the limit is {m}"),
    F.ROW: lambda g, m: Message(f"a tile has no row {g}; the limit is {m}"),
    F.LANE: lambda g, m: Message(f"a move picks element {g}; the limit is {m}"),
    F.TILES: lambda g, m: Message(f"a dispatch feeds {g} vectors; the limit is {m}"),
    F.K: lambda g, m: Message(
        f"an output-stationary dispatch takes k = {g}; the limit is {m}",
        "one MXU_OS, then MXU_OS_ACCUMULATE for each further weight tile",
    ),
    F.PSUM_MODE: lambda g, m: Message(f"PSUM mode {g} is not defined; the limit is {m}"),
    F.LOOP_COUNT: lambda g, m: Message(f"a loop runs {g} times; at least once"),
    F.SHIFT: lambda g, m: Message(
        "requantisation by shift 0 adds 2^31 in silicon", "SET_REQUANT_CONFIG, shift 1 to 31"
    ),
    F.FIELD: lambda g, m: Message(f"a field is {g}; fields are not negative"),
    F.END_OF_PROGRAM: lambda g, m: Message(
        f"address {g} holds no instruction; the last one is {m}", "end every path with HALT"
    ),
    F.TIMEOUT: lambda g, m: Message(f"timeout: the run takes more than {m} cycles", "raise cycle_limit, or loop less"),
    F.VMEM_UNWRITTEN: lambda g, m: Message(f"VMEM[{g}] is read before it is written", "preload or STORE it"),
    F.WMEM_UNWRITTEN: lambda g, m: Message(f"WMEM[{g}] is read before it is written", "preload it"),
    F.AMEM_UNWRITTEN: lambda g, m: Message(f"AMEM[{g}] is read before it is written", "preload it"),
    F.PSUM_UNWRITTEN: lambda g, m: Message(
        f"PSUM[{g}] row {m} is used before it is written", "PSUM_CLEAR or PSUM_WRITE it first"
    ),
    F.NO_VPU_RESULT: lambda g, m: Message("no VPU operation has left a result yet"),
    F.NO_XLU_RESULT: lambda g, m: Message("no move across lanes has left a result yet"),
    F.LOOPS_FULL: lambda g, m: Message(f"more than {m} loops inside each other", "unroll the innermost"),
    F.NO_LOOP: lambda g, m: Message("LOOP_END without an open loop"),
    F.NOTHING_DISPATCHED: lambda g, m: Message("deadlock: it waits for the MXU, and nothing was dispatched"),
    F.NO_STATISTICS: lambda g, m: Message("the last dispatch was no MXU_EPILOGUE with a reduction"),
    F.PSUM_HAZARD: lambda g, m: Message(
        f"PSUM[{g}] is the target of a dispatch that is done in cycle {m}", "WAIT_MXU before it"
    ),
    F.BACKGROUND_READ: lambda g, m: Message(f"v{g} is read while VPU_BG has yet to write it"),
    F.BACKGROUND_WRITE: lambda g, m: Message(f"v{g} is written while VPU_BG has yet to write it"),
    F.REQUANT_IN_FLIGHT: lambda g, m: Message(
        f"AMEM is output, and a requantising dispatch is done only in cycle {m}", "WAIT_MXU before HALT"
    ),
}

_LINTS: Mapping[Lint, Callable[[int], str]] = {
    Lint.VREG_UNWRITTEN: lambda d: f"v{d} is read before anything wrote it; it holds 0",
    Lint.STORE_UNUSED: lambda d: f"the tile stored in VMEM[{d}] is never used",
    Lint.LOOPS_OPEN: lambda d: f"HALT with {d} open loops",
    Lint.WRITE_PENDING: lambda d: f"HALT while VPU_BG has yet to write v{d}",
    Lint.WAIT_UNNEEDED: lambda d: "WAIT_MXU before an instruction that waits for the MXU by itself",
}


def fault(code: int, got: int, limit: int) -> Message:
    """The text of a fault with its details."""
    return _FAULTS[F(code)](got, limit)


def lint(code: int, detail: int) -> str:
    """The text of a lint."""
    return _LINTS[Lint(code)](detail)
