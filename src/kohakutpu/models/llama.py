"""A Llama-style decoder: rms norms, rotary positions, grouped-query attention, a gated feed-forward block, a cache of
keys and values for generation.

The host looks embeddings up and picks the next token: two host steps per token, counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu.device import Device
from kohakutpu.models.blocks import Attention, draw_attention, normed, traced
from kohakutpu.models.kernels import remember, written
from kohakutpu.models.parameters import A, Draw, Embedding, Host, Norm, on_device
from kohakutpu.tensor import Tensor

Tensors = tuple[Tensor, ...]
Turns = tuple[Tensor, Tensor]
"""Cosines and sines of the positions."""


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes: `heads` of q, `groups` heads of k and v, each `head` wide."""

    vocabulary: int = 512
    width: int = 256
    depth: int = 4
    heads: int = 8
    groups: int = 2
    head: int = 32
    hidden: int = 704
    base: float = 10000.0
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.heads % self.groups or self.head % 2:
            raise Refusal("groups divide the heads, a head has pairs", where="Llama", got=self)


@dataclass(frozen=True)
class LlamaBlock(Generic[A]):
    """gate and up (hidden, width), down (width, hidden)."""

    norm1: Norm[A]
    attention: Attention[A]
    norm2: Norm[A]
    gate: A
    up: A
    down: A


@dataclass(frozen=True)
class LlamaWeights(Generic[A]):
    """words (V, width) stay on the host; head (V, width) gives the logits."""

    words: A
    blocks: tuple[LlamaBlock[A], ...]
    norm: Norm[A]
    head: A


def draw_llama(c: LlamaConfig, seed: int = 0) -> LlamaWeights[Host]:
    """Random weights."""
    draw, n = Draw(seed), c.width
    words = draw.normal(c.vocabulary, n)
    blocks = tuple(
        LlamaBlock(
            draw.norm(n, bias=False),
            draw_attention(draw, n, c.heads, c.groups, c.head),
            draw.norm(n, bias=False),
            draw.weight(c.hidden, n),
            draw.weight(c.hidden, n),
            draw.weight(n, c.hidden),
        )
        for _ in range(c.depth)
    )
    return LlamaWeights(words, blocks, draw.norm(n, bias=False), draw.weight(c.vocabulary, n))


@dataclass(frozen=True)
class Cache:
    """Keys and values of every block, each (B, groups, capacity, head); the first `used` rows count."""

    keys: Tensors
    values: Tensors
    used: int

    @property
    def capacity(self) -> int:
        return self.keys[0].shape[2]


