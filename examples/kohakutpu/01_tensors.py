"""The tensor level: say what to compute; the stack packs, compiles, runs and counts.

kohaku run examples/kohakutpu/01_tensors.py
"""

from __future__ import annotations

import numpy as np

from kohakutpu import api as ktpu


def relative_error(got: np.ndarray, exact: np.ndarray) -> float:
    """Root mean square of the difference over that of the exact values."""
    return float(np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2)))


def main() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((256, 512)).astype(np.float16)
    W = (rng.standard_normal((256, 512)) / np.sqrt(512)).astype(np.float16)

    x, w = ktpu.tensor(X), ktpu.tensor(W)
    y = (x @ w).silu()  # @ contracts the LAST axis of both: w is [N][K], as a linear layer keeps it
    result = y.numpy()  # the only line that brings values back

    product = X.astype(np.float64) @ W.astype(np.float64).T
    exact = product / (1 + np.exp(-product))
    print(result)
    print(f"\ny is {y.shape} {y.dtype}; relative error against float64: {relative_error(result, exact):.1e}")
    print("  (the matmul runs in 7-bit block floating point, MXFP7: about 1.6e-2 is what that format gives)")

    z = x + x * 0.5  # elementwise work runs in the vector cores, with 16 bits of mantissa
    error = relative_error(z.numpy(), X.astype(np.float64) * 1.5)
    print(f"x + x * 0.5: relative error {error:.1e} (the final rounding to FP16)")
    print(f"\nsoftmax rows sum to {y.softmax().numpy().astype(np.float64).sum(axis=-1)[:3]}")

    cost = ktpu.stats()
    instructions = sum(cost["flits"].values())
    print(f"\ncost: {instructions} instructions in {cost['dispatches']} dispatches and {cost['rounds']} rounds,")
    print(f"  {cost['bytes_to_device']} bytes to the device, {cost['bytes_from_device']} back,")
    print(f"  {cost['relayouts']} relayout through the host, {cost['saturations']} saturated values")


if __name__ == "__main__":
    main()
