"""Stages of the vector cores: elementwise over parts of a block, and whole rows.

It decides operands' order and roles; it refuses operands that do not share the stage's shape.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kohakuaccel.diagnostics import Refusal, SourceLine, Unsupported
from kohakuaccel.lang.ports import Port
from kohakuaccel.lang.trace import StageNode, StoreNode
from kohakuaccel.lang.values import Value, View
from kohakuaccel.schedule import Stage
from kohakutpu.layouts import DrainedTiles, Layout, OperandPack, RowMajor, Streamable
from kohakutpu.lower.body import Builder
from kohakutpu.lower.elementwise import ElementwiseBand
from kohakutpu.lower.rows import RowBand
from kohakutpu.lower.work import Work


def elementwise_store(work: Work, node: StageNode, store: StoreNode) -> None:
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


def _common_layout(work: Work, numbers: Sequence[int], source: SourceLine) -> Streamable:
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


def _operand(work: Work, node: StageNode, v: Value, store: StoreNode) -> int:
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


def row_store(work: Work, node: StageNode, store: StoreNode) -> None:
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
