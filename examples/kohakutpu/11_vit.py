"""A vision transformer with random weights: images of 32 x 32 pixels in patches of 8.

kohaku run examples/kohakutpu/11_vit.py
"""

import numpy as np

from kohakutpu.models import ViT, ViTConfig, count, draw_vit, reference
from kohakutpu.models.figures import jitted, measured

CONFIG = ViTConfig(image=32, patch=8, width=192, depth=4, heads=3, hidden=768, classes=10)


def main() -> None:
    weights = draw_vit(CONFIG, seed=11)
    images = np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype(np.float32)
    model = ViT(weights, CONFIG)
    want = reference.vit(weights, CONFIG, images)
    _, figures = measured(lambda: model(images), want)
    print(f"ViT of {CONFIG.depth} blocks, width {CONFIG.width}, {count(weights) / 1e6:.1f} M parameters, 2 images")
    print(figures.pretty())
    one = ViT(weights, CONFIG, jit=True)
    print(jitted(figures, lambda: one(images), want))
    assert figures.error < 0.06
    assert figures.relayouts == 0


if __name__ == "__main__":
    main()
