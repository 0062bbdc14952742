"""The row band: an expression with row reductions, one pass per reduction level, whole rows on one core.

A row that fits a core's L1 is filled once and every pass runs on it there; a wider one is refilled piece by piece for
each pass (another pass over memory, which `describe` states). Padding columns never enter a reduction, and are
stored as zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.program import UnitProgram
from kohakuaccel.schedule import Array
from kohakutpu.layouts import WORD_BYTES, WORD_ELEMENTS, RowMajor, ceil_div
from kohakutpu.lower import evaluate
from kohakutpu.lower.body import Body, Node
from kohakutpu.lower.vector_code import FLAT, L1_DESCRIPTOR, SEL_K, TREE, Evaluator, Operand, VectorCode
from kohakutpu.lower.vector_stream import VectorStream, linear

CHUNK = 128


@dataclass(frozen=True, slots=True)
class RowBand:
    """out[r] = body(rows of the inputs, shared rows): inputs and out are row-major with one row count.

    shared: operand numbers (positions in `inputs`) that are one row for all.
    """

    machine: Machine
    inputs: tuple[int, ...]
    shared: frozenset[int]
    out: int
    layout: RowMajor
    out_layout: RowMajor
    body: Body
    names: tuple[str, ...]
    source: SourceLine

    @property
    def engine(self) -> str:
        return "VC"

    @property
    def cores(self) -> tuple[Unit, ...]:
        return self.machine.units_of("VC", mesh=0)

    @property
    def row_words(self) -> int:
        return self.layout.pitch // WORD_ELEMENTS

    @property
    def lanes(self) -> int:
        """Elements of the accumulator vector, and the vector length between routines."""
        return min(CHUNK, self.row_words * WORD_ELEMENTS)

    @property
    def per_row(self) -> bool:
        """Whether the result is one number per row."""
        return self.body.nodes[self.body.result].per_row

    @property
    def out_words(self) -> int:
        return self.out_layout.pitch // WORD_ELEMENTS

    @property
    def passes(self) -> int:
        """Passes over a row: one per reduction level, one more for an elementwise result."""
        levels = self.body.reduction_levels()
        return (max(levels.values()) + 1 if levels else 0) + (0 if self.per_row else 1)

    # planning

    def plan(self) -> _Resident | _Pieces:
        """How rows go through a core, and the code for it."""
        p = self.machine.params
        if len(self.inputs) + 2 > p.descs:
            raise Refusal(
                "each operand, the result and the L1 walk take one descriptor",
                where="row expression",
                got=f"{len(self.inputs)} operands",
                limit=f"{p.descs - 2} operands",
                hint="split the expression over two statements",
                source=self.source,
            )
        words = self.row_words
        moving = len(self.inputs) - len(self.shared)
        fixed = words * len(self.shared)
        if max(words, self.out_words) <= p.walk_max and fixed + words * moving + self.out_words <= p.vl1:
            share = ceil_div(self.layout.rows, len(self.cores))
            rows = min(
                share,
                (p.vl1 - fixed) // (words * moving + self.out_words),
                p.walk_max // max(words, self.out_words),
            )
            while rows >= 1:
                plan = _Resident(self, rows)
                if len(plan.code.words) <= p.imem:
                    return plan
                rows = rows - 1 if rows <= 4 else rows * 3 // 4
        piece = min(p.walk_max, p.vl1 // (len(self.inputs) + 1)) // 8 * 8
        while piece > 8:
            plan = _Pieces(self, piece)
            if len(plan.code.words) <= p.imem:
                return plan
            piece = max(8, piece // 2 // 8 * 8)
        plan = _Pieces(self, 8)
        plan.code.check_size()
        return plan

    def deal(self) -> list[tuple[Unit, int, int]]:
        """(core, first row, rows): contiguous shares."""
        bounds = np.linspace(0, self.layout.rows, len(self.cores) + 1).astype(int)
        return [(u, int(a), int(b - a)) for u, a, b in zip(self.cores, bounds[:-1], bounds[1:]) if b > a]

    def describe(self) -> Sequence[str]:
        plan = self.plan()
        return [
            f"{self.layout.rows} rows of {self.layout.cols} on {len(self.deal())} cores, {plan.describe()}",
            f"expression {self.body.pretty(dict(enumerate(self.names)))}",
            f"program {len(plan.code.words)} of {self.machine.params.imem} words, {self.passes} passes",
        ]

    def reads(self) -> Sequence[int]:
        return self.inputs

    def writes(self) -> Sequence[tuple[int, NDArray[np.int64]]]:
        first = np.arange(self.layout.rows, dtype=np.int64) * self.out_words
        return ((self.out, np.stack([first, np.full_like(first, self.out_words)], axis=1)),)

    def run(self, values: dict[int, Array]) -> None:
        rows, cols = self.layout.rows, self.layout.cols
        operands = [
            values[b].astype(np.float64).reshape((1, cols) if n in self.shared else (rows, cols))
            for n, b in enumerate(self.inputs)
        ]
        result = evaluate.run_body(self.body, operands)
        full = np.broadcast_to(result, (rows, 1 if self.per_row else cols))
        values[self.out] = evaluate.store_fp16(np.ascontiguousarray(full)).reshape(-1)

    def programs(self, source: int) -> list[UnitProgram]:
        """The stream of each core with rows."""
        plan = self.plan()
        result: list[UnitProgram] = []
        for unit, first, count in self.deal():
            stream = VectorStream(self.machine, unit, source)
            stream.program(plan.code.words)
            stream.shape(L1_DESCRIPTOR, ((1, self.machine.params.vl1),))
            stream.base(L1_DESCRIPTOR, -1, 0)
            plan.stream(stream, first, count)
            result.append(stream.finish())
        return result


class _Routine:
    """Emits passes over chunks of one row. `place(operand)` is the L1 word of the row's part of an operand."""

    def __init__(self, band: RowBand) -> None:
        self.band = band
        self.levels = band.body.reduction_levels()
        widest = max((list(self.levels.values()).count(lv) for lv in self.levels.values()), default=0)
        self.code = VectorCode(band.machine, band.source, fixed=widest)
        self.evaluator = Evaluator(self.code, band.body)
        for n in self.levels:
            self.evaluator.row_scalars[n] = self.code.scalar()
        self._top = band.machine.params.vregs - 1

    def level(self, number: int) -> list[int]:
        return [n for n, lv in self.levels.items() if lv == number]

    def accumulate(self, number: int, places: Sequence[int], start: int, elements: int, fresh: bool) -> None:
        """One level's reductions over `elements` of the row beginning at column `start` of the L1 parts."""
        nodes = self.band.body.nodes
        reductions = self.level(number)
        for first in range(0, elements, CHUNK):
            count = min(CHUNK, elements - first)
            padded = WORD_ELEMENTS * ceil_div(count, WORD_ELEMENTS)
            self.code.set_vl(padded)
            opening = fresh and first == 0
            direct = opening and count == padded
            # An accumulator takes the first chunk's value directly, unless that is an operand another reduction reads.
            targets = [nodes[n].args[0] for n in reductions]
            into = {}
            if direct and len(set(targets)) == len(targets):
                into = {t: self._top - k for k, t in enumerate(targets)}
            at = (start + first) // WORD_ELEMENTS

            def word(node: Node, at: int = at) -> int:
                return places[node.args[0]] + at

            found = self.evaluator.vectors(list(dict.fromkeys(targets)), word, into)
            if opening and not direct:
                for k, n in enumerate(reductions):
                    self.evaluator.reduction_start(nodes[n].text, self._top - k)
            if count != padded:
                self.code.set_vl(count)
            for k, n in enumerate(reductions):
                value = found[nodes[n].args[0]]
                if opening and value != self._top - k:
                    self.code.move(self._top - k, Operand(0, value))
                elif not opening:
                    self.evaluator.combine(nodes[n].text, self._top - k, value)
            for register in set(found.values()) - {self._top - k for k in range(len(reductions))}:
                self.code.give(register)

    def finish(self, number: int) -> None:
        """Reduce one level's accumulators to scalars and compute what they make known."""
        code, nodes = self.code, self.band.body.nodes
        code.set_vl(self.band.lanes)
        code.emit("VSETMODE", mode=TREE)
        for k, n in enumerate(self.level(number)):
            self.evaluator.reduce(nodes[n].text, self._top - k, self.evaluator.row_scalars[n])
        code.emit("VSETMODE", mode=FLAT)

    def scalars(self, number: int) -> None:
        """Per-row values whose last missing reduction is of this level."""
        nodes = self.band.body.nodes
        level: dict[int, int] = dict(self.levels)
        for n in self.band.body.live():
            if nodes[n].per_row and nodes[n].op not in ("const", "reduce"):
                level[n] = max(level.get(a, -1) for a in nodes[n].args)
                if level[n] == number:
                    self.evaluator.compute_scalar(n)

    def store(self, places: Sequence[int], out: int, start: int, elements: int) -> None:
        """The elementwise result over `elements` columns, padding stored as zeros."""
        code, body = self.code, self.band.body
        zero = Operand(SEL_K, 0)
        for first in range(0, elements, CHUNK):
            count = min(CHUNK, elements - first)
            padded = WORD_ELEMENTS * ceil_div(count, WORD_ELEMENTS)
            code.set_vl(padded)
            at = (start + first) // WORD_ELEMENTS

            def word(node: Node, at: int = at) -> int:
                return places[node.args[0]] + at

            register = self.evaluator.vectors([body.result], word, {})[body.result]
            if count != padded:
                clean = code.take()
                code.move(clean, zero)
                code.set_vl(count)
                code.move(clean, Operand(0, register))
                code.set_vl(padded)
                code.give(register)
                register = clean
            elif body.nodes[body.result].op in ("input", "shared"):
                code.move(register, Operand(0, register))
            code.store(register, out + at)
            code.give(register)

    def store_scalar(self, out: int) -> None:
        """The per-row result in element 0 of one word, zeros behind it."""
        code = self.code
        register = code.take()
        code.set_vl(WORD_ELEMENTS)
        code.move(register, Operand(SEL_K, 0))
        code.set_vl(1)
        code.move(register, self.evaluator.operand(self.band.body.result, {}))
        code.set_vl(WORD_ELEMENTS)
        code.store(register, out)
        code.give(register)

    def operands(self, number: int) -> list[int]:
        """Positions of the operands that one pass reads; the pass after the reductions is the storing one."""
        body = self.band.body
        targets = [body.nodes[n].args[0] for n in self.level(number)]
        if number == self.reduction_passes:
            targets = [body.result]
        found = {
            body.nodes[n].args[0] for t in targets for n in body.needed(t) if body.nodes[n].op in ("input", "shared")
        }
        return sorted(found)

    @property
    def reduction_passes(self) -> int:
        return max(self.levels.values()) + 1 if self.levels else 0


