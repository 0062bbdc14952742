"""Graphs of every kind that frontends make, small: which instructions do their plans hold?"""

from __future__ import annotations

from functools import cache

from kohakuaccel import graph
from tinytpu.isa import SXU, VPU
from tinytpu.isa.codes import Column
from tinytpu.lower import compile_graph
from tinytpu.lower.listing import listed

WORDS = (
    "a[i] + b[i]", "a[i] - b[i]", "a[i] * b[i]", "a[i] & b[i]", "a[i] | b[i]", "xor(a[i], b[i])", "max(a[i], b[i])",
    "min(a[i], b[i])", "max(a[i], cast(0, S32))", "quot(a[i], b[i])", "rem(a[i], b[i])", "wdiv(a[i], b[i])",
    "wmod(a[i], b[i])", "neg(a[i])", "abs(a[i])", "fma(a[i], b[i], a[i])", "shl(a[i], b[i])", "shr(a[i], b[i])",
    "shr(a[i], cast(3, S32))", "a[i] + cast(5, S32)", "a[i] * cast(-1, S32)", "xor(a[i], cast(-1, S32))",
    "where(a[i] < b[i], a[i], b[i])", "where(a[i] == b[i], cast(0, S32), b[i])", "cast(cast(a[i], S8), S32)",
    "where(a[i] < cast(0, S32), cast(-1, S32), where(a[i] == cast(0, S32), cast(0, S32), cast(1, S32)))",
    "a[i] + cast(iota(i), S32)", "a[15 - i]", "cast(cast(a[i], FP32) * 0.5, S32)",
)  # fmt: skip
REALS = (
    "a[i] + b[i]", "a[i] - b[i]", "a[i] * b[i]", "a[i] / b[i]", "max(a[i], b[i])", "min(a[i], b[i])", "neg(a[i])",
    "abs(a[i])", "recip(a[i])", "exp2(a[i])", "log2(a[i])", "sqrt(a[i])", "rsqrt(a[i])", "sin(a[i])", "floor(a[i])",
    "cut(a[i])", "where(a[i] < b[i], a[i], b[i])", "cast(a[i] < b[i], FP32)", "cast(a[i] == b[i], FP32)",
)  # fmt: skip
NARROW = ("a[i] + b[i]", "a[i] * b[i]", "max(a[i], b[i])", "min(a[i], b[i])", "max(a[i], cast(0, {0}))", "neg(a[i])",
          "abs(a[i])", "shr(a[i], cast(1, {0}))", "wdiv(a[i], b[i])")  # fmt: skip


def _maps(dtype: str, bodies: tuple[str, ...], n: int) -> list[str]:
    head = f"input a: {dtype}[{n}]\ninput b: {dtype}[{n}]\n"
    return [f"{head}o: {dtype}[i<{n}] = {body.format(dtype)}\noutput o" for body in bodies]


def _folds(dtype: str) -> list[str]:
    found: list[str] = []
    for op in ("sum", "max", "min", "prod"):
        for rows, columns, body in (
            (1, 16, "a[i, k]"),
            (1, 70, "a[i, k]"),
            (8, 8, "a[i, k]"),
            (8, 8, "a[k, i]"),
            (4, 36, "a[i, k]"),
        ):
            found.append(
                f"input a: {dtype}[{rows},{columns}]\no: {dtype}[i<{rows}] = {op}[k<{columns}] {body}\noutput o"
            )
    return found


def _products() -> list[str]:
    found: list[str] = []
    finishes = ("p[i, j]", "max(p[i, j] + b[j], cast(0, S32))", "p[i, j] + r[i, j]", "p[i, j] * r[i, j]",
                "max(p[i, j], cast(0, S32))", "shr(p[i, j], cast(7, S32))",
                "max(min(shr(p[i, j], cast(7, S32)), cast(127, S32)), cast(-128, S32))")  # fmt: skip
    for m, k, n in ((1, 4, 4), (4, 4, 4), (4, 8, 4), (8, 8, 8), (5, 7, 6), (16, 16, 16)):
        head = f"input a: S8[{m},{k}]\ninput w: S8[{k},{n}]\ninput b: S32[{n}]\ninput r: S32[{m},{n}]\n"
        head += f"p: S32[i<{m},j<{n}] = sum[q<{k}] cast(a[i, q], S32) * cast(w[q, j], S32)\n"
        found += [f"{head}o: S32[i<{m},j<{n}] = {body}\noutput o" for body in finishes]
        found.append(f"{head}o: S32[i<{m}] = sum[j<{n}] p[i, j]\noutput o")
    floats = "input a: FP32[4,8]\ninput w: FP32[8,4]\no: FP32[i<4,j<4] = sum[q<8] a[i, q] * w[q, j]\noutput o"
    return [*found, floats]


SOFTMAX = """
input x: FP32[5,37]
m: FP32[i<5] = max[k<37] x[i, k]
s: FP32[i<5] = sum[k<37] exp2((x[i, k] - m[i]) * 1.4426950408889634)
o: FP32[i<5,j<37] = exp2((x[i, j] - m[i]) * 1.4426950408889634) / s[i]
output o
"""
BROADCASTS = """
input a: S32[8,8]
input r: S32[8]
input c: S32[8]
input s: S32[1]
x: S32[i<8,j<8] = a[i, j] + r[j]
y: S32[i<8,j<8] = a[i, j] * c[i]
z: S32[i<8,j<8] = a[i, j] - s[0]
output x
output y
output z
"""
LONG = (
    "input a: S64[9]\ninput b: S64[9]\no: S64[i<9] = a[i] * b[i] + a[i]\np: BOOL[i<9] = a[i] < b[i]\noutput o\noutput p"
)
RANDOM = "input a: U64[9]\ninput b: U64[9]\no: U64[i<9] = threefry(a[i], b[i])\noutput o"

