"""Reads machine files: the schema, its checks and its error texts.

A family (`family.toml`) declares the kinds of unit, parameters with their hard bounds, features and timing
profiles; a machine file places units and overrides values. What a parameter means is the family's affair.
"""

from __future__ import annotations

import importlib
import importlib.resources
import pkgutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from kohakuaccel.diagnostics import DefinitionError, did_you_mean
from kohakuaccel.machine.model import NO_PORT, NOWHERE, Machine, Memory, Mesh, Port, Unit, Values

Table = Mapping[str, Any]
_MACHINE_KEYS = ("name", "family", "description", "links", "profile", "mesh", "params", "features", "timing")
_MESH_KEYS = ("grid", "ports", "dram", "units", "write_endpoints")
_FAMILY_KEYS = ("name", "kinds", "params", "features", "timing", "default_profile")
_SIZES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_COORDINATE_LIMIT = 15  # a coordinate is four bits everywhere; the far ring needs one beyond the grid
PAGE = 4096


@dataclass(frozen=True)
class Family:
    """What a family of machines has in common.

    params: name -> (default, low, high). profiles: profile -> name -> (value, tag, doc), where every profile
    but the default one lists only what differs. check: the family's own rules for a whole machine.
    """

    name: str
    kinds: tuple[str, ...]
    params: dict[str, tuple[int, int, int]]
    param_docs: dict[str, str]
    features: dict[str, bool]
    feature_docs: dict[str, str]
    profiles: dict[str, dict[str, tuple[int, str, str]]]
    default_profile: str
    check: Callable[[Machine], None] | None = None

    def timing(self, profile: str, where: str, overrides: Table) -> Values[int]:
        if profile not in self.profiles:
            raise DefinitionError(
                f"unknown timing profile {profile!r}{did_you_mean(profile, self.profiles)}", where=where
            )
        table = dict(self.profiles[self.default_profile])
        table.update(self.profiles[profile])
        for key, raw in overrides.items():
            if key not in table:
                raise _unknown(f"{where}: timing", key, table)
            pair: list[Any] = list(raw) if isinstance(raw, list | tuple) else [raw, "A"]
            value, tag = pair if len(pair) == 2 else (raw, "A")
            cycles = _whole(f"{where}: timing.{key}", value, 0, 1 << 30)
            if tag not in ("S", "R", "A"):
                raise DefinitionError("a timing is tagged S, R or A", where=f"{where}: timing.{key}", got=repr(tag))
            table[key] = (cycles, str(tag), table[key][2])
        return Values(
            "timing",
            {k: v[0] for k, v in table.items()},
            {k: v[1] for k, v in table.items()},
            {k: v[2] for k, v in table.items()},
        )


def _unknown(where: str, key: str, known: Any) -> DefinitionError:
    return DefinitionError(f"unknown key {key!r}{did_you_mean(key, known)}", where=where)


def _keys(where: str, table: Table, known: tuple[str, ...], required: tuple[str, ...] = ()) -> None:
    for key in table:
        if key not in known:
            raise _unknown(where, key, known)
    for key in required:
        if key not in table:
            raise DefinitionError(f"the key {key!r} is missing", where=where)


