"""What a chain computes, in the machine's formats, on arrays (the L2 run).

A tile value is float64[row tiles, 4 * gm, cols]; a number per row is float64[row tiles, 4 * gm, 4], because a core
holds one copy per lane of a sub-tile's row, and the copies of a NaN may differ. Written with numpy beside the unit
models, so that the equality of levels means something.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kohakutpu.layouts import KBLOCK, LANES, OperandPack
from kohakutpu.lower import evaluate
from kohakutpu.lower.body import Body
from kohakutpu.lower.evaluate import OPS

F64 = NDArray[np.float64]
Half = NDArray[np.float16]
COMBINE = {"sum": "add", "max": "max", "min": "min"}
IDENTITY = {"sum": 0.0, "max": -np.inf, "min": np.inf}


def reduce_tiles(kind: str, x: F64) -> F64:
    """float64[rows, cols] -> float64[rows, 4]: sub-tile after sub-tile lane by lane, then neighbours, then pairs."""
    op = OPS[COMBINE[kind]]
    rows, cols = x.shape
    padded = np.full((rows, LANES * -(-cols // LANES)), IDENTITY[kind])
    padded[:, :cols] = x
    parts = padded.reshape(rows, -1, LANES)
    total = np.ascontiguousarray(parts[:, 0])
    for h in range(1, parts.shape[1]):
        total = op(total, np.ascontiguousarray(parts[:, h]))
    for swap in ([1, 0, 3, 2], [2, 3, 0, 1]):
        total = op(total, np.ascontiguousarray(total[:, swap]))
    return total


def live(body: Body, results: Sequence[int]) -> list[int]:
    """Nodes that any of the results depends on, in order; reductions are followed."""
    wanted: set[int] = set()
    stack = list(results)
    while stack:
        n = stack.pop()
        if n not in wanted:
            wanted.add(n)
            if body.nodes[n].op not in evaluate.LEAVES:
                stack.extend(body.nodes[n].args)
    return sorted(wanted)


def run_rows(body: Body, results: Sequence[int], operands: Sequence[F64], cols: int) -> list[F64]:
    """The results over [rows, cols] operands (numbers per row: [rows, 4]); per-row results are [rows, 4] or [1, 4]."""
    value: dict[int, F64] = {}

    def spread(n: int, tile: bool) -> F64:
        """A node's value beside others: numbers per row repeat along the row, lane by lane."""
        v = value[n]
        if tile and body.nodes[n].per_row:
            return np.tile(v, (1, -(-cols // LANES)))[:, :cols]
        return v

    with np.errstate(all="ignore"):
        for n in live(body, results):
            node = body.nodes[n]
            if node.op in evaluate.LEAVES:
                value[n] = operands[node.args[0]]
            elif node.op == "const":
                value[n] = evaluate.round_e8m15(np.full((1, LANES), node.number))
            elif node.op == "reduce":
                value[n] = reduce_tiles(node.text, value[node.args[0]])
            else:
                args = np.broadcast_arrays(*(spread(a, not node.per_row) for a in node.args))
                value[n] = OPS[node.op](*(np.ascontiguousarray(a) for a in args))
        return [spread(n, False) for n in results]


def stored(x: F64, wide: bool) -> F64:
    """What is read back of a value stored in L1: FP16, or E8M15 in an FP32 place."""
    return x if wide else evaluate.store_fp16(np.ascontiguousarray(x)).astype(np.float64)


def operand_tile(values: Half, layout: OperandPack, at: NDArray[np.int64], first: int, count: int) -> Half:
    """One tile of a packed operand over `count` chunks from `first` on, zeros past its ends: float16[lanes, K]."""
    lanes, step = LANES * layout.tile, KBLOCK * layout.chunk
    whole = values.reshape(layout.batch, layout.rows, layout.cols)[int(at[0])]
    part = whole[int(at[1]) * lanes : (int(at[1]) + 1) * lanes, first * step : (first + count) * step]
    out = np.zeros((lanes, count * step), np.float16)
    out[: part.shape[0], : part.shape[1]] = part
    return out
