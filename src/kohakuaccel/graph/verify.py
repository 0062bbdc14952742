"""Whether a graph is right: names, order, shapes, kinds, and every index in bounds or guarded.

Decides what other parts may rely on, without numbers at hand; what only a run can know (a gathered index keeps its
promise, an integer fits its format) is checked by `run`. All problems of a graph are reported at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from keyword import iskeyword

from kohakuaccel.diagnostics import DefinitionError, did_you_mean
from kohakuaccel.graph.dtypes import BOOL, DType, Float64Format, Kind, WordFormat, kind_of, numpy_of
from kohakuaccel.graph.expr import OPS, Bits, Cast, Const, Expr, Iota, Op, Read
from kohakuaccel.graph.index import Index
from kohakuaccel.graph.model import Constant, Graph, Statement, Value
from kohakuaccel.numerics import ScalarFormat

KEYWORDS = frozenset(
    {"input", "const", "output", "format", "iota", "guard", "cast", "bits", "at", "None", "True", "False"}
)
_NAMES = KEYWORDS | frozenset(OPS) | {"inf", "nan", "sum", "prod"}


def verify(graph: Graph) -> Graph:
    """Return `graph`, or raise a `DefinitionError` that lists every problem, each with the statement it is in."""
    problems = list(_problems(graph))
    if problems:
        raise DefinitionError("; ".join(dict.fromkeys(problems)), where="graph")
    return graph


class Types:
    """Kinds and formats of expressions over `values`, which stay the same meanwhile: each expression is asked once."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = values
        self._kinds: dict[int, tuple[Expr, Kind]] = {}
        self._formats: dict[int, tuple[Expr, DType | None]] = {}

    def kind(self, expr: Expr) -> Kind:
        """The kind of an expression; a `DefinitionError` where kinds mix or a value is unknown."""
        found = self._kinds.get(id(expr))
        if found is None:
            self._kinds[id(expr)] = found = expr, self._kind(expr)
        return found[1]

    def format_of(self, expr: Expr) -> DType | None:
        """The format an expression is written in: that of what it reads or was cast to; None for numbers alone.

        An operation of several formats has the one that holds all others, else the first.
        """
        found = self._formats.get(id(expr))
        if found is None:
            self._formats[id(expr)] = found = expr, self._format(expr)
        return found[1]

    def map_formats(self, expr: Op) -> list[DType]:
        """The formats of an operation's arguments that have one; of a where, those it chooses between."""
        args = expr.args[1:] if expr.name == "where" else expr.args
        return [f for f in map(self.format_of, args) if f is not None]

    def _kind(self, expr: Expr) -> Kind:
        if isinstance(expr, Const):
            return expr.kind
        if isinstance(expr, Iota):
            return "int"
        if isinstance(expr, Cast):
            self.kind(expr.arg)
            return kind_of(expr.dtype)
        if isinstance(expr, Bits):
            return self._bits(expr)
        if isinstance(expr, Read):
            if expr.value not in self.values:
                raise DefinitionError(f"reads the unknown value {expr.value!r}{did_you_mean(expr.value, self.values)}")
            return kind_of(self.values[expr.value].dtype)
        assert isinstance(expr, Op)
        signature = OPS[expr.name]
        kinds = [self.kind(a) for a in expr.args]
        if expr.name == "where" and kinds.pop(0) != "bool":
            raise DefinitionError(f"where asks a truth value, in {expr}")
        if kinds[0] == "word" and len({f.name for f in self.map_formats(expr)}) > 1:
            raise DefinitionError(f"words of one format are combined; cast one of them, in {expr}")
        if len(set(kinds)) != 1 or kinds[0] not in signature.kinds:
            raise DefinitionError(
                f"{expr.name} takes {' or '.join(signature.kinds)}, not {', '.join(kinds)}, in {expr}"
            )
        return signature.result or kinds[0]

    def _bits(self, expr: Bits) -> Kind:
        source = expr.source
        if width(source) != width(expr.dtype) or not width(source):
            raise DefinitionError(f"bits are taken of a value of as many bits, not {source} to {expr.dtype}, in {expr}")
        if self.kind(expr.arg) != kind_of(source) or (
            self.format_of(expr.arg) not in (None, source) and (kind_of(source) == "word")
        ):
            raise DefinitionError(f"bits are taken of a value of the format named, in {expr}")
        return kind_of(expr.dtype)

    def _format(self, expr: Expr) -> DType | None:
        if isinstance(expr, Read):
            return self.values[expr.value].dtype
        if isinstance(expr, Cast | Bits):
            return expr.dtype
        if isinstance(expr, Op):
            if OPS[expr.name].result == "bool":
                return BOOL
            found = list(dict.fromkeys(self.map_formats(expr)))
            if len(found) < 2:
                return found[0] if found else None
            return next((f for f in found if all(f.is_exact_from(other) for other in found)), found[0])
        return None


def kind(expr: Expr, values: Mapping[str, Value]) -> Kind:
    """See `Types.kind`."""
    return Types(values).kind(expr)


def map_formats(expr: Op, values: Mapping[str, Value]) -> list[DType]:
    """See `Types.map_formats`."""
    return Types(values).map_formats(expr)


def format_of(expr: Expr, values: Mapping[str, Value]) -> DType | None:
    """See `Types.format_of`."""
    return Types(values).format_of(expr)


