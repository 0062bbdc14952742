"""Statements of bytes, four to a lane's word: what each operation is in instructions over packed words (datasheet 4).

Decides which expressions bytes can hold and which instructions keep their exact bits: the unit's packed additions
saturate, so they stand only where no result is beyond a byte, or where the graph itself clamps. It must not know
layouts, registers or programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kohakuaccel.graph import BOOL, Bits, Cast, Const, DType, Expr, Op, Read, Statement, Value, WordFormat
from kohakuaccel.graph.native import Box
from kohakuaccel.numerics import INT32, IntFormat
from tinytpu.isa.codes import VPU
from tinytpu.lower.body import Plans
from tinytpu.lower.data import Data
from tinytpu.lower.forms.spelling import sign_of
from tinytpu.lower.numbers import words
from tinytpu.lower.numbers.base import span, wraps
from tinytpu.lower.numbers.spans import Span, holds, joined, span_of
from tinytpu.lower.program.code import Code, Result
from tinytpu.lower.reach import Reach

SIGNED, UNSIGNED = (-128, 127), (0, 255)
LOW7, TOP = 0x7F7F7F7F, 0x80808080


class NotBytes(Exception):
    """An expression that bytes do not hold, or an operation that they have no instructions for."""


class Byte(NamedTuple):
    """A value of a byte an element; truth values are FF and 00. low, high: what the number can be, which may be more
    than a byte holds: then `value` is its low bits (None where they are not known), and `clamped` the number cut to
    -128..127, where that is at hand."""

    value: int | None
    low: int
    high: int
    clamped: int | None = None

    @property
    def span(self) -> Span:
        return self.low, self.high

    @property
    def signed(self) -> int | None:
        """The value cut to -128..127."""
        return self.value if holds(SIGNED, self.span) else self.clamped

    @property
    def held(self) -> bool:
        """Whether the byte is the number, in two's complement or unsigned."""
        return self.value is not None and (holds(SIGNED, self.span) or holds(UNSIGNED, self.span))


def is_byte(dtype: DType) -> bool:
    """Whether elements of a format are held in bytes."""
    return dtype == BOOL or (isinstance(dtype, WordFormat | IntFormat) and dtype.bits == 8)


def may_hold(statements: Sequence[Statement], names: Mapping[str, Value]) -> bool:
    """Whether statements make bytes of bytes, element by element."""
    own = {s.name for s in statements}
    reads = {r.value for s in statements for r in s.body.reads()} - own
    return all(s.reduction is None and is_byte(s.dtype) for s in statements) and all(
        is_byte(names[name].dtype) for name in reads
    )


def tile_of(
    code: Code, plans: Plans, statements: Sequence[Statement], outputs: Sequence[str], names: Mapping[str, Value],
    tile: int,
) -> None:  # fmt: skip
    """The code of one tile of statements. Raises NotBytes."""
    known: dict[str, Byte] = {}
    reach = Reach(names)
    for statement in statements:
        body = _Body(code, plans, statement, names, known, tile, reach)
        known[statement.name] = body.settled(body.value(statement.body), statement.dtype)
    for index, name in enumerate(outputs):
        code.store(_whole(known[name]), Result(index, tile))


def _whole(a: Byte) -> int:
    if a.value is None:
        raise NotBytes("low bits")
    return a.value


