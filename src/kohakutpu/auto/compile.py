"""From a graph to a plan: normalise, find stages, order them, write kernels, and try again where one is refused.

Decides what runs together and what is left to the host. It must not know views, tiles or layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from kohakuaccel.diagnostics import Refusal, Unsupported
from kohakuaccel.graph import Graph, Statement
from kohakuaccel.graph.rewrite import Rewrites
from kohakuaccel.graph.verify import verify
from kohakuaccel.machine import Machine
from kohakuaccel.numerics import FP32
from kohakutpu.auto.access import long
from kohakutpu.auto.emit import Emitted, Tiles, emit
from kohakutpu.auto.fusion import Sources, stage_of
from kohakutpu.auto.host import HostStep
from kohakutpu.auto.normalise import normalised
from kohakutpu.auto.plan import GraphPlan
from kohakutpu.auto.search import fastest, told
from kohakutpu.auto.stages import RowStage, Stage, TileStage
from kohakutpu.auto.steps import KernelStep, LibraryStep, Step
from kohakutpu.auto.storage import in_reach, operands_in_reach
from kohakutpu.auto.substitute import Cut, Substitution, cut, registered
from kohakutpu.lower.work import NOT_TURNED

Storage = Literal["half", "graph"]
Part = Stage | LibraryStep | str
"""A stage, a library's kernel, or a statement left to the host."""


def compile_graph(
    graph: Graph,
    machine: Machine,
    *,
    host: Literal["allow", "refuse"] = "allow",
    substitutions: Sequence[Substitution] | None = None,
    rewrites: Rewrites | None = None,
    storage: Storage = "half",
    search: int = 0,
) -> GraphPlan:
    """The plan of a graph on a machine.

    storage="graph": values that the graph types FP32 are stored so where a vector stage makes them, else (products) as
    FP16, which `pretty` says; an epilogue of such a product is a stage of its own. "half": all are FP16, but for what
    is computed from tensors that are stored in FP32.

    host="refuse": a statement that no unit computes is a Refusal that names it and the reason. substitutions: kernels
    that may stand for patterns (None: the registered ones). rewrites: what changes the graph first (None: the tidy
    rules and the shifted forms). search: of each extent of a kernel's products, so many tiles, the best by estimate,
    are played on the clock and the fastest is kept; bits do not depend on it. 0: the estimate's choice.
    """
    if search < 0:
        raise Refusal("a search tries a number of tiles", where="search", got=search, limit="0 or more")
    found = cut(verify(graph), registered() if substitutions is None else substitutions)
    return _Compiler(normalised(found.graph, rewrites), machine, host == "refuse", found, storage).plan(search)


