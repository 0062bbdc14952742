"""The corpus of programs on which every level must give the same bits. A new kernel or pass joins it.

Kernels only: plans of graphs, several kernels with steps between, are held to the same bits in tests/auto, over its
workloads and random programs.

A case names a kernel, the shapes and knobs of a call, the machine, and how its inputs are drawn. Seeds are derived from
the case's own name, so that a case keeps its inputs when others are added.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.lang import dims, grid, stage, sweep
from kohakuaccel.machine import Machine
from kohakutpu import kernels
from kohakutpu import lang as L
from kohakutpu.kernels import movement
from kohakutpu.lang import Kernel, kernel
from kohakutpu.layouts import element_of
from kohakutpu.lower.plan import Plan
from kohakutpu.machines import load
from levels import language_cases

Half = NDArray[np.float16]
Real = NDArray[np.floating[Any]]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Real]
M, K, N = dims("M, K, N")


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Half:
    return rng.standard_normal(shape).astype(np.float16)


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Half:
    return np.exp(rng.uniform(-8, 8, shape)).astype(np.float16)


def any_bits(rng: np.random.Generator, shape: tuple[int, ...]) -> Half:
    """Every kind of half: subnormals, infinities, NaNs of any payload."""
    return rng.integers(0, 1 << 16, shape, np.uint16).view(np.float16)


def finite_bits(rng: np.random.Generator, shape: tuple[int, ...]) -> Half:
    """Every finite half, uniformly over the codes."""
    codes = rng.integers(0, 31 << 10, shape, np.uint16) | (rng.integers(0, 2, shape, np.uint16) << 15)
    return codes.astype(np.uint16).view(np.float16)


def singles(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Normal numbers of any size that FP32 and a sum of their squares hold."""
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-60, 60, shape))).astype(np.float32)


