"""The contraction band: C[b, M, N] = A[b, M, K] @ B[b, N, K].T on the clusters, and its instruction streams.

It decides which cluster computes which tile, in what order, and which L1 slots hold what. Tiles go column band
outermost, so that a band's B stays resident when all its chunks fit; A streams through the remaining slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.program import UnitProgram
from kohakuaccel.schedule import Array
from kohakutpu.isa import cluster as isa
from kohakutpu.layouts import DrainedTiles, OperandPack
from kohakutpu.lower import evaluate
from kohakutpu.lower.codecs import ClusterCodec
from kohakutpu.lower.tiling import Slots, slots
from kohakutpu.machines import capacity

_C = {
    name: isa.CLUSTER.column(name)
    for name in (
        "op",
        "addr",
        "n",
        "sel",
        "acc",
        "gm",
        "gn",
        "nk",
        "anchor",
        "preq",
        "eoff",
        "aoff",
        "boff",
        "emit",
        "fuse",
        "abank",
        "bbank",
        "fbank",
    )
}
_COLUMNS = len(isa.CLUSTER.fields)
ANCHOR = 40
_FUSED = "fused with the last K block, after the sweep for a cluster's last tile"


@dataclass(frozen=True, slots=True)
class ContractionBand:
    """One batched contraction. a, b, out: buffer numbers; *_of_batch: which batch element of the operand each
    output batch element reads."""

    machine: Machine
    a: int
    b: int
    out: int
    a_layout: OperandPack
    b_layout: OperandPack
    out_layout: DrainedTiles
    a_of_batch: tuple[int, ...]
    b_of_batch: tuple[int, ...]
    gm: int
    gn: int
    nk: int
    why: str
    source: SourceLine

    @property
    def engine(self) -> str:
        return "MG"

    @property
    def chunks(self) -> int:
        return self.a_layout.chunks

    @property
    def b_resident(self) -> bool:
        """Whether all K chunks of a column band fit B's slots, so that they are filled once per band."""
        return self.chunks <= self._slots()[1].count

    def _slots(self) -> tuple[Slots, Slots]:
        cap = capacity(self.machine)
        return (
            slots(cap.banks_a, cap.bank_entries_a, self.gm * self.nk),
            slots(cap.banks_b, cap.bank_entries_b, self.gn * self.nk),
        )

    @property
    def clusters(self) -> tuple[Unit, ...]:
        return self.machine.units_of("MG", mesh=0)

    def instances(self) -> NDArray[np.int64]:
        """int64[n, 3] of (batch, tile row, tile column), column band outermost."""
        down, across = self.out_layout.grid
        batch, col, row = np.meshgrid(
            np.arange(self.out_layout.batch), np.arange(across), np.arange(down), indexing="ij"
        )
        return np.stack([batch.ravel(), row.ravel(), col.ravel()], axis=1).astype(np.int64)

    def deal(self) -> list[tuple[Unit, NDArray[np.int64]]]:
        """Contiguous shares of the instances, one per cluster that has work, sizes differing by at most one."""
        shares = np.array_split(self.instances(), len(self.clusters))
        return [(unit, share) for unit, share in zip(self.clusters, shares) if len(share)]

    def describe(self) -> Sequence[str]:
        down, across = self.out_layout.grid
        batch = f"{self.out_layout.batch} x " if self.out_layout.batch > 1 else ""
        count = self.out_layout.batch * down * across
        side_a, side_b = self._slots()
        b_text = "resident per column band" if self.b_resident else f"streamed through {side_b.count} slots"
        return [
            f"grid {batch}{down}x{across} of {4 * self.gm}x{4 * self.gn}, {count} instances on "
            f"{len(self.deal())} clusters",
            f"tile {self.gm}x{self.gn} sub-tiles, {self.nk} K blocks per fill, {self.chunks} chunks: {self.why}",
            f"A {self.a_layout}: streamed through {side_a.count} slots of {side_a.size} entries",
            f"B {self.b_layout}: {b_text}, {side_b.size} entries each",
            f"drain {_FUSED if self._emits else 'after the sweep'} -> {self.out_layout}",
        ]

    def reads(self) -> Sequence[int]:
        return (self.a, self.b)

    def writes(self) -> Sequence[tuple[int, NDArray[np.int64]]]:
        out = self.out_layout
        ranges = np.array(
            [(out.tile_offset(int(b), int(i), int(j)) // 32, self.gm * self.gn) for b, i, j in self.instances()],
            np.int64,
        ).reshape(-1, 2)
        return ((self.out, ranges),)

    def run(self, values: dict[int, Array]) -> None:
        a = values[self.a].reshape(self.a_layout.batch, self.a_layout.rows, self.a_layout.cols)
        b = values[self.b].reshape(self.b_layout.batch, self.b_layout.rows, self.b_layout.cols)
        parts = [evaluate.contract(a[i], b[j]) for i, j in zip(self.a_of_batch, self.b_of_batch)]
        values[self.out] = np.stack(parts)

    @property
    def _emits(self) -> bool:
        """A sweep that only loads cannot hand out its sub-tiles (datasheet 5.6): drain it afterwards."""
        return self.chunks > 1 or self.nk > 1

    def programs(self, source: int) -> list[UnitProgram]:
        """The instruction stream of each cluster with work. source: number of this band's source line."""
        result: list[UnitProgram] = []
        for unit, share in self.deal():
            rows, buffers, passes = self._stream(share)
            table = np.zeros((len(rows), _COLUMNS), np.int64)
            filled = np.array(rows, np.int64)
            for position, name in enumerate(_ROW):
                table[:, _C[name]] = filled[:, position]
            table[:, _C["anchor"]] = ANCHOR
            result.append(
                UnitProgram(
                    unit,
                    ClusterCodec(self.machine, unit),
                    table,
                    np.array(buffers, np.int32),
                    np.full(len(rows), source, np.int32),
                    np.array(passes, np.int64),
                )
            )
        return result

    def _stream(self, share: NDArray[np.int64]) -> tuple[list[tuple[int, ...]], list[int], list[int]]:
        side_a, side_b = self._slots()
        gm, gn, nk, chunks = self.gm, self.gn, self.nk, self.chunks
        most = self.machine.params.fill_max
        rows: list[tuple[int, ...]] = []
        buffers: list[int] = []
        passes: list[int] = []
        turn_a = turn_b = 0
        base_b = 0
        band: tuple[int, int] | None = None
        pending: tuple[int, ...] | None = None  # the previous tile's DRAIN, held back behind the next first fill

        def fill(sel: int, layout: OperandPack, offset: int, side: Slots, slot: int) -> None:
            done = 0
            while done < side.size:
                n = min(most, side.size - done)
                rows.append(
                    _row(
                        op=isa.FILL,
                        addr=offset + done * layout.entry_bytes,
                        n=n,
                        sel=sel,
                        preq=int(layout.preq),
                        eoff=side.offset(slot) + done,
                        fbank=side.bank(slot),
                        nk=1,
                    )
                )
                buffers.append(self.a if sel == 0 else self.b)
                done += n

        final = len(share) - 1
        for number, (b, i, j) in enumerate(share.tolist()):
            first = len(rows)
            # A sweep counts as live until the next GEMM or non-fused DRAIN (datasheet 5.3), so a stream that ended in a
            # fused DRAIN would forbid the first FILL of whatever this cluster runs next: the last tile drains after it.
            emits = self._emits and number != final
            fresh = band != (b, j)
            if fresh:
                band = (b, j)
                base_b = turn_b
            for c in range(chunks):
                slot_a = turn_a % side_a.count
                turn_a += 1
                fill(0, self.a_layout, self.a_layout.run_offset(self.a_of_batch[b], i, c), side_a, slot_a)
                if not self.b_resident:
                    slot_b = turn_b % side_b.count
                else:
                    slot_b = (base_b + c) % side_b.count
                if fresh or not self.b_resident:
                    fill(1, self.b_layout, self.b_layout.run_offset(self.b_of_batch[b], j, c), side_b, slot_b)
                    turn_b += 1
                if c == 0:
                    if pending is not None:
                        rows.append(pending)
                        buffers.append(self.out)
                    passes.append(first)
                last = c == chunks - 1
                rows.append(
                    _row(
                        op=isa.GEMM,
                        acc=int(c > 0),
                        gm=gm,
                        gn=gn,
                        nk=nk,
                        aoff=side_a.offset(slot_a),
                        boff=side_b.offset(slot_b),
                        abank=side_a.bank(slot_a),
                        bbank=side_b.bank(slot_b),
                        emit=int(last and emits),
                        addr=self._drain_offset(b, i, j) if last and emits else 0,
                    )
                )
                buffers.append(self.out if last and emits else -1)
            pending = _row(op=isa.DRAIN, addr=self._drain_offset(b, i, j), n=gm * gn, fuse=int(emits), nk=1)
        if pending is not None:
            rows.append(pending)
            buffers.append(self.out)
        return rows, buffers, passes

    def _drain_offset(self, b: int, i: int, j: int) -> int:
        return self.out_layout.tile_offset(b, i, j)


_ROW = (
    "op",
    "addr",
    "n",
    "sel",
    "acc",
    "gm",
    "gn",
    "nk",
    "preq",
    "eoff",
    "aoff",
    "boff",
    "emit",
    "fuse",
    "abank",
    "bbank",
    "fbank",
)


def _row(
    *,
    op: int,
    addr: int = 0,
    n: int = 0,
    sel: int = 0,
    acc: int = 0,
    gm: int = 0,
    gn: int = 0,
    nk: int = 0,
    preq: int = 0,
    eoff: int = 0,
    aoff: int = 0,
    boff: int = 0,
    emit: int = 0,
    fuse: int = 0,
    abank: int = 0,
    bbank: int = 0,
    fbank: int = 0,
) -> tuple[int, ...]:
    return (op, addr, n, sel, acc, gm, gn, nk, preq, eoff, aoff, boff, emit, fuse, abank, bbank, fbank)
