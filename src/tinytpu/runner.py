"""Bundles on the machine model, or on another simulator: what `tinytpu run` does, for programs.

It decides how a bundle becomes what a core is loaded with. What a run does is the unit model's.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from kohakuaccel.diagnostics import Fault, Refusal
from kohakuaccel.machine import Machine
from tinytpu.asm import assemble
from tinytpu.bundle import Bundle, Entry, dump, loads
from tinytpu.bundle.content import numbered
from tinytpu.isa import Record
from tinytpu.recording import keep
from tinytpu.results import Results, parse
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


def bundle_of(image: Image) -> Bundle:
    """The bundle that loads an image."""
    entries: list[Entry] = []
    memories = ((Record.VMEM, image.vmem), (Record.WMEM, image.wmem), (Record.AMEM, image.amem))
    for kind, memory in memories:
        entries += [Entry(kind, (int(slot), *(int(x) for x in values))) for slot, values in memory.items()]
    lines = [*image.lines, *[None] * (len(image.instructions) - len(image.lines))]
    entries += [
        Entry(Record.INSTRUCTION, tuple(int(x) for x in row), line) for row, line in zip(image.instructions, lines)
    ]
    entries += [Entry(Record.MXU_RESULT, (1,))] if image.mxu_result else []
    entries += [Entry(Record.OUTPUT_VMEM, (slot,)) for slot in image.vmem_outputs]
    entries += [Entry(Record.OUTPUT_AMEM, (slot,)) for slot in image.amem_outputs]
    return Bundle(tuple(entries))


def run(bundle: Bundle, machine: Machine, *, silicon: bool = False, log: bool = False, name: str = "") -> Run:
    """Run a bundle on a fresh core. See units.core.execute; errors name the bundle's line. name: in a recording; the
    file's without one."""
    with numbered():
        done = execute(machine, image(bundle), silicon=silicon, log=log)
    source = next((line for line in bundle.sources if line is not None), None)
    keep(name or (Path(source.file).stem if source else "program"), done, silicon=silicon)
    return done


def simulate(bundle: Bundle, machine: Machine, command: str, *, timeout: float = 600.0) -> Results:
    """Run a bundle with another simulator: a command that finds the bundle's file in TINYTPU_BUNDLE and prints result
    lines. Raises Refusal for a command that cannot be run or an answer that is none, Fault for an error it reports."""
    words = shlex.split(command)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.bundle"
        file.write_text(dump(bundle))
        try:
            done = subprocess.run(
                words, env={**os.environ, "TINYTPU_BUNDLE": str(file)}, capture_output=True, text=True, timeout=timeout
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Refusal("the simulator runs", where="TINYTPU_SIM", got=command, hint=str(error)) from None
    if done.returncode:
        raise Fault(done.stderr.strip() or f"exit code {done.returncode}", unit=words[0])
    return parse(done.stdout, machine, command)