@dataclass
class _Body:
    """The expressions of one statement for one tile. known: values of the same stage."""

    code: Code
    plans: Plans
    statement: Statement
    names: Mapping[str, Value]
    known: Mapping[str, Byte]
    tile: int
    reach: Reach
    _done: dict[int, tuple[Expr, Byte]] = field(default_factory=dict[int, tuple[Expr, Byte]])

    def value(self, expr: Expr) -> Byte:
        if id(expr) not in self._done:
            self._done[id(expr)] = expr, self._value(expr)
        return self._done[id(expr)][1]

    def settled(self, a: Byte, dtype: DType | None) -> Byte:
        """A number in its format: a word wraps, which leaves its low bits."""
        if dtype == BOOL or not isinstance(dtype, WordFormat) or not wraps(dtype, *a.span):
            return a
        return Byte(_whole(a), *span(dtype))

    def _value(self, expr: Expr) -> Byte:
        facts = self.plans.facts(self.names)
        if facts.kind(expr) == "real":
            raise NotBytes(str(expr))
        dtype = BOOL if facts.kind(expr) == "bool" else facts.format_of(expr) or INT32
        if isinstance(expr, Read):
            return self._read(expr, dtype)
        if facts.number_alone(expr):
            number = expr.value if isinstance(expr, Const) else Box((), {}, self.names).value(expr, dtype)
            return self._constant(int(np.asarray(number).item()), dtype)
        if facts.host_filled(expr):
            return self._leaf(expr, dtype, self._indices(expr, dtype))
        if isinstance(expr, Cast):
            return self.settled(self._cast(expr), dtype)
        if isinstance(expr, Bits):
            if not (is_byte(expr.source) and is_byte(dtype)):
                raise NotBytes(str(expr))
            return self.settled(self.value(expr.arg), dtype)
        if not isinstance(expr, Op) or expr.name not in _OPERATIONS:
            raise NotBytes(str(expr))
        sign = sign_of(expr)
        if sign is not None and self.value(sign).signed is not None and holds(SIGNED, self.value(sign).span):
            return Byte(self._vpu("PACKED_I8_SIGN", _whole(self.value(sign))), -1, 1)
        return self.settled(_OPERATIONS[expr.name](self, expr), dtype)

    def _read(self, read: Read, dtype: DType) -> Byte:
        if read.value in self.known:
            return self.known[read.value]
        if not is_byte(dtype):
            raise NotBytes(read.value)
        return self._leaf(read, dtype, joined((0, 0), self.reach.of(read)))  # lanes without an element hold 0

    def _indices(self, expr: Expr, dtype: DType) -> Span:
        if dtype == BOOL:
            return 0, 1
        found = np.asarray(self._data(expr, dtype).exact(self.names))
        reach = min(0, int(found.min())), max(0, int(found.max()))
        if not (holds(SIGNED, reach) or holds(UNSIGNED, reach)):
            raise NotBytes(str(expr))
        return reach

    def _data(self, expr: Expr, dtype: DType) -> Data:
        ranges = self.statement.ranges
        return Data(expr, dtype, ranges, (), not expr.ranges().isdisjoint(ranges), False)

    def _leaf(self, expr: Expr, dtype: DType, reach: Span) -> Byte:
        return Byte(self.code.source(self.plans.leaf(self._data(expr, dtype), self.tile, 0)), *reach)

    def _constant(self, number: int, dtype: DType) -> Byte:
        if dtype == BOOL:
            return Byte(self.code.fill(-bool(number)), number, number)
        return Byte(self._fill(number), number, number)

    def _cast(self, expr: Cast) -> Byte:
        arg = self.value(expr.arg)
        truth = self.plans.facts(self.names).kind(expr.arg) == "bool"
        if expr.dtype == BOOL and not truth:
            if not arg.held:
                raise NotBytes(str(expr))
            return Byte(self._not(self._vpu("PACKED_I8_CMPEQ", _whole(arg), self._fill(0))), 0, 1)
        if truth:
            return arg if expr.dtype == BOOL else Byte(words.both(self.code, _whole(arg), self._fill(1)), 0, 1)
        return arg

    # Words of four bytes.

    def _fill(self, number: int) -> int:
        return self.code.fill((number & 0xFF) * 0x01010101)

    def _vpu(self, name: str, a: int, b: int | None = None) -> int:
        return self.code.vpu(VPU[name], a, b)

    def _not(self, a: int) -> int:
        known = self.code.constant(a)
        return self.code.vpu(VPU.NOT, a) if known is None else self.code.fill(~known)

    def _low7(self, a: Byte) -> int:
        """The low 7 bits of every byte."""
        value = _whole(a)
        return value if holds((0, 127), a.span) else words.both(self.code, value, self.code.fill(LOW7))

    def _added(self, a: Byte, b: Byte) -> int:
        """Sums modulo 256: the low 7 bits cannot carry into the next byte, the top ones are put in afterwards."""
        code, x, y = self.code, _whole(a), _whole(b)
        for one, other in ((x, y), (y, x)):
            known = code.constant(other)
            if known is not None:
                return self._moved(one, known & 0xFF)
        low, more = self._low7(a), self._low7(b)
        total = code.vpu(VPU.ADD, low, more)
        for one, part, rest in ((x, low, (y, more)), (y, more, (x, low))):
            if part == one:  # its top bit is clear
                return total if rest[0] == rest[1] else words.differing(code, total, words.differing(code, *rest))
        top = self._not_emitted(code.fill(LOW7))
        return words.differing(code, total, words.both(code, words.differing(code, x, y), top))

    def _not_emitted(self, a: int) -> int:
        """The complement of a constant that is in a register, which takes less than another constant."""
        return self.code.vpu(VPU.NOT, a)

    def _moved(self, a: int, number: int) -> int:
        """A byte and a number, 0..255, added modulo 256."""
        code = self.code
        if number in (0, 128):
            return words.differing(code, a, self._fill(number))
        if number < 128:
            low = words.both(code, a, code.fill(LOW7))
            total = code.vpu(VPU.ADD, low, self._fill(number))
        else:
            low = words.either(code, a, code.fill(TOP))
            total = code.vpu(VPU.SUB, low, self._fill(256 - number))
        return words.differing(code, total, words.differing(code, low, a))

    def _subtracted(self, a: Byte, b: Byte) -> int:
        """Differences modulo 256: of two negative bytes none is beyond a byte."""
        code, x, y = self.code, _whole(a), _whole(b)
        known = code.constant(y)
        if known is not None:
            return self._moved(x, -known & 0xFF)
        if code.constant(x) == 0:
            return self._vpu("PACKED_I8_MUL_LOW", y, self._fill(-1))
        top = code.fill(TOP)
        low = self._vpu("PACKED_I8_SUB", words.either(code, x, top), words.either(code, y, top))
        return words.differing(code, low, words.both(code, words.differing(code, x, y), top))

    def _ordered(self, a: Byte, b: Byte) -> tuple[int, int]:
        """Two values as bytes that compare as signed ones do."""
        if holds(SIGNED, a.span) and holds(SIGNED, b.span):
            return _whole(a), _whole(b)
        if holds(UNSIGNED, a.span) and holds(UNSIGNED, b.span):
            top = self.code.fill(TOP)
            return words.differing(self.code, _whole(a), top), words.differing(self.code, _whole(b), top)
        raise NotBytes("numbers of one sign")

    # Operations: each takes the expression and gives the number before it is brought into its format.

    def _args(self, expr: Op) -> list[Byte]:
        return [self.value(a) for a in expr.args]

    def _is_truth(self, expr: Op) -> bool:
        return self.plans.facts(self.names).kind(expr.args[-1]) == "bool"

    def add(self, expr: Op) -> Byte:
        return self._sum(*self._args(expr))

    def _sum(self, a: Byte, b: Byte) -> Byte:
        reach = span_of("add", (a.span, b.span))
        both = holds(SIGNED, a.span) and holds(SIGNED, b.span)
        clamped = self._vpu("PACKED_I8_ADD", _whole(a), _whole(b)) if both else None
        if clamped is not None and holds(SIGNED, reach):
            return Byte(clamped, *reach)
        if holds(UNSIGNED, a.span) and holds(UNSIGNED, b.span) and holds(UNSIGNED, reach):
            return Byte(words.add(self.code, _whole(a), _whole(b)), *reach, clamped)
        return Byte(self._added(a, b), *reach, clamped)

    def sub(self, expr: Op) -> Byte:
        a, b = self._args(expr)
        reach = span_of("sub", (a.span, b.span))
        both = holds(SIGNED, a.span) and holds(SIGNED, b.span)
        clamped = self._vpu("PACKED_I8_SUB", _whole(a), _whole(b)) if both else None
        if clamped is not None and holds(SIGNED, reach):
            return Byte(clamped, *reach)
        return Byte(self._subtracted(a, b), *reach, clamped)

    def mul(self, expr: Op) -> Byte:
        for one, other in (expr.args, expr.args[::-1]):
            if isinstance(one, Cast) and self.plans.facts(self.names).kind(one.arg) == "bool":
                x = self.value(other)
                value = words.both(self.code, _whole(x), _whole(self.value(one.arg)))
                return Byte(value, *joined((0, 0), x.span))
        return self._product(*self._args(expr))

    def _product(self, a: Byte, b: Byte) -> Byte:
        reach = span_of("mul", (a.span, b.span))
        for one, other in ((a, b), (b, a)):
            if other.span == (1, 1):
                return one
        return Byte(self._vpu("PACKED_I8_MUL_LOW", _whole(a), _whole(b)), *reach)

    def fma(self, expr: Op) -> Byte:
        a, b, c = self._args(expr)
        return self._sum(self.settled(self._product(a, b), self.plans.facts(self.names).format_of(expr)), c)

    def neg(self, expr: Op) -> Byte:
        (a,) = self._args(expr)
        reach = span_of("neg", (a.span,))
        clamped = self._vpu("PACKED_I8_NEG", _whole(a)) if holds(SIGNED, a.span) else None
        if clamped is not None and holds(SIGNED, reach):
            return Byte(clamped, *reach)
        return Byte(self._vpu("PACKED_I8_MUL_LOW", _whole(a), self._fill(-1)), *reach, clamped)

    def abs(self, expr: Op) -> Byte:
        (a,) = self._args(expr)
        reach = span_of("abs", (a.span,))
        if a.low >= 0:
            return a
        clamped = self._distance(expr.args[0])
        if clamped is None and a.signed is not None:
            clamped = self._vpu("PACKED_I8_ABS", a.signed)
        if clamped is not None and holds(SIGNED, reach):
            return Byte(clamped, *reach)
        if not holds(SIGNED, a.span):
            return Byte(None, *reach, clamped)
        value = _whole(a)
        return Byte(self._vpu("PACKED_I8_MUL_LOW", value, self._vpu("PACKED_I8_SIGN", value)), *reach, clamped)

    def _distance(self, expr: Expr) -> int | None:
        """The distance of two numbers, at most 127, where an expression is their difference and does not wrap."""
        if not (isinstance(expr, Op) and expr.name == "sub"):
            return None
        a, b = self._args(expr)
        dtype = self.plans.facts(self.names).format_of(expr)
        if not (holds(SIGNED, a.span) and holds(SIGNED, b.span)):
            return None
        if isinstance(dtype, WordFormat) and wraps(dtype, *span_of("sub", (a.span, b.span))):
            return None
        return self._vpu("PACKED_I8_ABS_DIFF", _whole(a), _whole(b))

    def extreme(self, expr: Op) -> Byte:
        a, b = self._args(expr)
        greatest = expr.name == "max"
        if self._is_truth(expr):
            op = VPU.OR if greatest else VPU.AND
            return Byte(words.word(self.code, op, _whole(a), _whole(b)), 0, 1)
        for one, other in ((a, b), (b, a)):
            if (one.low >= other.high) if greatest else (one.high <= other.low):
                return one
        reach = span_of(expr.name, (a.span, b.span))
        if a.signed is not None and b.signed is not None:
            found = self._extreme(a.signed, b.signed, greatest)
            return Byte(found if holds(SIGNED, reach) else None, *reach, found)
        x, y = self._ordered(a, b)
        found = self._extreme(x, y, greatest)
        return Byte(words.differing(self.code, found, self.code.fill(TOP)), *reach)

    def _extreme(self, a: int, b: int, greatest: bool) -> int:
        for one, other in ((a, b), (b, a)):
            known = self.code.constant(other)
            if known == (TOP if greatest else LOW7):
                return one
            if known == 0 and greatest:
                return self._vpu("PACKED_I8_RELU", one)
        return self._vpu("PACKED_I8_MAX" if greatest else "PACKED_I8_MIN", a, b)

    def less(self, expr: Op) -> Byte:
        a, b = self._args(expr)
        if a.high < b.low or a.low >= b.high:
            return Byte(self.code.fill(-1 if a.high < b.low else 0), 0, 1)
        return Byte(self._vpu("PACKED_I8_CMPLT", *self._ordered(a, b)), 0, 1)

    def equal(self, expr: Op) -> Byte:
        a, b = self._args(expr)
        if not self._is_truth(expr) and (a.high < b.low or a.low > b.high):
            return Byte(self.code.fill(0), 0, 1)
        if not any(holds(outer, a.span) and holds(outer, b.span) for outer in (SIGNED, UNSIGNED)):
            raise NotBytes(str(expr))
        return Byte(self._vpu("PACKED_I8_CMPEQ", _whole(a), _whole(b)), 0, 1)

    def where(self, expr: Op) -> Byte:
        mask, a, b = self._args(expr)
        code, m, x, y = self.code, _whole(mask), _whole(a), _whole(b)
        reach = joined(a.span, b.span)
        if code.constant(y) == 0:
            return Byte(words.both(code, m, x), *reach)
        if code.constant(x) == 0:
            return Byte(words.both(code, self._not(m), y), *reach)
        if code.constant(x) == words.MASK:
            return Byte(words.either(code, m, y), *reach)
        return Byte(words.differing(code, y, words.both(code, words.differing(code, x, y), m)), *reach)

    def bitwise(self, expr: Op) -> Byte:
        a, b = self._args(expr)
        reach = (0, 1) if self._is_truth(expr) else span_of(expr.name, (a.span, b.span))
        for one, other in ((a, b), (b, a)):
            if expr.name == "xor" and self.code.constant(_whole(other)) == words.MASK:
                return Byte(self._not(_whole(one)), *reach)
        op = {"and": VPU.AND, "or": VPU.OR, "xor": VPU.XOR}[expr.name]
        return Byte(words.word(self.code, op, _whole(a), _whole(b)), *reach)

    def not_(self, expr: Op) -> Byte:
        return Byte(self._not(_whole(self.value(expr.args[0]))), 0, 1)

    def shl(self, expr: Op) -> Byte:
        a, places = self._shifted(expr)
        reach = span_of("shl", (a.span, (places, places)))
        value = self._vpu("PACKED_I8_MUL_LOW", _whole(a), self._fill(1 << places)) if places < 8 else self._fill(0)
        return Byte(value, *reach)

    def shr(self, expr: Op) -> Byte:
        a, places = self._shifted(expr)
        reach = span_of("shr", (a.span, (places, places)))
        high = self._high(expr.args[0]) if places == 8 else None
        if high is not None:
            return Byte(high, *reach)
        if holds(UNSIGNED, a.span):
            moved = words.right(self.code, _whole(a), min(places, 31))
            return Byte(words.both(self.code, moved, self._fill(0xFF >> places)), *reach)
        if not holds(SIGNED, a.span):
            raise NotBytes(str(expr))
        places = min(places, 7)
        if places >= 2:  # the high byte of a product with a power of two
            return Byte(self._vpu("PACKED_I8_MUL_HIGH", _whole(a), self._fill(1 << 8 - places)), *reach)
        moved = words.both(self.code, words.right(self.code, _whole(a), places), self.code.fill(LOW7))
        sign = words.both(self.code, _whole(a), self.code.fill(TOP))
        return Byte(words.either(self.code, moved, sign) if places else _whole(a), *reach)

    def _shifted(self, expr: Op) -> tuple[Byte, int]:
        a, by = self._args(expr)
        if by.low != by.high or by.low < 0:
            raise NotBytes(str(expr))
        return a, by.low

    def _high(self, expr: Expr) -> int | None:
        """The high byte of a product of two bytes, where an expression is one and does not wrap."""
        if not (isinstance(expr, Op) and expr.name == "mul"):
            return None
        a, b = self._args(expr)
        dtype = self.plans.facts(self.names).format_of(expr)
        narrow = isinstance(dtype, WordFormat) and wraps(dtype, *span_of("mul", (a.span, b.span)))
        if narrow or not (holds(SIGNED, a.span) and holds(SIGNED, b.span)):
            return None
        return self._vpu("PACKED_I8_MUL_HIGH", _whole(a), _whole(b))


_OPERATIONS: Mapping[str, Callable[[_Body, Op], Byte]] = {
    "add": _Body.add, "sub": _Body.sub, "mul": _Body.mul, "fma": _Body.fma, "neg": _Body.neg, "abs": _Body.abs,
    "max": _Body.extreme, "min": _Body.extreme, "less": _Body.less, "equal": _Body.equal, "where": _Body.where,
    "and": _Body.bitwise, "or": _Body.bitwise, "xor": _Body.bitwise, "not": _Body.not_, "shl": _Body.shl,
    "shr": _Body.shr,
}  # fmt: skip
