"""L2: where things live and run. Stages of bands over buffers with layouts, verified before anything is emitted.

It decides placement, order and layout; it does not know bit positions. What a band computes is a machine's business:
the framework asks a band to describe itself, to say which words it writes, and to run in the machine's formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine

Array = NDArray[np.floating[Any]]
"""Values as a buffer stores them: float16 or float32."""


class BufferLayout(Protocol):
    """What the framework needs of a layout value."""

    @property
    def nbytes(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """float16 or float32: how values are stored."""
        ...


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """A tensor of the schedule: role is "in", "out", "temp" or "table"; shape is logical; layout gives the bytes.

    port: the number of the input it is an image of, or of the output it is; one input may be wanted in several byte
    orders, or transposed (which `shape` then shows). contents: a table's values.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    layout: BufferLayout
    port: int = -1
    contents: Array | None = None
    transposed: bool = False

    def __str__(self) -> str:
        shape = "x".join(str(n) for n in self.shape) or "scalar"
        stored = f"fp{8 * self.layout.dtype.itemsize}"
        return f"{self.name} {self.role} {shape} {stored}  {self.layout}  {self.layout.nbytes:,} B"


class Band(Protocol):
    """A grid of independent work items on one kind of unit."""

    @property
    def engine(self) -> str:
        """The kind of unit that runs it ("MG", "VC")."""
        ...

    @property
    def source(self) -> SourceLine: ...

    def describe(self) -> Sequence[str]:
        """Readable lines: grid, tile, residency, why."""
        ...

    def reads(self) -> Sequence[int]:
        """Numbers of the buffers it reads."""
        ...

    def writes(self) -> Sequence[tuple[int, NDArray[np.int64]]]:
        """(buffer number, int64[n, 2] of (first word, word count)) for everything it writes."""
        ...

    def run(self, values: dict[int, Array]) -> None:
        """Compute in the machine's formats: read `values[buffer]` (as stored, logical order), set the outputs."""
        ...


@dataclass(frozen=True, slots=True)
class Stage:
    """Bands that run side by side; a barrier follows."""

    bands: tuple[Band, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """One kernel call, scheduled for one machine and one set of shapes."""

    kernel: str
    machine: str
    buffers: tuple[BufferSpec, ...]
    stages: tuple[Stage, ...]
    expected_words: tuple[NDArray[np.int64], ...]
    """Per buffer, int64[n, 2] of the (first word, count) that hold data: what a writer must cover."""
    notes: tuple[str, ...] = ()
    """What was decided for the whole, or why something was not done."""

    def pretty(self) -> str:
        """Readable text: stages with their bands' reasons, then buffers."""
        lines = [f"schedule {self.kernel} on {self.machine}", *(f"  {note}" for note in self.notes)]
        for number, one in enumerate(self.stages):
            for band in one.bands:
                head, *rest = band.describe()
                lines.append(f"  stage {number}  {band.engine}  {head}")
                lines += [f"    {line}" for line in rest]
        lines.append("  buffers")
        lines += [f"    {spec}" for spec in self.buffers]
        return "\n".join(lines)

    def verify(self) -> None:
        """Every data word of every output and temporary is written exactly once, and nothing is read before it.

        Raises Refusal naming the buffer, the first offending word and the user's line.
        """
        written: dict[int, NDArray[np.int64]] = {}
        for one in self.stages:
            for band in one.bands:
                for number in band.reads():
                    if self.buffers[number].role in ("temp", "out") and number not in written:
                        raise Refusal(
                            "a band reads what no earlier stage wrote",
                            where=f"buffer {self.buffers[number].name}",
                            source=band.source,
                        )
            for band in one.bands:
                for number, ranges in band.writes():
                    counts = written.setdefault(
                        number, np.zeros(-(-self.buffers[number].layout.nbytes // 32) + 1, np.int64)
                    )
                    np.add.at(counts, ranges[:, 0], 1)
                    np.add.at(counts, ranges[:, 0] + ranges[:, 1], -1)
        for number, spec in enumerate(self.buffers):
            if spec.role != "out":
                continue
            want = np.zeros(-(-spec.layout.nbytes // 32) + 1, np.int64)
            ranges = self.expected_words[number]
            np.add.at(want, ranges[:, 0], 1)
            np.add.at(want, ranges[:, 0] + ranges[:, 1], -1)
            got = np.cumsum(written.get(number, np.zeros_like(want)))
            wrong = np.flatnonzero(got != np.cumsum(want))
            if len(wrong):
                word = int(wrong[0])
                raise Refusal(
                    "every output element is produced exactly once",
                    where=f"buffer {spec.name}, word {word} ({len(wrong)} words wrong)",
                    got=f"written {int(got[word])} times",
                    limit="1",
                    hint="make the grid cover the output once",
                    source=self._writer(number, word),
                )

    def _writer(self, buffer: int, word: int) -> SourceLine | None:
        """The line of the last band that writes a word, or failing that the buffer."""
        lines: list[tuple[bool, SourceLine]] = []
        for band in (b for one in self.stages for b in one.bands):
            for number, ranges in band.writes():
                if number == buffer:
                    inside = (ranges[:, 0] <= word) & (word < ranges[:, 0] + ranges[:, 1])
                    lines.append((bool(inside.any()), band.source))
        return max(enumerate(lines), key=lambda item: (item[1][0], item[0]))[1][1] if lines else None

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Outputs in the machine's formats. inputs: one array per In port, in order."""
        values: dict[int, Array] = {}
        for number, spec in enumerate(self.buffers):
            given = self.source_values(spec, inputs)
            if given is not None:
                values[number] = given
        for one in self.stages:
            for band in one.bands:
                band.run(values)
        return [values[number].reshape(spec.shape) for number, spec in self.outputs()]

    def outputs(self) -> list[tuple[int, BufferSpec]]:
        """(number, buffer) of the outputs, in port order."""
        found = [(number, spec) for number, spec in enumerate(self.buffers) if spec.role == "out"]
        return sorted(found, key=lambda pair: pair[1].port)

    @staticmethod
    def source_values(spec: BufferSpec, inputs: Sequence[Array]) -> Array | None:
        """What an "in" or "table" buffer holds, in its logical order; None for the others. float32 that is wanted in
        FP16 is rounded once and saturates."""
        if spec.role == "table" and spec.contents is not None:
            return np.ascontiguousarray(spec.contents)
        if spec.role != "in":
            return None
        given = narrowed(np.asarray(inputs[spec.port]), spec.layout.dtype)[0]
        if spec.transposed:
            given = np.swapaxes(given.reshape(*spec.shape[:-2], spec.shape[-1], spec.shape[-2]), -1, -2)
        return np.ascontiguousarray(given).reshape(spec.shape)


def narrowed(values: NDArray[Any], dtype: np.dtype[np.floating[Any]]) -> tuple[Array, int]:
    """Values in a storage type, and how many finite ones float16 saturated (float32 keeps all it is given)."""
    if values.dtype == dtype:
        return values, 0
    with np.errstate(over="ignore"):
        made = values.astype(dtype)
    if dtype != np.float16 or values.dtype != np.float32:
        return made, 0
    over = np.isinf(made) & np.isfinite(values)
    return np.where(over, np.copysign(np.float16(65504), made), made), int(np.count_nonzero(over))
