"""Values that flow through a kernel body while it is traced: views of ports, constants, operations.

They record; they never compute. Comparing or branching on them is refused, since their numbers exist only on the
machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.lang.dims import DimExpr
from kohakuaccel.lang.indices import IndexExpr
from kohakuaccel.lang.trace import StoreNode, recorder, user_line

if TYPE_CHECKING:
    from kohakuaccel.lang.ports import Port

Operand = "Value | DimExpr | int | float"
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


class Value:
    """Base of everything an elementwise expression can hold."""

    def __add__(self, other: Value | DimExpr | float) -> Value:
        return Apply("add", (self, as_value(other)))

    def __radd__(self, other: DimExpr | float) -> Value:
        return Apply("add", (as_value(other), self))

    def __sub__(self, other: Value | DimExpr | float) -> Value:
        return Apply("sub", (self, as_value(other)))

    def __rsub__(self, other: DimExpr | float) -> Value:
        return Apply("sub", (as_value(other), self))

    def __mul__(self, other: Value | DimExpr | float) -> Value:
        return Apply("mul", (self, as_value(other)))

    def __rmul__(self, other: DimExpr | float) -> Value:
        return Apply("mul", (as_value(other), self))

    def __truediv__(self, other: Value | DimExpr | float) -> Value:
        return Apply("div", (self, as_value(other)))

    def __rtruediv__(self, other: DimExpr | float) -> Value:
        return Apply("div", (as_value(other), self))

    def __neg__(self) -> Value:
        return Apply("neg", (self,))

    def __abs__(self) -> Value:
        return Apply("abs", (self,))

    def __bool__(self) -> Never:
        raise Refusal(
            "control flow on a value that exists only on the machine",
            where=str(self),
            hint="use the language's where/maximum/minimum, or branch on a knob",
            source=user_line(),
        )


class Constant(Value):
    """A number, or a DimExpr that becomes one when the dims are solved."""

    def __init__(self, number: DimExpr | float) -> None:
        self.number = number

    def __str__(self) -> str:
        return f"{self.number:g}" if isinstance(self.number, int | float) else str(self.number)


class Apply(Value):
    """An elementwise operation of the machine's closed set, by name."""

    def __init__(self, op: str, args: tuple[Value, ...]) -> None:
        self.op = op
        self.args = args
        self.source: SourceLine = user_line()

    def __str__(self) -> str:
        if self.op in _INFIX:
            return f"({self.args[0]} {_INFIX[self.op]} {self.args[1]})"
        return f"{self.op}(" + ", ".join(str(a) for a in self.args) + ")"


class Reduce(Value):
    """A reduction of a row to one number: op is sum, max or min."""

    def __init__(self, op: str, arg: Value) -> None:
        self.op = op
        self.arg = arg
        self.source: SourceLine = user_line()

    def __str__(self) -> str:
        return f"row_{self.op}({self.arg})"


class Contraction:
    """a @ b over a tile: not a value by itself; an accumulator takes it with +=."""

    def __init__(self, a: View, b: View) -> None:
        self.a = a
        self.b = b
        self.source: SourceLine = user_line()

    def __str__(self) -> str:
        return f"{self.a} @ {self.b}"


class View(Value):
    """A port seen through indices: one instance's part of it. columns: (first, end) of the last axis where the view is
    a part of a row, None being the row's own end."""

    def __init__(
        self,
        port: Port,
        index: tuple[IndexExpr | int, ...],
        columns: tuple[DimExpr | int | None, DimExpr | int | None] | None = None,
    ) -> None:
        self.port = port
        self.index = index
        self.columns = columns
        self.source: SourceLine = user_line()

    def __matmul__(self, other: View) -> Contraction:
        return Contraction(self, other)

    def __ilshift__(self, value: Value | DimExpr | float) -> View:
        """target <<= value: the only way a kernel writes."""
        source = user_line()
        if self.port.direction not in ("out", "temp"):
            raise Refusal(
                "only an output or a temporary can be written",
                where=str(self),
                hint="declare it as an Out port or an L.temp",
                source=source,
            )
        recorder("a store").add(StoreNode(self, as_value(value), source))
        return self

    def __str__(self) -> str:
        parts = [str(i) for i in self.index]
        if self.columns is not None:
            parts.append(":".join("" if c is None else str(c) for c in self.columns))
        return f"{self.port.name}[{', '.join(parts)}]"


class Join(Value):
    """Rows set one behind another: a row as long as all of them."""

    def __init__(self, args: tuple[Value, ...]) -> None:
        self.args = args
        self.source: SourceLine = user_line()

    def __str__(self) -> str:
        return f"join({', '.join(str(a) for a in self.args)})"


def as_value(x: Value | DimExpr | float) -> Value:
    """A number or size as a constant; a value unchanged; anything else refused."""
    if isinstance(x, Value):
        return x
    if isinstance(x, int | float | DimExpr):
        return Constant(x)
    raise Refusal(
        "an expression takes values, numbers and sizes",
        where="kernel expression",
        got=type(x).__name__,
        hint="pass an array as an In port",
        source=user_line(),
    )
