"""Stages of the vector cores: elementwise over parts of a block, and whole rows.

It decides operands' byte orders and which row each instance reads; it refuses operands that do not fit the stage.
"""

from __future__ import annotations

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang.ports import Port, Tiling
from kohakuaccel.lang.trace import StageNode, StoreNode
from kohakuaccel.lang.values import Value, View
from kohakutpu.layouts import RowMajor
from kohakutpu.lower.body import Builder
from kohakutpu.lower.elementwise import ElementwiseBand
from kohakutpu.lower.instances import enumerate_instances, ports_of
from kohakutpu.lower.rows import RowBand
from kohakutpu.lower.work import Env, Tensor, Work


def _readable(work: Work, v: Value, store: StoreNode) -> Tensor:
    """The tensor an operand reads. Refused: accumulators, and what this very stage writes."""
    port = v.port if isinstance(v, View) else v
    if not isinstance(port, Port):
        raise Refusal(
            "an accumulator is used in the stage that opened it",
            where=str(v),
            hint="store it and read the stored tensor",
            source=store.source,
        )
    if port.turned:
        raise Refusal(
            "a transposed port is a matmul operand",
            where=str(v),
            hint="transpose the value with a kernel of its own",
            source=store.source,
        )
    return work.tensor(port, store.source)


# elementwise


