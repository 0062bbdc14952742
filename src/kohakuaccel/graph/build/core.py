"""A graph under construction, and handles on its values.

Decides names, and which format a result has when nobody says: the operand format that holds all the others exactly,
else FP32 or INT32. It must not know any operator; those are functions over handles, in the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.dtypes import BOOL, DType, Kind, kind_of
from kohakuaccel.graph.expr import Cast, Const, Expr, Read, Scalar, literal
from kohakuaccel.graph.index import Guard, Index, Indexable, Range
from kohakuaccel.graph.model import Constant, Graph, Input, ReduceOp, Reduction, Shape, Statement, Value
from kohakuaccel.graph.verify import verify
from kohakuaccel.numerics import FP32, INT32


class Builder:
    """Collects values in order; `graph` closes it into a verified graph."""

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}

    def input(self, name: str, shape: Sequence[int], dtype: DType) -> Tensor:
        """A value given to every run."""
        if name in self._values:
            raise Refusal("every input has a name of its own", where="graph.build", got=name)
        return self.keep(Input(name, tuple(shape), dtype))

    def constant(self, values: ArrayLike, dtype: DType, name: str = "c") -> Tensor:
        """A value known now."""
        return self.keep(Constant.of(self.fresh(name), values, dtype))

    def statement(
        self,
        dtype: DType,
        ranges: Sequence[Range],
        body: Expr,
        reduce: tuple[ReduceOp, Sequence[Range]] | None = None,
        name: str = "t",
    ) -> Tensor:
        """A value computed by one statement: the general form that every function of this package ends in."""
        fold = Reduction(reduce[0], tuple(reduce[1])) if reduce else None
        return self.keep(Statement(self.fresh(name), dtype, tuple(ranges), body, fold))

    @property
    def values(self) -> dict[str, Value]:
        """What was built so far, by name."""
        return dict(self._values)

    def graph(self, *outputs: Tensor, **named: Tensor) -> Graph:
        """The verified graph of what was built; outputs are labelled by keyword, or by their value's name."""
        pairs = [(t.name, t) for t in outputs] + list(named.items())
        for _, tensor in pairs:
            self.own(tensor)
        return verify(Graph(tuple(self._values.values()), tuple((label, t.name) for label, t in pairs)))

    @property
    def names(self) -> Mapping[str, Value]:
        """What was built so far, by name, in order."""
        return self._values

    def own(self, tensor: Tensor) -> None:
        """Refuse a handle of another builder."""
        if tensor.builder is not self:
            raise Refusal("values of one graph are combined", where="graph.build", got=f"{tensor.name} of another one")

    def fresh(self, stem: str) -> str:
        """A name no value has yet."""
        name, n = stem, 0
        while name in self._values:
            n += 1
            name = f"{stem}_{n}"
        return name

    def keep(self, value: Value) -> Tensor:
        """A value made elsewhere, under its own name, which `fresh` gave."""
        self._values[value.name] = value
        return Tensor(self, value.name, value.shape, value.dtype)


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """A handle on a value of a graph under construction; `+ - * / @` and unary `-` are those of `graph.build`."""

    builder: Builder
    name: str
    shape: Shape
    dtype: DType

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def kind(self) -> Kind:
        return kind_of(self.dtype)

    def at(self, *indices: Indexable) -> Read:
        """The element at `indices`, as an expression."""
        return Read(self.name, tuple(Index.of(i) for i in indices))

    def guarded(self, indices: Sequence[Indexable], pad: Scalar) -> Read:
        """The element at `indices`, or `pad` where one of them is out of bounds."""
        found = tuple(Index.of(i) for i in indices)
        guards = tuple(g for g in (Guard(i, 0, n) for i, n in zip(found, self.shape)) if not g.always)
        kind = "int" if self.kind == "word" else self.kind  # a word is padded with an integer that it holds
        return Read(self.name, found, guards, Const(number(pad, kind)) if guards else None)

    def __add__(self, other: Tensor | Scalar) -> Tensor:
        return _binary("add", self, other)

    def __radd__(self, other: Scalar) -> Tensor:
        return _binary("add", other, self)

    def __sub__(self, other: Tensor | Scalar) -> Tensor:
        return _binary("sub", self, other)

    def __rsub__(self, other: Scalar) -> Tensor:
        return _binary("sub", other, self)

    def __mul__(self, other: Tensor | Scalar) -> Tensor:
        return _binary("mul", self, other)

    def __rmul__(self, other: Scalar) -> Tensor:
        return _binary("mul", other, self)

    def __truediv__(self, other: Tensor | Scalar) -> Tensor:
        return _binary("div", self, other)

    def __rtruediv__(self, other: Scalar) -> Tensor:
        return _binary("div", other, self)

    def __neg__(self) -> Tensor:
        from kohakuaccel.graph.build.elementwise import unary

        return unary("neg", self)

    def __matmul__(self, other: Tensor) -> Tensor:
        from kohakuaccel.graph.build.products import matmul

        return matmul(self, other)


