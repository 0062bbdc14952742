"""What is sent to a machine: the encoded instruction stream of each unit, in stages.

It decides which facts about a stream travel with it. It must not know what a payload means, how streams are cut
into rounds, nor any register.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.machine import Unit

Acks = tuple[tuple[Unit, "int | NDArray[np.int64]"], ...]


@dataclass(frozen=True, eq=False)
class EncodedProgram:
    """The instruction stream of one unit within one stage, of any length.

    payloads: uint64[n, 4], instruction i as four 64-bit words, low word first.
    acks: data acknowledgements this stream causes at other units: (receiver, total) or (receiver, int64[n] per
        instruction).
    sources: int32[n] index of each instruction's line in `Image.sources`, -1 where unknown; or None.
    passes: int64, sorted: instructions where a pass starts; a loader prefers to cut there.
    """

    unit: Unit
    payloads: NDArray[np.uint64]
    acks: Acks = ()
    sources: NDArray[np.int32] | None = None
    passes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        n = self.payloads.shape[0] if self.payloads.ndim == 2 else -1
        if self.payloads.dtype != np.uint64 or self.payloads.shape != (n, 4):
            raise Refusal(
                "payloads are uint64[n, 4]",
                where=f"program of {self.unit.name}",
                got=f"{self.payloads.dtype}{list(self.payloads.shape)}",
            )
        if self.sources is not None and self.sources.shape != (n,):
            raise Refusal(
                "a program has one source per instruction",
                where=f"program of {self.unit.name}",
                got=list(self.sources.shape),
                limit=[n],
            )
        for receiver, count in self.acks:
            if not isinstance(count, int) and count.shape != (n,):
                raise Refusal(
                    "acknowledgements are one total or one count per instruction",
                    where=f"program of {self.unit.name}, receiver {receiver.name}",
                    got=list(count.shape),
                    limit=[n],
                )

    def __len__(self) -> int:
        return self.payloads.shape[0]


@dataclass(frozen=True, eq=False)
class Image:
    """Everything one launch sends: stages in order; between two stages every unit is awaited.

    Within a stage a unit has at most one stream, and the streams run side by side. `cache` keeps what loaders
    derive from the image, by loader. `levels` prints what the image was made from, by level, for reports. Neither is
    ever saved.
    """

    machine_name: str
    stages: tuple[tuple[EncodedProgram, ...], ...]
    sources: tuple[SourceLine, ...] = ()
    name: str = ""
    cache: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any], repr=False)
    levels: Callable[[], Mapping[str, str]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for number, stage in enumerate(self.stages):
            seen: set[str] = set()
            for program in stage:
                if program.unit.name in seen:
                    raise Refusal(
                        "a unit has one instruction stream per stage",
                        where=f"stage {number}",
                        got=f"two of {program.unit.name}",
                        hint="join the streams or use two stages",
                    )
                seen.add(program.unit.name)

    @property
    def flits(self) -> int:
        """Instructions in all."""
        return sum(len(p) for stage in self.stages for p in stage)

    def line(self, program: EncodedProgram, index: int) -> SourceLine | None:
        """The user's line behind one instruction, where it is known."""
        if program.sources is None or not 0 <= index < len(program):
            return None
        number = int(program.sources[index])
        return self.sources[number] if 0 <= number < len(self.sources) else None