def any_single(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Every kind of FP32: subnormals, infinities, NaNs of any payload."""
    return rng.integers(0, 1 << 32, shape, np.uint32).view(np.float32)


def mixed(rng: np.random.Generator, shape: tuple[int, ...]) -> Real:
    """FP32 where the last axis is odd, else FP16."""
    return singles(rng, shape) if shape[-1] % 2 else normal(rng, shape)


@kernel
def linear_silu(x=L.In(..., M, K), w=L.In(N, K), y=L.Out(..., M, N), *, gm=4, gn=4, nk=2):
    for i, j in grid(x.tiles(gm), w.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            acc += x[i, k] @ w[j, k]
        y[i, j] <<= acc * L.recip(L.exp2(acc * -1.4427) + 1)


@kernel
def everything(x=L.In(...), y=L.In(...), z=L.In(...), o=L.Out(...)):
    """One of each elementwise operation."""
    for e in grid(x.parts()):
        picked = L.where(L.less(x[e], y[e]), L.fma(x[e], y[e], z[e]), L.maximum(x[e], L.minimum(y[e], 0.37)))
        squashed = L.exp2(-L.abs(z[e])) + L.log2(L.abs(y[e]) + 1) + L.rsqrt(L.abs(x[e]) + 0.1)
        tests = L.greater(picked, 0.5) - L.equal(x[e], x[e])
        o[e] <<= (picked / (squashed + 2) - tests) * 3


@kernel
def copy_parts(x=L.In(...), y=L.Out(...), *, part=48):
    for e in grid(x.parts(part)):
        y[e] <<= x[e]


@kernel
def constant_parts(x=L.In(...), y=L.Out(...)):
    for e in grid(x.parts()):
        y[e] <<= L.where(1.0, 2.5, 0.0)


@kernel
def two_reductions(x=L.In(..., M, N), y=L.Out(..., M, N)):
    """Two reductions of one level and one of the next."""
    for r in grid(x.rows()):
        spread = L.row_max(x[r]) - L.row_min(x[r])
        scaled = (x[r] - L.row_mean(x[r])) * L.recip(spread + 1)
        y[r] <<= scaled * L.rsqrt(L.row_sumsq(scaled) + 0.5)


@kernel
def two_outputs(x=L.In(..., M, N), y=L.Out(..., M, N), s=L.Out(..., M)):
    for r in grid(x.rows()):
        y[r] <<= x[r] - L.row_max(x[r])
        s[r] <<= L.row_sum(x[r])


@kernel
def through_fp32(x=L.In(..., M, N), y=L.Out(..., M, N, dtype="float16"), s=L.Out(..., M)):
    """A temporary in FP32 between FP16, and one number per row that stays as it is computed."""
    t = L.temp(..., M, N, dtype="float32")
    with stage(x.rows()) as r:
        t[r] <<= x[r] * 1e-6
    with stage(x.rows()) as r:
        y[r] <<= t[r] * 1e6 - L.row_mean(x[r])
        s[r] <<= L.row_sumsq(t[r])


@kernel
def mixed_parts(x=L.In(...), y=L.In(...), z=L.Out(...), h=L.Out(..., dtype="float16")):
    for e in grid(x.parts()):
        z[e] <<= L.where(L.less(x[e], y[e]), x[e] * y[e], 0.37)
        h[e] <<= L.maximum(x[e], y[e])


@kernel
def wide_columns(x=L.In(M, N), w=L.In(M, K), y=L.Out(M, N + K + 16)):
    """Rows of FP32 put together from parts that begin anywhere, FP16 among them."""
    for r in grid(x.rows()):
        y[r] <<= L.join(x[r], w[r], w[r, :16] * 2)


@dataclass(frozen=True)
class Case:
    """One program of the corpus. Inputs that are drawn as float32 are stored so."""

    kernel: Kernel
    shapes: tuple[tuple[int, ...], ...]
    machine: str = "ship_3x2"
    draw: Draw = normal
    knobs: dict[str, object] = field(default_factory=dict[str, object])

    @property
    def name(self) -> str:
        shapes = ",".join("x".join(map(str, s)) for s in self.shapes)
        knobs = "".join(f",{k}={v}" for k, v in self.knobs.items())
        return f"{self.kernel.__name__}[{shapes}{knobs}]-{self.draw.__name__}-{self.machine}"

    def inputs(self) -> list[Real]:
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [self.draw(rng, shape) for shape in self.shapes]


def _products() -> list[Case]:
    k = kernels
    shapes = [(1, 1, 1), (4, 4, 32), (5, 7, 33), (100, 70, 130), (64, 128, 256), (130, 260, 100), (3, 200, 1)]
    cases = [Case(k.matmul, ((m, d), (n, d)), machine) for m, n, d in shapes for machine in ("ship_3x2", "mini")]
    cases += [Case(k.matmul, ((m, d), (n, d)), "singlemesh_2x2") for m, n, d in shapes[2:5]]
    cases += [
        Case(k.matmul, ((33, 96), (21, 96)), knobs={"gm": a, "gn": b, "nk": c})
        for a, b, c in [(2, 1, 2), (1, 1, 1), (16, 32, 4), (3, 5, 3), (32, 2, 1), (9, 1, 1)]
    ]
    cases += [Case(k.matmul, ((40, 100), (30, 100)), draw=finite_bits), Case(k.matmul, ((256, 64), (8, 64)))]
    cases += [Case(k.batched_matmul, ((3, 20, 40), (3, 30, 40)), m) for m in ("ship_3x2", "singlemesh_2x2")]
    cases += [Case(k.batched_matmul, ((2, 2, 5, 64), (2, 2, 9, 64)))]
    cases += [
        Case(linear_silu, s, m) for s in [((37, 70), (19, 70)), ((2, 3, 64), (8, 64))] for m in ("ship_3x2", "mini")
    ]
    return cases


def _elementwise() -> list[Case]:
    k = kernels
    unary = [k.neg, k.abs, k.exp2, k.exp, k.log2, k.log, k.sqrt, k.rsqrt, k.recip, k.relu, k.sigmoid, k.silu, k.gelu]
    cases = [Case(f, ((37, 29),), draw=any_bits) for f in unary]
    cases += [Case(k.silu, (s,), m) for s in [(1,), (16,), (1000,), (3, 5, 7), (128, 64)] for m in ("ship_3x2", "mini")]
    binary = [k.add, k.sub, k.mul, k.div, k.maximum, k.minimum]
    cases += [Case(f, ((50, 41), (50, 41)), draw=any_bits) for f in binary]
    cases += [Case(k.add_scalar, ((100,),), knobs={"value": 0.1}), Case(k.affine, ((9, 9),), knobs={"scale": 3.0})]
    cases += [Case(everything, ((30, 31),) * 3, m, any_bits) for m in ("ship_3x2", "singlemesh_2x2")]
    cases += [Case(copy_parts, ((1000,),), draw=any_bits), Case(constant_parts, ((77,),))]
    return cases


def _rows() -> list[Case]:
    k = kernels
    widths = [(7, 5), (3, 16), (10, 100), (6, 128), (9, 300), (40, 64), (1, 1), (5, 1000), (2, 9000)]
    cases = [Case(f, (s,)) for f in (k.softmax, k.row_sum, k.row_max) for s in widths]
    cases += [Case(k.row_mean, ((2, 20011),)), Case(k.row_min, ((33, 47),), "mini"), Case(k.softmax, ((2, 3, 40),))]
    for s in [(10, 100), (3, 4000), (17, 16), (2, 2, 130)]:
        cases += [Case(k.rmsnorm, (s, s[-1:])), Case(k.layernorm, (s, s[-1:], s[-1:]), "mini")]
    cases += [Case(f, ((21, 50), (50,))) for f in (k.add_row, k.sub_row, k.mul_row, k.div_row)]
    cases += [Case(two_reductions, (s,)) for s in [(8, 70), (3, 6000)]] + [Case(two_outputs, ((11, 37),))]
    return cases


def _language() -> list[Case]:
    c = language_cases
    cases = [Case(c.linear, ((3, 20, 70), (45, 70), (45,)), m) for m in ("ship_3x2", "mini")]
    cases += [Case(c.linear, ((64, 96), (600, 96), (600,)), knobs={"gm": 2, "gn": 128, "nk": 1})]
    cases += [
        Case(c.linear, ((70, 96), (33, 96), (33,)), knobs={"gm": a, "gn": b}) for a, b in [(1, 1), (3, 3), (16, 8)]
    ]
    cases += [Case(c.scaled_residual, ((37, 40), (50, 40), (37,), (37, 50)), m) for m in ("ship_3x2", "singlemesh_2x2")]
    cases += [
        Case(c.gated, ((33, 70), (47, 70), (47, 70))),
        Case(c.two_products, ((9, 70), (20, 70), (9, 100), (20, 100))),
    ]
    cases += [Case(k, ((33, 96), (21, 96))) for k in (c.by_regions, c.by_stage)]
    cases += [Case(c.triangular, ((20, 160), (12, 160))), Case(c.grouped, ((2, 4, 10, 40), (2, 2, 20, 40)))]
    cases += [Case(c.masked_rows, ((3, 6, 20), (3, 20)), m) for m in ("ship_3x2", "mini")]
    cases += [Case(c.running, ((300,), (300,)))]
    cases += [Case(c.split_k, ((2, 20, 300), (40, 300), (40,)), m) for m in ("ship_3x2", "singlemesh_2x2")]
    cases += [Case(c.nested, s) for s in [((20, 100), (30, 100)), ((100, 40), (70, 40))]]
    return cases


def with_mask(rng: np.random.Generator, shape: tuple[int, ...]) -> Half:
    """Matrices are masks of 0 and 1, everything else normal."""
    return rng.integers(0, 2, shape).astype(np.float16) if len(shape) == 2 else normal(rng, shape)


def _library() -> list[Case]:
    k = kernels
    x, w, o = (2, 13, 70), (29, 70), (2, 13, 29)
    cases = [Case(k.linear, (x, w, (29,)), m, knobs={"activation": "gelu"}) for m in ("ship_3x2", "mini")]
    cases += [Case(k.linear, (x, w, (29,), o, o), knobs={"activation": "sigmoid"})]
    cases += [Case(k.mlp, ((9, 33), (50, 33), (21, 50), (50,), (21,), (9, 21)))]
    cases += [Case(k.swiglu, ((2, 9, 33), (50, 33), (50, 33), (33, 50), (2, 9, 33)), m) for m in ("ship_3x2", "mini")]
    q, kv, one = (1, 4, 37, 40), (1, 2, 70, 40), (1, 1, 128, 64)
    cases += [Case(k.flash_attention, (q, kv, kv), m) for m in ("ship_3x2", "singlemesh_2x2")]
    cases += [Case(k.flash_attention, (one, one, one), knobs={"causal": True, "qblock": b}) for b in (0, 48)]
    cases += [Case(k.flash_attention, (q, kv, kv, (1, 70), (1, 4, 37, 70)), draw=with_mask, knobs={"causal": True})]
    cases += [Case(k.online_attention, (q, kv, kv))]
    cases += [Case(k.flash_attention, ((1, 1, 200, 33),) * 3, knobs={"causal": True, "vm": 3, "vk": 1})]
    cases += [Case(k.split_heads, ((2, 13, 40), (3, 20, 40))), Case(k.merge_heads, ((2, 3, 13, 20), (3, 40, 20)))]
    cases += [Case(f, (s,)) for f in (k.log_softmax, k.row_sumsq, k.row_mean_square) for s in ((5, 17), (2, 9000))]
    cases += [Case(k.softmax, ((7, 100),), knobs={"scale": 0.125})]
    cases += [Case(k.grouped_norm, ((2, 3, 70), (2, 6, 35), (6,), (6,)), knobs={"activation": "silu"})]
    cases += [Case(k.rotate, ((2, 9, 2, n), (9, n), (9, n))) for n in (5, 32)]
    return cases


def _movement() -> list[Case]:
    c, v, k = language_cases, movement, kernels
    cases = [Case(c.turned_halves, (s,), m, any_bits) for s in [(9, 50), (2, 3, 64)] for m in ("ship_3x2", "mini")]
    cases += [Case(c.into_columns, ((11, 20), (11, 7))), Case(c.centred_columns, ((2, 37, 21),))]
    cases += [Case(c.turned_temporary, ((21, 40), (35, 40)), m) for m in ("ship_3x2", "singlemesh_2x2")]
    some, index = (3, 7, 2, 33), np.array([5, 0, 0, 6, 3, 1])
    knobs: list[tuple[Kernel, dict[str, object]]] = [
        (v.slice_rows, {"start": 6, "step": -2, "count": 4}),
        (v.take_rows, {"index": index, "count": 6}),
        (v.repeat_rows, {"times": 3, "count": 21}),
        (v.tile_rows, {"period": 7, "count": 14}),
    ]
    cases += [Case(f, (some,), draw=any_bits, knobs=chosen) for f, chosen in knobs]
    cases += [Case(v.concat3, ((2, 3, 20), (2, 1, 20), (2, 40, 20)), draw=any_bits)]
    cases += [Case(v.join3, ((13, 16), (13, 7), (13, 40)), m, any_bits) for m in ("ship_3x2", "mini")]
    cases += [Case(v.slice_columns, ((3, 5003),), draw=any_bits, knobs={"start": 7, "count": 4900})]
    cases += [Case(v.pick_columns, ((9, 40),), draw=any_bits, knobs={"index": (3, 3, 39), "count": 3})]
    cases += [Case(v.take_columns, ((9, 40),), draw=any_bits, knobs={"index": index, "count": 6})]
    cases += [Case(v.fill_columns, ((21, 1),), draw=any_bits, knobs={"count": 35})]
    orders = [(1, 0), (0, 2, 1, 3), (3, 1, 0, 2), (2, 3, 1, 0)]
    cases += [Case(v.permutation(o), ((3, 5, 20, 17)[: len(o)],), draw=any_bits) for o in orders]
    cases += [Case(f, ((2, 50, 21),)) for f in (k.col_sum, k.col_max)]
    cases += [Case(f, ((37, 130),), m) for f in (k.full_sum, k.full_min) for m in ("ship_3x2", "mini")]
    plain: dict[str, object] = {"size": (3, 3), "padding": ((1, 1), (1, 1)), "pixels": 84}
    wide: dict[str, object] = {**plain, "stride": (2, 1), "dilation": (1, 2), "padding": ((1, 0), (2, 2)), "pixels": 42}
    cases += [Case(k.conv2d_taps, ((2, 7, 6, 40), (9, 13, 40), (13,)), m, knobs=plain) for m in ("ship_3x2", "mini")]
    cases += [Case(k.conv2d_taps, ((2, 7, 7, 33), (9, 20, 33)), knobs={**wide, "activation": "relu"})]
    return [*cases, Case(k.conv2d_taps, ((2, 7, 6, 3), (1, 8, 27)), knobs={**plain, "joined": True})]


QUANT, WIDE = "ship_3x2+r2_vc_quant", "ship_3x2+r2_vc_quant+r2_acc_to_vc"


def _revision2() -> list[Case]:
    """Kernels whose temporaries stay in L1 (lower/resident), and some whose temporaries do not."""
    k, c = kernels, language_cases
    q, kv = (1, 4, 37, 40), (1, 2, 70, 40)
    long, odd = (1, 2, 70, 33), (1, 1, 99, 33)
    cases = [Case(k.online_attention, (q, kv, kv), m) for m in (QUANT, WIDE, "mini+r2_vc_quant+r2_acc_to_vc")]
    cases += [Case(k.flash_attention, (long, odd, odd), m) for m in (QUANT, WIDE)]
    cases += [Case(k.flash_attention, ((1, 1, n, 16), (1, 1, n, 16), (1, 1, n, 5)), QUANT) for n in (1, 34, 63)]
    cases += [Case(k.flash_attention, (q, kv, kv), QUANT, finite_bits), Case(k.flash_attention, (long,) * 3, WIDE)]
    cases += [Case(k.flash_attention, (q, kv, kv), QUANT, knobs={"causal": True})]
    hidden: dict[str, object] = {"gm": 4, "gn": 16, "hn": 8, "nk": 2}
    layers = ((45, 70), (61, 70), (30, 61))
    cases += [Case(c.two_layers, layers, m, knobs=hidden) for m in ("ship_3x2", QUANT, WIDE)]
    return [*cases, Case(c.normed_rows, ((45, 70), (61, 70), (30, 61)), WIDE, knobs=hidden)]


def _clusters2() -> list[Case]:
    """Two accumulators, shared fetches and both banks (lower/crews)."""
    k, c = kernels, language_cases
    tiles: dict[str, object] = {"gm": 2, "gn": 4, "nk": 2}
    all_of_it = "r2_dual_acc+r2_multicast+r2_bank_plan"
    found: list[Case] = []
    for features in ("r2_dual_acc", "r2_multicast", "r2_dual_acc+r2_multicast", all_of_it):
        ship = f"ship_3x2+{features}"
        found += [Case(k.matmul, s, ship) for s in [((200, 200), (260, 200)), ((33, 96), (700, 96))]]
        found += [Case(k.matmul, ((90, 200), (90, 200)), ship, knobs=tiles)]
        found += [
            Case(k.batched_matmul, ((3, 40, 96), (3, 50, 96)), m, knobs=tiles)
            for m in (ship, f"multimesh_4+{features}")
        ]
        found += [Case(linear_silu, ((70, 130), (90, 130)), ship, knobs={"gm": 2, "gn": 2})]
        found += [Case(c.split_k, ((2, 40, 300), (40, 300), (40,)), ship)]
        found += [Case(k.flash_attention, ((1, 2, 70, 40),) * 3, ship)]
        found += [Case(c.grouped, ((2, 4, 10, 40), (2, 2, 20, 40)), ship)]
    shapes = ((2, 7, 9, 64), (9, 24, 64))
    plain: dict[str, object] = {"size": (3, 3), "stride": (2, 1), "dilation": (1, 2), "padding": ((1, 0), (2, 1))}
    odd: dict[str, object] = {**plain, "pixels": 48, "gm": 4, "gn": 2, "nk": 2, "activation": "relu"}
    for m in ("ship_3x2+r2_desc_fill", f"ship_3x2+r2_desc_fill+{all_of_it}"):
        found += [
            Case(k.conv2d_windows, shapes, m, knobs={**plain, "pixels": 48}),
            Case(k.conv2d_windows, (*shapes, (24,)), m, knobs=odd),
        ]
        wide: dict[str, object] = {"size": (1, 1), "stride": (2, 2), "pixels": 120, "gm": 16, "gn": 2, "nk": 1}
        found += [Case(k.conv2d_windows, ((1, 20, 23, 32), (1, 9, 32)), m, knobs=wide)]
    q, kv = (1, 4, 37, 40), (1, 2, 70, 40)
    return [*found, Case(k.online_attention, (q, kv, kv), f"{WIDE}+{all_of_it}")]


FP32_DRAWS = (singles, any_single, mixed)


def _fp32() -> list[Case]:
    """Tensors stored in FP32, alone and beside FP16."""
    k, v = kernels, movement
    cases = [Case(f, ((37, 29),), draw=any_single) for f in (k.neg, k.silu, k.rsqrt, k.log2, k.narrow, copy_parts)]
    cases += [Case(f, ((50, 41),) * 2, m, any_single) for f in (k.add, k.mul, k.div) for m in ("ship_3x2", "mini")]
    cases += [Case(everything, ((30, 31),) * 3, draw=any_single), Case(k.widen, ((9, 70),), draw=any_bits)]
    cases += [Case(mixed_parts, ((40, 7), (40, 7)), m, singles) for m in ("ship_3x2", "singlemesh_2x2")]
    cases += [Case(mixed_parts, ((2, 9), (2, 9)), draw=any_single), Case(k.add, ((33, 1), (33, 1)), draw=singles)]
    cases += [Case(k.softmax, (s,), draw=singles) for s in [(7, 5), (6, 128), (5, 1000), (2, 9000)]]
    cases += [Case(k.row_sum, (s,), draw=singles) for s in [(10, 100), (2, 9000)]]
    for s in [(10, 101), (3, 4001)]:
        cases += [Case(k.rmsnorm, (s, s[-1:]), draw=singles), Case(k.layernorm, (s, s[-1:], s[-1:]), "mini", mixed)]
    cases += [Case(f, ((21, 51), (51,)), draw=mixed) for f in (k.add_row, k.mul_row)]
    cases += [Case(two_reductions, (s,), draw=singles) for s in [(8, 70), (3, 6000)]]
    cases += [Case(two_outputs, ((11, 37),), draw=any_single), Case(k.col_sum, ((2, 50, 21),), draw=singles)]
    cases += [Case(through_fp32, ((2, 9, 50),), m) for m in ("ship_3x2", "mini")]
    cases += [
        Case(wide_columns, ((9, 21), (9, 40)), draw=mixed),
        Case(wide_columns, ((9, 33), (9, 47)), draw=any_single),
    ]
    knobs: dict[str, object] = {"start": 6, "step": -2, "count": 4}
    cases += [Case(v.slice_rows, ((3, 7, 2, 33),), draw=any_single, knobs=knobs)]
    cases += [Case(v.slice_columns, ((3, 500),), draw=any_single, knobs={"start": s, "count": 290}) for s in (7, 16)]
    cases += [Case(v.concat3, ((2, 3, 20), (2, 1, 20), (2, 40, 20)), draw=any_single)]
    return [
        *cases,
        Case(k.matmul, ((20, 40), (30, 40)), draw=singles),
        Case(k.linear, ((9, 33), (20, 33), (20,)), draw=mixed),
    ]


def machine_of(name: str) -> Machine:
    """A preset, with the features named behind it: "mini+r2_vc_quant"."""
    preset, *features = name.split("+")
    return load(preset).with_(name=name, features=dict.fromkeys(features, True)) if features else load(preset)


def plan_of(case: Case) -> Plan:
    """The compiled plan of a case, with no value on the device yet."""
    stored = tuple(element_of(a.dtype) for a in case.inputs()) if case.draw in FP32_DRAWS else ()
    shapes, hints = list(case.shapes), (None,) * len(case.shapes)
    return case.kernel._plan(machine_of(case.machine), shapes, hints, case.knobs, stored=stored)


CORPUS = [
    *_products(),
    *_elementwise(),
    *_rows(),
    *_language(),
    *_library(),
    *_movement(),
    *_revision2(),
    *_clusters2(),
    *_fp32(),
]
