"""Machines of other sizes: how a mesh grows where somebody asks for more clusters, vector cores or memory ports.

Decides where units of a machine that was never built would sit. Limits stay with the schema, which checks the result.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohakuaccel.diagnostics import DefinitionError
from kohakuaccel.machine import Machine, parse

SIZES: Mapping[str, str] = {
    "clusters": "matmul clusters, one a router",
    "cores": "vector cores, on the ring above and below, then on the right",
    "ports": "memory ports, on the left, 1 to 4",
}
"""What can be grown, by name."""
COLUMNS = 14  # a coordinate has four bits, and the ring behind the last column takes one (datasheet 1)
ROWS = 4  # a mesh has at most four ports (datasheet 1), and every row gets one of its own


def sized(machine: Machine, sizes: Mapping[str, int]) -> Machine:
    """A machine with as many clusters, cores and ports; everything else as `machine` has it.

    Clusters fill a grid row by row, one a router. It is as wide as the machine's (ship_3x2: 2) while four rows hold
    them, else as much wider as it takes. Every row has a port of its own at its left, unless `ports` says how many
    there are; those are spread over the rows. Vector cores keep their number and lie on the ring, two above, two below
    and so on, then to the right. Raises DefinitionError for what no mesh holds, and whatever the schema refuses.
    """
    if len(machine.meshes) != 1:
        raise DefinitionError(
            "a machine of one mesh grows", where=machine.name, got=f"{len(machine.meshes)} meshes", limit=1
        )
    if any((u.write_x, u.write_y) != (u.x, u.y) for u in machine.units):
        raise DefinitionError(
            "a machine grows whose units write from where they sit",
            where=machine.name,
            got="second write endpoints",
            hint="start from ship_3x2 or mini",
        )
    for name, count in sizes.items():
        least, most = (1, ROWS) if name == "ports" else (0, ROWS * COLUMNS)
        if not least <= count <= most:
            raise DefinitionError(
                f"a mesh of {ROWS} rows of {COLUMNS} routers holds it",
                where=f"{machine.name}: {name}",
                got=count,
                limit=f"{least}..{most}",
            )
    columns, rows = machine.meshes[0].nx, machine.meshes[0].ny
    clusters, cores = ([[u.x, u.y] for u in machine.units_of(kind)] for kind in ("MG", "VC"))
    ports = [[p.x, p.y] for p in machine.ports]
    if "clusters" in sizes:
        count = sizes["clusters"]
        columns = max(columns, -(-count // ROWS))
        rows = max(-(-count // columns), 1)
        clusters = [[n % columns + 1, n // columns + 1] for n in range(count)]
    if "clusters" in sizes or "ports" in sizes:
        count = sizes.get("ports", min(rows, ROWS))
        ports = [[0, n * max(rows, count) // count + 1] for n in range(count)]
    if "clusters" in sizes or "cores" in sizes:
        wanted = sizes.get("cores", len(cores))
        free = [at for at in _ring(columns, rows) if at not in (*clusters, *ports)]
        cores = free[:wanted]
        if len(cores) < wanted:
            raise DefinitionError(
                "vector cores lie on the ring of the grid",
                where=f"{machine.name}: cores",
                got=wanted,
                limit=f"{len(free)} around {columns}x{rows} routers",
                hint="more clusters make a longer ring",
            )
    mesh = {
        "grid": [columns, rows],
        "ports": ports,
        "dram": f"{machine.memories[0].size >> 10} KiB",
        "units": {"MG": clusters, "VC": cores},
    }
    raw = {
        "name": machine.name,
        "family": machine.family,
        "description": machine.description,
        "profile": machine.profile,
        "mesh": [mesh],
        "params": machine.params.as_dict(),
        "features": machine.features.as_dict(),
        "timing": {name: [machine.timing[name], machine.timing.tag(name)] for name in machine.timing},
    }
    return parse(raw, machine.name)


def _ring(columns: int, rows: int) -> list[list[int]]:
    """Places on the ring: two above and two below, from the left, then the right side."""
    ends = [[x, y] for first in range(1, columns + 1, 2) for y in (0, rows + 1) for x in (first, first + 1)]
    return [at for at in ends if at[0] <= columns] + [[columns + 1, y] for y in range(1, rows + 1)]
