"""The clusters' instruction streams for a contraction: fills into L1 buffers, sweeps, drains.

It decides which L1 buffer holds what (least recently used goes first, so what was just filled or swept stays) and the
order of instructions; addresses stay relative to buffers. Clusters of a crew are written together, so that their shared
fills come in one order.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kohakuaccel.machine import Unit
from kohakuaccel.program import UnitProgram
from kohakutpu.isa import cluster as isa
from kohakutpu.isa.cluster_tdesc import DESCRIPTORS, FIELD_AXES, FIELD_BASE, row_of
from kohakutpu.lower.codecs import ClusterCodec
from kohakutpu.lower.tiling import Slots
from kohakutpu.lower.windows import Piece, WindowPack

if TYPE_CHECKING:
    from kohakutpu.lower.contraction import ContractionBand, Term
    from kohakutpu.lower.crews import Turn

_NAMES = [
    "op",
    "addr",
    "n",
    "sel",
    "acc",
    "gm",
    "gn",
    "nk",
    "peers",
    "npeer",
    "preq",
    "eoff",
    "aoff",
    "boff",
    "emit",
    "fuse",
    "abank",
    "bbank",
    "fbank",
    "dnode",
    "dst_x",
    "dst_y",
    "dflags",
    "dack_x",
    "dack_y",
    "tsel",
    "tag",
    "desc",
    "dsel",
]
_PLACE = [isa.CLUSTER.column(name) for name in _NAMES]
_COLUMNS = len(isa.CLUSTER.fields)
_ANCHOR = isa.CLUSTER.column("anchor")
ANCHOR = 40  # the only accumulator anchor of this machine (datasheet 5.6)
TAGS = 256
_AXES = ("abase0", "ext0", "abase1", "ext1")
_DIMENSION = ("count", "stride", "axis", "astep")


class Run(NamedTuple):
    """Consecutive entries of a packed operand: byte offset, bytes of an entry, whether they are quantised."""

    offset: int
    size: int
    preq: int


class _Side:
    """One L1 side as a set of equal buffers, replaced in least-recently-used order."""

    def __init__(self, shape: Slots) -> None:
        self.shape = shape
        self._slot_of: dict[Hashable, int] = {}
        self._recent: list[int] = list(range(shape.count))  # least recently used first
        self._held: dict[int, Hashable] = {}

    def place(self, key: Hashable) -> int:
        """The slot for a chunk. With two or more slots the one in use is never replaced."""
        slot = self._slot_of.get(key)
        if slot is None:
            slot = self._recent[0]
            if slot in self._held:
                del self._slot_of[self._held[slot]]
            self._slot_of[key] = slot
            self._held[slot] = key
        self._recent.remove(slot)
        self._recent.append(slot)
        return slot


class _Member:
    """The rows of one cluster, and what its L1 slots hold."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.rows: list[tuple[int, ...]] = []
        self.buffers: list[int] = []
        self.passes: list[int] = []
        self.held: tuple[dict[int, Hashable], dict[int, Hashable]] = ({}, {})
        self.owed: list[dict[str, int]] = []  # DRAINs held back
        self.next = 0  # accumulator of the next tile
        self.special: list[tuple[int, list[int]]] = []  # TDESC rows by number: their columns are their own
        self.descriptors: list[dict[int, tuple[int, ...]]] = [{} for _ in range(DESCRIPTORS)]
        self.recent = list(range(DESCRIPTORS))  # descriptors, least recently used first

    def add(self, buffer: int, **fields: int) -> None:
        self.rows.append(tuple(fields.get(name, 1 if name == "nk" else 0) for name in _NAMES))
        self.buffers.append(buffer)

    def describe(self, piece: Piece, buffer: int) -> int:
        """A descriptor that walks `piece`, written as far as it differs from what it holds; its number."""
        dims = {1 + d: values for d, values in enumerate(piece.dims)}
        wanted = {**dims, FIELD_AXES: (*piece.axes[0], *piece.axes[1]), FIELD_BASE: (buffer, piece.base, len(dims))}
        index = min(
            self.recent, key=lambda i: sum(self.descriptors[i].get(f) != wanted[f] for f in wanted if f != FIELD_BASE)
        )
        self.recent.remove(index)
        self.recent.append(index)
        for field, values in wanted.items():
            if self.descriptors[index].get(field) == values:
                continue
            self.descriptors[index][field] = values
            names = ("base", "ndim") if field == FIELD_BASE else _AXES if field == FIELD_AXES else _DIMENSION
            row = row_of(index=index, field=field, **dict(zip(names, values[-len(names) :])))
            self.special.append((len(self.rows), row))
            self.add(buffer if field == FIELD_BASE else -1, op=isa.TDESC)
        return index


