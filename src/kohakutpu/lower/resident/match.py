"""Which kernels stay on chip: every stage works on row tiles of its own rows, and a temporary feeds a product.

It decides that, and turns the stages into operations on values of a row tile; where it cannot, it says why. It must
not know L1 places, order of execution or instructions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.lang.ports import Port, Tiling
from kohakuaccel.lang.trace import LoopNode, StageNode, StatementNode, StoreNode
from kohakuaccel.lang.values import Contraction, Value, View
from kohakutpu.lang.tiles import Tile
from kohakutpu.layouts import LANES, DrainedTiles, OperandPack, RowMajor, ceil_div
from kohakutpu.lower.body import Builder
from kohakutpu.lower.instances import enumerate_instances
from kohakutpu.lower.leaves import leaves_of, ports_of
from kohakutpu.lower.resident.ops import Chain, Fetched, Held, NotResident, Op, Out, Product, Rows, Slot
from kohakutpu.lower.tile_stage import Located, TileStage
from kohakutpu.lower.work import Env, Tensor, Work

Ints = NDArray[np.int64]
Stages = Sequence[tuple[StageNode, Env]]


def fed(stages: Stages) -> dict[int, str]:
    """Temporaries that are the left operand of a product, by id of their port: what may stay on chip."""
    found: dict[int, str] = {}
    for node, _ in stages:
        for inner in node.body:
            for s in inner.body if isinstance(inner, LoopNode) else ():
                if isinstance(s, StatementNode) and s.kind == "accumulate":
                    product = s.args[1]
                    assert isinstance(product, Contraction)
                    if product.a.port.direction == "temp":
                        found[id(product.a.port)] = product.a.port.name
    return found


class Matcher:
    """Turns the unrolled stages of one call into a Chain. Raises NotResident."""

    def __init__(self, work: Work, stages: Stages) -> None:
        self.work, self.stages = work, stages
        self.fed = fed(stages)
        self.gm = 0
        self.rows: tuple[int, int] | None = None  # matrices, rows of each
        self.keys = np.zeros((0, 2), np.int64)
        self.held: dict[int, Held] = {}
        self.slots: dict[tuple[int, int], Slot] = {}
        self.ops: list[Op] = []

    def match(self) -> Chain:
        tiled = [(TileStage(self.work, node, env), node) for node, env in self.stages if _kinds(node) >= {"tiles"}]
        sizes = {t.gm for t, _ in tiled}
        if len(sizes) != 1:
            raise NotResident(f"products have tiles of {sorted(sizes)} row groups, and a core keeps one")
        self.gm = sizes.pop()
        if self.gm > 8:
            raise NotResident(f"a row tile of {4 * self.gm} rows exceeds the 32 rows of a 128-element vector")
        following = iter(tiled)
        for node, env in self.stages:
            kinds = _kinds(node)
            if kinds >= {"tiles"}:
                self._tiles(*next(following))
            elif kinds <= {"rows", "each"}:
                self._rows(node, env)
            else:
                raise NotResident("a stage over parts knows no rows", node.source)
        return Chain(self.keys, self.gm, self.ops, list(self.held.values()))

    # shapes

    def _agree(self, tensor: Tensor, per_row: bool, what: str, source: SourceLine) -> int:
        """Rows in all of a tensor, which are those of every other."""
        if per_row:
            shape = tensor.shape
        else:
            shape = tensor.shape[:-1]
        rows = int(shape[-1]) if shape else 1
        have = (math.prod(shape[:-1]) if len(shape) > 1 else 1, rows)
        if self.rows is None:
            self.rows = have
            tiles = ceil_div(rows, LANES * self.gm)
            grid = np.meshgrid(np.arange(have[0]), np.arange(tiles), indexing="ij")
            self.keys = np.stack([g.ravel() for g in grid], axis=1).astype(np.int64)
        if have != self.rows:
            raise NotResident(f"{what} has {have[0]} x {have[1]} rows, others {self.rows[0]} x {self.rows[1]}", source)
        return have[0] * have[1]

    def _layout(self, cols: int, columns: int) -> DrainedTiles:
        assert self.rows is not None
        return DrainedTiles(self.rows[1], cols, self.gm, columns, self.rows[0])

    def _value(self, port: Port, tensor: Tensor, per_row: bool, columns: int) -> Held:
        """The value of a temporary that a stage writes."""
        found = self.held.get(id(port))
        if found is not None:
            return found
        name, gm = port.name, self.gm
        if per_row:
            buffer = self.work.temporary(name, tensor.shape, RowMajor.of(tensor.size, 1), "l1")
            made = Held(name, "row", buffer, gm, 1)
        else:
            cols = tensor.shape[-1]
            buffer = self.work.temporary(name, tensor.shape, self._layout(cols, columns), "l1")
            if id(port) in self.fed:
                made = Held(name, "entries", buffer, gm, cols)
            else:
                made = Held(name, "tile", buffer, gm, cols, columns)
        self.held[id(port)] = made
        return made

    # products

    def _tiles(self, stage: TileStage, node: StageNode) -> None:
        if len(stage.tiles) != 1 or len(stage.stores) != 1 or stage.tiles[0].split != 1:
            raise NotResident("a stage of several accumulators or stores meets in memory", node.source)
        tile, store = stage.tiles[0], stage.stores[0]
        if len(stage.sums[id(tile)]) != 1:
            raise NotResident("an accumulator of several sweeps", node.source)
        (added,) = stage.sums[id(tile)]
        tensor = self.work.tensor(store.target.port, store.source)
        layout, at = stage.place(store)
        if layout.grid[1] != 1:
            text = f"rows of {store.target.port.name} span {layout.grid[1]} tiles of {4 * layout.gn} columns"
            raise NotResident(f"{text}, and a core holds one", store.source)
        self._agree(tensor, False, store.target.port.name, store.source)
        order = np.lexsort((at[:, 1], at[:, 0]))
        if not np.array_equal(at[order][:, :2], self.keys):
            raise NotResident(f"a stage computes {len(at)} of {len(self.keys)} row tiles", node.source)
        a, b, count = stage.operands(added)
        if len(set(count.tolist())) != 1:
            raise NotResident("row tiles sweep over different lengths", added.source)
        chunks = int(count[0])
        left = self._left(a, order, chunks, node, added.product.a)
        if b.tensor.port.direction == "temp":
            raise NotResident(f"{added.product.b} is a temporary on the right of a product", added.source)
        right = self._fetched(b, order, 1, chunks, node, added.product.b, added.source)
        plain = store.value is tile
        if not plain or tensor.port.direction == "temp":
            direct = plain and id(store.target.port) not in self.fed
            made = self._value(store.target.port, tensor, False, layout.gn) if direct else self._acc(tile, layout)
            self.ops.append(Product(made, None, left, right, chunks, self.gm, layout.gn, tile.nk, added.source))
            if not direct:
                self._epilogue(store, tile, made, tensor)
            return
        out = self.work.write(tensor, layout, store.source)
        self.ops.append(Product(out, layout, left, right, chunks, self.gm, layout.gn, tile.nk, added.source))

    def _acc(self, tile: Tile, layout: DrainedTiles) -> Held:
        """The accumulator of a tile with an epilogue, as a value of its own."""
        found = self.held.get(id(tile))
        if found is not None:
            return found
        shape = (layout.batch, layout.rows, layout.cols)
        buffer = self.work.temporary(tile.name, shape, layout, "l1")
        made = Held(tile.name, "tile", buffer, self.gm, layout.cols, layout.gn)
        self.held[id(tile)] = made
        return made

    def _left(self, a: Located, order: Ints, chunks: int, node: StageNode, view: View) -> Fetched | Held:
        if a.tensor.port.direction != "temp":
            return self._fetched(a, order, 0, chunks, node, view, view.source)
        held = self.held.get(id(a.tensor.port))
        if held is None or held.kind != "entries" or a.turned:
            raise NotResident(f"{view} is read before a row tile of it is whole", view.source)
        whole = np.array_equal(a.at[order], self.keys) and not a.first.any() and chunks == a.layout.chunks
        if not whole or held.chunk not in (0, a.layout.chunk):
            raise NotResident(f"{view} is not the whole row tile that a core made", view.source)
        held.chunk = a.layout.chunk
        return held

    def _fetched(
        self, o: Located, order: Ints, side: int, chunks: int, node: StageNode, view: View, source: SourceLine
    ) -> Fetched:
        layout: OperandPack = o.layout
        slot = self.slots.setdefault((id(node), side), Slot(side, 0))
        slot.entries = max(slot.entries, chunks * layout.tile * layout.chunk)
        buffer = self.work.read(o.tensor, layout, source, o.turned)
        return Fetched(buffer, layout, o.at[order], o.first[order], slot, str(view))

    def _epilogue(self, store: StoreNode, tile: Tile, made: Held, tensor: Tensor) -> None:
        def leaf(v: Value) -> tuple[int, str]:
            if v is not tile:
                raise NotResident(f"an epilogue reads {v} from memory", store.source)
            return 0, "input"

        builder = Builder(self.work.binding.sizes, leaf, None)
        body = builder.build(store.value)
        target = self._target(store, tensor, False)
        self.ops.append(Rows(body, (made,), ((body.result, target),), made.cols, store.source))

    # rows

    def _rows(self, node: StageNode, env: Env) -> None:
        stores = [s for s in node.body if isinstance(s, StoreNode)]
        batched = any(p.batched for s in stores for p in (*ports_of(s.value), s.target.port))
        at = enumerate_instances(self.work, node, env, node.axes, batched)
        operands: list[Held] = []
        lengths: set[int] = set()

        def here(view: View, tensor: Tensor, per_row: bool) -> None:
            """Refuse a view of other rows than the instance's own."""
            total = self._agree(tensor, per_row, view.port.name, view.source)
            rows = self.work.lead_position(tensor, view.index, at.known, at.batch, view.source, view.port)
            if view.columns is not None or view.port.turned or not np.array_equal(rows, np.arange(total)):
                raise NotResident(f"{view} is not the row of its stage's instance", view.source)

        def leaf(v: Value) -> tuple[int, str]:
            if not isinstance(v, View) or id(v.port) not in self.held:
                raise NotResident(f"{v} lies in memory, in the order of rows", node.source)
            held, tensor = self.held[id(v.port)], self.work.tensor(v.port, node.source)
            if held.kind == "entries":
                raise NotResident(f"{v} is read by a row stage and by a product", v.source)
            here(v, tensor, held.kind == "row")
            if held.kind == "tile":
                lengths.add(held.cols)
            if held not in operands:
                operands.append(held)
            return operands.index(held), "input" if held.kind == "tile" else "number"

        length = self._length(stores, lengths)
        builder = Builder(self.work.binding.sizes, leaf, length)
        results: list[tuple[int, Held | Out]] = []
        for store in stores:
            view = store.target
            tensor = self.work.tensor(view.port, store.source)
            per_row = len(view.index) == len(view.port.axes)
            here(view, tensor, per_row)
            builder.build(store.value)
            results.append((builder.body.result, self._target(store, tensor, per_row)))
            if per_row and not builder.body.nodes[builder.body.result].per_row:
                raise NotResident(f"{view} takes one number per row", store.source)
            if not per_row:
                lengths.add(tensor.shape[-1])
        if len(lengths) > 1:
            raise NotResident(f"a stage mixes rows of {sorted(lengths)} elements", node.source)
        body = builder.body
        if any(n.op in ("less", "greater", "equal") for n in body.nodes):
            raise NotResident("a comparison needs a predicate, and the lane masks hold all four", node.source)
        self.ops.append(Rows(body, tuple(operands), tuple(results), length or 1, node.source))

    def _length(self, stores: Sequence[StoreNode], lengths: set[int]) -> int | None:
        """Row length of a stage: that of any tile value it reads or writes."""
        for store in stores:
            for v in (store.target, *leaves_of(store.value)):
                port = v.port if isinstance(v, View) else v
                held = self.held.get(id(port))
                if held is not None and held.kind != "row":
                    return held.cols
                if isinstance(v, View) and v is store.target and len(v.index) == len(v.port.axes) - 1:
                    return self.work.tensor(v.port, store.source).shape[-1]
        return next(iter(lengths), None)

    def _target(self, store: StoreNode, tensor: Tensor, per_row: bool) -> Held | Out:
        port = store.target.port
        if tensor.port.direction == "temp":
            columns = ceil_div(tensor.shape[-1], LANES)
            return self._value(port, tensor, per_row, columns)
        if per_row:
            raise NotResident(f"output {port.name} has one number per row", store.source)
        cols = tensor.shape[-1]
        layout = self._layout(cols, ceil_div(cols, LANES))
        out = self.work.write(tensor, layout, store.source)
        staged = self.held.get(id(port))
        if staged is None:
            buffer = self.work.temporary(f"{port.name}.tile", tensor.shape, layout, "l1")
            staged = self.held[id(port)] = Held(port.name, "tile", buffer, self.gm, cols, layout.gn)
        return Out(out, layout, staged)


def _kinds(node: StageNode) -> set[str]:
    return {axis.over.kind if isinstance(axis.over, Tiling) else "each" for axis in node.axes}


__all__ = ["Matcher", "fed"]
