"""Kernel substitution: which kernel stands for which part of a graph, what prevents it, and a user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kohakuaccel import graph as gr
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import Graph
from kohakuaccel.graph import build as g
from kohakuaccel.graph.expr import op
from kohakuaccel.numerics import FP16
from kohakutpu import api as ktpu
from kohakutpu import auto, kernels
from kohakutpu.auto import patterns_forms as forms
from kohakutpu.auto.substitute import cut
from kohakutpu.auto.substitute_library import ATTENTION, LIBRARY, NORMS, over

Shapes = tuple[tuple[int, ...], ...]
Q, KV = (2, 4, 16, 8), (2, 4, 32, 8)


def built(make: Callable[..., Any], shapes: Shapes) -> Graph:
    b = g.Builder()
    made = make(*(b.input(f"x{n}", shape, FP16) for n, shape in enumerate(shapes)))
    return b.graph(*made) if isinstance(made, tuple) else b.graph(y=made)


def titles(make: Callable[..., Any], *shapes: tuple[int, ...]) -> list[str]:
    return [call.title for call in cut(built(make, shapes), LIBRARY).calls]


def by_hand(q: g.Tensor, k: g.Tensor, v: g.Tensor) -> g.Tensor:
    """Attention as a person writes it: other statements, other orders, the quotient as a product."""
    s = g.matmul(q, g.permute(k, (0, 2, 1)))
    s = 0.25 * s
    e = g.exp(s - g.max_(s, 2, keep=True))
    return g.matmul(e * g.recip(g.sum_(e, -1, keep=True)), v)


def normed(x: g.Tensor, w: g.Tensor) -> g.Tensor:
    return w * (x * g.recip(g.sqrt(g.mean(x * x, -1, True) + 1e-5)))


def windows(*pairs: tuple[int, int]) -> str:
    names = ("stride", "padding", "dilation")
    return "".join(f", {name}_y={y}, {name}_x={x}" for name, (y, x) in zip(names, pairs))


CASES: list[tuple[str, Callable[..., Any], Shapes, list[str]]] = [
    (
        "rank 2",
        lambda q, k, v: g.attention(q, k, v, 0.5),
        ((16, 8), (32, 8), (32, 8)),
        ["flash_attention(x0, x1, x2, scale=0.5)"],
    ),
    ("rank 3 by hand", by_hand, ((4, 16, 8), (4, 32, 8), (4, 32, 8)), ["flash_attention(x0, x1, x2, scale=0.25)"]),
    ("rank 4", lambda q, k, v: g.attention(q, k, v, 1.0), (Q, KV, KV), ["flash_attention(x0, x1, x2, scale=1)"]),
    (
        "causal",
        lambda q, k, v: g.attention(q, k, v, 0.5, True),
        (Q, KV, KV),
        ["flash_attention causal(x0, x1, x2, scale=0.5)"],
    ),
    (
        "grouped",
        lambda q, k, v: forms.attention(q, k, v, causal=True, scale=0.5),
        (Q, (2, 2, 32, 8), (2, 2, 32, 8)),
        ["flash_attention causal(x0, x1, x2, scale=0.5)"],
    ),
    (
        "repeated heads",
        lambda q, k, v: forms.attention(
            q, forms.repeat(k, axis=1, times=2), forms.repeat(v, axis=1, times=2), scale=0.5
        ),
        (Q, (2, 2, 32, 8), (2, 2, 32, 8)),
        ["flash_attention(x0, x1, x2, scale=0.5)"],
    ),
    (
        "keep and bias",
        lambda q, k, v, keep, bias: forms.attention(q, k, v, keep, bias, scale=0.5),
        (Q, (2, 1, 32, 8), (2, 1, 32, 8), (2, 32), (1, 4, 16, 32)),
        ["flash_attention keep bias(x0, x1, x2, x3, x4, scale=0.5)"],
    ),
    (
        "attention of one value",
        lambda x: g.attention(x, x, x, 0.5),
        ((16, 8),),
        ["flash_attention(x0, x0, x0, scale=0.5)"],
    ),
    (
        "gated block",
        lambda x, a, u, d: forms.gated_mlp(x, a, u, d, x),
        ((16, 32), (64, 32), (64, 32), (32, 64)),
        ["gated_mlp silu residual(x0, x1, x2, x3, x0)"],
    ),
    (
        "gated block, factors exchanged",
        lambda x, a, u, d: g.linear(g.linear(x, u) * g.silu(g.linear(x, a)), d),
        ((2, 16, 32), (64, 32), (64, 32), (32, 64)),
        ["gated_mlp silu(x0, x1, x2, x3)"],
    ),
    (
        "convolution",
        lambda x, w, b: g.relu(g.conv2d(x, w, b, (2, 1), (1, 0))),
        ((2, 8, 16, 15), (4, 8, 3, 5), (4,)),
        [f"conv2d NCHW bias relu(x0, x1, x2{windows((2, 1), (1, 0), (1, 1))})"],
    ),
    (
        "convolution, channels last, residual",
        lambda x, w, r: forms.conv2d(x, w, None, r, padding=((1, 1), (1, 1)), dilation=(1, 1)),
        ((1, 16, 16, 8), (4, 3, 3, 8), (1, 16, 16, 4)),
        [f"conv2d NHWC residual(x0, x1, x2{windows((1, 1), (1, 1), (1, 1))})"],
    ),
    (
        "group norm",
        lambda x, w, b: g.silu(g.groupnorm(x, 4, w, b)),
        ((2, 8, 6, 6), (8,), (8,)),
        ["group_norm affine silu(x0, x1, x2, eps=1e-05, groups=4)"],
    ),
    (
        "layernorm",
        lambda x, w, b: g.layernorm(x, w, b, 1e-3),
        ((2, 3, 16), (16,), (16,)),
        ["layernorm(x0, x1, x2, eps=0.001)"],
    ),
    ("rmsnorm by hand", normed, ((8, 16), (16,)), ["rmsnorm(x0, x1, eps=1e-05)"]),
    ("rmsnorm", lambda x, w: g.rmsnorm(x + 1.0, w), ((8, 16), (16,)), ["rmsnorm(t_add, x1, eps=1e-06)"]),
    ("log-softmax", g.log_softmax, ((8, 16),), ["log_softmax(x0)"]),
    ("rotary", forms.rotate, ((2, 6, 2, 16), (6, 16), (6, 16)), ["rotate(x0, x1, x2)"]),
]


@pytest.mark.parametrize(("make", "shapes", "want"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_pattern_is_found_whatever_its_spelling(make: Callable[..., Any], shapes: Shapes, want: list[str]) -> None:
    assert titles(make, *shapes) == want


def weights_and_values(x: g.Tensor, *, scores: bool = False) -> tuple[g.Tensor, ...]:
    s = x @ g.transpose(x) * 0.5
    p = g.softmax(s)
    return (p @ x, s if scores else p)


@pytest.mark.parametrize(
    "make",
    [
        weights_and_values,
        lambda x: weights_and_values(x, scores=True),
        lambda x: weights_and_values(x)[0] + g.sum_(weights_and_values(x)[1], -1, True),
    ],
    ids=["the weights leave", "the scores leave", "the weights are read elsewhere"],
)
def test_another_use_of_an_intermediate_prevents_it(make: Callable[..., Any]) -> None:
    assert titles(make, (16, 16)) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda q, k, v: g.matmul(g.softmax(g.matmul(q, g.transpose(k)), -2), v),
        lambda q, k, v: g.matmul(g.softmax(g.matmul(q, g.transpose(k)) * g.matmul(q, g.transpose(k))), v),
        lambda q, k, v: g.matmul(g.exp(g.matmul(q, g.transpose(k))), v),
        lambda q, k, v: g.attention(q, k, v, causal=True),
    ],
    ids=["softmax of columns", "squared scores", "no softmax", "rows without a key"],
)
def test_what_computes_something_else_is_left_alone(make: Callable[..., Any]) -> None:
    """The last: q is longer than k, so a causal row sees no key, which is 0 in the kernel and not a number here."""
    assert titles(make, (32, 8), (16, 8), (16, 8)) == []


def test_a_dilated_or_strided_convolution_keeps_its_numbers() -> None:
    several: list[dict[str, Any]] = [{"stride": 2}, {"dilation": 2}, {"padding": 2}]
    several.append({"stride": (1, 3), "padding": (0, 1)})
    for knobs in several:
        graph = built(lambda x, w, k=knobs: g.conv2d(x, w, **k), ((1, 8, 13, 14), (4, 8, 3, 3)))
        (call,) = cut(graph, LIBRARY).calls
        found = dict(call.knobs)
        for name, default in (("stride", 1), ("dilation", 1), ("padding", 0)):
            want = knobs.get(name, default)
            assert (found[f"{name}_y"], found[f"{name}_x"]) == (want if isinstance(want, tuple) else (want, want))


def test_the_cut_graph_and_its_calls_compute_the_same() -> None:
    graph = built(lambda x, w: g.linear(by_hand(x, x, x), w) + x, ((2, 8, 8), (8, 8)))
    found = cut(graph, LIBRARY)
    (call,) = found.calls
    assert call.result in {v.name for v in found.graph.inputs}
    rng = np.random.default_rng(0)
    data = {"x0": rng.normal(size=(2, 8, 8)), "x1": rng.normal(size=(8, 8))}
    whole = gr.run(graph, data, keep=(call.result,))
    rest = gr.run(found.graph, data | {call.result: whole[call.result]})
    assert np.array_equal(rest["y"], whole["y"])
    for label, (_, name) in zip(found.labels[0], call.operands):
        assert np.array_equal(rest[label], data[name])


BLOCK: Shapes = ((2, 16, 32), (4, 8, 32), (4, 8, 32), (4, 8, 32), (4, 32, 8))


def block(x: ktpu.Tensor, q: ktpu.Tensor, k: ktpu.Tensor, v: ktpu.Tensor, o: ktpu.Tensor) -> ktpu.Tensor:
    """A transformer block's attention from words of the tensor level."""
    lead, (heads, width, _) = x.shape[:2], q.shape

    def project(w: ktpu.Tensor) -> ktpu.Tensor:
        return (x @ w.reshape(heads * width, -1)).reshape(*lead, heads, width).transpose(0, 2, 1, 3)

    p = ((project(q) @ project(k)) * width**-0.5).softmax()
    mixed = (p @ project(v).transpose(0, 1, 3, 2)).transpose(0, 2, 1, 3).reshape(*lead, heads * width)
    return x + mixed @ o.transpose(1, 0, 2).reshape(x.shape[-1], heads * width)


