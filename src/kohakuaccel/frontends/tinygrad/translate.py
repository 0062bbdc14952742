"""A kernel of tinygrad as a graph: every fold a statement, every store an output.

Decides which parts of a kernel are values of their own, and how folds, casts and stores are said in the graph's terms.
It must not know machines, nor how tinygrad would have written the loops.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

from kohakuaccel.frontends.tinygrad.alu import fold, invalid, number, operation, zero
from kohakuaccel.frontends.tinygrad.formats import WEAK
from kohakuaccel.frontends.tinygrad.indices import Indices, Symbolic, Untranslatable
from kohakuaccel.frontends.tinygrad.kernel import Kernel, Store
from kohakuaccel.frontends.tinygrad.reads import Reads, buffer, cuts_of, format_of, peeled
from kohakuaccel.graph import (
    BOOL,
    WORDS,
    Bits,
    Cast,
    Const,
    DType,
    Expr,
    Graph,
    Index,
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

DEEP, LARGE, MOST = 24, 10, 1 << 22
"""An expression so deep, or so large and used again, is a value of its own, if it has no more points than MOST."""
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
        nodes = list(sink.toposort())
        self.indices = Indices(cuts_of(nodes))
        self.known: dict[UOp, _Known] = {}
        self.statements: list[Statement] = []
        self.outputs: list[tuple[str, str]] = []
        self.uses = Counter(s for u in nodes for s in u.src)
        self.reads = Reads(nodes, self.indices)

    def kernel(self, name: str) -> Kernel:
        stores = tuple(self._store(u) for u in self._stores(self.sink))
        if not stores:
            raise Untranslatable("nothing is stored")
        values: list[Value] = [*self.reads.inputs.values(), *self.statements]
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
        slot, dtype, size = buffer(target.src[0])
        place, gates = peeled(target.src[1])
        value, more = peeled(u.src[1])
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
            gate = self._output(f"gate{number}", BOOL, ranges, self.all_(gates))
        return Store(slot, label, at, gate)

    def _output(self, label: str, dtype: DType, ranges: tuple[Range, ...], body: Expr) -> str:
        if isinstance(body, Const) and kind_of(dtype) == "word":
            body = Cast(body, dtype)
        self.statements.append(Statement(label, dtype, ranges, body))
        self.outputs.append((label, label))
        return label

    def all_(self, gates: list[UOp]) -> Expr:
        made = self.as_(gates[0], BOOL)
        for gate in gates[1:]:
            made = Op("and", (made, self.as_(gate, BOOL)))
        return made

    def _loops(self, *what: UOp) -> tuple[Range, ...]:
        """The loops that expressions follow and no fold of theirs has closed, longest extents included only."""
        found = dict.fromkeys(r for u in what for r in u.ranges)
        ordered = sorted(found, key=lambda r: r.arg)
        return tuple(r for u in ordered for r in self.indices.ranges(u) if r.extent > 1)

    # expressions

    def as_(self, u: UOp, want: DType) -> Expr:
        """An expression as a value of a format."""
        if u.op is Ops.CONST:
            return number(u, want)
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
        inner = u.src[0] if u.op is Ops.REDUCE else u.src[0].src[0] if _of_stage(u) else None
        return () if inner is None or inner.op is Ops.CONST else (inner,)

    def _whole(self, u: UOp) -> Index | None:
        return self.indices.index(u) if dtypes.is_int(u.dtype) or u.dtype is dtypes.weakint else None

    def _kept(self, u: UOp, expr: Expr) -> _Known:
        """The expression, or a read of a value of its own where it is large or deep."""
        dtype = BOOL if u.op in GroupOp.Comparison else format_of(u)
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
            return Cast(_iota(whole), format_of(u))
        match u.op:
            case Ops.CONST:
                return number(u, format_of(u))
            case Ops.INDEX if _of_stage(u):
                return self._staged(u)
            case Ops.INDEX:
                return self.reads.read(u, self)
            case Ops.LOAD if len(u.src) == 1:
                return self.value(u.src[0]).expr
            case Ops.CAST:
                return self._cast(u)
            case Ops.BITCAST:
                source = format_of(u.src[0])
                return Bits(self.as_(u.src[0], source), source, format_of(u))
            case Ops.REDUCE:
                return self._reduce(u)
            case Ops.PARAM if u.addrspace is AddrSpace.ALU:
                raise Symbolic
            case _ if u.op in GroupOp.ALU:
                return self._alu(u)
            case _:
                raise Untranslatable(f"{u.op.name} in an expression")

    def _staged(self, u: UOp) -> Expr:
        """An element of a value that the kernel itself keeps: a statement over the loops it is kept over."""
        stage, places = u.src[0], u.src[1:]
        over = [self.indices.ranges(r) for r in stage.src[1:]]
        if len(over) != len(places):
            raise Untranslatable("an element of a kept value in another shape")
        at: dict[Range, Index] = {}
        for parts, place in zip(over, places):
            found = self.indices.index(place)
            step = prod(r.extent for r in parts)
            found = Index.of(Lookup(self.as_(place, _S64), step)) if found is None else found
            for n, r in enumerate(parts):
                step //= r.extent
                at[r] = found // step % r.extent if n else found // step
        dtype = format_of(u)
        if stage not in self.known:
            loops = dict.fromkeys((*self._loops(stage), *(r for parts in over for r in parts if r.extent > 1)))
            body = self.as_(stage.src[0], dtype)
            self.known[stage] = _Known(self._statement(dtype, tuple(loops), body), dtype, 1, 1)
        return self.known[stage].expr.substitute(at)

    def _cast(self, u: UOp) -> Expr:
        source, target = u.src[0], format_of(u)
        whole = self._whole(source)
        if whole is not None:
            return Cast(_iota(whole), target)
        if source.op is Ops.CONST:
            return Cast(number(source, format_of(source)), target)
        return Cast(self.value(source).expr, target)

    def _alu(self, u: UOp) -> Expr:
        if u.op is Ops.WHERE:
            want = format_of(u)
            if invalid(u.src[2]):  # 0 where it is not valid: tinygrad's own rule
                pad = zero(want)
                other: Expr = Cast(pad, want) if isinstance(want, WordFormat) else pad
                return Op("where", (self.as_(u.src[0], BOOL), self.as_(u.src[1], want), other))
            return Op("where", (self.as_(u.src[0], BOOL), self.as_(u.src[1], want), self.as_(u.src[2], want)))
        if u.op in GroupOp.Comparison:
            return self._comparison(u)
        want = format_of(u)
        args = tuple(self.as_(s, want) for s in u.src)
        if want == BOOL and u.op is Ops.XOR:
            return Op("not", (Op("equal", args),))
        return Op(operation(u.op, want), args)

    def _comparison(self, u: UOp) -> Expr:
        left, right = u.src
        both = [self._whole(s) for s in u.src]
        if both[0] is not None and both[1] is not None:
            args: tuple[Expr, ...] = tuple(_iota(b) for b in both if b is not None)
        else:
            strong = [s for s in u.src if s.dtype not in WEAK]
            reals = [s for s in u.src if kind_of(format_of(s)) == "real"]
            want = format_of((strong or reals or [left])[0])
            if kind_of(want) == "bool" and u.op is Ops.CMPLT:
                return Op("and", (Op("not", (self.as_(left, BOOL),)), self.as_(right, BOOL)))
            args = (self.as_(left, want), self.as_(right, want))
        if u.op is Ops.CMPLT:
            return Op("less", args)
        same = Op("equal", args)
        return same if u.op is Ops.CMPEQ else Op("not", (same,))

    def _reduce(self, u: UOp) -> Expr:
        op, axes = u.arg
        if axes or any(r.op is not Ops.RANGE for r in u.src[1:]):
            raise Untranslatable("a fold of another form")
        dtype = format_of(u)
        body, source = self.as_(u.src[0], dtype), u.src[0]
        if op is Ops.ADD and self._widened_product(source):
            # Products of halves are exact in the wider type they are summed in.
            body = Op("mul", tuple(self.as_(s, dtype) for s in source.src[0].src))
        folded = tuple(r for s in u.src[1:] for r in self.indices.ranges(s) if r.extent > 1)
        if not folded:
            return body
        if isinstance(body, Const) and kind_of(dtype) == "word":
            body = Cast(body, dtype)
        return self._statement(dtype, self._loops(u), body, Reduction(fold(op, dtype), folded))

    def _widened_product(self, u: UOp) -> bool:
        if u.op is not Ops.CAST or u.src[0].op is not Ops.MUL:
            return False
        return kind_of(format_of(u)) == kind_of(format_of(u.src[0])) == "real"


def _of_stage(u: UOp) -> bool:
    return u.op is Ops.INDEX and u.src[0].op is Ops.STAGE


def _iota(index: Index) -> Expr:
    return Iota(index) if index.constant is None else Const(index.constant)


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
