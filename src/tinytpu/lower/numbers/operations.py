"""Which instructions each operation of the graph is, by the format of its operands.

Decides the format of a result, when an integer is wrapped, and what is refused. It must not know ranges or arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kohakuaccel.graph import BOOL, DType, WordFormat, kind_of
from kohakuaccel.graph.native import stored_in
from kohakuaccel.graph.scalar import identity as neutral
from kohakuaccel.numerics import FP32, IntFormat
from tinytpu.isa.codes import VPU
from tinytpu.lower.errors import NotLowered
from tinytpu.lower.numbers import angles, functions, halves, integers, powers, reals, wide
from tinytpu.lower.numbers.base import Tile, bits_of, check_format, extended, integer, is_real, wraps
from tinytpu.lower.numbers.spans import span_of
from tinytpu.lower.program.code import Code


def constant(code: Code, number: float | int | bool, dtype: DType) -> Tile:
    """A number in a format that holds it."""
    if is_real(dtype):
        bits = bits_of(float(np.asarray(number).astype(stored_in(dtype))))
        return Tile(code.fill(bits), dtype, number=bits & reals.MAGNITUDE <= reals.INFINITY)
    if wide.is_wide(dtype):
        return wide.constant(code, int(number), dtype)
    return integer(code.fill(int(number)), dtype, int(number), int(number), "constant")


def identity(code: Code, op: str, dtype: DType) -> Tile:
    """What a fold may take in without changing."""
    return constant(code, neutral(op, dtype), dtype)


def _fitted(code: Code, value: int, low: int, high: int, dtype: DType, where: str) -> Tile:
    """A value of up to 32 bits, low..high before it is brought into its format."""
    if isinstance(dtype, WordFormat) and dtype.bits < 32 and wraps(dtype, low, high):
        value = extended(code, value, dtype)
    return integer(value, dtype, low, high, where)


def truth(value: int) -> Tile:
    return Tile(value, BOOL, 0, 1)


def operate(code: Code, name: str, args: Sequence[Tile], checks: list[int] | None) -> Tile:
    """An operation of the graph. checks: tiles that are 1 where a value is beyond what is right are added to it; None:
    it is right for all.

    Raises NotLowered for an operation that is not lowered.
    """
    if name == "where":
        condition, yes, no = args
        return _where(code, condition.value, yes, no)
    first = args[0]
    if name == "not":
        return truth(code.vpu(VPU.CMPEQ, first.value, code.fill(0)))
    if name == "fma":
        return operate(code, "add", (operate(code, "mul", args[:2], checks), args[2]), checks)
    if is_real(first.dtype):
        return _real(code, name, args, checks)
    two = any(wide.is_wide(a.dtype) for a in args)
    if name == "less":
        return truth((wide if two else integers).less(code, first, args[1]))
    if name == "equal":
        return truth(wide.equal(code, first, args[1]))
    if two:
        return wide.operate(code, name, args)
    dtype = next((a.dtype for a in args if isinstance(a.dtype, WordFormat)), first.dtype)
    if name not in integers.UNARY and name not in integers.BINARY:
        raise NotLowered("an operation of integers that has instructions", where=name, got=str(dtype))
    if name in ("idiv", "mod") and args[1].low <= 0 <= args[1].high:
        raise NotLowered(
            "an exact division is known not to be by zero", where=name, got=f"{args[1].low}..{args[1].high}"
        )
    reach = span_of(name, [(a.low, a.high) for a in args])
    if name in integers.UNARY:
        return _fitted(code, integers.UNARY[name](code, first), *reach, dtype, name)
    if name in ("max", "min") and dtype == BOOL:
        name = "or" if name == "max" else "and"
    return _fitted(code, integers.BINARY[name](code, first, args[1]), *reach, dtype, name)


def _where(code: Code, condition: int, yes: Tile, no: Tile) -> Tile:
    if wide.is_wide(yes.dtype):
        return wide.where(code, condition, yes, no)
    if code.constant(no.value) == 0:
        value = code.vpu(VPU.MUL, yes.value, condition)
    else:
        value = code.select(condition, yes.value, no.value)
    return Tile(value, yes.dtype, min(yes.low, no.low), max(yes.high, no.high), yes.number and no.number)


def _real(code: Code, name: str, args: Sequence[Tile], checks: list[int] | None) -> Tile:
    a = args[0]
    b = args[-1]
    match name:
        case "add":
            return Tile(code.vpu(VPU.FADD, a.value, b.value), FP32)
        case "sub":
            return Tile(code.vpu(VPU.FSUB, a.value, b.value), FP32)
        case "mul":
            return Tile(code.vpu(VPU.FMUL, a.value, b.value), FP32)
        case "max" | "min":
            op = VPU.FMAX if name == "max" else VPU.FMIN
            return Tile(reals.extreme(code, a, b, op), FP32, number=a.number and b.number)
        case "less":
            return truth(reals.less(code, a.value, b.value))
        case "equal":
            return truth(reals.equal(code, a, b))
        case "neg":
            return Tile(reals.negated(code, a.value), FP32, number=a.number)
        case "abs":
            return Tile(reals.magnitude(code, a.value), FP32, number=a.number)
        case "cut":
            return Tile(reals.cut(code, a.value), FP32, number=a.number)
        case "floor":
            return Tile(reals.floor(code, a.value), FP32, number=a.number)
        case "recip":
            return Tile(functions.reciprocal(code, a.value), FP32, number=a.number)
        case "div":
            return Tile(functions.quotient(code, a.value, b.value), FP32)
        case "exp2":
            return Tile(functions.exp2(code, a.value), FP32, number=a.number)
        case "log2":
            return Tile(functions.log2(code, a.value), FP32)
        case "sqrt":
            return Tile(functions.sqrt(code, a.value), FP32)
        case "rsqrt":
            return Tile(functions.reciprocal(code, functions.sqrt(code, a.value), nearest=False), FP32)
        case "pow":
            return Tile(powers.power(code, a.value, b.value), FP32)
        case "sin":
            if checks is None:
                return Tile(angles.sine(code, a.value), FP32)
            value, beyond = functions.sine(code, a.value)
            checks.append(beyond)
            return Tile(value, FP32)
        case _:
            raise NotLowered("an operation of reals that has instructions", where=name, got=str(a.dtype))


def convert(code: Code, a: Tile, dtype: DType) -> Tile:
    """A cast (see graph.scalar.convert)."""
    check_format(dtype, "cast")
    if a.dtype == dtype:
        return a
    if dtype == BOOL:
        return truth(reals.to_truth(code, a.value) if is_real(a.dtype) else wide.to_truth(code, a))
    if is_real(dtype):
        return halves.rounded(code, a if is_real(a.dtype) else Tile(_real_of(code, a), FP32, number=True), dtype)
    if isinstance(dtype, IntFormat):
        if is_real(a.dtype):
            raise NotLowered("a real becomes a word, which wraps", where="cast", got=str(dtype))
        if wraps(dtype, a.low, a.high):
            raise NotLowered(
                "an integer is known to fit its format", where="cast", got=f"{a.low}..{a.high}", limit=str(dtype)
            )
        return Tile(a.value, dtype, a.low, a.high)
    if wide.is_wide(dtype):
        return wide.convert(code, a, dtype)
    if is_real(a.dtype):
        return _fitted(code, reals.to_word(code, a.value), -(1 << 40), 1 << 40, dtype, "cast")
    return _fitted(code, a.value, a.low, a.high, dtype, "cast")


def _real_of(code: Code, a: Tile) -> int:
    return wide.to_real(code, a) if wide.is_wide(a.dtype) else reals.from_integer(code, a)


def reinterpret(code: Code, a: Tile, source: DType, dtype: DType) -> Tile:
    """The bits of a value, rounded to `source` where it is a real, as another format of as many."""
    check_format(dtype, "bits")
    if is_real(a.dtype) and kind_of(dtype) == "word":
        half = halves.is_half(source)
        bits = halves.given(code, halves.rounded(code, a, source)) if half else a.value
        return _fitted(code, bits, *((0, 65535) if half else (-(1 << 40), 1 << 40)), dtype, "bits")
    if kind_of(dtype) == "word":
        return convert(code, a, dtype)
    if halves.is_half(dtype):
        bits = code.vpu(VPU.AND, a.value, code.fill(0xFFFF)) if a.low < 0 else a.value
        return halves.taken(code, bits, dtype)
    return Tile(a.value, dtype)