def drawn() -> list[ktpu.Tensor]:
    rng = np.random.default_rng(1)
    return [ktpu.tensor(rng.standard_normal(shape) / shape[-1] ** 0.5) for shape in BLOCK]


def test_a_transformer_block_picks_up_attention_and_the_plan_says_so() -> None:
    given = drawn()
    with_kernel, without = ktpu.jit(substitutions=ATTENTION)(block), ktpu.jit(block)
    assert "library kernel flash_attention(" in with_kernel.plan(*given).pretty()
    assert "library kernel" not in without.plan(*given).pretty()
    eager = block(*given).numpy().astype(float)
    for traced in (with_kernel, without):
        error = np.linalg.norm(traced(*given).numpy() - eager) / np.linalg.norm(eager)
        assert error < 0.02


def test_attention_is_the_kernels_from_its_limit_of_scores_on() -> None:
    given = drawn()
    scores = 2 * 8 * 16 * 16  # bytes of 2 x 4 heads' scores
    for limit, picked in ((scores - 1, True), (scores, False)):
        text = ktpu.jit(substitutions=over(limit, ATTENTION))(block).plan(*given).pretty()
        assert ("library kernel flash_attention(" in text) == picked
    for length, picked in ((1024, True), (512, False)):
        program = built(lambda q, k, v: g.attention(q, k, v, causal=True), ((1, 64, length, 32),) * 3)
        assert bool(cut(program, auto.registered()).calls) == picked  # 128 and 32 MiB; the kernel's own limit is 64


