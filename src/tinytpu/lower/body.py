"""A statement's body as tile code: one tile and one step of a fold at a time.

Decides which expressions the host fills (reads and what follows indices alone) and which are computed. It must not
know registers, slots or programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kohakuaccel.graph import (
    BOOL,
    FP64,
    WORDS,
    Bits,
    Cast,
    Const,
    DType,
    Expr,
    Iota,
    Op,
    Read,
    Statement,
    Value,
    WordFormat,
)
from kohakuaccel.graph.native import Box
from kohakuaccel.graph.requant import WIDE, Requantised, as_requantised
from kohakuaccel.graph.scalar import to_word
from kohakuaccel.numerics import FP32, INT32
from tinytpu.isa.codes import VPU
from tinytpu.lower.data import Data
from tinytpu.lower.facts import Facts
from tinytpu.lower.forms.compound import compound
from tinytpu.lower.numbers import Tile, convert, halves, identity, operate, reinterpret, serial, wide
from tinytpu.lower.numbers.base import bits_of, check_format, integer, is_real
from tinytpu.lower.numbers.operations import constant
from tinytpu.lower.numbers.pairs import Pair
from tinytpu.lower.numbers.requant import requantise
from tinytpu.lower.program.code import Code, Leaf, Result
from tinytpu.lower.reach import Reach


@dataclass
class Plans:
    """The data plans of a stage, each once. unit: whether functions are the vector unit's own; bounded: which of them
    are of a plan's values, by number, which the host checks."""

    chunked: bool
    unit: bool = False
    bounded: dict[tuple[int, str], None] = field(default_factory=dict[tuple[int, str], None])
    found: list[Data] = field(default_factory=list[Data])
    number: dict[Data, int] = field(default_factory=dict[Data, int])
    _facts: Facts | None = None

    def facts(self, names: Mapping[str, Value]) -> Facts:
        """What is known of the stage's expressions; all its bodies read the same values."""
        if self._facts is None or self._facts.values is not names:
            self._facts = Facts(names)
        return self._facts

    def leaf(self, data: Data, tile: int, step: int) -> Leaf:
        if data not in self.number:
            self.number[data] = len(self.found)
            self.found.append(data)
        own = data.by_point or (data.by_fold and self.chunked)
        return Leaf(self.number[data], tile if own else None, step if data.by_fold else None)


EXACT = ("max", "min", "neg", "abs", "where", "cut", "floor")
"""Operations of reals whose result their operands' format holds."""


