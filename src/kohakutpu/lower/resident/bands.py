"""The bands of a chain: the clusters' share of a step and the cores', for one group of row tiles.

They decide instruction streams; L1 places, steps and routines are decided before. Row tile n of a group belongs to the
n-th pair of a cluster and a core, which hand each other everything through their L1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.program import UnitProgram
from kohakuaccel.schedule import Array
from kohakutpu.isa import cluster as isa
from kohakutpu.isa import flit, vector
from kohakutpu.layouts import KBLOCK, LANES
from kohakutpu.lower import evaluate
from kohakutpu.lower.cluster_stream import ANCHOR
from kohakutpu.lower.resident.code import Program
from kohakutpu.lower.resident.codecs import StepClusterCodec, StepVectorCodec
from kohakutpu.lower.resident.ops import Chain, Fetched, Held, Out, Product, Step
from kohakutpu.lower.resident.values import F64, operand_tile, run_rows, stored
from kohakutpu.lower.vector_stream import VectorStream

Ints = NDArray[np.int64]
Pair = tuple[Unit, Unit]  # cluster, core
_COLUMN = {name: isa.CLUSTER.column(name) for name in isa.CLUSTER.names}


def _array(values: dict[int, Array], number: int) -> Any:
    """A value on chip: float64, unlike the FP16 tensors that bands exchange through memory."""
    return cast(Any, values[number])


def _keep(values: dict[int, Array], chain: Chain, held: Held, n: int, x: F64) -> None:
    if held.buffer not in values:
        values[held.buffer] = cast(Array, np.zeros((len(chain.keys), 4 * held.gm, x.shape[-1])))
    _array(values, held.buffer)[n] = x


def _group(chain: Chain, tiles: Ints) -> str:
    return f"row tiles {tiles[0]}..{tiles[-1]} of {len(chain.keys)}, {LANES * chain.gm} rows each,"


@dataclass(frozen=True, eq=False, slots=True)
class ClusterBand:
    """Fills and products of one step. tiles: numbers of the chain's row tiles, one per pair."""

    machine: Machine
    chain: Chain
    step: Step
    tiles: Ints
    pairs: tuple[Pair, ...]
    source: SourceLine

    @property
    def engine(self) -> str:
        return "MG"

    def describe(self) -> Sequence[str]:
        units = ", ".join(c.name for c, _ in self.pairs[: len(self.tiles)])
        lines = [f"{_group(self.chain, self.tiles)} on {units}"]
        if self.tiles[0] > 0:
            return [f"{lines[0]}: as row tile 0"]
        for p in self.step.products:
            left = p.a.text if isinstance(p.a, Fetched) else p.a.name
            size = f"{p.gm}x{p.gn} sub-tiles, {p.count} chunks of {p.nk} K blocks"
            if isinstance(p.a, Held):
                lines.append(f"{p.a.name} from {p.a.place()}: no memory")
            where = f"its core's {p.dst.place()}" if isinstance(p.dst, Held) else str(p.layout)
            lines.append(f"{p.name} = {left} @ {p.b.text}, {size} -> {where}")
        for p, which in self.step.fills:
            o = p.a if which == "a" else p.b
            assert isinstance(o, Fetched)
            lines.append(f"fill {o.text} into side {'AB'[o.slot.side]} entries {o.slot.first}.., {o.layout}")
        return lines

    def reads(self) -> Sequence[int]:
        found = [o.buffer for p in self.step.products for o in (p.a, p.b) if isinstance(o, Fetched)]
        return tuple(dict.fromkeys(found))

    def writes(self) -> Sequence[tuple[int, Ints]]:
        found: list[tuple[int, Ints]] = []
        for p in self.step.products:
            if not isinstance(p.dst, Held) and p.layout is not None:
                first = [p.layout.tile_offset(int(m), int(t), 0) // 32 for m, t in self.chain.keys[self.tiles]]
                ranges = np.stack([np.array(first), np.full(len(first), p.gm * p.gn)], axis=1)
                found.append((p.dst, ranges.astype(np.int64)))
        return found

    def run(self, values: dict[int, Array]) -> None:
        for p in self.step.products:
            for n in self.tiles.tolist():
                sides: list[Array] = []
                for o in (p.a, p.b):
                    if isinstance(o, Fetched):
                        sides.append(operand_tile(values[o.buffer], o.layout, o.at[n], int(o.first[n]), p.count))
                    else:
                        part = np.zeros((4 * p.gm, KBLOCK * o.blocks), np.float16)
                        part[:, : o.cols] = _array(values, o.buffer)[n][:, : o.cols]
                        sides.append(part)
                total = evaluate.accumulate([(sides[0], sides[1])])
                if isinstance(p.dst, Held):
                    _keep(values, self.chain, p.dst, n, stored(total, p.dst.wide)[:, : p.dst.cols])
                else:
                    _put(values, p.dst, p.layout, self.chain.keys[n], evaluate.store_fp16(total))

    def programs(self, source: int) -> list[UnitProgram]:
        """The stream of each cluster of the group."""
        return [
            self._program(cluster, core, int(n), source) for (cluster, core), n in zip(self.pairs, self.tiles.tolist())
        ]

    def _program(self, cluster: Unit, core: Unit, n: int, source: int) -> UnitProgram:
        rows: list[dict[str, int]] = []
        buffers: list[int] = []
        ahead = list(self.step.fills)

        def fill(product: Product, which: str) -> None:
            o = product.a if which == "a" else product.b
            assert isinstance(o, Fetched)
            size, layout, done = product.count * o.layout.tile * o.layout.chunk, o.layout, 0
            start = layout.run_offset(int(o.at[n, 0]), int(o.at[n, 1]), int(o.first[n]))
            while done < size:
                count = min(self.machine.params.fill_max, size - done)
                place = {"addr": start + done * layout.entry_bytes, "n": count, "eoff": o.slot.first + done}
                rows.append({"op": isa.FILL, "sel": o.slot.side, "preq": int(layout.preq), **place})
                buffers.append(o.buffer)
                done += count

        for p in self.step.products:
            for item in [f for f in ahead if f[0] is p]:
                fill(*item)
                ahead.remove(item)
            first_a = p.a.slot.first if isinstance(p.a, Fetched) else p.a.entry
            for k in range(p.count):
                shape = {"gm": p.gm, "gn": p.gn, "nk": p.nk, "acc": int(k > 0)}
                at = {"aoff": first_a + k * p.gm * p.nk, "boff": p.b.slot.first + k * p.gn * p.nk}
                rows.append({"op": isa.GEMM, **shape, **at})
                buffers.append(-1)
            drain = {"op": isa.DRAIN, "n": p.gm * p.gn}
            if isinstance(p.dst, Held):
                agent = self.machine.meshes[core.mesh]
                drain |= {"addr": 32 * p.dst.word, "dnode": 1, "dst_x": core.x, "dst_y": core.y, "dflags": 1}
                drain |= {"dack_x": agent.agent_x, "dack_y": agent.agent_y}
                drain |= {"dbuf": flit.BUF_FP22 if p.dst.wide else flit.BUF_VC_L1}
            else:
                assert p.layout is not None
                drain["addr"] = p.layout.tile_offset(int(self.chain.keys[n, 0]), int(self.chain.keys[n, 1]), 0)
            rows.append(drain)
            buffers.append(-1 if isinstance(p.dst, Held) else p.dst)
        for item in ahead:
            fill(*item)
        table = np.zeros((len(rows), len(_COLUMN)), np.int64)
        table[:, _COLUMN["anchor"]] = ANCHOR
        table[:, _COLUMN["nk"]] = 1
        for line, row in zip(table, rows):
            for name, value in row.items():
                line[_COLUMN[name]] = value
        return UnitProgram(
            cluster,
            StepClusterCodec(self.machine, cluster, self.chain.memo),
            table,
            np.array(buffers, np.int32),
            np.full(len(rows), source, np.int32),
            np.zeros(1, np.int64),
        )


def _put(values: dict[int, Array], buffer: int, layout: object, key: Ints, tile: Array) -> None:
    """One row tile of an output into its place."""
    from kohakutpu.layouts import DrainedTiles

    assert isinstance(layout, DrainedTiles)
    if buffer not in values:
        values[buffer] = np.zeros((layout.batch, layout.rows, layout.cols), np.float16)
    top = LANES * layout.gm * int(key[1])
    target = values[buffer].reshape(layout.batch, layout.rows, layout.cols)[int(key[0]), top : top + LANES * layout.gm]
    target[:] = tile[: target.shape[0], : target.shape[1]]


@dataclass(frozen=True, eq=False, slots=True)
class CoreBand:
    """Row arithmetic of one step. programs_of: a core's routines, by pair; load: whether this step loads them."""

    machine: Machine
    chain: Chain
    step: Step
    tiles: Ints
    pairs: tuple[Pair, ...]
    programs_of: tuple[Program, ...]
    load: bool
    source: SourceLine

    @property
    def engine(self) -> str:
        return "VC"

    def describe(self) -> Sequence[str]:
        units = ", ".join(core.name for _, core in self.pairs[: len(self.tiles)])
        program = self.programs_of[0]
        lines = [f"{_group(self.chain, self.tiles)} on {units}"]
        if self.tiles[0] > 0:
            return [f"{lines[0]}: as row tile 0"]
        for row in self.step.rows:
            names = {k: o.name for k, o in enumerate(row.operands)}
            for n, target in row.results:
                row.body.result = n
                text = row.body.pretty(names)
                if isinstance(target, Out):
                    lines.append(f"{target.staged.name} = {text} -> {target.layout}")
                elif target.kind == "entries":
                    lines.append(f"{target.name} = {text} -> its cluster's {target.place()}: no memory")
                else:
                    lines.append(f"{target.name} = {text} -> {target.place()}")
        if self.load:
            words = len(program.code.words)
            lines.append(
                f"program {words} of {self.machine.params.imem} words, {len(program.entries)} routines, loaded here"
            )
        return lines

    def reads(self) -> Sequence[int]:
        return ()

    def writes(self) -> Sequence[tuple[int, Ints]]:
        found: list[tuple[int, Ints]] = []
        for row in self.step.rows:
            for _, target in row.results:
                if isinstance(target, Out):
                    layout = target.layout
                    first = [layout.tile_offset(int(m), int(t), 0) // 32 for m, t in self.chain.keys[self.tiles]]
                    ranges = np.stack([np.array(first), np.full(len(first), layout.gm * layout.gn)], axis=1)
                    found.append((target.buffer, ranges.astype(np.int64)))
        return found

    def run(self, values: dict[int, Array]) -> None:
        for row in self.step.rows:
            for n in self.tiles.tolist():
                operands = [np.array(_array(values, o.buffer)[n]) for o in row.operands]
                found = run_rows(row.body, [r for r, _ in row.results], operands, row.cols)
                for (_, target), x in zip(row.results, found):
                    held = target.staged if isinstance(target, Out) else target
                    width = LANES if held.kind == "row" else held.cols
                    if x.shape[1] != width:  # a number per row that fills a row
                        x = np.tile(x, (1, -(-width // LANES)))[:, :width]
                    whole = np.broadcast_to(x, (4 * held.gm, width))
                    _keep(values, self.chain, held, n, stored(whole, held.wide))
                    if isinstance(target, Out):
                        tile = evaluate.store_fp16(np.ascontiguousarray(whole))
                        _put(values, target.buffer, target.layout, self.chain.keys[n], tile)

    def programs(self, source: int) -> list[UnitProgram]:
        """The stream of each core of the group."""
        return [
            self._program(*pair, program, int(n), source)
            for pair, program, n in zip(self.pairs, self.programs_of, self.tiles.tolist())
        ]

    def _program(self, cluster: Unit, core: Unit, program: Program, n: int, source: int) -> UnitProgram:
        """The same for every group where nothing goes to memory."""
        if any(isinstance(target, Out) for row in self.step.rows for _, target in row.results):
            return self._stream(cluster, core, program, n, source)
        key = ("stream", id(self.step), core.index, self.load, source)
        if key not in self.chain.memo:
            self.chain.memo[key] = self._stream(cluster, core, program, n, source)
        return self.chain.memo[key]

    def _stream(self, cluster: Unit, core: Unit, program: Program, n: int, source: int) -> UnitProgram:
        stream = VectorStream(self.machine, core, source)
        if self.load:
            program.load(stream)
        sent: list[int] = []
        for row in self.step.rows:
            for _, target in row.results:
                if isinstance(target, Out):
                    layout = target.layout
                    at = layout.tile_offset(int(self.chain.keys[n, 0]), int(self.chain.keys[n, 1]), 0)
                    stream.base(program.out_descriptor(target), target.buffer, at)
            stream.run(program.entries[row.signature()])
            sent.append(sum(isinstance(t, Held) and t.kind == "entries" for _, t in row.results))
        made = stream.finish()
        acks = np.zeros(len(made.rows), np.int64)
        runs = np.flatnonzero(made.rows[:, 0] == vector.ENV_RUN)
        acks[runs[len(runs) - len(sent) :]] = sent
        prepared = program.loading(core)
        codec = made.codec if self.load else StepVectorCodec(self.machine, core, self.chain.memo, prepared)
        owed = ((cluster, cast(int, acks)),) if acks.any() else ()
        return UnitProgram(core, codec, made.rows, made.buffer, made.source, made.passes, owed)


__all__ = ["ClusterBand", "CoreBand", "Pair"]
