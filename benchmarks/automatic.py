"""How far the automatic scheduler is from the kernel library: simulated time of both for the same function.

Every row is one function of tensors on the device: as a graph that `kohakutpu.auto` schedules by itself, the same where
the library's attention stands for its pattern, and as calls of the hand-written kernels. Cycles are modelled, not
measured, so no run disturbs another.

    python benchmarks/automatic.py [--check] [--quick] [names...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from timing import Bar, Row, finish

from kohakuaccel import graph
from kohakuaccel.graph import build as g
from kohakuaccel.lang import dims, grid
from kohakuaccel.numerics import FP16
from kohakutpu import api as ktpu
from kohakutpu import kernels as k
from kohakutpu import lang as L
from kohakutpu.auto import compile_graph
from kohakutpu.auto.substitute_library import ATTENTION
from kohakutpu.lang import kernel

LIMIT = 1.2
Tensors = Mapping[str, Any]
M, N = dims("M N")


@kernel
def chain(x=L.In(...), y=L.In(...), z=L.Out(...)):
    """relu(x * y + 0.5) * x - y."""
    for e in grid(x.parts()):
        z[e] <<= L.maximum(L.fma(x[e], y[e], 0.5), 0.0) * x[e] - y[e]


@kernel
def pick_loss(p=L.In(M, N), t=L.In(M, N), y=L.Out(M)):
    """-sum(p * t) of each row."""
    for r in grid(p.rows()):
        y[r] <<= -L.row_sum(p[r] * t[r])


@dataclass(frozen=True)
class Work:
    """One function: how the graph builds it, which kernels do it by hand, and the shapes of its inputs."""

    name: str
    build: Callable[..., g.Tensor]
    hand: Callable[[Tensors], Any]
    shapes: Mapping[str, tuple[int, ...]]
    missing: str = ""
    """The transform that would close a gap, where there is one."""


def works(quick: bool) -> list[Work]:
    n = 64 if quick else 256
    t, c, h = (32, 64, 2) if quick else (128, 256, 4)
    d = c // h
    x, row = (t, c), (c,)

    def block(x: g.Tensor, n1: g.Tensor, *rest: g.Tensor) -> g.Tensor:
        """Llama's block without rotary positions: norm, attention, residual, norm, gated MLP, residual."""
        q, kk, v, o, n2, gate, up, down = rest
        a = g.rmsnorm(x, n1)
        query, key, value = (g.heads(g.linear(a, w), h) for w in (q, kk, v))
        mixed = g.attention(query, key, value)
        merged = g.reshape(g.permute(mixed, (1, 0, 2)), (t, c))
        y = x + g.linear(merged, o)
        b = g.rmsnorm(y, n2)
        return y + g.linear(g.silu(g.linear(b, gate)) * g.linear(b, up), down)

    def block_by_hand(f: Tensors) -> Any:
        a = k.rmsnorm(f["x"], f["n1"]).reshape(1, t, c)
        parts = [k.split_heads(a, f[w].reshape(h, d, c)) for w in ("q", "kk", "v")]
        mixed = k.flash_attention(*parts)
        out = f["o"].reshape(c, h, d).transpose(1, 0, 2)
        y = k.merge_heads(mixed, out, residual=f["x"].reshape(1, t, c)).reshape(t, c)
        b = k.rmsnorm(y, f["n2"])
        return k.swiglu(b, f["gate"], f["up"], f["down"], residual=y)

    def step(x: g.Tensor, keys: g.Tensor, values: g.Tensor, n1: g.Tensor, *rest: g.Tensor) -> g.Tensor:
        """One token more behind t of them: the block on one row, its keys and values behind those kept."""
        q, kk, v, o, n2, gate, up, down = rest
        a = g.rmsnorm(x, n1)
        query, key, value = (g.heads(g.linear(a, w), h) for w in (q, kk, v))
        mixed = g.attention(query, g.concat([keys, key], 1), g.concat([values, value], 1))
        y = x + g.linear(g.reshape(g.permute(mixed, (1, 0, 2)), (1, c)), o)
        b = g.rmsnorm(y, n2)
        return y + g.linear(g.silu(g.linear(b, gate)) * g.linear(b, up), down)

    def step_by_hand(f: Tensors) -> Any:
        a = k.rmsnorm(f["x"], f["n1"]).reshape(1, 1, c)
        q, key, value = (k.split_heads(a, f[w].reshape(h, d, c)) for w in ("q", "kk", "v"))
        keys, values = (
            k.concat([f[name].reshape(1, h, t, d), new], axis=2) for name, new in (("keys", key), ("values", value))
        )
        out = f["o"].reshape(c, h, d).transpose(1, 0, 2)
        y = k.merge_heads(k.flash_attention(q, keys, values), out, residual=f["x"].reshape(1, 1, c)).reshape(1, c)
        return k.swiglu(k.rmsnorm(y, f["n2"]), f["gate"], f["up"], f["down"], residual=y)

    def rope(x: g.Tensor, cos: g.Tensor, sin: g.Tensor) -> g.Tensor:
        half = x.shape[-1] // 2
        first, second = g.slice_(x, -1, 0, half), g.slice_(x, -1, half, 2 * half)
        return g.concat([first * cos - second * sin, second * cos + first * sin], -1)

    def loss(x: g.Tensor, hot: g.Tensor) -> g.Tensor:
        return -g.mean(g.sum_(g.log_softmax(x) * hot, -1))

    heads = (1, h, t, d)
    image = (1, 16, 8, 8) if quick else (1, 32, 16, 16)
    weight = (32, image[1], 3, 3)
    wide = {"gate": (2 * c, c), "up": (2 * c, c), "down": (c, 2 * c)}
    weights = {"n1": row, **dict.fromkeys(("q", "kk", "v", "o"), (c, c)), "n2": row, **wide}
    caches = dict.fromkeys(("keys", "values"), (h, t, d))
    mlp = {"x": x, "up": (4 * c, c), "down": (c, 4 * c)}
    return [
        Work("gemm", g.linear, lambda f: k.matmul(f["x"], f["w"]), {"x": (n, n), "w": (n, n)}),
        Work(
            "gemm, bias, gelu",
            lambda x, w, b: g.gelu(g.linear(x, w, b)),
            lambda f: k.linear(f["x"], f["w"], f["b"], activation="gelu"),
            {"x": (n, n), "w": (n, n), "b": (n,)},
        ),
        Work(
            "batched gemm",
            lambda x, y: g.matmul(x, g.transpose(y)),
            lambda f: k.batched_matmul(f["x"], f["y"]),
            {"x": (4, n // 2, n // 2), "y": (4, n // 2, n // 2)},
        ),
        Work("softmax", g.softmax, lambda f: k.softmax(f["x"]), {"x": (n, n)}),
        Work(
            "layernorm",
            g.layernorm,
            lambda f: k.layernorm(f["x"], f["w"], f["b"]),
            {"x": (n, n), "w": (n,), "b": (n,)},
            "rounds of instructions placed against the credits: the stage has fewer words and waits longer",
        ),
        Work("rmsnorm", g.rmsnorm, lambda f: k.rmsnorm(f["x"], f["w"]), {"x": (n, n), "w": (n,)}),
        Work(
            "cross entropy",
            loss,
            lambda f: k.full_mean(pick_loss(k.log_softmax(f["x"]), f["hot"]).reshape(1, -1)),
            {"x": (n, n), "hot": (n, n)},
        ),
        Work(
            "attention",
            lambda q, k, v: g.attention(q, k, v),
            lambda f: k.flash_attention(f["q"], f["k"], f["v"]),
            dict.fromkeys("qkv", heads),
        ),
        Work(
            "causal attention",
            lambda q, k, v: g.attention(q, k, v, causal=True),
            lambda f: k.flash_attention(f["q"], f["k"], f["v"], causal=True),
            dict.fromkeys("qkv", heads),
        ),
        Work(
            "swiglu mlp",
            lambda x, gate, up, down: g.linear(g.silu(g.linear(x, gate)) * g.linear(x, up), down),
            lambda f: k.swiglu(f["x"], f["gate"], f["up"], f["down"]),
            {"x": x, "gate": (2 * c, c), "up": (2 * c, c), "down": (c, 2 * c)},
        ),
        Work(
            "gelu mlp, residual",
            lambda x, up, down: x + g.linear(g.gelu(g.linear(x, up)), down),
            lambda f: k.mlp(f["x"], f["up"], f["down"], residual=f["x"]),
            mlp,
        ),
        Work(
            "residual and norm",
            lambda x, w, r, s: g.rmsnorm(g.linear(x, w) + r, s),
            lambda f: k.rmsnorm(k.linear(f["x"], f["w"], residual=f["r"]), f["s"]),
            {"x": x, "w": (c, c), "r": x, "s": row},
        ),
        Work(
            "transformer block",
            block,
            block_by_hand,
            {"x": x, **weights},
        ),
        Work(
            "rope", rope, lambda f: k.rope(f["x"], f["cos"], f["s"]), {"x": heads, "cos": (t, d // 2), "s": (t, d // 2)}
        ),
        Work(
            "conv, bias, relu",
            lambda x, w, b: g.relu(g.conv2d(x, w, b, padding=1)),
            lambda f: k.conv2d(f["x"], f["w"], f["b"], padding=1, activation="relu", layout="NCHW"),
            {"x": image, "w": weight, "b": (32,)},
        ),
        Work(
            "group norm",
            lambda x, w, b: g.groupnorm(x, 4, w, b),
            lambda f: k.group_norm(f["x"], 4, f["w"], f["b"]),
            {"x": (2, 16, 16, 16), "w": (16,), "b": (16,)},
            "statistics kept as numbers of groups, so that one pass over channels normalises and scales",
        ),
        Work(
            "elementwise chain",
            lambda x, y: g.relu(x * y + 0.5) * x - y,
            lambda f: chain(f["x"], f["y"]),
            {"x": (n, n), "y": (n, n)},
        ),
        Work(
            "one-row product",
            lambda x, w, b: g.silu(g.linear(x, w, b)),
            lambda f: k.linear(f["x"], f["w"], f["b"], activation="silu"),
            {"x": (1, n), "w": (2 * n, n), "b": (2 * n,)},
        ),
        Work("decoder step", step, step_by_hand, {"x": (1, c), **caches, **weights}),
        Work("column sums", lambda x: g.sum_(x, 0), lambda f: k.col_sum(f["x"]), {"x": (n, n)}),
        Work("row maxima", lambda x: g.max_(x, 1), lambda f: k.row_max(f["x"]), {"x": (n, n)}),
        Work("mean of everything", g.mean, lambda f: k.full_mean(f["x"]), {"x": (n, n)}),
    ]


def draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Numbers of deviation 1, matrices so that products keep it; `hot` picks one column of each row."""
    if name == "hot":
        return np.eye(shape[1])[rng.integers(0, shape[1], shape[0])].astype(np.float16)
    scale = 1.0 if name == "x" or len(shape) != 2 else shape[1] ** -0.5
    return (scale * rng.standard_normal(shape)).astype(np.float16)


def measure(work: Work) -> Row:
    rng = np.random.default_rng(len(work.name))
    arrays = {name: draw(rng, name, shape) for name, shape in work.shapes.items()}
    b = g.Builder()
    program = b.graph(y=work.build(*(b.input(name, shape, FP16) for name, shape in work.shapes.items())))
    machine = ktpu.device().machine
    plan, with_library = (compile_graph(program, machine, substitutions=some) for some in ((), ATTENTION))
    tensors = {name: ktpu.tensor(a) for name, a in arrays.items()}
    want = graph.run(program, arrays)["y"]
    cycles: list[int] = []
    errors: list[float] = []
    for run in (lambda: plan.run(tensors)["y"], lambda: with_library.run(tensors)["y"], lambda: work.hand(tensors)):
        run()
        result, timeline = ktpu.time(run)
        cycles.append(timeline.cycles)
        got = result.numpy().astype(np.float64).reshape(want.shape)
        errors.append(float(np.abs(got - want).max() / np.abs(want).max()))
    ratio = cycles[0] / cycles[2]
    return {
        "function": work.name,
        "automatic": cycles[0],
        "by hand": cycles[2],
        "ratio": ratio,
        "with substitution": cycles[1],
        "error": errors[0],
        "error by hand": errors[2],
        "host steps": len(plan.host_steps),
        "missing transform": work.missing if ratio > 1.0005 else "",
    }


def main() -> int:
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    rows = [measure(w) for w in works("--quick" in sys.argv) if not names or w.name in names]
    bars = [Bar(f"{row['function']}, automatic over by hand", float(row["ratio"]), LIMIT, below=True) for row in rows]
    bars.append(Bar("host steps", sum(int(row["host steps"]) for row in rows), 1, below=True))
    return finish("automatic", rows, bars, "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
