"""Every model against its numpy reference, with the error that the formats predict for it; what it costs; refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.program import Program
from kohakutpu import api as ktpu
from kohakutpu.models import (
    MLP,
    Bert,
    BertConfig,
    Embedding,
    Linear,
    Llama,
    LlamaConfig,
    ViT,
    ViTConfig,
    count,
    draw_bert,
    draw_llama,
    draw_mlp,
    draw_vit,
    reference,
)
from kohakutpu.models.blocks import Attention
from kohakutpu.models.parameters import leaves
from models.predicted import close, doubles, off

SMALL_VIT = ViTConfig(image=8, patch=4, width=32, depth=2, heads=2, hidden=64, classes=5)
SMALL_BERT = BertConfig(vocabulary=50, positions=16, width=64, depth=2, heads=2, hidden=96)
SMALL_LLAMA = LlamaConfig(vocabulary=40, width=64, depth=2, heads=4, groups=2, head=32, hidden=96)


@pytest.fixture(autouse=True)
def counters() -> None:
    ktpu.reset_stats()


def drawn(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_mlp() -> None:
    layers, x = draw_mlp([24, 40, 32, 7], seed=3), drawn(2, 9, 24)
    got = MLP(layers, "relu")(x).numpy()
    assert got.dtype == np.float32
    held = doubles(layers)
    close(got, lambda r: reference.mlp(held, x.astype(float), lambda v: np.maximum(v, 0), r))
    assert ktpu.stats()["dispatches"] == 3
    assert ktpu.stats()["host_steps"] == 0
    again = MLP.from_numpy([m.w for m in layers], [m.b for m in layers if m.b is not None], activation="relu")(x)
    assert again.numpy().tobytes() == got.tobytes()


def test_layers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Refusal, match="layers fit each other"):
        MLP((Linear(drawn(4, 3)), Linear(drawn(2, 5))))
    with pytest.raises(Refusal, match="at least one layer"):
        MLP(())


def test_vit() -> None:
    c = SMALL_VIT
    weights, images = draw_vit(c, seed=4), drawn(3, 3, 8, 8)
    got = ViT(weights, c)(images).numpy()
    held = doubles(weights)
    close(got, lambda r: reference.vit(held, c, images.astype(float), r))
    assert ktpu.stats()["relayouts"] == 0
    assert ktpu.stats()["saturations"] == 0


def test_images_of_another_size_are_refused() -> None:
    model = ViT(draw_vit(SMALL_VIT), SMALL_VIT)
    with pytest.raises(Refusal, match=r"images have the model's size.*\(2, 3, 8, 12\)"):
        model(drawn(2, 3, 8, 12))
    with pytest.raises(Refusal, match="patches divide the image"):
        ViTConfig(image=30, patch=4)


def sentences_of(lengths: list[int]) -> tuple[Any, Any]:
    """Ids and what counts of them, padded to the longest."""
    rng = np.random.default_rng(6)
    ids = rng.integers(0, SMALL_BERT.vocabulary, (len(lengths), max(lengths)))
    return ids, (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.float32)


@pytest.mark.slow
def test_bert_with_padding() -> None:
    c = SMALL_BERT
    weights = draw_bert(c, seed=5)
    ids, keep = sentences_of([13, 4, 9])
    model = Bert(weights, c)
    got = model.embed(ids, keep).numpy()
    assert ktpu.stats()["host_steps"] == 1
    assert ktpu.stats()["relayouts"] == 0
    held = doubles(weights)
    close(got, lambda r: reference.sentences(reference.bert(held, c, ids, keep, r), keep))
    np.testing.assert_allclose(np.linalg.norm(got.astype(float), axis=-1), 1, atol=2e-3)
    # What stands in the padding changes nothing beyond the block scales that it shares.
    alone = model.embed(ids[1:2, :4], keep[1:2, :4]).numpy()
    exact = reference.sentences(reference.bert(held, c, ids[1:2, :4], keep[1:2, :4]), keep[1:2, :4])
    assert off(got[1:2], exact) < 2 * max(off(alone, exact), 0.01)


def test_what_bert_cannot_take_is_refused() -> None:
    model = Bert(draw_bert(SMALL_BERT), SMALL_BERT)
    with pytest.raises(Refusal, match="every token has a position"):
        model(np.zeros((1, 17), np.int64))
    with pytest.raises(Refusal, match="a sentence has a token"):
        model.embed(np.zeros((1, 4), np.int64), np.zeros((1, 4), np.float32))
    with pytest.raises(Refusal, match=r"ids lie in the table.*50.*0 to 49"):
        model(np.full((1, 4), 50))


def test_folded_biases_are_the_layer_with_all_four() -> None:
    rng = np.random.default_rng(8)
    q, k, v, o = (Linear(drawn(12, 12, seed=n) / 3, drawn(12, seed=n)) for n in range(4))
    x = rng.standard_normal((2, 5, 12))

    def heads(layer: Any) -> Any:
        return (x @ layer.w.T + layer.b).reshape(2, 5, 3, 4).swapaxes(1, 2)

    score = heads(q) @ heads(k).swapaxes(-1, -2) / 2
    e = np.exp(score)
    mixed = (e / e.sum(-1, keepdims=True) @ heads(v)).swapaxes(1, 2).reshape(2, 5, 12)
    folded = Attention.folded(3, q, k, v, o)
    np.testing.assert_allclose(reference.Reference().attention(x, folded), mixed @ o.w.T + o.b, atol=1e-5)
    with pytest.raises(Refusal, match="heads divide the width"):
        Attention.folded(5, q, k, v, o)


@pytest.mark.slow
def test_llama() -> None:
    c = SMALL_LLAMA
    weights = draw_llama(c, seed=7)
    tokens = np.random.default_rng(9).integers(0, c.vocabulary, (2, 19))
    got = Llama(weights, c)(tokens).numpy()
    held = doubles(weights)
    close(got, lambda r: reference.llama(held, c, tokens, r))
    assert ktpu.stats()["host_steps"] == 1
    assert ktpu.stats()["relayouts"] == 0


@pytest.mark.slow
def test_generation_with_a_cache_is_the_whole_sequence_at_once() -> None:
    c = SMALL_LLAMA
    weights = draw_llama(c, seed=7)
    model, held = Llama(weights, c), doubles(weights)
    tokens = np.random.default_rng(10).integers(0, c.vocabulary, (2, 11))
    logits, cache = model.prefill(tokens, capacity=15)
    assert cache.capacity == 15
    rows, steps = [logits.numpy()], []
    while cache.used < cache.capacity:
        steps.append(model.pick(logits))
        logits, cache = model.step(steps[-1], cache)
        rows.append(logits.numpy())
    whole = np.concatenate([tokens, np.stack(steps, 1)], 1)
    close(np.concatenate(rows, 1), lambda r: reference.llama(held, c, whole, r)[:, 10:])
    with pytest.raises(Refusal, match="room for one more token"):
        model.step(steps[-1], cache)
    with pytest.raises(Refusal, match="room for the prompt and a token"):
        model.prefill(tokens, capacity=11)
    generated = model.generate(tokens, 4)
    assert np.array_equal(generated, np.stack(steps[:4], 1))


@pytest.mark.slow
def test_every_step_runs_the_same_programs() -> None:
    model = Llama(draw_llama(SMALL_LLAMA), SMALL_LLAMA)
    logits, cache = model.prefill(np.arange(6)[None], capacity=12)
    from kohakutpu.lang.kernel import Kernel

    for _ in range(2):
        logits, cache = model.step(model.pick(logits), cache)
    ktpu.reset_stats()
    plans: list[int] = []
    real = Kernel._plan

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        before = len(self._plans)
        plan = real(self, *arguments, **options)
        plans.append(len(self._plans) - before)
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "_plan", counted)
        model.step(model.pick(logits), cache)
    assert plans
    assert not any(plans)
    assert ktpu.stats()["host_steps"] == 2
    assert ktpu.stats()["relayouts"] == 0


@pytest.mark.slow
def test_a_deep_model_is_linked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ktpu.device()
    ktpu.use(ktpu.device("ship_3x2"))  # its memory holds nothing of other tests, so addresses come again
    try:
        c = ViTConfig(image=8, patch=4, width=32, depth=9, heads=2, hidden=32, classes=5)
        model, images = ViT(draw_vit(c), c), drawn(1, 3, 8, 8)
        for _ in range(3):
            model(images)
        linked: list[str] = []
        real = Program.link
        monkeypatch.setattr(Program, "link", lambda self, *a: linked.append(self.kernel) or real(self, *a))
        model(images)
        assert not linked
    finally:
        ktpu.use(before)


def test_a_word_table_is_looked_up_by_the_host_and_counted() -> None:
    table = Embedding(drawn(10, 4))
    ids = np.array([[3, 3], [0, 9]])
    assert np.array_equal(table(ids).numpy(), table.table[ids])
    assert ktpu.stats()["host_steps"] == 1
    with pytest.raises(Refusal, match="looks up integers"):
        table(np.array([1.0]))
    with pytest.raises(Refusal, match="ids lie in the table"):
        table(np.array([-1]))


def test_parameters_are_the_same_for_the_same_seed() -> None:
    for draw in (
        lambda s: draw_vit(SMALL_VIT, s),
        lambda s: draw_bert(SMALL_BERT, s),
        lambda s: draw_llama(SMALL_LLAMA, s),
    ):
        one, two, other = draw(1), draw(1), draw(2)
        assert all(np.array_equal(a, b) for a, b in zip(leaves(one), leaves(two), strict=True))
        assert not any(np.array_equal(a, b) for a, b in zip(leaves(one), leaves(other), strict=True))
    blocks = 4 * (32 * 32) + 2 * 32 + 2 * 64 + 2 * 32 * 64 + 64 + 32
    assert count(draw_vit(SMALL_VIT)) == 32 * 48 + 32 + 6 * 32 + 2 * blocks + 64 + 5 * 33
