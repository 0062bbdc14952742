"""The instances of a stage: every combination of its axes' positions, as one array per index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang.dims import Dim
from kohakuaccel.lang.indices import Index, Numbers
from kohakuaccel.lang.ports import Tiling
from kohakuaccel.lang.trace import StageNode
from kohakutpu.layouts import LANES, ceil_div
from kohakutpu.lower.work import Env, Work

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Instances:
    """batch: int64[n], the implicit batch element; known: per index int64[n] (or a number, for loops around)."""

    batch: Ints
    known: dict[Index | Dim, Numbers | int]

    @property
    def count(self) -> int:
        return len(self.batch)


def tile_rows(work: Work, tiling: Tiling) -> int:
    """Extent of the axis that `tiles` cuts: the port's next to last (its only one for a vector)."""
    return work.extent(tiling.port.axes[-2:][0])


def extent(work: Work, axis: Index, node: StageNode) -> int:
    """How many positions a stage axis has."""
    tiling = axis.over
    assert isinstance(tiling, Tiling)
    axes = tiling.port.axes
    match tiling.kind:
        case "tiles":
            return ceil_div(tile_rows(work, tiling), LANES * tiling.size)
        case "each":
            return work.extent(axes[tiling.size])
        case "rows":
            return work.extent(axes[-2]) if len(axes) > 1 else 1
        case _:
            raise Refusal(
                "a stage runs over tiles, rows, parts or positions of an axis",
                where=f"{axis}<-{tiling}",
                hint="K chunks belong to a sweep inside the stage",
                source=node.source,
            )


def enumerate_instances(work: Work, node: StageNode, env: Env, order: tuple[Index, ...], batched: bool) -> Instances:
    """All combinations, the first of `order` slowest; the implicit batch (if `batched`) slower than any."""
    sizes = [work.batch if batched else 1, *(extent(work, axis, node) for axis in order)]
    grid = np.meshgrid(*(np.arange(n, dtype=np.int64) for n in sizes), indexing="ij")
    known: dict[Index | Dim, Numbers | int] = dict(env)
    known.update({axis: g.ravel() for axis, g in zip(order, grid[1:])})
    return Instances(grid[0].ravel(), known)