class _Compiler:
    def __init__(self, graph: Graph, machine: Machine, refuse: bool, found: Cut, storage: Storage) -> None:
        self.by_graph = storage == "graph"
        self.narrow: dict[str, str] = {}
        """Values typed FP32 that are stored as FP16, and why."""
        self.graph, self.machine, self.refuse = operands_in_reach(graph, machine), machine, refuse
        self.found = found
        self.single: dict[str, str] = {}
        self.hosted: dict[str, str] = {}
        self.short: set[str] = set()

    def plan(self, search: int) -> GraphPlan:
        while True:
            try:
                steps = self._steps(self._parts())
            except _Again:
                continue
            steps, trials = self._searched(steps, search) if search else (steps, ())
            notes = tuple(f"{name} is computed by itself: {why}" for name, why in self.single.items())
            inner = frozenset(label for labels in self.found.labels for label in labels)
            if self.by_graph:
                notes += tuple(f"{name} is typed FP32 and stored as FP16: {why}" for name, why in self.narrow.items())
            return GraphPlan(self.graph, self.machine, steps, (*notes, *trials), inner, self._wide)

    @property
    def _wide(self) -> frozenset[str]:
        """Values that are stored in FP32."""
        if not self.by_graph:
            return frozenset()
        left = {*self.narrow, *(call.result for call in self.found.calls)}
        return frozenset(v.name for v in self.graph.values if v.dtype == FP32 and v.name not in left)

    @property
    def _library(self) -> list[LibraryStep]:
        """The kernels that stand for a part of the program; their operands are outputs of the graph."""
        named = dict(self.graph.outputs)
        return [
            LibraryStep(call.title, call.run, tuple(named[one] for one in labels), (call.result,), call.stands_for)
            for call, labels in zip(self.found.calls, self.found.labels)
        ]

    # what each statement becomes

    def _parts(self) -> list[Part]:
        """A stage or a host statement for every value that has to exist, in the order of the graph."""
        sources = Sources(self.graph, self.machine, self.single, self.short, self._wide)
        wanted = {name for _, name in self.graph.outputs}
        parts: list[Part] = []
        for value in reversed(self.graph.values):
            if not isinstance(value, Statement) or value.name not in wanted:
                continue
            part: Part = value.name
            if value.name not in self.hosted:
                try:
                    part = stage_of(sources, value)
                except Unsupported as problem:
                    changed = in_reach(sources, value)
                    if changed is not None:
                        self.graph = changed
                        raise _Again from problem
                    self._host(value.name, problem.rule)
            if isinstance(part, TileStage) and value.name in sources.wide:
                self.narrow[value.name] = "clusters drain it so"
                raise _Again
            parts.append(part)
            wanted.update(part.reads if isinstance(part, Stage) else (r.value for r in value.body.reads()))
        return [*self._library, *parts[::-1]]

    def _host(self, name: str, reason: str) -> None:
        if self.refuse:
            raise Refusal(
                "every statement is computed by the machine",
                where=f"statement {name}",
                got=reason,
                hint='allow host steps with host="allow", or write it in operations that the machine has',
            )
        self.hosted[name] = reason

    # what runs together

    def _steps(self, parts: list[Part]) -> tuple[Step, ...]:
        """Parts in as few steps as their order allows: stages that can go on do, then what the host can do."""
        steps: list[Step] = []
        made = {v.name for v in self.graph.values if not isinstance(v, Statement)}
        made.difference_update(call.result for call in self.found.calls)
        left = list(parts)
        groups: list[list[Part]] = []
        while left:
            for kind in (Stage, LibraryStep, str):
                group: list[Part] = []
                for part in list(left):
                    if isinstance(part, kind) and set(self._needs(part)) <= made:
                        group.append(part)
                        left.remove(part)
                        made.update(self._gives(part))
                        if kind is LibraryStep:
                            break
                if group:
                    groups.append(group)
        for number, group in enumerate(groups):
            later = {name for g in groups[number + 1 :] for part in g for name in self._needs(part)}
            kept = later | {name for _, name in self.graph.outputs}
            steps.append(self._step(group, frozenset(kept), steps))
        return tuple(steps)

    def _needs(self, part: Part) -> tuple[str, ...]:
        if isinstance(part, str):
            return tuple(dict.fromkeys(r.value for r in self.graph.statement(part).body.reads()))
        return part.reads if isinstance(part, Stage) else part.inputs

    def _gives(self, part: Part) -> tuple[str, ...]:
        return (part,) if isinstance(part, str) else (part.root.name,) if isinstance(part, Stage) else part.outputs

    def _step(self, group: list[Part], kept: frozenset[str], before: list[Step]) -> Step:
        gives = [name for part in group for name in self._gives(part)]
        exported = frozenset(name for name in gives if name in kept)
        (first, *_) = group
        if isinstance(first, LibraryStep):
            return first
        if isinstance(first, str):
            names = tuple(p for p in group if isinstance(p, str))
            needs = dict.fromkeys(n for p in names for n in self._needs(p) if n not in names)
            reason = "; ".join(dict.fromkeys(self.hosted[n] for n in names))
            return HostStep(names, reason, tuple(needs), tuple(n for n in names if n in exported), self._wide)
        stages = [p for p in group if isinstance(p, Stage)]
        return self._kernel(stages, exported, before)

    def _kernel(self, stages: list[Stage], exported: frozenset[str], before: list[Step]) -> KernelStep:
        name = f"auto{sum(isinstance(s, KernelStep) for s in before)}"
        emitted = self._emitted(stages, exported, name, {})
        try:
            return self._compiled(emitted, stages, before)
        except Refusal as problem:
            stage = emitted.lines.get(problem.source.line) if problem.source else None
            if stage is None or problem.source is None or problem.source.file != "graph":
                raise
            root = stage.root.name
            turned = [n for n in stage.reads if n in self._wide and isinstance(self.graph[n], Statement)]
            if problem.rule == NOT_TURNED and turned:
                self.narrow.update(dict.fromkeys(turned, f"{root} reads it in another order; {NOT_TURNED}"))
            elif len(stage.members) > 1:
                self.single[root] = problem.rule
            elif isinstance(stage, RowStage) and root not in self.short and len(long(stage.parts[0].columns)) > 1:
                self.short.add(root)  # before the host: rows of one axis may lie as the operands do
            else:
                self._host(root, f"{problem.where}: {problem.rule}")
            raise _Again from problem

    def _emitted(self, stages: Sequence[Stage], exported: frozenset[str], name: str, tiles: Tiles) -> Emitted:
        wide = self._wide if self.by_graph else None
        return emit(self.graph, self.machine, stages, exported, name, wide, tiles)

    def _compiled(self, emitted: Emitted, stages: Sequence[Stage], before: Sequence[Step]) -> KernelStep:
        hints = tuple(self._left_as(o.value, before) for o in emitted.inputs)
        return KernelStep(self.machine, emitted, stages, hints, self._wide)

    def _searched(self, steps: tuple[Step, ...], count: int) -> tuple[tuple[Step, ...], tuple[str, ...]]:
        """The steps with the fastest of `count` tiles in their kernels, and what was tried."""
        found: list[Step] = []
        notes: list[str] = []
        for step in steps:
            if isinstance(step, KernelStep):
                old = step

                def make(tiles: Tiles, old: KernelStep = old) -> KernelStep:
                    emitted = self._emitted(old.stages, frozenset(old.outputs), old.name, tiles)
                    return self._compiled(emitted, old.stages, found)

                try:
                    step, trials = fastest(make, self.machine, count)
                except (
                    Refusal
                ) as problem:  # an earlier kernel's new tiles leave its result in an order that this one cannot take
                    return steps, (f"no tiles were searched: {old.name} would be refused: {problem.rule}",)
                notes += told(step.name, trials)
            found.append(step)
        return tuple(found), tuple(notes)

    @staticmethod
    def _left_as(value: str, before: Sequence[Step]) -> Any:
        for step in reversed(before):
            if isinstance(step, KernelStep) and value in step.outputs:
                return step.left_as(value)
        return None


class _Again(Exception):
    """A stage was refused; the parts have to be found anew."""


__all__ = ["compile_graph"]
