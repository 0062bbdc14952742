"""A BERT encoder: embeddings with learned positions, post-norm blocks, sentence embeddings by pooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu
from kohakutpu.device import Device
from kohakutpu.models.blocks import Attention, attend, draw_biased_attention, feed_forward, normed, traced
from kohakutpu.models.kernels import pooled
from kohakutpu.models.parameters import A, Draw, Embedding, Host, Linear, Norm, on_device
from kohakutpu.tensor import Tensor


@dataclass(frozen=True)
class BertConfig:
    """Sizes; the defaults are those of MiniLM-L6 but for the vocabulary."""

    vocabulary: int = 1000
    positions: int = 512
    width: int = 384
    depth: int = 6
    heads: int = 12
    hidden: int = 1536
    eps: float = 1e-12


@dataclass(frozen=True)
class BertBlock(Generic[A]):
    attention: Attention[A]
    norm1: Norm[A]
    up: Linear[A]
    down: Linear[A]
    norm2: Norm[A]


@dataclass(frozen=True)
class BertWeights(Generic[A]):
    """words (V, N) stay on the host; offsets (P, N) are the embeddings of position and of segment 0, added up."""

    words: A
    offsets: A
    norm: Norm[A]
    blocks: tuple[BertBlock[A], ...]


def draw_bert(c: BertConfig, seed: int = 0) -> BertWeights[Host]:
    """Random weights."""
    draw, n = Draw(seed), c.width
    words, offsets, norm = draw.normal(c.vocabulary, n), draw.normal(c.positions, n, deviation=0.5), draw.norm(n)
    blocks = tuple(
        BertBlock(
            draw_biased_attention(draw, n, c.heads),
            draw.norm(n),
            draw.linear(c.hidden, n),
            draw.linear(n, c.hidden),
            draw.norm(n),
        )
        for _ in range(c.depth)
    )
    return BertWeights(words, offsets, norm, blocks)


def bert_from_state(state: Mapping[str, NDArray[Any]], heads: int) -> BertWeights[Host]:
    """Weights from a checkpoint's arrays under the names of its common form
    ("encoder.layer.0.attention.self.query.weight", ...). Biases of k and v are folded (see `Attention.folded`).
    Refused: a name that is missing."""

    def take(name: str) -> Host:
        if name not in state:
            raise Refusal("a checkpoint has every weight of the encoder", where="BERT weights", got=f"no {name}")
        return np.asarray(state[name], np.float32)

    def linear(name: str) -> Linear[Host]:
        return Linear(take(f"{name}.weight"), take(f"{name}.bias"))

    def norm(name: str) -> Norm[Host]:
        return Norm(take(f"{name}.LayerNorm.weight"), take(f"{name}.LayerNorm.bias"))

    def block(at: str) -> BertBlock[Host]:
        parts = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
        return BertBlock(
            Attention.folded(heads, *(linear(f"{at}.{part}") for part in parts)),
            norm(f"{at}.attention.output"),
            linear(f"{at}.intermediate.dense"),
            linear(f"{at}.output.dense"),
            norm(f"{at}.output"),
        )

    depth = 1 + max((int(name.split(".")[2]) for name in state if name.startswith("encoder.layer.")), default=-1)
    offsets = take("embeddings.position_embeddings.weight") + take("embeddings.token_type_embeddings.weight")[0]
    blocks = tuple(block(f"encoder.layer.{n}") for n in range(depth))
    return BertWeights(take("embeddings.word_embeddings.weight"), offsets, norm("embeddings"), blocks)


class Bert:
    """Weights on a device, the word table on the host: looking words up is a host step.

    jit: what follows the lookup is traced once for each shape, and compiled as one program.
    """

    def __init__(
        self, weights: BertWeights[Host], config: BertConfig, device: Device | None = None, jit: bool = False
    ) -> None:
        self.config = config
        self.words = Embedding(weights.words, device)
        self.offsets = np.asarray(weights.offsets, np.float16)
        self.norm: Norm[Tensor] = on_device(weights.norm, device)
        self.blocks: tuple[BertBlock[Tensor], ...] = on_device(weights.blocks, device)
        self.forward = traced(self._forward, jit)

    def __call__(self, ids: NDArray[Any], keep: NDArray[Any] | None = None) -> Tensor:
        """Hidden values (B, L, width) of integer ids (B, L), all of segment 0. keep (B, L): tokens that count.

        Refused: more tokens than positions.
        """
        length = ids.shape[-1]
        if ids.ndim != 2 or length > len(self.offsets):
            limit = f"(B, at most {len(self.offsets)})"
            raise Refusal("every token has a position", where="BERT", got=f"ids {ids.shape}", limit=limit)
        device = self.norm.w.device
        mask = None if keep is None else ktpu.tensor(keep, device=device)
        return self.forward(self.words(ids), ktpu.tensor(self.offsets[:length], device=device), mask)

    def _forward(self, words: Tensor, offsets: Tensor, mask: Tensor | None) -> Tensor:
        x = normed(words + offsets, self.norm, self.config.eps)
        for b in self.blocks:
            x = normed(attend(x, b.attention, x, mask), b.norm1, self.config.eps)
            x = normed(feed_forward(x, b.up, b.down, x), b.norm2, self.config.eps)
        return x

    def embed(self, ids: NDArray[Any], keep: NDArray[Any]) -> Tensor:
        """Sentence embeddings (B, width) of length 1: the mean of the tokens that count."""
        if not np.asarray(keep).any(-1).all():
            raise Refusal("a sentence has a token", where="BERT, keep", got="a row of zeros")
        share = keep / np.sum(keep, -1, keepdims=True)
        return pooled(self(ids, keep), ktpu.tensor(share, device=self.norm.w.device))
