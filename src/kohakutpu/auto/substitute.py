"""Kernel substitution: which parts of a graph a hand-written kernel stands for, and the graph cut around its calls.

Decides matches, in the order of registration, and the order of graphs and calls. It must not know how a graph is
scheduled, nor what a kernel does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import Graph, Input, Statement
from kohakuaccel.graph.expr import Read
from kohakuaccel.graph.index import Index, Range
from kohakuaccel.graph.model import Value
from kohakuaccel.graph.rewrite import DeadCode
from kohakutpu.auto.patterns import TIDY, Instance, PatternFunction, instantiate
from kohakutpu.auto.patterns_match import Matcher, State, moved, operand_ranges

if TYPE_CHECKING:
    from kohakutpu.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])
Sizes = Mapping[str, int]
Propose = Callable[[Graph, Statement], Iterable[Sizes]]
When = Callable[[Sizes], bool]
MOST = 64
"""Proposals of sizes that are compared for one statement and pattern."""


@dataclass(frozen=True)
class Substitution:
    """A kernel that may stand for a pattern.

    kernel: called with the operands, numbers and whole numbers by the pattern's names; returns the value, in the
    pattern's shape (a reshape of it counts). divisors: a free size that only index maps show, by the size it divides.
    least: elements of the largest value of a graph without which no match can be; asked first.
    propose: sizes worth comparing at a statement (`lead0`, `lead1`, ... for the axes that `...` stands for), where the
    pattern's own form does not tell them. when: a condition on the sizes. needs: a condition on the whole graph, asked
    once, without which no statement is looked at.
    """

    name: str
    pattern: PatternFunction
    kernel: Callable[..., Any]
    divisors: tuple[tuple[str, str], ...] = ()
    propose: Propose | None = None
    when: When | None = None
    needs: Callable[[Graph], bool] | None = None
    least: int = 0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Call:
    """A kernel in the place of a part of the graph. operands: (the kernel's name for it, the graph's name)."""

    substitution: Substitution
    operands: tuple[tuple[str, str], ...]
    knobs: tuple[tuple[str, float | int], ...]
    result: str
    shape: tuple[int, ...]
    stands_for: tuple[str, ...]

    @property
    def title(self) -> str:
        """The kernel, its operands and numbers."""
        knobs = "".join(f", {name}={value:g}" for name, value in self.knobs)
        return f"{self.substitution.name}({', '.join(name for _, name in self.operands)}{knobs})"

    def __str__(self) -> str:
        return f"{self.result} = {self.title}"

    def run(self, *operands: Tensor) -> Tensor:
        """The kernel's result for these operands, under the shape that the graph gives it."""
        given = {name: value for (name, _), value in zip(self.operands, operands)}
        made = self.substitution.kernel(**given, **dict(self.knobs))
        return made if made.shape == self.shape else made.reshape(self.shape)


_registered: list[Substitution] = []


def substitute(
    pattern: PatternFunction,
    *,
    name: str | None = None,
    divisors: Mapping[str, str] | None = None,
    propose: Propose | None = None,
    when: When | None = None,
) -> Callable[[F], F]:
    """Decorator: the function may stand for `pattern` in every graph that is compiled from now on.

    The latest registration is tried first, so a kernel of a user's own goes before the library's. See `Substitution`.
    """

    def register(kernel: F) -> F:
        label = name or getattr(kernel, "__name__", type(kernel).__name__)
        known = tuple((divisors or {}).items())
        _registered.insert(0, Substitution(label, pattern, kernel, known, propose, when))
        return kernel

    return register


def registered() -> tuple[Substitution, ...]:
    """The substitutions that are tried, in order: those of users, then the library's, greater patterns first."""
    from kohakutpu.auto.substitute_library import DEFAULT

    return (*_registered, *DEFAULT)


def unregister(name: str) -> None:
    """Forget what a user registered under a name. Refused: a name that nobody registered."""
    kept = [s for s in _registered if s.name != name]
    if len(kept) == len(_registered):
        raise Refusal(
            "a substitution that was registered", where="substitute", got=name, limit=", ".join(map(str, _registered))
        )
    _registered[:] = kept


# finding


def _at(substitution: Substitution, graph: Graph, root: Statement) -> Iterator[tuple[Instance, State]]:
    """Every exact match of a pattern at a statement."""
    tried: set[tuple[tuple[str, int], ...]] = set()
    for lead, sizes in _proposed(substitution, graph, root):
        key = tuple(sorted(sizes.items()))
        if key in tried or len(tried) >= MOST:
            continue
        tried.add(key)
        instance = instantiate(substitution.pattern, lead, key)
        if instance is None or instance.probed or (substitution.when and not substitution.when(sizes)):
            continue
        for state in Matcher(instance, graph, loose=False).matches(root):
            yield instance, state


def _proposed(substitution: Substitution, graph: Graph, root: Statement) -> Iterator[tuple[int, dict[str, int]]]:
    """How many axes `...` stands for, and sizes."""
    if substitution.propose is not None:
        for sizes in substitution.propose(graph, root):
            yield sum(name.startswith("lead") for name in sizes), dict(sizes)
        return
    bare = instantiate(substitution.pattern, 0, (), substitution.divisors)
    lead = -1 if bare is None else len(root.ranges) - len(bare.ranges())
    probe = instantiate(substitution.pattern, lead, (), substitution.divisors) if lead >= 0 else None
    if probe is None or len(probe.ranges()) != len(root.ranges):
        return
    divided = dict(substitution.divisors)
    for state in Matcher(probe, graph, loose=True).matches(root):
        known = {name: size for name, size in state.sizes.items() if name not in divided}
        if set(known) | set(divided) != set(probe.sizes):
            continue
        choices = [[d for d in range(1, known[of] + 1) if known[of] % d == 0] for of in divided.values()]
        for chosen in product(*choices):
            yield lead, known | dict(zip(divided, chosen))


