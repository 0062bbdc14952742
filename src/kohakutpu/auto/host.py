"""Host steps: statements that no unit of the machine computes, run by the graph's own interpreter.

Decides what a host step is and what it counts. It must not know stages or plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from kohakuaccel.graph import Graph
from kohakuaccel.graph.run import evaluate


@dataclass(frozen=True)
class HostStep:
    """Statements computed in float64 and exact integers. inputs, outputs: the values it takes and leaves."""

    statements: tuple[str, ...]
    reason: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, graph: Graph, values: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """What it leaves, by name; values: at least `inputs`, as `kohakuaccel.graph.run` holds them."""
        known = dict(values)
        for name in self.statements:
            known[name] = evaluate(graph.statement(name), known)
        return {name: known[name] for name in self.outputs}

    def pretty(self) -> str:
        """One line: what is computed on the host, and why."""
        return f"host  {', '.join(self.statements)}: {self.reason}"
