"""Where the cycles of a run went: phases, instructions, addresses, labelled regions, units, bubbles (datasheet 16).

It decides which cycle counts for what; it reads the run's log and counters and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tinytpu.isa import SXU
from tinytpu.isa.words import name_of, text_of
from tinytpu.trace.spans import timeline
from tinytpu.trace.steps import BLOCKING, DISPATCHES, Step, latency, phases, steps
from tinytpu.units.core import Run

_PHASES = ("read weights and activations", "feed", "settle", "drain")
Counted = Mapping[str, tuple[int, int]]
"""What -> (times, cycles)."""


@dataclass(frozen=True)
class Profile:
    """A run's cycles, summed up.

    cycles: load, execute, output; they sum up to the run. instructions: by name, FETCH to FETCH; they sum up to
    execute. hottest: program addresses with their text, most cycles first. regions: from a label to the next one, ""
    in front of the first. bubbles: cycles of the sequencer that did no work, by cause. units: cycles that a unit
    worked. operations: of the VPU, by name. array: cycles of the MXU by phase.
    """

    cycles: Mapping[str, int]
    instructions: Counted
    hottest: tuple[tuple[int, str, int, int], ...]
    regions: Mapping[str, int]
    bubbles: Mapping[str, int]
    units: Mapping[str, int]
    operations: Counted
    array: Mapping[str, int]

    def text(self, top: int = 10) -> str:
        """The profile as a person reads it, `top` addresses."""
        total = sum(self.cycles.values())
        lines = [f"{total:,} cycles: " + ", ".join(f"{name} {n:,}" for name, n in self.cycles.items())]
        lines += _block("instructions", ((f"{n} x {name}", c) for name, (n, c) in self.instructions.items()), total)
        hottest = ((f"pc {pc:3}, {n} x {text}", c) for pc, text, n, c in self.hottest[:top])
        lines += _block("hottest addresses", hottest, total)
        if set(self.regions) != {""}:
            lines += _block("regions", ((name or "(before a label)", c) for name, c in self.regions.items()), total)
        lines += _block("sequencer idle for", self.bubbles.items(), total)
        lines += _block("units at work", self.units.items(), total)
        lines += _block("VPU operations", ((f"{n} x {name}", c) for name, (n, c) in self.operations.items()), total)
        lines += _block("MXU phases", self.array.items(), total)
        return "\n".join(lines)


def _block(title: str, rows: Iterable[tuple[str, int]], total: int) -> list[str]:
    shown = [f"  {cycles:8,} {cycles / total:6.1%}  {name}" for name, cycles in rows if cycles]
    return ["", title, *shown] if shown else []


def _falling(counted: dict[str, tuple[int, int]]) -> Counted:
    return dict(sorted(counted.items(), key=lambda item: -item[1][1]))


def _add(counted: dict[str, tuple[int, int]], name: str, cycles: int) -> None:
    times, before = counted.get(name, (0, 0))
    counted[name] = times + 1, before + cycles


def profile(run: Run, labels: Mapping[str, int] | None = None) -> Profile:
    """The profile of a run that was made with a log; labels: of instructions, as a bundle has them. Raises Refusal
    without a log."""
    instructions: dict[str, tuple[int, int]] = {}
    operations: dict[str, tuple[int, int]] = {}
    array: dict[str, int] = dict.fromkeys(_PHASES, 0)
    bubbles = dict.fromkeys(("fetch", "a background write-back (P)", "the MXU idle (C)", "the MXU done (D)"), 0)
    bubbles |= {"a VPU operation": 0, "a blocking dispatch": 0}
    for step in steps(run):
        _add(instructions, name_of(step.word), step.last + 1 - step.fetch)
        bubbles["fetch"] += 1
        if step.code in (SXU.VPU, SXU.VPU_BG):
            _add(operations, step.operation.name, latency(run, step))
        if step.code == SXU.VPU:
            bubbles["a VPU operation"] += max(0, step.last - step.exec - 1)
        if step.code in BLOCKING:
            bubbles["a blocking dispatch"] += step.last - step.exec - 1
        if step.code in DISPATCHES:
            _phases(run, step, array)
    for cause, letter in (("a background write-back (P)", "p"), ("the MXU idle (C)", "c"), ("the MXU done (D)", "d")):
        bubbles[cause] = run.counters[f"stall_{letter}"]
    spans = timeline(run)
    words = run.image.instructions
    hottest = sorted(((pc, int(run.hits[pc]), int(c)) for pc, c in enumerate(run.spent) if c), key=lambda x: -x[2])
    return Profile(
        cycles={"load": run.load_cycles, "execute": run.execute_cycles, "output": run.output_cycles},
        instructions=_falling(instructions),
        hottest=tuple((pc, text_of(run.machine, words[pc]), hits, cycles) for pc, hits, cycles in hottest),
        regions=_regions(run, labels or {}),
        bubbles=bubbles,
        units={share.group: share.busy for share in spans.shares() if share.group != "SXU"},
        operations=_falling(operations),
        array=array,
    )


def _phases(run: Run, step: Step, array: dict[str, int]) -> None:
    time = phases(run, step)
    spans = (time.read, time.feed, (time.feed[1], time.drain[0]), time.drain)
    for name, (start, end) in zip(_PHASES, spans, strict=True):
        array[name] += end - start


def _regions(run: Run, labels: Mapping[str, int]) -> dict[str, int]:
    """Cycles from each label to the next; labels at one address share a name."""
    names: dict[int, str] = {}
    for name, pc in sorted(labels.items(), key=lambda item: item[1]):
        names[pc] = f"{names[pc]}, {name}" if pc in names else name
    regions: dict[str, int] = {}
    current = ""
    for pc, cycles in enumerate(run.spent.tolist()):
        current = names.get(pc, current)
        regions[current] = regions.get(current, 0) + cycles
    return regions
