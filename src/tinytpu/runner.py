"""Bundles on the machine model: what `tinytpu run` does, for programs.

It decides how a bundle becomes what a core is loaded with. What a run does is the unit model's.
"""

from __future__ import annotations

from pathlib import Path

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine
from tinytpu.asm import assemble
from tinytpu.bundle import Bundle, loads
from tinytpu.bundle.content import numbered
from tinytpu.isa import Record
from tinytpu.units.core import Image, Run, execute

TEXT = (".tasm", ".asm")
"""Endings of files that hold TASM; any other file is a bundle of numbers."""


def read(path: str | Path, machine: Machine, *, check: bool = True) -> Bundle:
    """The bundle of a TASM or bundle file. Raises Refusal for a missing file and for what it holds; without `check`
    what the machine cannot take is left to whoever uses the bundle."""
    file = Path(path)
    if not file.is_file():
        raise Refusal("a program is an existing file", where="tinytpu", got=str(path))
    text = file.read_text()
    reader = assemble if file.suffix in TEXT else loads
    return reader(text, machine, str(path), check=check)


def image(bundle: Bundle) -> Image:
    """What a core is loaded with."""
    return Image(
        instructions=bundle.instructions,
        vmem=bundle.memory(Record.VMEM),
        wmem=bundle.memory(Record.WMEM),
        amem=bundle.memory(Record.AMEM),
        vmem_outputs=bundle.outputs(Record.OUTPUT_VMEM),
        amem_outputs=bundle.outputs(Record.OUTPUT_AMEM),
        mxu_result=bundle.mxu_result,
        records=len(bundle.entries),
        lines=bundle.sources,
    )


def run(bundle: Bundle, machine: Machine, *, silicon: bool = False, log: bool = False) -> Run:
    """Run a bundle on a fresh core. See units.core.execute; errors name the bundle's line."""
    with numbered():
        return execute(machine, image(bundle), silicon=silicon, log=log)
