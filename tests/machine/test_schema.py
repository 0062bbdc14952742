"""A machine file that is wrong is refused with the key, the value, the limit and what was meant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kohakuaccel.diagnostics import DefinitionError
from kohakuaccel.machine import Machine, load, parse
from kohakuaccel.machine.describe import parse_family
from kohakuaccel.machine.model import NO_PORT
from kohakutpu import machines


def mesh(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "grid": [2, 2],
        "ports": [[0, 1], [0, 2]],
        "dram": "64 MiB",
        "units": {"MG": [[1, 1], [2, 2]], "VC": [[1, 0]]},
    }
    return {**base, **changes}


def build(meshes: list[dict[str, Any]] | None = None, **changes: Any) -> Machine:
    raw: dict[str, Any] = {"name": "toy", "family": "kohakutpu", "mesh": meshes or [mesh()], **changes}
    return parse(raw, "toy.toml")


def test_the_base_of_these_tests_is_lawful() -> None:
    m = build()
    assert [u.name for u in m.units] == ["MG(1,1)", "MG(2,2)", "VC(1,0)"]
    assert m.params.tiles == 512


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("unknown key", {"descripton": "x"}, r"toy.toml: unknown key 'descripton'; did you mean 'description'"),
    ("unknown param", {"params": {"tyles": 3}}, r"params: unknown key 'tyles'; did you mean 'tiles'"),
    ("unknown feature", {"features": {"r2_bank": True}}, r"unknown key 'r2_bank'; did you mean 'r2_bank_plan'"),
    ("unknown timing", {"timing": {"router_latncy": 3}}, r"did you mean 'router_latency'"),
    ("unknown profile", {"profile": "ideel"}, r"unknown timing profile 'ideel'; did you mean 'ideal'"),
    ("unknown family", {"family": "kohakutpo"}, r"no machine family 'kohakutpo'; did you mean 'kohakutpu'"),
    ("param type", {"params": {"tiles": "many"}}, r"params.tiles: must be a whole number; got 'many' \(str\)"),
    ("param bool", {"params": {"tiles": True}}, r"must be a whole number; got True \(bool\)"),
    ("param range", {"params": {"tiles": 513}}, r"params.tiles: out of range; got 513; the limit is 1..512"),
    ("fixed param", {"params": {"lanes": 8}}, r"params.lanes: out of range; got 8; the limit is 4"),
    ("feature type", {"features": {"mover": 1}}, r"features.mover: must be true or false; got 1 \(int\)"),
    ("timing value", {"timing": {"L": -1}}, r"timing.L: out of range; got -1"),
    ("timing tag", {"timing": {"L": [3, "X"]}}, r"a timing is tagged S, R or A; got 'X'"),
    ("name type", {"name": 7}, r"name: must be a text; got 7 \(int\)"),
    ("L1 not whole banks", {"params": {"l1_a": 300}}, r"params.l1_a: .* whole banks; got 300"),
    ("L1 beyond one bank", {"params": {"banks": 1}}, r"whole banks; got 512; the limit is at most 256"),
    ("vector L1", {"params": {"vl1": 100}}, r"vl1: .*groups of 16 words; got 100"),
    ("accumulators", {"params": {"acc_count": 2}}, r"two accumulators need the feature r2_dual_acc"),
    ("write slots", {"params": {"wr_slots": 2}}, r"wr_slots holds two writes per unit behind port 0"),
    ("links", {"links": [[0, 1]]}, r"links\[0\]: a link joins two meshes"),
]


@pytest.mark.parametrize(("changes", "text"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_wrong_machine(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        build(**changes)


BAD_MESH: list[tuple[str, dict[str, Any], str]] = [
    ("ring corner", {"units": {"MG": [[0, 0]]}}, r"units.MG\[0\]: a ring corner holds nothing; got \(0,0\)"),
    ("far corner", {"units": {"MG": [[3, 3]]}}, r"a ring corner holds nothing; got \(3,3\)"),
    ("outside", {"units": {"VC": [[1, 4]]}}, r"units.VC\[0\]: outside the mesh and its ring; got \(1,4\)"),
    ("two units", {"units": {"MG": [[1, 1]], "VC": [[1, 1]]}}, r"two endpoints at one place: VC 0 and MG 0"),
    ("unit on a port", {"units": {"MG": [[0, 2]]}}, r"two endpoints at one place: MG 0 and port 1"),
    ("write endpoint on a unit", {"write_endpoints": {"MG": [[1, 0], [2, 1]]}}, r"two endpoints at one place"),
    ("one endpoint each", {"write_endpoints": {"MG": [[2, 1]]}}, r"one write endpoint per MG; got 1; the limit is 2"),
    ("unknown kind", {"units": {"MQ": [[1, 1]]}}, r"units: unknown key 'MQ'; known: MG, VC"),
    ("no grid", {"grid": None}, r"mesh\[0\].grid: must be a pair"),
    ("grid size", {"grid": [15, 1]}, r"grid: out of range; got 15; the limit is 1..14"),
    ("grid zero", {"grid": [0, 1]}, r"grid: out of range; got 0"),
    ("coordinate type", {"units": {"MG": [["1", 1]]}}, r"units.MG\[0\]: must be a whole number"),
    ("coordinate triple", {"units": {"MG": [[1, 1, 1]]}}, r"must be a pair \[x, y\]"),
    ("no ports", {"ports": []}, r"a mesh has 1 to 4 memory ports; got 0"),
    ("memory unit", {"dram": "64 MB"}, r'dram: must be a size such as "64 MiB"; got \'64 MB\''),
    ("memory type", {"dram": 4096}, r"dram: must be a size"),
    ("memory zero", {"dram": "0 MiB"}, r"positive multiple of 4096"),
    ("memory not whole pages", {"dram": "6 KiB"}, r"positive multiple of 4096 bytes; got 6144"),
    ("mesh key", {"girds": 1}, r"unknown key 'girds'; did you mean 'grid'"),
]


@pytest.mark.parametrize(("changes", "text"), [b[1:] for b in BAD_MESH], ids=[b[0] for b in BAD_MESH])
def test_wrong_mesh(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        build([mesh(**changes)])


def test_missing_key() -> None:
    with pytest.raises(DefinitionError, match=r"mesh\[0\]: the key 'dram' is missing"):
        build([{k: v for k, v in mesh().items() if k != "dram"}])


def test_a_family_may_do_without_memory_outside_its_units() -> None:
    bare = {"grid": [2, 1], "units": {"MG": [[1, 1], [2, 1]]}}
    with pytest.raises(DefinitionError, match="a mesh of this family has memory ports and DRAM"):
        build([bare])
    family = replace(build().definition, check=None)
    m = parse({"name": "bare", "family": "kohakutpu", "mesh": [bare]}, "bare.toml", family)
    assert (m.memories, m.ports) == ((), ())
    assert [u.port for u in m.units] == [NO_PORT] * 2
    with pytest.raises(DefinitionError, match=r"bare: MG\(1,1\): the unit's mesh has no memory ports"):
        m.port_of(m.units[0])


def test_no_units_and_too_many_meshes() -> None:
    with pytest.raises(DefinitionError, match="at least one unit"):
        build([mesh(units={})])
    with pytest.raises(DefinitionError, match="1 to 4 meshes; got 5"):
        build([mesh()] * 5)


def test_port_binding_ties_go_to_the_lower_port() -> None:
    m = build(
        [mesh(grid=[3, 1], ports=[[0, 1], [4, 1]], units={"MG": [[1, 1], [2, 1], [3, 1]], "VC": [[2, 0], [3, 2]]})]
    )
    assert [u.port for u in m.units_of("MG")] == [0, 0, 1]
    assert [u.port for u in m.units_of("VC")] == [0, 1]


def test_with_is_checked_like_a_file() -> None:
    m = machines.load("mini")
    with pytest.raises(DefinitionError, match=r"mini: params.tiles: out of range; got 0"):
        m.with_(params={"tiles": 0})
    with pytest.raises(DefinitionError, match=r"features: unknown key 'moover'; did you mean 'mover'"):
        m.with_(features={"moover": True})


def test_machine_files(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\nfamily = "kohakutpu"\n[[mesh]]\ngrid = [1, 1]\nports = [[0, 1]]\ndram = "1 MiB"\n'
        "units.MG = [[1, 1]]\n[params]\ntiles = 16\n[timing]\nL = 3\n"
    )
    m = load(file)
    assert (m.name, m.params.tiles, m.timing.L, m.memories[0].size) == ("mine", 16, 3, 1 << 20)
    assert load(str(file)) == m
    file.write_text("name = \n")
    with pytest.raises(DefinitionError, match=r"mine.toml: not valid TOML"):
        load(file)
    with pytest.raises(DefinitionError, match="cannot read the machine file"):
        load(tmp_path / "absent.toml")


FAMILY: dict[str, Any] = {
    "name": "toy",
    "kinds": ["U"],
    "default_profile": "rtl",
    "params": {"p": {"default": 2, "min": 1, "max": 3, "doc": "x"}},
    "features": {},
    "timing": {"rtl": {"t": [1, "A", "x"]}},
}
BAD_FAMILY: list[tuple[dict[str, Any], str]] = [
    ({"params": {"p": {"default": 9, "min": 1, "max": 3, "doc": "x"}}}, r"params.p: out of range; got 9"),
    ({"params": {"p": {"default": 1}}}, r"the key 'doc' is missing"),
    ({"timing": {"rtl": {"t": [1, "Z", "x"]}}}, r'must be \[cycles, "S"\|"R"\|"A", text\]'),
    ({"timing": {"rtl": {"t": [1, "A", "x"]}, "ideal": {"u": [1, "A"]}}}, r"timing.ideal: unknown key 'u'"),
    ({"features": {"f": {"default": 1, "doc": "x"}}}, r"features.f: must be true or false"),
]


@pytest.mark.parametrize(("changes", "text"), BAD_FAMILY)
def test_wrong_family(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        parse_family({**FAMILY, **changes}, "toy family")


def test_a_family_of_ones_own() -> None:
    family = parse_family(FAMILY, "toy family")
    m = parse(
        {"name": "t", "family": "toy", "mesh": [mesh(units={"U": [[1, 1]]})], "params": {"p": 3}}, "t.toml", family
    )
    assert (m.params.p, m.timing.t, m.kinds) == (3, 1, ("U",))