def test_all_levels_of_a_plan_with_a_library_kernel_agree() -> None:
    given = drawn()
    plan = ktpu.jit(substitutions=ATTENTION)(block).plan(*given)
    data = {v.name: t.numpy() for v, t in zip(plan.inputs, given)}
    ((label, want),) = ((label, t.numpy()) for label, t in plan.run(data).items())
    assert np.array_equal(plan.run_schedule(data)[label], want)


@pytest.fixture
def own_kernel() -> Iterator[list[str]]:
    """A user's kernel for x * sigmoid(b * x) with any b, and a list of what it was called with."""
    called: list[str] = []

    def swish(p: auto.Pattern) -> g.Tensor:
        x, b = p.input("x", "..."), p.number("b")
        return g.pointwise(lambda a: op("mul", a, op("recip", op("add", op("exp2", op("mul", a, b)), 1.0))), x)

    @auto.substitute(swish)
    def own_swish(x: ktpu.Tensor, b: float) -> ktpu.Tensor:
        called.append(f"{b:.4f}")
        return kernels.silu(x)

    yield called
    auto.unregister("own_swish")


def test_a_user_registers_a_kernel_of_his_own(own_kernel: list[str]) -> None:
    x = ktpu.tensor(np.linspace(-2, 2, 24).reshape(4, 6))
    f = ktpu.jit(lambda x: x.silu() + 1.0)
    assert "library kernel own_swish(x, b=-1.4427)" in f.plan(x).pretty()
    want = x.silu() + 1.0
    assert np.abs(f(x).numpy() - want.numpy()).max() < 2e-3
    assert own_kernel == ["-1.4427"]
    assert "own_swish" not in ktpu.jit(substitutions=())(lambda x: x.silu()).plan(x).pretty()


def test_registered_kernels_are_known_by_name(own_kernel: list[str]) -> None:
    assert str(auto.registered()[0]) == "own_swish"
    with pytest.raises(Refusal, match="that was registered"):
        auto.unregister("unknown")


def test_norms_are_used_when_they_are_asked_for() -> None:
    f = ktpu.jit(substitutions=NORMS)(lambda x, w: x.rmsnorm(w))
    x, w = ktpu.tensor(np.ones((4, 32))), ktpu.ones((32,))
    assert "library kernel rmsnorm(x, w, eps=1e-06)" in f.plan(x, w).pretty()
    assert np.allclose(f(x, w).numpy(), 1.0)