class Llama:
    """Weights on a device, the word table on the host.

    jit: what follows the lookup is compiled as one program, of a prompt once for each length, of a step once for each
    capacity.
    """

    def __init__(
        self, weights: LlamaWeights[Host], config: LlamaConfig, device: Device | None = None, jit: bool = False
    ) -> None:
        self.config = config
        self.words = Embedding(weights.words, device)
        self.blocks: tuple[LlamaBlock[Tensor], ...] = on_device(weights.blocks, device)
        self.norm: Norm[Tensor] = on_device(weights.norm, device)
        self.head: Tensor = ktpu.tensor(weights.head, device=device).pin()
        self.whole, self.first, self.next = traced(self._whole, jit), traced(self._first, jit), traced(self._next, jit)
        self.remember = written if jit else remember

    @property
    def device(self) -> Device:
        return self.head.device

    def _turns(self, length: int, first: int) -> Turns:
        cos, sin = kernels.rope_tables(length, self.config.head, self.config.base, first)
        return ktpu.tensor(cos, device=self.device), ktpu.tensor(sin, device=self.device)

    def _projected(self, x: Tensor, block: LlamaBlock[Tensor], turns: Turns) -> tuple[Tensor, Tensor, Tensor]:
        """q, k (rotated) and v of x (B, L, width)."""
        h, w = normed(x, block.norm1, self.config.eps), block.attention
        q, k, v = (kernels.split_heads(h, m) for m in (w.q, w.k, w.v))
        return kernels.rope(q, *turns), kernels.rope(k, *turns), v

    def _rest(self, o: Tensor, x: Tensor, block: LlamaBlock[Tensor]) -> Tensor:
        x = kernels.merge_heads(o, block.attention.o, x)
        h = normed(x, block.norm2, self.config.eps)
        return kernels.swiglu(h, block.gate, block.up, block.down, x)

    def _logits(self, x: Tensor) -> Tensor:
        return normed(x, self.norm, self.config.eps) @ self.head

    def __call__(self, tokens: NDArray[Any]) -> Tensor:
        """Logits (B, L, vocabulary) of every position of integer tokens (B, L)."""
        return self.whole(self.words(tokens), self._turns(tokens.shape[1], 0))

    def _passed(self, x: Tensor, turns: Turns) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Hidden values behind all blocks, and the keys and values of each."""
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for block in self.blocks:
            q, k, v = self._projected(x, block, turns)
            x = self._rest(kernels.flash_attention(q, k, v, causal=True), x, block)
            keys.append(k)
            values.append(v)
        return x, keys, values

    def _whole(self, x: Tensor, turns: Turns) -> Tensor:
        return self._logits(self._passed(x, turns)[0])

    def prefill(self, tokens: NDArray[Any], capacity: int) -> tuple[Tensor, Cache]:
        """Logits (B, 1, vocabulary) behind the last of tokens (B, L), and a cache with room for `capacity` in all.

        Refused: a capacity below L + 1.
        """
        batch, length = tokens.shape
        c = self.config
        if capacity <= length:
            raise Refusal("a cache has room for the prompt and a token", where="Llama", got=capacity, limit=length + 1)
        room = ktpu.zeros((batch, c.groups, capacity - length, c.head), device=self.device)
        logits, keys, values = self.first(self.words(tokens), self._turns(length, 0), room)
        return logits, Cache(keys, values, length)

    def _first(self, x: Tensor, turns: Turns, room: Tensor) -> tuple[Tensor, Tensors, Tensors]:
        x, keys, values = self._passed(x, turns)
        last = kernels.slice(x, axis=1, start=x.shape[1] - 1, stop=x.shape[1])
        filled = [tuple(kernels.concat([part, room], axis=2) for part in each) for each in (keys, values)]
        return self._logits(last), filled[0], filled[1]

    def step(self, tokens: NDArray[Any], cache: Cache) -> tuple[Tensor, Cache]:
        """Logits (B, 1, vocabulary) behind one more token for each sequence, tokens (B,); the cache with it.

        The position is data: every step runs the same programs. Refused: a full cache.
        """
        at = cache.used
        if at >= cache.capacity:
            raise Refusal("a cache has room for one more token", where="Llama", got=at + 1, limit=cache.capacity)
        batch = tokens.shape[0]
        place = np.arange(cache.capacity)
        here = ktpu.tensor(place == at, device=self.device)
        keep = ktpu.tensor(np.broadcast_to(place <= at, (batch, cache.capacity)), device=self.device)
        x, turns = self.words(tokens[:, None]), self._turns(1, at)
        logits, keys, values = self.next(x, turns, here, keep, cache.keys, cache.values)
        return logits, Cache(keys, values, at + 1)

    def _next(
        self, x: Tensor, turns: Turns, here: Tensor, keep: Tensor, old_keys: Tensors, old_values: Tensors
    ) -> tuple[Tensor, Tensors, Tensors]:
        c, batch = self.config, x.shape[0]
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for n, block in enumerate(self.blocks):
            q, k, v = self._projected(x, block, turns)
            seen_k, seen_v = self.remember(old_keys[n], old_values[n], k, v, here)
            # The heads of a group are rows against the same keys.
            rows = q.reshape(batch, c.groups, c.heads // c.groups, c.head)
            o = kernels.flash_attention(rows, seen_k, seen_v, keep=keep).reshape(batch, c.heads, 1, c.head)
            x = self._rest(o, x, block)
            keys.append(seen_k)
            values.append(seen_v)
        return self._logits(x), tuple(keys), tuple(values)

    def generate(self, tokens: NDArray[Any], count: int, capacity: int | None = None) -> NDArray[np.int64]:
        """`count` more tokens (B, count) behind tokens (B, L), the likeliest each time."""
        room = tokens.shape[1] + count if capacity is None else capacity
        logits, cache = self.prefill(tokens, room)
        found = [self.pick(logits)]
        while len(found) < count:
            logits, cache = self.step(found[-1], cache)
            found.append(self.pick(logits))
        return np.stack(found, axis=1)

    def pick(self, logits: Tensor) -> NDArray[np.int64]:
        """The likeliest token of each sequence (B,), picked by the host: a host step."""
        self.device.counters.host_steps += 1
        return np.argmax(logits.numpy()[:, -1], axis=-1)
