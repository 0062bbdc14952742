"""Runs of the known programs: values and cycles checked, a table, JSON or CSV (datasheet 16).

It decides what counts as right; a program whose values are wrong has no cycle count worth a name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from kohakuaccel.diagnostics import Refusal, did_you_mean
from kohakuaccel.machine import Machine
from tinytpu import machines, runner
from tinytpu.asm import assemble
from tinytpu.programs.kernels import KERNELS, Kernel, Program


@dataclass(frozen=True)
class Outcome:
    """A kernel's run: cycles as published and measured on the model, and work per cycle. cycles is 0 where the values
    were wrong."""

    kernel: str
    variant: str
    work: int
    published: int
    expected: int
    cycles: int
    values: bool

    @property
    def right(self) -> bool:
        """Whether values and cycles are the known ones."""
        return self.values and self.cycles == self.expected

    @property
    def rate(self) -> float:
        """Elements, or multiply-accumulates, per cycle."""
        return self.work / self.cycles if self.cycles else 0.0


def chosen(names: Iterable[str]) -> list[Kernel]:
    """Kernels whose name begins with one of `names`; all without one. Raises Refusal for a name of none."""
    wanted = list(names)
    for name in wanted:
        if not any(kernel.startswith(name) for kernel in KERNELS):
            raise Refusal(f"no kernel {name!r}{did_you_mean(name, KERNELS)}", where="tinytpu bench")
    return [k for k in KERNELS.values() if not wanted or any(k.name.startswith(name) for name in wanted)]


def _right(program: Program, machine: Machine) -> tuple[bool, int]:
    done = runner.run(assemble(program.text, machine), machine)
    if program.sums is not None:
        values = done.mxu_result is not None and np.array_equal(done.mxu_result, program.sums)
    else:
        values = len(done.vmem) == len(program.tiles) and all(map(np.array_equal, done.vmem, program.tiles))
    return bool(values), done.cycles


def measure(names: Iterable[str] = (), *, best: bool = True, seed: int = 1) -> list[Outcome]:
    """Run kernels as published and, with `best`, as good as we know, on the datasheet's machine."""
    machine = machines.load()
    found: list[Outcome] = []
    for kernel in chosen(names):
        for variant in ("published", "best") if best else ("published",):
            program = kernel.build(best=variant == "best", seed=seed)
            values, cycles = _right(program, machine)
            expected = kernel.best if variant == "best" else kernel.published
            shown = cycles if values else 0
            found.append(Outcome(kernel.name, variant, kernel.work, kernel.published, expected, shown, values))
    return found


def geomean(outcomes: Iterable[Outcome], variant: str) -> float:
    """The geometric mean of work per cycle over a variant's outcomes, 0 where one was wrong."""
    rates = [outcome.rate for outcome in outcomes if outcome.variant == variant]
    return math.exp(sum(map(math.log, rates)) / len(rates)) if rates and all(rates) else 0.0


def record(outcome: Outcome) -> Mapping[str, object]:
    """An outcome as JSON and CSV hold it."""
    return {**asdict(outcome), "rate": round(outcome.rate, 4), "right": outcome.right}


def report(outcomes: list[Outcome], form: str = "text") -> str:
    """The outcomes as text, json or csv. Raises Refusal for another form."""
    if form == "json":
        return json.dumps([record(outcome) for outcome in outcomes], indent=1)
    if form == "csv":
        rows = [record(outcome) for outcome in outcomes]
        return "\n".join([",".join(rows[0]), *(",".join(str(value) for value in row.values()) for row in rows)])
    if form != "text":
        raise Refusal("a form is text, json or csv", where="--format", got=repr(form))
    lines = [f"{'kernel':12} {'variant':10} {'cycles':>6} {'published':>9} {'of it':>6} {'work/cycle':>10}"]
    for o in outcomes:
        verdict = "" if o.right else "  WRONG VALUES" if not o.values else f"  NOT {o.expected}"
        of_it = f"{o.cycles / o.published:.0%}"
        lines.append(f"{o.kernel:12} {o.variant:10} {o.cycles:6} {o.published:9} {of_it:>6} {o.rate:10.3f}{verdict}")
    variants = dict.fromkeys(o.variant for o in outcomes)
    lines += [f"geometric mean of work per cycle, {name}: {geomean(outcomes, name):.3f}" for name in variants]
    return "\n".join(lines)
