"""Row kernels: reductions and norms along the last axis, and broadcasts of one row over all rows."""

from __future__ import annotations

from kohakuaccel.lang import dims, grid
from kohakutpu import lang as L
from kohakutpu.lang import kernel

M, N = dims("M, N")
LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453


@kernel
def softmax(x=L.In(..., M, N), y=L.Out(..., M, N), *, scale=1.0):
    """e**(scale * x - max) / sum, in base 2; scale > 0."""
    for r in grid(x.rows()):
        e = L.exp2((x[r] - L.row_max(x[r])) * (LOG2_E * scale))
        y[r] <<= e * L.recip(L.row_sum(e))


@kernel
def rmsnorm(x=L.In(..., M, N), w=L.In(N), y=L.Out(..., M, N), *, eps=1e-6):
    """x / sqrt(mean(x^2) + eps) * w. E8M15 has float32's range, so the squares cannot overflow."""
    for r in grid(x.rows()):
        scale = L.rsqrt(L.row_mean(x[r] * x[r]) + eps)
        y[r] <<= x[r] * scale * w


@kernel
def layernorm(x=L.In(..., M, N), w=L.In(N), b=L.In(N), y=L.Out(..., M, N), *, eps=1e-5):
    """(x - mean) / sqrt(var + eps) * w + b, with the two-pass variance."""
    for r in grid(x.rows()):
        centred = x[r] - L.row_mean(x[r])
        scale = L.rsqrt(L.row_mean(centred * centred) + eps)
        y[r] <<= L.fma(centred * scale, w, b)


@kernel
def row_sum(x=L.In(..., M, N), y=L.Out(..., M)):
    """Sum of each row."""
    for r in grid(x.rows()):
        y[r] <<= L.row_sum(x[r])


@kernel
def row_max(x=L.In(..., M, N), y=L.Out(..., M)):
    """Largest element of each row."""
    for r in grid(x.rows()):
        y[r] <<= L.row_max(x[r])


@kernel
def row_min(x=L.In(..., M, N), y=L.Out(..., M)):
    """Smallest element of each row."""
    for r in grid(x.rows()):
        y[r] <<= L.row_min(x[r])


@kernel
def row_mean(x=L.In(..., M, N), y=L.Out(..., M)):
    """Mean of each row."""
    for r in grid(x.rows()):
        y[r] <<= L.row_mean(x[r])


@kernel
def add_row(x=L.In(..., M, N), v=L.In(N), y=L.Out(..., M, N)):
    """x + v, the row v shared by all rows."""
    for r in grid(x.rows()):
        y[r] <<= x[r] + v


@kernel
def sub_row(x=L.In(..., M, N), v=L.In(N), y=L.Out(..., M, N)):
    """x - v."""
    for r in grid(x.rows()):
        y[r] <<= x[r] - v


@kernel
def mul_row(x=L.In(..., M, N), v=L.In(N), y=L.Out(..., M, N)):
    """x * v."""
    for r in grid(x.rows()):
        y[r] <<= x[r] * v


@kernel
def div_row(x=L.In(..., M, N), v=L.In(N), y=L.Out(..., M, N)):
    """x * recip(v)."""
    for r in grid(x.rows()):
        y[r] <<= x[r] / v


@kernel
def log_softmax(x=L.In(..., M, N), y=L.Out(..., M, N), *, scale=1.0):
    """scale * x - max - log(sum(e**(scale * x - max))), the logarithm of `softmax` without its underflow."""
    for r in grid(x.rows()):
        centred = (x[r] - L.row_max(x[r])) * scale
        y[r] <<= centred - L.log2(L.row_sum(L.exp2(centred * LOG2_E))) * LN_2


@kernel
def row_sumsq(x=L.In(..., M, N), y=L.Out(..., M)):
    """Sum of the squares of each row; the largest FP16 where it is beyond that: `row_mean_square` is safe for norms."""
    for r in grid(x.rows()):
        y[r] <<= L.row_sumsq(x[r])


@kernel
def row_mean_square(x=L.In(..., M, N), y=L.Out(..., M)):
    """Mean of the squares of each row."""
    for r in grid(x.rows()):
        y[r] <<= L.row_mean(x[r] * x[r])
