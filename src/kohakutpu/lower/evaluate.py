"""What a schedule computes, in the machine's formats, on whole arrays (the L2 run).

Written with numpy over float64, apart from the unit models, so that the equality of levels means something.
Sources: datasheet 2.2-2.9. A value in E8M15 is held as the float64 that it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from kohakutpu.lower.body import Body

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
CHUNK = 128  # elements of the longest vector (datasheet 1.3 `vlmax`)
LANES = 16

_TINY = 2.0**-126
_HUGE = 2.0**128


def _rne(x: F64, bits: int) -> F64:
    """Nearest-even to `bits` significant bits, unbounded exponent; 0, Inf and NaN pass."""
    drop = 53 - bits
    raw = x.view(np.int64)
    kept = (raw + ((1 << (drop - 1)) - 1 + ((raw >> drop) & 1))) & ~((1 << drop) - 1)
    finite = np.isfinite(x)
    return np.where(finite, kept, raw).view(np.float64)


def round_e8m15(x: F64) -> F64:
    """rndE of datasheet 2.6: RNE to 16 bits, then overflow to Inf and tiny results to signed zero."""
    r = _rne(np.ascontiguousarray(x, np.float64), 16)
    r = np.where(np.abs(r) >= _HUGE, np.copysign(np.inf, r), r)
    return np.where(np.abs(r) < _TINY, np.copysign(0.0, r), r)


def _fused(a: F64, b: F64, c: F64) -> F64:
    """a*b + c with one rounding to 16 bits: the product is exact, the sum is rounded to odd before the last step."""
    p = a * b
    s = p + c
    back = s - p
    error = (p - (s - back)) + (c - back)
    raw = s.view(np.int64)
    toward = np.where((error > 0) == (s > 0), 1, -1)
    odd = np.where((error != 0) & np.isfinite(s) & np.isfinite(error) & ((raw & 1) == 0), raw + toward, raw)
    return round_e8m15(odd.view(np.float64))


@lru_cache(maxsize=4)
def _segments(name: str) -> tuple[I64, I64, I64]:
    """Coefficients C0, C1, C2 of a seed's table (datasheet 2.9)."""

    def curve(i: int, t: float) -> float:
        match name:
            case "exp2":
                return 2.0 ** ((i + t) / 32) - 1
            case "log2":
                return float(np.log2(1 + (i + t) / 32))
            case "inv":
                return 1 / (1 + (i + t) / 32)
            case _:
                return 1 / float(np.sqrt((2 if i >= 32 else 1) * (1 + (i % 32 + t) / 32)))

    root = float(np.sqrt(3.0)) / 4
    x0, x1, x2 = 0.5 + root, 0.5, 0.5 - root
    rows: list[tuple[int, int, int]] = []
    for i in range(64 if name == "rsqrt" else 32):
        y0, y1, y2 = curve(i, x0), curve(i, x1), curve(i, x2)
        d01, d12 = (y0 - y1) / (x0 - x1), (y1 - y2) / (x1 - x2)
        c2 = (d01 - d12) / (x0 - x2)
        c1 = d01 - c2 * (x0 + x1)
        c0 = y0 - d01 * x0 + c2 * x0 * x1
        rows.append((round(c0 * 2**20), round(c1 * 2**24), round(c2 * 2**28)))
    table = np.array(rows, np.int64)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


def _interpolate(name: str, index: I64, u: I64, forced: int) -> I64:
    c0, c1, c2 = _segments(name)
    h = (c2[index] * u + (c1[index] << 16) + (1 << 15)) >> 16
    f = (h * u + (c0[index] << 16) + (1 << 15)) >> 16
    exact = (u == 0) & (index % 32 == 0) & (index < 32)
    return np.where(exact, forced, f)


def _parts(x: F64) -> tuple[I64, I64]:
    """Exponent (power of two) and 15-bit mantissa field of finite nonzero E8M15 values; 1.0 elsewhere."""
    safe = np.where(np.isfinite(x) & (x != 0), np.abs(x), 1.0)
    mantissa, exponent = np.frexp(safe)
    return exponent.astype(np.int64) - 1, (mantissa * 65536).astype(np.int64) - 32768


def exp2(x: F64) -> F64:
    """The machine's 2**x."""
    big = np.abs(x) >= 128
    safe = np.where(np.isfinite(x) & ~big, x, 0.0)
    r = np.floor(np.abs(safe) * 2.0**17 + 0.5).astype(np.int64)
    r = np.where(safe < 0, -r, r)
    k, f = r >> 17, r & 0x1FFFF
    y = np.ldexp(1.0 + _interpolate("exp2", f >> 12, f & 4095, 0) / 2.0**20, k)
    y = np.where(big, np.where(x > 0, np.inf, 0.0), y)
    return np.where(np.isnan(x), np.nan, round_e8m15(y))


