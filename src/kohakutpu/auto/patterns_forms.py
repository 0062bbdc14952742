"""What the kernels and functions of the library compute, as expressions of the graph, in the library's own formulas.

Decides which statements a call stands for: a recorder writes them down, and substitution finds them again. It must not
know kernels' tiles, stages or byte orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.graph import build as g
from kohakuaccel.graph.build import Tensor as Value
from kohakuaccel.graph.build.core import axes_of
from kohakuaccel.graph.expr import Expr, Iota, op
from kohakuaccel.graph.index import Index, Range
from kohakuaccel.numerics import FP16, INT32
from kohakutpu.kernels.activations import GELU_CUBIC, GELU_LINEAR, LOG2_E

LOWEST = -65504.0
Form = Callable[..., Any]


# elementwise


def pointwise(name: str) -> Form:
    """An operation of the closed set, elementwise."""
    return lambda x: g.unary(name, x)


def _silu(x: Value) -> Value:
    return g.pointwise(lambda a: op("mul", a, op("recip", op("add", op("exp2", op("mul", a, -LOG2_E)), 1.0))), x)


def _gelu(x: Value) -> Value:
    """x * sigmoid(2 u): the library's spelling of the tanh form, which does not cancel for negative x."""

    def body(a: Expr) -> Expr:
        inner = op("mul", a, op("fma", op("mul", a, a), GELU_CUBIC, GELU_LINEAR))
        return op("mul", a, op("recip", op("add", op("exp2", inner), 1.0)))

    return g.pointwise(body, x, name="gelu")


ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "none": lambda x: x,
    "relu": g.relu,
    "silu": _silu,
    "gelu": _gelu,
    "sigmoid": g.sigmoid,
}

UNARY: dict[str, Form] = {
    **{name: pointwise(name) for name in ("neg", "abs", "exp2", "log2", "sqrt", "rsqrt", "recip")},
    "exp": g.exp,
    "log": g.log,
    **{name: ACTIVATIONS[name] for name in ("relu", "sigmoid", "silu", "gelu")},
}

BINARY: dict[str, Form] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "maximum": g.maximum,
    "minimum": g.minimum,
}

SCALAR: dict[str, Form] = {
    "add_scalar": lambda x, value=0.0: x + value,
    "rsub_scalar": lambda x, value=0.0: value - x,
    "mul_scalar": lambda x, value=1.0: x * value,
    "rdiv_scalar": lambda x, value=1.0: value / x,
    "maximum_scalar": lambda x, value=0.0: g.maximum(x, value),
    "minimum_scalar": lambda x, value=0.0: g.minimum(x, value),
    "affine": lambda x, scale=1.0, offset=0.0: g.pointwise(lambda a: op("fma", a, scale, offset), x),
}


# rows


def softmax(x: Value, axis: int = -1, scale: float = 1.0) -> Value:
    """Of scale * x along an axis."""
    return g.softmax(x if scale == 1.0 else x * scale, axis)


def log_softmax(x: Value, scale: float = 1.0) -> Value:
    """Of scale * x along the last axis."""
    return g.log_softmax(x if scale == 1.0 else x * scale)


def _square(x: Value) -> Value:
    return g.pointwise(lambda a: op("mul", a, a), x, name="squares")


FOLDS: dict[str, Form] = {"sum": g.sum_, "max": g.max_, "min": g.min_, "mean": g.mean}


def reduced(name: str, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
    """sum, max, min or mean over axes."""
    return FOLDS[name](x, tuple(axes), keepdims)


def _folded(name: str, axis: int | None) -> Form:
    if axis is None:
        return lambda x: g.reshape(reduced(name, x, range(x.ndim)), (1,))
    return lambda x: reduced(name, x, (axis,))


def group_norm(
    x: Value,
    w: Value | None = None,
    b: Value | None = None,
    *,
    groups: int,
    eps: float = 1e-5,
    activation: str = "none",
) -> Value:
    """Over groups of channels (axis 1)."""
    return ACTIVATIONS[activation](g.groupnorm(x, groups, w, b, eps))


# products


def matmul(x: Value, y: Value) -> Value:
    """The last axis of both contracted, other leading axes broadcast; a vector's row axis is absent from the result."""
    depth = Range("k", x.shape[-1])
    lead = axes_of(np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), "b")
    m, n = axes_of(x.shape[-2:-1], "m"), axes_of(y.shape[-2:-1], "n")

    def element(t: Value, own: tuple[Range, ...]) -> Expr:
        outer = lead[len(lead) - max(t.ndim - 2, 0) :]
        return t.at(*(0 if size == 1 else r for size, r in zip(t.shape[:-2], outer)), *own, depth)

    body = op("mul", element(x, m), element(y, n))
    dtype = g.result_dtype([x.dtype, y.dtype])
    return x.builder.statement(dtype, (*lead, *m, *n), body, ("sum", [depth]), "product")


