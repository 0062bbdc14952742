"""The row band's code: routines over the chunks of one row, for rows that fit L1 and for wider ones.

It decides L1 places and routine entries; what is computed comes from the band's body, registers from `vector_code`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kohakutpu.layouts import WORD_BYTES, WORD_ELEMENTS, ceil_div
from kohakutpu.lower.body import LEAVES, Node
from kohakutpu.lower.vector_code import FLAT, L1_DESCRIPTOR, SEL_K, SEL_V, TREE, Evaluator, Operand, VectorCode
from kohakutpu.lower.vector_stream import VectorStream, linear, wide_descriptor

if TYPE_CHECKING:
    from kohakutpu.lower.rows import RowBand

CHUNK = 128  # elements of the longest vector


class Routine:
    """Emits passes over chunks of one row. `place(operand)` is the L1 word of the row's part of an operand."""

    def __init__(self, band: RowBand, keep: bool = False) -> None:
        self.band = band
        self.levels = band.body.reduction_levels()
        self._keep = keep
        self._kept: dict[tuple[int, int], int] = {}
        """(node, first column) -> the V register that holds a value for the passes still to come."""
        widest = max((list(self.levels.values()).count(lv) for lv in self.levels.values()), default=0)
        self.code = VectorCode(band.machine, band.source, fixed=widest)
        self.evaluator = Evaluator(self.code, band.body)
        self.sizes = band.sizes
        self.evaluator.wide = frozenset(n for n, size in enumerate(self.sizes[:-1]) if size > 1)
        self.code.wide_descriptor = max(wide_descriptor(self.sizes), L1_DESCRIPTOR)
        for n in self.levels:
            self.evaluator.row_scalars[n] = self.code.scalar()
        for n in band.body.live():
            if band.body.nodes[n].op == "number":
                self.evaluator.row_scalars[n] = self.code.scalar()
        self._top = band.machine.params.vregs - 1

    def load_numbers(self, places: Sequence[int]) -> None:
        """Operands of one number per row into their S registers, and what they alone decide."""
        code = self.code
        for n in self.band.body.live():
            node = self.band.body.nodes[n]
            if node.op == "number":
                register = code.take()
                code.set_vl(WORD_ELEMENTS)
                code.load(register, places[node.args[0]], wide=self.sizes[node.args[0]] > 1)
                code.emit("VBCAST", sa=SEL_V, vd=self.evaluator.row_scalars[n], va=register)
                code.give(register)
        self.scalars(-1)

    def level(self, number: int) -> list[int]:
        return [n for n, lv in self.levels.items() if lv == number]

    def targets(self, number: int) -> list[int]:
        """Vector nodes that a pass is for: arguments of its reductions; the pass behind them stores the result."""
        nodes = self.band.body.nodes
        if number < self.reduction_passes:
            return list(dict.fromkeys(nodes[n].args[0] for n in self.level(number)))
        return [] if nodes[self.band.body.result].per_row else [self.band.body.result]

    def _worth_keeping(self, number: int, ready: Mapping[int, int]) -> list[int]:
        """Values of this pass that later passes would compute again: those a later one reads directly."""
        body = self.band.body
        if not self._keep:
            return []
        later = [t for k in range(number + 1, self.reduction_passes + 1) for t in self.targets(k)]
        again = set(body.needed_beyond(later, ready))
        here = {
            n
            for n in body.needed_beyond(self.targets(number), ready)
            if n in again and not body.nodes[n].per_row and body.nodes[n].op not in LEAVES
        }
        outside = [m for m in again if m not in here and body.nodes[m].op not in (*LEAVES, "reduce")]
        read = {a for m in outside for a in body.nodes[m].args} | set(later)
        return sorted(here & read)

    def _ready(self, first: int) -> dict[int, int]:
        return {n: register for (n, at), register in self._kept.items() if at == first}

    def release(self) -> None:
        """The row is done: give back what was kept for it."""
        for register in self._kept.values():
            self.code.give(register)
        self._kept.clear()

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
            ready = self._ready(first)
            hold = self._worth_keeping(number, ready)
            into = {}
            if direct and len(set(targets)) == len(targets):
                into = {t: self._top - k for k, t in enumerate(targets) if t not in hold and t not in ready}
            at = (start + first) // WORD_ELEMENTS

            def word(node: Node, at: int = at) -> int:
                return places[node.args[0]] + self.sizes[node.args[0]] * at

            found = self.evaluator.vectors(list(dict.fromkeys(targets)), word, into, ready, hold)
            self._kept.update({(n, first): found[n] for n in hold})
            if opening and not direct:
                for k, n in enumerate(reductions):
                    self.evaluator.reduction_start(nodes[n].text, self._top - k)
            if count != padded:
                self.code.set_vl(count)
            for k, n in enumerate(reductions):
                value = found[nodes[n].args[0]]
                if opening and value != self._top - k:
                    self.code.move(self._top - k, Operand(SEL_V, value))
                elif not opening:
                    self.evaluator.combine(nodes[n].text, self._top - k, value)
            stay = {self._top - k for k in range(len(reductions))} | set(self._kept.values())
            for register in set(found.values()) - stay:
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
            if nodes[n].per_row and nodes[n].op not in ("const", "reduce", "number"):
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
                return places[node.args[0]] + self.sizes[node.args[0]] * at

            if body.nodes[body.result].per_row:
                register = code.take()
                code.move(register, self.evaluator.operand(body.result, {}))
            else:
                register = self.evaluator.vectors([body.result], word, {}, self._ready(first))[body.result]
            if count != padded:
                clean = code.take()
                code.move(clean, zero)
                code.set_vl(count)
                code.move(clean, Operand(SEL_V, register))
                code.set_vl(padded)
                self._give(register)
                register = clean
            elif body.nodes[body.result].op in ("input", "shared"):
                code.move(register, Operand(SEL_V, register))
            code.store(register, out + self.sizes[-1] * at, wide=self.sizes[-1] > 1)
            self._give(register)

    def _give(self, register: int) -> None:
        if register not in self._kept.values():
            self.code.give(register)

    def store_scalar(self, out: int) -> None:
        """The per-row result in element 0 of 16, zeros behind it."""
        code = self.code
        register = code.take()
        code.set_vl(WORD_ELEMENTS)
        code.move(register, Operand(SEL_K, 0))
        code.set_vl(1)
        code.move(register, self.evaluator.operand(self.band.body.result, {}))
        code.set_vl(WORD_ELEMENTS)
        code.store(register, out, wide=self.sizes[-1] > 1)
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


