"""Activations as expressions, for kernels that apply one inside a larger expression: one definition for all kernels.

exp2 is the machine's transcendental, so log2(e) is folded into the constants. Every form is right for large arguments
of either sign: exp2 reaches Inf or 0 and recip turns that into the limit.
"""

from __future__ import annotations

from collections.abc import Callable

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import Value
from kohakutpu import lang as L

LOG2_E = 1.4426950408889634
# tanh-form gelu as x * sigmoid(2u): u = sqrt(2/pi) * (x + 0.044715 x^3), in base 2
GELU_LINEAR = -2 * 0.7978845608028654 * LOG2_E
GELU_CUBIC = GELU_LINEAR * 0.044715


def relu(x: Value) -> Value:
    """x < 0 ? 0 : x."""
    return L.maximum(x, 0.0)


def sigmoid(x: Value) -> Value:
    """1 / (1 + e**-x)."""
    return L.recip(L.exp2(x * -LOG2_E) + 1.0)


def silu(x: Value) -> Value:
    """x / (1 + e**-x)."""
    return x * L.recip(L.exp2(x * -LOG2_E) + 1.0)


def gelu(x: Value) -> Value:
    """Gelu in its tanh form: x * sigmoid(2 * sqrt(2/pi) * (x + 0.044715 x^3)); at most 5e-4 from the exact one."""
    inner = x * L.fma(x * x, GELU_CUBIC, GELU_LINEAR)
    return x * L.recip(L.exp2(inner) + 1.0)


ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "none": lambda x: x,
    "relu": relu,
    "silu": silu,
    "gelu": gelu,
    "sigmoid": sigmoid,
}


def activate(name: str, x: Value) -> Value:
    """The activation of this name on x. Refused: a name that is none of ACTIVATIONS."""
    if name not in ACTIVATIONS:
        raise Refusal(
            "an activation is one that the library has",
            where="activation",
            got=repr(name),
            limit=", ".join(ACTIVATIONS),
            hint="write it as an epilogue of a kernel of your own",
        )
    return ACTIVATIONS[name](x)
