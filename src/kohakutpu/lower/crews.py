"""How a contraction's tiles are dealt to clusters: one after another, in pairs on two accumulators, in crews that fetch
together (datasheet 10, `r2_dual_acc`, `r2_multicast`).

It decides who works beside whom and in which order, and prints it; it must not know instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine, Unit
from kohakutpu.machines import capacity

if TYPE_CHECKING:
    from kohakutpu.lower.contraction import ContractionBand

Ints = NDArray[np.int64]
Turn = tuple[tuple[int, ...], ...]  # per member of a crew, the instances it computes side by side
MOST_MEMBERS = 4  # a share has at most three peers


@dataclass(frozen=True, slots=True)
class Mode:
    """accumulators: tiles that a cluster computes side by side. shared: the operand ("A" or "B") whose chunks all tiles
    of a turn have in common, "" where a turn is one tile. crew: clusters behind one port take turns together and fetch
    what is shared once."""

    accumulators: int = 1
    shared: str = ""
    crew: bool = False

    @property
    def side(self) -> int:
        """0 for A, 1 for B, -1 for none."""
        return " AB".index(self.shared or " ") - 1

    def __str__(self) -> str:
        parts = ["two accumulators"] if self.accumulators == 2 else []
        parts += [f"{self.shared} shared" + (" by the clusters behind a port" if self.crew else "")] * bool(self.shared)
        return ", ".join(parts) or "one tile after another"


PLAIN = Mode()


def modes(machine: Machine) -> tuple[Mode, ...]:
    """What this machine offers, the plain way first."""
    found = [PLAIN]
    accumulators = range(1, capacity(machine).accumulators + 1)
    crews = [False, True] if machine.features.r2_multicast and any(len(c) > 1 for c in crews_of(machine)) else [False]
    found += [Mode(2)] if 2 in accumulators else []
    found += [Mode(n, side, crew) for n in accumulators for crew in crews for side in "BA" if n > 1 or crew]
    return tuple(found)


def crews_of(machine: Machine) -> list[tuple[Unit, ...]]:
    """The clusters of mesh 0 by memory port, at most four in one crew."""
    clusters = sorted(machine.units_of("MG", mesh=0), key=lambda u: (u.port, u.index))
    found: list[tuple[Unit, ...]] = []
    for _, group in groupby(clusters, key=lambda u: u.port):
        units = tuple(group)
        count = -(-len(units) // MOST_MEMBERS)
        found += [units[i::count] for i in range(count)]
    return found


def deal(band: ContractionBand) -> list[tuple[tuple[Unit, ...], list[Turn]]]:
    """(members, turns) of every crew with work. Shares are contiguous; sizes differ by at most one tile a cluster."""
    mode = band.mode
    count = len(band.out_at)
    if mode.side < 0:
        return [((unit,), [((n,),) for n in share]) for unit, share in _shares(band, count) if share]
    crews = crews_of(band.machine) if mode.crew else [(unit,) for unit in band.clusters]
    keys = _keys(band, mode.side)
    order = np.lexsort((np.arange(count), keys))
    ends = np.cumsum([len(crew) for crew in crews]) * count // sum(len(crew) for crew in crews)
    found: list[tuple[tuple[Unit, ...], list[Turn]]] = []
    for crew, share in zip(crews, np.split(order, ends[:-1])):
        turns: list[Turn] = []
        most = mode.accumulators * len(crew)
        for _, run in groupby(share.tolist(), key=lambda n: int(keys[n])):
            tiles = list(run)
            pieces = np.array_split(np.array(tiles), -(-len(tiles) // most))
            turns += [tuple(tuple(part.tolist()) for part in np.array_split(some, len(crew))) for some in pieces]
        if turns:
            found.append((crew, turns))
    return found


def _shares(band: ContractionBand, count: int) -> list[tuple[Unit, list[int]]]:
    """Contiguous shares of `count` instances; those left over go to clusters of different ports first."""
    clusters = band.clusters
    rank: dict[int, int] = {}  # clusters seen behind a port
    order: list[tuple[int, int]] = []
    for i, unit in enumerate(clusters):
        order.append((rank.get(unit.port, 0), i))
        rank[unit.port] = rank.get(unit.port, 0) + 1
    sizes = [count // len(clusters)] * len(clusters)
    for _, i in sorted(order)[: count % len(clusters)]:
        sizes[i] += 1
    ends = np.cumsum(sizes)
    return [(unit, list(range(int(e) - n, int(e)))) for unit, n, e in zip(clusters, sizes, ends)]


def _keys(band: ContractionBand, side: int) -> Ints:
    """int64[instances]: equal where two instances read the same chunks of a side, in the same order."""
    columns: list[Ints] = []
    for t in band.terms:
        at = t.a_at if side == 0 else t.b_at
        columns += [at[:, 0], at[:, 1], t.first, t.b_first, t.count]
    _, which = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return which.ravel().astype(np.int64)


def describe(mode: Mode, crews: Sequence[tuple[tuple[Unit, ...], list[Turn]]], saved: tuple[int, int]) -> list[str]:
    """Lines for a plan; saved: (cycles estimated for this way, for the plain one)."""
    if mode == PLAIN:
        return []
    lines = [f"{mode}: {saved[0]:,} cycles estimated, {saved[1]:,} one tile after another"]
    if mode.accumulators == 2:
        lines.append("tiles alternate between the accumulators: a drain runs beside the next sweep")
    if mode.crew:
        lines.append("crews " + "; ".join(" + ".join(u.name for u in crew) for crew, _ in crews))
    return lines