def _typed(where: str, value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DefinitionError(f"must be {what}", where=where, got=f"{value!r} ({type(value).__name__})")
    return value


def _whole(where: str, value: Any, low: int, high: int) -> int:
    _typed(where, value, int, "a whole number")
    if not low <= value <= high:
        limit = str(low) if low == high else f"{low}..{high}"
        raise DefinitionError("out of range", where=where, got=value, limit=limit)
    return int(value)


def _pair(where: str, value: Any) -> tuple[int, int]:
    pair = _typed(where, value, list, "a pair [x, y]")
    if len(pair) != 2:
        raise DefinitionError("must be a pair [x, y]", where=where, got=repr(pair))
    return tuple(_whole(where, v, 0, _COORDINATE_LIMIT) for v in pair)  # type: ignore[return-value]  # two items


def _size(where: str, value: Any) -> int:
    text = _typed(where, value, str, 'a size such as "64 MiB"')
    number, _, suffix = text.partition(" ")
    if suffix not in _SIZES or not number.isdigit():
        raise DefinitionError('must be a size such as "64 MiB"', where=where, got=repr(text))
    size = int(number) * _SIZES[suffix]
    if size == 0 or size % PAGE:
        raise DefinitionError(f"a memory is a positive multiple of {PAGE} bytes", where=where, got=size)
    return size


def _endpoint(where: str, at: tuple[int, int], nx: int, ny: int) -> None:
    """An endpoint sits on a router or on the ring next to one; the ring's corners hold nothing."""
    x, y = at
    if x > nx + 1 or y > ny + 1:
        raise DefinitionError(
            "outside the mesh and its ring", where=where, got=f"({x},{y})", limit=f"({nx + 1},{ny + 1})"
        )
    if x in (0, nx + 1) and y in (0, ny + 1):
        raise DefinitionError(
            "a ring corner holds nothing",
            where=where,
            got=f"({x},{y})",
            hint="attach it beside a router, x or y inside the grid",
        )


@lru_cache(maxsize=32)
def load_family(name: str) -> Family:
    """The family declared by the package `name` (its `machines/family.toml`)."""
    try:
        folder = importlib.resources.files(f"{name}.machines")
        text = (folder / "family.toml").read_text()
    except (ModuleNotFoundError, FileNotFoundError):
        raise DefinitionError(f"no machine family {name!r}{did_you_mean(name, families())}", where="family") from None
    module = importlib.import_module(f"{name}.machines")
    return parse_family(tomllib.loads(text), f"{name} family", getattr(module, "check_machine", None))


def parse_family(raw: Table, where: str, check: Callable[[Machine], None] | None = None) -> Family:
    """A family from its parsed TOML."""
    _keys(where, raw, _FAMILY_KEYS, _FAMILY_KEYS)
    params: dict[str, tuple[int, int, int]] = {}
    param_docs: dict[str, str] = {}
    for key, entry in cast(Table, raw["params"]).items():
        place = f"{where}: params.{key}"
        _keys(place, entry, ("default", "min", "max", "doc"), ("default", "doc"))
        default = entry["default"]
        low, high = entry.get("min", default), entry.get("max", default)
        params[key] = (_whole(place, default, low, high), low, high)
        param_docs[key] = _typed(place, entry["doc"], str, "a text")
    features: dict[str, bool] = {}
    feature_docs: dict[str, str] = {}
    for key, entry in cast(Table, raw["features"]).items():
        place = f"{where}: features.{key}"
        _keys(place, entry, ("default", "doc"), ("default", "doc"))
        features[key] = _typed(place, entry["default"], bool, "true or false")
        feature_docs[key] = entry["doc"]
    profiles: dict[str, dict[str, tuple[int, str, str]]] = {}
    default_profile = str(raw["default_profile"])
    names = cast(Table, raw["timing"])[default_profile]
    for profile, table in cast(Table, raw["timing"]).items():
        rows: dict[str, tuple[int, str, str]] = {}
        for key, entry in cast(Table, table).items():
            place = f"{where}: timing.{profile}.{key}"
            if key not in names:
                raise _unknown(f"{where}: timing.{profile}", key, names)
            if not isinstance(entry, list) or len(entry) not in (2, 3) or entry[1] not in ("S", "R", "A"):
                raise DefinitionError('must be [cycles, "S"|"R"|"A", text]', where=place, got=repr(entry))
            doc = entry[2] if len(entry) == 3 else names[key][2]
            rows[key] = (_whole(place, entry[0], 0, 1 << 30), entry[1], doc)
        profiles[profile] = rows
    return Family(
        raw["name"],
        tuple(raw["kinds"]),
        params,
        param_docs,
        features,
        feature_docs,
        profiles,
        default_profile,
        check,
    )


def _params(family: Family, where: str, overrides: Table, base: Table) -> Values[int]:
    values = dict(base)
    for key, value in overrides.items():
        if key not in family.params:
            raise _unknown(f"{where}: params", key, family.params)
        _, low, high = family.params[key]
        values[key] = _whole(f"{where}: params.{key}", value, low, high)
    return Values("params", values, docs=family.param_docs)


def _features(family: Family, where: str, overrides: Table, base: Table) -> Values[bool]:
    values = dict(base)
    for key, value in overrides.items():
        if key not in family.features:
            raise _unknown(f"{where}: features", key, family.features)
        values[key] = bool(_typed(f"{where}: features.{key}", value, bool, "true or false"))
    return Values("features", values, docs=family.feature_docs)


@dataclass
class _Placed:
    """What the meshes read so far have placed."""

    meshes: list[Mesh]
    memories: list[Memory]
    ports: list[Port]
    units: list[tuple[str, int, int, int, int, tuple[int, int]]]  # kind, mesh, x, y, port, write endpoint


def _read_mesh(family: Family, where: str, index: int, raw: Table, placed: _Placed) -> None:
    outside = "ports" in raw or "dram" in raw
    _keys(where, raw, _MESH_KEYS, ("grid", "ports", "dram", "units") if outside else ("grid", "units"))
    nx, ny = _pair(f"{where}.grid", raw["grid"])
    for edge in (nx, ny):
        _whole(f"{where}.grid", edge, 1, _COORDINATE_LIMIT - 1)
    taken: dict[tuple[int, int], str] = {}

    def take(place: str, at: tuple[int, int], who: str) -> None:
        _endpoint(place, at, nx, ny)
        if at in taken:
            raise DefinitionError(
                f"two endpoints at one place: {who} and {taken[at]}", where=place, got=f"({at[0]},{at[1]})"
            )
        taken[at] = who

    ports: list[tuple[int, int]] = []
    for i, entry in enumerate(_typed(f"{where}.ports", raw.get("ports", []), list, "a list of [x, y]")):
        at = _pair(f"{where}.ports[{i}]", entry)
        take(f"{where}.ports[{i}]", at, f"port {i}")
        ports.append(at)
        placed.ports.append(Port(index, i, *at))
    if outside and not 1 <= len(ports) <= 4:
        raise DefinitionError("a mesh has 1 to 4 memory ports", where=f"{where}.ports", got=len(ports))
    mesh = Mesh(index, nx, ny, *(ports[0] if ports else NOWHERE))
    placed.meshes.append(mesh)
    if outside:
        placed.memories.append(Memory(index, _size(f"{where}.dram", raw["dram"])))

    units = cast(Table, _typed(f"{where}.units", raw["units"], dict, "a table of lists"))
    second = cast(Table, _typed(f"{where}.write_endpoints", raw.get("write_endpoints", {}), dict, "a table of lists"))
    _keys(f"{where}.units", units, family.kinds)
    _keys(f"{where}.write_endpoints", second, tuple(units))
    for kind in family.kinds:
        coordinates = _typed(f"{where}.units.{kind}", units.get(kind, []), list, "a list of [x, y]")
        writes = _typed(f"{where}.write_endpoints.{kind}", second.get(kind, coordinates), list, "a list of [x, y]")
        if len(writes) != len(coordinates):
            raise DefinitionError(
                f"one write endpoint per {kind}",
                where=f"{where}.write_endpoints.{kind}",
                got=len(writes),
                limit=len(coordinates),
            )
        for i, entry in enumerate(coordinates):
            place = f"{where}.units.{kind}[{i}]"
            x, y = _pair(place, entry)
            take(place, (x, y), f"{kind} {i}")
            place = f"{where}.write_endpoints.{kind}[{i}]"
            write = _pair(place, writes[i])
            if write != (x, y):
                take(place, write, f"the write endpoint of {kind} {i}")
            cx, cy = mesh.clamp(x, y)
            port = min(
                range(len(ports)), key=lambda p: (abs(cx - ports[p][0]) + abs(cy - ports[p][1]), p), default=NO_PORT
            )
            placed.units.append((kind, index, x, y, port, write))


def parse(raw: Table, where: str, family: Family | None = None) -> Machine:
    """A machine from its parsed TOML. `where` names the file in errors. Raises DefinitionError."""
    _keys(where, raw, _MACHINE_KEYS, ("name", "family", "mesh"))
    for key in ("name", "family", "description"):
        _typed(f"{where}: {key}", raw.get(key, ""), str, "a text")
    family = load_family(raw["family"]) if family is None else family
    placed = _Placed([], [], [], [])
    meshes = _typed(f"{where}: mesh", raw["mesh"], list, "a list of tables [[mesh]]")
    if not 1 <= len(meshes) <= 4:
        raise DefinitionError("a machine has 1 to 4 meshes", where=f"{where}: mesh", got=len(meshes))
    for index, table in enumerate(meshes):
        _read_mesh(family, f"{where}: mesh[{index}]", index, table, placed)
    units: list[Unit] = []
    for kind in family.kinds:
        for index, (_, mesh, x, y, port, write) in enumerate(u for u in placed.units if u[0] == kind):
            prefix = f"mesh{mesh}." if len(meshes) > 1 else ""
            units.append(Unit(kind, index, mesh, x, y, port, *write, f"{prefix}{kind}({x},{y})"))
    links: list[tuple[int, int]] = []
    for i, entry in enumerate(_typed(f"{where}: links", raw.get("links", []), list, "a list of [mesh, mesh]")):
        a, b = _pair(f"{where}: links[{i}]", entry)
        if a == b or max(a, b) >= len(meshes):
            raise DefinitionError(
                "a link joins two meshes of this machine", where=f"{where}: links[{i}]", got=f"[{a}, {b}]"
            )
        links.append((a, b))
    profile = raw.get("profile", family.default_profile)
    machine = Machine(
        name=raw["name"],
        family=raw["family"],
        description=raw.get("description", ""),
        meshes=tuple(placed.meshes),
        units=tuple(units),
        memories=tuple(placed.memories),
        ports=tuple(placed.ports),
        links=tuple(links),
        params=_params(family, where, raw.get("params", {}), {k: v[0] for k, v in family.params.items()}),
        features=_features(family, where, raw.get("features", {}), family.features),
        timing=family.timing(profile, where, raw.get("timing", {})),
        profile=profile,
        definition=family,
    )
    if family.check is not None:
        family.check(machine)
    return machine


def override(
    machine: Machine, name: str | None, params: Table, features: Table, timing: Table, profile: str | None
) -> Machine:
    """See Machine.with_."""
    family = machine.definition
    where = name or machine.name
    if profile is None:
        kept = {k: [machine.timing[k], machine.timing.tag(k)] for k in machine.timing}
        new_timing = family.timing(machine.profile, where, {**kept, **timing})
    else:
        new_timing = family.timing(profile, where, timing)
    changed = replace(
        machine,
        name=where,
        params=_params(family, where, params, machine.params.as_dict()),
        features=_features(family, where, features, machine.features.as_dict()),
        timing=new_timing,
        profile=profile or machine.profile,
    )
    if family.check is not None:
        family.check(changed)
    return changed


def families() -> tuple[str, ...]:
    """Importable packages that hold a `machines/family.toml`."""
    found: list[str] = []
    for info in pkgutil.iter_modules():
        folder = getattr(info.module_finder, "path", None)
        if info.ispkg and folder and (Path(folder) / info.name / "machines" / "family.toml").is_file():
            found.append(info.name)
    return tuple(sorted(found))


def preset_names(family: str) -> tuple[str, ...]:
    """The presets a family ships."""
    folder = importlib.resources.files(f"{family}.machines")
    stems = (entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return tuple(sorted(stem for stem in stems if stem != "family"))


def load_preset(family: str, name: str) -> Machine:
    """A preset of a family by name."""
    names = preset_names(family)
    if name not in names:
        presets = f"the presets are {', '.join(names)}"
        raise DefinitionError(f"no machine {name!r}{did_you_mean(name, names)}", where=family, hint=presets)
    text = (importlib.resources.files(f"{family}.machines") / f"{name}.toml").read_text()
    return parse(_toml(text, f"{name}.toml"), f"{name}.toml")


def _toml(text: str, where: str) -> Table:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DefinitionError(f"not valid TOML: {error}", where=where) from None


def load(source: str | Path) -> Machine:
    """A machine from a file (a path, or a text ending in .toml) or from a preset's name ("ship_3x2")."""
    if isinstance(source, Path) or source.endswith(".toml"):
        path = Path(source)
        try:
            text = path.read_text()
        except OSError as error:
            raise DefinitionError(f"cannot read the machine file: {error.strerror}", where=str(path)) from None
        return parse(_toml(text, path.name), path.name)
    known: list[str] = []
    for family in families():
        names = preset_names(family)
        if source in names:
            return load_preset(family, source)
        known.extend(names)
    raise DefinitionError(f"no machine {source!r}{did_you_mean(source, known)}", where="machine")
