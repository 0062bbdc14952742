"""A vision transformer: patches, a class token, pre-norm encoder blocks, a linear head on the class token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu.device import Device
from kohakutpu.models.blocks import Attention, attend, draw_biased_attention, feed_forward, normed, traced
from kohakutpu.models.parameters import A, Draw, Host, Linear, Norm, on_device
from kohakutpu.tensor import Tensor


@dataclass(frozen=True)
class ViTConfig:
    """Sizes: square images of `channels`, cut into square patches."""

    image: int = 32
    patch: int = 8
    channels: int = 3
    width: int = 192
    depth: int = 4
    heads: int = 3
    hidden: int = 768
    classes: int = 10
    eps: float = 1e-6

    def __post_init__(self) -> None:
        for what, part in (("image", self.patch), ("width", self.heads)):
            if getattr(self, what) % part:
                raise Refusal("patches divide the image, heads the width", where=f"ViT {what}", got=self)

    @property
    def patches(self) -> int:
        return (self.image // self.patch) ** 2


@dataclass(frozen=True)
class ViTBlock(Generic[A]):
    norm1: Norm[A]
    attention: Attention[A]
    norm2: Norm[A]
    up: Linear[A]
    down: Linear[A]


@dataclass(frozen=True)
class ViTWeights(Generic[A]):
    """embed: w (width, channels * patch * patch). token (1, 1, width), position (1, 1 + patches, width)."""

    embed: Linear[A]
    token: A
    position: A
    blocks: tuple[ViTBlock[A], ...]
    norm: Norm[A]
    head: Linear[A]


def draw_vit(c: ViTConfig, seed: int = 0) -> ViTWeights[Host]:
    """Random weights."""
    draw, n = Draw(seed), c.width
    embed = draw.linear(n, c.channels * c.patch**2)
    token, position = draw.normal(1, 1, n, deviation=0.5), draw.normal(1, 1 + c.patches, n, deviation=0.5)
    blocks = tuple(
        ViTBlock(
            draw.norm(n),
            draw_biased_attention(draw, n, c.heads),
            draw.norm(n),
            draw.linear(c.hidden, n),
            draw.linear(n, c.hidden),
        )
        for _ in range(c.depth)
    )
    return ViTWeights(embed, token, position, blocks, draw.norm(n), draw.linear(c.classes, n))


class ViT:
    """Weights on a device; a call takes images (B, channels, image, image) to logits (B, classes).

    jit: the forward pass is traced once for each number of images, and compiled as one program.
    """

    def __init__(
        self, weights: ViTWeights[Host], config: ViTConfig, device: Device | None = None, jit: bool = False
    ) -> None:
        self.config = config
        self.weights: ViTWeights[Tensor] = on_device(weights, device)
        self.forward = traced(self._forward, jit)

    def __call__(self, images: Any) -> Tensor:
        c = self.config
        x = ktpu.tensor(images, device=self.weights.token.device)
        if x.shape[1:] != (c.channels, c.image, c.image):
            limit = f"(B, {c.channels}, {c.image}, {c.image})"
            raise Refusal("images have the model's size", where="ViT", got=x.shape, limit=limit)
        batch, side = x.shape[0], c.image // c.patch
        # Pixels that came from the host are put in patch order on their way to the device: no arithmetic.
        x = x.reshape(batch, c.channels, side, c.patch, side, c.patch).transpose(0, 2, 4, 1, 3, 5)
        return self.forward(x.reshape(batch, c.patches, -1))

    def _forward(self, patches: Tensor) -> Tensor:
        """Logits of patches (B, P, channels * patch * patch)."""
        c, w, batch = self.config, self.weights, patches.shape[0]
        x = kernels.linear(patches, w.embed.w, w.embed.b)
        x = kernels.concat([w.token.broadcast_to((batch, 1, c.width)), x], axis=1) + w.position
        for b in w.blocks:
            x = attend(normed(x, b.norm1, c.eps), b.attention, x)
            x = feed_forward(normed(x, b.norm2, c.eps), b.up, b.down, x)
        x = normed(kernels.slice(x, axis=1, start=0, stop=1), w.norm, c.eps)
        return kernels.linear(x.reshape(batch, c.width), w.head.w, w.head.b)
