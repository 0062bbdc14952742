"""Scalar expressions: what a statement computes at one point of its ranges.

Decides the closed set of scalar operations and the kinds (real, int, bool) they take and give. It must not know arrays.

| operation | kinds | written |
|---|---|---|
| add sub mul | real, int, word | `a + b` `a - b` `a * b` |
| div | real | `a / b` |
| idiv mod (rounded down) | int | `a // b` `a % b` |
| wdiv wmod (rounded down), quot rem (cut towards zero) | word | `quot(a, b)` |
| and or | bool, int and word (bitwise) | `a & b` `a | b` |
| xor | word | `xor(a, b)` |
| shl shr (of signed words arithmetic) | word | `shl(a, b)` |
| not | bool | `~a` |
| less, equal (give bool) | real, int, word; equal also bool | `a < b` `a == b` |
| max min (a NaN wins) | real, int, bool, word | `max(a, b)` |
| fma (a * b + c) | real, int, word | `fma(a, b, c)` |
| where (bool, a, b) | real, int, bool, word | `where(c, a, b)` |
| neg abs | real, int, word | `neg(a)` |
| exp2 log2 sqrt rsqrt recip sin floor cut (towards zero), pow | real | `exp2(a)` `pow(a, b)` |
| threefry (U64 counter, U64 key) | word | `threefry(a, b)` |

A word is an integer modulo 2**bits (`WordFormat`): it wraps where an int is refused; dividing one by zero gives 0, and
shifting by its width or more gives 0 (-1 where a negative one is shifted right).

A cast names a format: `cast(a, INT32)`; to an integer it cuts towards zero, to a word it also wraps (NaN and Inf become
0), to a truth value it asks whether a is not zero. `bits(a, FP32, U32)` rounds a real to the first format
and takes its bits as a value of the second, which has as many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from kohakuaccel.diagnostics import DefinitionError, did_you_mean
from kohakuaccel.graph.dtypes import DType, Kind, WordFormat
from kohakuaccel.graph.index import Guard, Index, Indexable, Lookup, Quotient, Range

Scalar = float | int | bool


@dataclass(frozen=True, slots=True)
class Signature:
    """How many arguments an operation takes, of which kinds (all of one), and what kind it gives (None: theirs)."""

    arity: int
    kinds: tuple[Kind, ...]
    result: Kind | None = None


_NUMBERS: tuple[Kind, ...] = ("real", "int", "word")
_ALL: tuple[Kind, ...] = ("real", "int", "bool", "word")
OPS: Mapping[str, Signature] = {
    **{name: Signature(2, _NUMBERS) for name in ("add", "sub", "mul")},
    "div": Signature(2, ("real",)),
    "pow": Signature(2, ("real",)),
    "idiv": Signature(2, ("int",)),
    "mod": Signature(2, ("int",)),
    **{name: Signature(2, ("word",)) for name in ("wdiv", "wmod", "quot", "rem", "xor", "shl", "shr", "threefry")},
    "and": Signature(2, ("bool", "int", "word")),
    "or": Signature(2, ("bool", "int", "word")),
    "not": Signature(1, ("bool",)),
    "less": Signature(2, _NUMBERS, "bool"),
    "equal": Signature(2, _ALL, "bool"),
    "max": Signature(2, _ALL),
    "min": Signature(2, _ALL),
    "fma": Signature(3, _NUMBERS),
    "where": Signature(3, _ALL),  # its first argument is a truth value, the others decide
    "neg": Signature(1, _NUMBERS),
    "abs": Signature(1, _NUMBERS),
    **{name: Signature(1, ("real",)) for name in ("exp2", "log2", "sqrt", "rsqrt", "recip", "sin", "floor", "cut")},
}
"""The closed set."""

COMMUTATIVE = frozenset({"add", "mul", "and", "or", "xor", "equal", "max", "min"})
_INFIX = {
    "or": ("|", 1),
    "and": ("&", 2),
    "less": ("<", 0),
    "equal": ("==", 0),
    "add": ("+", 4),
    "sub": ("-", 4),
    "mul": ("*", 5),
    "div": ("/", 5),
    "idiv": ("//", 5),
    "mod": ("%", 5),
}


class Expr:
    """A scalar expression. Immutable; equal when it is written the same."""

    __slots__ = ()

    @property
    def children(self) -> tuple[Expr, ...]:
        """The expressions it is made of, gathers' not included."""
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """The same node over other children."""
        return self

    def walk(self) -> Iterator[Expr]:
        """Itself and everything below, gathers' expressions included."""
        yield self
        for child in self.children:
            yield from child.walk()

    def reads(self) -> Iterator[Read]:
        """Every read, those that are indices of others included."""
        return (e for e in self.walk() if isinstance(e, Read))

    def ranges(self) -> frozenset[Range]:
        """Every range it depends on."""
        return reduce(frozenset.union, (child.ranges() for child in self.children), frozenset())

    def substitute(self, new: Mapping[Range, Index]) -> Expr:
        """The same expression with ranges replaced."""
        return self.with_children(tuple(child.substitute(new) for child in self.children))

    def __str__(self) -> str:
        return spell(self)


@dataclass(frozen=True, slots=True, eq=False)
class Const(Expr):
    """A number. `0.0` and `-0.0` differ, `1` (int), `1.0` (real) and `True` (bool) differ, a NaN equals itself."""

    value: Scalar

    @property
    def kind(self) -> Kind:
        return "bool" if isinstance(self.value, bool) else "int" if isinstance(self.value, int) else "real"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and (self.kind, repr(self.value)) == (other.kind, repr(other.value))

    def __hash__(self) -> int:
        return hash((self.kind, repr(self.value)))


