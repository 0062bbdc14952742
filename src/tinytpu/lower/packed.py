"""Steps that do not read each other in one program: what they are made of, one behind the other.

Decides which neighbouring steps are small enough, and in which order their instructions take the fewest cycles: the
background vector unit works while the array does. It must not know statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kohakuaccel.graph import Statement
from kohakuaccel.machine import Machine
from tinytpu.lower.array.blocks import Matrix
from tinytpu.lower.array.chain import Chain
from tinytpu.lower.array.product import Product
from tinytpu.lower.data import Data
from tinytpu.lower.joined import Joined
from tinytpu.lower.program.code import Code, Leaf, Result, Source
from tinytpu.lower.program.fed import Fed
from tinytpu.lower.program.order import fastest
from tinytpu.lower.stage import Stage

Whole = Stage | Joined | Product | Chain
"""A step that is run; a chain shares its programs with nobody."""


@dataclass(frozen=True)
class Packed:
    """steps: each of one program; results and data plans of a later one are numbered behind those of the earlier."""

    machine: Machine
    steps: tuple[Whole, ...]
    fed: Fed
    cycles: int

    @property
    def statements(self) -> tuple[Statement, ...]:
        return tuple(s for step in self.steps for s in step.statements)

    @property
    def data(self) -> tuple[Data, ...]:
        """The data plans of all steps."""
        return tuple(data for step in self.steps for data in step.data)

    @property
    def product(self) -> Product | Joined | None:
        """The step that multiplies on the array."""
        return next((s for s in self.steps if isinstance(s, Product) or (isinstance(s, Joined) and s.product)), None)

    def text(self) -> str:
        p = self.fed.program
        names = "; ".join(", ".join(s.name for s in step.statements) for step in self.steps)
        return (
            f"{names}: 1 programs, {self.cycles} cycles; {len(self.steps)} steps side by side\n  1 x {len(p.rows)} "
            f"instructions, {len(p.data)} tiles, {len(self.fed.amem)} vectors, {len(self.fed.wmem)} weight tiles in, "
            f"{len(p.outputs)} out, {p.spills} spilled"
        )


def single(step: Whole) -> Fed | None:
    """The program of a step that is run once; None where there are several, or values leave it in another way."""
    match step:
        case Stage() if step.programs == 1 and step.layout.chunks == 1 and not step.checked:
            ((_, unit),) = step.runs()
            found = Fed(unit.programs[0], {}, {})
        case Joined() if step.programs == 1:
            part = step.parts[0]
            found = part.operands or Fed(part.programs[0], {}, {})
        case Product() if step.programs == 1 and isinstance(step.layout, Matrix) and not step.layout.outer:
            ((found,),) = step.units.values()
        case _:
            return None
    places = [place for _, place in found.program.outputs]
    return found if all(isinstance(place, Result) and place.number >= 0 for place in places) else None


def pack(steps: Sequence[Whole], machine: Machine) -> Packed | None:
    """Steps in order as one program, or None where they are not small enough."""
    feds = [single(step) for step in steps]
    programs = [fed for fed in feds if fed is not None]
    if len(programs) < len(steps) or sum(bool(fed.amem) for fed in programs) > 1:
        return None
    if sum(len(fed.program.rows) for fed in programs) > 2 * machine.params.program_words:
        return None
    code = Code()
    data = results = 0
    for step, fed in zip(steps, programs):
        _append(code, fed.program.code, data, results)
        data, results = data + len(step.data), results + len(step.outputs)
    fed = next((fed for fed in programs if fed.amem), programs[0])
    made = fastest(code, fed.amem, fed.wmem, machine)
    if made is None:
        return None
    return Packed(machine, tuple(steps), *made)


def _append(code: Code, other: Code, data: int, results: int) -> None:
    """Another code's live lines, with its numbers of data plans and results moved."""
    values: dict[int, int] = {}

    def value(old: int) -> int:
        if old not in values:
            values[old] = code.source(_moved(other.given[old], data))
        return values[old]

    for line in other.live():
        sources = {name: value(old) for name, old in line.sources}
        if line.place is not None:
            assert isinstance(line.place, Result)
            code.store(sources["src"], replace(line.place, number=line.place.number + results))
        elif line.dst is None or line.form in EFFECTS:
            made = code.effect(line.form, sources, dict(line.fields), made=line.dst is not None)
            if line.dst is not None:
                values[line.dst] = made
        else:
            values[line.dst] = code.emit(line.form, sources, dict(line.fields))


EFFECTS = ("LOAD_MXU_RESULT", "LOAD_MXU_MATRIX_ROW", "PSUM_READ", "PSUM_READ_ROW")
"""Forms whose value follows from state, so that equal ones are not the same."""


def _moved(source: Source, data: int) -> Source:
    return replace(source, data=source.data + data) if isinstance(source, Leaf) else source
