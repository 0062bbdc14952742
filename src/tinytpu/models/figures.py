"""What a network costs on the machine, layer by layer: cycles, how busy each engine is, what the host fills.

Decides which layer a step of the plan counts for. All figures are modelled, and known before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.sim import Timeline
from tinytpu.lower import Plan
from tinytpu.lower.listing import own
from tinytpu.lower.steps import Addresses, Step
from tinytpu.models.network import Lowered
from tinytpu.models.quantisation import Quantised
from tinytpu.recording import Played
from tinytpu.trace.planned import Took, took
from tinytpu.trace.spans import UNITS
from tinytpu.trace.whole import whole


@dataclass(frozen=True)
class LayerFigures:
    """One layer, or several that share programs. macs: multiplications that the layer is, of the whole batch."""

    name: str
    took: Took
    macs: int


@dataclass(frozen=True)
class Figures:
    """A plan for a batch of examples. peak: multiplications a cycle that the array can do."""

    batch: int
    peak: int
    clock_mhz: int
    layers: tuple[LayerFigures, ...]
    total: LayerFigures

    @property
    def cycles(self) -> float:
        """Of one example."""
        return self.total.took.cycles / self.batch

    def text(self) -> str:
        """A table: of each layer cycles and records an example, and parts of its cycles."""
        head = ("layer", "cycles", "of peak", "load", *UNITS, "records", "bytes")
        rows = [head, *(self._row(layer) for layer in (*self.layers, self.total))]
        widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
        lines = ["  ".join(c.rjust(w) if n else c.ljust(w) for n, (c, w) in enumerate(zip(r, widths))) for r in rows]
        rate = self.clock_mhz * 1e6 / self.cycles
        return "\n".join([*lines, f"a batch of {self.batch}: {rate:,.0f} examples a second at {self.clock_mhz} MHz"])

    def _row(self, layer: LayerFigures) -> tuple[str, ...]:
        one = layer.took
        return (
            layer.name,
            f"{one.cycles / self.batch:,.0f}",
            f"{layer.macs / (one.cycles * self.peak):.1%}",
            f"{one.load / one.cycles:.0%}",
            *(f"{one.share(unit):.0%}" for unit in UNITS),
            f"{one.records / self.batch:,.0f}",
            f"{one.nbytes / self.batch:,.0f}",
        )


def figures(network: Quantised, made: Lowered, plan: Plan) -> Figures:
    """Of the plan of a network's graph."""
    machine = plan.machine
    batch = plan.graph.inputs[0].shape[0]
    macs = network.macs()
    steps: dict[str, list[Step]] = {}
    for step in plan.steps:
        steps.setdefault(_title(step, made), []).append(step)
    # A layer's product stands first; what else a later step does of it multiplies nothing.
    layers = tuple(
        LayerFigures(name, took(machine, some), batch * sum(macs.pop(part, 0) for part in name.split(" + ")))
        for name, some in steps.items()
    )
    total = LayerFigures("all", took(machine, plan.steps), batch * sum(network.macs().values()))
    peak = int(machine.params.rows * machine.params.columns)
    return Figures(batch, peak, int(machine.params.clock_mhz), layers, total)


def timeline_of(made: Lowered, played: Sequence[Played], name: str) -> Timeline:
    """What a run of the network played (see `tinytpu.recording`) on one timeline, under the names of its layers.

    Raises Refusal for a recording without programs, and for programs of something else."""
    if not played:
        raise Refusal("a recording holds the programs of a run", where=name, got=0, hint="run the plan within it")
    return whole([replace(one, name=_layers(one.name.split(", "), made)) for one in played], name, played[0].machine)


def _layers(statements: Iterable[str], made: Lowered) -> str:
    """The layers of statements, in order."""
    found: list[str] = []
    for name in statements:
        if name not in made.layers:
            raise Refusal("a program is of the network's statements", where="timeline", got=name)
        found.append(made.layers[name])
    return " + ".join(dict.fromkeys(found))


def _title(step: Step, made: Lowered) -> str:
    """The layers of a step's statements, in order."""
    one = own(step)
    statements = (one.statement,) if isinstance(one, Addresses) else one.statements
    return _layers((s.name for s in statements), made)
