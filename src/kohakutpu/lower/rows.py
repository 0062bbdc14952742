"""The row band: an expression with row reductions, one pass per reduction level, whole rows on one core.

A row that fits a core's L1 is filled once and every pass runs on it there; a wider one is refilled piece by piece for
each pass (another pass over memory, which `describe` states). Padding columns never enter a reduction, and are
stored as zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.program import UnitProgram
from kohakuaccel.schedule import Array
from kohakutpu.layouts import FP16, WORD_BYTES, WORD_ELEMENTS, Element, RowMajor, ceil_div
from kohakutpu.lower import evaluate
from kohakutpu.lower.body import Body
from kohakutpu.lower.row_code import CHUNK, Pieces, Resident
from kohakutpu.lower.vector_stream import Dims, VectorStream, check_descriptors, linear, stored_wide

Ints = NDArray[np.int64]
STRIDE_MAX = (1 << 17) - 1  # a descriptor's stride is a signed field of 18 bits (datasheet 6.2)


def _usual_step(steps: Ints, size: int) -> int:
    """The most frequent step between rows of `size` bytes that a descriptor can take; 1 where none stands out."""
    found, counts = np.unique(steps, return_counts=True)
    lawful = [(int(c), int(s) == 1, -int(s)) for s, c in zip(found, counts) if 0 <= s * size <= STRIDE_MAX or s == 1]
    return -max(lawful)[2] if lawful else 1


@dataclass(frozen=True, eq=False)
class RowBand:
    """out[out_rows[n]] = body(row rows_of[k][n] of operand k, ...) for every instance n.

    Operands and a full result are row-major with `cols` columns and one pitch; a result or an operand of one number per
    row (per_row) has one column (widths). rows_of: int64[instances] per operand; out_rows: int64[instances], no row
    twice. elements: per operand, how it is stored (all FP16 where empty); the result is what its layout says.
    """

    machine: Machine
    inputs: tuple[int, ...]
    rows_of: tuple[Ints, ...]
    widths: tuple[int, ...]
    out: int
    cols: int
    out_layout: RowMajor
    out_rows: Ints
    per_row: bool
    body: Body
    names: tuple[str, ...]
    source: SourceLine
    elements: tuple[Element, ...] = ()

    @property
    def engine(self) -> str:
        return "VC"

    @property
    def cores(self) -> tuple[Unit, ...]:
        return self.machine.units_of("VC", mesh=0)

    @property
    def row_words(self) -> int:
        return ceil_div(self.cols, WORD_ELEMENTS)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Words of 16 elements of each operand, the result's last: 1 in FP16, 2 in FP32."""
        return (*(e.words for e in self.elements or (FP16,) * len(self.inputs)), self.out_layout.element.words)

    @property
    def words(self) -> tuple[int, ...]:
        """L1 words of one row of each operand."""
        return tuple(size * ceil_div(w, WORD_ELEMENTS) for size, w in zip(self.sizes, self.widths))

    def row_bytes(self, n: int) -> int:
        """Bytes from one row of operand n to the next."""
        return self.words[n] * WORD_BYTES

    @property
    def numbers(self) -> frozenset[int]:
        """Positions of operands that give one number per row."""
        return frozenset(node.args[0] for node in self.body.nodes if node.op == "number")

    @property
    def shared(self) -> frozenset[int]:
        """Positions of operands of which every instance reads the same row."""
        return frozenset(n for n, rows in enumerate(self.rows_of) if len(rows) > 1 and bool(np.all(rows == rows[0])))

    @property
    def held(self) -> frozenset[int]:
        """Positions of operands whose row mostly stays from one instance to the next."""
        return frozenset(n for n in range(len(self.inputs)) if n not in self.shared and self.steps[n] == 0)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Rows from one instance to the next, as most instances have it; the operands', the result's last."""
        sizes = (*(self.row_bytes(n) for n in range(len(self.inputs))), self.out_words * WORD_BYTES)
        return tuple(_usual_step(np.diff(rows), size) for rows, size in zip((*self.rows_of, self.out_rows), sizes))

    def joined(self) -> NDArray[np.bool_]:
        """bool[instances - 1]: whether the next instance may share a RUN: all rows step as the code does."""
        good = np.diff(self.out_rows) == self.steps[-1]
        for n, rows in enumerate(self.rows_of):
            if n not in self.shared:
                good &= np.diff(rows) == self.steps[n]
        return good

    def walk(self, n: int, count: int) -> Dims:
        """The descriptor walk over `count` instances' rows of operand n (the result: n = number of operands)."""
        words = self.words[n] if n < len(self.inputs) else self.out_words
        step = self.steps[n]
        if step == 0 or count == 1:
            return linear(words)
        return linear(words * count) if step == 1 else (*linear(words), (step * words * WORD_BYTES, count))

    def segments(self, first: int, count: int) -> list[tuple[int, int]]:
        """(first instance, instances) of the longest stretches of a share that step together."""
        breaks = np.flatnonzero(~self.joined()[first : first + count - 1]) + 1
        bounds = [0, *breaks.tolist(), count]
        return [(first + a, b - a) for a, b in pairwise(bounds)]

    @property
    def lanes(self) -> int:
        """Elements of the accumulator vector, and the vector length between routines."""
        return min(CHUNK, self.row_words * WORD_ELEMENTS)

    @property
    def out_words(self) -> int:
        return self.out_layout.row_words

    @property
    def passes(self) -> int:
        """Passes over a row: one per reduction level, one more for an elementwise result."""
        levels = self.body.reduction_levels()
        return (max(levels.values()) + 1 if levels else 0) + (0 if self.per_row else 1)

    # planning

    def plan(self) -> Resident | Pieces:
        """How rows go through a core, and the code for it."""
        p = self.machine.params
        check_descriptors(self.machine, self.sizes, "row expression", self.source)
        words = max((*self.words, self.out_words))
        fixed = sum(self.words[n] for n in self.shared)
        each = sum(self.words) - fixed + self.out_words
        if words <= p.walk_max and fixed + each <= p.vl1:
            longest = max(n for _, first, count in self.deal() for _, n in self.segments(first, count))
            rows = min(
                longest,
                (p.vl1 - fixed) // each,
                p.walk_max // words,
            )
            while rows >= 1:
                plan = self._resident(rows)
                if len(plan.code.words) <= p.imem:
                    return plan
                rows = rows - 1 if rows <= 4 else rows * 3 // 4
        sizes = self.sizes
        numbers = sum(sizes[n] for n in self.numbers)
        piece = min(p.walk_max // max(sizes), (p.vl1 - numbers) // (sum(sizes) - numbers)) // 8 * 8
        while piece > 8:
            plan = Pieces(self, piece)
            if len(plan.code.words) <= p.imem:
                return plan
            piece = max(8, piece // 2 // 8 * 8)
        plan = Pieces(self, 8)
        plan.code.check_size()
        return plan

    def _resident(self, rows: int) -> Resident:
        """Code for `rows` resident rows, values kept in registers from pass to pass if there are enough of them."""
        try:
            return Resident(self, rows, keep=True)
        except Refusal:
            return Resident(self, rows, keep=False)

    def deal(self) -> list[tuple[Unit, int, int]]:
        """(core, first row, rows): contiguous shares."""
        bounds = np.linspace(0, len(self.out_rows), len(self.cores) + 1).astype(int)
        return [(u, int(a), int(b - a)) for u, a, b in zip(self.cores, bounds[:-1], bounds[1:]) if b > a]

    def describe(self) -> Sequence[str]:
        plan = self.plan()
        return [
            f"{len(self.out_rows)} rows of {self.cols} on {len(self.deal())} cores, {plan.describe()}",
            f"expression {self.body.pretty(dict(enumerate(self.names)))}",
            f"program {len(plan.code.words)} of {self.machine.params.imem} words, {self.passes} passes",
            *stored_wide(self.names, self.sizes),
        ]

    def reads(self) -> Sequence[int]:
        return self.inputs

    def writes(self) -> Sequence[tuple[int, Ints]]:
        first = self.out_rows * self.out_words
        return ((self.out, np.stack([first, np.full_like(first, self.out_words)], axis=1)),)

    def run(self, values: dict[int, Array]) -> None:
        operands = [
            evaluate.load(values[b].reshape(-1, width)[rows])
            for b, rows, width in zip(self.inputs, self.rows_of, self.widths)
        ]
        result = evaluate.run_body(self.body, operands, self.cols)
        width = 1 if self.per_row else self.cols
        full = np.broadcast_to(result, (len(self.out_rows), width))
        if self.out not in values:
            values[self.out] = np.zeros((self.out_layout.rows, width), self.out_layout.dtype)
        stored = evaluate.store(np.ascontiguousarray(full), self.out_layout.dtype)
        values[self.out].reshape(-1, width)[self.out_rows] = stored

    def programs(self, source: int) -> list[UnitProgram]:
        """The stream of each core with rows."""
        plan = self.plan()
        result: list[UnitProgram] = []
        for unit, first, count in self.deal():
            stream = VectorStream(self.machine, unit, source)
            stream.program(plan.code.words)
            stream.l1_walks(self.sizes)
            plan.stream(stream, first, count)
            result.append(stream.finish())
        return result
