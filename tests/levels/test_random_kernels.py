"""Random shapes, knobs and expressions: the machine's result lies within the bound that the formats allow around the
float64 run of the same kernel, and every level gives the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import Value, dims, grid, sweep
from kohakutpu import lang as L
from kohakutpu.lang import Kernel, kernel
from kohakutpu.machines import load
from levels.bounds import Expr, expected_square, interpret, product, stored

M, K, N = dims("M, K, N")
MACHINES = ("ship_3x2", "mini", "singlemesh_2x2")
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=QUIET)
DEEP = settings(max_examples=160, deadline=None, suppress_health_check=QUIET)

leaves = st.sampled_from(["x", "y", "z"]) | st.sampled_from([0.5, 1.0, -2.0, 0.1, 3.0])


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    positive = st.tuples(st.just("add"), st.tuples(st.just("abs"), inner), st.just(0.25))
    small = st.tuples(st.just("maximum"), st.tuples(st.just("minimum"), inner, st.just(6.0)), st.just(-6.0))
    return (
        st.tuples(st.sampled_from(["add", "sub", "mul", "maximum", "minimum"]), inner, inner)
        | st.tuples(st.just("fma"), inner, inner, inner)
        | st.tuples(st.sampled_from(["neg", "abs"]), inner)
        | st.tuples(st.just("exp2"), small)
        | st.tuples(st.sampled_from(["recip", "rsqrt"]), positive)
        | st.tuples(st.just("where"), st.tuples(st.just("less"), inner, inner), inner, inner)
    )


expressions = st.recursive(leaves, _grow, max_leaves=9).filter(lambda e: any(f"'{n}'" in repr(e) for n in "xyz"))


def apply(expr: Expr, values: dict[str, Value]) -> Any:
    """The expression in the kernel language."""
    if isinstance(expr, str):
        return values[expr]
    if isinstance(expr, float):
        return expr
    op, *rest = expr
    a = [apply(e, values) for e in rest]
    infix = {"add": lambda p, q: p + q, "sub": lambda p, q: p - q, "mul": lambda p, q: p * q}
    if op in infix:
        return infix[op](*a)
    if op == "neg":
        return -a[0]
    return getattr(L, op)(*a)


def run_everywhere(k: Kernel, inputs: list[np.ndarray], machine: str, knobs: dict[str, object]) -> np.ndarray:
    plan = k._plan(load(machine), [a.shape for a in inputs], (None,) * len(inputs), knobs)
    (one,), (two,), (three,) = plan.run_schedule(*inputs), plan.run_program(*inputs), plan.run_image(*inputs)
    assert one.tobytes() == two.tobytes() == three.tobytes()
    return three.astype(np.float64)


def run_or_refused(
    k: Kernel, inputs: list[np.ndarray], machine: str, knobs: dict[str, object], *reasons: str
) -> np.ndarray | None:
    """The result, or None where the kernel is refused for one of these reasons; any other refusal is an error."""
    try:
        return run_everywhere(k, inputs, machine, knobs)
    except Refusal as refusal:
        if not any(reason in str(refusal) for reason in reasons):
            raise
        return None


def close(got: np.ndarray, value: np.ndarray, bound: np.ndarray) -> None:
    sure = np.isfinite(value) & np.isfinite(bound) & (np.abs(value) + bound < 65504)
    off = np.abs(got - value) > bound
    assert not np.any(off & sure), (got[off & sure][:3], value[off & sure][:3], bound[off & sure][:3])


def check_elementwise(expr: Expr, size: int, machine: str, seed: int) -> None:
    @kernel
    def mapped(x=L.In(...), y=L.In(...), z=L.In(...), o=L.Out(...)):
        for e in grid(x.parts()):
            o[e] <<= apply(expr, {"x": x[e], "y": y[e], "z": z[e]})

    rng = np.random.default_rng(seed)
    inputs = [(rng.standard_normal(size) * 2).astype(np.float16) for _ in range(3)]
    got = run_or_refused(mapped, inputs, machine, {}, "V registers", "S registers")
    if got is None:
        return
    with np.errstate(all="ignore"):
        value, error = interpret(expr, {n: a.astype(np.float64) for n, a in zip("xyz", inputs)})
        close(got, value, stored(value, error))


def check_rows(expr: Expr, rows: int, cols: int, machine: str, seed: int) -> None:
    @kernel
    def normed(x=L.In(..., M, N), y=L.In(..., M, N), z=L.In(N), o=L.Out(..., M, N)):
        for r in grid(x.rows()):
            v = apply(expr, {"x": x[r], "y": y[r], "z": z})
            o[r] <<= (v - L.row_mean(v)) + L.row_max(v)

    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(s).astype(np.float16) for s in ((rows, cols), (rows, cols), (cols,))]
    reasons = ("V registers", "S registers", "program memory", "already one number per row")
    got = run_or_refused(normed, inputs, machine, {}, *reasons)
    if got is None:
        return
    with np.errstate(all="ignore"):
        x, y, z = (a.astype(np.float64) for a in inputs)
        value, error = interpret(expr, {"x": x, "y": y, "z": np.broadcast_to(z, x.shape)})
        mass = np.abs(value) + error
        mean = value.mean(-1, keepdims=True)
        adds = (cols // 128 + 9) * 2.0**-16
        mean_error = error.mean(-1, keepdims=True) + mass.mean(-1, keepdims=True) * (adds + 2 * 2.0**-16)
        top, top_error = value.max(-1, keepdims=True), error.max(-1, keepdims=True)
        total = value - mean + top
        bound = error + mean_error + top_error + (mass + np.abs(mean) + np.abs(top)) * 4 * 2.0**-16
        close(got, total, stored(total, bound))


def check_product(m: int, n: int, d: int, knobs: tuple[int, int, int], machine: str, scale: float, seed: int) -> None:
    @kernel
    def multiplied(a=L.In(M, K), b=L.In(N, K), v=L.In(N), c=L.Out(M, N), *, gm=1, gn=1, nk=1):
        for i, j in grid(a.tiles(gm), b.tiles(gn)):
            acc = L.tile(gm, gn, nk)
            for k in sweep(a.chunks32(nk)):
                acc += a[i, k] @ b[j, k]
            c[i, j] <<= acc + v[j]

    rng = np.random.default_rng(seed)
    spread = np.exp(rng.standard_normal((2, max(m, n), d)))
    a = (rng.standard_normal((m, d)) * spread[0, :m] * scale).astype(np.float16)
    b = (rng.standard_normal((n, d)) * spread[1, :n]).astype(np.float16)
    v = rng.standard_normal(n).astype(np.float16)
    got = run_or_refused(multiplied, [a, b, v], machine, dict(zip(("gm", "gn", "nk"), knobs)), "L1 side", "tile store")
    if got is None:
        return
    value, bound = product(a.astype(np.float64), b.astype(np.float64))
    first = stored(value, bound)
    if m * n >= 64 and d >= 32:  # the bound is for the worst case; what happens on average is far closer
        square = expected_square(a.astype(np.float64), b.astype(np.float64)) + stored(value, 0 * value) ** 2
        assert np.mean((got - value - v) ** 2) <= 2 * np.mean(square)
    close(got, value + v.astype(np.float64), stored(value + v, first + (np.abs(value) + np.abs(v)) * 2.0**-15))


shapes = st.integers(1, 70)
knobs = st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 4))


@QUICK
@given(expressions, st.integers(1, 2500), st.sampled_from(MACHINES), st.integers(0, 9))
def test_elementwise(expr: Expr, size: int, machine: str, seed: int) -> None:
    check_elementwise(expr, size, machine, seed)


@QUICK
@given(expressions, st.integers(1, 30), st.integers(1, 400), st.sampled_from(MACHINES), st.integers(0, 9))
def test_rows(expr: Expr, rows: int, cols: int, machine: str, seed: int) -> None:
    check_rows(expr, rows, cols, machine, seed)


@QUICK
@given(
    shapes,
    shapes,
    st.integers(1, 300),
    knobs,
    st.sampled_from(MACHINES),
    st.sampled_from([1.0, 1e-3]),
    st.integers(0, 9),
)
def test_products(m: int, n: int, d: int, knobs: tuple[int, int, int], machine: str, scale: float, seed: int) -> None:
    check_product(m, n, d, knobs, machine, scale, seed)


@pytest.mark.slow
@DEEP
@given(expressions, st.integers(1, 9000), st.integers(1, 60), st.sampled_from(MACHINES), st.integers(0, 999))
def test_many(expr: Expr, size: int, rows: int, machine: str, seed: int) -> None:
    check_elementwise(expr, size, machine, seed)
    check_rows(expr, rows, max(1, size // rows), machine, seed)