def linear(
    x: Value,
    w: Value,
    bias: Value | None = None,
    gate: Value | None = None,
    residual: Value | None = None,
    *,
    activation: str = "none",
) -> Value:
    """activation(x @ w.T + bias) * gate + residual."""
    y = ACTIVATIONS[activation](g.linear(x, w, bias))
    y = y if gate is None else y * gate
    return y if residual is None else y + residual


def mlp(
    x: Value,
    up: Value,
    down: Value,
    up_bias: Value | None = None,
    down_bias: Value | None = None,
    residual: Value | None = None,
    *,
    activation: str = "gelu",
) -> Value:
    """Two layers."""
    hidden = linear(x, up, up_bias, activation=activation)
    return linear(hidden, down, down_bias, None, residual)


def gated_mlp(
    x: Value, gate: Value, up: Value, down: Value, residual: Value | None = None, *, activation: str = "silu"
) -> Value:
    """(activation(x @ gate.T) * (x @ up.T)) @ down.T + residual."""
    hidden = ACTIVATIONS[activation](g.linear(x, gate)) * g.linear(x, up)
    return linear(hidden, down, None, None, residual)


def _split_heads(x: Value, w: Value) -> Value:
    b, h = Range("b", x.shape[0]), Range("h", w.shape[0])
    m, n, k = Range("m", x.shape[1]), Range("n", w.shape[1]), Range("k", x.shape[2])
    body = op("mul", x.at(b, m, k), w.at(h, n, k))
    return x.builder.statement(g.result_dtype([x.dtype, w.dtype]), (b, h, m, n), body, ("sum", [k]), "heads")


def _merge_heads(o: Value, w: Value, residual: Value | None = None, bias: Value | None = None) -> Value:
    b, m, n = Range("b", o.shape[0]), Range("m", o.shape[2]), Range("n", w.shape[1])
    h, k = Range("h", o.shape[1]), Range("k", o.shape[3])
    body = op("mul", o.at(b, h, m, k), w.at(h, n, k))
    y = o.builder.statement(g.result_dtype([o.dtype, w.dtype]), (b, m, n), body, ("sum", [h, k]), "merged")
    y = y if bias is None else y + bias
    return y if residual is None else y + residual


