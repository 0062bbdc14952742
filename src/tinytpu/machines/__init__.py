"""The TinyTPU machines: the family's schema, its presets, and the rules a whole machine keeps.

Every limit of the assembler, the loader and the machine model is read from here. Nothing here knows instructions.
"""

from __future__ import annotations

from functools import lru_cache

from kohakuaccel.diagnostics import DefinitionError
from kohakuaccel.machine import Machine
from kohakuaccel.machine.describe import load_preset, preset_names

FAMILY = "tinytpu"
DEFAULT = "tinytpu_4x4"


def names() -> tuple[str, ...]:
    """The presets."""
    return preset_names(FAMILY)


@lru_cache(maxsize=32)
def load(name: str = DEFAULT) -> Machine:
    """A preset by name. Raises DefinitionError for an unknown one."""
    return load_preset(FAMILY, name)


def check_machine(machine: Machine) -> None:
    """The family's own rules (datasheet 1): called for every machine built. Raises DefinitionError."""
    p = machine.params
    if p.rows != p.columns:
        raise DefinitionError(
            "a tile is square: TRANSPOSE turns rows into columns",
            where=f"{machine.name}: params.columns",
            got=p.columns,
            limit=f"{p.rows}, as rows",
        )
    if p.columns % 2:
        raise DefinitionError(
            "a row is whole pairs: PAIR_ROTATE turns two lanes", where=f"{machine.name}: params.columns", got=p.columns
        )
    for name in ("noc_remote", "noc_loopback"):
        if machine.timing[name] < 1:
            raise DefinitionError(
                "a packet takes a cycle", where=f"{machine.name}: timing.{name}", got=machine.timing[name], limit=1
            )
    if not machine.units_of("CORE"):
        raise DefinitionError("a machine has at least one core", where=machine.name)