class Resident:
    """Rows that fit L1: `rows` rows per RUN, each filled once; the last rows of a share go one by one.

    keep: values that several passes need stay in V registers from one to the next.
    """

    def __init__(self, band: RowBand, rows: int, keep: bool) -> None:
        self.band = band
        self.rows = rows
        self._routine = Routine(band, keep)
        self.code = self._routine.code
        moving = [n for n in range(len(band.inputs)) if n not in band.shared]
        self._moving = moving
        self._home: dict[int, int] = {}
        at = 0
        for n in sorted(band.shared):
            self._home[n] = at
            at += band.words[n]
        for n in moving:
            self._home[n] = at
            at += band.words[n] * (1 if n in band.held else rows)
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
        still = band.shared | band.held
        places = [self._home[n] + (0 if n in still else r * band.words[n]) for n in range(len(band.inputs))]
        cols = band.cols
        routine.load_numbers(places)
        for number in range(routine.reduction_passes):
            routine.accumulate(number, places, 0, cols, fresh=True)
            routine.finish(number)
            routine.scalars(number)
        if band.per_row:
            routine.store_scalar(self._out + r * band.out_words)
        else:
            routine.store(places, self._out + r * band.out_words, 0, cols)
        routine.release()

    def describe(self) -> str:
        return f"{self.rows} rows per RUN, resident in L1 for every pass"

    def stream(self, stream: VectorStream, first: int, count: int) -> None:
        band = self.band
        for n in sorted(band.shared):
            stream.shape(1 + n, linear(band.words[n]))
            stream.base(1 + n, band.inputs[n], int(band.rows_of[n][0]) * band.row_bytes(n))
        stream.run(self.prologue)
        starts: dict[int, list[int]] = {self.rows: [], 1: []}
        for begin, length in band.segments(first, count):
            full = length // self.rows
            starts[self.rows] += [begin + k * self.rows for k in range(full)]
            starts[1] += list(range(begin + full * self.rows, begin + length))
        out = 1 + len(band.inputs)
        for size, begins in starts.items():
            if not begins:
                continue
            index = np.array(begins, np.int64)
            moves = [(1 + n, band.inputs[n], band.rows_of[n][index] * band.row_bytes(n)) for n in self._moving]
            moves.append((out, band.out, band.out_rows[index] * band.out_words * WORD_BYTES))
            for n in self._moving:
                stream.shape(1 + n, band.walk(n, size))
            stream.shape(out, band.walk(len(band.inputs), size))
            stream.runs(self.entries[size], moves)


