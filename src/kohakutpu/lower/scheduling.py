"""From a trace with known sizes to a schedule: which bands a kernel needs, in which stages, over which layouts.

It decides the form of each stage (contraction, elementwise, rows) from its statements, and refuses by name what
none of them can hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kohakuaccel.diagnostics import Refusal, SourceLine, Unsupported
from kohakuaccel.lang.ports import Port
from kohakuaccel.lang.trace import LoopNode, Node, StageNode, StatementNode, StoreNode, Trace
from kohakuaccel.lang.values import Contraction, Value, View
from kohakuaccel.machine import Machine
from kohakuaccel.schedule import Band, BufferSpec, Schedule, Stage
from kohakutpu.lang.tiles import Tile
from kohakutpu.layouts import DrainedTiles, Layout, OperandPack, RowMajor, Streamable, WordRuns
from kohakutpu.lower import tiling
from kohakutpu.lower.binding import Binding
from kohakutpu.lower.body import Builder
from kohakutpu.lower.contraction import ContractionBand
from kohakutpu.lower.elementwise import ElementwiseBand
from kohakutpu.lower.rows import RowBand


@dataclass(slots=True)
class _Work:
    """A schedule under construction. layouts: port or temporary number -> layout once something decided it."""

    trace: Trace
    machine: Machine
    binding: Binding
    hints: Sequence[Layout | None]
    names: list[str]
    roles: list[str]
    shapes: list[tuple[int, ...]]
    layouts: dict[int, Layout] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)

    def number(self, port: Port) -> int:
        return self.trace.ports.index(port)

    def temporary(self, stem: str, shape: tuple[int, ...], layout: Layout) -> int:
        self.names.append(f"{stem}{len(self.names) - len(self.trace.ports)}")
        self.roles.append("temp")
        self.shapes.append(shape)
        self.layouts[len(self.names) - 1] = layout
        return len(self.names) - 1

    def settle(self, number: int, layout: Layout, source: SourceLine) -> Layout:
        """Give a buffer its layout; a buffer has one."""
        have = self.layouts.setdefault(number, layout)
        if have != layout:
            raise Unsupported(
                "a tensor is used in two byte orders by one kernel",
                where=f"{self.names[number]}: {have} and {layout}",
                hint="use the same tiling in both places, or two kernels",
                source=source,
            )
        return have


def build_schedule(trace: Trace, machine: Machine, binding: Binding, hints: Sequence[Layout | None]) -> Schedule:
    """hints: per input, a layout its value already has on the device (elementwise work adopts it), or None.

    Raises Refusal with the user's line for anything that cannot be right or is not available.
    """
    ports = trace.ports
    work = _Work(
        trace,
        machine,
        binding,
        hints,
        [p.name for p in ports],
        [p.direction for p in ports],
        list(binding.shapes),
    )
    written: dict[int, SourceLine] = {}
    for node in trace.body:
        if not isinstance(node, StageNode):
            raise Refusal(
                "a statement belongs to an instance of a grid",
                where=_what(node),
                hint="put it inside a grid or stage",
                source=node.source,
            )
        _stage(work, node, written)
    for n, port in enumerate(ports):
        if port.direction == "out" and n not in written:
            raise Refusal(
                "every output is written",
                where=f"kernel {trace.name}, {port.declaration}",
                hint=f"store into it: {port.name}[...] <<= value",
            )
        if n not in work.layouts:
            work.layouts[n] = RowMajor.of_shape(work.shapes[n])
    buffers = tuple(
        BufferSpec(name, role, shape, work.layouts[n])
        for n, (name, role, shape) in enumerate(zip(work.names, work.roles, work.shapes))
    )
    expected = tuple(_data_words(work.layouts[n]) for n in range(len(buffers)))
    result = Schedule(trace.name, machine.name, buffers, tuple(work.stages), expected)
    result.verify()
    return result


def _data_words(layout: Layout) -> np.ndarray:
    runs = WordRuns(layout.nbytes // 32, 0, 1) if isinstance(layout, OperandPack) else layout.runs
    first = np.arange(runs.count, dtype=np.int64) * runs.pitch
    return np.stack([first, np.full_like(first, runs.words)], axis=1)


def _what(node: Node) -> str:
    return node.text if isinstance(node, StatementNode) else type(node).__name__


def _stage(work: _Work, node: StageNode, written: dict[int, SourceLine]) -> None:
    kinds = {axis.tiling.kind for axis in node.axes}
    stores = [n for n in node.body if isinstance(n, StoreNode)]
    if not stores:
        raise Refusal(
            "a stage that stores nothing does no work",
            where="stage",
            hint="store its result with <<=",
            source=node.source,
        )
    for store in stores:
        number = work.number(store.target.port)
        if number in written:
            raise Refusal(
                "an output element is written once",
                where=f"{store.target} (first written at {written[number]})",
                hint="combine both values in one store",
                source=store.source,
            )
        written[number] = store.source
    if kinds == {"tiles"}:
        _contraction_stage(work, node, stores)
    elif kinds == {"parts"} and len(node.axes) == 1:
        for store in _plain(node):
            _elementwise(work, node, store)
    elif kinds == {"rows"} and len(node.axes) == 1:
        for store in _plain(node):
            _rows(work, node, store)
    else:
        raise Unsupported(
            "a stage runs over tiles of two operands, or over parts or rows of one port",
            where=" x ".join(str(a.tiling) for a in node.axes),
            hint="use one kind of tiling per stage",
            source=node.source,
        )


def _plain(node: StageNode) -> list[StoreNode]:
    found: list[StoreNode] = []
    for statement in node.body:
        if not isinstance(statement, StoreNode):
            raise Unsupported(
                "a vector stage holds stores only",
                where=_what(statement),
                hint="move it to its own stage",
                source=statement.source,
            )
        if statement.target.index != node.axes:
            raise Refusal(
                "a store is indexed by its stage's instance",
                where=str(statement.target),
                limit=f"[{', '.join(a.name for a in node.axes)}]",
                hint="index the output like the inputs",
                source=statement.source,
            )
        found.append(statement)
    return found


# contraction


def _contraction_stage(work: _Work, node: StageNode, stores: Sequence[StoreNode]) -> None:
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
        work: _Work,
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
    work: _Work, node: StageNode, loop: LoopNode, tile: Tile, product: Contraction, source: SourceLine
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


# vector work


def _elementwise(work: _Work, node: StageNode, store: StoreNode) -> None:
    out = work.number(store.target.port)
    order: list[int] = []

    def leaf(v: Value) -> tuple[int, bool]:
        number = _operand(work, node, v, store)
        if not isinstance(v, View):
            raise Refusal(
                "an operand of an elementwise stage is indexed by its part",
                where=str(v),
                hint=f"write {v}[{node.axes[0]}]",
                source=store.source,
            )
        if work.shapes[number] != work.shapes[out]:
            raise Refusal(
                "elementwise operands have the output's shape",
                where=str(v),
                got=work.shapes[number],
                limit=work.shapes[out],
                hint="broadcast the operand first",
                source=v.source,
            )
        if number not in order:
            order.append(number)
        return order.index(number), False

    body = Builder(work.binding.sizes, leaf, None).build(store.value)
    layout = _common_layout(work, [*order, out], store.source)
    names = tuple(work.names[n] for n in order)
    size = node.axes[0].tiling.size
    band = ElementwiseBand(work.machine, tuple(order), out, layout, body, names, size // 16, store.source)
    work.stages.append(Stage((band,)))


def _common_layout(work: _Work, numbers: Sequence[int], source: SourceLine) -> Streamable:
    """The order all operands are walked in: what a stage already decided, else what a value has on the device."""
    chosen: Layout | None = next((work.layouts[n] for n in numbers if n in work.layouts), None)
    inputs = [n for n in numbers if work.roles[n] == "in"]
    position = {n: i for i, n in enumerate(n for n, r in enumerate(work.roles) if r == "in")}
    if chosen is None:
        hinted = [work.hints[position[n]] for n in inputs if position[n] < len(work.hints)]
        chosen = next((h for h in hinted if isinstance(h, RowMajor | DrainedTiles)), None)
    if chosen is None:
        chosen = RowMajor.of_shape(work.shapes[numbers[0]])
    if isinstance(chosen, OperandPack):
        raise Unsupported(
            "a matmul operand cannot be walked elementwise in the same kernel",
            where=str(chosen),
            hint="use two kernels",
            source=source,
        )
    for n in numbers:
        work.settle(n, chosen, source)
    return chosen


def _operand(work: _Work, node: StageNode, v: Value, store: StoreNode) -> int:
    port = v.port if isinstance(v, View) else v
    if not isinstance(port, Port):
        raise Refusal(
            "an accumulator is used in the stage that opened it",
            where=str(v),
            hint="store it and read the stored tensor",
            source=store.source,
        )
    if port.direction != "in":
        raise Refusal(
            "a stage cannot read an output",
            where=str(v),
            hint="compute both results from the inputs, or use two kernels",
            source=store.source,
        )
    if isinstance(v, View) and v.index != node.axes:
        raise Refusal(
            "operands are indexed by the stage's instance",
            where=str(v),
            limit=f"[{', '.join(a.name for a in node.axes)}]",
            hint="use the stage's own index",
            source=v.source,
        )
    return work.number(port)


def _rows(work: _Work, node: StageNode, store: StoreNode) -> None:
    anchor = node.axes[0].tiling.port
    assert anchor is not None
    shape = work.shapes[work.number(anchor)]
    cols = shape[-1]
    rows = int(np.prod(shape[:-1], dtype=np.int64))
    out = work.number(store.target.port)
    order: list[int] = []
    shared: set[int] = set()

    def leaf(v: Value) -> tuple[int, bool]:
        number = _operand(work, node, v, store)
        port = work.trace.ports[number]
        one_row = not isinstance(v, View)
        want = (cols,) if one_row else shape
        if (one_row and (port.batched or len(port.axes) != 1)) or work.shapes[number] != want:
            raise Refusal(
                "a row operand has the rows' shape, or is one row shared by all",
                where=str(v),
                got=work.shapes[number],
                limit=want,
                hint="declare a shared row as In(N) and use it without an index",
                source=v.source if isinstance(v, View) else store.source,
            )
        if number not in order:
            order.append(number)
        if one_row:
            shared.add(order.index(number))
        return order.index(number), one_row

    body = Builder(work.binding.sizes, leaf, cols).build(store.value)
    per_row = body.nodes[body.result].per_row
    want = shape[:-1] if per_row else shape
    if work.shapes[out] != want:
        raise Refusal(
            "a row result has one number per row, or the rows' shape",
            where=f"{store.target} <<= {'one number per row' if per_row else 'a row'}",
            got=work.shapes[out],
            limit=want,
            hint="declare Out(..., M) for one number per row, Out(..., M, N) for rows",
            source=store.source,
        )
    layout = RowMajor.of(rows, cols)
    for n in order:
        work.settle(n, RowMajor.of(1, cols) if order.index(n) in shared else layout, store.source)
    out_layout = RowMajor.of(rows, 1) if per_row else layout
    work.settle(out, out_layout, store.source)
    names = tuple(work.names[n] for n in order)
    band = RowBand(work.machine, tuple(order), frozenset(shared), out, layout, out_layout, body, names, store.source)
    band.plan()
    work.stages.append(Stage((band,)))