@dataclass
class Body:
    """The expressions of one statement for one tile. known: tiles of values of the same stage."""

    code: Code
    plans: Plans
    statement: Statement
    names: Mapping[str, Value]
    known: Mapping[str, Tile]
    tile: int
    checks: list[int] | None
    spans: dict[Expr, tuple[int, int]]
    _done: dict[tuple[int, int], tuple[Expr, Tile]] = field(default_factory=dict[tuple[int, int], tuple[Expr, Tile]])

    def value(self, expr: Expr, step: int, pad: Tile | None = None) -> Tile:
        """The tile of an expression at a step of the fold. pad: what lanes without a term hold, for a plain read."""
        found = self._done.get((id(expr), step))
        if found is None:
            tile = self._value(expr, step, pad)
            if expr is self.statement.body and self.statement.reduction is None:
                tile = settled(self.code, tile, self.statement)
            self._done[id(expr), step] = found = (expr, tile)
        return found[1]

    def known_already(self, expr: Expr, tile: Tile) -> None:
        """An expression of a body without a fold whose tile was made elsewhere."""
        self._done[id(expr), 0] = (expr, tile)

    def _value(self, expr: Expr, step: int, pad: Tile | None) -> Tile:
        if isinstance(expr, Const):
            return constant(self.code, expr.value, {"real": FP32, "int": INT32, "bool": BOOL}[expr.kind])
        if isinstance(expr, Cast) and isinstance(expr.arg, Const) and isinstance(expr.dtype, WordFormat):
            check_format(expr.dtype, expr)
            number = np.asarray(expr.arg.value, np.float64 if expr.arg.kind == "real" else np.int64)
            return constant(self.code, int(to_word(number, expr.dtype)), expr.dtype)
        if isinstance(expr, Read):
            return self._read(expr, step, pad)
        if isinstance(expr, Op | Cast) and self.facts.number_alone(expr):
            return self._number(expr)
        if self.facts.host_filled(expr) and self.facts.kind(expr) != "real":
            return self._index(expr, step)
        if isinstance(expr, Iota):  # of a gathered index
            value = self._leaf(expr, INT32, step)
            return integer(value, INT32, *expr.index.interval(), str(expr))
        if isinstance(expr, Cast):
            return convert(self.code, self.value(expr.arg, step), expr.dtype)
        if isinstance(expr, Bits):
            return reinterpret(self.code, self.value(expr.arg, step), expr.source, expr.dtype)
        assert isinstance(expr, Op)
        requantisation = as_requantised(expr)
        made = None if requantisation is None else self._requantised(requantisation, step)
        if made is None:
            made = compound(self.code, expr, lambda e: self.value(e, step))
        return self._operation(expr, step) if made is None else made

    def _operation(self, expr: Op, step: int) -> Tile:
        """An operation; reals of 16 bits are computed in binary32, and each result is rounded to their format."""
        half = self.facts.widest(expr)
        if half is None or not halves.is_half(half):
            found = self._serial(expr, step) if self.plans.unit and expr.name in serial.OPCODES else None
            if found is not None:
                return Tile(found, FP32)
            return operate(self.code, expr.name, [self.value(a, step) for a in expr.args], self.checks)
        args = [
            constant(self.code, a.value, half) if isinstance(a, Const) and a.kind == "real" else self.value(a, step)
            for a in expr.args
        ]
        if expr.name == "fma":
            product = halves.rounded(self.code, operate(self.code, "mul", args[:2], self.checks), half)
            return halves.rounded(self.code, operate(self.code, "add", (product, args[2]), self.checks), half)
        found = operate(self.code, expr.name, args, self.checks)
        if not is_real(found.dtype):
            return found
        return found._replace(dtype=half) if expr.name in EXACT else halves.rounded(self.code, found, half)

    def _number(self, expr: Expr) -> Tile:
        """A number that follows from numbers alone."""
        dtype = self.facts.format_of(expr)
        what = self.facts.kind(expr)
        dtype = {"real": FP32, "int": INT32, "bool": BOOL}.get(what, dtype) if dtype in (None, FP64) else dtype
        with np.errstate(all="ignore"):
            found = np.asarray(Box((), {}, self.names).value(expr, dtype)).reshape(())
        assert dtype is not None
        return constant(self.code, found.item() if what != "real" else float(found), check_format(dtype, expr))

    def _requantised(self, found: Requantised, step: int) -> Tile | None:
        """None where a value or a factor may be beyond 32 bits."""
        factor = found.factor
        scale = constant(self.code, factor, INT32) if isinstance(factor, int) else self.value(factor, step)
        value, bounds = self.value(found.value, step), (found.low, found.high)
        if value.top is not None or scale.top is not None:
            return None
        made = requantise(self.code, value, scale, found.shift, rounded=found.rounded, low=bounds[0], high=bounds[1])
        return made._replace(dtype=WIDE)

    def _serial(self, expr: Op, step: int) -> int | None:
        """A function of the vector unit itself."""
        value = self.value(expr.args[0], step).value
        leaf = self.code.given.get(value)
        if isinstance(leaf, Leaf):
            self.plans.bounded[leaf.data, expr.name] = None
        return serial.serial(self.code, expr.name, value, checked=isinstance(leaf, Leaf))

    def _leaf(self, expr: Expr, dtype: DType, step: int, pad: int | None = None, part: int = 0) -> int:
        follows = expr.ranges()
        data = Data(
            expr,
            dtype,
            self.statement.ranges,
            self.statement.reduced,
            not follows.isdisjoint(self.statement.ranges),
            not follows.isdisjoint(self.statement.reduced),
            (None if pad is None else self.code.constant(pad)) or 0,
            part,
        )
        return self.code.source(self.plans.leaf(data, self.tile, step))

    def _read(self, read: Read, step: int, pad: Tile | None) -> Tile:
        if read.value in self.known:
            return self.known[read.value]
        dtype = check_format(self.names[read.value].dtype, f"value {read.value}")
        if wide.is_wide(dtype):
            return self._words(read, dtype, self.reach.of(read), step, pad)
        if halves.is_half(dtype):
            padded = None if pad is None else halves.bits_of_constant(self.code, pad.value, dtype)
            return halves.taken(self.code, self._leaf(read, dtype, step, padded), dtype)
        value = self._leaf(read, dtype, step, None if pad is None else pad.value)
        if is_real(dtype):
            return Tile(value, dtype)
        # Lanes without an element hold 0, those without a term the pad.
        low, high = self.reach.of(read)
        padded = (0,) if pad is None else (0, pad.low, pad.high)
        return Tile(value, dtype, min(low, *padded), max(high, *padded))

    def _words(self, expr: Expr, dtype: DType, found: tuple[int, int], step: int, pad: Tile | None) -> Tile:
        """A word of 64 bits that the host fills: two tiles, or one where its numbers fit."""
        low = self._leaf(expr, dtype, step, None if pad is None else pad.value)
        if pad is not None:
            found = min(found[0], pad.low), max(found[1], pad.high)
        if wide.fits(found):
            return Tile(low, dtype, *found)
        padded = None if pad is None else wide.pair_of(self.code, pad).high
        return wide.made(Pair(low, self._leaf(expr, dtype, step, padded, 1)), dtype, found)

    def _index(self, expr: Expr, step: int) -> Tile:
        dtype = check_format(self.facts.format_of(expr) or INT32, expr)
        if expr not in self.spans:
            found = Data(expr, dtype, self.statement.ranges, self.statement.reduced, by_point=True, by_fold=True)
            reach = np.asarray(found.exact(self.names))
            self.spans[expr] = int(reach.min()), int(reach.max())
        if wide.is_wide(dtype):
            return self._words(expr, dtype, self.spans[expr], step, None)
        return integer(self._leaf(expr, dtype, step), dtype, *self.spans[expr], str(expr))

    @cached_property
    def facts(self) -> Facts:
        return self.plans.facts(self.names)

    @cached_property
    def reach(self) -> Reach:
        return Reach(self.names)

    def folded(self, steps: int, full: int) -> Tile:
        """The body folded over the steps, lane by lane: each lane holds its own terms' result. full: the steps from
        which on lanes may hold no term."""
        statement = self.statement
        assert statement.reduction is not None
        op = statement.reduction.op
        check_format(statement.dtype, f"statement {statement.name}")
        neutral = identity(self.code, op, statement.dtype)
        plain = isinstance(statement.body, Read)
        two = wide.is_wide(statement.dtype)
        bucket = op == "sum" and not is_real(statement.dtype) and not two and steps >= GATHERED
        total: Tile | None = None
        for step in range(steps):
            term = self.value(statement.body, step, neutral if plain else None)
            if step >= full and not plain:
                term = operate(self.code, "where", (self._mask(step), term, neutral), self.checks)
            if bucket:
                form = "PSUM_ACCUMULATE" if step else "PSUM_WRITE"
                self.code.effect(form, {"src": term.value}, {"vmem": 0}, made=False)
                low, high = (total.low, total.high) if total else (0, 0)
                total = integer(-1, _wide(term.dtype), low + term.low, high + term.high, statement.name)
            else:
                total = term if total is None else fold(self.code, op, total, term, self.checks)
        assert total is not None
        if bucket:
            return total._replace(value=self.code.effect("PSUM_READ", {}, {"vmem": 0}, made=True))
        return total

    def _mask(self, step: int) -> Tile:
        data = Data(None, BOOL, self.statement.ranges, self.statement.reduced, False, True)
        return Tile(self.code.source(self.plans.leaf(data, self.tile, step)), BOOL, 0, 1)


