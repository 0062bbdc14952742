"""Models with trained weights: digits of scikit-learn, sentences of MiniLM. What they say is what float32 says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu
from kohakutpu.models import MLP, BertWeights, Linear, bert_from_state, draw_bert, minilm, reference
from kohakutpu.models.bert import BertConfig
from kohakutpu.models.minilm import MiniLM
from models.predicted import close, doubles, noisy, off

SENTENCES = ("A man is eating food.", "Someone eats a meal.", "The bank left interest rates unchanged this quarter.")


@pytest.mark.slow
def test_digits_are_read_as_in_float32() -> None:
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    pixels, labels = (pixels[order] / 16).astype(np.float32), labels[order]
    options: dict[str, Any] = {"learning_rate_init": 5e-3, "tol": 1e-3, "batch_size": 64, "random_state": 0}
    net = MLPClassifier((64,), **options)
    net.fit(pixels[:900], labels[:900])
    assert net.coefs_[0].dtype == np.float32
    test, truth = pixels[900:], labels[900:]
    got = MLP.from_numpy([w.T for w in net.coefs_], net.intercepts_, activation="relu")(test).numpy()
    layers = tuple(Linear(w.T, b) for w, b in zip(net.coefs_, net.intercepts_))
    held = doubles(layers)
    close(got, lambda r: reference.mlp(held, test.astype(float), lambda v: np.maximum(v, 0), r))
    want = reference.mlp(layers, test, lambda v: np.maximum(v, 0))
    ours, float32 = (float(np.mean(logits.argmax(-1) == truth)) for logits in (got, want))
    assert float32 > 0.96
    assert abs(ours - float32) <= 0.01


@pytest.fixture(scope="module")
def lm() -> MiniLM:
    return MiniLM.load()


@pytest.mark.slow
def test_minilm(lm: MiniLM) -> None:
    ids, keep = lm.tokens(SENTENCES)
    ktpu.reset_stats()
    got = lm.on().embed(ids, keep).numpy().astype(np.float64)
    assert ktpu.stats()["host_steps"] == 1
    assert ktpu.stats()["relayouts"] == 0
    assert ktpu.stats()["saturations"] == 0
    want = reference.sentences(reference.checkpoint(lm.state, lm.config.heads, lm.config.eps, ids, keep), keep)
    cosines = (got * want).sum(-1) / np.linalg.norm(got, axis=-1)
    assert cosines.min() > 0.99
    assert got[0] @ got[1] > got[0] @ got[2] + 0.3
    np.testing.assert_allclose(got @ got.T, want @ want.T, atol=0.05)
    # The formats alone predict the error.
    weights: BertWeights[Any] = doubles(bert_from_state(lm.state, lm.config.heads))

    def model(arithmetic: reference.Reference) -> Any:
        return reference.sentences(reference.bert(weights, lm.config, ids, keep, arithmetic), keep)

    close(got, model, draws=2)
    assert off(want, model(reference.Reference())) < 2e-3  # folding and the tanh form of gelu are not what costs
    assert off(model(noisy(0)), want) > 0.01


def test_tokens_are_padded_to_the_longest(lm: MiniLM) -> None:
    ids, keep = lm.tokens(("A man is eating food.", "Hi"))
    assert ids.tolist() == [[101, 1037, 2158, 2003, 5983, 2833, 1012, 102], [101, 7632, 102, 0, 0, 0, 0, 0]]
    assert keep.tolist() == [[1] * 8, [1] * 3 + [0] * 5]
    assert lm.tokens(("word " * 400,))[0].shape == (1, 128)
    with pytest.raises(Refusal, match="a batch has a sentence"):
        lm.tokens(())


def test_a_missing_package_or_weight_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"no encoder\.layer\.0"):
        bert_from_state(
            {
                "encoder.layer.0.x": np.zeros(1),
                "embeddings.position_embeddings.weight": np.zeros((2, 2)),
                "embeddings.token_type_embeddings.weight": np.zeros((2, 2)),
            },
            1,
        )
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(Refusal, match=r"holds a BERT encoder.*gpt2"):
        MiniLM.load(tmp_path)
    monkeypatch.setattr(minilm, "PACKAGE", "no_such_package_at_all")
    with pytest.raises(Refusal, match=r"no no_such_package_at_all.*make setup"):
        minilm.folder()


def test_the_checkpoint_reference_is_the_models_own() -> None:
    """Two references written apart, one from folded weights and one from the checkpoint's names, agree."""
    c = BertConfig(vocabulary=30, positions=8, width=32, depth=2, heads=2, hidden=48)
    drawn = draw_bert(c, seed=3)
    rng = np.random.default_rng(4)
    names = {"query": (32, 32), "key": (32, 32), "value": (32, 32)}
    state: dict[str, Any] = {
        "embeddings.word_embeddings.weight": drawn.words,
        "embeddings.position_embeddings.weight": drawn.offsets,
        "embeddings.token_type_embeddings.weight": np.zeros((2, 32)),
        "embeddings.LayerNorm.weight": drawn.norm.w,
        "embeddings.LayerNorm.bias": drawn.norm.b,
    }
    for n in range(c.depth):
        at = f"encoder.layer.{n}"
        layers = {f"{at}.attention.self.{name}": shape for name, shape in names.items()}
        layers |= {f"{at}.attention.output.dense": (32, 32), f"{at}.intermediate.dense": (48, 32)}
        layers[f"{at}.output.dense"] = (32, 48)
        for name, shape in layers.items():
            state[f"{name}.weight"] = rng.standard_normal(shape) / 6
            state[f"{name}.bias"] = rng.standard_normal(shape[0]) / 4
        for name in (f"{at}.attention.output", f"{at}.output"):
            state[f"{name}.LayerNorm.weight"] = 1 + rng.standard_normal(32) / 10
            state[f"{name}.LayerNorm.bias"] = rng.standard_normal(32) / 10
    state = {name: np.asarray(array, np.float64) for name, array in state.items()}
    ids, keep = rng.integers(0, 30, (2, 7)), np.array([[1] * 7, [1] * 4 + [0] * 3])
    exact = reference.Reference(gelu=reference.exact_gelu)
    folded = reference.bert(doubles(bert_from_state(state, c.heads)), c, ids, keep, exact)
    np.testing.assert_allclose(reference.checkpoint(state, c.heads, c.eps, ids, keep), folded, atol=1e-4)
