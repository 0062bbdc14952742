"""A transformer block in words of the tensor level, run eagerly and as one graph: launches, simulated time, the plan.

kohaku run examples/kohakutpu/06_jit.py

Nothing in the block names a kernel: the scheduler writes them. The last line puts the library's attention in the
place of the one that is found in the graph: it holds fewer scores at a time, and takes longer at this size.
"""

from dataclasses import dataclass

import numpy as np

from kohakutpu import api as ktpu
from kohakutpu.auto.substitute_library import ATTENTION

LENGTH, WIDTH, HEADS, HEAD, HIDDEN = 128, 256, 4, 64, 512


@dataclass
class Weights:
    """Stored [N][K], on the device."""

    q: ktpu.Tensor
    k: ktpu.Tensor
    v: ktpu.Tensor
    o: ktpu.Tensor
    gate: ktpu.Tensor
    up: ktpu.Tensor
    down: ktpu.Tensor
    norm1: ktpu.Tensor
    norm2: ktpu.Tensor


def draw(rng: np.random.Generator) -> Weights:
    def normal(*shape: int) -> ktpu.Tensor:
        return ktpu.tensor(rng.standard_normal(shape) * shape[-1] ** -0.5)

    square = [normal(WIDTH, WIDTH) for _ in range(4)]
    return Weights(
        *square,
        gate=normal(HIDDEN, WIDTH),
        up=normal(HIDDEN, WIDTH),
        down=normal(WIDTH, HIDDEN),
        norm1=ktpu.ones((WIDTH,)),
        norm2=ktpu.ones((WIDTH,)),
    )


def block(x: ktpu.Tensor, w: Weights) -> ktpu.Tensor:
    """x (LENGTH, WIDTH): attention and a gated feed-forward, each behind a norm and beside a residual."""

    def heads(h: ktpu.Tensor, m: ktpu.Tensor) -> ktpu.Tensor:
        return (h @ m).reshape(LENGTH, HEADS, HEAD).transpose(1, 0, 2)

    h = x.rmsnorm(w.norm1)
    p = ((heads(h, w.q) @ heads(h, w.k)) * HEAD**-0.5).softmax()
    mixed = (p @ heads(h, w.v).transpose(0, 2, 1)).transpose(1, 0, 2).reshape(LENGTH, WIDTH)
    x = x + mixed @ w.o
    h = x.rmsnorm(w.norm2)
    return x + ((h @ w.gate).silu() * (h @ w.up)) @ w.down


def in_float64(x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    def norm(a: np.ndarray) -> np.ndarray:
        return a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-6)

    def heads(h: np.ndarray, m: np.ndarray) -> np.ndarray:
        return (h @ m.T).reshape(LENGTH, HEADS, HEAD).transpose(1, 0, 2)

    h = norm(x)
    s = heads(h, w["q"]) @ heads(h, w["k"]).transpose(0, 2, 1) * HEAD**-0.5
    p = np.exp(s - s.max(-1, keepdims=True))
    mixed = p / p.sum(-1, keepdims=True) @ heads(h, w["v"])
    x = x + mixed.transpose(1, 0, 2).reshape(LENGTH, WIDTH) @ w["o"].T
    h = norm(x)
    gate = h @ w["gate"].T
    return x + (gate / (1 + np.exp(-gate)) * (h @ w["up"].T)) @ w["down"].T


def main() -> None:
    rng = np.random.default_rng(6)
    x, w = ktpu.tensor(rng.standard_normal((LENGTH, WIDTH))), draw(rng)
    exact = in_float64(x.numpy().astype(float), {n: t.numpy().astype(float) for n, t in vars(w).items()})
    jitted = ktpu.jit(block)
    print(jitted.plan(x, w).pretty())
    print()
    cycles: list[float] = []
    bounded = ktpu.jit(substitutions=ATTENTION)(block)
    assert "library kernel flash_attention(" in bounded.plan(x, w).pretty()
    for name, run in (("eager", block), ("one graph", jitted), ("with a kernel", bounded)):
        run(x, w)  # compiled and with packed weights from here on
        ktpu.reset_stats()
        y, timeline = ktpu.time(run, x, w)
        launches = ktpu.stats()["dispatches"]
        error = np.linalg.norm(y.numpy() - exact) / np.linalg.norm(exact)
        print(f"{name:13} {launches:3} launches, {timeline.cycles:>9,.0f} cycles simulated, relative error {error:.2e}")
        assert error < 0.03
        cycles.append(timeline.cycles)
    print(f"one graph takes {cycles[1] / cycles[0]:.2f} of the eager time")
    assert cycles[1] <= cycles[2] < cycles[0]


if __name__ == "__main__":
    main()
