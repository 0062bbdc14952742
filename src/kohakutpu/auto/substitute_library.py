"""The library's kernels as substitutions: which pattern each stands for, greater patterns first.

Decides nothing but this list, and which of it is used where nobody chooses: the kernels that are better than what the
scheduler writes. It must not know how matches are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod
from typing import Any

from kohakuaccel.graph import Graph, Statement
from kohakuaccel.graph import build as g
from kohakuaccel.graph.build import Tensor as Value
from kohakuaccel.graph.expr import Expr, Op, Read
from kohakutpu import kernels
from kohakutpu.auto import patterns_forms as forms
from kohakutpu.auto.patterns import Pattern
from kohakutpu.auto.substitute import Sizes, Substitution
from kohakutpu.kernels.attention import SCORES
from kohakutpu.lang import Kernel

DEPTH = 12
"""Statements that a proposal looks through from a root to the fold that tells the sizes."""


class _Named:
    """A kernel whose operands are passed by the names of its ports; some knobs fixed."""

    def __init__(self, kernel: Kernel, **fixed: object) -> None:
        self.kernel, self.fixed = kernel, fixed

    def __call__(self, **given: Any) -> Any:
        operands = [given.pop(name, None) for name in self.kernel.operands]
        return self.kernel(*operands, **self.fixed, **given)


# attention


def _attention(p: Pattern, *, causal: bool, keep: bool, bias: bool) -> Value:
    q = p.input("q", "B H Lq D")
    k, v = p.input("k", "B G Lk D"), p.input("v", "B G Lk P")
    kept = p.input("keep", "B Lk") if keep else None
    added = p.input("bias", "B H Lq Lk", stretched=True) if bias else None
    return forms.attention(q, k, v, kept, added, causal=causal, scale=p.number("scale", 1.0))


def _plain_attention(p: Pattern, *, causal: bool) -> Value:
    """The graph's own spelling, under any leading axes."""
    q, k, v = p.input("q", "... Lq D"), p.input("k", "... Lk D"), p.input("v", "... Lk P")
    return g.attention(q, k, v, p.number("scale", 1.0), causal)


def _any_lead(causal: bool, q: Any, k: Any, v: Any, scale: float) -> Any:
    q, k, v = (t.reshape(1, prod(t.shape[:-2]), *t.shape[-2:]) for t in (q, k, v))
    return kernels.flash_attention(q, k, v, causal=causal, scale=scale)


def _sees_keys(sizes: Sizes) -> bool:
    """Every row of a causal attention sees a key: one that sees none is 0 in the kernel, and no number in the graph."""
    return sizes["Lk"] >= sizes["Lq"]


def _attentions() -> Iterator[Substitution]:
    for causal, keep, bias in product((False, True), repeat=3):
        words = ["flash_attention", *(["causal"] * causal), *(["keep"] * keep), *(["bias"] * bias)]
        pattern = partial(_attention, causal=causal, keep=keep, bias=bias)
        yield Substitution(" ".join(words), pattern, _Named(kernels.flash_attention, causal=causal), (("G", "H"),))
    for causal in (False, True):
        name = "flash_attention causal" if causal else "flash_attention"
        run, when = partial(_any_lead, causal), _sees_keys if causal else None
        yield Substitution(name, partial(_plain_attention, causal=causal), run, when=when)


# feed-forward


def _gated(p: Pattern, *, activation: str, residual: bool) -> Value:
    x, gate, up = p.input("x", "... M K"), p.input("gate", "F K"), p.input("up", "F K")
    down = p.input("down", "N F")
    added = p.input("residual", "... M N") if residual else None
    return forms.gated_mlp(x, gate, up, down, added, activation=activation)


def _feed_forwards() -> Iterator[Substitution]:
    for activation, residual in product(("silu", "gelu"), (True, False)):
        pattern = partial(_gated, activation=activation, residual=residual)
        run = _Named(kernels.gated_mlp, activation=activation)
        yield Substitution(f"gated_mlp {activation}{' residual' * residual}", pattern, run)


# convolution


