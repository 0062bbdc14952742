"""From a trace with known sizes to a schedule: loops around stages unrolled, each stage lowered by its form.

It decides the form of a stage (tiles, parts, rows) and the order of stages; it refuses by name what none can hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, Unsupported
from kohakuaccel.lang.dims import Dim
from kohakuaccel.lang.ports import Tiling
from kohakuaccel.lang.trace import LoopNode, Node, StageNode, StatementNode, StoreNode, Trace
from kohakuaccel.lang.values import Contraction, View
from kohakuaccel.machine import Machine
from kohakuaccel.schedule import Schedule
from kohakutpu.layouts import Layout
from kohakutpu.lower.binding import Binding
from kohakutpu.lower.leaves import ports_of, views_of
from kohakutpu.lower.resident import lower_resident
from kohakutpu.lower.row_stages import RowStage, check_joins
from kohakutpu.lower.tile_stage import TileStage
from kohakutpu.lower.unroll import unrolled
from kohakutpu.lower.vector_stages import elementwise_store
from kohakutpu.lower.work import Env, Work, data_words


def build_schedule(
    trace: Trace, machine: Machine, binding: Binding, hints: Sequence[tuple[Layout, bool] | None]
) -> Schedule:
    """hints: per input, a layout its value already has on the device (elementwise work adopts it), and whether that is
    the only place where it is; or None.

    Raises Refusal with the user's line for anything that cannot be right or is not available.
    """
    work = Work(trace, machine, binding, hints)
    stages = list(unrolled(work, trace.body, {Dim(name): size for name, size in binding.sizes.items()}))
    resident, notes = lower_resident(work, stages)
    if not resident:
        if notes:
            work = Work(trace, machine, binding, hints)
        for node, env in stages:
            _stage(work, node, env)
    for tensor in work.tensors:
        port = tensor.port
        if port.direction == "out" and tensor.home < 0:
            raise Refusal(
                "every output is written",
                where=f"kernel {trace.name}, {port.declaration}",
                hint=f"store into it: {port.name}[...] <<= value",
            )
    expected = tuple(_words(spec.layout) for spec in work.buffers)
    every = (*notes, *work.notes)
    result = Schedule(trace.name, machine.name, tuple(work.buffers), tuple(work.stages), expected, every)
    result.verify()
    return result


def _words(layout: object) -> NDArray[np.int64]:
    assert isinstance(layout, Layout)
    return data_words(layout)


def _stage(work: Work, node: StageNode, env: Env) -> None:
    stores = [
        inner
        for n in node.body
        for inner in (n.body if isinstance(n, StageNode) else (n,))
        if isinstance(inner, StoreNode)
    ]
    if not stores:
        raise Refusal(
            "a stage that stores nothing does no work",
            where="stage",
            hint="store its result with <<=",
            source=node.source,
        )
    _check_hazards(stores)
    kinds = {axis.over.kind for axis in node.axes if isinstance(axis.over, Tiling)}
    if not kinds <= {"rows", "each"}:
        _check_whole(node.body)
    tiles = "tiles" in kinds and kinds <= {"tiles", "each"}
    work.need("MG" if tiles else "VC", node.source)
    if tiles:
        TileStage(work, node, env).lower()
    elif kinds == {"parts"} and len(node.axes) == 1:
        for store in _plain(node):
            elementwise_store(work, node, store, env)
    elif kinds <= {"rows", "each"}:
        for store in _plain(node):
            RowStage(work, node, store, env).lower()
    else:
        raise Unsupported(
            "a stage runs over tiles of two operands, over parts, or over rows",
            where=" x ".join(str(a.over) for a in node.axes),
            hint="use one kind of tiling per stage",
            source=node.source,
        )


def _check_whole(nodes: Sequence[Node]) -> None:
    """Only a row stage takes columns of rows, and joins rows."""
    for node in nodes:
        views: list[View] = []
        if isinstance(node, LoopNode):
            _check_whole(node.body)
        elif isinstance(node, StoreNode):
            check_joins(node.value, False)
            views = [node.target, *views_of(node.value)]
        elif isinstance(node, StatementNode):
            for arg in node.args:
                views += [arg.a, arg.b] if isinstance(arg, Contraction) else [arg] if isinstance(arg, View) else []
        for view in views:
            if view.columns is not None:
                raise Refusal(
                    "columns are picked in a stage over rows",
                    where=str(view),
                    hint="copy them into an L.temp row by row first",
                    source=view.source,
                )


def _check_hazards(stores: Sequence[StoreNode]) -> None:
    """A unit does not wait between the statements of one stage (the guide, "Stages")."""
    written: dict[int, StoreNode] = {}
    for store in stores:
        for port in ports_of(store.value):
            if id(port) in written:
                first = written[id(port)]
                raise Refusal(
                    "a statement reads what an earlier statement of the same stage wrote: it would read stale bytes",
                    where=f"{store.target} <<= ... {port.name} ..., written by {first.target} at {first.source}",
                    hint="put them in separate stages",
                    source=store.source,
                )
        first = written.get(id(store.target.port))
        # Parts of rows may be written by several stores; the schedule's check of every word finds those that overlap.
        if first is not None and None in (first.target.columns, store.target.columns):
            raise Refusal(
                "an output element is written once",
                where=f"{store.target} (first written at {first.source})",
                hint="combine both values in one store",
                source=store.source,
            )
        written[id(store.target.port)] = store


def _plain(node: StageNode) -> list[StoreNode]:
    found: list[StoreNode] = []
    for statement in node.body:
        if not isinstance(statement, StoreNode):
            raise Unsupported(
                "a vector stage holds stores only",
                where=statement.text if isinstance(statement, StatementNode) else type(statement).__name__,
                hint="move it to its own stage",
                source=statement.source,
            )
        found.append(statement)
    return found
