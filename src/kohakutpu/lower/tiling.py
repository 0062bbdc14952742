"""Which tile a contraction uses: operand intensity discounted by padding, under the machine's capacity limits.

An analytic decision that can print its reasons; it does not know addresses or instruction fields' positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

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


@lru_cache(maxsize=1024)
def choose(machine: Machine, m: int, n: int, k: int) -> Tile:
    """The tile for an m x n x k contraction: intensity first (discounted by padding), then K per fill, then
    squareness. Powers of two only, and whole drain bursts, so that the result has no holes."""
    cap = capacity(machine)
    powers = [1 << p for p in range(8)]
    best: tuple[tuple[int, int, int], int, int, int] | None = None
    for gm in powers:
        for gn in powers:
            if gm * gn > cap.tiles or (gm * gn) % BURST_WORDS:
                continue
            for nk in powers:
                if nk > 1 and KBLOCK * nk > KBLOCK * ceil_div(k, KBLOCK) * 2 - KBLOCK:
                    continue
                if slots(cap.banks_a, cap.bank_entries_a, gm * nk).count < 2:
                    continue
                if slots(cap.banks_b, cap.bank_entries_b, gn * nk).count < 2:
                    continue
                padded = (
                    LANES
                    * gm
                    * ceil_div(m, LANES * gm)
                    * (LANES * gn * ceil_div(n, LANES * gn))
                    * (KBLOCK * nk * ceil_div(k, KBLOCK * nk))
                )
                score = 2 * gm * gn / (gm + gn) * (m * n * k / padded)
                key = (round(score * 4096), nk, -abs(gm - gn))
                if best is None or key > best[0]:
                    best = (key, gm, gn, nk)
    if best is None:
        raise Refusal("no tile fits this machine", where=machine.name, hint="give it more L1 entries or tiles")
    _, gm, gn, nk = best
    intensity = 2 * gm * gn / (gm + gn)
    share = best[0][0] / 4096 / intensity
    why = f"{intensity:.2f} MACs per operand byte, {100 * share:.1f}% of the padded work is the problem's"
    return Tile(gm, gn, nk, why)