class CrewStream:
    """Collects the rows of clusters that take their turns together; a cluster on its own is a crew of one."""

    def __init__(self, band: ContractionBand, units: Sequence[Unit]) -> None:
        self.band = band
        self.members = [_Member(unit) for unit in units]
        self.filled = [0, 0]
        self.port_cycles = 0
        """Estimated cycles that the crew's fills keep its port busy, and per member those it waits for fills."""
        self.fill_cycles = [0] * len(units)
        shapes = band.sides()
        # A shared side has one order of replacement for the crew, the other one for each member.
        self._sides = [
            [_Side(shape)] * len(units) if band.mode.side == s else [_Side(shape) for _ in units]
            for s, shape in enumerate(shapes)
        ]
        self._shapes = shapes
        self._most = band.machine.params.fill_max
        self._tag = 0
        self._buffer = -1 if band.nodes else band.out

    # fills

    def _chunk(self, sel: int, n: int, term: Term, chunk: int) -> tuple[Hashable, int, Run | tuple[Piece, ...]]:
        """(key of an operand's chunk, buffer, where it lies there)."""
        buffer, layout, at = (term.a, term.a_layout, term.a_at) if sel == 0 else (term.b, term.b_layout, term.b_at)
        batch, tile = int(at[n, 0]), int(at[n, 1])
        chunk += int(term.b_first[n] - term.first[n]) if sel else 0
        key = (buffer, batch, tile, chunk)
        if isinstance(layout, WindowPack):
            return key, buffer, tuple(layout.pieces(batch, tile, chunk, self._most))
        return key, buffer, Run(layout.run_offset(batch, tile, chunk), layout.entry_bytes, int(layout.preq))

    def _operand(self, sel: int, wanted: list[tuple[int, int]], term: Term, chunk: int) -> dict[int, int]:
        """Slots of an operand's chunk by member, filled where it is not in L1. wanted: (member, instance)."""
        slots: dict[int, int] = {}
        groups: dict[Hashable, tuple[list[int], int, Run | tuple[Piece, ...]]] = {}
        for m, n in wanted:
            key, buffer, where = self._chunk(sel, n, term, chunk)
            slot = slots[m] = self._sides[sel][m].place(key)
            if self.members[m].held[sel].get(slot) != key:
                self.members[m].held[sel][slot] = key
                shared = self.band.mode.side == sel
                groups.setdefault(key if shared else (m, key), ([], buffer, where))[0].append(m)
        for missing, buffer, where in groups.values():
            self.filled[sel] += 1
            if isinstance(where, Run):
                self._fill(sel, missing, slots[missing[0]], buffer, where)
            else:
                self._fill_pieces(sel, missing[0], slots[missing[0]], buffer, where)
        return slots

    def _fill_pieces(self, sel: int, m: int, slot: int, buffer: int, pieces: tuple[Piece, ...]) -> None:
        """One chunk by descriptor: what a descriptor holds already is not written again."""
        shape = self._shapes[sel]
        member = self.members[m]
        self._charge([m], shape.size, 0)
        for piece in pieces:
            index = member.describe(piece, buffer)
            member.add(
                -1,
                op=isa.FILL,
                n=piece.n,
                sel=sel,
                eoff=shape.offset(slot) + piece.first,
                fbank=shape.bank(slot),
                desc=1,
                dsel=index,
            )

    def _fill(self, sel: int, missing: list[int], slot: int, buffer: int, run: Run) -> None:
        """One chunk into the same slot of these members, as one fetch."""
        shape = self._shapes[sel]
        offset, size, preq = run
        self._charge(missing, shape.size, preq)
        done = 0
        while done < shape.size:
            count = min(self._most, shape.size - done)
            tag = self._tag
            if len(missing) > 1:
                self._tag = (tag + 1) % TAGS
            for m in missing:
                share: dict[str, int] = {}
                if len(missing) > 1:
                    others = [self.members[k].unit for k in missing if k != m]
                    packed = sum((u.y << 4 | u.x) << 8 * i for i, u in enumerate(others))
                    share = {"peers": packed, "npeer": len(others), "tag": tag}
                self.members[m].add(
                    buffer,
                    op=isa.FILL,
                    addr=offset + done * size,
                    n=count,
                    sel=sel,
                    preq=preq,
                    eoff=shape.offset(slot) + done,
                    fbank=shape.bank(slot),
                    **share,
                )
            done += count

    def _charge(self, missing: list[int], entries: int, preq: int) -> None:
        """What a fetch costs by datasheet 8.1, for choosing between ways to deal."""
        t = self.band.machine.timing
        period = t.entry_preq + t.L if preq else t.entry_fp16 + t.L + t.entry_fp16_extra
        cycles = entries * max(period, t.entry_preq * len(missing))
        self.port_cycles += cycles
        for m in missing:
            self.fill_cycles[m] += cycles

    # tiles

    def turns(self, turns: Sequence[Turn]) -> None:
        """Append the crew's turns, in order."""
        band = self.band
        last = {n for m in range(len(self.members)) for n in _last(turns, m)}
        for number, turn in enumerate(turns):
            following: Turn = turns[number + 1] if number + 1 < len(turns) else ((),) * len(self.members)
            for m, mine in enumerate(turn):
                if not mine:
                    self._pay(m)
            places = [(m, n, self._accumulator(m)) for m, mine in enumerate(turn) for n in mine]
            order = [[p for p in places if p[1] in [mine[k] for mine in turn if len(mine) > k]] for k in (0, 1)]
            lead = next(n for mine in turn for n in mine)
            blocks = [(t, c) for t in band.terms for c in range(int(t.first[lead]), int(t.first[lead] + t.count[lead]))]
            for step, (term, chunk) in enumerate(blocks):
                for level in order:
                    if level:
                        self._step(level, term, chunk, step == 0, step == len(blocks) - 1, following, last)
        for m in range(len(self.members)):
            self._pay(m)

    def _step(
        self,
        level: list[tuple[int, int, int]],
        term: Term,
        chunk: int,
        first: bool,
        final: bool,
        following: Turn,
        last: set[int],
    ) -> None:
        """One chunk's sweep for one tile of each member in `level` (member, instance, accumulator)."""
        band = self.band
        side_a, side_b = self._shapes
        starts = {m: len(self.members[m].rows) for m, _, _ in level}
        wanted = [(m, n) for m, n, _ in level]
        slots_a = self._operand(0, wanted, term, chunk)
        slots_b = self._operand(1, wanted, term, chunk)
        for m, n, tsel in level:
            member = self.members[m]
            batch, i, j = (int(v) for v in band.out_at[n])
            target = 0 if band.nodes else band.out_layout.tile_offset(batch, i, j)
            goes = self._node(n)
            if first:
                self._pay(m, None if band.mode.accumulators == 1 else tsel)
                member.passes.append(starts[m])
            # A sweep counts as live until the next GEMM or plain DRAIN (datasheet 5.3), so a stream that ended in a
            # fused DRAIN would forbid the first FILL of whatever this cluster runs next: the last tile drains after.
            # So does one whose cluster sits out the next turn, and one whose drain another sweep runs beside.
            emits = band.emits(n) and n not in last and bool(following[m]) and band.mode.accumulators == 1
            emit = int(emits and final)
            member.add(
                self._buffer if emit else -1,
                op=isa.GEMM,
                addr=target if emit else 0,
                acc=int(not first),
                gm=band.gm,
                gn=band.gn,
                nk=band.nk,
                aoff=side_a.offset(slots_a[m]),
                boff=side_b.offset(slots_b[m]),
                abank=side_a.bank(slots_a[m]),
                bbank=side_b.bank(slots_b[m]),
                emit=emit,
                tsel=tsel,
                **(goes if emit else {}),
            )
            if band.mode.accumulators == 2:
                self._pay(m, 1 - tsel)
            if final:
                drain = {"op": isa.DRAIN, "addr": target, "n": band.gm * band.gn, "fuse": int(emits), "tsel": tsel}
                member.owed.append({**drain, **goes})

    def _accumulator(self, m: int) -> int:
        """The accumulator of a member's next tile."""
        if self.band.mode.accumulators == 1:
            return 0
        self.members[m].next ^= 1
        return self.members[m].next ^ 1

    def _pay(self, m: int, tsel: int | None = None) -> None:
        """Write the DRAINs that a member owes, those of one accumulator where that is given."""
        member = self.members[m]
        for drain in [d for d in member.owed if tsel in (None, d["tsel"])]:
            member.owed.remove(drain)
            member.add(self._buffer, **drain)

    def _node(self, n: int) -> dict[str, int]:
        """The fields that send an instance's drain into a vector core's L1, acknowledged to the dispatch agent."""
        if not self.band.nodes:
            return {}
        core = self.band.nodes[n]
        agent = self.band.machine.meshes[core.mesh]
        return {
            "dnode": 1,
            "dst_x": core.x,
            "dst_y": core.y,
            "dflags": 1,
            "dack_x": agent.agent_x,
            "dack_y": agent.agent_y,
        }

    def finish(self, source: int) -> list[UnitProgram]:
        """The programs of the members with work."""
        found: list[UnitProgram] = []
        for member in self.members:
            if not member.rows:
                continue
            table = np.zeros((len(member.rows), _COLUMNS), np.int64)
            table[:, _PLACE] = np.array(member.rows, np.int64)
            table[:, _ANCHOR] = ANCHOR
            for number, row in member.special:
                table[number] = row
            found.append(
                UnitProgram(
                    member.unit,
                    ClusterCodec(self.band.machine, member.unit),
                    table,
                    np.array(member.buffers, np.int32),
                    np.full(len(member.rows), source, np.int32),
                    np.array(member.passes, np.int64),
                )
            )
        return found


def _last(turns: Sequence[Turn], member: int) -> list[int]:
    """The last tiles that a member computes."""
    mine = [turn[member] for turn in turns if turn[member]]
    return list(mine[-1]) if mine else []
