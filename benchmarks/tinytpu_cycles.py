"""Cycles of lowered graphs on TinyTPU, beside the published counts and the best that the datasheet's list knows.

Every workload is compiled by `tinytpu.lower`, run on the machine model, and its values are checked first. "published"
and "best" are the datasheet's (10.7, 14), empty where it has none. The bar is the best count, else the published.

    python benchmarks/tinytpu_cycles.py [--check] [--quick]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from timing import Bar, arguments, finish

from kohakuaccel import graph
from kohakuaccel.graph import numpy_of
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


def _requantised(p: str, factor: str, shift: int, low: int = -128) -> str:
    """An S8 of the sums `p`; see kohakuaccel.graph.requant."""
    shifted = f"shr(cast({p}, S64) * cast({factor}, S64) + cast({1 << (shift - 1)}, S64), cast({shift}, S64))"
    return f"cast(min(max({shifted}, cast({low}, S64)), cast(127, S64)), S8)"


def _product(name: str, a: str, w: str, m: int, k: int, n: int) -> str:
    return f"{name}: S32[i<{m},j<{n}] = sum[k<{k}] cast({a}[i, k], S32) * cast({w}[k, j], S32)\n"


LAYERS = (
    "input a: S8[4,4]\ninput w: S8[4,4]\ninput v: S8[4,4]\n"
    + _product("p", "a", "w", 4, 4, 4)
    + f"q: S8[i<4,j<4] = {_requantised('p[i, j]', '37', 10)}\n"
    + _product("o", "q", "v", 4, 4, 4)
    + "output o"
)
CHANNELS = (
    "input a: S8[4,8]\ninput w: S8[8,8]\ninput b: S16[8]\ninput f: S16[8]\n"
    + _product("p", "a", "w", 4, 8, 8)
    + f"o: S8[i<4,j<8] = {_requantised('p[i, j] + cast(b[j], S32)', 'f[j]', 14, 0)}\noutput o"
)
BATCH = """
input a: S8[4,4,4]
input w: S8[4,4,4]
o: S32[b<4,i<4,j<4] = sum[k<4] cast(a[b, i, k], S32) * cast(w[b, k, j], S32)
output o
"""
OPERANDS = """
input a: S8[8,16]
input w: S8[16,8]
o: S32[i<8,j<8] = sum[k<16] max(cast(a[i, k], S32), cast(0, S32)) * cast(w[k, j], S32)
output o
"""
OUTER = """
input a: S8[4,1]
input w: S8[1,4]
input b: S32[4]
p: S32[i<4,j<4] = sum[k<1] cast(a[i, k], S32) * cast(w[k, j], S32)
o: S32[i<4,j<4] = max(p[i, j] + b[j], cast(0, S32))
output o
"""
RELU = _gemm(4, 4, 4, finished=True).replace("p[i, j] + b[j]", "p[i, j]").replace("input b: S32[4]\n", "")
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
CLAMPED = "cast(min(max(cast(a[i], S16) + cast(b[i], S16), cast(-128, S16)), cast(127, S16)), S8)"
SIGN = "where(a[i] == cast(0, S32), cast(0, S32), where(a[i] < cast(0, S32), cast(-1, S32), cast(1, S32)))"
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
    Workload("bias_relu_4x16x4", _gemm(4, 16, 4, finished=True), 394, 186),
    Workload("relu_4x4x4", RELU, 141, 82),
    Workload("outer_bias_relu_4x4", OUTER, 0, 35),
    Workload("two_layers_4x4x4", LAYERS, 242, 127),
    Workload("gemm_4x12x4", _gemm(4, 12, 4), 277, 144),
    Workload("gemm_4x32x4", _gemm(4, 32, 4), 627, 299),
    Workload("batch_4_of_4x4x4", BATCH),
    Workload("vector_1x16x16", _gemm(1, 16, 16)),
    Workload("channels_4x8x8", CHANNELS),
    Workload("relu_operand_8x16x8", OPERANDS),
    Workload("gemm_64x64x64", _gemm(64, 64, 64)),
    Workload("float_gemm_8x16x8", _gemm(8, 16, 8, dtype="FP32"), tolerance=1e-5),
    Workload("exp2_16", _vector("exp2(a[i])", 16, "FP32"), tolerance=3e-7),
    Workload("divide_16", _vector("a[i] / b[i]", 16, "FP32"), tolerance=6e-7),
    Workload("softmax_8x64", SOFTMAX, tolerance=2e-6),
    Workload("layernorm_8x64", LAYERNORM, tolerance=1e-3),
    Workload("max_64_bytes", _vector("max(a[i], b[i])", 64, "S8"), 111, 33),
    Workload("add_64_bytes", _vector("a[i] + b[i]", 64, "S8"), 0, 70),
    Workload("relu_64_bytes", _vector("max(a[i], cast(0, S8))", 64, "S8"), 111, 33),
    Workload("clamped_add_64_bytes", _vector(CLAMPED, 64, "S8")),
    Workload("sign_16", _vector(SIGN, 16)),
    Workload("transpose_16x16", "input a: S32[16,16]\no: S32[i<16,j<16] = a[j, i]\noutput o"),
)


def measure(workload: Workload) -> tuple[dict[str, float | int | str], Bar | None]:
    """A row, and the bar where a count is known. Asserts the values."""
    rng = np.random.default_rng(1)
    program = graph.parse(workload.text)
    inputs = {
        v.name: rng.normal(size=v.shape).astype(np.float32)
        if v.dtype.name == "FP32"
        else rng.integers(-128, 128, v.shape).astype(numpy_of(v.dtype))
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
    limit = workload.best or workload.published
    return row, Bar(workload.name, counts.cycles, limit + 1, below=True) if limit else None


def main() -> int:
    options = arguments("cycles of graphs lowered to TinyTPU")
    measured = [measure(w) for w in WORKLOADS if not (options.quick and w.name == "gemm_64x64x64")]
    bars = [bar for _, bar in measured if bar is not None]
    return finish("tinytpu_cycles", [row for row, _ in measured], bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
