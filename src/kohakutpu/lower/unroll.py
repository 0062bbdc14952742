"""The stages of a trace in the order they run, once the sizes are known: loops around stages repeat them.

It decides how often a loop runs; it does not know what stages compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kohakuaccel.diagnostics import Refusal, Unsupported
from kohakuaccel.lang.dims import DimExpr
from kohakuaccel.lang.indices import evaluate
from kohakuaccel.lang.ports import Tiling
from kohakuaccel.lang.trace import LoopNode, Node, StageNode, StatementNode
from kohakutpu.layouts import KBLOCK, LANES, ceil_div
from kohakutpu.lower.instances import tile_rows
from kohakutpu.lower.work import Env, Work


def unrolled(work: Work, nodes: Sequence[Node], env: Env) -> Iterator[tuple[StageNode, Env]]:
    """Every stage with the numbers of the loops around it. Refused: statements outside of stages."""
    for node in nodes:
        if isinstance(node, LoopNode):
            for n in range(_iterations(work, node, env)):
                yield from unrolled(work, node.body, {**env, node.index: n})
        elif isinstance(node, StageNode):
            yield node, env
        else:
            raise Refusal(
                "a statement belongs to an instance of a grid",
                where=node.text if isinstance(node, StatementNode) else str(node.target),
                hint="put it inside a grid or stage",
                source=node.source,
            )


def _iterations(work: Work, node: LoopNode, env: Env) -> int:
    over = node.index.over
    if isinstance(over, DimExpr):
        return int(over.value(work.binding.sizes))
    if isinstance(over, Tiling):
        axes = over.port.axes
        if over.kind == "tiles":
            return ceil_div(tile_rows(work, over), LANES * over.size)
        if over.kind == "each":
            return work.extent(axes[over.size])
        if over.kind == "chunks32":
            return ceil_div(work.extent(axes[-1]), KBLOCK * over.size)
        raise Unsupported(
            "a loop around stages runs over tiles, chunks, positions of an axis, a number or an index",
            where=str(over),
            hint="open a stage over it",
            source=node.source,
        )
    return int(evaluate(over, env))
