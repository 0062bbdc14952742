"""Machine packages as the command line sees them: a module `<package>.commands` that answers a few questions.

Which machines exist comes from their descriptions. What a machine computes, how it is opened and how its
instructions print stay with its package, which is imported here by name and only when it is asked.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from kohakuaccel.diagnostics import Unsupported
from kohakuaccel.machine import Machine, load
from kohakuaccel.machine.describe import families

if TYPE_CHECKING:
    from kohakuaccel.image import Image
    from kohakuaccel.sim import Timeline


class Commands(Protocol):
    """What `<package>.commands` holds."""

    DEFAULT_MACHINE: str
    """The preset used when nobody chose one."""

    def peak(self, machine: Machine) -> str:
        """The machine's peak rate, in words."""
        ...

    def use(self, machine: Machine) -> None:
        """Make `machine` the default device of this process."""
        ...

    def stats(self) -> Mapping[str, object]:
        """What the default device has counted; empty when it was not used."""
        ...

    def timed(self, call: Callable[[], None], name: str) -> Timeline:
        """Make the call; the modelled timeline of everything that it ran on the default device."""
        ...

    def smoke(self, machine: Machine) -> tuple[bool, str]:
        """Run a small program whose exact answer is known: whether it came out, and what was run."""
        ...

    def opened(self, path: Path) -> Any:
        """A program file in the machine's own form, as a kernel: `trace` and `plan` without operands, a call runs it
        and prints what it answers. Raises Refusal where the machine has no such files."""
        ...

    def plan_text(self, plan: Any, limit: int | None = None) -> str:
        """The instructions of what a kernel's `plan` gave, readable; at most `limit` per unit and stage."""
        ...

    def image_text(self, image: Image, limit: int | None = None) -> str:
        """An image's instructions, readable; at most `limit` per unit and stage."""
        ...


def commands_of(package: str) -> Commands:
    """The answers of the machine package `package`."""
    return cast(Commands, importlib.import_module(f"{package}.commands"))


def imported() -> tuple[str, ...]:
    """The machine packages that this process has imported."""
    return tuple(name for name in families() if name in sys.modules)


def chosen(machine: str | None) -> Machine:
    """The machine that `--machine` means; without it, the first package's default.

    Raises DefinitionError, with the nearest name, when there is no such preset or file.
    """
    if machine is not None:
        return load(machine)
    known = families()
    if not known:
        raise Unsupported("no machine package is installed", where="kohaku", hint="install kohakuaccel again")
    return load(commands_of(known[0]).DEFAULT_MACHINE)


def is_program(target: str) -> bool:
    """Whether `target` is a file in a machine's own form: any that exists and is no Python and no image."""
    return not target.endswith((".py", ".npz")) and Path(target).is_file()
