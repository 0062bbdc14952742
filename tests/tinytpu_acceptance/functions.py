"""Division, reciprocals, transcendental functions, activations: by numpy's float64, well within the sheet's tolerances.

The datasheet's tolerances are the floor (12); here a row has 3e-6 relative, where it has no other number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tinytpu_acceptance.table import Check, Table, table
from tinytpu_acceptance.tensors import F32, SPECIALS, Array, crossed, reals, tensor, uniform

One = Callable[[Any], Any]


def wide(fn: Callable[..., Any]) -> Callable[..., Any]:
    """numpy's float64, rounded once."""
    return lambda *x: np.asarray(fn(*[v.astype(float) for v in x])).astype(F32)


def quotients() -> Iterator[Check]:
    for shape in ((1,), (5,), (17,), (4, 4), (3, 7), (80,)):
        label = "x".join(map(str, shape))
        x, y = reals(1, *shape), uniform(2, 0.5, 4, *shape) * F32(-1)
        yield tensor(f"two tensors {label}", lambda x, y: x / y, x, y, want=wide(lambda x, y: x / y), rtol=6e-7)
        yield tensor(f"reciprocal {label}", lambda x: x.reciprocal(), y, want=wide(lambda x: 1 / x), rtol=4e-7)
    for c in (2.0, 3.0, -0.7):
        yield tensor(
            f"by {c}", lambda x, c=c: x / c, reals(3, 20), want=wide(lambda x, c=c: x / float(F32(c))), rtol=4e-7
        )
        yield tensor(
            f"{c} by a tensor",
            lambda x, c=c: c / x,
            uniform(4, -3, -0.4, 20),
            want=wide(lambda x, c=c: float(F32(c)) / x),
            rtol=6e-7,
        )
    yield tensor(
        "of int32",
        lambda x, y: x / y,
        np.arange(-8, 9, dtype=np.int32),
        np.full(17, 4, np.int32),
        want=np.arange(-8, 9).astype(F32) / F32(4),
        rtol=4e-7,
    )
    a, b = crossed(SPECIALS)
    # tinygrad multiplies by the reciprocal, which is Inf for the least numbers.
    yield tensor(
        "zeros, Inf, NaN, subnormals",
        lambda x, y: x / y,
        a,
        b,
        want=lambda x, y: x * (F32(1) / y),
        rtol=6e-7,
        atol=1.5e-45,
    )
    yield tensor(
        "reciprocals of them",
        lambda x: x.reciprocal(),
        SPECIALS,
        want=lambda x: (F32(1) / x).astype(F32),
        rtol=4e-7,
        atol=1.5e-45,
    )
    large = np.array([0x7EC00000, 0x7F000000, 0x7E800000, 0x7F7FFFFF, 0x00400000, 0x00200000], np.uint32).view(F32)
    yield tensor(
        "reciprocals of the largest",
        lambda x: x.reciprocal(),
        large,
        want=lambda x: (F32(1) / x).astype(F32),
        rtol=4e-7,
        atol=1.5e-45,
    )


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softplus(x: Array) -> Array:
    return np.logaddexp(x, 0)


