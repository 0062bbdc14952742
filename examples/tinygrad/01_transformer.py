"""A transformer block written in tinygrad's words, on the machine: its error against float32, what ran where.

kohaku run examples/tinygrad/01_transformer.py
"""

import numpy as np
from tinygrad.dtype import dtypes
from tinygrad.helpers import Context
from tinygrad.nn import LayerNorm, Linear
from tinygrad.nn.state import get_parameters
from tinygrad.tensor import Tensor

import kohakutpu.tinygrad as kt

TOKENS, WIDTH, HEADS = 32, 64, 2


class Block:
    """Attention and a feed-forward layer, each behind a norm."""

    def __init__(self) -> None:
        self.norm1, self.norm2 = LayerNorm(WIDTH), LayerNorm(WIDTH)
        self.qkv, self.out = Linear(WIDTH, 3 * WIDTH, bias=False), Linear(WIDTH, WIDTH)
        self.up, self.down = Linear(WIDTH, 2 * WIDTH), Linear(2 * WIDTH, WIDTH)

    def __call__(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norm1(x)).reshape(TOKENS, 3, HEADS, WIDTH // HEADS).permute(1, 2, 0, 3)
        attended = heads[0].scaled_dot_product_attention(heads[1], heads[2], is_causal=True)
        x = x + self.out(attended.permute(1, 0, 2).reshape(TOKENS, WIDTH))
        return x + self.down(self.up(self.norm2(x)).gelu())


def main() -> float:
    """The relative error."""
    x = np.random.default_rng(0).normal(size=(TOKENS, WIDTH)).astype(np.float16)
    with Context(DEV="KTPU"):
        Tensor.manual_seed(0)
        block = Block()
        for p in get_parameters(block):
            p.replace(p.cast(dtypes.half).contiguous()).realize()
        kt.reset()
        with kt.clock() as report:
            ours = block(Tensor(x)).float().numpy()
        did = str(report)
        for p in get_parameters(block):
            p.replace(p.float().contiguous()).realize()
        with kt.numerics(float32="host"):
            exact = block(Tensor(x.astype(np.float32))).numpy()
    error = float(np.linalg.norm(ours - exact) / np.linalg.norm(exact))
    print(f"a block of {TOKENS} tokens, width {WIDTH}, {HEADS} heads, float16")
    print(did)
    print(f"error to float32 {error:.2e}")
    return error


if __name__ == "__main__":
    assert main() < 0.05