GATHERED = 11
"""Integer terms from which on a PSUM bucket takes fewer cycles than registers: a cycle less each, nine more in all."""


def _wide(dtype: DType) -> DType:
    """What a sum of words is before it is wrapped."""
    return WORDS["S32"] if isinstance(dtype, WordFormat) else dtype


_FOLDS = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def fold(code: Code, op: str, a: Tile, b: Tile, checks: list[int] | None) -> Tile:
    """Two terms of a fold. Narrow words are wrapped at the end only: their low bits are right."""
    if isinstance(a.dtype, WordFormat) and a.dtype.bits < 32 and op in ("sum", "prod"):
        value = code.vpu(VPU.ADD if op == "sum" else VPU.MUL, a.value, b.value)
        return Tile(value, a.dtype, -(1 << 40), 1 << 40)
    return operate(code, _FOLDS[op], (a, b), checks)


def across(code: Code, op: str, a: Tile, lanes: int, whole: bool) -> Tile:
    """The terms of every row, or of the whole tile, folded; the result stands in each of their `lanes`. Words are not
    wrapped yet."""
    end = "_TILE" if whole else ""
    if is_real(a.dtype):
        return _across_real(code, op, a, whole)
    if wide.is_wide(a.dtype):
        return wide.across(code, op, a, lanes, whole)
    name = {"sum": "SUM", "prod": "MUL", "max": "MAX", "min": "MIN"}[op]
    turned = isinstance(a.dtype, WordFormat) and not a.dtype.signed and a.dtype.bits == 32 and op in ("max", "min")
    sign = code.fill(1 << 31) if turned else 0
    value = code.vpu(VPU.XOR, a.value, sign) if turned else a.value
    value = code.vpu(VPU[f"{name}_REDUCE{end}"], value)
    value = code.vpu(VPU.XOR, value, sign) if turned else value
    if op in ("max", "min"):
        return Tile(value, a.dtype, a.low, a.high)
    most = max(-a.low, a.high)
    most = most * lanes if op == "sum" else most**lanes
    return integer(value, _wide(a.dtype), -most, most, op)


