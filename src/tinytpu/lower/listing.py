"""The programs of a plan's steps, each once with how often it runs: what reports and dumps walk over.

Decides nothing; it must not know what a program computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tinytpu.lower.array.chain import Chain, Linked
from tinytpu.lower.array.product import Product
from tinytpu.lower.joined import Joined
from tinytpu.lower.packed import Packed
from tinytpu.lower.program.allocate import Program
from tinytpu.lower.program.fed import Fed
from tinytpu.lower.stage import Stage
from tinytpu.lower.steps import Addresses, Multiplied, Shared, Step

Own = Stage | Joined | Product | Chain | Packed | Addresses


@dataclass(frozen=True)
class Listed:
    """A program, how often it runs, and what fills the array's memories."""

    program: Program
    count: int
    fed: Fed | Linked | None = None


def own(step: Step) -> Own:
    """What a step runs where its operands are as planned: a product for the array runs on it."""
    if isinstance(step, Shared):
        return step.packed
    return step.product if isinstance(step, Multiplied) else step


def listed(step: Step) -> Iterator[Listed]:
    """Every program of a step once."""
    match own(step):
        case Product(layout=layout, units=units):
            for key, first in layout.groups().items():
                for fed in units[key]:
                    yield Listed(fed.program, len(first), fed)
        case Chain(layout=layout, units=linked):
            for key, first in layout.groups().items():
                yield Listed(linked[key].program, len(first), linked[key])
        case Joined(parts=parts):
            times = Counter(id(part.programs) for part in parts)
            for part in {id(part.programs): part for part in parts}.values():
                for program in part.programs:
                    yield Listed(program, times[id(part.programs)], part.operands)
        case Packed(fed=fed):
            yield Listed(fed.program, 1, fed)
        case Stage(units=units, counts=counts):
            for unit, count in zip(units, counts):
                for program in unit.programs:
                    yield Listed(program, count)
        case Addresses():
            pass
