"""Parameters as dataclasses of arrays: drawn by a seed on the host, and the same dataclasses of tensors on a device.

It decides how parameters are walked, drawn and moved. It must not know any model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu
from kohakutpu.device import Device
from kohakutpu.tensor import Tensor

A = TypeVar("A")
"""What a parameter is: a numpy array on the host, a Tensor on a device."""

Host = NDArray[np.float32]


@dataclass(frozen=True)
class Linear(Generic[A]):
    """y = x @ w.T + b: w (N, K), b (N,) or None."""

    w: A
    b: A | None = None


@dataclass(frozen=True)
class Norm(Generic[A]):
    """Scale and, for a layer norm, offset along the last axis: each (N,)."""

    w: A
    b: A | None = None


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The same dataclasses and tuples with `change` applied to every array or tensor; None stays."""
    if tree is None:
        return None
    if isinstance(tree, tuple):
        return tuple(mapped(part, change) for part in tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        return type(tree)(**{f.name: mapped(getattr(tree, f.name), change) for f in fields(tree)})
    return change(tree)


def leaves(tree: Any) -> Iterator[Any]:
    """Every array or tensor, in order of the fields."""
    found: list[Any] = []
    mapped(tree, found.append)
    return iter(found)


def count(tree: Any) -> int:
    """Number of parameters."""
    return sum(int(leaf.size) for leaf in leaves(tree))


def on_device(tree: Any, device: Device | None = None) -> Any:
    """Every array as a pinned tensor: rounded to FP16 once, uploaded when a kernel first asks for it, then resident."""
    return mapped(tree, lambda array: ktpu.tensor(array, device=device).pin())


class Draw:
    """Random parameters in float32, the same for the same seed: weights of standard deviation 1/sqrt(fan in)."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def normal(self, *shape: int, deviation: float = 1.0) -> Host:
        """Normal values around 0."""
        return (self._rng.standard_normal(shape) * deviation).astype(np.float32)

    def weight(self, *shape: int) -> Host:
        """A weight whose last axis is contracted."""
        return self.normal(*shape, deviation=shape[-1] ** -0.5)

    def linear(self, n: int, k: int, bias: bool = True) -> Linear[Host]:
        """A linear layer of k inputs and n outputs."""
        return Linear(self.weight(n, k), self.normal(n, deviation=0.1) if bias else None)

    def norm(self, n: int, bias: bool = True) -> Norm[Host]:
        """A norm near the identity."""
        return Norm(1 + self.normal(n, deviation=0.1), self.normal(n, deviation=0.1) if bias else None)


class Embedding:
    """A table of rows that the host looks up, because no unit of this machine reads a row by a number in memory.

    table (V, N) stays on the host, in FP16. A lookup is a host step: counted, and its rows are uploaded.
    """

    def __init__(self, table: NDArray[Any], device: Device | None = None) -> None:
        self.table = np.asarray(table, np.float16)
        self.device = device

    def __call__(self, ids: NDArray[Any]) -> Tensor:
        """The rows of integer ids (...) as a tensor (..., N). Refused: ids outside the table."""
        chosen = np.asarray(ids)
        if chosen.dtype.kind not in "iu" or not chosen.size:
            raise Refusal("an embedding looks up integers", where="embedding", got=f"{chosen.dtype}{chosen.shape}")
        low, high = int(chosen.min()), int(chosen.max())
        if low < 0 or high >= len(self.table):
            raise Refusal(
                "ids lie in the table", where="embedding", got=(low, high), limit=f"0 to {len(self.table) - 1}"
            )
        return by_host(self.table[chosen], self.device)


def by_host(values: NDArray[Any], device: Device | None = None) -> Tensor:
    """What the host computed for the device, counted in `ktpu.stats()["host_steps"]`."""
    home = device if device is not None else ktpu.device()
    home.counters.host_steps += 1
    return ktpu.tensor(values, device=home)
