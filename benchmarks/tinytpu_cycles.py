"""Cycles of lowered graphs on TinyTPU, beside the published counts and the best that the datasheet's list knows.

Every workload is compiled by `tinytpu.lower`, run on the machine model, and its values are checked first. "published"
and "best" are the datasheet's (10.7, 14), empty where it has none. The bar is every published count.

    python benchmarks/tinytpu_cycles.py [--check] [--quick]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from timing import Bar, arguments, finish

from kohakuaccel import graph
from kohakuaccel.graph.native import Native
from tinytpu.lower import compile_graph


@dataclass(frozen=True)
class Workload:
    """text: a graph. published, best: cycles, 0 where there is none. tolerance: of reals, relative."""

    name: str
    text: str
    published: int = 0
    best: int = 0
    tolerance: float = 0.0


def _vector(body: str, n: int, dtype: str = "S32") -> str:
    return f"input a: {dtype}[{n}]\ninput b: {dtype}[{n}]\no: {dtype}[i<{n}] = {body}\noutput o"


def _fold(op: str, shape: tuple[int, int], body: str = "a[i, k]", dtype: str = "S32") -> str:
    return f"input a: {dtype}[{shape[0]},{shape[1]}]\no: {dtype}[i<{shape[0]}] = {op}[k<{shape[1]}] {body}\noutput o"


def _gemm(m: int, k: int, n: int, *, finished: bool = False, dtype: str = "S32") -> str:
    text = f"input a: {dtype}[{m},{k}]\ninput w: {dtype}[{k},{n}]\ninput b: {dtype}[{n}]\n"
    text += f"p: {dtype}[i<{m},j<{n}] = sum[q<{k}] a[i, q] * w[q, j]\n"
    text += f"o: S32[i<{m},j<{n}] = max(p[i, j] + b[j], cast(0, S32))\n" if finished else ""
    return text + f"output {'o' if finished else 'p'}"


SOFTMAX = """
input x: FP32[8,64]
m: FP32[i<8] = max[k<64] x[i, k]
s: FP32[i<8] = sum[k<64] exp2((x[i, k] - m[i]) * 1.4426950408889634)
o: FP32[i<8,j<64] = exp2((x[i, j] - m[i]) * 1.4426950408889634) / s[i]
output o
"""
LAYERNORM = """
input x: FP32[8,64]
m: FP32[i<8] = sum[k<64] x[i, k] * 0.015625
v: FP32[i<8] = sum[k<64] (x[i, k] - m[i]) * (x[i, k] - m[i])
r: FP32[i<8] = rsqrt(v[i] * 0.015625 + 1e-05)
o: FP32[i<8,j<64] = (x[i, j] - m[i]) * r[i]
output o
"""
WORKLOADS = (
    Workload("add_16", _vector("a[i] + b[i]", 16), 33, 33),
    Workload("add_256", _vector("a[i] + b[i]", 256), 423, 423),
    Workload("relu_64", _vector("max(a[i], cast(0, S32))", 64), 83, 83),
    Workload("reshape_64", "input a: S32[64]\no: S32[i<8,j<8] = a[8 * i + j]\noutput o", 63, 27),
    Workload("sum_16", _fold("sum", (1, 16)), 26, 26),
    Workload("sum_256", _fold("sum", (1, 256)), 281, 200),
    Workload("rowsum_8x8", _fold("sum", (8, 8)), 79, 69),
    Workload("colsum_8x8", _fold("sum", (8, 8), "a[k, i]"), 79, 69),
    Workload("gemm_1x4x4", _gemm(1, 4, 4), 37, 24),
    Workload("gemm_4x4x4", _gemm(4, 4, 4), 121, 77),
    Workload("gemm_4x8x4", _gemm(4, 8, 4), 227, 113),
    Workload("gemm_4x16x4", _gemm(4, 16, 4), 347, 175),
    Workload("gemm_8x8x8", _gemm(8, 8, 8), 767, 352),
    Workload("bias_relu_4x4x4", _gemm(4, 4, 4, finished=True), 168, 91),
    Workload("bias_relu_4x8x4", _gemm(4, 8, 4, finished=True), 254, 124),
    Workload("gemm_64x64x64", _gemm(64, 64, 64)),
    Workload("float_gemm_8x16x8", _gemm(8, 16, 8, dtype="FP32"), tolerance=1e-5),
    Workload("exp2_16", _vector("exp2(a[i])", 16, "FP32"), tolerance=3e-7),
    Workload("divide_16", _vector("a[i] / b[i]", 16, "FP32"), tolerance=6e-7),
    Workload("softmax_8x64", SOFTMAX, tolerance=2e-6),
    Workload("layernorm_8x64", LAYERNORM, tolerance=1e-3),
    Workload("transpose_16x16", "input a: S32[16,16]\no: S32[i<16,j<16] = a[j, i]\noutput o"),
)


def measure(workload: Workload) -> tuple[dict[str, float | int | str], Bar | None]:
    """A row, and the bar where a count is published. Asserts the values."""
    rng = np.random.default_rng(1)
    program = graph.parse(workload.text)
    inputs = {
        v.name: rng.normal(size=v.shape).astype(np.float32)
        if v.dtype.name == "FP32"
        else rng.integers(-128, 128, v.shape).astype(np.int32)
        for v in program.inputs
    }
    plan = compile_graph(program)
    ran = plan.run(inputs)
    for name, want in Native(program)(inputs).items():
        np.testing.assert_allclose(ran.outputs[name], want, rtol=workload.tolerance, atol=workload.tolerance)
    counts = ran.counts
    row: dict[str, float | int | str] = {
        "workload": workload.name,
        "cycles": counts.cycles,
        "published": workload.published or "",
        "best": workload.best or "",
        "programs": counts.programs,
        "instructions": counts.instructions,
        "records": counts.records,
        "bytes": counts.bytes,
    }
    limit = workload.published
    return row, Bar(workload.name, counts.cycles, limit + 1, below=True) if limit else None


def main() -> int:
    options = arguments("cycles of graphs lowered to TinyTPU")
    measured = [measure(w) for w in WORKLOADS if not (options.quick and w.name == "gemm_64x64x64")]
    bars = [bar for _, bar in measured if bar is not None]
    return finish("tinytpu_cycles", [row for row, _ in measured], bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
