"""The elementwise band: one expression over buffers of one byte order, in batches of L1 words.

An elementwise operation commutes with any permutation of the elements, so the band walks words and never asks what
order they are in; it only asks that all operands share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.program import UnitProgram
from kohakuaccel.schedule import Array
from kohakutpu.layouts import WORD_BYTES, WORD_ELEMENTS, DrainedTiles, RowMajor
from kohakutpu.lower import evaluate
from kohakutpu.lower.body import Body, Node
from kohakutpu.lower.vector_code import L1_DESCRIPTOR, Evaluator, VectorCode
from kohakutpu.lower.vector_stream import Dims, VectorStream

CHUNK_WORDS = 8  # L1 words of a 128-element vector


@dataclass(frozen=True, slots=True)
class Piece:
    """Equal work items: `words` L1 words each, gathered from memory by `dims`, one per byte offset."""

    words: int
    dims: Dims
    offsets: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ElementwiseBand:
    """out[w] = body(in0[w], in1[w], ...) for every memory word w of the common layout."""

    machine: Machine
    inputs: tuple[int, ...]
    out: int
    layout: RowMajor | DrainedTiles
    body: Body
    names: tuple[str, ...]
    part_words: int
    source: SourceLine

    @property
    def engine(self) -> str:
        return "VC"

    @property
    def cores(self) -> tuple[Unit, ...]:
        return self.machine.units_of("VC", mesh=0)

    def batch_words(self) -> int:
        """L1 words per operand and RUN: what L1, one walk and the standard batch allow, halved until the code fits."""
        p = self.machine.params
        regions = len(self.inputs) + 1
        if regions + 1 > p.descs:
            raise Refusal(
                "each operand, the result and the L1 walk take one descriptor",
                where="elementwise expression",
                got=f"{len(self.inputs)} operands",
                limit=f"{p.descs - 2} operands",
                hint="split the expression over two statements",
                source=self.source,
            )
        most = min(p.vbatch // WORD_ELEMENTS, p.walk_max, p.vl1 // regions)
        words = min(most, self.part_words or most)
        return words if words < CHUNK_WORDS else words // CHUNK_WORDS * CHUNK_WORDS

    def pieces(self, batch: int) -> list[Piece]:
        """The layout's data words cut into work items of at most `batch` words, holes skipped."""
        runs = self.layout.runs
        if runs.words > batch or runs.count == 1:
            starts = np.arange(0, runs.words, batch)
            full = starts[starts + batch <= runs.words]
            origin = np.arange(runs.count) * runs.pitch
            found: list[Piece] = []
            if len(full):
                offsets = (origin[:, None] + full[None, :]).reshape(-1) * WORD_BYTES
                found.append(Piece(batch, ((WORD_BYTES, batch),), offsets.astype(np.int64)))
            rest = runs.words - batch * len(full)
            if rest:
                offsets = (origin + batch * len(full)) * WORD_BYTES
                found.append(Piece(rest, ((WORD_BYTES, rest),), offsets.astype(np.int64)))
            return found
        together = batch // runs.words
        groups, rest = divmod(runs.count, together)
        step = runs.pitch * WORD_BYTES
        found = []
        for count, first, number in ((together, 0, groups), (rest, groups * together, 1 if rest else 0)):
            if number:
                offsets = (first + np.arange(number) * count) * step
                dims = ((WORD_BYTES, runs.words), (step, count))
                found.append(Piece(count * runs.words, dims, offsets.astype(np.int64)))
        return found

    def code(self) -> tuple[VectorCode, dict[int, int], int, list[Piece]]:
        """(code, words -> entry, prologue entry, pieces): the largest batch whose program fits."""
        batch = self.batch_words()
        while True:
            pieces = self.pieces(batch)
            code, entries, prologue = self._assemble(batch, sorted({p.words for p in pieces}))
            if len(code.words) <= self.machine.params.imem or batch <= 1:
                code.check_size()
                return code, entries, prologue, pieces
            batch = batch // 2 if batch <= CHUNK_WORDS else max(CHUNK_WORDS, batch // 2 // CHUNK_WORDS * CHUNK_WORDS)

    def _assemble(self, batch: int, sizes: Sequence[int]) -> tuple[VectorCode, dict[int, int], int]:
        code = VectorCode(self.machine, self.source)
        vl = self.machine.params.vlmax
        entries: dict[int, int] = {}
        out_word = batch * len(self.inputs)
        evaluator = Evaluator(code, self.body)
        for words in sizes:
            entries[words] = code.begin(vl)
            for n in range(len(self.inputs)):
                code.fill(1 + n, batch * n)
            if self.inputs:
                code.emit("VBAR")
            for first in range(0, words, CHUNK_WORDS):
                code.set_vl(WORD_ELEMENTS * min(CHUNK_WORDS, words - first))

                def place(node: Node, first: int = first) -> int:
                    return batch * node.args[0] + first

                register = self._chunk(evaluator, place)
                code.store(register, out_word + first)
                code.give(register)
            code.drain(1 + len(self.inputs), out_word)
            code.set_vl(vl)
            code.emit("VHALT")
        prologue = code.prologue(vl)
        return code, entries, prologue

    def _chunk(self, evaluator: Evaluator, place: Callable[[Node], int]) -> int:
        """The V register that holds one chunk of the result."""
        code, body = evaluator.code, self.body
        result = body.nodes[body.result]
        if result.op == "const":
            register = code.take()
            code.move(register, code.constant(result.number))
            return register
        register = evaluator.vectors([body.result], place, {})[body.result]
        if result.op == "input":
            code.move(register, evaluator.operand(body.result, {body.result: register}))
        return register

    def describe(self) -> Sequence[str]:
        code, _, _, pieces = self.code()
        count = sum(len(p.offsets) for p in pieces)
        names = dict(enumerate(self.names))
        return [
            f"{count} batches of at most {max((p.words for p in pieces), default=0)} words over {self.layout} on "
            f"{min(count, len(self.cores))} cores; elementwise commutes with this order: no relayout",
            f"expression {self.body.pretty(names)}",
            f"program {len(code.words)} of {self.machine.params.imem} words, {1 + len(self.inputs) + 1} of "
            f"{self.machine.params.descs} descriptors",
        ]

    def reads(self) -> Sequence[int]:
        return self.inputs

    def writes(self) -> Sequence[tuple[int, NDArray[np.int64]]]:
        ranges: list[NDArray[np.int64]] = []
        for piece in self.code()[3]:
            inner = piece.dims[0][1]
            outer = piece.dims[1] if len(piece.dims) > 1 else (0, 1)
            first = piece.offsets[:, None] // WORD_BYTES + np.arange(outer[1])[None, :] * (outer[0] // WORD_BYTES)
            ranges.append(np.stack([first.reshape(-1), np.full(first.size, inner)], axis=1))
        return ((self.out, np.concatenate(ranges) if ranges else np.zeros((0, 2), np.int64)),)

    def run(self, values: dict[int, Array]) -> None:
        operands = [values[n].astype(np.float64).reshape(1, -1) for n in self.inputs]
        shape = (1, self.layout.size)
        result = np.broadcast_to(evaluate.run_body(self.body, operands), shape)
        values[self.out] = evaluate.store_fp16(np.ascontiguousarray(result)).reshape(-1)

    def programs(self, source: int) -> list[UnitProgram]:
        """The stream of each core with work: pieces dealt in contiguous shares."""
        code, entries, prologue, pieces = self.code()
        cores = self.cores
        streams: dict[int, VectorStream] = {}
        turn = 0
        for piece in pieces:
            shares = np.array_split(piece.offsets, len(cores))
            for n, share in enumerate(shares):
                if not len(share):
                    continue
                unit = cores[(n + turn) % len(cores)]
                stream = streams.get(unit.index)
                if stream is None:
                    stream = streams[unit.index] = VectorStream(self.machine, unit, source)
                    stream.program(code.words)
                    stream.shape(L1_DESCRIPTOR, ((1, self.machine.params.vl1),))
                    stream.base(L1_DESCRIPTOR, -1, 0)
                    stream.run(prologue)
                buffers = (*self.inputs, self.out)
                for d in range(len(buffers)):
                    stream.shape(1 + d, piece.dims)
                stream.runs(entries[piece.words], [(1 + d, b, share) for d, b in enumerate(buffers)])
            turn += len(piece.offsets) % len(cores)
        return [streams[i].finish() for i in sorted(streams)]