# method -> (its numpy, [(inputs, atol or 0)]); 3e-6 relative everywhere.
S = float
Ranges = list[tuple[Array, float]]
FUNCTIONS: dict[str, tuple[One, One, Ranges]] = {
    "exp2": (lambda x: x.exp2(), np.exp2, [(np.array([0, 1, 2, -1], F32), 0), (uniform(1, -1, 1, 16), 0),
        (uniform(2, -1.5, 1.5, 32), 0), (uniform(3, -126, 127, 40), 0)]),
    "exp": (lambda x: x.exp(), np.exp, [(uniform(1, -3, 3, 16), 0), (uniform(2, -0.5, 0.5, 5), 0),
        (uniform(3, -0.5, 0.5, 32), 0), (uniform(4, -20, 20, 40), 3e-45)]),
    "log2": (lambda x: x.log2(), np.log2, [(np.exp2(np.arange(-4, 12)).astype(F32), 0),
        (uniform(1, 0.25, 20, 16), 2e-7)]),
    "log": (lambda x: x.log(), np.log, [(np.exp2(np.arange(-4, 12)).astype(F32), 2e-7),
        (uniform(1, 0.25, 20, 16), 2e-7), (np.exp(uniform(2, -80, 80, 40)), 2e-7)]),
    "log10": (lambda x: x.log10(), np.log10, [(uniform(1, 0.25, 20, 16), 2e-7)]),
    "sin": (lambda x: x.sin(), np.sin, [(uniform(1, -1.4, 1.4, 5), 3e-7), (uniform(2, -1.5, 1.5, 16), 3e-7),
        (uniform(3, -9.42, 9.42, 16), 3e-7), (uniform(4, -1e4, 1e4, 40), 3e-7)]),
    "cos": (lambda x: x.cos(), np.cos, [(uniform(1, 0, 1.047, 5), 2e-6), (uniform(2, 0, 1.57, 16), 2e-6),
        (uniform(3, -9.42, 9.42, 16), 2e-6), (np.array([np.pi, 0, -np.pi], F32), 2e-6)]),
    "tan": (lambda x: x.tan(), np.tan, [(uniform(1, -0.5, 0.8, 6), 1e-6), (uniform(2, -0.6, 0.6, 32), 1e-6)]),
    "sqrt": (lambda x: x.sqrt(), np.sqrt, [(uniform(1, 0.25, 16, 16), 0), (np.array([1, 0, 4, np.inf], F32), 0),
        (np.exp(uniform(2, -80, 80, 40)), 0)]),
    "rsqrt": (lambda x: x.rsqrt(), lambda x: 1 / np.sqrt(x), [(uniform(1, 0.25, 16, 16), 0),
        (np.exp(uniform(2, -80, 80, 40)), 0)]),
    "sinh": (lambda x: x.sinh(), np.sinh, [(uniform(1, -2, 2, 16), 2e-7), (uniform(2, -2, 2, 32), 2e-7)]),
    "cosh": (lambda x: x.cosh(), np.cosh, [(uniform(1, -2, 2, 16), 0), (uniform(2, -2, 2, 32), 0)]),
    "tanh": (lambda x: x.tanh(), np.tanh, [(uniform(1, -2, 2, 5), 3e-7), (uniform(2, -2, 2, 16), 3e-7),
        (uniform(3, -2.5, 2.5, 32), 3e-7)]),
    "sigmoid": (lambda x: x.sigmoid(), sigmoid, [(uniform(1, -0.5, 0.5, 5), 0), (uniform(2, -4, 4, 16), 0),
        (uniform(3, -1, 1, 32), 0)]),
    "silu": (lambda x: x.silu(), lambda x: x * sigmoid(x), [(uniform(1, -3, 3, 16), 0), (uniform(2, -3, 3, 32), 0)]),
    "softplus": (lambda x: x.softplus(), softplus, [(uniform(1, -3, 3, 16), 3e-7), (uniform(2, -3, 3, 32), 3e-7)]),
    "logsigmoid": (lambda x: x.logsigmoid(), lambda x: -softplus(-x), [(uniform(1, -3, 3, 16), 3e-7),
        (uniform(2, -3, 3, 32), 3e-7)]),
    "elu": (lambda x: x.elu(), lambda x: np.where(x > 0, x, np.expm1(x)),
        [(uniform(1, -3, 3, 16), 3e-7), (uniform(2, 0.1, 3, 16), 0)]),
    "selu": (lambda x: x.selu(), lambda x: 1.0507009873554804934 * np.where(x > 0, x,
        1.6732632423543772848 * np.expm1(x)), [(uniform(1, -3, 3, 16), 6e-7)]),
    "mish": (lambda x: x.mish(), lambda x: x * np.tanh(softplus(x)), [(uniform(1, -3, 3, 16), 6e-7),
        (uniform(2, -3, 3, 32), 6e-7)]),
    "gelu": (lambda x: x.gelu(), lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        [(uniform(1, -3, 3, 16), 6e-7)]),
    "hardsigmoid": (lambda x: x.hardsigmoid(), lambda x: np.clip(x / 6 + 0.5, 0, 1), [(uniform(1, -5, 5, 20), 2e-7)]),
    "hardswish": (lambda x: x.hardswish(), lambda x: x * np.clip(x + 3, 0, 6) / 6, [(uniform(1, -5, 5, 20), 3e-7)]),
    "relu6": (lambda x: x.relu6(), lambda x: np.clip(x, 0, 6), [(uniform(1, -9, 9, 20), 0)]),
    "hardtanh": (lambda x: x.hardtanh(), lambda x: np.clip(x, -1, 1), [(uniform(1, -3, 3, 20), 0)]),
    "softsign": (lambda x: x.softsign(), lambda x: x / (1 + abs(x)), [(uniform(1, -3, 3, 20), 0)]),
    "square": (lambda x: x.square(), np.square, [(uniform(1, -3, 3, 20), 0)]),
    "cube": (lambda x: x * x * x, lambda x: x**3, [(uniform(1, -3, 3, 20), 0)]),
    "fourth power": (lambda x: x**4, lambda x: x**4, [(uniform(1, -3, 3, 20), 0)]),
    "log of x + 5": (lambda x: (x + 5).log(), lambda x: np.log(x + 5), [(uniform(1, -3, 3, 20), 3e-7)]),
    "pow": (lambda x: x.pow(1.7), lambda x: x ** float(F32(1.7)), [(uniform(1, 0.2, 3, 20), 0)]),
    "asin": (lambda x: x.asin(), np.arcsin, [(uniform(1, -1, 1, 20), 3e-6)]),
    "acos": (lambda x: x.acos(), np.arccos, [(uniform(1, -1, 1, 20), 3e-6)]),
    "atan": (lambda x: x.atan(), np.arctan, [(uniform(1, -3, 3, 20), 3e-6)]),
    "asinh": (lambda x: x.asinh(), np.arcsinh, [(uniform(1, 0.1, 3, 20), 6e-7)]),
    "atanh": (lambda x: x.atanh(), np.arctanh, [(uniform(1, 0.1, 0.9, 20), 6e-7)]),
}  # fmt: skip


