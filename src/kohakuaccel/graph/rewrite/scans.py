"""Running folds by blocks, where that saves steps.

Decides when the direct form is replaced, and how long the blocks are.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohakuaccel.graph.blocks import count_of, may_end, new_ranges
from kohakuaccel.graph.model import Graph, Statement
from kohakuaccel.graph.rewrite.base import Rewrite, replaced
from kohakuaccel.graph.scan import blocked
from kohakuaccel.graph.structure import as_scan


@dataclass(frozen=True, kw_only=True)
class BlockedScan(Rewrite):
    """A running fold by blocks: a fold of each, of those in front of it, and running folds within.

    before  y[i<n] = sum[k<n] where(i < k, 0.0, x[k])
    after   f[t] = sum[b] x[t * B + b];  s[t] = sum[u] where(u < t, f[u], 0.0)
            w[t, b] = sum[c] where(b < c, 0.0, x[t * B + c]);  y[i] = s[i // B] + w[i // B, i % B]

    Holds for axes longer than `above` where blocks save half of the n * n steps at least. block: elements of a block;
    0: the power of two with the fewest steps (a block longer than `above` is cut again). Sums, products, maxima and
    minima, either way round; the last block may be short. Obligation: y is the same, where a block's own fold leaves
    the format no sooner than y does.
    """

    block: int = 0
    above: int = 32

    def rewrite(self, graph: Graph) -> Graph:
        for statement in graph.statements:
            made = self._blocked(graph, statement)
            if made:
                return self.rewrite(made)
        return graph

    def _blocked(self, graph: Graph, statement: Statement) -> Graph | None:
        scan = as_scan(statement)
        if not scan or scan.axis.extent <= self.above:
            return None
        n = scan.axis.extent
        block = self.block or min((1 << e for e in range(1, n.bit_length())), key=lambda b: steps(n, b), default=n)
        if 2 * steps(n, block) > n * n or (n % block and not may_end(scan.element)):
            return None
        made = blocked(statement, scan, block, graph.by_name, graph.fresh, lambda *extents: new_ranges(graph, *extents))
        return replaced(graph, {statement.name: made})


def steps(extent: int, block: int) -> int:
    """Elements that the form by blocks looks at, for one axis of `extent`."""
    count = count_of(extent, block)
    return extent + count * count + count * block * block + extent
