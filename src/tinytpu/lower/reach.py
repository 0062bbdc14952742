"""What integers of a graph can be, by the statements that make them: also across stages.

Decides spans of expressions from formats, index maps and constants; never too narrow. It must not know programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from kohakuaccel.graph import BOOL, WORDS, Bits, Cast, Const, Constant, Expr, Iota, Op, Read, Statement, Value, kind_of
from kohakuaccel.graph.verify import format_of
from tinytpu.lower.numbers.base import span
from tinytpu.lower.numbers.spans import Span, holds, joined, span_of

LONG = (-(1 << 63), (1 << 63) - 1)


class Reach:
    """Spans of the integers of a graph's values, each value once."""

    def __init__(self, names: Mapping[str, Value]) -> None:
        self.names = names
        self.known: dict[str, Span] = {}
        self.parts: dict[int, tuple[Expr, Span]] = {}

    def of(self, expr: Expr) -> Span:
        """The least and greatest integer an expression can be, in its own format."""
        if id(expr) not in self.parts:
            self.parts[id(expr)] = expr, self._of(expr)
        return self.parts[id(expr)][1]

    def _of(self, expr: Expr) -> Span:
        match expr:
            case Const():
                return (int(expr.value), int(expr.value)) if expr.kind != "real" else LONG
            case Iota():
                return expr.index.interval()
            case Read():
                found = self._value(self.names[expr.value])
                return found if expr.pad is None else joined(found, self.of(expr.pad))
            case Cast() | Bits():
                return self._held(self._cast(expr), expr)
            case Op():
                return self._held(self._op(expr), expr)
            case _:
                raise TypeError(type(expr).__name__)

    def _cast(self, expr: Cast | Bits) -> Span:
        source = expr.source if isinstance(expr, Bits) else format_of(expr.arg, self.names)
        if kind_of(expr.dtype) == "real" or (source is not None and kind_of(source) == "real"):
            return LONG[0] * 4, LONG[1] * 4
        return (0, 1) if expr.dtype == BOOL else self.of(expr.arg)

    def _op(self, expr: Op) -> Span:
        if expr.name in ("less", "equal", "not"):
            return 0, 1
        args = [self.of(a) for a in expr.args]
        if expr.name == "where":
            return joined(*args[1:])
        if expr.name == "fma":
            return span_of("add", (span_of("mul", args[:2]), args[2]))
        if format_of(expr, self.names) == BOOL:
            return 0, 1
        return span_of(expr.name, args) if expr.name != "threefry" else span(WORDS["U64"])

    def _held(self, found: Span, expr: Expr) -> Span:
        """A span where the format holds it, else the format's."""
        dtype = format_of(expr, self.names)
        if dtype is None or kind_of(dtype) == "real":
            return found
        whole = (0, 1) if dtype == BOOL else span(dtype)
        return found if holds(whole, found) else whole

    def _value(self, value: Value) -> Span:
        if value.name not in self.known:
            self.known[value.name] = self._made(value)
        return self.known[value.name]

    def _made(self, value: Value) -> Span:
        whole = (0, 1) if value.dtype == BOOL else LONG if kind_of(value.dtype) == "real" else span(value.dtype)
        if kind_of(value.dtype) == "real":
            return whole
        if isinstance(value, Constant) and value.array.size:
            return int(value.array.min()), int(value.array.max())
        if not isinstance(value, Statement):
            return whole
        low, high = self.of(value.body)
        terms = prod(r.extent for r in value.reduced)
        op = value.reduction.op if value.reduction else None
        if op == "prod":
            return whole
        if op == "sum":
            low, high = low * terms, high * terms
        return (low, high) if holds(whole, (low, high)) else whole
