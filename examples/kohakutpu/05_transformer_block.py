"""A transformer block from library kernels: rmsnorm, attention with rotary positions, residual, gated feed-forward.

kohaku run examples/kohakutpu/05_transformer_block.py

The error is compared with a prediction from the number formats alone: the same block in float64, its products taken of
operands that are off by a uniform error of one quantisation step.
"""

import time
from dataclasses import dataclass

import numpy as np

from kohakutpu import api as ktpu
from kohakutpu import kernels

LENGTH, WIDTH, HEADS, HEAD, HIDDEN = 256, 512, 8, 64, 1408


@dataclass
class Weights:
    """Stored [N][K]; the attention projections with a matrix per head."""

    q: object
    k: object
    v: object
    o: object
    gate: object
    up: object
    down: object
    norm1: object
    norm2: object


def draw(rng) -> Weights:
    def normal(*shape, fan_in):
        return (rng.standard_normal(shape) * fan_in**-0.5).astype(np.float16)

    heads = [normal(HEADS, HEAD, WIDTH, fan_in=WIDTH) for _ in range(3)]
    return Weights(
        *heads,
        o=normal(HEADS, WIDTH, HEAD, fan_in=WIDTH),
        gate=normal(HIDDEN, WIDTH, fan_in=WIDTH),
        up=normal(HIDDEN, WIDTH, fan_in=WIDTH),
        down=normal(WIDTH, HIDDEN, fan_in=HIDDEN),
        norm1=np.ones(WIDTH, np.float16),
        norm2=np.ones(WIDTH, np.float16),
    )


def block(x, w, cos, sin):
    """Ten dispatches; values stay on the device from x to the result."""
    h = kernels.rmsnorm(x, w.norm1)
    q, k, v = (kernels.split_heads(h, m) for m in (w.q, w.k, w.v))
    q, k = kernels.rope(q, cos, sin), kernels.rope(k, cos, sin)
    x = kernels.merge_heads(kernels.flash_attention(q, k, v, causal=True), w.o, x)
    return kernels.swiglu(kernels.rmsnorm(x, w.norm2), w.gate, w.up, w.down, x)


def in_float64(x, w, cos, sin, noise=None):
    """The block in float64; with `noise` (a random generator), products of operands off by half a step at most."""

    def quantised(a):
        if noise is None:
            return a
        peak = np.abs(a.reshape(*a.shape[:-1], -1, 32)).max(-1, keepdims=True)  # 32 elements share a scale
        step = np.broadcast_to(peak / 63, (*peak.shape[:-1], 32)).reshape(a.shape)
        return a + step * noise.uniform(-0.5, 0.5, a.shape)

    def product(a, b):
        return quantised(a) @ quantised(b).swapaxes(-1, -2)

    def norm(a):
        return a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-6)

    def turn(a):
        first, second = a[..., : HEAD // 2], a[..., HEAD // 2 :]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    h = norm(x)[:, None]
    q, k, v = turn(product(h, w.q)), turn(product(h, w.k)), product(h, w.v)
    s = np.where(np.tri(LENGTH), product(q, k) * HEAD**-0.5, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    o = product(p / p.sum(-1, keepdims=True), v.swapaxes(-1, -2))
    x = x + product(o, w.o).sum(1)
    h = norm(x)
    gate = product(h, w.gate)
    return x + product(gate / (1 + np.exp(-gate)) * product(h, w.up), w.down)


def main() -> None:
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((1, LENGTH, WIDTH)).astype(np.float16), draw(rng)
    cos, sin = kernels.rope_tables(LENGTH, HEAD)
    on_device = Weights(*(ktpu.tensor(a) for a in vars(w).values()))
    inputs = ktpu.tensor(x), on_device, ktpu.tensor(cos), ktpu.tensor(sin)

    start = time.perf_counter()
    y = block(*inputs).numpy()
    cold = time.perf_counter() - start
    ktpu.reset_stats()
    start = time.perf_counter()
    again = block(*inputs).numpy()
    warm = time.perf_counter() - start
    assert np.array_equal(y, again)

    doubles = x.astype(np.float64), Weights(*(a.astype(np.float64) for a in vars(w).values())), cos, sin
    exact = in_float64(*doubles)
    predicted = np.linalg.norm(in_float64(*doubles, noise=np.random.default_rng(0)) - exact) / np.linalg.norm(exact)
    error = np.linalg.norm(y - exact) / np.linalg.norm(exact)
    macs = LENGTH * WIDTH * (4 * HEADS * HEAD + 3 * HIDDEN) + 2 * HEADS * LENGTH * LENGTH * HEAD
    found = ktpu.stats()
    print(f"block of {LENGTH} x {WIDTH}, {HEADS} heads, {macs / 1e6:.0f} M multiply-accumulates")
    print(f"relative error {error:.2e}, predicted by the formats {predicted:.2e}")
    print(f"simulated in {cold:.2f} s with compiling, {warm:.2f} s after that")
    print(f"{found['dispatches']} dispatches, {found['device_relayouts']} relayouts on the device, ", end="")
    print(f"{found['relayouts']} through the host, {found['bytes_from_device']:,} bytes back")
    assert error < 1.25 * predicted
    assert found["relayouts"] == 0


if __name__ == "__main__":
    main()
