"""The KohakuTPU machines: the family's schema, its presets, and the answers everybody derives from them.

What a planner, an encoder or a unit model needs to know of a machine beyond its plain values (usable banks,
revision) is computed here, once. Nothing here knows instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from kohakuaccel.diagnostics import DefinitionError
from kohakuaccel.machine import Machine
from kohakuaccel.machine.describe import load_preset, preset_names

FAMILY = "kohakutpu"
DEFAULT = "ship_3x2"
R2_FLAGS = ("r2_vc_quant", "r2_dual_acc", "r2_bank_plan", "r2_acc_to_vc", "r2_multicast", "r2_desc_fill")


def names() -> tuple[str, ...]:
    """The presets."""
    return preset_names(FAMILY)


@lru_cache(maxsize=32)
def load(name: str = DEFAULT) -> Machine:
    """A preset by name. Raises DefinitionError for an unknown one."""
    return load_preset(FAMILY, name)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a program may use of a cluster (datasheet 1.3, 5.6, 10).

    banks_*: banks offered per side, 1 or 2; bank_entries_*: entries in each. The hardware may have a second
    bank that is not offered (r2_bank_plan off); entries_* counts what the hardware holds. accumulators: 2 with
    r2_dual_acc, each of `tiles` sub-tiles.
    """

    banks_a: int
    banks_b: int
    bank_entries_a: int
    bank_entries_b: int
    entries_a: int
    entries_b: int
    tiles: int
    accumulators: int


@lru_cache(maxsize=64)
def capacity(machine: Machine) -> Capacity:
    """The capacity table of `machine`'s clusters. A side of at most `offset_span` entries has one bank."""
    p = machine.params

    def side(entries: int) -> tuple[int, int]:
        if entries <= p.offset_span:
            return 1, entries
        return (p.banks if machine.features.r2_bank_plan else 1), p.offset_span

    accumulators = 2 if machine.features.r2_dual_acc else 1  # the flag decides; params.acc_count may repeat it
    banks_a, span_a = side(p.l1_a)
    banks_b, span_b = side(p.l1_b)
    return Capacity(banks_a, banks_b, span_a, span_b, p.l1_a, p.l1_b, p.tiles, accumulators)


def version(machine: Machine) -> int:
    """CU_CAPS version: 4 for revision r1, 5 once any r2 option is on (datasheet 4.2, 10)."""
    return 5 if any(machine.features[flag] for flag in R2_FLAGS) else 4


def check_machine(machine: Machine) -> None:
    """The family's own rules, beyond ranges: called for every machine built. Raises DefinitionError."""
    p = machine.params
    for key in ("l1_a", "l1_b"):
        entries = p[key]
        if entries > p.offset_span and entries != p.banks * p.offset_span:
            raise DefinitionError(
                "a side with more entries than an offset reaches is whole banks",
                where=f"{machine.name}: params.{key}",
                got=entries,
                limit=f"at most {p.offset_span}, or {p.banks} banks of {p.offset_span}",
            )
    if p.vl1 % p.vlanes:
        raise DefinitionError(
            "vector L1 is whole groups of 16 words",
            where=f"{machine.name}: params.vl1",
            got=p.vl1,
            limit="a multiple of 16",
        )
    if p.acc_count == 2 and not machine.features.r2_dual_acc:
        raise DefinitionError(
            "two accumulators need the feature r2_dual_acc",
            where=f"{machine.name}: params.acc_count",
            got=2,
            limit=1,
        )
    if not machine.units_of("MG") and not machine.units_of("VC"):
        raise DefinitionError("a machine has at least one unit", where=machine.name)
    if len(machine.memories) != len(machine.meshes):
        raise DefinitionError("a mesh of this family has memory ports and DRAM", where=machine.name)
    for port in machine.ports:
        writers = sum(1 for u in machine.units if u.mesh == port.mesh and u.port == port.index)
        if p.wr_slots < 2 * writers:
            raise DefinitionError(
                f"wr_slots holds two writes per unit behind port {port.index} of mesh {port.mesh}",
                where=f"{machine.name}: params.wr_slots",
                got=p.wr_slots,
                limit=f"at least {2 * writers}",
            )