def _binary(name: str, left: Tensor | Scalar, right: Tensor | Scalar) -> Tensor:
    from kohakuaccel.graph.build.elementwise import binary

    return binary(name, left, right)


def number(value: Scalar, kind: Kind) -> Scalar:
    """A Python number as one of `kind`; a real with a fraction is no integer."""
    if kind == "real":
        return float(value)
    if kind in ("int", "word") and float(value) == int(value):
        return int(value)
    if kind == "bool" and value in (0, 1):
        return bool(value)
    raise Refusal("a number is of the kind of what it meets", where="graph.build", got=value, limit=kind)


def result_dtype(dtypes: Sequence[DType]) -> DType:
    """The format among `dtypes` that holds every other one exactly; else FP32 or INT32. Kinds may not mix."""
    if len({kind_of(d) for d in dtypes}) != 1:
        raise Refusal(
            "operands are of one kind",
            where="graph.build",
            got=", ".join(f"{d} ({kind_of(d)})" for d in dtypes),
            hint="cast one of them",
        )
    for dtype in dtypes:
        if all(dtype.is_exact_from(other) for other in dtypes):
            return dtype
    return {"real": FP32, "int": INT32, "bool": BOOL}[kind_of(dtypes[0])]


def of_reals(x: Tensor, where: str) -> Tensor:
    """A tensor of reals. Raises Refusal for any other."""
    if kind_of(x.dtype) != "real":
        raise Refusal("a mean is of reals", where=where, got=x.dtype, hint="cast it, to FP32 say")
    return x


def axes_of(shape: Sequence[int], stem: str = "i") -> tuple[Range, ...]:
    """One range an axis: i0, i1, ..."""
    return tuple(Range(f"{stem}{n}", extent) for n, extent in enumerate(shape))


def axis_of(axis: int, ndim: int, where: str) -> int:
    """A possibly negative axis as 0 .. ndim - 1."""
    if not -ndim <= axis < ndim:
        raise Refusal("an axis of the value", where=where, got=axis, limit=f"{-ndim}..{ndim - 1}")
    return axis % ndim


def broadcast(shapes: Sequence[Shape], where: str) -> Shape:
    """The common shape, by the usual rule: aligned at the last axis, extents equal or 1."""
    rank = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    result = tuple(max(column) for column in zip(*padded)) if rank else ()
    if any(n not in (1, full) for s in padded for n, full in zip(s, result)):
        raise Refusal("shapes broadcast", where=where, got=" and ".join(map(str, shapes)))
    return result


def spread(tensor: Tensor, ranges: Sequence[Range]) -> Read:
    """The element of a broadcast operand at `ranges`."""
    own = ranges[len(ranges) - tensor.ndim :] if tensor.ndim else ()
    return tensor.at(*(0 if n == 1 else r for n, r in zip(tensor.shape, own)))


def pointwise(
    what: Callable[..., Expr], *operands: Tensor | Scalar, dtype: DType | None = None, name: str = "t"
) -> Tensor:
    """`what` of the operands' elements (as expressions), broadcast; numbers take the kind of the last tensor.

    dtype: of the result; by default `result_dtype` of the tensors.
    """
    tensors = [t for t in operands if isinstance(t, Tensor)]
    if not tensors:
        raise Refusal("one operand at least is a value of the graph", where=f"graph.build.{name}", got="numbers only")
    builder = tensors[0].builder
    for tensor in tensors:
        builder.own(tensor)
    ranges = axes_of(broadcast([t.shape for t in tensors], f"graph.build.{name}"))
    last = tensors[-1]
    parts = [
        spread(t, ranges) if isinstance(t, Tensor) else literal(number(t, last.kind), last.dtype) for t in operands
    ]
    return builder.statement(dtype or result_dtype([t.dtype for t in tensors]), ranges, what(*parts), name=name)


def converted(expr: Expr, source: DType, target: DType) -> Expr:
    """`expr` of format `source` as one of `target`: a cast where the kinds differ."""
    return expr if kind_of(source) == kind_of(target) else Cast(expr, target)