def _convolution(p: Pattern, *, layout: str, bias: bool, activation: str, residual: bool) -> Value:
    last = layout == "NHWC"
    x = p.input("x", "B H W C" if last else "B C H W")
    w = p.input("w", "N kh kw C" if last else "N C kh kw")
    stride, padding, dilation = (
        (p.whole(f"{name}_y", default), p.whole(f"{name}_x", default))
        for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    added = p.input("bias", "N") if bias else None
    more = p.input("residual", "B Ho Wo N" if last else "B N Ho Wo") if residual else None
    if last:
        pads = (padding[0], padding[0]), (padding[1], padding[1])
        return forms.conv2d(x, w, added, more, stride=stride, padding=pads, dilation=dilation, activation=activation)
    y = forms.ACTIVATIONS[activation](g.conv2d(x, w, added, stride, padding, dilation))
    return y if more is None else y + more


def _convolve(layout: str, activation: str, **given: Any) -> Any:
    knobs: dict[str, Any] = {
        name: (given.pop(f"{name}_y"), given.pop(f"{name}_x")) for name in ("stride", "padding", "dilation")
    }
    return kernels.conv2d(**given, **knobs, activation=activation, layout=layout)


def _folds(graph: Graph, root: Statement) -> Iterator[tuple[Statement, Expr]]:
    """The folds that a statement is made of, without those behind them."""
    open_: list[Expr] = [] if root.reduction else [root.body]
    if root.reduction:
        yield root, root.body
    seen = 0
    while open_ and seen < DEPTH:
        for e in open_.pop().walk():
            source = graph.by_name[e.value] if isinstance(e, Read) else None
            if isinstance(source, Statement) and source.reduction:
                yield source, source.body
            elif isinstance(source, Statement):
                seen += 1
                open_.append(source.body)


def _slides(graph: Graph) -> bool:
    """Whether anything is summed over channels and two axes of a window."""
    return any(s.reduction is not None and s.reduction.op == "sum" and len(s.reduced) == 3 for s in graph.statements)


def _windows(layout: str, graph: Graph, root: Statement) -> Iterator[Sizes]:
    """Sizes, strides, padding and dilation of the sliding sum that a statement is made of."""
    for fold, body in _folds(graph, root):
        if len(fold.reduced) != 3 or len(fold.ranges) != 4 or not (isinstance(body, Op) and body.name == "mul"):
            continue
        for read in body.args:
            if isinstance(read, Read):
                yield from _window(layout, graph, fold, read, root)


def _window(layout: str, graph: Graph, fold: Statement, read: Read, root: Statement) -> Iterator[Sizes]:
    shape = graph.by_name[read.value].shape
    found: list[dict[str, int]] = []
    for index, extent in zip(read.indices, shape):
        inner = [r for r in fold.reduced if index.coefficient(r)]
        outer = [r for r in fold.ranges if index.coefficient(r)]
        if len(inner) == len(outer) == 1 and index.affine:
            found.append(
                {
                    "extent": extent,
                    "k": inner[0].extent,
                    "stride": index.coefficient(outer[0]),
                    "dilation": index.coefficient(inner[0]),
                    "padding": -index.offset,
                }
            )
    if len(found) != 2 or min(one["stride"] * one["dilation"] for one in found) < 1:
        return
    (y, x), (count, *rest) = found, root.shape
    high, wide, filters = rest if layout == "NHWC" else (rest[1], rest[2], rest[0])
    channels = prod(r.extent for r in fold.reduced) // (y["k"] * x["k"])
    sizes = {"B": count, "C": channels, "N": filters, "H": y["extent"], "W": x["extent"], "Ho": high, "Wo": wide}
    sizes |= {"kh": y["k"], "kw": x["k"]}
    for name in ("stride", "padding", "dilation"):
        sizes |= {f"{name}_y": y[name], f"{name}_x": x[name]}
    yield sizes


def _convolutions() -> Iterator[Substitution]:
    activations = ("relu", "silu", "gelu", "sigmoid", "none")
    for residual, activation, bias, layout in product((True, False), activations, (True, False), ("NHWC", "NCHW")):
        knobs = {"layout": layout, "bias": bias, "activation": activation, "residual": residual}
        words = ["conv2d", layout, *(["bias"] * bias), *([activation] * (activation != "none"))]
        run = partial(_convolve, layout, activation)
        pattern, name = partial(_convolution, **knobs), " ".join([*words, *(["residual"] * residual)])
        yield Substitution(name, pattern, run, propose=partial(_windows, layout), needs=_slides)


# norms and rows


def _group_norm(p: Pattern, *, affine: bool, activation: str) -> Value:
    x = p.input("x", "B C ...")
    w, b = (p.input("w", "C"), p.input("b", "C")) if affine else (None, None)
    return forms.group_norm(x, w, b, groups=p.whole("groups", 1), eps=p.number("eps"), activation=activation)


def _groups(graph: Graph, root: Statement) -> Iterator[Sizes]:
    """Sizes of a norm over groups, from the extents of the folds behind a statement."""
    if len(root.ranges) < 2:
        return
    count, channels, *rest = root.shape
    known = {"B": count, "C": channels, **{f"lead{n}": extent for n, extent in enumerate(rest)}}
    for extent in {prod(r.extent for r in fold.reduced) for fold, _ in _folds(graph, root)}:
        groups, left = divmod(channels * prod(rest), extent)
        if not left and channels % groups == 0:
            yield known | {"groups": groups}


def _norms() -> Iterator[Substitution]:
    yield Substitution("layernorm", _layernorm, _Named(kernels.layernorm))
    yield Substitution("rmsnorm", _rmsnorm, _Named(kernels.rmsnorm))
    yield Substitution("log_softmax", _log_softmax, _Named(kernels.log_softmax))
    for activation, affine in product(("silu", "relu", "none"), (True, False)):
        name = f"group_norm{' affine' * affine}{f' {activation}' * (activation != 'none')}"
        pattern = partial(_group_norm, affine=affine, activation=activation)
        yield Substitution(name, pattern, partial(kernels.group_norm, activation=activation), propose=_groups)


def _layernorm(p: Pattern) -> Value:
    return g.layernorm(p.input("x", "... M N"), p.input("w", "N"), p.input("b", "N"), p.number("eps"))


def _rmsnorm(p: Pattern) -> Value:
    return g.rmsnorm(p.input("x", "... M N"), p.input("w", "N"), p.number("eps"))


def _log_softmax(p: Pattern) -> Value:
    return forms.log_softmax(p.input("x", "... M N"))


# positions


def _rotate(p: Pattern) -> Value:
    return forms.rotate(p.input("x", "... M 2 P"), p.input("cos", "M P"), p.input("sin", "M P"))


ATTENTION = tuple(_attentions())
FEED_FORWARD = tuple(_feed_forwards())
CONVOLUTION = tuple(_convolutions())
NORMS = tuple(_norms())
POSITIONS = (Substitution("rotate", _rotate, _Named(kernels.rotate)),)

LIBRARY = (*ATTENTION, *FEED_FORWARD, *CONVOLUTION, *NORMS, *POSITIONS)
"""Everything the library can stand for."""


def over(limit: int, substitutions: Sequence[Substitution]) -> tuple[Substitution, ...]:
    """Attention's substitutions where one temporary of all scores would take more than `limit` bytes of FP16.

    What the scheduler writes is faster, and holds all scores.
    """

    def bounded(one: Substitution) -> Substitution:
        def when(sizes: Sizes) -> bool:
            lead = prod(n for name, n in sizes.items() if name in ("B", "H") or name.startswith("lead"))
            return 2 * lead * sizes["Lq"] * sizes["Lk"] > limit and (one.when is None or one.when(sizes))

        return replace(one, when=when, least=limit // 2 + 1)

    return tuple(bounded(one) for one in substitutions)


DEFAULT = over(SCORES, ATTENTION)
"""What is used where nobody chooses: attention whose kernel bounds its memory, from the size on at which it does."""