def width(dtype: DType) -> int:
    """Bits of a format whose bits can be taken: words and binary floats; else 0."""
    if isinstance(dtype, WordFormat | Float64Format | ScalarFormat):
        return dtype.bits
    return 0


def _problems(graph: Graph) -> Iterator[str]:
    counts = Counter(v.name for v in graph.values)
    yield from (f"the name {name!r} belongs to {n} values" for name, n in counts.items() if n > 1)
    labels = Counter(label for label, _ in graph.outputs)
    yield from (f"the output {label!r} is named {n} times" for label, n in labels.items() if n > 1)
    if not graph.outputs:
        yield "it has no output"
    for label, name in graph.outputs:
        if name not in counts:
            yield f"the output {label!r} is the unknown value {name!r}{did_you_mean(name, counts)}"
        if not label.isidentifier():
            yield f"the output label {label!r} is not an identifier"
    known: dict[str, Value] = {}
    for value in graph.values:
        place = f"{type(value).__name__.lower()} {value.name}"
        if not value.name.isidentifier() or value.name in _NAMES or iskeyword(value.name):
            yield f"{place}: its name is not an identifier, or has a meaning of its own"
        try:
            kind_of(value.dtype)
        except DefinitionError as error:
            yield f"{place}: {error.rule}; got {error.got}"
            continue
        if isinstance(value, Statement):
            yield from (f"{place}: {text}" for text in _statement(value, known, counts))
        else:
            yield from (f"{place}: {text}" for text in _given(value))
        known.setdefault(value.name, value)


def _given(value: Value) -> Iterator[str]:
    if not all(isinstance(n, int) and n > 0 for n in value.shape):
        yield f"extents are concrete positive integers, not {value.shape}"
    elif isinstance(value, Constant):
        size = numpy_of(value.dtype).itemsize
        for n in value.shape:
            size *= n
        if len(value.data) != size:
            yield f"its data has {len(value.data)} bytes where shape {value.shape} takes {size}"


def _statement(statement: Statement, known: Mapping[str, Value], names: Mapping[str, int]) -> Iterator[str]:
    own = (*statement.ranges, *statement.reduced)
    for name, n in Counter(r.name for r in own).items():
        if n > 1:
            yield f"the range {name} stands for {n} axes"
        if name in _NAMES or iskeyword(name):
            yield f"the range {name} has the name of an operation, or a meaning of its own"
    missing = [r for r in statement.body.ranges() if r not in own]
    if missing:
        listed = ", ".join(sorted(f"{r.name}<{r.extent}" for r in missing))
        yield f"the body follows {listed}, which is neither an output range nor folded"
    later = sorted({r.value for r in statement.body.reads() if r.value in names and r.value not in known})
    if later:
        yield f"reads {', '.join(later)} before it is made: values come in order, and a cycle has none"
        return
    try:
        body = kind(statement.body, known)
    except DefinitionError as error:
        yield error.rule
        return
    if body == "word" and format_of(statement.body, known) not in (None, statement.dtype):
        yield f"its body is {format_of(statement.body, known)}, its dtype {statement.dtype}; cast one to the other"
    if body != kind_of(statement.dtype):
        yield f"its body is {body}, its dtype {statement.dtype} is {kind_of(statement.dtype)}; cast one to the other"
    if statement.reduction and statement.reduction.op in ("sum", "prod") and body == "bool":
        yield f"{statement.reduction.op} folds numbers; cast the truth values to a number, or use max or min"
    for expr in statement.body.walk():
        if isinstance(expr, Read):
            yield from read_problems(expr, known)
        elif isinstance(expr, Iota):
            yield from _lookups(expr.index, known)


def read_problems(read: Read, known: Mapping[str, Value]) -> Iterator[str]:
    """What is wrong with one read: indices, guards and pad, bounds."""
    value = known[read.value]
    if len(read.indices) != len(value.shape):
        yield f"{read}: {read.value} has {len(value.shape)} axes, the read {len(read.indices)} indices"
        return
    for index in (*read.indices, *(g.index for g in read.guards)):
        yield from _lookups(index, known)
    if (read.pad is None) != (not read.guards):
        yield f"{read}: a guarded read has a pad value, and only a guarded one"
    elif (
        read.pad and read.pad.kind != kind_of(value.dtype) and (read.pad.kind, kind_of(value.dtype)) != ("int", "word")
    ):
        yield f"{read}: the pad value is {read.pad.kind}, {read.value} is {kind_of(value.dtype)}"
    if any(g.never for g in read.guards):
        return  # nothing is ever read
    for axis, (index, extent) in enumerate(zip(read.indices, value.shape)):
        low, high = index.interval(read.guards)
        if low <= high and (low < 0 or high >= extent):
            yield (
                f"{read}: the index {index} of axis {axis} spans {low}..{high}, {read.value} has 0..{extent - 1}; "
                "guard the read"
            )


def _lookups(index: Index, known: Mapping[str, Value]) -> Iterator[str]:
    for lookup in index.lookups():
        try:
            found = kind(lookup.value, known)
        except DefinitionError as error:
            yield error.rule
            continue
        if found not in ("int", "word"):
            yield f"{lookup}: a gathered index is an integer, not {found}"
        if not isinstance(lookup.extent, int) or lookup.extent < 1:
            yield f"{lookup}: a gathered index promises a positive extent"