def _across_real(code: Code, op: str, a: Tile, whole: bool) -> Tile:
    name = {"sum": "FSUM", "prod": "FPROD", "max": "FMAX", "min": "FMIN"}[op]
    value = code.vpu(VPU[f"{name}_REDUCE"], a.value)
    value = code.vpu(VPU[f"{name}_REDUCE_COL"], value) if whole else value
    if op in ("max", "min") and not a.number:
        # The unit loses a NaN on the way; the largest magnitude as an integer keeps it.
        seen = code.vpu(VPU.FABS, a.value)
        seen = code.vpu(VPU.MAX_REDUCE_TILE if whole else VPU.MAX_REDUCE, seen)
        value = code.vpu(VPU.FADD, value, code.vpu(VPU.FMIN, code.fill(bits_of(-0.0)), seen))
    return Tile(value, a.dtype, number=a.number)


def settled(code: Code, a: Tile, statement: Statement) -> Tile:
    """A fold's result in the statement's format."""
    dtype = statement.dtype
    if is_real(dtype):
        return convert(code, a, dtype)
    narrow = isinstance(dtype, WordFormat) and not wide.is_wide(dtype)
    return convert(code, Tile(a.value, WORDS["S32"], a.low, a.high), dtype) if narrow else a


def leave(code: Code, a: Tile, number: int, tile: int) -> None:
    """A value is output `number` for a tile."""
    code.store(halves.given(code, a) if halves.is_half(a.dtype) else a.value, Result(number, tile))
    if a.top is not None:
        code.store(a.top, Result(~number, tile))
