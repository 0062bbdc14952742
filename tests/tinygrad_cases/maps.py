"""Methods of one element at a time."""

from __future__ import annotations

import math

import numpy as np
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor

from tinygrad_cases.case import Case

REAL = ("float", "half", "bfloat16")
WORDS = ("int32", "int8", "uint8", "int64")
PAIR = (((3, 5), (3, 5)), ((7,), (7,)), ((2, 3, 4), (2, 1, 4)))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, 0)


def _elu(x: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    return np.where(x > 0, x, alpha * np.expm1(x))


_erf = np.vectorize(math.erf)


def _special(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x.reshape(-1), [np.inf, -np.inf, np.nan]])


def _special_of(t: Tensor) -> Tensor:
    return t.reshape(-1).cat(Tensor([math.inf, -math.inf, math.nan], device=t.device))


def _one(
    name: str, theirs, kind: str = "real", types: tuple[str, ...] = ("float",), loose: float = 1.0, **more
) -> Case:
    return Case(lambda t: getattr(t, name)(), theirs, (kind,), types=types, loose=loose, **more)


def _two(name: str, theirs, kinds=("real", "real"), types: tuple[str, ...] = ("float",), loose: float = 1.0, **more):
    return Case(lambda a, b: getattr(a, name)(b), theirs, kinds, PAIR, types, loose, **more)


