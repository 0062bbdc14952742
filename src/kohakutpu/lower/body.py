"""An elementwise expression as a list of operations in order, with common subexpressions found.

It decides evaluation order and what is a per-row scalar; it does not know registers or instruction words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.lang.dims import DimExpr
from kohakuaccel.lang.values import Apply, Constant, Reduce, Value, View
from kohakutpu.lang.functions import INVERSE_LENGTH
from kohakutpu.lower import evaluate

REDUCTIONS = ("sum", "max", "min")
LEAVES = evaluate.LEAVES


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. op: one of LEAVES (args = (operand number,)), "const", "reduce" (kind in `text`), or an
    elementwise name (args are node numbers). per_row: one number per row."""

    op: str
    args: tuple[int, ...]
    number: float
    text: str
    per_row: bool
    source: SourceLine | None


@dataclass(slots=True)
class Body:
    """Nodes in dependence order and the number of the one that is stored."""

    nodes: list[Node] = field(default_factory=list)
    result: int = -1

    def pretty(self, names: Mapping[int, str] | None = None) -> str:
        """The stored expression as text, operands by name."""

        def show(n: int) -> str:
            node = self.nodes[n]
            if node.op in LEAVES:
                return (names or {}).get(node.args[0], f"in{node.args[0]}")
            if node.op == "const":
                return f"{node.number:g}"
            name = f"row_{node.text}" if node.op == "reduce" else node.op
            return f"{name}({', '.join(show(a) for a in node.args)})"

        return show(self.result)

    def needed(self, target: int) -> list[int]:
        """Node numbers that `target` depends on, itself included, in order; reductions are leaves."""
        return self.needed_beyond((target,), ())

    def needed_beyond(self, targets: Iterable[int], ready: Container[int]) -> list[int]:
        """Node numbers that the targets depend on, in order; neither those that are ready nor what is behind them."""
        wanted: set[int] = set()
        stack = list(targets)
        while stack:
            n = stack.pop()
            if n in wanted or n in ready:
                continue
            wanted.add(n)
            if self.nodes[n].op not in (*LEAVES, "reduce"):
                stack.extend(self.nodes[n].args)
        return sorted(wanted)

    def reduction_levels(self) -> dict[int, int]:
        """reduce node -> pass number: 0 when its argument needs no other reduction."""
        level: dict[int, int] = {}
        depth: list[int] = []
        for n, node in enumerate(self.nodes):
            inner = max((depth[a] for a in node.args if node.op not in LEAVES), default=0)
            if node.op == "reduce":
                level[n] = inner
                inner += 1
            depth.append(inner)
        live = set(self.live())
        return {n: lv for n, lv in level.items() if n in live}

    def live(self) -> list[int]:
        """Every node the result depends on, reductions followed."""
        wanted: set[int] = set()
        stack = [self.result]
        while stack:
            n = stack.pop()
            if n in wanted:
                continue
            wanted.add(n)
            if self.nodes[n].op not in LEAVES:
                stack.extend(self.nodes[n].args)
        return sorted(wanted)


class Builder:
    """Turns traced values into a Body. `leaf` says which operand a view is: (number, which of LEAVES)."""

    def __init__(
        self, sizes: Mapping[str, int], leaf: Callable[[Value], tuple[int, str]], row_length: int | None
    ) -> None:
        self.body = Body()
        self._sizes = sizes
        self._leaf = leaf
        self._length = row_length
        self._known: dict[tuple[object, ...], int] = {}
        self._memo: dict[int, int] = {}

    def build(self, value: Value) -> Body:
        """The body that computes `value`."""
        self.body.result = self._visit(value)
        return self.body

    def _add(
        self,
        op: str,
        args: tuple[int, ...] = (),
        number: float = 0.0,
        text: str = "",
        source: SourceLine | None = None,
    ) -> int:
        if args and op not in (*LEAVES, "reduce") and all(self.body.nodes[a].op == "const" for a in args):
            # Folded with the machine's own arithmetic, so the stored bits are those the core would compute.
            number = evaluate.fold(op, [self.body.nodes[a].number for a in args])
            op, args = "const", ()
        sign = math.copysign(1.0, number)
        key = (op, args, "nan" if math.isnan(number) else number, sign, text)
        if key not in self._known:
            if op in ("input", "shared"):
                per_row = False
            else:
                per_row = op in ("const", "reduce", "number") or all(self.body.nodes[a].per_row for a in args)
            self.body.nodes.append(Node(op, args, number, text, per_row, source))
            self._known[key] = len(self.body.nodes) - 1
        return self._known[key]

    def _visit(self, value: Value) -> int:
        # A deep chain of user expressions must not exhaust Python's stack: children first, iteratively.
        stack: list[tuple[Value, bool]] = [(value, False)]
        while stack:
            v, ready = stack.pop()
            if id(v) in self._memo:
                continue
            children = v.args if isinstance(v, Apply) else (v.arg,) if isinstance(v, Reduce) else ()
            if children and not ready:
                stack.append((v, True))
                stack.extend((c, False) for c in children)
                continue
            self._memo[id(v)] = self._node(v, tuple(self._memo[id(c)] for c in children))
        return self._memo[id(value)]

    def _node(self, v: Value, args: tuple[int, ...]) -> int:
        match v:
            case Constant():
                number = v.number.value(self._sizes) if isinstance(v.number, DimExpr) else v.number
                return self._add("const", number=float(number))
            case Reduce():
                if self._length is None:
                    raise Refusal(
                        "a row reduction needs rows",
                        where=str(v),
                        hint="open the grid over x.rows() instead of x.parts()",
                        source=v.source,
                    )
                if self.body.nodes[args[0]].per_row:
                    raise Refusal(
                        "a reduction of a value that is already one number per row",
                        where=str(v),
                        hint="reduce something that varies along the row",
                        source=v.source,
                    )
                return self._add("reduce", args, text=v.op, source=v.source)
            case Apply(op="div"):
                inverse = self._add("recip", (args[1],), source=v.source)
                return self._add("mul", (args[0], inverse), source=v.source)
            case Apply():
                return self._add(v.op, args, source=v.source)
            case _ if v is INVERSE_LENGTH:
                if self._length is None:
                    raise Refusal("a row mean needs rows", where="row_mean", hint="open the grid over x.rows()")
                return self._add("const", number=1.0 / self._length)
            case _:
                number, kind = self._leaf(v)
                source = v.source if isinstance(v, View) else None
                return self._add(kind, (number,), source=source)
