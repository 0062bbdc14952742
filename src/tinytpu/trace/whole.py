"""Everything that a recording kept, as one timeline and as a table by name.

Decides how runs stand one after the other and what a row says. Each program is run once more, with a log: its cycles
are those of the run that was kept, or it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine
from kohakuaccel.sim import Timeline, joined
from tinytpu.recording import Played
from tinytpu.trace.spans import KINDS, timeline
from tinytpu.units.core import Run, execute


def _logged(played: Played) -> Run:
    run = execute(played.machine, played.image, silicon=played.silicon, log=True)
    if run.cycles != played.cycles:
        raise Refusal("a program run again takes as long", where=played.name, got=run.cycles, limit=played.cycles)
    return run


def whole(played: Sequence[Played], name: str, machine: Machine) -> Timeline:
    """All programs of a recording on one timeline, in the order in which they ran; empty where none did."""
    if not played:
        return Timeline(name, machine.name, int(machine.params.clock_mhz), KINDS, ("work",))
    parts: list[Timeline] = []
    for one in played:
        parts += [timeline(_logged(one), one.name)] * one.times
    return joined(parts, name)


@dataclass(frozen=True)
class Usage:
    """What all programs of one name took. programs: how many ran; load, execute, output: cycles; busy: cycles of work
    by unit; macs: multiply-accumulates; peak: those the array could have done in all cycles."""

    name: str
    programs: int
    load: int
    execute: int
    output: int
    instructions: int
    busy: dict[str, int]
    macs: int
    peak: int

    @property
    def cycles(self) -> int:
        return self.load + self.execute + self.output


def usages(played: Iterable[Played]) -> list[Usage]:
    """A row a name, in the order in which names came first."""
    found: dict[str, Usage] = {}
    for one in played:
        run = _logged(one)
        spans = timeline(run, one.name)
        busy = {share.group: share.busy * one.times for share in spans.shares()}
        lanes = int(one.machine.params.rows * one.machine.params.columns)
        before = found.get(one.name)
        if before is None:
            before = Usage(one.name, 0, 0, 0, 0, 0, dict.fromkeys(busy, 0), 0, 0)
        found[one.name] = Usage(
            one.name,
            before.programs + one.times,
            before.load + run.load_cycles * one.times,
            before.execute + run.execute_cycles * one.times,
            before.output + run.output_cycles * one.times,
            before.instructions + run.counters["instructions"] * one.times,
            {unit: before.busy[unit] + cycles for unit, cycles in busy.items()},
            before.macs + run.counters["macs"] * one.times,
            before.peak + run.cycles * lanes * one.times,
        )
    return list(found.values())


def table(rows: Sequence[Usage]) -> str:
    """Cycles by name, most first: how many programs, the share of the whole, what loading, execution and output take
    of it, how full each unit is, and the share of the array's peak."""
    total = sum(row.cycles for row in rows)
    units = list(rows[0].busy) if rows else []
    head = ("", "programs", "cycles", "of all", "load", "execute", "output", *units, "of peak")
    lines: list[tuple[str, ...]] = [head]
    for row in sorted(rows, key=lambda row: -row.cycles):
        shares = [row.load, row.execute, row.output, *row.busy.values()]
        parts = [f"{part / row.cycles:.0%}" for part in shares]
        use = f"{row.macs / row.peak:.1%}" if row.macs else "-"
        lines.append((row.name, f"{row.programs:,}", f"{row.cycles:,}", f"{row.cycles / total:.1%}", *parts, use))
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    shown = ["  ".join(c.rjust(w) if n else c.ljust(w) for n, (c, w) in enumerate(zip(line, widths))) for line in lines]
    return "\n".join([f"{total:,} cycles in {sum(row.programs for row in rows):,} programs (modelled)", *shown])
