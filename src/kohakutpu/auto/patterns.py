"""Patterns: graphs with free extents and free numbers, written with the functions of `graph.build`.

Decides what is free in a pattern and makes the graph that it is at given sizes. It must not know what is matched with
it, nor which kernel stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import Graph, Statement
from kohakuaccel.graph import build as g
from kohakuaccel.graph import rewrite as rw
from kohakuaccel.graph.build import Tensor as Value
from kohakuaccel.graph.index import Range
from kohakuaccel.numerics import FP16

TIDY = rw.Canonicalise() + rw.FoldConstants() + rw.CommonSubexpressions() + rw.DeadCode()
"""The spelling in which patterns and programs are compared. Movement is looked through by the comparison itself."""

PROBES = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157)
"""Extents that stand for free ones where a pattern's form is looked at before its sizes are known."""

NUMBER = 1.0000019073486328
"""Numbers that stand for free ones are this, and this plus multiples of 2**-40: no program has them by chance."""


@dataclass
class Pattern:
    """What a pattern function is given: `input`, `number`, `size` and `whole` say what is free in it.

    lead: how many axes `...` stands for. sizes: extents by name; where one is missing, a probe is taken. divisors: a
    size that divides another one, which is that one in a probe.
    """

    lead: int
    sizes: dict[str, int]
    divisors: Mapping[str, str]
    builder: g.Builder = field(default_factory=g.Builder)
    stretched: set[str] = field(default_factory=set[str])
    numbers: dict[float, tuple[str, float | None]] = field(default_factory=dict[float, tuple[str, float | None]])
    wholes: list[str] = field(default_factory=list[str])
    asked: list[str] = field(default_factory=list[str])

    def input(self, name: str, dims: str, stretched: bool = False) -> Value:
        """An operand. dims: the names of its axes' extents, as "... M N"; the same name is the same extent, 1 is 1.

        stretched: the kernel takes an axis of extent 1 where the program's operand repeats along it.
        """
        shape = tuple(1 if dim == "1" else self.size(dim) for dim in self._axes(dims))
        made = self.builder.input(name, shape, FP16)
        if stretched:
            self.stretched.add(name)
        return made

    def number(self, name: str, default: float | None = None) -> float:
        """Any number, one for all its uses. Use it as it is: what is computed from it is not recognised.

        default: what it is where the program has no product with a number (then 1.0), or no sum with one (0.0).
        """
        made = NUMBER + len(self.numbers) * 2.0**-40
        self.numbers[made] = name, default
        return made

    def size(self, name: str) -> int:
        """A free extent."""
        if name not in self.sizes and name in self.divisors:
            self.sizes[name] = self.size(self.divisors[name])
        elif name not in self.sizes:
            self.sizes[name] = PROBES[len(self.sizes)]
            self.asked.append(name)
        return self.sizes[name]

    def whole(self, name: str, default: int) -> int:
        """A whole number that the proposal knows (a stride, say); the kernel is told. default: for the probe."""
        if name not in self.wholes:
            self.wholes.append(name)
        return self.sizes.setdefault(name, default)

    def _axes(self, dims: str) -> list[str]:
        found: list[str] = []
        for word in dims.split():
            found += [f"lead{n}" for n in range(self.lead)] if word == "..." else [word]
        return found


PatternFunction = Callable[[Pattern], Value]


@dataclass(frozen=True)
class Instance:
    """A pattern at sizes: its graph, the value it stands for, and what its names mean."""

    graph: Graph
    root: str
    sizes: Mapping[str, int]
    numbers: Mapping[float, tuple[str, float | None]]
    stretched: frozenset[str]
    wholes: tuple[str, ...]
    probed: frozenset[str]

    @property
    def statement(self) -> Statement:
        """The root's statement."""
        return self.graph.statement(self.root)

    def unknown(self, extent: int) -> str | None:
        """The name of the free size that an extent of the probe stands for."""
        return next((name for name in self.probed if self.sizes[name] == extent), None)

    def ranges(self) -> tuple[Range, ...]:
        """Axes of the result."""
        return self.statement.ranges


@lru_cache(maxsize=512)
def instantiate(
    pattern: PatternFunction, lead: int, sizes: tuple[tuple[str, int], ...], divisors: tuple[tuple[str, str], ...] = ()
) -> Instance | None:
    """The pattern at these sizes, probes for those that are not given; None where it has no such form."""
    made = Pattern(lead, dict(sizes), dict(divisors))
    try:
        value = pattern(made)
    except Refusal:
        return None
    # A comparison needs the spelling of each statement only; that the graph is right is held by the tests.
    graph = rw.Canonicalise().rewrite(Graph(tuple(made.builder.names.values()), ((value.name, value.name),)))
    rest = made.numbers, frozenset(made.stretched), tuple(made.wholes), frozenset(made.asked)
    return Instance(graph, value.name, made.sizes, *rest)
