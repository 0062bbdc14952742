"""Result lines of a simulator, strictly read: mxu_result, vmem_result, asram_result, cycles, status (datasheet 2).

It decides which text is a complete answer; who wrote it does not matter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kohakuaccel.diagnostics import Fault, Refusal, SourceLine
from kohakuaccel.machine import Machine

_INTEGER = re.compile(r"-?[0-9]+")
_ORDER = ("mxu_result", "vmem_result", "asram_result", "cycles", "status")
_ONCE = ("mxu_result", "cycles", "status")


@dataclass(frozen=True)
class Results:
    """What a run answered: the column sums if they were asked for, a tile (flat) or vector per output, the cycles."""

    cycles: int
    mxu: tuple[int, ...] | None = None
    vmem: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    amem: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])


def parse(text: str, machine: Machine, file: str = "results") -> Results:
    """The results in a simulator's output. Raises Refusal with the line for a wrong one, an unknown one, a missing
    `cycles` or `status ok`; Fault for a line that begins with `error`."""
    p = machine.params
    widths = {"mxu_result": p.columns, "vmem_result": p.rows * p.columns, "asram_result": p.rows, "cycles": 1}
    found: dict[str, list[tuple[int, ...]]] = {name: [] for name in widths}
    done = False
    last = -1
    source = SourceLine(file, 0)
    for number, line in enumerate(text.splitlines(), 1):
        source = SourceLine(file, number, line.strip())
        name, *words = line.split() or [""]
        if not name:
            continue

        def refuse(rule: str, got: object, limit: object = None, source: SourceLine = source) -> Refusal:
            return Refusal(rule, where=f"line {source.line}", got=got, limit=limit, source=source)

        if name.rstrip(":").lower() == "error":
            raise Fault(" ".join(words) or "an error without a text", unit=f"line {number}", source=source)
        if done:
            raise refuse("nothing follows the status", repr(line.strip()))
        if name not in _ORDER:
            raise refuse("no such result", repr(name), ", ".join(_ORDER))
        if _ORDER.index(name) < last or (_ORDER.index(name) == last and name in _ONCE):
            raise refuse("results come in one order", name, ", ".join(_ORDER))
        last = _ORDER.index(name)
        if name == "status":
            if words != ["ok"]:
                raise refuse("a run that worked ends with status ok", repr(" ".join(words)), "ok")
            done = True
            continue
        wrong = next((word for word in words if not _INTEGER.fullmatch(word)), None)
        if wrong is not None:
            raise refuse(f"a value of {name} is an integer", repr(wrong))
        if len(words) != widths[name]:
            raise refuse(f"{name} is whole", f"{len(words)} values", widths[name])
        found[name].append(tuple(int(word) for word in words))
    if not found["cycles"] or not done:
        missing = "status ok" if found["cycles"] else "cycles"
        raise Refusal(f"the answer holds no {missing}", where=file, got=f"{source.line} lines", source=source)
    mxu = found["mxu_result"][0] if found["mxu_result"] else None
    return Results(found["cycles"][0][0], mxu, found["vmem_result"], found["asram_result"])
