"""A stage over tiles of two operands: accumulators, sweeps over K, and stores with an elementwise epilogue.

It decides operands' packing, which instance reads which tile, and that an epilogue is staged through memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine, Unsupported
from kohakuaccel.lang.dims import DimExpr
from kohakuaccel.lang.indices import Index, evaluate
from kohakuaccel.lang.ports import Tiling
from kohakuaccel.lang.trace import LoopNode, StageNode, StatementNode, StoreNode
from kohakuaccel.lang.values import Contraction, View
from kohakutpu.lang.memory import Region, Windows
from kohakutpu.lang.ports import In
from kohakutpu.lang.tiles import Tile
from kohakutpu.layouts import FP16, KBLOCK, DrainedTiles, OperandPack
from kohakutpu.lower import tiling
from kohakutpu.lower.contraction import ContractionBand, Term, ranking
from kohakutpu.lower.epilogue import Epilogue
from kohakutpu.lower.instances import enumerate_instances
from kohakutpu.lower.leaves import ports_of
from kohakutpu.lower.windows import WindowPack, pack_of
from kohakutpu.lower.work import Env, Tensor, Work

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Sum:
    """One `acc += a @ b` with its sweep."""

    loop: LoopNode
    product: Contraction
    source: SourceLine


@dataclass(frozen=True, eq=False, slots=True)
class Located:
    """One side of a product: the tensor, the order it is wanted in, int64[n, 2] of (matrix, tile) and int64[n] first
    chunk of every instance, and whether it is the tensor's transpose."""

    tensor: Tensor
    layout: OperandPack
    at: Ints
    first: Ints
    turned: bool


