"""Reading the text form back.

Decides nothing about meaning: what it returns is verified. Expressions have Python's own grammar, so Python's parser
cuts them; only the node types named here are accepted, and nothing is ever evaluated.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kohakuaccel.diagnostics import DefinitionError, Refusal, SourceLine
from kohakuaccel.graph.dtypes import DType, declared, named
from kohakuaccel.graph.expr import OPS, Bits, Cast, Const, Expr, Iota, Op, Read
from kohakuaccel.graph.index import Guard, Index, Lookup, Range
from kohakuaccel.graph.model import Constant, Graph, Input, Reduction, Statement, Value, reduce_op
from kohakuaccel.graph.verify import verify

_LINE = re.compile(
    r"(?:(?P<word>input|const) )?(?P<name>\w+): (?P<dtype>\w+)\[(?P<axes>[^\]]*)\](?: = (?P<rest>.*))?$",
)
_FOLD = re.compile(r"(?P<op>sum|max|min|prod)\[(?P<axes>[^\]]*)\] (?P<body>.*)$")
_AXIS = re.compile(r"(\w+)<(\d+)$")
_BINARY: Mapping[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "idiv",
    ast.Mod: "mod",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.Lt: "less",
    ast.Eq: "equal",
}


def parse(text: str) -> Graph:
    """The graph a text writes, verified. A `Refusal` names the line that does not parse."""
    formats: dict[str, Mapping[str, Any]] = {}
    values: list[Value] = []
    outputs: list[tuple[str, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.split("#")[0].strip()
        try:
            if line.startswith("format "):
                name, _, fields = line[7:].partition(" = ")
                formats[name] = json.loads(fields)
            elif line.startswith("output "):
                label, _, name = line[7:].partition(" = ")
                outputs.append((label, name or label))
            elif line:
                values.append(_value(line, declared(formats)))
        except (Refusal, DefinitionError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise _refused(error, line, number) from None
    return verify(Graph(tuple(values), tuple(outputs)))


def _refused(error: Exception, line: str, number: int) -> Refusal:
    source = SourceLine("graph text", number, line)
    if isinstance(error, Refusal | DefinitionError):
        return Refusal(error.rule, where=error.where, got=error.got, source=source)
    return Refusal("a line of the text form parses", where="graph", got=str(error), source=source)


def _value(line: str, known: Mapping[str, DType]) -> Value:
    found = _LINE.match(line)
    if not found:
        raise ValueError("not `input`, `const`, `output`, `format` or `name: FORMAT[ranges] = expression`")
    name, dtype, rest = found["name"], named(found["dtype"], known), found["rest"] or ""
    axes = [a.strip() for a in found["axes"].split(",") if a.strip()]
    if found["word"]:
        shape = tuple(int(a) for a in axes)
        if found["word"] == "input":
            return Input(name, shape, dtype)
        numbers = [_number(n) for n in rest.strip("[]").split(",") if n.strip()]
        constant = Constant.of(name, numbers, dtype)
        return Constant(name, shape, dtype, constant.data)
    ranges, fold = _ranges(axes), _FOLD.match(rest)
    reduction = None
    if fold:
        inner = [a.strip() for a in fold["axes"].split(",") if a.strip()]
        reduction, rest = Reduction(reduce_op(fold["op"]), _ranges(inner)), fold["body"]
    scope = {r.name: r for r in (*ranges, *(reduction.ranges if reduction else ()))}
    return Statement(name, dtype, ranges, parse_expr(rest, scope, known), reduction)


def _ranges(axes: list[str]) -> tuple[Range, ...]:
    found: list[Range] = []
    for axis in axes:
        match = _AXIS.match(axis)
        if not match:
            raise ValueError(f"a range is written name<extent, not {axis!r}")
        found.append(Range(match[1], int(match[2])))
    return tuple(found)


def _number(text: str) -> float | int | bool:
    text = text.strip()
    if text in ("True", "False"):
        return text == "True"
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


DEEPEST = 250  # operations inside one another: every walk over an expression goes down two frames for each


def parse_expr(text: str, ranges: Mapping[str, Range], formats: Mapping[str, DType]) -> Expr:
    """One expression, over the ranges and formats that are in scope. Refused: more than `DEEPEST` operations deep."""
    body = ast.parse(text.strip(), mode="eval").body
    level: list[ast.AST] = [body]
    for _ in range(DEEPEST):
        level = [inner for node in level for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.expr)]
        if not level:
            return _Reader(ranges, formats).expr(body)
    raise ValueError(f"more than {DEEPEST} operations inside one another; name a part in a statement of its own")


@dataclass(frozen=True)
class _Reader:
    ranges: Mapping[str, Range]
    formats: Mapping[str, DType]

    def expr(self, node: ast.expr) -> Expr:
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return Const(value)
            case ast.Name(id="inf" | "nan" as name):
                return Const(float(name))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.expr(operand)
                if isinstance(inner, Const) and inner.kind != "bool":
                    return Const(-inner.value)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return Op("not", (self.expr(operand),))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return Op(_BINARY[type(op)], (self.expr(left), self.expr(right)))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _BINARY:
                return Op(_BINARY[type(op)], (self.expr(left), self.expr(right)))
            case ast.Subscript():
                return self.read(node)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self.call(name, args)
            case _:
                pass
        raise ValueError(f"not an expression of the graph: {ast.unparse(node)}")

    def call(self, name: str, args: list[ast.expr]) -> Expr:
        match name, args:
            case "iota", [index]:
                return Iota(self.index(index))
            case "cast", [arg, ast.Name(id=dtype)]:
                return Cast(self.expr(arg), named(dtype, self.formats))
            case "bits", [arg, ast.Name(id=source), ast.Name(id=dtype)]:
                return Bits(self.expr(arg), named(source, self.formats), named(dtype, self.formats))
            case "guard", [ast.Subscript() as inner, pad, *guards]:
                read = self.read(inner)
                value = None if isinstance(pad, ast.Constant) and pad.value is None else self.expr(pad)
                if value is not None and not isinstance(value, Const):
                    raise ValueError(f"a pad value is a number, not {ast.unparse(pad)}")
                return Read(read.value, read.indices, tuple(self.guard(g) for g in guards), value)
            case _:
                pass
        if name not in OPS:
            raise ValueError(f"no scalar operation is called {name!r}")
        return Op(name, tuple(self.expr(a) for a in args))

    def read(self, node: ast.Subscript) -> Read:
        if not isinstance(node.value, ast.Name):
            raise ValueError(f"a value is read by its name, not {ast.unparse(node.value)}")
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return Read(node.value.id, tuple(self.index(p) for p in parts))

    def guard(self, node: ast.expr) -> Guard:
        match node:
            case ast.Compare(left=low, ops=[ast.LtE(), ast.Lt()], comparators=[index, high]):
                ends = self.index(low).constant, self.index(high).constant
                if ends[0] is not None and ends[1] is not None:
                    return Guard(self.index(index), ends[0], ends[1])
            case _:
                pass
        raise ValueError(f"a guard is written low <= index < high, not {ast.unparse(node)}")

    def index(self, node: ast.expr) -> Index:
        match node:
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                return Index.of(value)
            case ast.Name(id=name) if name in self.ranges:
                return Index.of(self.ranges[name])
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.index(operand)
            case ast.Call(func=ast.Name(id="at"), args=[value, ast.Constant(value=int() as extent)]):
                return Index.of(Lookup(self.expr(value), extent))
            case ast.BinOp(left=left, op=op, right=right):
                return self.arithmetic(self.index(left), op, self.index(right))
            case _:
                pass
        raise ValueError(f"not an index: {ast.unparse(node)}")

    def arithmetic(self, left: Index, op: ast.operator, right: Index) -> Index:
        if isinstance(op, ast.Mult) and left.constant is not None:
            left, right = right, left
        known = right.constant
        table: dict[type[ast.operator], Callable[[], Index]] = {
            ast.Add: lambda: left + right,
            ast.Sub: lambda: left - right,
        }
        if known is not None:
            table[ast.Mult] = lambda: left * known
            table[ast.FloorDiv] = lambda: left // known
            table[ast.Mod] = lambda: left % known
        if type(op) not in table:
            raise ValueError("an index adds, subtracts, and multiplies, divides (//) or takes % by integers")
        return table[type(op)]()
