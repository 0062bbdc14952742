"""A kernel of tinygrad as a graph: every fold a statement, every store an output.

Decides how loops, masks, gathers and stores of a kernel are said in the graph's terms. It must not know machines, nor
how tinygrad would have written the loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tinygrad.dtype import AddrSpace, Invalid, dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

from kohakuaccel.frontends.tinygrad.formats import FORMATS, WEAK
from kohakuaccel.frontends.tinygrad.indices import Indices, Untranslatable, tidied
from kohakuaccel.frontends.tinygrad.kernel import Kernel, Store
from kohakuaccel.frontends.tinygrad.places import arranged, shape_of
from kohakuaccel.graph import (
    BOOL,
    WORDS,
    Bits,
    Cast,
    Const,
    DType,
    Expr,
    Graph,
    Guard,
    Index,
    Input,
    Iota,
    Lookup,
    Op,
    Range,
    Read,
    Reduction,
    Statement,
    Value,
    WordFormat,
    kind_of,
    verify,
)
from kohakuaccel.graph.model import ReduceOp

DEEP, LARGE, MOST = 24, 10, 1 << 22
"""An expression so deep, or so large and used again, is a value of its own, if it has no more points than MOST."""
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
_S64 = WORDS["S64"]


@dataclass(frozen=True)
class _Known:
    """A translated expression, its format, and how large and deep it is."""

    expr: Expr
    dtype: DType
    size: int
    depth: int


def translate(sink: UOp, name: str) -> Kernel:
    """The kernel of a cleaned-up SINK. Raises `Untranslatable`, or `Symbolic` where variables stand in it."""
    return _Translator(sink).kernel(name)


class _Translator:
    def __init__(self, sink: UOp) -> None:
        self.sink = sink
        self.indices = Indices()
        self.values: dict[str, Value] = {}
        self.known: dict[UOp, _Known] = {}
        self.statements: list[Statement] = []
        self.outputs: list[tuple[str, str]] = []
        nodes = sink.toposort()
        self.uses = Counter(s for u in nodes for s in u.src)
        self.shapes = self._shapes(list(nodes))

    def kernel(self, name: str) -> Kernel:
        stores = tuple(self._store(u) for u in self._stores(self.sink))
        if not stores:
            raise Untranslatable("nothing is stored")
        inputs = [v for v in self.values.values() if isinstance(v, Input)]
        values: list[Value] = [*inputs, *self.statements]
        graph = verify(Graph(tuple(values), tuple(self.outputs)))
        return Kernel(name, graph, stores)

    def _stores(self, u: UOp) -> list[UOp]:
        if u.op is Ops.STORE:
            return [u]
        if u.op is Ops.END:
            return self._stores(u.src[0])
        if u.op in (Ops.SINK, Ops.GROUP):
            return [found for s in u.src for found in self._stores(s)]
        raise Untranslatable(f"{u.op.name} where a store is expected")

    # stores

    def _store(self, u: UOp) -> Store:
        target = u.src[0]
        if target.op is not Ops.INDEX or len(target.src) != 2:
            raise Untranslatable("a store that is no element of a buffer")
        slot, dtype, size = self._buffer(target.src[0])
        place, gates = _peeled(target.src[1])
        value, more = _peeled(u.src[1])
        gates += more + list(u.src[2:])
        ranges = self._loops(value, place, *gates)
        flat = self.indices.index(place)
        number = len(self.outputs)
        dense = None if gates or flat is None else _dense(flat, ranges, size)
        body = self.as_(value, dtype)
        if dense is not None:
            return Store(slot, self._output(f"out{number}", dtype, dense, body))
        label = self._output(f"out{number}", dtype, ranges, body)
        at = self._output(f"place{number}", _S64, ranges, self.as_(place, _S64))
        gate = None
        if gates:
            gate = self._output(f"gate{number}", BOOL, ranges, self._all(gates))
        return Store(slot, label, at, gate)

    def _output(self, label: str, dtype: DType, ranges: tuple[Range, ...], body: Expr) -> str:
        if isinstance(body, Const) and kind_of(dtype) == "word":
            body = Cast(body, dtype)
        self.statements.append(Statement(label, dtype, ranges, body))
        self.outputs.append((label, label))
        return label

    def _all(self, gates: list[UOp]) -> Expr:
        made = self.as_(gates[0], BOOL)
        for gate in gates[1:]:
            made = Op("and", (made, self.as_(gate, BOOL)))
        return made

    def _loops(self, *what: UOp) -> tuple[Range, ...]:
        """The loops that expressions follow and no fold of theirs has closed, longest extents included only."""
        found = dict.fromkeys(r for u in what for r in u.ranges)
        ordered = sorted(found, key=lambda r: r.arg)
        return tuple(r for r in (self.indices.range(u) for u in ordered) if r.extent > 1)

    def _buffer(self, u: UOp) -> tuple[int, DType, int]:
        if u.op is not Ops.PARAM or u.addrspace is not AddrSpace.GLOBAL:
            raise Untranslatable(f"an element of {u.op.name}")
        return u.arg.slot, self._format(u), int(u.max_numel())

    @staticmethod
    def _format(u: UOp) -> DType:
        if u.dtype not in FORMATS:
            raise Untranslatable(f"values of {u.dtype}")
        return FORMATS[u.dtype]

    # expressions

    def as_(self, u: UOp, want: DType) -> Expr:
        """An expression as a value of a format."""
        if u.op is Ops.CONST:
            return _number(u, want)
        found = self.value(u)
        return found.expr if found.dtype == want else Cast(found.expr, want)

    def value(self, u: UOp) -> _Known:
        """An expression in its own format."""
        if u not in self.known:
            # Operands first, so that a chain of any length needs no deep stack here.
            todo = [u]
            while todo:
                top = todo[-1]
                left = [s for s in self._operands(top) if s not in self.known]
                if left and top not in self.known:
                    todo += left
                else:
                    todo.pop()
                    if top not in self.known:
                        self.known[top] = self._kept(top, self._made(top))
        return self.known[u]

    def _operands(self, u: UOp) -> tuple[UOp, ...]:
        if u.op in GroupOp.ALU or u.op in (Ops.CAST, Ops.BITCAST, Ops.LOAD):
            if self._whole(u) is not None:
                return ()
            return tuple(s for s in u.src if s.op is not Ops.CONST)
        if u.op is Ops.REDUCE:
            return (u.src[0],) if u.src[0].op is not Ops.CONST else ()
        return ()

    def _whole(self, u: UOp) -> Index | None:
        return self.indices.index(u) if dtypes.is_int(u.dtype) or u.dtype is dtypes.weakint else None

    def _kept(self, u: UOp, expr: Expr) -> _Known:
        """The expression, or a read of a value of its own where it is large or deep."""
        dtype = BOOL if u.op in GroupOp.Comparison else self._format(u)
        parts = [self.known[s] for s in self._operands(u) if s in self.known] if not isinstance(expr, Read) else []
        size, depth = 1 + sum(p.size for p in parts), 1 + max((p.depth for p in parts), default=0)
        if (self.uses[u] > 1 and size > LARGE) or depth > DEEP:
            ranges = self._loops(u)
            if prod(r.extent for r in ranges) <= MOST or depth > 2 * DEEP:
                return _Known(self._statement(dtype, ranges, expr), dtype, 1, 1)
        return _Known(expr, dtype, size, depth)

    def _statement(
        self, dtype: DType, ranges: tuple[Range, ...], body: Expr, reduction: Reduction | None = None
    ) -> Read:
        name = f"v{len(self.statements)}"
        self.statements.append(Statement(name, dtype, ranges, body, reduction))
        return Read(name, tuple(Index.of(r) for r in ranges))

    def _made(self, u: UOp) -> Expr:
        whole = self._whole(u)
        if whole is not None:
            return Cast(_iota(whole), self._format(u))
        match u.op:
            case Ops.CONST:
                return _number(u, self._format(u))
            case Ops.INDEX:
                return self._read(u)
            case Ops.LOAD if len(u.src) == 1:
                return self.value(u.src[0]).expr
            case Ops.CAST:
                return self._cast(u)
            case Ops.BITCAST:
                source = self._format(u.src[0])
                return Bits(self.as_(u.src[0], source), source, self._format(u))
            case Ops.REDUCE:
                return self._reduce(u)
            case _ if u.op in GroupOp.ALU:
                return self._alu(u)
            case _:
                raise Untranslatable(f"{u.op.name} in an expression")

    def _cast(self, u: UOp) -> Expr:
        source, target = u.src[0], self._format(u)
        whole = self._whole(source)
        if whole is not None:
            return Cast(_iota(whole), target)
        if source.op is Ops.CONST:
            return Cast(_number(source, self._format(source)), target)
        return Cast(self.value(source).expr, target)

    def _alu(self, u: UOp) -> Expr:
        if u.op is Ops.WHERE:
            want = self._format(u)
            if _invalid(u.src[2]):  # 0 where it is not valid: tinygrad's own rule
                pad = _zero(want)
                other: Expr = Cast(pad, want) if isinstance(want, WordFormat) else pad
                return Op("where", (self.as_(u.src[0], BOOL), self.as_(u.src[1], want), other))
            return Op("where", (self.as_(u.src[0], BOOL), self.as_(u.src[1], want), self.as_(u.src[2], want)))
        if u.op in GroupOp.Comparison:
            return self._comparison(u)
        want = self._format(u)
        kind = kind_of(want)
        if kind == "bool":
            left, right = (self.as_(s, BOOL) for s in u.src)
            if u.op is Ops.XOR:
                return Op("not", (Op("equal", (left, right)),))
            if u.op in _BOOL:
                return Op(_BOOL[u.op], (left, right))
        table = _REAL if kind == "real" else _WORD
        if u.op not in table:
            raise Untranslatable(f"{u.op.name} of {u.dtype}")
        return Op(table[u.op], tuple(self.as_(s, want) for s in u.src))

    def _comparison(self, u: UOp) -> Expr:
        left, right = u.src
        both = [self._whole(s) for s in u.src]
        if both[0] is not None and both[1] is not None:
            args: tuple[Expr, ...] = tuple(_iota(b) for b in both if b is not None)
        else:
            strong = [s for s in u.src if s.dtype not in WEAK]
            reals = [s for s in u.src if kind_of(self._format(s)) == "real"]
            want = self._format((strong or reals or [left])[0])
            if kind_of(want) == "bool" and u.op is Ops.CMPLT:
                return Op("and", (Op("not", (self.as_(left, BOOL),)), self.as_(right, BOOL)))
            args = (self.as_(left, want), self.as_(right, want))
        if u.op is Ops.CMPLT:
            return Op("less", args)
        same = Op("equal", args)
        return same if u.op is Ops.CMPEQ else Op("not", (same,))

    def _reduce(self, u: UOp) -> Expr:
        op, axes = u.arg
        if axes or op not in _FOLDS or any(r.op is not Ops.RANGE for r in u.src[1:]):
            raise Untranslatable("a fold of another form")
        dtype = self._format(u)
        body, source = self.as_(u.src[0], dtype), u.src[0]
        if op is Ops.ADD and self._widened_product(source):
            # Products of halves are exact in the wider type they are summed in.
            body = Op("mul", tuple(self.as_(s, dtype) for s in source.src[0].src))
        folded = tuple(r for r in (self.indices.range(s) for s in u.src[1:]) if r.extent > 1)
        if not folded:
            return body
        if isinstance(body, Const) and kind_of(dtype) == "word":
            body = Cast(body, dtype)
        fold = _TRUTHS[op] if dtype == BOOL else _FOLDS[op]
        return self._statement(dtype, self._loops(u), body, Reduction(fold, folded))

    def _widened_product(self, u: UOp) -> bool:
        if u.op is not Ops.CAST or u.src[0].op is not Ops.MUL:
            return False
        return kind_of(self._format(u)) == kind_of(self._format(u.src[0])) == "real"

    # reads

    def _shapes(self, nodes: list[UOp]) -> dict[int, tuple[int, ...]]:
        """The shape of every buffer, from all its reads."""
        found: dict[int, list[Index]] = {}
        sizes: dict[int, int] = {}
        for u in nodes:
            if u.op is Ops.INDEX and len(u.src) == 2 and u.src[0].op is Ops.PARAM:
                slot, _, sizes[u.src[0].arg.slot] = self._buffer(u.src[0])
                flat = self.indices.index(_peeled(u.src[1])[0])
                found.setdefault(slot, []).extend([] if flat is None else [flat])
        return {slot: shape_of(sizes[slot], flats) for slot, flats in found.items()}

    def _read(self, u: UOp) -> Expr:
        if len(u.src) != 2:
            raise Untranslatable("an element of a value of several axes")
        slot, dtype, size = self._buffer(u.src[0])
        place, gates = _peeled(u.src[1])
        flat = self.indices.index(place)
        zero: Const = _zero(dtype)
        if flat is not None:
            guards = self._guards(gates)
            if guards is not None:
                shape = self.shapes[slot]
                places = arranged(flat, guards, shape) if flat.affine and len(shape) > 1 else None
                if places is not None:
                    return Read(self._input("a", slot, shape, dtype), places, guards, zero if guards else None)
                if _inside(flat, guards, size):
                    return Read(self._input("b", slot, (size,), dtype), (flat,), guards, zero if guards else None)
        name = self._input("b", slot, (size,), dtype)
        at = self.as_(place, _S64)
        if not gates:
            return Read(name, (Index.of(Lookup(at, size)),))
        gate = self._all(gates)
        safe = Lookup(Op("where", (gate, at, Cast(Const(0), _S64))), size)
        pad: Expr = Cast(zero, dtype) if isinstance(dtype, WordFormat) else zero
        return Op("where", (gate, Read(name, (Index.of(safe),)), pad))

    def _input(self, form: str, slot: int, shape: tuple[int, ...], dtype: DType) -> str:
        name = f"{form}{slot}"
        self.values.setdefault(name, Input(name, shape, dtype))
        return name

    def _guards(self, gates: list[UOp]) -> tuple[Guard, ...] | None:
        found: list[Guard] = []
        for gate in gates:
            some = self.indices.guards(gate)
            if some is None:
                return None
            found += some
        return tidied(found)


def _inside(flat: Index, guards: tuple[Guard, ...], size: int) -> bool:
    if any(g.never for g in guards):
        return True
    low, high = flat.interval(guards)
    return low >= 0 and high < size


def _iota(index: Index) -> Expr:
    return Iota(index) if index.constant is None else Const(index.constant)


def _invalid(u: UOp) -> bool:
    return u.op is Ops.CONST and u.arg is Invalid


def _peeled(u: UOp) -> tuple[UOp, list[UOp]]:
    """What is chosen where it is valid, and the conditions under which it is."""
    gates: list[UOp] = []
    while True:
        if u.op is Ops.WHERE and _invalid(u.src[2]):
            gates.append(u.src[0])
            u = u.src[1]
        elif u.op is Ops.CAST and u.src[0].op is Ops.WHERE and _invalid(u.src[0].src[2]):
            gates.append(u.src[0].src[0])
            u = u.src[0].src[1].cast(u.dtype)
        else:
            return u, gates


def _number(u: UOp, want: DType) -> Expr:
    if _invalid(u):
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


def _zero(dtype: DType) -> Const:
    return Const({"real": 0.0, "bool": False, "word": 0, "int": 0}[kind_of(dtype)])


def _dense(flat: Index, ranges: tuple[Range, ...], size: int) -> tuple[Range, ...] | None:
    """The loops in the order in which they fill a buffer of `size` elements one by one; None if they do not."""
    if not flat.affine or flat.offset or len(flat.terms) != len(ranges):
        return None
    order = sorted(ranges, key=lambda r: -flat.coefficient(r))
    step = 1
    for r in reversed(order):
        if flat.coefficient(r) != step:
            return None
        step *= r.extent
    return tuple(order) if step == size else None