def functions() -> Iterator[Check]:
    for name, (fn, want, ranges) in FUNCTIONS.items():
        for number, (x, atol) in enumerate(ranges):
            yield tensor(f"{name} {number}", fn, x, want=wide(want), rtol=3e-6, atol=atol)


def special() -> Iterator[Check]:
    inf, nan = np.inf, np.nan
    rows: list[tuple[str, One, list[float], list[float]]] = [
        ("exp2", lambda x: x.exp2(), [-inf, inf, 2.0**32, 3e9, nan, -200, 128, -149],
            [0, inf, inf, inf, nan, 0, inf, 2.0**-149]),
        ("exp", lambda x: x.exp(), [-inf, inf, nan, 1000, -1000], [0, inf, nan, inf, 0]),
        ("log2", lambda x: x.log2(), [0.0, -0.0, -1, inf, nan, 2.0**-149, 1], [-inf, -inf, nan, inf, nan, -149, 0]),
        ("log", lambda x: x.log(), [0.0, -1, inf, nan, 1], [-inf, nan, inf, nan, 0]),
        ("sqrt", lambda x: x.sqrt(), [-4, inf, 0.0, nan, 2.0**-148], [nan, inf, 0, nan, 2.0**-74]),
        ("rsqrt", lambda x: x.rsqrt(), [4, inf, 0.0, nan], [0.5, 0, inf, nan]),
        ("sin", lambda x: x.sin(), [inf, -inf, nan, 0], [nan, nan, nan, 0]),
        ("reciprocal", lambda x: x.reciprocal(), [0.0, -0.0, inf, -inf, nan, 1e-40], [inf, -inf, 0, 0, nan, inf]),
        ("sigmoid", lambda x: x.sigmoid(), [inf, -inf, nan, 200, -200], [1, 0, nan, 1, 0]),
        ("tanh", lambda x: x.tanh(), [inf, -inf, nan, 100], [1, -1, nan, 1]),
        ("maximum with 1", lambda x: x.maximum(1), [nan, 0, 3], [nan, 1, 3]),
        ("relu", lambda x: x.relu(), [nan, -inf, inf, -1], [nan, 0, inf, 0]),
    ]  # fmt: skip
    far = np.array([25736, 1e6, 123456789, 1e30, -1e30, 3e38], F32)
    yield tensor("sines of any size", lambda x: x.sin(), far, want=wide(np.sin), atol=3e-7)
    whole = np.array([6, 9, -6, 300], F32)
    yield tensor("whole quotients, cut", lambda x: x.div(3.0, rounding_mode="trunc"), whole, want=lambda x: x / F32(3))
    for name, fn, x, want in rows:
        yield tensor(f"{name} at its ends", fn, np.array(x, F32), want=np.array(want, F32), rtol=1e-6)


TABLES: tuple[Table, ...] = (
    table("float division", "division and reciprocals", quotients()),
    table("functions", "functions and activations", functions(), slow=True),
    table("functions", "zeros, Inf, NaN", special()),
)
