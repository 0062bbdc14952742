"""Elementwise stages of the vector cores: one expression over parts of a block.

It decides the byte order that all operands are walked in; it refuses operands that do not fit the stage.
"""

from __future__ import annotations

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang.ports import Tiling
from kohakuaccel.lang.trace import StageNode, StoreNode
from kohakuaccel.lang.values import Value, View
from kohakutpu.layouts import FP32, WORD_ELEMENTS, DrainedTiles, RowMajor, Streamable
from kohakutpu.lower.body import Builder
from kohakutpu.lower.elementwise import ElementwiseBand
from kohakutpu.lower.row_stages import readable
from kohakutpu.lower.work import Env, Tensor, Work


def elementwise_store(work: Work, node: StageNode, store: StoreNode, env: Env) -> None:
    """Append the band of `target[e] <<= expression` over parts."""
    del env  # parts take no other index
    target = work.tensor(store.target.port, store.source)
    if store.target.index != node.axes or store.target.columns is not None or store.target.port.turned:
        raise Refusal(
            "a store is indexed by its stage's instance",
            where=str(store.target),
            limit=f"[{', '.join(a.name for a in node.axes)}]",
            hint="index the output like the inputs",
            source=store.source,
        )
    order: list[Tensor] = []

    def leaf(v: Value) -> tuple[int, str]:
        tensor = readable(work, v, store.source)
        if not isinstance(v, View) or v.index != node.axes or v.columns is not None or v.port.turned:
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
    wide = any(t.element == FP32 for t in (target, *order))
    known = [h for h in hints if h is not None and not (wide and isinstance(h, DrainedTiles))]
    natural = RowMajor.of_shape(target.shape)
    # Rows cut for another shape are worth keeping only where nothing is in this one.
    layout = next((h for h in known if h.cols == natural.cols), next(iter(known), natural))
    if target.home >= 0:
        layout = work.hint(target) or layout
    reads = tuple(work.read(t, _stored(layout, t), store.source) for t in order)
    layout = _stored(layout, target)
    out = work.write(target, layout, store.source)
    names = tuple(t.port.name for t in order)
    over = node.axes[0].over
    assert isinstance(over, Tiling)
    elements = tuple(t.element for t in order) if wide else ()
    part = over.size // WORD_ELEMENTS
    band = ElementwiseBand(work.machine, reads, out, layout, body, names, part, store.source, elements=elements)
    work.stage(band)


def _stored(layout: Streamable, tensor: Tensor) -> Streamable:
    """An order with the tensor's own elements."""
    return layout.stored_as(tensor.element) if isinstance(layout, RowMajor) else layout