class TileStage:
    """Lowers one stage; `env` gives the loops around it their numbers."""

    def __init__(self, work: Work, node: StageNode, env: Env) -> None:
        self.work, self.node, self.env = work, node, env
        tiled = [a for a in node.axes if isinstance(a.over, Tiling) and a.over.kind == "tiles"]
        if len(tiled) != 2:
            raise Refusal(
                "a contraction's grid runs over row tiles and column tiles",
                where=" x ".join(str(a.over) for a in node.axes),
                hint="for i, j in grid(a.tiles(gm), b.tiles(gn))",
                source=node.source,
            )
        self.row, self.col = tiled
        self.gm, self.gn = (a.over.size for a in tiled if isinstance(a.over, Tiling))
        self.tiles, self.sums = self._statements()
        self.stores, self.part_sizes = self._stores()
        used = [s.target.port for s in self.stores]
        used += [v.port for group in self.sums.values() for s in group for v in (s.product.a, s.product.b)]
        used += [p for s in self.stores for p in ports_of(s.value)]
        batched = any(p.batched for p in used)
        each = tuple(a for a in node.axes if a not in tiled)
        # Column band outermost within a batch element, so that its B is met again while it is in L1.
        self.instances = enumerate_instances(work, node, env, (*each, self.col, self.row), batched)

    def _statements(self) -> tuple[list[Tile], dict[int, list[Sum]]]:
        tiles: list[Tile] = []
        sums: dict[int, list[Sum]] = {}
        current: Tile | None = None
        for s in self.node.body:
            if isinstance(s, StatementNode) and s.kind == "tile":
                (tile,) = s.args
                assert isinstance(tile, Tile)
                tiles.append(tile)
                sums[id(tile)] = []
            elif isinstance(s, StatementNode) and s.kind == "accumulate":
                raise Refusal(
                    "a contraction runs inside a sweep over K",
                    where=s.text,
                    hint="for k in sweep(a.chunks32(nk)): acc += a[i, k] @ b[j, k]",
                    source=s.source,
                )
            elif isinstance(s, LoopNode):
                added = [x for x in s.body if isinstance(x, StatementNode) and x.kind == "accumulate"]
                if len(added) > 1:
                    raise self._interleaved(added[1])
                for inner in s.body:
                    if isinstance(inner, StatementNode) and inner.kind == "fill":
                        self._check_region(inner)
                        continue
                    if not (isinstance(inner, StatementNode) and inner.kind == "accumulate"):
                        raise Unsupported(
                            "a sweep over K holds fills and accumulations",
                            where=inner.text if isinstance(inner, StatementNode) else type(inner).__name__,
                            hint="store behind the sweep",
                            source=inner.source,
                        )
                    tile, product = inner.args
                    assert isinstance(tile, Tile)
                    assert isinstance(product, Contraction)
                    if current is not None and current is not tile and sums[id(tile)]:
                        raise self._interleaved(inner)
                    sums[id(tile)].append(Sum(s, product, inner.source))
                    current = tile
        return tiles, sums

    def _stores(self) -> tuple[list[StoreNode], dict[int, int]]:
        """The stage's stores, those of tilings inside the tile included, and their part sizes in elements."""
        found: list[StoreNode] = []
        sizes: dict[int, int] = {}
        for s in self.node.body:
            for store in s.body if isinstance(s, StageNode) else (s,):
                if isinstance(store, StoreNode):
                    found.append(store)
                    over = s.axes[0].over if isinstance(s, StageNode) else None
                    sizes[id(store)] = over.size if isinstance(over, Tiling) else 0
                elif isinstance(s, StageNode):
                    raise Unsupported(
                        "a tiling inside a tile holds stores",
                        where=store.text if isinstance(store, StatementNode) else type(store).__name__,
                        hint="accumulate outside of it",
                        source=store.source,
                    )
        return found, sizes

    @staticmethod
    def _interleaved(node: StatementNode) -> Refusal:
        return Refusal(
            "accumulators are filled one after another: a cluster holds one resident tile",
            where=node.text,
            hint="give each accumulator its own sweep, and finish one before the next",
            source=node.source,
        )

    def _check_region(self, node: StatementNode) -> None:
        region, view = node.args
        assert isinstance(region, Region)
        assert isinstance(view, View)
        over = [i.over for i in view.index if isinstance(i, Index) and isinstance(i.over, Tiling)]
        sizes = {t.kind: t.size for t in over}
        want = (sizes.get("tiles", region.groups), sizes.get("chunks32", region.blocks))
        if (region.groups, region.blocks) != want:
            raise Refusal(
                "a region is as large as what is filled into it",
                where=node.text,
                got=f"{region.groups} x {region.blocks} entries",
                limit=f"{want[0]} x {want[1]}",
                hint="open it with the grid's and the sweep's knobs",
                source=node.source,
            )

    # lowering

    def lower(self) -> None:
        """Append this stage's bands to the work."""
        first = self.stores[0]
        epilogue = Epilogue(self)
        layout, at = self.place(first)
        for store in self.stores[1:]:
            other, where = self.place(store)
            if other != layout or not np.array_equal(where, at):
                raise Unsupported(
                    "the stores of one tile stage go to the same places of equal outputs",
                    where=f"{first.target} and {store.target}",
                    hint="use one stage per output shape",
                    source=store.source,
                )
        single = len(self.tiles) == 1 and len(self.stores) == 1 and first.value is self.tiles[0]
        single = single and self.tiles[0].split == 1
        finished: dict[int, int] = {}
        staged = "" if single else epilogue.why_staged(layout, at)
        nodes = () if single or staged else self.work.machine.units_of("VC", mesh=0)[: len(at)]
        if staged and not self.work.relax:
            raise Refusal(
                "an epilogue that may not be relaxed runs from a vector core's L1",
                where=str(first.target),
                got=staged,
                hint="use a smaller tile, or leave relax on",
                source=first.source,
            )
        drained = 0
        for tile in self.tiles:
            self._check_tile(tile)
            terms = tuple(self._term(s) for s in self.sums[id(tile)])
            if single:
                tensor = self.work.tensor(first.target.port, first.source)
                out = self.work.write(tensor, layout, first.source)
            else:
                shape = self.work.tensor(first.target.port, first.source).shape
                parts = replace(layout, batch=layout.batch * tile.split)
                held = shape if tile.split == 1 else (tile.split, *shape)
                out = self.work.temporary(tile.name, held, parts, "l1" if nodes else "temp")
            why = ranking(layout, terms)
            line = self.sums[id(tile)][0].source
            spread, places, terms = self._split(tile, layout, at, terms)
            drained = len(self.work.stages)
            self.work.stage(
                ContractionBand(
                    self.work.machine, out, spread, places, terms, self.gm, self.gn, tile.nk, why, line, nodes
                ).fastest()
            )
            finished[id(tile)] = out
        if not single:
            for store in self.stores:
                epilogue.store(store, layout, at, finished, staged)
        if nodes:
            # An accumulator waits for its epilogue in a core's L1, so whatever moves operands on that core comes first.
            product, *between, last = self.work.stages[drained:]
            self.work.stages[drained:] = [*between, product, last]

    def _split(
        self, tile: Tile, layout: DrainedTiles, at: Ints, terms: tuple[Term, ...]
    ) -> tuple[DrainedTiles, Ints, tuple[Term, ...]]:
        """Instances of a tile whose K is cut into parts: each part is one more, its sums go to their own matrices."""
        parts = tile.split
        if parts == 1:
            return layout, at, terms
        if len(terms) != 1 or int(terms[0].count.min()) < parts:
            raise Refusal(
                "K is split over the chunks of one sweep",
                where=f"{tile}",
                got=f"{parts} parts of {len(terms)} sweeps, {int(terms[0].count.min())} chunks",
                limit="at least one chunk per part",
                hint="use a smaller split",
                source=tile.source,
            )
        (term,) = terms
        cuts = [term.count * part // parts for part in range(parts + 1)]
        places = [np.stack([at[:, 0] + part * layout.batch, at[:, 1], at[:, 2]], axis=1) for part in range(parts)]
        whole = replace(
            term,
            a_at=np.tile(term.a_at, (parts, 1)),
            b_at=np.tile(term.b_at, (parts, 1)),
            first=np.concatenate([term.first + low for low in cuts[:-1]]),
            b_first=np.concatenate([term.b_first + low for low in cuts[:-1]]),
            count=np.concatenate([high - low for low, high in pairwise(cuts)]),
        )
        return replace(layout, batch=layout.batch * parts), np.concatenate(places), (whole,)

    def place(self, store: StoreNode) -> tuple[DrainedTiles, Ints]:
        """The target's byte order, and int64[n, 3] of (matrix, tile row, tile column) per instance."""
        target = store.target
        tensor = self.work.tensor(target.port, store.source)
        if len(target.index) != len(target.port.axes) or len(target.index) < 2 or target.port.turned:
            raise Refusal(
                "a tile store is indexed by its leading axes, row tile and column tile",
                where=str(target),
                limit=f"{len(target.port.axes)} indices for {target.port.declaration}",
                hint="declare the output with the operands' dims",
                source=store.source,
            )
        if tensor.element != FP16:
            raise Refusal(
                "clusters drain FP16 tiles, and their epilogues store them",
                where=str(target),
                got=f"{target.port} in {tensor.element}",
                hint="store the accumulator in an L.temp, and that over rows or parts into FP32",
                source=store.source,
            )
        rows, cols = tensor.shape[-2:]
        layout = DrainedTiles(rows, cols, self.gm, self.gn, tensor.matrices)
        known, count = self.instances.known, self.instances.batch
        lead = self.work.lead_position(tensor, target.index[:-2], known, count, store.source)
        down, across = layout.grid
        places = [lead]
        for index, limit in zip(target.index[-2:], (down, across)):
            at = np.broadcast_to(np.asarray(evaluate(index, known), np.int64), count.shape)
            if int(at.min()) < 0 or int(at.max()) >= limit:
                raise Refusal(
                    "a tile store stays inside its output",
                    where=str(target),
                    got=f"tile {int(at.min())}..{int(at.max())}",
                    limit=f"0..{limit - 1}",
                    hint="declare the output with the operands' dims",
                    source=store.source,
                )
            places.append(at)
        return layout, np.stack(places, axis=1)

    def _check_tile(self, tile: Tile) -> None:
        if not self.sums[id(tile)]:
            raise Refusal(
                "nothing is added to this tile", where=str(tile), hint="add a sweep, or remove it", source=tile.source
            )
        for what, want, got in (("gm", self.gm, tile.gm), ("gn", self.gn, tile.gn)):
            if got != want:
                raise Refusal(
                    f"the tile's {what} is its grid's",
                    where=str(tile),
                    got=got,
                    limit=want,
                    hint=f"use one knob {what} for both",
                    source=tile.source,
                )
        for s in self.sums[id(tile)]:
            over = s.loop.index.over
            if isinstance(over, Tiling) and (over.kind != "chunks32" or over.size != tile.nk):
                raise Refusal(
                    "the tile's nk is its sweep's",
                    where=f"{tile}: {over}",
                    got=tile.nk,
                    limit=over.size if over.kind == "chunks32" else "chunks32",
                    hint="sweep(a.chunks32(nk)) with the tile's nk",
                    source=s.loop.source,
                )
        tiling.check(self.work.machine, tile.gm, tile.gn, tile.nk, tile.source)

    def _term(self, s: Sum) -> Term:
        a, b, count = self.operands(s)
        left, left_layout = self._left(a, s)
        right = self.work.read(b.tensor, b.layout, s.source, b.turned)
        return Term(left, right, left_layout, b.layout, a.at, b.at, a.first, b.first, count)

    def _left(self, a: Located, s: Sum) -> tuple[int, OperandPack | WindowPack]:
        """The buffer of a product's left side and how it is read: packed for its tiles, or an image by descriptor."""
        port = a.tensor.port
        if not isinstance(port, Windows):
            return self.work.read(a.tensor, a.layout, s.source, a.turned), a.layout
        image = self.work.tensor(port.image, s.source)
        pack, layout = pack_of(self.work.machine, port, image.shape, self.gm, a.layout.chunk, s.source)
        if pack.rows != a.layout.rows:
            raise Refusal(
                "windows have one row per output pixel",
                where=str(port),
                got=a.layout.rows,
                limit=pack.rows,
                hint="pass the count of output pixels",
                source=s.source,
            )
        return self.work.read(image, layout, s.source), pack

    def operands(self, s: Sum) -> tuple[Located, Located, Ints]:
        """Both sides of a product and how many K chunks each instance runs over."""
        product = s.product
        nk = self._nk(s)
        a, b = (
            self._locate(side, view, groups, nk, s)
            for side, view, groups in (("A", product.a, self.gm), ("B", product.b, self.gn))
        )
        count = self._count(s, a.layout.chunks)
        for layout, first in ((a.layout, a.first), (b.layout, b.first)):
            low, high = int(first.min()), int((first + count).max())
            if int(count.min()) < 1 or low < 0 or high > layout.chunks:
                raise Refusal(
                    "a sweep runs over at least one of K's chunks and no others",
                    where=str(product),
                    got=f"chunks {low}..{high - 1}, {int(count.min())} at least",
                    limit=f"0..{layout.chunks - 1}",
                    hint="check the sweep's bound",
                    source=s.source,
                )
        # Past its end an operand is zeros: both must end together, or elements of one would silently count for nothing.
        depths = [np.minimum((o.first + count) * KBLOCK * nk, o.layout.cols) - o.first * KBLOCK * nk for o in (a, b)]
        if not np.array_equal(depths[0], depths[1]):
            raise Refusal(
                "both operands have one contraction length",
                where=str(product),
                got=f"{int(depths[0].max())} and {int(depths[1].max())} elements",
                hint="use one dim K in both ports, and the sweep's index in both",
                source=s.source,
            )
        return a, b, count

    def _nk(self, s: Sum) -> int:
        return next(t.nk for t in self.tiles if s in self.sums[id(t)])

    def _count(self, s: Sum, chunks: int) -> Ints:
        over = s.loop.index.over
        if isinstance(over, Tiling):
            number: object = chunks
        elif isinstance(over, DimExpr):
            number = int(over.value(self.work.binding.sizes))
        else:
            number = evaluate(over, self.instances.known)
        return np.broadcast_to(np.asarray(number, np.int64), self.instances.batch.shape)

    def _locate(self, side: str, view: View, groups: int, nk: int, s: Sum) -> Located:
        """Which tile and chunks each instance reads of one side of a product."""
        port, known, batch = view.port, self.instances.known, self.instances.batch
        tensor = self.work.tensor(port, s.source)
        if port.direction == "out":
            raise Refusal(
                "an output cannot be a matmul operand",
                where=str(view),
                hint="keep the value in an L.temp",
                source=s.source,
            )
        if len(port.axes) < 2 or len(view.index) != len(port.axes):
            raise Refusal(
                f"operand {side} is indexed by its leading axes, its tile and the sweep",
                where=str(s.product),
                limit=f"{len(port.axes)} indices for {port.declaration}",
                hint="acc += a[i, k] @ b[j, k], where b is stored [N][K]",
                source=s.source,
            )
        tile_index, chunk_index = view.index[-2:]
        axis = self.row if side == "A" else self.col
        try:
            first, second = (
                np.broadcast_to(np.asarray(evaluate(chunk_index, {**known, s.loop.index: k}), np.int64), batch.shape)
                for k in (0, 1)
            )
            tile = np.broadcast_to(np.asarray(evaluate(tile_index, known), np.int64), batch.shape)
        except KeyError:
            raise self._misindexed(side, view, axis, s) from None
        if not np.all(second - first == 1):
            raise self._misindexed(side, view, axis, s)
        rows, cols = tensor.shape[-2:] if not port.turned else tensor.shape[:-3:-1]
        matrices = tensor.matrices
        preq = not self.work.device_only(tensor) and bool(self.work.machine.features.quantising_upload)
        preq = preq or (isinstance(port, In) and port.quantised)
        layout = OperandPack(rows, cols, groups, nk, matrices, preq, side)
        if int(tile.min()) < 0 or int(tile.max()) >= layout.tiles:
            raise Refusal(
                f"operand {side}'s tile stays inside the operand",
                where=str(view),
                got=f"{int(tile.min())}..{int(tile.max())}",
                limit=f"0..{layout.tiles - 1}",
                hint=f"tile {axis} over {view.port.name}",
                source=s.source,
            )
        lead = self.work.lead_position(tensor, view.index[:-2], known, batch, s.source)
        return Located(tensor, layout, np.stack([lead, tile], axis=1), first, port.turned)

    def _misindexed(self, side: str, view: View, axis: Index, s: Sum) -> Refusal:
        return Refusal(
            f"operand {side} is indexed by its tile and the sweep",
            where=str(s.product),
            got=str(view),
            limit=f"{view.port.name}[{axis}, {s.loop.index}]",
            hint="acc += a[i, k] @ b[j, k], where b is stored [N][K]",
            source=s.source,
        )