@dataclass(frozen=True, slots=True)
class Iota(Expr):
    """An index as an integer value."""

    index: Index

    def walk(self) -> Iterator[Expr]:
        yield self
        yield from _inside((self.index,))

    def ranges(self) -> frozenset[Range]:
        return self.index.ranges()

    def substitute(self, new: Mapping[Range, Index]) -> Expr:
        return Iota(self.index.substitute(new))


@dataclass(frozen=True, slots=True)
class Read(Expr):
    """The element of a value at `indices`, or `pad` where one of `guards` does not hold (then nothing is read)."""

    value: str
    indices: tuple[Index, ...]
    guards: tuple[Guard, ...] = ()
    pad: Const | None = None

    def walk(self) -> Iterator[Expr]:
        yield self
        yield from _inside((*self.indices, *(g.index for g in self.guards)))

    def ranges(self) -> frozenset[Range]:
        parts = [i.ranges() for i in (*self.indices, *(g.index for g in self.guards))]
        return reduce(frozenset.union, parts, frozenset())

    def substitute(self, new: Mapping[Range, Index]) -> Expr:
        guards = tuple(g.substitute(new) for g in self.guards)
        return Read(self.value, tuple(i.substitute(new) for i in self.indices), guards, self.pad)


@dataclass(frozen=True, slots=True)
class Op(Expr):
    """One of `OPS` over its arguments."""

    name: str
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if self.name not in OPS:
            raise DefinitionError(
                f"scalar operations are a closed set{did_you_mean(self.name, OPS)}", where="expression", got=self.name
            )
        if len(self.args) != OPS[self.name].arity:
            raise DefinitionError(
                f"{self.name} takes {OPS[self.name].arity} arguments", where="expression", got=len(self.args)
            )

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Op(self.name, children)


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """The argument as a value of another format."""

    arg: Expr
    dtype: DType

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Cast(children[0], self.dtype)


@dataclass(frozen=True, slots=True)
class Bits(Expr):
    """The bits of the argument as a value of format `source`, to which a real is rounded, as one of format `dtype`."""

    arg: Expr
    source: DType
    dtype: DType

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Bits(children[0], self.source, self.dtype)


def _inside(indices: tuple[Index, ...]) -> Iterator[Expr]:
    for index in indices:
        for lookup in index.lookups():
            yield from lookup.value.walk()


def read(value: str, *indices: Indexable, guards: tuple[Guard, ...] = (), pad: Scalar | None = None) -> Read:
    """A read with plain numbers allowed as indices and pad."""
    return Read(value, tuple(Index.of(i) for i in indices), guards, None if pad is None else Const(pad))


def literal(number: Scalar, dtype: DType) -> Expr:
    """A number as a value of a format's kind: of a word a cast integer."""
    return Cast(Const(number), dtype) if isinstance(dtype, WordFormat) else Const(number)


def op(name: str, *args: Expr | Scalar) -> Expr:
    """An operation with plain numbers allowed as arguments."""
    return Op(name, tuple(a if isinstance(a, Expr) else Const(a) for a in args))


def rebuild(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """`expr` with `change` applied to every node from the leaves up, those inside gathers too."""
    if isinstance(expr, Read):
        guards = tuple(Guard(_rebuilt(g.index, change), g.low, g.high) for g in expr.guards)
        expr = Read(expr.value, tuple(_rebuilt(i, change) for i in expr.indices), guards, expr.pad)
    elif isinstance(expr, Iota):
        expr = Iota(_rebuilt(expr.index, change))
    else:
        expr = expr.with_children(tuple(rebuild(child, change) for child in expr.children))
    return change(expr)


def _rebuilt(index: Index, change: Callable[[Expr], Expr]) -> Index:
    if not any(True for _ in index.lookups()):
        return index
    result = Index(index.offset, ())
    for atom, factor in index.terms:
        if isinstance(atom, Range):
            part = Index.of(atom)
        elif isinstance(atom, Lookup):
            part = Index.of(Lookup(rebuild(atom.value, change), atom.extent))
        else:
            inner = _rebuilt(atom.index, change)
            part = inner // atom.divisor if isinstance(atom, Quotient) else inner % atom.divisor
        result = result + part * factor
    return result


def spell(expr: Expr, level: int = 0) -> str:
    """The expression as text; infix operations are put in parentheses where their surroundings bind tighter."""
    if isinstance(expr, Const):
        return repr(expr.value)
    if isinstance(expr, Iota):
        return f"iota({expr.index})"
    if isinstance(expr, Read):
        text = f"{expr.value}[{', '.join(map(str, expr.indices)) or '()'}]"
        if not expr.guards and expr.pad is None:
            return text
        pad = "None" if expr.pad is None else spell(expr.pad)
        return f"guard({', '.join([text, pad, *map(str, expr.guards)])})"
    if isinstance(expr, Cast):
        return f"cast({spell(expr.arg)}, {expr.dtype.name})"
    if isinstance(expr, Bits):
        return f"bits({spell(expr.arg)}, {expr.source.name}, {expr.dtype.name})"
    assert isinstance(expr, Op)
    if expr.name == "not":
        return f"~({spell(expr.args[0])})"
    if expr.name not in _INFIX:
        return f"{expr.name}({', '.join(spell(a) for a in expr.args)})"
    sign, own = _INFIX[expr.name]
    # A comparison of comparisons would read as a chain, so both its sides bind tighter than it does.
    text = f"{spell(expr.args[0], own or 1)} {sign} {spell(expr.args[1], own + 1)}"
    return f"({text})" if own < level else text
