"""Elementwise kernels: any rank, any byte order, one expression each.

exp2 is the machine's transcendental; natural exponentials and logarithms fold log2(e) into a constant.
"""

from __future__ import annotations

from kohakuaccel.lang import grid
from kohakutpu import lang as L
from kohakutpu.kernels import activations
from kohakutpu.lang import kernel

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453


@kernel
def add(x=L.In(...), y=L.In(...), z=L.Out(...)):
    """x + y."""
    for e in grid(x.parts()):
        z[e] <<= x[e] + y[e]


@kernel
def sub(x=L.In(...), y=L.In(...), z=L.Out(...)):
    """x - y."""
    for e in grid(x.parts()):
        z[e] <<= x[e] - y[e]


@kernel
def mul(x=L.In(...), y=L.In(...), z=L.Out(...)):
    """x * y."""
    for e in grid(x.parts()):
        z[e] <<= x[e] * y[e]


@kernel
def div(x=L.In(...), y=L.In(...), z=L.Out(...)):
    """x * recip(y)."""
    for e in grid(x.parts()):
        z[e] <<= x[e] / y[e]


@kernel
def maximum(x=L.In(...), y=L.In(...), z=L.Out(...)):
    """x < y ? y : x."""
    for e in grid(x.parts()):
        z[e] <<= L.maximum(x[e], y[e])


@kernel
def minimum(x=L.In(...), y=L.In(...), z=L.Out(...)):
    """x > y ? y : x."""
    for e in grid(x.parts()):
        z[e] <<= L.minimum(x[e], y[e])


@kernel
def add_scalar(x=L.In(...), y=L.Out(...), *, value=0.0):
    """x + value."""
    for e in grid(x.parts()):
        y[e] <<= x[e] + value


@kernel
def rsub_scalar(x=L.In(...), y=L.Out(...), *, value=0.0):
    """value - x."""
    for e in grid(x.parts()):
        y[e] <<= value - x[e]


@kernel
def mul_scalar(x=L.In(...), y=L.Out(...), *, value=1.0):
    """x * value."""
    for e in grid(x.parts()):
        y[e] <<= x[e] * value


@kernel
def rdiv_scalar(x=L.In(...), y=L.Out(...), *, value=1.0):
    """value * recip(x)."""
    for e in grid(x.parts()):
        y[e] <<= value / x[e]


@kernel
def maximum_scalar(x=L.In(...), y=L.Out(...), *, value=0.0):
    """x < value ? value : x."""
    for e in grid(x.parts()):
        y[e] <<= L.maximum(x[e], value)


@kernel
def minimum_scalar(x=L.In(...), y=L.Out(...), *, value=0.0):
    """x > value ? value : x."""
    for e in grid(x.parts()):
        y[e] <<= L.minimum(x[e], value)


@kernel
def affine(x=L.In(...), y=L.Out(...), *, scale=1.0, offset=0.0):
    """x * scale + offset with one rounding."""
    for e in grid(x.parts()):
        y[e] <<= L.fma(x[e], scale, offset)


@kernel
def neg(x=L.In(...), y=L.Out(...)):
    """-x."""
    for e in grid(x.parts()):
        y[e] <<= -x[e]


@kernel
def abs(x=L.In(...), y=L.Out(...)):
    """|x|."""
    for e in grid(x.parts()):
        y[e] <<= L.abs(x[e])


@kernel
def exp2(x=L.In(...), y=L.Out(...)):
    """2**x."""
    for e in grid(x.parts()):
        y[e] <<= L.exp2(x[e])


@kernel
def exp(x=L.In(...), y=L.Out(...)):
    """e**x, as 2**(x * log2 e)."""
    for e in grid(x.parts()):
        y[e] <<= L.exp2(x[e] * LOG2_E)


@kernel
def log2(x=L.In(...), y=L.Out(...)):
    """Base-2 logarithm."""
    for e in grid(x.parts()):
        y[e] <<= L.log2(x[e])


@kernel
def log(x=L.In(...), y=L.Out(...)):
    """Natural logarithm, as log2(x) * ln 2."""
    for e in grid(x.parts()):
        y[e] <<= L.log2(x[e]) * LN_2


@kernel
def sqrt(x=L.In(...), y=L.Out(...)):
    """Square root, as recip(rsqrt(x)): right at 0 and Inf."""
    for e in grid(x.parts()):
        y[e] <<= L.sqrt(x[e])


@kernel
def rsqrt(x=L.In(...), y=L.Out(...)):
    """1 / sqrt(x)."""
    for e in grid(x.parts()):
        y[e] <<= L.rsqrt(x[e])


@kernel
def recip(x=L.In(...), y=L.Out(...)):
    """1 / x."""
    for e in grid(x.parts()):
        y[e] <<= L.recip(x[e])


@kernel
def relu(x=L.In(...), y=L.Out(...)):
    """x < 0 ? 0 : x."""
    for e in grid(x.parts()):
        y[e] <<= activations.relu(x[e])


@kernel
def sigmoid(x=L.In(...), y=L.Out(...)):
    """1 / (1 + e**-x)."""
    for e in grid(x.parts()):
        y[e] <<= activations.sigmoid(x[e])


@kernel
def silu(x=L.In(...), y=L.Out(...)):
    """x / (1 + e**-x)."""
    for e in grid(x.parts()):
        y[e] <<= activations.silu(x[e])


@kernel
def gelu(x=L.In(...), y=L.Out(...)):
    """Gelu in its tanh form: x * sigmoid(2 * sqrt(2/pi) * (x + 0.044715 x^3)); at most 5e-4 from the exact one."""
    for e in grid(x.parts()):
        y[e] <<= activations.gelu(x[e])


@kernel
def widen(x=L.In(...), y=L.Out(..., dtype="float32")):
    """x in FP32: exact, NaN canonical."""
    for e in grid(x.parts()):
        y[e] <<= x[e]


@kernel
def narrow(x=L.In(...), y=L.Out(..., dtype="float16")):
    """x in FP16: FP32 rounds to E8M15 as it is read and to FP16 as it is stored; what saturates is counted."""
    for e in grid(x.parts()):
        y[e] <<= x[e]
