"""What happens to an accumulator after its sweep: an elementwise expression over its tiles.

It decides whether the accumulator goes through memory or straight into a vector core's L1, and how operands lie beside
it: of the output's shape, one value per row or column, or the partial sums of a split K.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang.indices import evaluate
from kohakuaccel.lang.trace import StoreNode
from kohakuaccel.lang.values import Apply, Value, View
from kohakutpu.lang.tiles import Partial, Tile
from kohakutpu.layouts import DrainedTiles, TilePattern
from kohakutpu.lower.body import Builder
from kohakutpu.lower.elementwise import ElementwiseBand
from kohakutpu.lower.leaves import ports_of

if TYPE_CHECKING:
    from kohakutpu.lower.tile_stage import TileStage

Ints = NDArray[np.int64]
LEAST_BATCH = 16  # L1 words per operand below which an epilogue from L1 is not worth its instructions


class Epilogue:
    """The stores of one tile stage."""

    def __init__(self, stage: TileStage) -> None:
        self.stage = stage

    def why_staged(self, layout: DrainedTiles, at: Ints) -> str:
        """Why the epilogue's accumulator goes through memory; empty when it can be drained into a core's L1."""
        p = self.stage.work.machine.params
        cores = len(self.stage.work.machine.units_of("VC", mesh=0))
        words = layout.gm * layout.gn
        if any(t.split > 1 for t in self.stage.tiles):
            return "the partial sums of a split K meet in memory"
        if len(self.stage.tiles) != 1 or len(self.stage.stores) != 1:
            return f"{len(self.stage.tiles)} accumulators and {len(self.stage.stores)} stores meet in one epilogue"
        if len(at) > cores:
            return f"{len(at)} tiles, but one per vector core fits: {cores}"
        operands = len({id(q) for q in ports_of(self.stage.stores[0].value)})
        least = min(words, LEAST_BATCH)
        if words + (operands + 1) * least > p.vl1:
            return f"a tile of {words} words and {operands} operands do not fit a vector core's {p.vl1} L1 words"
        return ""

    def store(self, store: StoreNode, layout: DrainedTiles, at: Ints, finished: dict[int, int], staged: str) -> None:
        """An elementwise band over the tiles: accumulators, full-shape operands, per-row and per-column vectors."""
        buffers: list[int] = []
        patterns: list[TilePattern | None] = []
        shifts: list[int] = []
        vectors: list[Ints | None] = []
        names: list[str] = []

        def leaf(v: Value) -> tuple[int, str]:
            shift, chosen = 0, None
            if isinstance(v, Partial):
                buffer, pattern, shift = finished[id(v.tile)], None, v.part * layout.batch
            elif isinstance(v, Tile):
                if id(v) not in finished:
                    raise Refusal(
                        "an accumulator is used in the stage that opened it",
                        where=str(v),
                        hint="store it and read the stored tensor",
                        source=store.source,
                    )
                buffer, pattern = finished[id(v)], None
            else:
                buffer, pattern, chosen = self._operand(v, store, layout, at)
            for n, held in enumerate(zip(buffers, patterns, shifts)):
                if held == (buffer, pattern, shift) and _same(vectors[n], chosen):
                    return n, "input"
            buffers.append(buffer)
            patterns.append(pattern)
            shifts.append(shift)
            vectors.append(chosen)
            names.append(str(v))
            return len(buffers) - 1, "input"

        body = Builder(self.stage.work.binding.sizes, leaf, None).build(_sum_partials(store.value))
        out = self.stage.work.write(self.stage.work.tensor(store.target.port, store.source), layout, store.source)
        down, across = layout.grid
        whole = len(at) == layout.batch * down * across
        resident = -1
        if not staged and finished:
            resident = buffers.index(next(iter(finished.values()))) if set(buffers) & set(finished.values()) else -1
        note = (
            f"accumulator staged through memory: {staged}"
            if staged
            else "accumulator taken from L1, where its cluster drained it"
        )
        self.stage.work.stage(
            ElementwiseBand(
                self.stage.work.machine,
                tuple(buffers),
                out,
                layout,
                body,
                tuple(names),
                self.stage.part_sizes[id(store)] // 16,
                store.source,
                tuple(patterns),
                None if whole and resident < 0 else at,
                resident,
                note if finished else "",
                tuple(shifts),
                tuple(vectors),
            )
        )

    def _operand(
        self, v: Value, store: StoreNode, layout: DrainedTiles, at: Ints
    ) -> tuple[int, TilePattern | None, Ints | None]:
        """(buffer, how a vector is spread, which of several vectors each matrix of the result meets)."""
        if not isinstance(v, View):
            raise Refusal(
                "an epilogue's operand is indexed by the tile",
                where=str(v),
                hint="bias[j] for one value per column, scale[i] for one per row, other[i, j] for the output's shape",
                source=store.source,
            )
        tensor = self.stage.work.tensor(v.port, v.source)
        known, batch = self.stage.instances.known, self.stage.instances.batch
        numbers = [np.broadcast_to(np.asarray(evaluate(i, known), np.int64), batch.shape) for i in v.index]
        if (
            len(v.port.axes) >= 2
            and len(v.index) == len(v.port.axes)
            and tensor.shape[-2:] == (layout.rows, layout.cols)
        ):
            lead = self.stage.work.lead_position(tensor, v.index[:-2], known, batch, v.source)
            if np.array_equal(np.stack([lead, *numbers[-2:]], axis=1), at):
                matrices = math.prod(tensor.shape[:-2]) if len(tensor.shape) > 2 else 1
                if matrices == layout.batch:
                    return self.stage.work.read(tensor, layout, v.source), None, None
        if len(v.index) == len(v.port.axes):
            for axis, groups, length in (("row", self.stage.gm, layout.rows), ("col", self.stage.gn, layout.cols)):
                index = self.stage.row if axis == "row" else self.stage.col
                if v.index[-1] is not index or tensor.shape[-1:] != (length,):
                    continue
                vectors = math.prod(tensor.shape[:-1])
                lead = self.stage.work.lead_position(tensor, v.index[:-1], known, batch, v.source)
                chosen = np.zeros(layout.batch, np.int64)
                chosen[at[:, 0]] = lead
                pattern = TilePattern(length, groups, axis, vectors)
                usual = vectors == 1 or np.array_equal(chosen, np.arange(vectors))
                return self.stage.work.read(tensor, pattern, v.source), pattern, None if usual else chosen
        raise Refusal(
            "an epilogue's operand has the output's shape, or one value per row or column",
            where=str(v),
            got=tensor.shape,
            limit=f"{layout.rows} x {layout.cols}, {layout.rows} or {layout.cols}",
            hint="bias[j] for one value per column, scale[i] for one per row, other[i, j] for the output's shape",
            source=v.source,
        )


def _same(a: Ints | None, b: Ints | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


def _sum_partials(value: Value) -> Value:
    """The expression with every tile whose K is split replaced by the sum of its parts, in order."""
    made: dict[int, Value] = {}
    stack: list[tuple[Value, bool]] = [(value, False)]
    while stack:
        v, ready = stack.pop()
        if id(v) in made:
            continue
        if isinstance(v, Tile) and v.split > 1:
            total: Value = Partial(v, 0)
            for part in range(1, v.split):
                total = total + Partial(v, part)
            made[id(v)] = total
        elif isinstance(v, Apply):
            if not ready:
                stack.append((v, True))
                stack.extend((a, False) for a in v.args)
                continue
            args = tuple(made[id(a)] for a in v.args)
            same = all(a is b for a, b in zip(args, v.args))
            made[id(v)] = v if same else Apply(v.op, args)
        else:
            made[id(v)] = v
    return made[id(value)]
