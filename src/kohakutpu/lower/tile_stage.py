"""A stage over tiles of two operands: one accumulator, one sweep, one store, and an epilogue on the accumulator.

It decides the operands' packing and whether an epilogue is staged; it refuses what is not that form.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kohakuaccel.diagnostics import Refusal, SourceLine, Unsupported
from kohakuaccel.lang.trace import LoopNode, StageNode, StatementNode, StoreNode
from kohakuaccel.lang.values import Contraction, Value, View
from kohakuaccel.schedule import Band, Stage
from kohakutpu.lang.tiles import Tile
from kohakutpu.layouts import DrainedTiles, OperandPack
from kohakutpu.lower import tiling
from kohakutpu.lower.body import Builder
from kohakutpu.lower.contraction import ContractionBand
from kohakutpu.lower.elementwise import ElementwiseBand
from kohakutpu.lower.work import Work


def contraction_stage(work: Work, node: StageNode, stores: Sequence[StoreNode]) -> None:
    tiles = [s.args[0] for s in node.body if isinstance(s, StatementNode) and s.kind == "tile"]
    loops = [s for s in node.body if isinstance(s, LoopNode)]
    sums = [s for loop in loops for s in loop.body if isinstance(s, StatementNode) and s.kind == "accumulate"]
    bare = [s for s in node.body if isinstance(s, StatementNode) and s.kind == "accumulate"]
    if bare:
        raise Refusal(
            "a contraction runs inside a sweep over K",
            where=bare[0].text,
            hint="for k in sweep(a.chunks32(nk)): acc += a[i, k] @ b[j, k]",
            source=bare[0].source,
        )
    if len(tiles) != 1 or len(loops) != 1 or len(sums) != 1 or len(loops[0].body) != 1 or len(stores) != 1:
        raise Unsupported(
            "a tile stage holds one tile, one sweep with one accumulation, and one store",
            where=f"{len(tiles)} tiles, {len(loops)} sweeps, {len(sums)} accumulations, {len(stores)} stores",
            hint="use one stage per accumulator",
            source=node.source,
        )
    tile, product = tiles[0], sums[0].args[1]
    assert isinstance(tile, Tile)
    assert isinstance(product, Contraction)
    band, out_layout = _contraction(work, node, loops[0], tile, product, sums[0].source)
    store = stores[0]
    out = work.number(store.target.port)
    if store.target.index != node.axes:
        raise Refusal(
            "a store is indexed by its stage's instance",
            where=str(store.target),
            limit=f"[{', '.join(a.name for a in node.axes)}]",
            hint="index the output by row tile, then column tile",
            source=store.source,
        )
    rows, cols = work.shapes[out][-2:] if len(work.shapes[out]) >= 2 else (0, 0)
    if (rows, cols) != (out_layout.rows, out_layout.cols):
        raise Refusal(
            "a tile store covers its output",
            where=str(store.target),
            got=f"output of {work.shapes[out]}",
            limit=f"{out_layout.rows} x {out_layout.cols} from the operands",
            hint="declare the output with the operands' dims",
            source=store.source,
        )
    work.settle(out, out_layout, store.source)
    if store.value is tile:
        work.stages.append(Stage((band(out),)))
        return
    middle = work.temporary("t", work.shapes[out], out_layout)
    work.stages.append(Stage((band(middle),)))

    def leaf(v: Value) -> tuple[int, bool]:
        if v is tile:
            return 0, False
        raise Unsupported(
            "an accumulator's epilogue reads that accumulator and constants",
            where=str(v),
            hint="write the rest as an elementwise kernel on the result",
            source=v.source if isinstance(v, View | Tile) else store.source,
        )

    body = Builder(work.binding.sizes, leaf, None).build(store.value)
    epilogue = ElementwiseBand(work.machine, (middle,), out, out_layout, body, (tile.name,), 0, store.source)
    work.stages.append(Stage((epilogue,)))


class _BandFor:
    """A contraction band, still without its output buffer."""

    def __init__(
        self,
        work: Work,
        a: int,
        b: int,
        layouts: tuple[OperandPack, OperandPack, DrainedTiles],
        batches: tuple[tuple[int, ...], tuple[int, ...]],
        tile: Tile,
        source: SourceLine,
    ) -> None:
        self._make = (work.machine, a, b, layouts, batches, tile, source)

    def __call__(self, out: int) -> Band:
        machine, a, b, (la, lb, lo), (ba, bb), tile, source = self._make
        why = f"2*gm*gn/(gm+gn) = {2 * tile.gm * tile.gn / (tile.gm + tile.gn):.2f} MACs per operand byte"
        return ContractionBand(machine, a, b, out, la, lb, lo, ba, bb, tile.gm, tile.gn, tile.nk, why, source)


def _contraction(
    work: Work, node: StageNode, loop: LoopNode, tile: Tile, product: Contraction, source: SourceLine
) -> tuple[_BandFor, DrainedTiles]:
    if len(node.axes) != 2:
        raise Refusal(
            "a contraction's grid runs over row tiles and column tiles",
            where=" x ".join(str(a.tiling) for a in node.axes),
            hint="for i, j in grid(a.tiles(gm), b.tiles(gn))",
            source=node.source,
        )
    k, kind = loop.index, loop.index.tiling.kind
    if kind != "chunks32":
        raise Refusal(
            "a sweep over K runs over chunks of 32",
            where=str(loop.index.tiling),
            hint="sweep(a.chunks32(nk))",
            source=loop.source,
        )
    sides: list[int] = []
    for side, view, axis in (("A", product.a, node.axes[0]), ("B", product.b, node.axes[1])):
        if view.index != (axis, k):
            raise Refusal(
                f"operand {side} is indexed by its tile and the sweep",
                where=str(product),
                got=str(view),
                limit=f"{view.port.name}[{axis}, {k}]",
                hint="acc += a[i, k] @ b[j, k], where b is stored [N][K]",
                source=source,
            )
        if axis.tiling.port is not view.port:
            raise Refusal(
                "a grid axis tiles the operand it indexes",
                where=f"{axis}<-{axis.tiling}",
                got=str(view),
                hint=f"use {view.port.name}.tiles(...) for {axis}",
                source=source,
            )
        if len(view.port.axes) != 2:
            raise Refusal(
                "a matmul operand is [rows][K]",
                where=view.port.declaration,
                hint="declare it In(M, K)",
                source=source,
            )
        if view.port.direction != "in":
            raise Refusal("an output cannot be read", where=str(view), hint="declare it as an In port", source=source)
        sides.append(work.number(view.port))
    if product.a.port is product.b.port:
        raise Unsupported(
            "both operands are one port",
            where=str(product),
            hint="declare two ports and pass the tensor twice",
            source=source,
        )
    for what, got, want in (
        ("gm", node.axes[0].tiling.size, tile.gm),
        ("gn", node.axes[1].tiling.size, tile.gn),
        ("nk", k.tiling.size, tile.nk),
    ):
        if got != want:
            raise Refusal(
                f"the tile's {what} is its grid's",
                where=str(tile),
                got=want,
                limit=got,
                hint=f"use one knob {what} for both",
                source=tile.source,
            )
    tiling.check(work.machine, tile.gm, tile.gn, tile.nk, tile.source)
    preq = bool(work.machine.features.quantising_upload)
    batch = int(np.prod(work.binding.batch, dtype=np.int64)) if work.binding.batch else 1
    layouts: list[OperandPack] = []
    maps: list[tuple[int, ...]] = []
    for number, groups, side in zip(sides, (tile.gm, tile.gn), "AB"):
        shape = work.shapes[number]
        own = batch if work.trace.ports[number].batched else 1
        pack = OperandPack(shape[-2], shape[-1], groups, tile.nk, own, preq, side)
        work.settle(number, pack, source)
        layouts.append(pack)
        maps.append(tuple(range(batch)) if own == batch else (0,) * batch)
    if layouts[0].cols != layouts[1].cols:
        raise Refusal(
            "both operands have one contraction length",
            where=str(product),
            got=f"{layouts[0].cols} and {layouts[1].cols}",
            hint="use one dim K in both ports",
            source=source,
        )
    out = DrainedTiles(layouts[0].rows, layouts[1].rows, tile.gm, tile.gn, batch)
    return (
        _BandFor(work, sides[0], sides[1], (layouts[0], layouts[1], out), (maps[0], maps[1]), tile, source),
        out,
    )