class _Resident:
    """Rows that fit L1: `rows` rows per RUN, each filled once; the last rows of a share go one by one."""

    def __init__(self, band: RowBand, rows: int) -> None:
        self.band = band
        self.rows = rows
        self._routine = _Routine(band)
        self.code = self._routine.code
        words = band.row_words
        moving = [n for n in range(len(band.inputs)) if n not in band.shared]
        self._moving = moving
        self._home: dict[int, int] = {}
        at = 0
        for n in sorted(band.shared):
            self._home[n] = at
            at += words
        for n in moving:
            self._home[n] = at
            at += words * rows
        self._out = at
        self.entries: dict[int, int] = {}
        for count in sorted({rows, 1}):
            self.entries[count] = self.code.begin(band.lanes)
            for n in moving:
                self.code.fill(1 + n, self._home[n])
            if moving:
                self.code.emit("VBAR")
            for r in range(count):
                self._row(r)
            self.code.drain(1 + len(band.inputs), self._out)
            self.code.set_vl(band.lanes)
            self.code.emit("VHALT")

        def load_shared() -> None:
            for n in sorted(band.shared):
                self.code.fill(1 + n, self._home[n])
            if band.shared:
                self.code.emit("VBAR")

        self.prologue = self.code.prologue(band.lanes, load_shared)

    def _row(self, r: int) -> None:
        band, routine = self.band, self._routine
        places = [self._home[n] + (0 if n in band.shared else r * band.row_words) for n in range(len(band.inputs))]
        cols = band.layout.cols
        for number in range(routine.reduction_passes):
            routine.accumulate(number, places, 0, cols, fresh=True)
            routine.finish(number)
            routine.scalars(number)
        if band.per_row:
            routine.store_scalar(self._out + r * band.out_words)
        else:
            routine.store(places, self._out + r * band.out_words, 0, cols)

    def describe(self) -> str:
        return f"{self.rows} rows per RUN, resident in L1 for every pass"

    def stream(self, stream: VectorStream, first: int, count: int) -> None:
        band = self.band
        for n in sorted(band.shared):
            stream.shape(1 + n, linear(band.row_words))
            stream.base(1 + n, band.inputs[n], 0)
        stream.run(self.prologue)
        full, rest = divmod(count, self.rows)
        for size, start, steps in ((self.rows, first, full), (1, first + full * self.rows, rest)):
            if not steps:
                continue
            index = start + np.arange(steps, dtype=np.int64) * size
            moves = [(1 + n, band.inputs[n], index * band.layout.pitch * 2) for n in self._moving]
            moves.append((1 + len(band.inputs), band.out, index * band.out_layout.pitch * 2))
            for n in self._moving:
                stream.shape(1 + n, linear(size * band.row_words))
            stream.shape(1 + len(band.inputs), linear(size * band.out_words))
            stream.runs(self.entries[size], moves)