OUTER = """
input a: S8[6,1]
input w: S8[1,7]
input b: S32[7]
p: S32[i<6,j<7] = sum[k<1] cast(a[i, k], S32) * cast(w[k, j], S32)
o: S32[i<6,j<7] = max(p[i, j] + b[j], cast(0, S32))
output o
"""
LAYERS = """
input a: S8[4,4]
input w: S8[4,4]
input v: S8[4,4]
p: S32[i<4,j<4] = sum[k<4] cast(a[i, k], S32) * cast(w[k, j], S32)
q: S8[i<4,j<4] = cast(min(max(SHIFTED, cast(-128, S64)), cast(127, S64)), S8)
o: S32[i<4,j<4] = sum[k<4] cast(q[i, k], S32) * cast(v[k, j], S32)
output o
""".replace("SHIFTED", "shr(cast(p[i, j], S64) * cast(37, S64) + cast(512, S64), cast(10, S64))")
ROWS = [
    "input a: S8[1,4]\ninput w: S8[4,4]\ninput b: S32[4]\n"
    "p: S32[i<1,j<4] = sum[k<4] cast(a[i, k], S32) * cast(w[k, j], S32)\n"
    f"o: S32[i<1,j<4] = {body}\noutput o"
    for body in ("p[i, j] + b[j]", "p[i, j] - b[j]", "p[i, j] * b[j]", "max(p[i, j], b[j])", "min(p[i, j], b[j])")
]
POWER = f"input a: S32[20]\no: S32[i<20] = {' * '.join(['a[i]'] * 40)}\noutput o"
_WIDE = "cast(min(max(cast(a[i], {w}) {op} cast(b[i], {w}), cast({low}, {w})), cast({high}, {w})), {f})"
BYTES = (
    *(_WIDE.format(w="S16", f="S8", op=op, low=-128, high=127) for op in "+-"),
    "cast(min(abs(cast(a[i], S16) - cast(b[i], S16)), cast(127, S16)), S8)",
    "cast(min(neg(cast(a[i], S16)), cast(127, S16)), S8)",
    "cast(min(abs(cast(a[i], S16)), cast(127, S16)), S8)",
    "cast(shr(cast(a[i], S16) * cast(b[i], S16), cast(8, S16)), S8)",
    "where(a[i] < b[i], a[i], cast(0, S8))",
    "where(a[i] == b[i], a[i], cast(0, S8))",
)
"""Sums and distances that the graph itself clamps, high bytes of products, choices: of 8 bits, then of 32."""
CLAMPED = (
    *(_WIDE.format(w="S64", f="S32", op=op, low=-(1 << 31), high=(1 << 31) - 1) for op in "+-"),
    f"cast(min(abs(cast(a[i], S64) - cast(b[i], S64)), cast({(1 << 31) - 1}, S64)), S32)",
    "where(a[i] == cast(0, S32), cast(0, S32), where(a[i] < cast(0, S32), cast(-1, S32), cast(1, S32)))",
)
SIGNS = ("where(~(a[i] == 0.0), where(a[i] < 0.0, -1.0, 1.0), 0.0)",)
UNIT = tuple(
    "input a: S8[4,4]\ninput b: S8[4,4]\ninput x: FP32[16]\n"
    "p: S32[i<4,j<4] = sum[k<4] cast(a[i, k], S32) * cast(b[k, j], S32)\n"
    f"o: FP32[i<16] = {body}\noutput o\noutput p"
    for body in ("exp2(x[i])", "log2(x[i])", "sin(x[i])")
)
"""With the vector unit's own functions, in the background of a product."""

GRAPHS: tuple[str, ...] = (
    *_maps("S32", WORDS, 16), *_maps("S32", WORDS[:8], 100), *_maps("FP32", REALS, 16),
    *_maps("S8", NARROW, 64), *_maps("U8", NARROW[:5], 64), *_maps("U32", NARROW[:5], 16), *_maps("S16", NARROW, 16),
    *_maps("BOOL", ("a[i] & b[i]", "a[i] | b[i]", "~a[i]"), 16),
    *_folds("S32"), *_folds("FP32"), *_folds("S8"), *_folds("U32"), *_products(), SOFTMAX, BROADCASTS, LONG, RANDOM,
    OUTER, LAYERS, *ROWS, POWER, *_maps("S8", BYTES, 64), *_maps("S32", CLAMPED, 16), *_maps("FP32", SIGNS, 16),
)  # fmt: skip


@cache
def emitted() -> tuple[frozenset[SXU], frozenset[VPU]]:
    """Opcodes, and operations of the vector unit, found in the plans of the corpus."""
    opcodes: set[SXU] = set()
    operations: set[VPU] = set()
    fused = (SXU.VPU, SXU.VPU_BG, SXU.MXU_VPU_EPILOGUE)
    plans = [compile_graph(graph.parse(text)) for text in GRAPHS]
    plans += [compile_graph(graph.parse(text), functions="unit") for text in UNIT]
    for plan in plans:
        for step in plan.steps:
            for row in (row for one in listed(step) for row in one.program.rows.tolist()):
                opcodes.add(SXU(row[Column.OP]))
                if row[Column.OP] in fused:
                    operations.add(VPU(row[Column.VPU]))
    return frozenset(opcodes), frozenset(operations)