def _exclusive(graph: Graph, root: Statement, state: State) -> bool:
    """Whether nobody else reads, and no output is, what the kernel would not produce."""
    inside = state.inside - {root.name}
    outputs = {name for _, name in graph.outputs}
    for name in inside:
        statement = graph.statement(name)
        moves = not statement.reduction and isinstance(statement.body, Read)
        known = not any(True for _ in statement.body.reads())
        if (
            not moves
            and not known
            and (name in outputs or any(r.name not in state.inside for r in graph.readers(name)))
        ):
            return False
    return True


def find(graph: Graph, substitutions: Sequence[Substitution]) -> tuple[dict[str, Value], list[Call]]:
    """The values of a tidied graph with operands of kernels made, and the calls; a call's result is still a statement.

    A statement is part of one match at most.
    """
    values = dict(graph.by_name)
    calls: list[Call] = []
    taken: set[str] = set()
    for substitution in substitutions:
        if substitution.needs is not None and not substitution.needs(graph):
            continue
        for root in reversed(graph.statements):
            if root.name in taken:
                continue
            for instance, state in _at(substitution, graph, root):
                if state.inside & taken or not _exclusive(graph, root, state):
                    continue
                calls.append(_called(substitution, instance, state, root, values))
                taken |= state.inside | {root.name}
                break
    return values, calls


def _called(
    substitution: Substitution, instance: Instance, state: State, root: Statement, values: dict[str, Value]
) -> Call:
    operands: list[tuple[str, str]] = []
    for source in instance.graph.inputs:
        expr, axes = state.operands[source.name], operand_ranges(source)
        if source.name in instance.stretched:
            axes = tuple(r if r in expr.ranges() else Range(r.name, 1) for r in axes)
        operands.append((source.name, _operand(expr, axes, root, source.name, values)))
    knobs: list[tuple[str, float | int]] = [*state.numbers.items()]
    knobs += [(name, instance.sizes[name]) for name in instance.wholes]
    inside = tuple(name for name in values if name in state.inside | {root.name})
    return Call(substitution, tuple(operands), tuple(knobs), root.name, root.shape, inside)


def _operand(expr: Any, axes: tuple[Range, ...], root: Statement, name: str, values: dict[str, Value]) -> str:
    """The value that an operand is: one of the graph where it is read as it is, else a statement made for it."""
    shape = tuple(r.extent for r in axes)
    seen: Any = expr
    while isinstance(seen, Read):
        plain = all(i in (Index.of(r), Index.of(r if r.extent > 1 else 0)) for i, r in zip(seen.indices, axes))
        if plain and not seen.guards and values[seen.value].shape == shape:
            return seen.value
        seen = moved(seen, values)
    dtype = values[expr.value].dtype if isinstance(expr, Read) else root.dtype
    made = Statement("", dtype, axes, expr)
    for known in values.values():
        if isinstance(known, Statement) and replace(known, name="") == made:
            return known.name
    stem = f"{root.name}_{name}"
    fresh = next(n for n in (stem, *(f"{stem}_{k}" for k in range(len(values) + 1))) if n not in values)
    values[fresh] = replace(made, name=fresh)
    return fresh


# cutting


@dataclass(frozen=True)
class Cut:
    """A graph without what kernels stand for. A call's result is an input of the graph, its operands are outputs.

    labels: of every call, the labels of its operands, which no output of the program has.
    """

    graph: Graph
    calls: tuple[Call, ...] = ()
    labels: tuple[tuple[str, ...], ...] = ()


def cut(graph: Graph, substitutions: Sequence[Substitution]) -> Cut:
    """The graph cut around every match; the graph itself where there is none."""
    largest = max((prod(v.shape) for v in graph.values), default=0)
    substitutions = [s for s in substitutions if s.least <= largest]
    tidied = TIDY.apply(graph) if substitutions else graph
    values, calls = find(tidied, substitutions) if substitutions else ({}, [])
    if not calls:
        return Cut(graph)
    for call in calls:
        root = values[call.result]
        values[call.result] = Input(root.name, root.shape, root.dtype)
    stem = "operand"
    while any(name.startswith(stem) for name, _ in graph.outputs):
        stem += "_"
    labels = tuple(tuple(f"{stem}{n}_{name}" for name, _ in call.operands) for n, call in enumerate(calls))
    operands = [(one, v) for names, call in zip(labels, calls) for one, (_, v) in zip(names, call.operands)]
    whole = Graph(tuple(_ordered(values)), (*tidied.outputs, *operands))
    return Cut(DeadCode().apply(whole), tuple(calls), labels)


def _ordered(values: Mapping[str, Value]) -> Iterator[Value]:
    """Sources first: operands were made at the end, results of calls are inputs now."""
    done: set[str] = set()
    for name in values:
        open_ = [name]
        while open_:
            value = values[open_[-1]]
            reads = {r.value for r in value.body.reads()} if isinstance(value, Statement) else set[str]()
            missing = [source for source in reads if source not in done]
            if missing:
                open_ += missing
                continue
            open_.pop()
            if value.name not in done:
                done.add(value.name)
                yield value
