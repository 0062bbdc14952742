"""A program as readable text: one line per instruction, the user's source line beside it.

For people and for `kohaku disasm`; it decides nothing. Works on anything with `stages` of encoded programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.machine import Unit
from kohakutpu.isa import cluster_tdesc, vector_envelope, vector_format


class Program(Protocol):
    """An encoded unit program: payloads uint64[n, 4], sources int32[n] numbers of source lines, or None."""

    @property
    def unit(self) -> Unit: ...
    @property
    def payloads(self) -> NDArray[np.uint64]: ...
    @property
    def sources(self) -> NDArray[np.int32] | None: ...


class Image(Protocol):
    """Stages of unit programs; units of a stage run side by side."""

    @property
    def machine_name(self) -> str: ...
    @property
    def stages(self) -> Sequence[Sequence[Program]]: ...
    @property
    def sources(self) -> Sequence[SourceLine]: ...


def payload_lines(kind: str, payloads: NDArray[np.uint64]) -> Iterator[str]:
    """One line per CU_INST payload of a unit kind. Kernel words print with their constants in place."""
    if kind == "MG":
        for payload in payloads:
            yield cluster_tdesc.disassemble(payload[None])
        return
    immediate: int | None = None  # program memory word that holds a constant, not an instruction
    for payload in payloads:
        text = vector_envelope.envelope_text(payload)
        if text.startswith("IMEM"):
            addr, word = text.split(":")[0], int(payload[0] & np.uint64(0xFFFFFFFF))
            number = int(addr.split()[1])
            if immediate == number:
                text, immediate = f"{addr}: {word:#x}", None
            else:
                immediate = number + 1 if vector_format.is_seti(word) else None
        yield text


def image_text(image: Image, *, limit: int | None = None) -> str:
    """An image as text, stage by stage, unit by unit. `limit`: most instructions shown per program."""
    lines = [f"image for {image.machine_name}: {len(image.stages)} stage(s)"]
    for number, stage in enumerate(image.stages):
        total = sum(len(p.payloads) for p in stage)
        lines.append(f"stage {number}: {len(stage)} unit(s), {total} instructions")
        for program in stage:
            shown = len(program.payloads) if limit is None else min(limit, len(program.payloads))
            lines.append(f"  {program.unit.name}: {len(program.payloads)} instructions")
            last = -1
            for i, text in enumerate(payload_lines(program.unit.kind, program.payloads[:shown])):
                source = -1 if program.sources is None else int(program.sources[i])
                note = ""
                if source >= 0 and source != last and source < len(image.sources):
                    note = f"  ; {image.sources[source]}"
                last = source
                lines.append(f"    {i:6d}  {text}{note}")
            if shown < len(program.payloads):
                lines.append(f"    ...     {len(program.payloads) - shown} more")
    return "\n".join(lines)
