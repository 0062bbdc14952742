"""Whole models: error to float32, simulated time and its limiter, launches, host steps, and the host's time per block.

Simulated time is modelled. The host's time is that of a warm forward pass through the simulated machine.

    python benchmarks/models.py [--check] [--quick]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from timing import Bar, arguments, finish

from kohakutpu.models import (
    MLP,
    Llama,
    LlamaConfig,
    ViT,
    ViTConfig,
    draw_llama,
    draw_mlp,
    draw_vit,
    reference,
)
from kohakutpu.models.figures import measured
from kohakutpu.tensor import Tensor

Case = tuple[str, int, Callable[[], Tensor], Callable[[], Tensor] | None, Any]
"""Name, blocks, the forward pass kernel by kernel and as one program, and its float32 result."""
SENTENCES = (
    "A man is eating a piece of bread.",
    "Someone is having some food.",
    "The cheetah is chasing its prey across the plain.",
    "Quarterly interest rates were left unchanged by the bank.",
)


def cases(quick: bool) -> Iterator[Case]:
    """Every model with random weights."""
    rng = np.random.default_rng(0)
    layers, x = draw_mlp((64, 96, 64, 10)), rng.random((512, 64)).astype(np.float32)
    perceptron, one = MLP(layers), MLP(layers, jit=True)
    want = reference.mlp(layers, x, lambda v: np.maximum(v, 0))
    yield "MLP 64-96-64-10, 512 rows", 3, lambda: perceptron(x), lambda: one(x), want

    vc = ViTConfig(depth=1 if quick else 4)
    vit_weights, images = draw_vit(vc), rng.standard_normal((2, 3, 32, 32)).astype(np.float32)
    vit, vit_one = ViT(vit_weights, vc), ViT(vit_weights, vc, jit=True)
    want = reference.vit(vit_weights, vc, images)
    yield "ViT width 192, 2 images", vc.depth, lambda: vit(images), lambda: vit_one(images), want

    lc = LlamaConfig(depth=1 if quick else 4)
    weights, tokens = draw_llama(lc), rng.integers(0, lc.vocabulary, (1, 65))
    exact = reference.llama(weights, lc, tokens)
    llama, llama_one = Llama(weights, lc), Llama(weights, lc, jit=True)
    prompt = tokens[:, :64]
    yield "Llama width 256, prompt of 64", lc.depth, lambda: llama(prompt), lambda: llama_one(prompt), exact[:, :64]
    _, cache = llama.prefill(tokens[:, :64], 96)
    last = tokens[:, 64]
    step, step_one = (lambda m=m: m.step(last, cache)[0] for m in (llama, llama_one))
    yield "Llama, one token more, cache of 96", lc.depth, step, step_one, exact[:, 64:]


def sentence_model() -> tuple[Case, Any]:
    """MiniLM's case and its float32 embeddings."""
    from kohakutpu.models.minilm import MiniLM

    lm = MiniLM.load()
    ids, keep = lm.tokens(SENTENCES)
    hidden = reference.checkpoint(lm.state, lm.config.heads, lm.config.eps, ids, keep)
    want = reference.sentences(hidden, keep)
    model, one = lm.on(), lm.on(jit=True)
    name = f"MiniLM-L6, {len(SENTENCES)} sentences"
    return (name, lm.config.depth, lambda: model.embed(ids, keep), lambda: one.embed(ids, keep), want), want


def main() -> int:
    options = arguments("whole models on the machine")
    rows: list[dict[str, float | int | str]] = []
    bars: list[Bar] = []

    def add(case: Case) -> Any:
        name, blocks, run, program, want = case
        got, figures = measured(run, want)
        one = None if program is None else measured(program, want)[1]
        rows.append(
            {
                "model": name,
                "relative error": figures.error,
                "simulated ms (modelled)": figures.milliseconds,
                "as one program": "-" if one is None else f"{one.milliseconds:.3g}",
                "limiter (modelled)": figures.limiter,
                "launches": f"{figures.launches}" if one is None else f"{figures.launches}, {one.launches}",
                "host steps": figures.host_steps,
                "host ms": figures.host_seconds * 1e3,
                "host ms per block": figures.host_seconds * 1e3 / blocks,
            }
        )
        return got

    for case in cases(options.quick):
        add(case)
    if not options.quick:
        case, want = sentence_model()
        got = add(case).astype(np.float64)
        cosine = (got * want).sum(-1) / np.linalg.norm(got, axis=-1) / np.linalg.norm(want, axis=-1)
        bars.append(Bar("MiniLM, least cosine to float32", float(cosine.min()), 0.99))
    worst = max(float(row["relative error"]) for row in rows)
    bars.append(Bar("largest relative error of a model", worst, 0.08, below=True))
    return finish("models", rows, bars, options.check)


if __name__ == "__main__":
    sys.exit(main())
