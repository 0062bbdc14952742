"""Host steps: statements that no unit of the machine computes, run by the graph's own interpreter.

Decides how values reach the host and come back, and what is counted. It must not know stages, nor why a statement is
here; the reason is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.graph import Graph, kind_of
from kohakuaccel.graph.run import evaluate
from kohakuaccel.numerics import IntFormat

if TYPE_CHECKING:
    from kohakutpu.device import Device

Array = NDArray[Any]
LARGEST = 65504.0


@dataclass(frozen=True)
class HostStep:
    """Statements computed in float64 and exact integers. inputs, outputs: the values it takes and leaves; wide: values
    that are stored in FP32.

    What it leaves is rounded once, to nearest: a real value to FP16, beyond 65504 to that, or to FP32. Whole numbers
    stay exact, and stay on the host. A truth value is 1 or 0.
    """

    statements: tuple[str, ...]
    reason: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    wide: frozenset[str] = frozenset()

    def run(self, graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
        """What it leaves, by name, as it is stored: halves and whole numbers; values: at least `inputs`, likewise."""
        return {name: self._stored(graph, name, array) for name, array in self._computed(graph, values).items()}

    def launch(self, graph: Graph, values: Mapping[str, Any], device: Device) -> dict[str, Any]:
        """What it leaves: tensors of the device, and arrays of whole numbers. values: likewise; tensors are read back.

        Counts the step, the bytes it reads and leaves, and the values that were saturated.
        """
        from kohakutpu.tensor import as_tensor

        given = {name: values[name] for name in self.inputs}
        arrays = {name: v if isinstance(v, np.ndarray) else v.numpy() for name, v in given.items()}
        made: dict[str, Any] = {}
        for name, array in self._computed(graph, arrays).items():
            halves = self._stored(graph, name, array)
            if halves.dtype == np.float32:
                made[name] = as_tensor(halves, device=device, dtype=np.float32, overflow="inf", where=name)
            elif halves.dtype == np.float16:
                # A finite number beyond FP16, and only that, becomes another infinity or not one at all.
                lost = np.isfinite(array) & (np.abs(halves) == LARGEST) & (np.abs(array) >= LARGEST + 16)
                device.counters.saturations += int(np.count_nonzero(lost))
                made[name] = as_tensor(halves, device=device, where=name)
            else:
                made[name] = halves
        device.counters.host_steps += 1
        device.counters.host_step_bytes += self.nbytes(graph)
        return made

    def nbytes(self, graph: Graph) -> int:
        """Bytes that it reads and leaves, each value in the format it is stored in."""
        return sum(_nbytes(graph, name, name in self.wide) for name in (*self.inputs, *self.outputs))

    def _stored(self, graph: Graph, name: str, array: Array) -> Array:
        if name not in self.wide or kind_of(graph[name].dtype) != "real":
            return stored(graph, name, array)
        with np.errstate(over="ignore"):
            return np.asarray(array).astype(np.float32)

    def _computed(self, graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
        known = {name: _number(graph, name, values[name]) for name in self.inputs}
        for name in self.statements:
            known[name] = evaluate(graph.statement(name), known)
        return {name: known[name] for name in self.outputs}

    def pretty(self) -> str:
        """One line: what is computed on the host, and why."""
        return f"host  {', '.join(self.statements)}: {self.reason}"


def stored(graph: Graph, name: str, array: Array) -> Array:
    """A value of the interpreter as it is stored between steps."""
    if kind_of(graph[name].dtype) == "int":
        return array
    with np.errstate(over="ignore"):
        halves = np.asarray(array).astype(np.float16)
    over = np.isinf(halves) & np.isfinite(np.asarray(array, np.float64))
    return np.where(over, np.copysign(np.float16(LARGEST), halves), halves).astype(np.float16)


def _number(graph: Graph, name: str, array: Array) -> Array:
    """A stored value as the interpreter takes it."""
    match kind_of(graph[name].dtype):
        case "real":
            return array.astype(np.float64)
        case "bool":
            return array != 0
        case _:
            return array


def _nbytes(graph: Graph, name: str, wide: bool) -> int:
    value = graph[name]
    bits = value.dtype.bits if isinstance(value.dtype, IntFormat) else 32 if wide else 16
    return prod(value.shape) * bits // 8
