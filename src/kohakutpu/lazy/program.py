"""A recording, compiled: plans of graphs and calls of kernels in the order in which they run.

Decides what is handed from one to the next, and at whose line a refusal points. It must not know how graphs are
scheduled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kohakuaccel.diagnostics import KohakuError, Refusal, SourceLine
from kohakuaccel.graph import Graph
from kohakutpu import recording
from kohakutpu.lazy.recorder import CallPart, GraphPart, Part
from kohakutpu.tensor import Tensor

if TYPE_CHECKING:
    from kohakuaccel.machine import Machine
    from kohakutpu.auto import GraphPlan, Substitution
    from kohakutpu.device import Device

Host = Literal["allow", "refuse"]
PLANS_KEPT = 64


@dataclass(frozen=True)
class Options:
    """How a recording is compiled: see `kohakutpu.auto.compile_graph`."""

    host: Host = "allow"
    substitutions: tuple[Substitution, ...] | None = None
    search: int = 0

    @staticmethod
    def of(host: str, substitutions: Sequence[Substitution] | None, search: int = 0) -> Options:
        """Checked options."""
        if host == "allow" or host == "refuse":
            return Options(host, None if substitutions is None else tuple(substitutions), search)
        raise Refusal("steps of the host are allowed or refused", where="host", got=repr(host), limit="allow, refuse")


@dataclass(frozen=True)
class Planned:
    """A graph's plan and the numbers of its inputs and outputs."""

    plan: GraphPlan
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Program:
    """What a recording became: `steps` in order, each a plan or a call of a kernel between two plans."""

    steps: tuple[Planned | CallPart, ...]

    @property
    def plans(self) -> tuple[GraphPlan, ...]:
        """The plans of its graphs."""
        return tuple(step.plan for step in self.steps if isinstance(step, Planned))

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """Its graphs, as rewritten."""
        return tuple(plan.graph for plan in self.plans)

    @property
    def host_steps(self) -> tuple[Any, ...]:
        """Steps of the host, in order."""
        return tuple(step for plan in self.plans for step in plan.host_steps)

    def pretty(self) -> str:
        """Every step; calls of kernels between graphs as such."""
        return "\n".join(step.plan.pretty() if isinstance(step, Planned) else _told(step) for step in self.steps)

    def run(self, values: dict[int, Tensor], device: Device) -> dict[int, Tensor]:
        """`values` and everything computed from them, by number."""
        with recording.by(None):
            for step in self.steps:
                if isinstance(step, Planned):
                    made = step.plan.run({name: values[n] for name, n in step.inputs}, device=device)
                    for label, n in step.outputs:
                        values[n] = made[label]
                else:
                    values.update(zip(step.results, _call(step, values)))
        return values


def _told(call: CallPart) -> str:
    at = f"  at {call.source.file}:{call.source.line}" if call.source else ""
    shapes = ", ".join("-" if ref is None else "x".join(map(str, ref[1])) for ref in call.operands)
    return f"call  kernel {call.kernel.__name__}({shapes}): no expression of the graph, as it was asked for{at}"


def _call(step: CallPart, values: Mapping[int, Tensor]) -> tuple[Tensor, ...]:
    operands = [None if ref is None else values[ref[0]].reshape(ref[1]) for ref in step.operands]
    try:
        made = step.kernel(*operands, **step.knobs)
    except KohakuError as error:
        error.source = error.source or step.source
        raise
    return made if isinstance(made, tuple) else (made,)


Compile = Callable[..., "GraphPlan"]
_plans: OrderedDict[object, GraphPlan] = OrderedDict()
"""Plans by graph, machine and options, the last `PLANS_KEPT`: a block that is recorded again is compiled once."""


def compiled(parts: Sequence[Part], machine: Machine, options: Options) -> Program:
    """The program of a recording. A refusal that names a statement carries the line that wrote it."""
    return Program(tuple(_planned(p, machine, options) if isinstance(p, GraphPart) else p for p in parts))


def _planned(part: GraphPart, machine: Machine, options: Options) -> Planned:
    from kohakutpu.auto import compile_graph, registered

    chosen = registered() if options.substitutions is None else options.substitutions
    key = part.graph, machine.fingerprint, options.host, chosen, options.search
    plan = _plans.get(key)
    if plan is None:
        try:
            plan = compile_graph(part.graph, machine, host=options.host, substitutions=chosen, search=options.search)
        except KohakuError as error:
            error.source = _line(error, part.lines) or error.source
            raise
        _plans[key] = plan
        if len(_plans) > PLANS_KEPT:
            _plans.popitem(last=False)
    else:
        _plans.move_to_end(key)
    return Planned(plan, tuple(part.inputs.items()), tuple(part.outputs.items()))


def _line(error: KohakuError, lines: Mapping[str, SourceLine]) -> SourceLine | None:
    """The line of the first statement that an error's place names."""
    words = error.where.replace(",", " ").split()
    return next((lines[word] for word in words if word in lines), None)
