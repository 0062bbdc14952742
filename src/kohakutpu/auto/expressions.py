"""What one stage computes, as one expression: bodies of statements put into each other, folds and accumulators inside.

Decides how statements become one expression and what the machine can compute of it. It must not know views, tiles or
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kohakuaccel.diagnostics import Unsupported
from kohakuaccel.graph import Cast, Const, Expr, Index, Iota, Op, Range, Read
from kohakuaccel.graph.model import ReduceOp, Statement
from kohakuaccel.lang.values import Apply, Constant, Reduce, Value
from kohakutpu import lang as L
from kohakutpu.auto.access import digits, over


@dataclass(frozen=True, slots=True)
class Fold(Expr):
    """A row reduction inside an expression: `op` over the stage's columns."""

    op: ReduceOp
    arg: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Fold(self.op, children[0])

    def __str__(self) -> str:
        return f"{self.op}({self.arg})"


@dataclass(frozen=True, slots=True)
class Accumulator(Expr):
    """A contraction's element at the place that the stage stores. indices: the contraction's ranges there."""

    name: str
    indices: tuple[Index, ...]

    def ranges(self) -> frozenset[Range]:
        return frozenset(r for i in self.indices for r in i.ranges())

    def __str__(self) -> str:
        return self.name


ROW_FOLDS: tuple[ReduceOp, ...] = ("sum", "max", "min")
_WORDS = "add sub mul div less equal max min fma where neg abs exp2 log2 sqrt rsqrt recip and or not"
COMPUTED = frozenset(_WORDS.split())
"""Scalar operations that the vector cores have, truth values being 1.0 and 0.0."""


def nodes(expr: Expr) -> Iterator[Expr]:
    """Every node of an expression once, gathers' own expressions not included."""
    seen: set[int] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(node.children)


def reads(expr: Expr) -> list[Read]:
    """Every distinct read of an expression."""
    return list(dict.fromkeys(n for n in nodes(expr) if isinstance(n, Read)))


def expanded(
    expr: Expr,
    members: Mapping[str, Statement],
    columns: tuple[Range, ...],
    contractions: frozenset[str] = frozenset(),
) -> Expr:
    """`expr` with reads of members replaced by what they compute; members that reduce become folds over `columns`."""
    done: dict[int, Expr] = {}
    by_read: dict[Read, Expr] = {}
    kept: list[Expr] = []  # keeps ids alive

    def inside(read: Read) -> Expr:
        if read not in by_read:
            member = members[read.value]
            if read.value in contractions:
                by_read[read] = Accumulator(read.value, read.indices)
            elif member.reduction is None:
                by_read[read] = visit(member.body.substitute(dict(zip(member.ranges, read.indices))))
            else:
                new = dict(zip(member.ranges, read.indices)) | digits(member.reduced, over(columns))
                by_read[read] = Fold(member.reduction.op, visit(member.body.substitute(new)))
        return by_read[read]

    def visit(e: Expr) -> Expr:
        if id(e) in done:
            return done[id(e)]
        kept.append(e)
        if isinstance(e, Read):
            made = inside(e) if e.value in members else e
        else:
            children = tuple(visit(c) for c in e.children)
            made = e if all(a is b for a, b in zip(children, e.children)) else e.with_children(children)
        done[id(e)] = made
        return made

    return visit(expr)


def why_not(expr: Expr) -> str:
    """Why the vector cores cannot compute an expression of reads; empty when they can."""
    for node in nodes(expr):
        if isinstance(node, Op) and node.name not in COMPUTED:
            return f"the vector cores have no {node.name}"
        if isinstance(node, Iota):
            return f"{node} is a whole number that is no table"
        if isinstance(node, Fold) and node.op not in ROW_FOLDS:
            return f"the vector cores fold no {node.op}"
        if isinstance(node, Read) and node.guards:
            return f"{node} is guarded"
    return ""


_BINARY: Mapping[str, Callable[..., Value]] = {
    "max": L.maximum,
    "min": L.minimum,
    "less": L.less,
    "equal": L.equal,
    "or": L.maximum,
}


def value(expr: Expr, leaf: Callable[[Expr], Value]) -> Value:
    """The expression as one of the kernel language. leaf: what a read or an accumulator is there."""
    done: dict[int, Value] = {}

    def visit(e: Expr) -> Value:
        if id(e) not in done:
            done[id(e)] = build(e)
        return done[id(e)]

    def build(e: Expr) -> Value:
        if isinstance(e, Const):
            return Constant(float(e.value))
        if isinstance(e, Read | Accumulator):
            return leaf(e)
        if isinstance(e, Cast):
            return visit(e.arg)
        if isinstance(e, Fold):
            return Reduce(e.op, visit(e.arg))
        if isinstance(e, Op):
            return operation(e.name, [visit(a) for a in e.args])
        raise Unsupported("an expression of the vector cores", where=str(e))

    return visit(expr)


def operation(name: str, args: list[Value]) -> Value:
    """One scalar operation in the kernel language."""
    if name in _BINARY:
        return _BINARY[name](*args)
    match name:
        case "and":
            return args[0] * args[1]
        case "not":
            return 1.0 - args[0]
        case "where":
            return L.where(*args)
        case "sqrt":
            return L.sqrt(args[0])
        case _:
            return Apply(name, tuple(args))


def cost(exprs: Iterable[Expr]) -> int:
    """Operations of some expressions, each node once."""
    return sum(isinstance(n, Op) for e in exprs for n in nodes(e))