MAPS: dict[str, Case] = {
    "abs": _one("abs", np.abs, types=REAL),
    "abs: integers": _one("abs", np.abs, "int", ("int32", "int8", "int64")),
    "acos": _one("acos", np.arccos, "unit", loose=20),
    "acosh": _one("acosh", np.arccosh, "above", loose=4),
    "asin": _one("asin", np.arcsin, "unit", loose=20),
    "asinh": _one("asinh", np.arcsinh, loose=10),
    "atan": _one("atan", np.arctan, loose=20),
    "atanh": _one("atanh", np.arctanh, "unit", loose=4),
    "ceil": _one("ceil", np.ceil, types=REAL),
    "celu": _one("celu", _elu, loose=2),
    "cos": _one("cos", np.cos, loose=2),
    "cosh": _one("cosh", np.cosh, loose=2),
    "elu": _one("elu", _elu, loose=2),
    "erf": _one("erf", _erf, loose=4),
    "exp": _one("exp", np.exp, types=("float", "half"), loose=2, core=True),
    "exp2": _one("exp2", np.exp2, loose=2),
    "floor": _one("floor", np.floor, types=REAL),
    "gelu": _one("gelu", lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), loose=2),
    "hardsigmoid": _one("hardsigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "hardswish": _one("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "hardtanh": _one("hardtanh", lambda x: np.clip(x, -1, 1), types=REAL),
    "isfinite": Case(lambda t: _special_of(t).isfinite(), lambda x: np.isfinite(_special(x))),
    "isinf": Case(lambda t: _special_of(t).isinf(), lambda x: np.isinf(_special(x))),
    "isnan": Case(lambda t: _special_of(t).isnan(), lambda x: np.isnan(_special(x))),
    "leaky_relu": _one("leaky_relu", lambda x: np.where(x > 0, x, 0.01 * x)),
    "log": _one("log", np.log, "positive", loose=2, core=True),
    "log10": _one("log10", np.log10, "positive", loose=2),
    "log2": _one("log2", np.log2, "positive", loose=2),
    "logical_not": _one("logical_not", np.logical_not, "bool", ("bool",)),
    "logsigmoid": _one("logsigmoid", lambda x: -_softplus(-x), loose=4),
    "mish": _one("mish", lambda x: x * np.tanh(_softplus(x)), loose=4),
    "neg": _one("neg", np.negative, types=REAL),
    "neg: integers": _one("neg", np.negative, "int", WORDS),
    "quick_gelu": _one("quick_gelu", lambda x: x * _sigmoid(1.702 * x), loose=2),
    "reciprocal": _one("reciprocal", lambda x: 1 / x, "positive", types=("float", "half")),
    "relu": _one("relu", lambda x: np.maximum(x, 0), types=REAL, core=True),
    "relu6": Case(lambda t: (t * 4).relu6(), lambda x: np.clip(x * 4, 0, 6)),
    "round": Case(lambda t: (t * 3).round(), lambda x: np.round(x * 3), mild=False),
    "rsqrt": _one("rsqrt", lambda x: 1 / np.sqrt(x), "positive"),
    "selu": _one("selu", lambda x: 1.0507 * _elu(x, 1.67326), loose=2),
    "sigmoid": _one("sigmoid", _sigmoid, types=("float", "half"), loose=2, core=True),
    "sign": _one("sign", np.sign, types=REAL),
    "silu": _one("silu", lambda x: x * _sigmoid(x), loose=2),
    "sin": _one("sin", np.sin, loose=2),
    "sinh": _one("sinh", np.sinh, loose=4),
    "softplus": _one("softplus", _softplus, loose=4),
    "softsign": _one("softsign", lambda x: x / (1 + np.abs(x))),
    "sqrt": _one("sqrt", np.sqrt, "positive", types=("float", "half")),
    "square": _one("square", np.square, types=("float", "half"), loose=2),
    "swish": _one("swish", lambda x: x * _sigmoid(x), loose=2),
    "tan": _one("tan", np.tan, "unit", loose=4),
    "tanh": _one("tanh", np.tanh, loose=2, core=True),
    "trunc": _one("trunc", np.trunc, types=REAL),
    "bitwise_not": _one("bitwise_not", np.invert, "int", WORDS),
    "clamp": Case(lambda t: t.clamp(-1, 0.5), lambda x: np.clip(x, -1, 0.5), types=REAL),
    "clip": Case(lambda t: t.clip(-2, 3), lambda x: np.clip(x, -2, 3), ("int",), types=("int32", "int8", "int64")),
    "dropout: never": Case(lambda t: t.dropout(0.5), lambda x: x),
    # two operands
    "add": _two("add", np.add, types=REAL, core=True),
    "add: integers": _two("add", np.add, ("int", "int"), WORDS),
    "add: truths": _two("add", np.logical_or, ("bool", "bool"), ("bool",)),
    "sub": _two("sub", np.subtract, types=REAL),
    "sub: integers": _two("sub", np.subtract, ("int", "int"), WORDS),
    "mul": _two("mul", np.multiply, types=REAL, core=True),
    "mul: integers": _two("mul", np.multiply, ("int", "int"), WORDS),
    "mul: truths": _two("mul", np.logical_and, ("bool", "bool"), ("bool",)),
    "div": _two("div", np.divide, ("real", "positive"), types=("float", "half"), loose=2, core=True),
    "div: integers": _two("div", np.divide, ("int", "natural"), ("int32",)),
    "div: down": Case(lambda a, b: a // b, np.floor_divide, ("int", "natural"), PAIR, ("int32", "int8", "int64")),
    "mod": _two("mod", np.mod, ("real", "positive"), loose=4, mild=False),
    "mod: integers": _two("mod", np.mod, ("int", "natural"), ("int32", "int8", "int64")),
    "fmod": _two("fmod", np.fmod, ("real", "positive"), loose=4, mild=False),
    "pow": _two("pow", np.power, ("positive", "real"), loose=20),
    "pow: number": Case(lambda t: t**3 - 2**t, lambda x: x**3 - 2**x, loose=8),
    "maximum": _two("maximum", np.maximum, types=REAL),
    "maximum: integers": _two("maximum", np.maximum, ("int", "int"), WORDS),
    "minimum": _two("minimum", np.minimum, types=REAL),
    "minimum: integers": _two("minimum", np.minimum, ("int", "int"), WORDS),
    "copysign": _two("copysign", np.copysign),
    "logaddexp": _two("logaddexp", np.logaddexp, loose=4),
    "eq": _two("eq", np.equal, ("small", "small"), ("int32", "float", "half")),
    "ne": _two("ne", np.not_equal, ("small", "small"), ("int32", "float", "bfloat16")),
    "ne: order": Case(lambda a, b: (a < b) ^ ((a >= b) & (a > b)), lambda a, b: a != b, ("real", "real"), PAIR, REAL),
    "isclose": Case(
        lambda a, b: a.isclose(a + b * 1e-6), lambda a, b: np.isclose(a, a + b * 1e-6), ("real", "real"), PAIR
    ),
    "allclose": Case(lambda a, b: a.allclose(b), lambda a, b: np.array(np.allclose(a, b)), ("real", "real"), PAIR),
    "bitwise_and": _two("bitwise_and", np.bitwise_and, ("int", "int"), WORDS),
    "bitwise_or": _two("bitwise_or", np.bitwise_or, ("int", "int"), WORDS),
    "bitwise_xor": _two("bitwise_xor", np.bitwise_xor, ("int", "int"), WORDS),
    "bitwise_and: truths": _two("bitwise_and", np.logical_and, ("bool", "bool"), ("bool",)),
    "lshift": _two("lshift", np.left_shift, ("natural", "small"), ("int32", "uint8")),
    "rshift": _two("rshift", np.right_shift, ("natural", "small"), ("int32", "uint8")),
    "lerp": Case(
        lambda a, b, w: a.lerp(b, w),
        lambda a, b, w: a + (b - a) * w,
        ("real", "real", "part"),
        (((3, 5),) * 3,),
        loose=4,
    ),
    "where": Case(
        lambda c, a, b: c.where(a, b), np.where, ("bool", "real", "real"), (((3, 5),) * 3, ((4,), (2, 4), (4,)))
    ),
    "where: integers": Case(lambda c, a: c.where(a, -1), lambda c, a: np.where(c, a, -1), ("bool", "int"), PAIR),
    "masked_fill": Case(lambda t, c: t.masked_fill(c, 2), lambda t, c: np.where(c, 2, t), ("real", "bool"), PAIR),
    # casts
    "bool": Case(lambda t: t.bool(), lambda x: x != 0, ("small",), types=("int32", "float")),
    "int": Case(lambda t: (t * 9).int(), lambda x: np.trunc(x * 9).astype(np.int32), mild=False),
    "short": Case(lambda t: (t * 9).short(), lambda x: np.trunc(x * 9).astype(np.int16), mild=False),
    "long": Case(lambda t: (t * 9).long(), lambda x: np.trunc(x * 9).astype(np.int64), mild=False),
    "float": Case(lambda t: t.float(), lambda x: x, types=("half", "bfloat16", "double")),
    "half": Case(lambda t: t.half().float(), lambda x: x, types=("float", "bfloat16", "double")),
    "double": Case(lambda t: t.double(), lambda x: x, types=("float", "half")),
    "bfloat16": Case(lambda t: t.bfloat16().float(), lambda x: x, loose=2000),
    "cast": Case(lambda t: t.cast(dtypes.uint8), lambda x: x.astype(np.uint8), ("int",), types=("int32", "int64")),
    "bitcast": Case(lambda t: t.bitcast(dtypes.uint32), lambda x: x.astype(np.float32).view(np.uint32)),
    "contiguous": Case(
        lambda t: t.flip(0).contiguous(), lambda x: x[::-1], ("int",), types=("int32", *REAL, "int8", "uint64")
    ),
    "contiguous_backward": Case(lambda t: (t + 1).contiguous_backward(), lambda x: x + 1),
    "sequential": Case(lambda t: t.sequential([lambda u: u + 1, Tensor.relu]), lambda x: np.maximum(x + 1, 0)),
}
