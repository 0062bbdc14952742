"""Each rule's before and after, its condition and its switch; pipelines over random movement keep what a run gives."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from graph.random_graphs import INPUTS, arrays, random_graph, random_read
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import Const, Graph, Input, Op, Range, Read, Statement, parse, run, verify
from kohakuaccel.graph import build as g
from kohakuaccel.graph import rewrite as rw
from kohakuaccel.graph.build import Tensor
from kohakuaccel.numerics import FP32

HEAD = "input x: FP16[4]\ninput y: FP16[4]\n"

EXAMPLES: dict[str, tuple[rw.Rewrite | rw.Rewrites, str, str]] = {
    "ranges are renamed, extents of 1 vanish, numbers go right": (
        rw.Canonicalise(),
        "t: FP16[row<4, one<1] = sum[q<3, u<1] 2.0 * guard(x[row + u], 0.0, 0 <= row < 4, 0 <= q < 3)\noutput t\n",
        "t: FP16[i0<4, i1<1] = sum[k0<3] x[i0] * 2.0\noutput t\n",
    ),
    "a read that never happens is its pad": (
        rw.Canonicalise(),
        "t: FP16[a<2] = guard(x[a], 0.5, 9 <= a < 12) + x[a]\noutput t\n",
        "t: FP16[i0<2] = x[i0] + 0.5\noutput t\n",
    ),
    "a fold over nothing but 1 is none": (
        rw.Canonicalise(),
        "t: FP16[a<4] = max[k<1] x[a]\noutput t\n",
        "t: FP16[i0<4] = x[i0]\noutput t\n",
    ),
    "twins are computed once, outputs keep their labels": (
        rw.CommonSubexpressions(),
        "a: FP16[i<4] = x[i] + y[i]\nb: FP16[j<4] = y[j] + x[j]\nc: FP16[i<4] = a[i] - b[i]\noutput c\noutput b\n",
        "a: FP16[i<4] = x[i] + y[i]\nc: FP16[i<4] = a[i] - a[i]\noutput c\noutput b = a\n",
    ),
    "another format is another value": (
        rw.CommonSubexpressions(),
        "a: FP16[i<4] = x[i]\nb: FP32[i<4] = x[i]\nc: FP32[i<4] = a[i] - b[i]\noutput c\n",
        "a: FP16[i<4] = x[i]\nb: FP32[i<4] = x[i]\nc: FP32[i<4] = a[i] - b[i]\noutput c\n",
    ),
    "what nobody reads goes": (
        rw.DeadCode(),
        "const c: FP16[1] = [1.0]\na: FP16[i<4] = x[i]\nb: FP16[i<4] = a[i] * c[0]\noutput a\n",
        "a: FP16[i<4] = x[i]\noutput a\n",
    ),
    "known values are computed, idle operations go": (
        rw.FoldConstants(),
        "const c: FP16[2] = [1.0, 2.0]\na: FP16[i<2] = c[i] * 3.0\n"
        "b: FP32[i<4] = neg(neg(cast(x[i], FP32) * (2.0 - 1.0))) + where(1 < 2, 0.0, x[i])\noutput a\noutput b\n",
        "const c: FP16[2] = [1.0, 2.0]\nconst a: FP16[2] = [3.0, 6.0]\nb: FP32[i<4] = x[i] + 0.0\noutput a\noutput b\n",
    ),
    "a cast that may round stays": (
        rw.FoldConstants(),
        "a: FP16[i<4] = cast(x[i], BF16) / 1.0\noutput a\n",
        "a: FP16[i<4] = cast(x[i], BF16)\noutput a\n",
    ),
    "movement folds into index maps and guards": (
        rw.FoldMovement() + rw.DeadCode(),
        "p: FP16[i<6] = guard(x[i - 1], 0.0, 0 <= i - 1 < 4)\nf: FP16[i<6] = p[5 - i]\n"
        "y2: FP16[i<6] = f[i] * 2.0\noutput y2\n",
        "y2: FP16[i<6] = guard(x[4 - i], 0.0, 0 <= 4 - i < 4) * 2.0\noutput y2\n",
    ),
    "what is computed to be moved is computed where it goes": (
        rw.SinkMovement() + rw.DeadCode(),
        "t: FP16[i<4, j<3] = sum[k0<4] x[k0] * y[i]\nm: FP16[k0<3, b<4] = t[3 - b, k0]\noutput m\n",
        "m: FP16[k0<3, b<4] = sum[k1<4] x[k1] * y[3 - b]\noutput m\n",
    ),
    "what others read, or what is repeated, stays": (
        rw.SinkMovement(),
        "t: FP16[i<4] = x[i] + y[i]\na: FP16[i<4] = t[3 - i]\nb: FP16[i<4] = t[i] + t[i]\n"
        "u: FP16[i<4] = x[i] - y[i]\nc: FP16[i<4, j<2] = u[i]\noutput a\noutput b\noutput c\n",
        "t: FP16[i<4] = x[i] + y[i]\na: FP16[i<4] = t[3 - i]\nb: FP16[i<4] = t[i] + t[i]\n"
        "u: FP16[i<4] = x[i] - y[i]\nc: FP16[i<4, j<2] = u[i]\noutput a\noutput b\noutput c\n",
    ),
    "pads that differ do not meet": (
        rw.FoldMovement(),
        "p: FP16[i<6] = guard(x[i - 1], 0.0, 0 <= i - 1 < 4)\n"
        "q: FP16[i<8] = guard(p[i - 1], 1.0, 0 <= i - 1 < 6) * 2.0\noutput q\n",
        "p: FP16[i<6] = guard(x[i - 1], 0.0, 0 <= i - 1 < 4)\n"
        "q: FP16[i<8] = guard(p[i - 1], 1.0, 0 <= i - 1 < 6) * 2.0\noutput q\n",
    ),
    "a change of format is no movement": (
        rw.FoldMovement(),
        "p: FP32[i<4] = x[3 - i]\nq: FP32[i<4] = p[i] * 2.0\noutput q\n",
        "p: FP32[i<4] = x[3 - i]\nq: FP32[i<4] = p[i] * 2.0\noutput q\n",
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_before_and_after(name: str) -> None:
    rule, before, after = EXAMPLES[name]
    graph = parse(HEAD + before)
    assert str(rule.apply(graph)) == HEAD + after
    assert rule.apply(rule.apply(graph)) == rule.apply(graph)


def test_switches_and_options() -> None:
    graph = parse(
        HEAD + "a: FP16[i<2, j<2] = x[2 * i + j]\nb: FP16[i<4] = a[i // 2, i % 2] * y[i]\n"
        "c: FP16[i<4] = y[i]\noutput b\n"
    )
    assert rw.DeadCode(enabled=False).apply(graph) == graph
    assert len(rw.TIDY.apply(graph).statements) == 1
    assert len(rw.TIDY.without("DeadCode").apply(graph).statements) == 3
    pipeline = rw.FoldMovement(quotients=False) + rw.DeadCode()
    assert len(pipeline.apply(graph).statements) == 1  # (i // 2) * 2 + i % 2 is i
    cut = parse(HEAD + "a: FP16[i<2, j<2] = x[2 * i + j]\nb: FP16[i<4] = a[i % 2, i // 2] * y[i]\noutput b\n")
    assert len(pipeline.apply(cut).statements) == 2
    assert len(rw.TIDY.apply(cut).statements) == 1
    with pytest.raises(Refusal, match="did you mean 'DeadCode'"):
        rw.TIDY.without("DeadCod")
    seen: list[str] = []
    rw.TIDY.apply(graph, lambda rule, _: seen.append(rule.name))
    assert seen[0] == "Canonicalise"
    assert "DeadCode" in seen


def same(before: Graph, after: Graph, rng: random.Random) -> None:
    known = arrays(rng)
    want, got = run(before, known), run(after, known)
    assert set(want) == set(got)
    for label in want:
        np.testing.assert_allclose(got[label], want[label], rtol=1e-10, atol=1e-12, err_msg=f"{before}\n{after}")


@pytest.mark.slow
@pytest.mark.parametrize("block", range(6))
def test_random_statements_keep_their_meaning(block: int) -> None:
    rng = random.Random(100 + block)
    for _ in range(40):
        graph = random_graph(rng)
        after = rw.TIDY.apply(graph)
        same(graph, after, rng)
        assert rw.TIDY.apply(after) == after


@pytest.mark.slow
def test_chains_of_random_movement_fold() -> None:
    """Reads of reads of reads, guarded or not: one statement is left wherever pads agree."""
    rng, folded, bolder = random.Random(9), 0, 0
    for _ in range(60):
        values: list[Statement] = []
        source = INPUTS[rng.choice((0, 2))]
        shape, name = source.shape, source.name
        for depth in range(3):
            out = tuple(Range(f"i{n}", rng.randrange(1, 5)) for n in range(rng.randrange(1, 4)))
            stand_in = type(source)(name, shape, FP32)
            read = random_read(rng, out, stand_in)
            if read.pad:
                read = Read(read.value, read.indices, read.guards, type(read.pad)(0.0))
            body = Op("mul", (read, read)) if depth == 2 else read
            values.append(Statement(f"t{depth}", FP32, out, body))
            shape, name = values[-1].shape, f"t{depth}"
        graph = verify(Graph((*INPUTS, *values), (("out", name),)))
        after = rw.TIDY.apply(graph)
        same(graph, after, rng)
        folded += len(after.statements) == 1
        bold = rw.FoldMovement(gathers=True) + rw.TIDY
        same(graph, bold.apply(graph), rng)
        bolder += len(bold.apply(graph).statements) == 1
    assert folded > 12
    assert bolder > 30


@pytest.mark.parametrize(
    ("make", "left"),
    [
        (lambda x: g.permute(g.permute(x, (1, 0)), (1, 0)) * 2, 1),
        (lambda x: g.reshape(g.reshape(x, (12,)), (3, 4)) + x, 1),
        (lambda x: g.flip(g.flip(x, (0,)), (0,)) * x, 1),
        (lambda x: g.slice_(g.pad(x, [(1, 1), (2, 2)]), 1, 2, 6) * 2, 1),
        (lambda x: g.matmul(x, g.transpose(x)), 1),
        (lambda x: g.transpose(g.matmul(x, g.transpose(x))), 1),
        (lambda x: g.reshape(g.matmul(x, g.transpose(x)), (9,)), 2),  # a reshape across axes is not affine
        (lambda x: g.softmax(x) - g.softmax(x), 5),
        (lambda x: g.groupnorm(g.reshape(x, (1, 3, 4)), 3), 7),
    ],
)
def test_built_graphs_tidy_up(make: Callable[[Tensor], Tensor], left: int) -> None:
    builder = g.Builder()
    graph = builder.graph(make(builder.input("x", (3, 4), FP32)))
    after = rw.TIDY.apply(graph)
    assert len(after.statements) == left, str(after)
    x = np.random.default_rng(0).normal(size=(3, 4))
    label = graph.outputs[0][0]
    np.testing.assert_allclose(run(after, {"x": x})[label], run(graph, {"x": x})[label])


def test_moved_results_of_random_statements() -> None:
    rng, sunk = random.Random(12), 0
    pads: dict[str, float | int | bool] = {"FP32": 0.5, "INT32": 1, "BOOL": True}
    for _ in range(150):
        first = random_graph(rng).statement("t")
        out = tuple(Range(f"k{n}", rng.randrange(1, 4)) for n in range(rng.randrange(3)))
        read = random_read(rng, out, Input("t", first.shape, first.dtype))
        if read.pad:
            read = Read(read.value, read.indices, read.guards, Const(pads[first.dtype.name]))
        graph = verify(Graph((*INPUTS, first, Statement("u", first.dtype, out, read)), (("u", "u"),)))
        after = rw.TIDY.apply(graph)
        same(graph, after, rng)
        sunk += len(after.statements) == 1
    assert sunk > 35
