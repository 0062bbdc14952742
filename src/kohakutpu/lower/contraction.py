"""The contraction band: tiles of sums of products A @ B.T on the clusters, and what they compute.

It decides which products make a tile and what they compute; who computes which tile in what order is in `crews`
(column band outermost, so that a band's B is met again while it is still in L1), the instructions in `cluster_stream`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.program import UnitProgram
from kohakuaccel.schedule import Array
from kohakutpu.layouts import KBLOCK, LANES, DrainedTiles, OperandPack
from kohakutpu.lower import crews, evaluate
from kohakutpu.lower.cluster_stream import CrewStream
from kohakutpu.lower.crews import PLAIN, Mode, Turn
from kohakutpu.lower.tiling import Slots, slots
from kohakutpu.lower.windows import WindowPack
from kohakutpu.machines import capacity

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Term:
    """One product added to a tile. a, b: buffers; *_at: int64[instances, 2] of (batch element, tile) of each instance;
    first, b_first, count: int64[instances], the K chunks of a (and of b) that it runs over."""

    a: int
    b: int
    a_layout: OperandPack | WindowPack
    b_layout: OperandPack
    a_at: Ints
    b_at: Ints
    first: Ints
    b_first: Ints
    count: Ints


@dataclass(frozen=True, eq=False, slots=True)
class ContractionBand:
    """out tile = sum over terms of A tile @ B tile.T. out_at: int64[instances, 3] of (batch, tile row, tile column),
    column band outermost."""

    machine: Machine
    out: int
    out_layout: DrainedTiles
    out_at: Ints
    terms: tuple[Term, ...]
    gm: int
    gn: int
    nk: int
    why: str
    source: SourceLine
    nodes: tuple[Unit, ...] = ()
    """The vector core that takes each instance's tile at L1 word 0, instead of memory."""
    mode: Mode = PLAIN
    """How tiles are dealt, and what it is estimated to save: (cycles this way, cycles one tile after another)."""
    saved: tuple[int, int] = (0, 0)

    @property
    def engine(self) -> str:
        return "MG"

    @property
    def clusters(self) -> tuple[Unit, ...]:
        return self.machine.units_of("MG", mesh=0)

    def sides(self) -> tuple[Slots, Slots]:
        """How L1 is cut for A and for B."""
        cap = capacity(self.machine)
        return (
            slots(cap.banks_a, cap.bank_entries_a, self.gm * self.nk),
            slots(cap.banks_b, cap.bank_entries_b, self.gn * self.nk),
        )

    def deal(self) -> list[tuple[tuple[Unit, ...], list[Turn]]]:
        """(members, turns) of every crew with work; by default a crew is one cluster and a turn one tile."""
        return crews.deal(self)

    def fastest(self) -> ContractionBand:
        """This band dealt in the way that is estimated to take the fewest cycles on its machine."""
        ways = crews.modes(self.machine)
        if any(isinstance(term.a_layout, WindowPack) for term in self.terms):
            ways = tuple(mode for mode in ways if not (mode.crew and mode.shared == "A"))  # no shared descriptors
        if self.nodes or len(ways) == 1:
            return self
        bands = [replace(self, mode=mode) for mode in ways]
        cycles = [band.estimate() for band in bands]
        best = min(range(len(ways)), key=lambda i: (cycles[i], i))
        return replace(bands[best], saved=(cycles[best], cycles[0]))

    def estimate(self) -> int:
        """Cycles by the costs of datasheet 8.1 and 8.2, without contention but for a port's fills one after another:
        the busiest of ports, clusters' instructions (fills and drains) and arrays."""
        t, words = self.machine.timing, self.gm * self.gn
        sweep = words * self.nk + t.sweep_tail + t.sweep_gap
        drain = t.drain_long + t.drain_burst * words // self.machine.params.drain_burst
        ports: dict[int, int] = {}
        most = 0
        for crew, turns in self.deal():
            stream = CrewStream(self, crew)
            stream.turns(turns)
            ports[crew[0].port] = ports.get(crew[0].port, 0) + stream.port_cycles
            for m, fills in enumerate(stream.fill_cycles):
                tiles = [n for turn in turns for n in turn[m]]
                sweeps = sum(int(term.count[n]) for term in self.terms for n in tiles)
                most = max(most, sweep * sweeps + drain, fills + drain * len(tiles))
        return max(most, *ports.values())

    def emits(self, instance: int) -> bool:
        """Whether the last sweep may hand out its sub-tiles: one that only loads cannot (datasheet 5.6)."""
        return self.nk > 1 or sum(int(t.count[instance]) for t in self.terms) > 1

    def describe(self) -> Sequence[str]:
        down, across = self.out_layout.grid
        batch = f"{self.out_layout.batch} x " if self.out_layout.batch > 1 else ""
        shares = self.deal()
        working = sum(1 for crew, turns in shares for m in range(len(crew)) if any(turn[m] for turn in turns))
        lines = [
            f"grid {batch}{down}x{across} of {4 * self.gm}x{4 * self.gn}, {len(self.out_at)} instances on "
            f"{working} clusters",
            f"tile {self.gm}x{self.gn} sub-tiles, {self.nk} K blocks per fill: {self.why}",
        ]
        uses, fills = self.reuse()
        side_a, side_b = self.sides()
        operands: dict[str, int] = {}
        for term in self.terms:
            low, high = int(term.count.min()), int(term.count.max())
            chunks = f"{high}" if low == high else f"{low} to {high}"
            text = f"A {term.a_layout}, B {term.b_layout}: {chunks} chunks"
            operands[text] = operands.get(text, 0) + 1
        lines += [text + (f", {times} times" if times > 1 else "") for text, times in operands.items()]
        for name, side, k in (("A", side_a, 0), ("B", side_b, 1)):
            lines.append(f"{name} in {side.count} buffers of {side.size} entries: {fills[k]} fills for {uses[k]} uses")
        if self.mode.accumulators == 2:
            drain = "after the sweep, beside the next one"
        elif any(self.emits(n) for n in range(len(self.out_at))):
            drain = "fused with the last K block, after the sweep for a cluster's last tile"
        else:
            drain = "after the sweep"
        where = f"L1 of {', '.join(u.name for u in self.nodes)}" if self.nodes else str(self.out_layout)
        lines.append(f"drain {drain} -> {where}")
        return lines + crews.describe(self.mode, shares, self.saved)

    def reuse(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """((A chunks used, B chunks used), (A chunks filled, B chunks filled)) over all clusters."""
        used = sum(int(t.count.sum()) for t in self.terms)
        filled = [0, 0]
        for crew, turns in self.deal():
            stream = CrewStream(self, crew)
            stream.turns(turns)
            filled[0] += stream.filled[0]
            filled[1] += stream.filled[1]
        return (used, used), (filled[0], filled[1])

    def reads(self) -> Sequence[int]:
        return tuple(dict.fromkeys(n for t in self.terms for n in (t.a, t.b)))

    def writes(self) -> Sequence[tuple[int, Ints]]:
        out = self.out_layout
        first = [out.tile_offset(int(b), int(i), int(j)) // 32 for b, i, j in self.out_at]
        ranges = np.array(first, np.int64)[:, None] + np.zeros((1, 2), np.int64)
        ranges[:, 1] = self.gm * self.gn
        return ((self.out, ranges),)

    def run(self, values: dict[int, Array]) -> None:
        out = self.out_layout
        if self.out not in values:
            values[self.out] = np.zeros((out.batch, out.rows, out.cols), np.float16)
        result = values[self.out].reshape(out.batch, out.rows, out.cols)
        height, width = LANES * self.gm, LANES * self.gn
        for group in self._groups():
            rows, cols = self.out_at[group, 1], self.out_at[group, 2]
            parts = [self._operands(values, t, group) for t in self.terms]
            block = evaluate.contract_terms(parts)
            batch = int(self.out_at[group[0], 0])
            i0, j0 = int(rows.min()), int(cols.min())
            for i, j in zip(rows.tolist(), cols.tolist()):
                top, left = height * i, width * j
                piece = block[height * (i - i0) : height * (i - i0 + 1), width * (j - j0) : width * (j - j0 + 1)]
                target = result[batch, top : top + height, left : left + width]
                target[:] = piece[: target.shape[0], : target.shape[1]]

    def _groups(self) -> list[Ints]:
        """Instances that are one rectangular product: same matrices, same chunks, tiles in step with the output."""
        keys = [self.out_at[:, 0]]
        for t in self.terms:
            keys += [t.a_at[:, 0], t.b_at[:, 0], t.first, t.b_first, t.count]
            keys += [t.a_at[:, 1] - self.out_at[:, 1], t.b_at[:, 1] - self.out_at[:, 2]]
        _, which = np.unique(np.stack(keys, axis=1), axis=0, return_inverse=True)
        return [np.flatnonzero(which.ravel() == g) for g in range(int(which.max()) + 1)]

    def _operands(self, values: dict[int, Array], t: Term, group: Ints) -> tuple[Array, Array]:
        length = int(t.count[group[0]]) * KBLOCK * self.nk
        found: list[Array] = []
        for buffer, layout, at, lanes, first in (
            (t.a, t.a_layout, t.a_at[group], LANES * self.gm, t.first),
            (t.b, t.b_layout, t.b_at[group], LANES * self.gn, t.b_first),
        ):
            k0 = int(first[group[0]]) * KBLOCK * self.nk
            if isinstance(layout, WindowPack):
                whole = layout.matrix(values[buffer], int(at[0, 0]))
            else:
                whole = values[buffer].reshape(layout.batch, layout.rows, layout.cols)[int(at[0, 0])]
            low, high = int(at[:, 1].min()) * lanes, (int(at[:, 1].max()) + 1) * lanes
            part = whole[low:high, k0 : k0 + length]
            padded = np.zeros((high - low, length), np.float16)
            padded[: part.shape[0], : part.shape[1]] = part
            found.append(padded)
        return found[0], found[1]

    def programs(self, source: int) -> list[UnitProgram]:
        """The instruction stream of each cluster with work. source: number of this band's source line."""
        result: list[UnitProgram] = []
        for crew, turns in self.deal():
            stream = CrewStream(self, crew)
            stream.turns(turns)
            result += stream.finish(source)
        return result


def ranking(layout: DrainedTiles, terms: Sequence[Term]) -> str:
    """The two numbers that rank a tile: operand intensity, and how much of the padded work is the problem's."""
    down, across = layout.grid
    rows, cols = down * LANES * layout.gm, across * LANES * layout.gn
    asked = sum(layout.rows * layout.cols * t.a_layout.cols for t in terms)
    done = sum(rows * cols * t.a_layout.chunks * t.a_layout.chunk * KBLOCK for t in terms)
    intensity = 2 * layout.gm * layout.gn / (layout.gm + layout.gn)
    return f"{intensity:.2f} MACs per operand byte, {100 * asked / done:.1f}% of the padded work is the problem's"
