"""From a trace with known sizes to a schedule: which bands a kernel needs, in which stages, over which layouts.

It decides the form of each stage (contraction, elementwise, rows) from its statements, and refuses by name what
none of them can hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine, Unsupported
from kohakuaccel.lang.trace import Node, StageNode, StatementNode, StoreNode, Trace
from kohakuaccel.machine import Machine
from kohakuaccel.schedule import BufferSpec, Schedule
from kohakutpu.layouts import Layout, OperandPack, RowMajor, WordRuns
from kohakutpu.lower.binding import Binding
from kohakutpu.lower.tile_stage import contraction_stage
from kohakutpu.lower.vector_stages import elementwise_store, row_store
from kohakutpu.lower.work import Work


def build_schedule(trace: Trace, machine: Machine, binding: Binding, hints: Sequence[Layout | None]) -> Schedule:
    """hints: per input, a layout its value already has on the device (elementwise work adopts it), or None.

    Raises Refusal with the user's line for anything that cannot be right or is not available.
    """
    ports = trace.ports
    work = Work(
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


def _data_words(layout: Layout) -> NDArray[np.int64]:
    runs = WordRuns(layout.nbytes // 32, 0, 1) if isinstance(layout, OperandPack) else layout.runs
    first = np.arange(runs.count, dtype=np.int64) * runs.pitch
    return np.stack([first, np.full_like(first, runs.words)], axis=1)


def _what(node: Node) -> str:
    return node.text if isinstance(node, StatementNode) else type(node).__name__


def _stage(work: Work, node: StageNode, written: dict[int, SourceLine]) -> None:
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
        contraction_stage(work, node, stores)
    elif kinds == {"parts"} and len(node.axes) == 1:
        for store in _plain(node):
            elementwise_store(work, node, store)
    elif kinds == {"rows"} and len(node.axes) == 1:
        for store in _plain(node):
            row_store(work, node, store)
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
