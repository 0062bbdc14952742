"""The order of a code's instructions: what runs on the vector unit in the background while the array works.

Decides by the datasheet's rules of time (10.1 to 10.4) which instruction comes next: of those whose operands are
there the one that waits least, then the one with the longest way behind it. The machine model counts what comes out,
and the best of several orders is kept. It must not know values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kohakuaccel.diagnostics import Fault
from kohakuaccel.machine import Machine
from tinytpu.isa.codes import SXU, VPU
from tinytpu.isa.opcodes import OPCODES
from tinytpu.isa.vpu import VPU_OPS
from tinytpu.lower.program.allocate import allocate
from tinytpu.lower.program.code import TOUCH, Code, Line
from tinytpu.lower.program.fed import Fed

Slots = Mapping[int, tuple[int, int]]


def fastest(code: Code, amem: Slots, wmem: Slots, machine: Machine) -> tuple[Fed, int] | None:
    """The program of a code in the order that takes the fewest cycles, and those; None where it fits in none. amem,
    wmem: what fills the array's memories, see Fed."""
    best: tuple[Fed, int] | None = None
    for way in _orders(code, machine):
        program = allocate(way, machine)
        if program is None:
            continue
        made = Fed(program, amem, wmem)
        try:
            cycles = program.cycles or made.cycles(machine)
        except Fault:
            continue  # a hazard of the background (datasheet 9.7): the order is none
        if best is None or cycles < best[1]:
            best = made, cycles
    return best


def _orders(code: Code, machine: Machine) -> Iterator[Code]:
    yield code
    lines = code.live()
    if any(_array(line) for line in lines) and any(_latency(line, machine) > 1 for line in lines):
        ordered = _scheduled(code, lines, machine)
        yield Code(ordered, dict(code.given))
        yield Code(list(_background(ordered, machine)), dict(code.given))


def _opcode(line: Line) -> SXU | None:
    return None if line.form == TOUCH else SXU[line.form.split(".")[0]]


def _array(line: Line) -> bool:
    return line.form.startswith("MXU")


def _latency(line: Line, machine: Machine) -> int:
    """Cycles of the vector unit."""
    code = next((value for name, value in line.fields if name == "vpu"), None)
    return VPU_OPS[VPU[code]].latency(machine) if isinstance(code, str) and line.form.startswith("VPU") else 0


def _background(lines: list[Line], machine: Machine) -> Iterator[Line]:
    """Operations of several cycles in the background."""
    for line in lines:
        slow = line.form.startswith("VPU.") and _latency(line, machine) > 1
        yield replace(line, form=line.form.replace("VPU.", "VPU_BG.")) if slow else line


def _busy(line: Line, machine: Machine) -> tuple[int, int]:
    """Cycles of the sequencer, and until the result is there."""
    if _latency(line, machine) > 1:
        return 2, _latency(line, machine) + 2
    op = _opcode(line)
    if op in (SXU.MXU, SXU.MXU_OS, SXU.MXU_OS_ACCUMULATE, SXU.MXU_ACCUMULATE):
        deep = next(int(value) for name, value in line.fields if name == "tlen")
        edge = machine.params.rows
        return 2, (deep + edge + 4 if op in (SXU.MXU, SXU.MXU_ACCUMULATE) else 2 * deep + 2 * edge + 3) + 1
    cycles = {SXU.SELECT: 4, SXU.PSUM_READ: 3, SXU.VPU: 3, None: 0}.get(op, 2)
    return cycles, cycles


def _scheduled(code: Code, lines: list[Line], machine: Machine) -> list[Line]:
    """The lines in another order that keeps what each reads, and the order of those that work on the array's state."""
    made = {line.dst: n for n, line in enumerate(lines) if line.dst is not None}
    before: list[set[int]] = []
    last: int | None = None
    for n, line in enumerate(lines):
        needs = {made[value] for value in line.reads() if value in made}
        if _state(line):
            needs |= set() if last is None else {last}
            last = n
        before.append(needs)
    behind: dict[int, list[int]] = defaultdict(list)
    for n, needs in enumerate(before):
        for m in needs:
            behind[m].append(n)
    way = [0] * len(lines)
    for n in range(len(lines) - 1, -1, -1):
        way[n] = _busy(lines[n], machine)[1] + max((way[m] for m in behind[n]), default=0)
    left = [len(needs) for needs in before]
    ready = [n for n, count in enumerate(left) if not count]
    clock = _Clock(code, machine)
    order: list[Line] = []
    while ready:
        n = min(ready, key=lambda n: (clock.start(lines[n]), -way[n], n))
        ready.remove(n)
        clock.take(lines[n])
        order.append(lines[n])
        for m in behind[n]:
            left[m] -= 1
            if not left[m]:
                ready.append(m)
    return order


@dataclass
class _Clock:
    """What has been taken so far: the next FETCH, when the background result and the array are ready."""

    code: Code
    machine: Machine
    loaded: set[int] = field(default_factory=set[int])
    time: int = 0
    slow: int = 0
    array: int = 0

    def _fresh(self, line: Line) -> set[int]:
        """Sources that are in no register yet."""
        return {value for value in line.reads() if value in self.code.given} - self.loaded

    def start(self, line: Line) -> int:
        op = _opcode(line)
        stall = OPCODES[op].stall if op is not None else ""
        first = max(self.time, self.slow) if stall == "P" or self._fresh(line) else self.time
        return max(first, self.array) if stall in ("C", "D") else first

    def take(self, line: Line) -> None:
        cycles, result = _busy(line, self.machine)
        fresh = self._fresh(line)
        at = self.start(line) + 3 * len(fresh)
        self.time = at + cycles
        self.loaded |= fresh
        if _array(line):
            self.array = at + result
        elif result > cycles:
            self.slow = at + result


def _state(line: Line) -> bool:
    """Whether a line works on the array's or a bucket's state, or waits for it."""
    return line.form.startswith(("MXU", "WAIT", "PSUM", "LOAD_MXU")) or line.form == TOUCH
