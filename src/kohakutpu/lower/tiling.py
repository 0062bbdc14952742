"""Which tile a contraction uses: the fewest cycles estimated on all clusters and ports, under the capacity limits.

An analytic decision that can print its reasons; it does not know addresses or instruction fields' positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import nsmallest
from itertools import product

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.machine import Machine
from kohakutpu.layouts import BURST_WORDS, KBLOCK, LANES, ceil_div
from kohakutpu.machines import capacity


@dataclass(frozen=True, slots=True)
class Tile:
    """gm x gn sub-tiles of 4x4 outputs, fed nk K blocks of 32 at a time; `why` is the decision in words."""

    gm: int
    gn: int
    nk: int
    why: str


@dataclass(frozen=True, slots=True)
class Slots:
    """How one L1 side is cut into equal buffers: slot s is entries offset(s).. of bank(s)."""

    size: int
    per_bank: int
    count: int

    def bank(self, slot: int) -> int:
        return slot // self.per_bank

    def offset(self, slot: int) -> int:
        return (slot % self.per_bank) * self.size


def slots(banks: int, bank_entries: int, size: int) -> Slots:
    """The most buffers of `size` entries that a side of `banks` banks holds without crossing a bank."""
    per_bank = bank_entries // size
    return Slots(size, per_bank, banks * per_bank)


def check(machine: Machine, gm: int, gn: int, nk: int, source: SourceLine | None) -> None:
    """Refuse a tile that the cluster cannot hold double-buffered (datasheet 5.6)."""
    cap = capacity(machine)
    if gm * gn > cap.tiles:
        raise Refusal(
            "gm*gn resident sub-tiles fit the cluster's tile store",
            where=f"tile({gm},{gn},{nk}) on {machine.name}",
            got=gm * gn,
            limit=cap.tiles,
            hint="use a smaller gm or gn",
            source=source,
        )
    for name, side, g, banks, entries in (
        ("gm", "A", gm, cap.banks_a, cap.bank_entries_a),
        ("gn", "B", gn, cap.banks_b, cap.bank_entries_b),
    ):
        if slots(banks, entries, g * nk).count < 2:
            raise Refusal(
                f"{name}*nk entries fit L1 side {side} twice, so that a fill never touches what a live sweep reads",
                where=f"tile({gm},{gn},{nk}) on {machine.name}",
                got=g * nk,
                limit=entries if banks > 1 else entries // 2,
                hint=f"use a smaller {name} or nk",
                source=source,
            )
    for name, value in (("gm", gm), ("gn", gn), ("nk", nk)):
        if value > 255:
            raise Refusal(
                f"{name} fits its 8-bit instruction field",
                where=f"tile({gm},{gn},{nk})",
                got=value,
                limit=255,
                hint=f"use a smaller {name}",
                source=source,
            )


def instances(tile: Tile, m: int, n: int) -> int:
    """Tiles of an m x n result."""
    return ceil_div(m, LANES * tile.gm) * ceil_div(n, LANES * tile.gn)


def cycles(machine: Machine, tile: Tile, m: int, n: int, k: int, batch: int = 1, terms: int = 1) -> int:
    """An estimate for `batch` sums of `terms` m x n x k products (datasheet 8.1 and 8.2), nothing kept in L1.

    The busiest of: a port, whose clusters' fills follow each other; a cluster's array; its fills and drains.
    """
    t, units = machine.timing, machine.units_of("MG", mesh=0)
    count, words = batch * instances(tile, m, n), tile.gm * tile.gn
    sweeps = terms * ceil_div(k, KBLOCK * tile.nk)
    fills = sweeps * (tile.gm + tile.gn) * tile.nk * (t.entry_preq + t.L)
    array = sweeps * (words * tile.nk + t.sweep_tail + t.sweep_gap)
    drain = t.drain_long + t.drain_burst * ceil_div(words, machine.params.drain_burst)
    # Without clusters any tile will do: lowering refuses the product.
    rounds, port = (ceil_div(count, max(1, n)) for n in (len(units), len({u.port for u in units})))
    return max(port * fills, rounds * array + drain, rounds * (fills + drain))


def _tiles(machine: Machine, k: int) -> Iterator[Tile]:
    """Powers of two that fit, in whole drain bursts, so that the result has no holes."""
    cap = capacity(machine)
    powers = [1 << p for p in range(8)]
    for gm, gn, nk in product(powers, repeat=3):
        if gm * gn > cap.tiles or (gm * gn) % BURST_WORDS or (nk > 1 and nk >= 2 * ceil_div(k, KBLOCK)):
            continue
        sides = ((cap.banks_a, cap.bank_entries_a, gm), (cap.banks_b, cap.bank_entries_b, gn))
        if all(slots(banks, entries, g * nk).count >= 2 for banks, entries, g in sides):
            yield Tile(gm, gn, nk, "")


@lru_cache(maxsize=1024)
def choose(machine: Machine, m: int, n: int, k: int, batch: int = 1, terms: int = 1) -> Tile:
    """The tile for `batch` sums of `terms` m x n x k products: the first of `ranked`."""
    (best,) = ranked(machine, m, n, k, batch, terms)
    return best


def ranked(
    machine: Machine, m: int, n: int, k: int, batch: int = 1, terms: int = 1, count: int = 1
) -> tuple[Tile, ...]:
    """The `count` best tiles by estimate: the fewest cycles, then the most K per fill, then the squarest."""
    shape = m, n, k, batch, terms
    best = nsmallest(count, _tiles(machine, k), key=lambda t: (cycles(machine, t, *shape), -t.nk, abs(t.gm - t.gn)))
    if not best:
        raise Refusal("no tile fits this machine", where=machine.name, hint="give it more L1 entries or tiles")
    return tuple(_explained(machine, tile, *shape) for tile in best)


def _explained(machine: Machine, tile: Tile, m: int, n: int, k: int, batch: int, terms: int) -> Tile:
    """The tile with the numbers that rank it."""
    gm, gn = tile.gm, tile.gn
    padded = LANES * gm * ceil_div(m, LANES * gm) * LANES * gn * ceil_div(n, LANES * gn)
    share = m * n * k / (padded * KBLOCK * tile.nk * ceil_div(k, KBLOCK * tile.nk))
    why = (
        f"{2 * gm * gn / (gm + gn):.2f} MACs per operand byte, {100 * share:.1f}% of the padded work is the problem's, "
        f"{cycles(machine, tile, m, n, k, batch, terms):,} cycles estimated"
    )
    return replace(tile, why=why)