def elementwise_store(work: Work, node: StageNode, store: StoreNode, env: Env) -> None:
    """Append the band of `target[e] <<= expression` over parts."""
    del env  # parts take no other index
    target = work.tensor(store.target.port, store.source)
    if store.target.index != node.axes:
        raise Refusal(
            "a store is indexed by its stage's instance",
            where=str(store.target),
            limit=f"[{', '.join(a.name for a in node.axes)}]",
            hint="index the output like the inputs",
            source=store.source,
        )
    order: list[Tensor] = []

    def leaf(v: Value) -> tuple[int, str]:
        tensor = _readable(work, v, store)
        if not isinstance(v, View) or v.index != node.axes:
            raise Refusal(
                "an operand of an elementwise stage is indexed by its part",
                where=str(v),
                hint=f"write {getattr(v, 'port', v)}[{node.axes[0]}]",
                source=store.source,
            )
        if tensor.shape != target.shape:
            raise Refusal(
                "elementwise operands have the output's shape",
                where=str(v),
                got=tensor.shape,
                limit=target.shape,
                hint="broadcast the operand first",
                source=v.source,
            )
        if tensor not in order:
            order.append(tensor)
        return order.index(tensor), "input"

    body = Builder(work.binding.sizes, leaf, None).build(store.value)
    # The order all are walked in: what a stage wrote already comes first, then what a value has on the device.
    written = [t for t in (target, *order) if t.home >= 0]
    hints = [work.hint(t) for t in (*written, *order)]
    layout = next((h for h in hints if h is not None), None) or RowMajor.of_shape(target.shape)
    reads = tuple(work.read(t, layout, store.source) for t in order)
    out = work.write(target, layout, store.source)
    names = tuple(t.port.name for t in order)
    over = node.axes[0].over
    assert isinstance(over, Tiling)
    work.stage(ElementwiseBand(work.machine, reads, out, layout, body, names, over.size // 16, store.source))


# rows


def row_store(work: Work, node: StageNode, store: StoreNode, env: Env) -> None:
    """Append the band of `target[..., r] <<= expression` over rows."""
    rows = [a for a in node.axes if isinstance(a.over, Tiling) and a.over.kind == "rows"]
    if len(rows) != 1:
        raise Refusal(
            "a row stage runs over the rows of one port",
            where=" x ".join(str(a.over) for a in node.axes),
            hint="add leading axes with x.each(axis)",
            source=node.source,
        )
    over = rows[0].over
    assert isinstance(over, Tiling)
    anchor = work.tensor(over.port, node.source)
    cols = anchor.shape[-1]
    batched = any(p.batched for p in (*ports_of(store.value), store.target.port))
    at = enumerate_instances(work, node, env, node.axes, batched)
    target = work.tensor(store.target.port, store.source)
    inputs: list[int] = []
    rows_of: list[np.ndarray] = []
    widths: list[int] = []
    names: list[str] = []

    def row_numbers(tensor: Tensor, view: View, axes: int) -> np.ndarray:
        if len(view.index) != axes:
            raise Refusal(
                "a row is indexed by its leading axes and its row",
                where=str(view),
                got=f"{len(view.index)} indices",
                limit=f"{axes} for {tensor.port.declaration}",
                hint="use the stage's own indices",
                source=view.source,
            )
        return work.lead_position(tensor, view.index, at.known, at.batch, view.source)

    def leaf(v: Value) -> tuple[int, str]:
        tensor = _readable(work, v, store)
        axes = len(tensor.port.axes)
        if isinstance(v, View) and axes and len(v.index) == axes:
            numbers = work.lead_position(tensor, v.index, at.known, at.batch, v.source)
            return operand(tensor, numbers, 1, str(v)), "number"
        if tensor.shape[-1:] != (cols,):
            raise Refusal(
                "a row operand has the stage's row length, or one number per row",
                where=str(v),
                got=tensor.shape,
                limit=f"{cols} in the last axis",
                hint="declare a shared row as In(N) and use it without an index; index all axes of one number per row",
                source=v.source if isinstance(v, View) else store.source,
            )
        if isinstance(v, View):
            numbers = row_numbers(tensor, v, axes - 1)
        elif axes == 1:
            numbers = at.batch if tensor.port.batched else np.zeros_like(at.batch)
        else:
            raise Refusal(
                "a whole matrix is not a row",
                where=str(v),
                got=tensor.shape,
                limit=f"one row of {cols}",
                hint=f"index it: {v}[{', '.join(a.name for a in node.axes)}]",
                source=store.source,
            )
        return operand(tensor, numbers, cols, str(v)), "input"

    def operand(tensor: Tensor, numbers: np.ndarray, width: int, name: str) -> int:
        """The operand of these rows of a tensor seen as rows of `width`."""
        rows = int(np.prod(tensor.shape, dtype=np.int64)) // width
        buffer = work.read(tensor, RowMajor.of(rows, width), store.source)
        for n, (b, r, w) in enumerate(zip(inputs, rows_of, widths)):
            if b == buffer and w == width and np.array_equal(r, numbers):
                return n
        inputs.append(buffer)
        rows_of.append(np.ascontiguousarray(numbers))
        widths.append(width)
        names.append(name)
        return len(inputs) - 1

    body = Builder(work.binding.sizes, leaf, cols).build(store.value)
    per_row = body.nodes[body.result].per_row
    axes = len(target.port.axes)
    width = 1 if per_row and axes == len(store.target.index) else cols
    if not per_row and (axes != len(store.target.index) + 1 or target.shape[-1] != cols):
        raise Refusal(
            "a row result has one number per row, or the rows' length",
            where=f"{store.target} <<= a row of {cols}",
            got=target.shape,
            limit=f"... x {cols}",
            hint="declare Out(..., M) for one number per row, Out(..., M, N) for rows",
            source=store.source,
        )
    if per_row and axes != len(store.target.index):
        raise Refusal(
            "a row result has one number per row, or the rows' length",
            where=f"{store.target} <<= one number per row",
            got=target.shape,
            limit=target.shape[:-1],
            hint="declare Out(..., M) for one number per row, Out(..., M, N) for rows",
            source=store.source,
        )
    out_rows = work.lead_position(target, store.target.index, at.known, at.batch, store.source)
    total = target.shape if per_row else target.shape[:-1]
    out_layout = RowMajor.of(int(np.prod(total, dtype=np.int64)), width)
    out = work.write(target, out_layout, store.source)
    band = RowBand(
        work.machine,
        tuple(inputs),
        tuple(rows_of),
        tuple(widths),
        out,
        cols,
        out_layout,
        np.ascontiguousarray(out_rows),
        body,
        tuple(names),
        store.source,
    )
    band.plan()
    work.stage(band)