def log2(x: F64) -> F64:
    """The machine's log2."""
    e, m = _parts(x)
    y = (e * (1 << 20) + _interpolate("log2", m >> 10, (m & 1023) * 4, 0)) / 2.0**20
    y = np.where(x == 0, -np.inf, np.where(x < 0, np.nan, np.where(np.isposinf(x), np.inf, y)))
    return np.where(np.isnan(x), np.nan, round_e8m15(y))


def recip(x: F64) -> F64:
    """The machine's 1/x."""
    e, m = _parts(x)
    y = np.copysign(np.ldexp(_interpolate("inv", m >> 10, (m & 1023) * 4, 1 << 20) / 2.0**20, -e), x)
    y = np.where(x == 0, np.copysign(np.inf, x), np.where(np.isinf(x), np.copysign(0.0, x), y))
    return np.where(np.isnan(x), np.nan, round_e8m15(y))


def rsqrt(x: F64) -> F64:
    """The machine's 1/sqrt(x); both zeros give +Inf."""
    e, m = _parts(x)
    odd, half = e % 2, e // 2
    y = np.ldexp(_interpolate("rsqrt", 32 * odd + (m >> 10), (m & 1023) * 4, 1 << 20) / 2.0**20, -half)
    y = np.where(x == 0, np.inf, np.where(x < 0, np.nan, np.where(np.isposinf(x), 0.0, y)))
    return np.where(np.isnan(x), np.nan, round_e8m15(y))


def _one_if(condition: NDArray[np.bool_]) -> F64:
    return np.where(condition, 1.0, 0.0)


OPS: dict[str, Callable[..., F64]] = {
    "neg": lambda a: -a,
    "abs": np.abs,
    "add": lambda a, c: round_e8m15(a + c),
    "sub": lambda a, c: round_e8m15(a - c),
    "mul": lambda a, b: round_e8m15(a * b),
    "fma": _fused,
    "max": lambda a, b: np.where(a < b, b, a),
    "min": lambda a, b: np.where(a > b, b, a),
    "select": lambda c, a, b: np.where((c != 0) | np.isnan(c), a, b),
    "less": lambda a, b: _one_if(a < b),
    "greater": lambda a, b: _one_if(a > b),
    "equal": lambda a, b: _one_if(a == b),
    "exp2": exp2,
    "log2": log2,
    "recip": recip,
    "rsqrt": rsqrt,
}


def fold(op: str, numbers: Sequence[float]) -> float:
    """One operation on constants, each rounded to E8M15 first, as the core would compute it."""
    with np.errstate(all="ignore"):
        args = [round_e8m15(np.array([x], np.float64)) for x in numbers]
        return float(OPS[op](*args)[0])


LEAVES = ("input", "shared", "number")  # an operand's elements; one row for all rows; one number per row
_REDUCE_OP = {"sum": "add", "max": "max", "min": "min"}
_IDENTITY = {"sum": 0.0, "max": -np.inf, "min": np.inf}