class Pieces:
    """Rows wider than L1: for each row and pass, one RUN per piece of `words` words of 16 elements; scalars stay in S
    between."""

    def __init__(self, band: RowBand, words: int) -> None:
        self.band = band
        self.words = words
        self._routine = Routine(band)
        self.code = self._routine.code
        self._count = ceil_div(band.row_words, words)
        self._last_words = band.row_words - words * (self._count - 1)
        self._last_elements = band.cols - WORD_ELEMENTS * words * (self._count - 1)
        wide = [n for n in range(len(band.inputs)) if n not in band.numbers]
        self._numbers = sorted(band.numbers)
        sizes = band.sizes
        places: dict[int, int] = {}
        at = 0
        for n in wide:
            places[n] = at
            at += words * sizes[n]
        self._out = at
        at += words * sizes[-1]
        for n in self._numbers:
            places[n] = at
            at += sizes[n]
        self._places = [places[n] for n in range(len(band.inputs))]
        full = words * WORD_ELEMENTS
        self.entries: dict[tuple[int, str], int] = {}
        routine = self._routine
        if self._numbers:
            self.entries[-1, "numbers"] = self.code.begin(band.lanes)
            for n in self._numbers:
                self.code.fill(1 + n, self._places[n])
            self.code.emit("VBAR")
            routine.load_numbers(self._places)
            self._close()
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
        out, sizes = 1 + len(band.inputs), band.sizes
        for row in range(first, first + count):
            home = int(band.out_rows[row]) * band.out_words * WORD_BYTES
            if self._numbers:
                moves: list[tuple[int, int, NDArray[np.int64]]] = []
                for n in self._numbers:
                    stream.shape(1 + n, linear(band.words[n]))
                    moves.append((1 + n, band.inputs[n], band.rows_of[n][row : row + 1] * band.row_bytes(n)))
                stream.runs(self.entries[-1, "numbers"], moves)
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
                    moves = []
                    for n in routine.operands(number):
                        stream.shape(1 + n, linear(size * sizes[n]))
                        start = int(band.rows_of[n][row]) * band.row_bytes(n) + offset * sizes[n]
                        moves.append((1 + n, band.inputs[n], np.array([start], np.int64)))
                    if storing:
                        stream.shape(out, linear(size * sizes[-1]))
                        moves.append((out, band.out, np.array([home + offset * sizes[-1]], np.int64)))
                    elif last and band.per_row and number == passes - 1:
                        stream.shape(out, linear(band.out_words))
                        moves.append((out, band.out, np.array([home], np.int64)))
                    stream.runs(self.entries[number, kind], moves)
