"""Reductions over rows of a matrix and over everything, as rows of transposes and as partials of rows.

A column is reduced as a row of the transpose: one pass more over memory than adding rows up in place, but its sum stays
in E8M15 until the end and has a row reduction's bits, where rows added up through FP16 temporaries would round at every
step. A full reduction takes a row per instance on every core, then the partials as one row.
"""

from __future__ import annotations

from kohakuaccel.lang import Value, dims, grid
from kohakutpu import lang as L
from kohakutpu.lang import kernel

M, N = dims("M N")
LARGEST = 65504.0


@kernel
def col_sum(x=L.In(..., M, N), y=L.Out(..., N)):
    """Sum of each column."""
    for c in grid(x.T.rows()):
        y[c] <<= L.row_sum(x.T[c])


@kernel
def col_max(x=L.In(..., M, N), y=L.Out(..., N)):
    """Largest element of each column."""
    for c in grid(x.T.rows()):
        y[c] <<= L.row_max(x.T[c])


@kernel
def col_min(x=L.In(..., M, N), y=L.Out(..., N)):
    """Smallest element of each column."""
    for c in grid(x.T.rows()):
        y[c] <<= L.row_min(x.T[c])


@kernel
def col_mean(x=L.In(..., M, N), y=L.Out(..., N)):
    """Mean of each column."""
    for c in grid(x.T.rows()):
        y[c] <<= L.row_mean(x.T[c])


@kernel
def full_max(x=L.In(M, N), y=L.Out(1)):
    """Largest element."""
    partial = L.temp(M, 1)
    for r in grid(x.rows()):
        partial[r, 0] <<= L.row_max(x[r])
    for r in grid(1):
        y[r] <<= L.row_max(partial.T[r])


@kernel
def full_min(x=L.In(M, N), y=L.Out(1)):
    """Smallest element."""
    partial = L.temp(M, 1)
    for r in grid(x.rows()):
        partial[r, 0] <<= L.row_min(x[r])
    for r in grid(1):
        y[r] <<= L.row_min(partial.T[r])


@kernel
def full_sum(x=L.In(M, N), y=L.Out(1)):
    """Sum of all elements. A row's sum is kept as an FP16 value and what FP16 leaves of it, which lose nothing above
    2**-24; sums of rows beyond 65504 are counted as saturated and right up to twice that."""
    high, low = L.temp(M, 1), L.temp(M, 1)
    for r in grid(x.rows()):
        high[r, 0] <<= L.row_sum(x[r])
    for r in grid(x.rows()):
        low[r, 0] <<= _rest(L.row_sum(x[r]), high[r, 0])
    for r in grid(1):
        y[r] <<= L.row_sum(high.T[r]) + L.row_sum(low.T[r])


@kernel
def full_mean(x=L.In(M, N), y=L.Out(1)):
    """Mean of all elements, from rows' means kept in two halves each."""
    high, low = L.temp(M, 1), L.temp(M, 1)
    for r in grid(x.rows()):
        high[r, 0] <<= L.row_mean(x[r])
    for r in grid(x.rows()):
        low[r, 0] <<= _rest(L.row_mean(x[r]), high[r, 0])
    for r in grid(1):
        y[r] <<= L.row_mean(high.T[r]) + L.row_mean(low.T[r])


def _rest(total: Value, high: Value) -> Value:
    """total - high; a number where both are infinite, so that their sum stays what `high` says."""
    return L.maximum(-LARGEST, total - high)
