"""Models compiled as one program: as close to the reference, fewer launches, no step of the host besides the lookup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kohakutpu import api as ktpu
from kohakutpu.models import MLP, Bert, Llama, ViT, draw_bert, draw_llama, draw_mlp, draw_vit, reference
from kohakutpu.models.reference import Reference
from kohakutpu.tensor import Tensor
from models.predicted import close, doubles
from models.test_models import SMALL_BERT, SMALL_LLAMA, SMALL_VIT, drawn, sentences_of

Case = tuple[Callable[[bool], Callable[[], Tensor]], Callable[[Reference], Any], int]


def perceptron() -> Case:
    layers, x = draw_mlp([24, 40, 32, 7], seed=3), drawn(50, 24)
    held = doubles(layers)

    def make(jit: bool) -> Callable[[], Tensor]:
        model = MLP(layers, jit=jit)
        return lambda: model(x)

    return make, lambda r: reference.mlp(held, x.astype(float), lambda v: np.maximum(v, 0), r), 0


def vision() -> Case:
    weights, images = draw_vit(SMALL_VIT, seed=4), drawn(3, 3, 8, 8)
    held = doubles(weights)

    def make(jit: bool) -> Callable[[], Tensor]:
        model = ViT(weights, SMALL_VIT, jit=jit)
        return lambda: model(images)

    return make, lambda r: reference.vit(held, SMALL_VIT, images.astype(float), r), 0


def encoder() -> Case:
    weights = draw_bert(SMALL_BERT, seed=5)
    held = doubles(weights)
    ids, keep = sentences_of([13, 4, 9])

    def make(jit: bool) -> Callable[[], Tensor]:
        model = Bert(weights, SMALL_BERT, jit=jit)
        return lambda: model.embed(ids, keep)

    return make, lambda r: reference.sentences(reference.bert(held, SMALL_BERT, ids, keep, r), keep), 1


def decoder() -> Case:
    weights = draw_llama(SMALL_LLAMA, seed=7)
    held = doubles(weights)
    tokens = np.random.default_rng(9).integers(0, SMALL_LLAMA.vocabulary, (1, 19))

    def make(jit: bool) -> Callable[[], Tensor]:
        model = Llama(weights, SMALL_LLAMA, jit=jit)
        return lambda: model(tokens)

    return make, lambda r: reference.llama(held, SMALL_LLAMA, tokens, r), 1


@pytest.mark.slow
@pytest.mark.parametrize("case", [perceptron, vision, encoder, decoder])
def test_one_program_is_the_model(case: Callable[[], Case]) -> None:
    make, exact, lookups = case()
    launches, cycles = [], []
    for jit in (False, True):
        run = make(jit)
        run()
        ktpu.reset_stats()
        got, timeline = ktpu.time(run)
        close(got.numpy(), exact)
        found = ktpu.stats()
        assert found["host_steps"] == lookups
        assert found["relayouts"] == 0
        launches.append(found["dispatches"])
        cycles.append(timeline.cycles)
    assert launches[1] < launches[0]
    assert cycles[1] <= 1.1 * cycles[0]


@pytest.mark.slow
def test_generation_begins_with_a_compiled_prompt() -> None:
    weights = draw_llama(SMALL_LLAMA, seed=7)
    held = doubles(weights)
    tokens = np.random.default_rng(10).integers(0, SMALL_LLAMA.vocabulary, (1, 11))
    model = Llama(weights, SMALL_LLAMA, jit=True)
    logits, cache = model.prefill(tokens, capacity=13)
    picked = model.pick(logits)
    after, _ = model.step(picked, cache)
    whole = np.concatenate([tokens, picked[:, None]], axis=1)
    rows = np.concatenate([logits.numpy(), after.numpy()], axis=1)
    close(rows, lambda r: reference.llama(held, SMALL_LLAMA, whole, r)[:, 10:])
