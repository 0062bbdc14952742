"""The timeline of a run: what sequencer, VPU, XLU, MXU and PSUM did when, and what the sequencer waited for.

It decides which cycles count as work. Sums, reports and exports are `kohakuaccel.sim`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kohakuaccel.sim import Span, Stage, Timeline
from tinytpu.isa import SXU, Psum
from tinytpu.isa.opcodes import OPCODES
from tinytpu.isa.words import name_of
from tinytpu.trace.steps import BLOCKING, DISPATCHES, MOVES, Step, latency, phases, steps
from tinytpu.units.core import Run

KINDS = ("work", "fill", "load", "output", "wait")
UNITS = ("SXU", "VPU", "XLU", "MXU", "PSUM")
_SXU, _VPU, _XLU, _MXU, _PSUM = range(len(UNITS))
_WAITS = {"P": "VPU write-back", "C": "MXU", "D": "MXU"}


def timeline(run: Run, name: str = "program") -> Timeline:
    """The modelled time of a run that was made with a log: loading, execution, output. Raises Refusal without a log."""
    machine = run.machine
    end = run.load_cycles + run.execute_cycles
    found = Timeline(name, machine.name, int(machine.params.clock_mhz), KINDS, ("work",), cycles=run.cycles)
    for unit in UNITS:
        found.track(unit)
    found.sources = [source for source in dict.fromkeys(run.image.lines) if source is not None]
    numbers = {source: number for number, source in enumerate(found.sources)}
    spans = [Span(_SXU, 0, run.load_cycles, "load", "records", "records")]
    for step in steps(run):
        source = run.image.lines[step.pc] if step.pc < len(run.image.lines) else None
        line = -1 if source is None else numbers[source]
        spans += [span._replace(line=line) for span in _merged(_step(run, step))]
    spans.append(Span(_SXU, end, run.cycles, "output", "result lines", "result lines"))
    # A dispatch that nobody waits for may outlive the run.
    found.spans = [s._replace(end=min(s.end, run.cycles)) for s in spans if s.start < run.cycles]
    lanes = int(machine.params.rows * machine.params.columns)
    vector = run.counters["vpu_ops"] * lanes
    image, taken = run.image, sum(tile.nbytes for tile in (*run.vmem, *run.amem))
    filled = 4 * lanes * len(image.vmem) + lanes * len(image.wmem) + int(machine.params.rows) * len(image.amem)
    found.stages = [
        Stage("load", 0, run.load_cycles, 1, nbytes=filled),
        Stage("execute", run.load_cycles, end, 1, macs=run.counters["macs"], flops=vector),
        Stage("output", end, run.cycles, 1, nbytes=taken),
    ]
    found.levels = {"records": filled, "result lines": taken}
    found.counters = dict(run.counters)
    found.peaks = {"MAC/cycle": float(lanes), "FLOP/cycle": float(lanes)}
    found.peaks["records B/cycle"] = 4 * lanes / int(machine.timing.record)
    found.assumed = (f"clock {machine.params.clock_mhz} MHz",)
    return found


def _merged(spans: Iterable[Span]) -> list[Span]:
    """An instruction's spans, those that follow each other and are equal as one, empty ones left out."""
    found: list[Span] = []
    for span in spans:
        if found and found[-1]._replace(start=span.start, end=span.end) == span and found[-1].end == span.start:
            found[-1] = found[-1]._replace(end=span.end)
        elif span.start < span.end:
            found.append(span)
    return found


def _step(run: Run, step: Step) -> Iterator[Span]:
    text = name_of(step.word)
    yield Span(_SXU, step.fetch, step.fetch + 1, "work", text)
    if step.code == SXU.HALT:
        return
    stall = OPCODES[step.code].stall
    yield Span(_SXU, step.fetch + 1, step.exec, "wait", text, _WAITS.get(stall, "VPU write-back"))
    if step.code == SXU.VPU or step.code in BLOCKING:
        yield Span(_SXU, step.exec, step.exec + 1, "work", text)
        yield Span(_SXU, step.exec + 1, step.last, "wait", text, "MXU" if step.code in BLOCKING else "VPU")
        yield Span(_SXU, step.last, step.last + 1, "work", text)
    else:
        yield Span(_SXU, step.exec, step.last + 1, "work", text)
    yield from _unit(run, step, text)


def _unit(run: Run, step: Step, text: str) -> Iterator[Span]:
    """What the instruction makes another unit do."""
    at = step.exec
    if step.code in (SXU.VPU, SXU.VPU_BG):
        yield Span(_VPU, at, at + latency(run, step), "work", step.operation.name)
    elif step.code == SXU.SELECT:
        yield Span(_VPU, at, at + 2, "work", text)
    elif step.code in MOVES:
        yield Span(_XLU, at, at + 1, "work", text)
    elif step.code in DISPATCHES:
        time = phases(run, step)
        yield Span(_MXU, *time.read, "fill", text)
        yield Span(_MXU, *time.feed, "work", text)
        yield Span(_MXU, time.feed[1], time.drain[1], "fill", text)
        if step.code == SXU.MXU and step.word["src2"] != Psum.NONE:
            yield Span(_PSUM, *time.drain, "work", f"drain {Psum(step.word['src2']).name.lower()}")
    elif step.code.name.startswith("PSUM_"):
        yield Span(_PSUM, at, step.last + 1, "work", text)
