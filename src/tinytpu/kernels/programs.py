"""Programs as kernels: a TASM or bundle file, and the known programs by name.

Decides what of them a plan shows. What a program does is the machine model's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kohakuaccel.diagnostics import Refusal, Unsupported
from kohakuaccel.machine import Machine
from tinytpu import runner
from tinytpu.asm import assemble, disassemble
from tinytpu.bundle import Bundle
from tinytpu.isa import Record
from tinytpu.machines.choice import chosen
from tinytpu.programs.kernels import KERNELS
from tinytpu.recording import Played, recording


@dataclass(frozen=True)
class Assembled:
    """A program that the machine takes."""

    name: str
    machine: Machine
    bundle: Bundle

    def pretty(self) -> str:
        """What is loaded, and what a run takes."""
        bundle = self.bundle
        memories = ((kind.name, len(bundle.of(kind))) for kind in (Record.VMEM, Record.WMEM, Record.AMEM))
        loaded = ", ".join(f"{count} to {name}" for name, count in memories if count) or "nothing"
        done = runner.run(bundle, self.machine, name=self.name)
        return (
            f"schedule {self.name} on {self.machine.name}\n{len(bundle.instructions)} instructions; loads {loaded}; "
            f"{done.cycles:,} cycles: load {done.load_cycles:,}, execute {done.execute_cycles:,}, output "
            f"{done.output_cycles:,}"
        )

    def played(self) -> list[Played]:
        """The program as it runs."""
        with recording() as found:
            runner.run(self.bundle, self.machine, name=self.name)
        return found

    def listing(self, limit: int | None = None) -> str:
        """The program as TASM, at most `limit` lines."""
        return "\n".join(disassemble(self.bundle, self.machine).splitlines()[:limit])

    def nominal_addresses(self) -> None:
        """Nowhere: programs are loaded whole."""

    def image(self, _: object) -> NoReturn:
        """Refused: a program is a bundle."""
        raise Unsupported(
            "an image is saved of a machine that has them", where="TinyTPU", hint="tinytpu asm FILE -o FILE"
        )


@dataclass(frozen=True)
class ProgramKernel:
    """A program by name; `read` gives its bundle for a machine."""

    name: str
    read: Callable[[Machine], Bundle]

    @property
    def __name__(self) -> str:
        return self.name

    def trace(self) -> Bundle:
        """The bundle on the chosen machine."""
        return self.read(chosen())

    def plan(self, *shapes: tuple[int, ...], machine: Machine | None = None) -> Assembled:
        """The program on a machine (the chosen one without). Raises Refusal for shapes: a program has its own."""
        if shapes:
            raise Refusal("a program has its own shapes", where=self.name, got=shapes)
        on = machine or chosen()
        return Assembled(self.name, on, self.read(on))

    def __call__(self) -> None:
        """Run it on the chosen machine and print its result lines."""
        on = chosen()
        print("\n".join(runner.run(self.read(on), on, name=self.name).lines()))


def opened(path: Path) -> ProgramKernel:
    """The program of a TASM or bundle file."""
    return ProgramKernel(path.stem, lambda machine: runner.read(path, machine))


def known() -> dict[str, ProgramKernel]:
    """The known programs, as published and, with `_best`, as good as we know."""

    def kernel(name: str, best: bool) -> ProgramKernel:
        return ProgramKernel(
            f"{name}_best" if best else name, lambda machine: assemble(KERNELS[name].build(best=best).text, machine)
        )

    return {one.name: one for name in KERNELS for one in (kernel(name, False), kernel(name, True))}
