"""tinygrad's scalar operations and literals in the graph's terms.

Decides which operation of the graph each is, by the kind of its operands. It must not know loops or buffers.
"""

from __future__ import annotations

from collections.abc import Mapping

from tinygrad.dtype import Invalid
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

from kohakuaccel.frontends.tinygrad.indices import Untranslatable
from kohakuaccel.graph import BOOL, Cast, Const, DType, Expr, WordFormat, kind_of
from kohakuaccel.graph.model import ReduceOp

_REAL = {
    Ops.ADD: "add",
    Ops.SUB: "sub",
    Ops.MUL: "mul",
    Ops.FDIV: "div",
    Ops.MAX: "max",
    Ops.POW: "pow",
    Ops.EXP2: "exp2",
    Ops.LOG2: "log2",
    Ops.SIN: "sin",
    Ops.SQRT: "sqrt",
    Ops.RECIPROCAL: "recip",
    Ops.NEG: "neg",
    Ops.TRUNC: "cut",
    Ops.MULACC: "fma",
}
_WORD = {
    Ops.ADD: "add",
    Ops.SUB: "sub",
    Ops.MUL: "mul",
    Ops.MAX: "max",
    Ops.NEG: "neg",
    Ops.MULACC: "fma",
    Ops.CDIV: "quot",
    Ops.CMOD: "rem",
    Ops.FLOORDIV: "wdiv",
    Ops.FLOORMOD: "wmod",
    Ops.AND: "and",
    Ops.OR: "or",
    Ops.XOR: "xor",
    Ops.SHL: "shl",
    Ops.SHR: "shr",
    Ops.THREEFRY: "threefry",
}
_BOOL = {Ops.AND: "and", Ops.MUL: "and", Ops.OR: "or", Ops.ADD: "or", Ops.MAX: "or"}
_FOLDS: Mapping[Ops, ReduceOp] = {Ops.ADD: "sum", Ops.MUL: "prod", Ops.MAX: "max"}
_TRUTHS: Mapping[Ops, ReduceOp] = {Ops.ADD: "max", Ops.MUL: "min", Ops.MAX: "max"}


def operation(op: Ops, dtype: DType) -> str:
    """The operation of the graph over operands of a format; `Untranslatable` where there is none."""
    kind = kind_of(dtype)
    table = _BOOL if kind == "bool" else _REAL if kind == "real" else _WORD
    if op not in table:
        raise Untranslatable(f"{op.name} of {dtype}")
    return table[op]


def fold(op: Ops, dtype: DType) -> ReduceOp:
    """What a REDUCE of values of a format is."""
    table = _TRUTHS if dtype == BOOL else _FOLDS
    if op not in table:
        raise Untranslatable(f"a fold with {op.name}")
    return table[op]


def invalid(u: UOp) -> bool:
    """Whether it is tinygrad's mark of what is never used."""
    return u.op is Ops.CONST and u.arg is Invalid


def number(u: UOp, want: DType) -> Expr:
    """A literal as a value of a format."""
    if invalid(u):
        raise Untranslatable("an invalid value that is used")
    kind = kind_of(want)
    if kind == "bool":
        return Const(bool(u.arg))
    if kind == "real":
        return Const(float(u.arg))
    assert isinstance(want, WordFormat)
    number = int(u.arg)
    if number >= 1 << 63:
        number -= 1 << 64
    return Cast(Const(number), want)


def zero(dtype: DType) -> Const:
    """Nothing, of a format's kind; of words an integer that is yet to be cast."""
    return Const({"real": 0.0, "bool": False, "word": 0, "int": 0}[kind_of(dtype)])
