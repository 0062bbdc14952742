"""Kernels that stay on chip (revision 2, r2_vc_quant): a chain of products and row arithmetic without memory between.

It decides whether a call is such a chain, which cluster and core work together, and when routines are loaded; the
reason why one is not is a note of its schedule.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine
from kohakuaccel.schedule import Band, Stage
from kohakutpu.layouts import FP32
from kohakutpu.lower.resident.bands import ClusterBand, CoreBand, Pair
from kohakutpu.lower.resident.code import Program
from kohakutpu.lower.resident.match import Matcher, Stages, fed
from kohakutpu.lower.resident.ops import Chain, Held, NotResident, Product, Rows, Step
from kohakutpu.lower.resident.order import place, steps
from kohakutpu.lower.work import Work


def lower_resident(work: Work, stages: Stages) -> tuple[bool, tuple[str, ...]]:
    """(whether the whole kernel stays on chip, notes for the reader); if so its stages are appended to `work`.

    Where it does not, `work` is of no further use. Without a temporary that feeds a product there is nothing to say.
    """
    names = fed(stages)
    if not names or not work.machine.features.r2_vc_quant:
        return False, ()
    what = ", ".join(sorted(names.values()))
    if any(t.element == FP32 for t in work.tensors):
        return False, (f"{what} through memory: tensors are stored in FP32",)
    try:
        chain = Matcher(work, stages).match()
        found = steps(chain)
        scratch = _place(chain, found, work.machine)
        made = _bands(work.machine, chain, found, scratch)
    except NotResident as reason:
        line = f" ({reason.source})" if reason.source is not None else ""
        return False, (f"{what} through memory: {reason.reason}{line}",)
    except Refusal as refusal:
        return False, (f"{what} through memory: {refusal.rule}; got {refusal.got}",)
    work.stages.extend(made)
    return True, (f"{what} stay on chip: from a core into its cluster's L1, quantised", *chain.notes)


def _place(chain: Chain, found: Sequence[Step], machine: Machine) -> int:
    """L1 places, with as many accumulators in their own width as fit; a core's word that nothing uses."""
    if not machine.features.r2_acc_to_vc:
        return place(chain, found, machine)
    drained = [op.dst for op in chain.ops if isinstance(op, Product) and isinstance(op.dst, Held)]
    feeding = {
        id(o)
        for op in chain.ops
        if isinstance(op, Rows) and any(t.kind == "entries" for t in op.targets())
        for o in op.operands
    }
    scores = [h for h in drained if id(h) in feeding]
    why = ""
    for wide in (drained, scores, []):
        for h in drained:
            h.wide = h in wide
        try:
            scratch = place(chain, found, machine)
        except NotResident as reason:
            why = why or reason.reason
            continue
        names = list(dict.fromkeys(h.name for h in wide)) or ["nothing"]
        left = list(dict.fromkeys(h.name for h in drained if not h.wide))
        chain.notes.append(f"{', '.join(names)} from accumulators to cores in accumulator width")
        if left:
            chain.notes.append(f"{', '.join(left)} from accumulators to cores as FP16: {why}")
        return scratch
    raise NotResident(why)


def _pairs(machine: Machine) -> tuple[Pair, ...]:
    """Clusters and cores that work together, the nearest ones; as many as there are of the rarer kind."""
    clusters, cores = list(machine.units_of("MG", mesh=0)), list(machine.units_of("VC", mesh=0))
    found: list[Pair] = []
    while clusters and cores:
        core = cores.pop(0)
        near = min(clusters, key=lambda c: (abs(c.x - core.x) + abs(c.y - core.y), c.index))
        clusters.remove(near)
        found.append((near, core))
    return tuple(found)


def _programs(
    machine: Machine, chain: Chain, found: Sequence[Step], scratch: int, pairs: Sequence[Pair]
) -> list[tuple[Program, ...] | None]:
    """Per step the routines its cores need, loaded together with as many of the following as program memory holds."""
    made: list[tuple[Program, ...] | None] = []
    waiting: list[Rows] = []
    members: list[int] = []

    def build(routines: Sequence[Rows]) -> tuple[Program, ...]:
        source = routines[0].source
        return tuple(Program(machine, source, chain.gm, scratch, cluster, routines) for cluster, _ in pairs)

    def close() -> None:
        if waiting:
            done = build(waiting)
            for n in members:
                made[n] = done
        waiting.clear()
        members.clear()

    for number, step in enumerate(found):
        made.append(None)
        if not step.rows:
            continue
        known = {r.signature() for r in waiting}
        fresh = list({r.signature(): r for r in step.rows if r.signature() not in known}.values())
        if fresh and waiting:
            try:
                build([*waiting, *fresh])
            except (Refusal, NotResident):
                close()
                fresh = list({r.signature(): r for r in step.rows}.values())
        waiting += fresh
        members.append(number)
        if fresh:
            build(waiting)
    close()
    return made


def _bands(machine: Machine, chain: Chain, found: Sequence[Step], scratch: int) -> list[Stage]:
    """The stages of all groups of row tiles, one group after another."""
    pairs = _pairs(machine)
    if not pairs:
        raise NotResident("the machine has no pair of a cluster and a core")
    programs = _programs(machine, chain, found, scratch, pairs)
    stages: list[Stage] = []
    loaded: tuple[Program, ...] | None = None
    for first in range(0, len(chain.keys), len(pairs)):
        tiles = np.arange(first, min(first + len(pairs), len(chain.keys)))
        for step, program in zip(found, programs):
            bands: list[Band] = []
            if step.products or step.fills:
                source = (step.products or [p for p, _ in step.fills])[0].source
                bands.append(ClusterBand(machine, chain, step, tiles, pairs, source))
            if program is not None:
                source = step.rows[0].source
                bands.append(CoreBand(machine, chain, step, tiles, pairs, program, loaded is not program, source))
                loaded = program
            stages.append(Stage(tuple(bands)))
    return stages


__all__ = ["lower_resident"]
