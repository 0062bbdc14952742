"""Which tensors of a kernel are stored in FP32: what its author says, and what its vector stages make of FP32.

It decides elements only. It must not know byte orders; which stage cannot hold FP32 says so itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kohakuaccel.lang.ports import Port, Tiling
from kohakuaccel.lang.trace import LoopNode, Node, StageNode, StoreNode, Trace
from kohakutpu.layouts import FP16, FP32, Element
from kohakutpu.lower.leaves import ports_of


def base_of(port: Port) -> Port:
    """The tensor's own handle behind a transposed or reshaped one."""
    own = port if port.turned_from is None else port.turned_from
    return own if own.same_as is None else own.same_as


def stored_elements(trace: Trace, given: Sequence[Element]) -> dict[int, Element]:
    """Element by id(port). given: of the In ports, in order; FP16 beyond its end.

    A result or temporary that says nothing is FP32 if a store into it, on the vector cores, reads FP32. A store from
    accumulators is FP16, as clusters drain it.
    """
    inputs = [p for p in trace.ports if p.direction == "in"]
    known = {id(p): given[n] if n < len(given) else FP16 for n, p in enumerate(inputs)}
    if not any(p.stored for p in (*trace.ports, *trace.internal)) and FP32 not in known.values():
        return known
    said = {id(p): FP32 if p.stored == "float32" else FP16 for p in (*trace.ports, *trace.internal) if p.stored}
    known |= said
    stores = list(_stores(trace.body, False))
    grown = True
    while grown:
        grown = False
        for store, tiled in stores:
            target = base_of(store.target.port)
            if tiled or id(target) in said or known.get(id(target)) == FP32:
                continue
            if any(known.get(id(base_of(p))) == FP32 for p in ports_of(store.value)):
                known[id(target)] = FP32
                grown = True
    return known


def _stores(nodes: Sequence[Node], tiled: bool) -> Iterator[tuple[StoreNode, bool]]:
    """Every store, and whether it is of a stage over tiles."""
    for node in nodes:
        if isinstance(node, StoreNode):
            yield node, tiled
        elif isinstance(node, StageNode):
            kinds = {axis.over.kind for axis in node.axes if isinstance(axis.over, Tiling)}
            yield from _stores(node.body, tiled or "tiles" in kinds)
        elif isinstance(node, LoopNode):
            yield from _stores(node.body, tiled)
