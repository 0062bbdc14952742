"""How a mesh grows: where the units of machines sit that were never built."""

from __future__ import annotations

import pytest

from kohakuaccel.diagnostics import DefinitionError
from kohakuaccel.machine import Machine
from kohakutpu import machines
from kohakutpu.machines.sizes import sized

SHIP = machines.load("ship_3x2")


def places(machine: Machine, kind: str) -> list[tuple[int, int]]:
    return [(u.x, u.y) for u in machine.units_of(kind)]


@pytest.mark.parametrize("name", ["ship_3x2", "mini"])
def test_a_machine_of_its_own_size_is_itself(name: str) -> None:
    machine = machines.load(name)
    own = {
        "clusters": len(machine.units_of("MG")),
        "cores": len(machine.units_of("VC")),
        "ports": len(machine.ports),
    }
    assert sized(machine, own) == machine
    for key, value in own.items():
        assert sized(machine, {key: value}).fingerprint == machine.fingerprint
    other = machine.with_(params={"inst_fifo": 512}, timing={"L": 3}, features={"r2_bank_plan": True})
    assert sized(other, own) == other
    assert sized(other, own).timing.tag("L") == "A"


@pytest.mark.parametrize(
    ("clusters", "grid", "ports"),
    [(1, (2, 1), 1), (2, (2, 1), 1), (4, (2, 2), 2), (8, (2, 4), 4), (10, (3, 4), 4), (12, (3, 4), 4), (16, (4, 4), 4)],
)
def test_clusters_fill_rows_and_every_row_has_a_port(clusters: int, grid: tuple[int, int], ports: int) -> None:
    made = sized(SHIP, {"clusters": clusters})
    assert (made.meshes[0].nx, made.meshes[0].ny) == grid
    assert places(made, "MG") == [(n % grid[0] + 1, n // grid[0] + 1) for n in range(clusters)]
    assert [(p.x, p.y) for p in made.ports] == [(0, y + 1) for y in range(ports)]
    assert [u.port for u in made.units_of("MG")] == [u.y - 1 for u in made.units_of("MG")]
    assert len(made.units_of("VC")) == 4
    assert made.memories == SHIP.memories


def test_cores_lie_on_the_ring_and_ports_are_spread() -> None:
    assert places(sized(SHIP, {"clusters": 12}), "VC") == [(1, 0), (2, 0), (1, 5), (2, 5)]
    assert places(sized(SHIP, {"cores": 7}), "VC") == [(1, 0), (2, 0), (1, 4), (2, 4), (3, 1), (3, 2), (3, 3)]
    assert places(sized(SHIP, {"clusters": 9, "cores": 6}), "VC") == [(1, 0), (2, 0), (1, 4), (2, 4), (3, 0), (3, 4)]
    assert [p.y for p in sized(SHIP, {"clusters": 8, "ports": 2}).ports] == [1, 3]
    assert [p.y for p in sized(SHIP, {"ports": 2}).ports] == [1, 2]
    assert not sized(SHIP, {"cores": 0}).units_of("VC")


@pytest.mark.parametrize(
    ("name", "sizes", "words"),
    [
        (
            "ship_3x2",
            {"clusters": 57},
            r"clusters: a mesh of 4 rows of 14 routers holds it; got 57; the limit is 0\.\.56",
        ),
        ("ship_3x2", {"cores": -1}, "cores: a mesh of"),
        ("ship_3x2", {"ports": 5}, r"ports: .* got 5; the limit is 1\.\.4"),
        ("ship_3x2", {"cores": 8}, "got 8; the limit is 7 around 2x3 routers. More clusters"),
        ("ship_3x2", {"ports": 4}, "a ring corner holds nothing"),
        ("ship_3x2", {"ports": 1}, "wr_slots holds two writes per unit"),
        ("ship_3x2", {"clusters": 0, "cores": 0}, "a machine has at least one unit"),
        ("multimesh_4", {"clusters": 4}, "a machine of one mesh grows; got 4 meshes"),
        ("singlemesh_2x2", {"clusters": 4}, "write from where they sit"),
    ],
)
def test_what_no_mesh_holds(name: str, sizes: dict[str, int], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        sized(machines.load(name), sizes)