def reduce_rows(kind: str, x: F64) -> F64:
    """float64[rows, cols] -> float64[rows, 1]: lane-wise over chunks of 128, then the tree of datasheet 2.7."""
    op = OPS[_REDUCE_OP[kind]]
    rows, cols = x.shape
    lanes = min(CHUNK, LANES * -(-cols // LANES))
    acc = np.full((rows, lanes), _IDENTITY[kind])
    acc[:, : min(cols, lanes)] = x[:, : min(cols, lanes)]
    for start in range(CHUNK, cols, CHUNK):
        part = x[:, start : start + CHUNK]
        n = part.shape[1]
        acc[:, :n] = op(acc[:, :n].copy(), part)
    partial = np.full((rows, LANES), _IDENTITY[kind])
    for beat in range(lanes // LANES):
        value = _tree(op, acc[:, beat * LANES : (beat + 1) * LANES])
        partial[:, beat] = op(value, partial[:, beat].copy())
    return _tree(op, partial)[:, None]


def _tree(op: Callable[..., F64], v: F64) -> F64:
    while v.shape[1] > 1:
        v = op(np.ascontiguousarray(v[:, 0::2]), np.ascontiguousarray(v[:, 1::2]))
    return v[:, 0]


def run_body(body: Body, operands: Sequence[F64], cols: int | None = None) -> F64:
    """Evaluate a body. operands: float64 arrays by operand number, [rows, cols] (shared ones [1, cols], one number per
    row [rows, 1]); cols: the row length, where reductions need it."""
    results: dict[int, F64] = {}
    with np.errstate(all="ignore"):
        for n in body.live():
            node = body.nodes[n]
            if node.op in LEAVES:
                results[n] = operands[node.args[0]]
            elif node.op == "const":
                results[n] = round_e8m15(np.array([[node.number]]))
            elif node.op == "reduce":
                rows = max(o.shape[0] for o in operands)
                width = cols or max(o.shape[1] for o in operands)
                results[n] = reduce_rows(node.text, np.broadcast_to(results[node.args[0]], (rows, width)))
            else:
                args = np.broadcast_arrays(*(results[a] for a in node.args))
                results[n] = OPS[node.op](*(np.ascontiguousarray(a) for a in args))
    return results[body.result]


def load(values: NDArray[np.floating[Any]]) -> F64:
    """Stored values as a core reads them (datasheet 2.8): FP16 exactly; FP32 rounded to E8M15, tiny ones to zero."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = values.astype(np.float64)
    if values.dtype != np.float32:
        return wide
    return round_e8m15(np.where(np.abs(wide) < _TINY, np.copysign(0.0, wide), wide))


def store(x: F64, dtype: np.dtype[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """E8M15 as it is stored: FP16 rounds and saturates (`store_fp16`), FP32 holds every value and one NaN."""
    if dtype != np.float32:
        return store_fp16(x)
    with np.errstate(invalid="ignore"):
        single = x.astype(np.float32)
    return np.where(np.isnan(x), np.uint32(0x7FC00000).view(np.float32), single)


def store_fp16(x: F64) -> NDArray[np.float16]:
    """E8M15 -> FP16 of datasheet 2.8: RNE, finite overflow saturates, NaN becomes 0x7E00 with its sign dropped."""
    with np.errstate(all="ignore"):
        half = x.astype(np.float16)
    half = np.where(np.isfinite(x) & np.isinf(half), np.copysign(np.float16(65504), half), half)
    return np.where(np.isnan(x), np.uint16(0x7E00).view(np.float16), half).astype(np.float16)


def quantise(x: NDArray[np.float16]) -> tuple[F64, F64]:
    """float16[rows, K] (K a multiple of 32) -> (q float64[rows, K], block scale float64[rows, K/32]): datasheet 2.2."""
    rows, k = x.shape
    bits = x.view(np.uint16).astype(np.int64).reshape(rows, k // 32, 32)
    e, f = (bits >> 10) & 31, bits & 1023
    sig, exponent = np.where(e == 0, f, 1024 + f), np.maximum(e, 1)
    peak = np.argmax(bits & 0x7FFF, axis=2)[..., None]
    p = np.take_along_axis(sig, peak, 2)[..., 0]
    ep = np.take_along_axis(exponent, peak, 2)[..., 0]
    empty = p == 0
    p = np.where(empty, 1024, p)
    for _ in range(10):
        low = p < 1024
        p, ep = np.where(low, p * 2, p), np.where(low, ep - 1, ep)
    c = -(-p // 126)
    m8 = np.where(c <= 15, c, np.where(c == 16, 8, 9))
    es = np.clip(np.where(c <= 15, ep - 21, ep - 20), -20, 11)
    reciprocal = np.array([4096, 3641, 3277, 2979, 2731, 2520, 2341, 2185])[m8 - 8][..., None]
    shift = 37 + es[..., None] - exponent
    product = sig * reciprocal
    far = np.minimum(shift, 62)
    q = np.minimum(63, (product >> far) + ((product >> (far - 1)) & 1))
    q = np.where(empty[..., None], 0, np.where(bits >> 15 == 1, -q, q)).astype(np.float64)
    m8, es = np.where(empty, 8, m8), np.where(empty, 0, es)
    return q.reshape(rows, k), np.ldexp(m8 / 8.0, es)


def contract_terms(terms: Sequence[tuple[NDArray[np.float16], NDArray[np.float16]]]) -> NDArray[np.float16]:
    """Sum of a[M, K] @ b[N, K].T on a cluster as it emits it: `accumulate` rounded to FP16 (datasheet 2.5)."""
    return store_fp16(accumulate(terms))


def accumulate(terms: Sequence[tuple[NDArray[np.float16], NDArray[np.float16]]]) -> F64:
    """Sum of a[M, K] @ b[N, K].T in a cluster's accumulators: MXFP7 blocks, FP22 in order (datasheet 2.2-2.4).

    Every K is a multiple of 32.
    """
    total: F64 | None = None
    for a, b in terms:
        qa, sa = quantise(a)
        qb, sb = quantise(b)
        for block in range(a.shape[1] // 32):
            part = slice(32 * block, 32 * block + 32)
            dots = qa[:, part] @ qb[:, part].T
            partial = _rne(dots * (sa[:, block, None] * sb[None, :, block]), 15)
            total = partial if total is None else _rne(total + partial, 15)
            total = total + 0.0  # FP22 has one zero
            over = np.abs(total) >= 2.0**64
            total = np.where(over, np.copysign((2 - 2.0**-14) * 2.0**64, total), total)
    assert total is not None
    return total
