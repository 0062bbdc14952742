"""How busy the machine's units are in a plan: each program once, with a log.

No program of a plan branches on what it computes, so one run on zeros tells the cycles of all. Decides what is summed;
which cycles are work is the trace's.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from tinytpu.lower import Plan
from tinytpu.lower.listing import listed
from tinytpu.trace.spans import UNITS, timeline
from tinytpu.units.core import Image, execute


def occupancy(plan: Plan) -> dict[str, float]:
    """Parts of the plan's cycles, its loading and output included, in which each unit works; "load" is the part in
    which records are read. Empty for a plan without programs."""
    machine = plan.machine
    rows, lanes = int(machine.params.rows), int(machine.params.rows * machine.params.columns)
    busy: Counter[str] = Counter()
    cycles = 0
    for step in plan.steps:
        for one in listed(step):
            program = one.program
            wmem = {slot: np.zeros(lanes, np.int8) for slot in (one.fed.wmem if one.fed else ())}
            amem = {slot: np.zeros(rows, np.int8) for slot in (one.fed.amem if one.fed else ())}
            vmem = {slot: np.zeros(lanes, np.int32) for slot, _ in program.data}
            outputs = [slot for slot, _ in program.outputs]
            run = execute(machine, Image(program.rows, vmem=vmem, wmem=wmem, amem=amem, vmem_outputs=outputs), log=True)
            cycles += run.cycles * one.count
            busy["load"] += run.load_cycles * one.count
            for share in timeline(run).shares():
                busy[share.group] += share.busy * one.count
    return {name: busy[name] / cycles for name in ("load", *UNITS)} if cycles else {}