def attention(
    q: Value,
    k: Value,
    v: Value,
    keep: Value | None = None,
    bias: Value | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Value:
    """softmax(scale * q k^T + bias) v over the keys a row may see, heads of k and v shared by equal runs of q's.

    q (B, H, Lq, D), k (B, G, Lk, D), v (B, G, Lk, P). A key counts where keep (B, Lk) is not 0; causal: row i sees keys
    up to i + Lk - Lq. With either, a row that sees no key is 0, as in the library.
    """
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    (count, heads, rows, width), shared, keys = q.shape, q.shape[1] // k.shape[1], k.shape[2]
    b, h, i, j = Range("b", count), Range("h", heads), Range("i", rows), Range("j", keys)
    d, e = Range("d", width), Range("e", v.shape[3])
    body: Expr = op("mul", q.at(b, h, i, d), k.at(b, h // shared, j, d))
    s = q.builder.statement(FP16, (b, h, i, j), body, ("sum", [d]), "scores") * factor
    if bias is not None:
        s = s + bias
    here = s.at(b, h, i, j)
    body = here
    if causal:
        hidden = op("less", Iota(i + (keys - rows)), Iota(Index.of(j)))
        body = op("where", hidden, -math.inf, body)
    if keep is not None:
        body = op("where", op("equal", keep.at(b, j), 0.0), -math.inf, body)
    if not masked(causal, keep):
        p = g.softmax(s)
    else:
        s = q.builder.statement(FP16, (b, h, i, j), body, name="masked")
        top = g.maximum(g.max_(s, -1, keep=True), LOWEST)
        p = g.pointwise(lambda x, t: op("exp2", op("mul", op("sub", x, t), LOG2_E)), s, top, name="weights")
        p = p / g.maximum(g.sum_(p, -1, keep=True), 1.0)
    body = op("mul", p.at(b, h, i, j), v.at(b, h // shared, j, e))
    return q.builder.statement(FP16, (b, h, i, e), body, ("sum", [j]), "mixed")


def masked(causal: bool, keep: object) -> bool:
    """Whether a row may see no key at all."""
    return causal or keep is not None


def conv2d(
    x: Value,
    w: Value,
    bias: Value | None = None,
    residual: Value | None = None,
    *,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0)),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    activation: str = "none",
) -> Value:
    """Channels last: x (B, H, W, C), w (N, kh, kw, C / groups)."""
    image, weight = g.permute(x, (0, 3, 1, 2)), g.permute(w, (0, 3, 1, 2))
    even = all(a == b for a, b in padding)
    if not even:
        image = g.pad(image, [(0, 0), (0, 0), *padding])
    pads = (padding[0][0], padding[1][0]) if even else 0
    y = g.permute(g.conv2d(image, weight, None, stride, pads, dilation, groups), (0, 2, 3, 1))
    y = ACTIVATIONS[activation](y if bias is None else y + bias)
    return y if residual is None else y + residual


def rotate(x: Value, cos: Value, sin: Value) -> Value:
    """Halves (..., M, 2, P) turned: y0 = x0 cos - x1 sin, y1 = x1 cos + x0 sin."""
    ranges = axes_of(x.shape)
    *lead, m, h, p = ranges
    sign = x.builder.constant([-1.0, 1.0], FP16, "sign")
    turned = op("mul", op("mul", x.at(*lead, m, 1 - h, p), sin.at(m, p)), sign.at(h))
    body = op("add", op("mul", x.at(*lead, m, h, p), cos.at(m, p)), turned)
    return x.builder.statement(g.result_dtype([x.dtype, cos.dtype]), ranges, body, name="rotated")


# movement


def concat(*values: Value, axis: int) -> Value:
    """One behind another."""
    return g.concat(values, axis)


def slice_(x: Value, *, axis: int, places: range) -> Value:
    """Elements at an arithmetic progression of places."""
    ranges = axes_of([*x.shape[:axis], len(places), *x.shape[axis + 1 :]])
    step = places.step if len(places) > 1 else 0
    body = x.at(*(r * step + places[0] if n == axis else r for n, r in enumerate(ranges)))
    return x.builder.statement(x.dtype, ranges, body, name="sliced")


def gather(x: Value, *, axis: int, places: NDArray[np.int64]) -> Value:
    """x with one axis replaced by those of known places."""
    return g.take(x, x.builder.constant(places, INT32, "places"), axis)


def repeat(x: Value, *, axis: int, times: int) -> Value:
    """Every place of an axis `times` times in a row."""
    return _along(x, axis, times, lambda r: r // times)


def tile(x: Value, *, axis: int, times: int) -> Value:
    """The whole axis `times` times in a row."""
    return _along(x, axis, times, lambda r: r % x.shape[axis])


def _along(x: Value, axis: int, times: int, place: Callable[[Range], Index]) -> Value:
    ranges = axes_of([*x.shape[:axis], times * x.shape[axis], *x.shape[axis + 1 :]])
    body = x.at(*(place(r) if n == axis else r for n, r in enumerate(ranges)))
    return x.builder.statement(x.dtype, ranges, body, name="repeated")


OPERATORS: dict[str, Form] = {
    **UNARY,
    **BINARY,
    **SCALAR,
    "matmul": matmul,
    "softmax": softmax,
    "rmsnorm": g.rmsnorm,
    "layernorm": g.layernorm,
    **{n: (lambda x, axes, keepdims, n=n: reduced(n, x, axes, keepdims)) for n in FOLDS},
    "concat": concat,
    "slice": slice_,
    "gather": gather,
    "repeat": repeat,
    "tile": tile,
    "conv2d": conv2d,
    "group_norm": group_norm,
}
"""By the name under which the tensor level and the library ask for them."""


@dataclass(frozen=True)
class Known:
    """A kernel's expression. knobs: those that are part of what it computes, by their defaults in the kernel; free:
    further ones, which the compiler chooses where they are left out."""

    form: Form
    knobs: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()


def _known(names: Mapping[str, Form], *knobs: str) -> dict[str, Known]:
    return {name: Known(form, frozenset(knobs)) for name, form in names.items()}


KERNELS: dict[str, Known] = {
    **_known(UNARY | BINARY),
    **_known({name: form for name, form in SCALAR.items() if name != "affine"}, "value"),
    **_known({"affine": SCALAR["affine"]}, "scale", "offset"),
    **_known({"softmax": softmax, "log_softmax": log_softmax}, "scale"),
    **_known({"rmsnorm": g.rmsnorm, "layernorm": g.layernorm}, "eps"),
    **_known({f"{name}_row": BINARY[name] for name in ("add", "sub", "mul", "div")}),
    **_known({f"row_{name}": _folded(name, -1) for name in FOLDS}),
    **_known({f"col_{name}": _folded(name, -2) for name in FOLDS}),
    **_known({f"full_{name}": _folded(name, None) for name in FOLDS}),
    **_known({"row_sumsq": lambda x: reduced("sum", _square(x), (-1,))}),
    **_known({"row_mean_square": lambda x: reduced("mean", _square(x), (-1,))}),
    **_known({"linear": linear, "mlp": mlp, "gated_mlp": gated_mlp}, "activation"),
    **_known({"matmul": matmul, "batched_matmul": matmul, "split_heads": _split_heads, "rotate": rotate}),
    "merge_heads": Known(_merge_heads),
    "flash_attention": Known(attention, frozenset({"causal"}), frozenset({"scale"})),
}
"""By the kernel's function. With any other knob a call asks for one kernel in one form, and stays a call."""
