"""The machines of datasheet 1.1 to 1.3, typed in by hand.

Only what functional behaviour needs: who sits where, and the capacities.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

XY = tuple[int, int]


@dataclass(frozen=True)
class Mesh:
    """One mesh: its units in datasheet order, its ports (the agent answers at port 0), its DRAM bytes."""

    mg: tuple[XY, ...]
    vc: tuple[XY, ...]
    ports: tuple[XY, ...]
    dram: int = 4 << 30


@dataclass(frozen=True)
class Preset:
    """A machine: meshes and the parameters of 1.3."""

    meshes: tuple[Mesh, ...]
    tiles: int = 512
    l1: tuple[int, int] = (512, 512)
    inst_fifo: int = 32
    quantising_upload: bool = True
    stage_flits: int = 128
    ncmd: int = 128
    options: tuple[str, ...] = ()  # of section 10


SHIP_3X2 = Preset(
    (
        Mesh(
            mg=((1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (2, 3)),
            vc=((1, 0), (2, 0), (1, 4), (2, 4)),
            ports=((0, 1), (0, 2), (0, 3)),
        ),
    )
)
MINI = Preset((Mesh(((1, 1),), ((1, 0),), ((0, 1),), 64 << 20),))
SINGLEMESH_2X2 = Preset(
    (Mesh(((1, 1), (1, 2)), ((1, 0), (2, 0), (1, 3), (2, 3)), ((0, 1), (0, 2))),),
    tiles=256,
    l1=(32, 32),
    quantising_upload=False,
)
_MESH = Mesh(((1, 0), (1, 1), (2, 1), (1, 2), (2, 2), (1, 3)), ((2, 0), (2, 3)), ((0, 1), (0, 2)))
_MESH1 = Mesh(((1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2)), (), ((0, 1), (3, 1)))
MULTIMESH_4 = replace(MINI, meshes=(_MESH, _MESH1, _MESH, _MESH))

PRESETS = {
    "ship_3x2": SHIP_3X2,
    "mini": MINI,
    "singlemesh_2x2": SINGLEMESH_2X2,
    "multimesh_4": MULTIMESH_4,
}
