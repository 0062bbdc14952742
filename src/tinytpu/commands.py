"""What the `kohaku` command asks of this machine package.

Every answer is a line or two over the parts that decide it; nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from kohakuaccel.diagnostics import Unsupported
from kohakuaccel.machine import Machine

if TYPE_CHECKING:
    from kohakuaccel.image import Image
    from kohakuaccel.sim import Timeline

DEFAULT_MACHINE = "tinytpu_4x4"


def _programs_only(what: str) -> NoReturn:
    raise Unsupported(f"{what} takes a program of this machine", where="kohaku", hint="see: tinytpu --help")


def peak(machine: Machine) -> str:
    """Matmul peak: every PE multiplies and adds once a cycle (datasheet 1)."""
    macs = len(machine.units_of("CORE")) * machine.params.rows * machine.params.columns
    return f"{macs:,} MAC/cycle of int8"


def use(machine: Machine) -> None:
    """Refused: no tensor API opens this machine by default."""
    _programs_only(f"--machine {machine.name}")


def stats() -> Mapping[str, object]:
    """What the default device has counted; empty when it was not used."""
    return {}


def timed(call: Callable[[], None], name: str) -> Timeline:
    """Refused, see use."""
    _programs_only(name)


def smoke(machine: Machine) -> tuple[bool, str]:
    """Refused, see use."""
    _programs_only(f"the trial on {machine.name}")


def image_text(image: Image, limit: int | None = None) -> str:
    """Refused: this machine's programs are bundles."""
    _programs_only("disasm")
