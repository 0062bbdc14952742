"""The frozen values that describe a machine. They answer questions, read no files, check no schema."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import DefinitionError, did_you_mean

if TYPE_CHECKING:
    from kohakuaccel.machine.describe import Family

V = TypeVar("V", int, bool)
NO_PORT = -1
"""The port of a unit in a mesh that has none."""
NOWHERE = (-1, -1)
"""Where the dispatch agent of a mesh without memory ports sits: its units hold all memory and are reached directly."""


class Values(Generic[V]):
    """An immutable table of named values, read as attributes: `machine.params.tiles`, `machine.timing.L`.

    `tag(name)` says where a timing comes from: "S" measured on silicon, "R" measured on RTL by simulation,
    "A" assumed; parameters and features have the tag "". `doc(name)` explains a value.
    """

    __slots__ = ("_docs", "_title", "_values", "tags")

    def __init__(
        self,
        title: str,
        values: Mapping[str, V],
        tags: Mapping[str, str] | None = None,
        docs: Mapping[str, str] | None = None,
    ) -> None:
        self._title = title
        self._values = dict(values)
        self._docs = dict(docs or {})
        self.tags = dict(tags or {})

    def __getattr__(self, name: str) -> V:
        if name.startswith("__"):  # copy and pickle probe for these
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"{self._title} has no {name!r}{did_you_mean(name, self._values)}") from None

    def __getitem__(self, name: str) -> V:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Values) and self._values == other._values and self.tags == other.tags

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._values.items())))

    def __repr__(self) -> str:
        return f"{self._title}({', '.join(f'{k}={v}' for k, v in self._values.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Values, (self._title, self._values, self.tags, self._docs))

    def tag(self, name: str) -> str:
        return self.tags.get(name, "")

    def doc(self, name: str) -> str:
        return self._docs.get(name, "")

    def as_dict(self) -> dict[str, V]:
        return dict(self._values)

    def docs(self) -> dict[str, str]:
        return dict(self._docs)


@dataclass(frozen=True, slots=True)
class Unit:
    """A compute unit. `index` counts within its kind over the whole machine; `port` is the number (within its
    mesh) of the one memory port it uses, NO_PORT where the mesh has no memory outside its units. Its write flits
    leave from (`write_x`, `write_y`)."""

    kind: str
    index: int
    mesh: int
    x: int
    y: int
    port: int
    write_x: int
    write_y: int
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Port:
    """A memory port: number within its mesh, and coordinate."""

    mesh: int
    index: int
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The DRAM of one mesh, from local byte address 0; `size` in bytes."""

    mesh: int
    size: int


@dataclass(frozen=True, slots=True)
class Mesh:
    """A rectangle of routers, x in 1..nx and y in 1..ny; (agent_x, agent_y) is the dispatch agent (or NOWHERE)."""

    index: int
    nx: int
    ny: int
    agent_x: int
    agent_y: int

    def clamp(self, x: int, y: int) -> tuple[int, int]:
        """The router an endpoint hangs off."""
        return min(max(x, 1), self.nx), min(max(y, 1), self.ny)

    def hops(self, src: tuple[int, int], dst: tuple[int, int]) -> int:
        """Routers on the one path between two endpoints (XY routing)."""
        (ax, ay), (bx, by) = self.clamp(*src), self.clamp(*dst)
        return abs(ax - bx) + abs(ay - by) + 1


@dataclass(frozen=True)
class Machine:
    """A machine description; equal descriptions are equal values. Built by `load`, `parse` and `with_`.

    units are ordered kind by kind (the family's order), within a kind mesh by mesh, within a mesh as listed;
    that is the order of every list of units (dealing, counters). `links` joins meshes.
    """

    name: str
    family: str
    description: str
    meshes: tuple[Mesh, ...]
    units: tuple[Unit, ...]
    memories: tuple[Memory, ...]
    ports: tuple[Port, ...]
    links: tuple[tuple[int, int], ...]
    params: Values[int]
    features: Values[bool]
    timing: Values[int]
    profile: str
    definition: Family

    def __repr__(self) -> str:
        kinds = " + ".join(f"{len(self.units_of(k))} {k}" for k in self.kinds)
        return f"<Machine {self.name}: {len(self.meshes)} mesh(es), {kinds}>"

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Machine) and self.name == other.name and self.fingerprint == other.fingerprint

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(u.kind for u in self.units))

    def units_of(self, kind: str, mesh: int | None = None) -> tuple[Unit, ...]:
        """All units of a kind, in order; of one mesh only when `mesh` is given."""
        return tuple(u for u in self.units if u.kind == kind and (mesh is None or u.mesh == mesh))

    def unit_at(self, mesh: int, x: int, y: int) -> Unit | None:
        """The unit at a coordinate, or None. A second (write) endpoint is not a unit."""
        if not (0 <= mesh < len(self.meshes) and 0 <= x < 16 and 0 <= y < 16):
            return None
        number = int(self.node_table[mesh, y, x])
        return self.units[number] if number >= 0 else None

    def ports_of(self, mesh: int) -> tuple[Port, ...]:
        return tuple(p for p in self.ports if p.mesh == mesh)

    def port_of(self, unit: Unit) -> Port:
        """The memory port that a unit uses. Raises DefinitionError where its mesh has none."""
        if unit.port == NO_PORT:
            raise DefinitionError("the unit's mesh has no memory ports", where=f"{self.name}: {unit}")
        return self.ports_of(unit.mesh)[unit.port]

    @cached_property
    def node_table(self) -> NDArray[np.int64]:
        """int64[meshes, 16 (y), 16 (x)]: position in `units` of the unit there, -1 where there is none."""
        table = np.full((len(self.meshes), 16, 16), -1, np.int64)
        for number, unit in enumerate(self.units):
            table[unit.mesh, unit.y, unit.x] = number
        table.setflags(write=False)
        return table

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits over everything that can change a program, a result or a time; not the name."""
        content = {
            "family": self.family,
            "meshes": [(m.nx, m.ny, m.agent_x, m.agent_y) for m in self.meshes],
            "units": [(u.kind, u.mesh, u.x, u.y, u.port, u.write_x, u.write_y) for u in self.units],
            "memories": [(m.mesh, m.size) for m in self.memories],
            "ports": [(p.mesh, p.x, p.y) for p in self.ports],
            "links": self.links,
            "params": self.params.as_dict(),
            "features": self.features.as_dict(),
            "timing": self.timing.as_dict(),
            "profile": self.profile,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def with_(
        self,
        *,
        name: str | None = None,
        params: Mapping[str, int] | None = None,
        features: Mapping[str, bool] | None = None,
        timing: Mapping[str, int] | None = None,
        profile: str | None = None,
    ) -> Machine:
        """This machine with other values, checked like a file. A timing given here is tagged "A" (assumed).

        Choosing a profile starts from that profile's own timings; overrides of `timing` come on top.
        """
        from kohakuaccel.machine.describe import override

        return override(self, name, params or {}, features or {}, timing or {}, profile)