class _Pieces:
    """Rows wider than L1: for each row and pass, one RUN per piece of `words` L1 words; scalars stay in S between."""

    def __init__(self, band: RowBand, words: int) -> None:
        self.band = band
        self.words = words
        self._routine = _Routine(band)
        self.code = self._routine.code
        self._count = ceil_div(band.row_words, words)
        self._last_words = band.row_words - words * (self._count - 1)
        self._last_elements = band.layout.cols - WORD_ELEMENTS * words * (self._count - 1)
        self._out = words * len(band.inputs)
        self._places = [words * n for n in range(len(band.inputs))]
        full = words * WORD_ELEMENTS
        self.entries: dict[tuple[int, str], int] = {}
        routine = self._routine
        for number in range(routine.reduction_passes):
            for kind in self._kinds():
                self.entries[number, kind] = self._open(number)
                elements = self._last_elements if kind in ("last", "only") else full
                routine.accumulate(number, self._places, 0, elements, fresh=kind in ("first", "only"))
                if kind in ("last", "only"):
                    routine.finish(number)
                    routine.scalars(number)
                    if band.per_row and number == routine.reduction_passes - 1:
                        routine.store_scalar(self._out)
                        self.code.drain(1 + len(band.inputs), self._out)
                self._close()
        if not band.per_row:
            for kind in dict.fromkeys("last" if k in ("last", "only") else "middle" for k in self._kinds()):
                self.entries[routine.reduction_passes, kind] = self._open(routine.reduction_passes)
                routine.store(self._places, self._out, 0, self._last_elements if kind == "last" else full)
                self.code.drain(1 + len(band.inputs), self._out)
                self._close()
        self.prologue = self.code.prologue(band.lanes)

    def _kinds(self) -> list[str]:
        if self._count == 1:
            return ["only"]
        return ["first", "last"] if self._count == 2 else ["first", "middle", "last"]

    def _open(self, number: int) -> int:
        entry = self.code.begin(self.band.lanes)
        operands = self._routine.operands(number)
        for n in operands:
            self.code.fill(1 + n, self._places[n])
        if operands:
            self.code.emit("VBAR")
        return entry

    def _close(self) -> None:
        self.code.set_vl(self.band.lanes)
        self.code.emit("VHALT")

    def describe(self) -> str:
        return (
            f"rows wider than L1: {self._count} pieces of {self.words} words, filled again in each of the "
            f"{self.band.passes} passes that read it"
        )

    def stream(self, stream: VectorStream, first: int, count: int) -> None:
        band, routine = self.band, self._routine
        stream.run(self.prologue)
        passes = routine.reduction_passes + (0 if band.per_row else 1)
        out = 1 + len(band.inputs)
        for row in range(first, first + count):
            for number in range(passes):
                storing = number == routine.reduction_passes
                for piece in range(self._count):
                    last = piece == self._count - 1
                    size = self._last_words if last else self.words
                    if storing:
                        kind = "last" if last else "middle"
                    else:
                        kinds = self._kinds()
                        kind = kinds[-1] if last else "first" if piece == 0 else "middle"
                    offset = piece * self.words * WORD_BYTES
                    moves: list[tuple[int, int, NDArray[np.int64]]] = []
                    for n in routine.operands(number):
                        stream.shape(1 + n, linear(size))
                        start = 0 if n in band.shared else row * band.layout.pitch * 2
                        moves.append((1 + n, band.inputs[n], np.array([start + offset], np.int64)))
                    if storing:
                        stream.shape(out, linear(size))
                        moves.append((out, band.out, np.array([row * band.out_layout.pitch * 2 + offset], np.int64)))
                    elif last and band.per_row and number == passes - 1:
                        stream.shape(out, linear(band.out_words))
                        moves.append((out, band.out, np.array([row * band.out_layout.pitch * 2], np.int64)))
                    stream.runs(self.entries[number, kind], moves)
