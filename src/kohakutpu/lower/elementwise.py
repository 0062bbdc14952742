"""The elementwise band: one expression over buffers of one byte order, in batches of L1 words.

An elementwise operation commutes with any permutation of the elements, so the band walks words of 16 elements and never
asks what order they are in; it only asks that all operands share it. FP32 is two memory and L1 words for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.program import UnitProgram
from kohakuaccel.schedule import Array
from kohakutpu.layouts import FP16, WORD_BYTES, WORD_ELEMENTS, DrainedTiles, Element, RowMajor, TilePattern
from kohakutpu.lower import evaluate
from kohakutpu.lower.body import Body, Node
from kohakutpu.lower.vector_code import L1_DESCRIPTOR, Evaluator, VectorCode
from kohakutpu.lower.vector_stream import (
    Dims,
    VectorStream,
    check_descriptors,
    linear,
    stored_wide,
    wide_descriptor,
    widened,
)

Ints = NDArray[np.int64]

CHUNK_WORDS = 8  # L1 words of a 128-element vector


@dataclass(frozen=True, slots=True)
class Walk:
    """How one operand's words are gathered for a piece: descriptor dimensions, and a byte offset per piece."""

    dims: Dims
    offsets: Ints


@dataclass(frozen=True, slots=True)
class Piece:
    """Equal work items of `words` L1 words each; walks: one per operand, the result's last."""

    words: int
    walks: tuple[Walk, ...]

    @property
    def count(self) -> int:
        return len(self.walks[-1].offsets)


@dataclass(frozen=True, eq=False, slots=True)
class ElementwiseBand:
    """out[w] = body(in0[w], in1[w], ...) for every memory word w of the result's layout.

    Operands share that layout, or are TilePattern vectors spread over its tiles. tiles: the (batch, row, column) of
    the tiles to compute where that is not all of them.
    """

    machine: Machine
    inputs: tuple[int, ...]
    out: int
    layout: RowMajor | DrainedTiles
    body: Body
    names: tuple[str, ...]
    part_words: int
    source: SourceLine
    patterns: tuple[TilePattern | None, ...] = ()
    tiles: Ints | None = None
    resident: int = -1
    """The operand whose tile n a cluster put into core n's L1 at word 0, or -1."""
    note: str = ""
    shifts: tuple[int, ...] = ()
    """Per operand, which matrix of its buffer is the result's first: partial sums lie behind one another."""
    vectors: tuple[Ints | None, ...] = ()
    """Per operand that is spread over tiles, int64[matrices of the result]: which of its vectors each one meets (None:
    its own, or the only one)."""
    elements: tuple[Element, ...] = ()
    """Per operand, how it is stored (all FP16 where empty); the result is what its layout says."""

    @property
    def engine(self) -> str:
        return "VC"

    @property
    def cores(self) -> tuple[Unit, ...]:
        return self.machine.units_of("VC", mesh=0)

    @property
    def resident_words(self) -> int:
        """L1 words that hold a tile sent there by a cluster."""
        return self.layout.gm * self.layout.gn if self.resident >= 0 and isinstance(self.layout, DrainedTiles) else 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """Words of 16 elements of each operand, the result's last: 1 in FP16, 2 in FP32."""
        elements = self.elements or (FP16,) * len(self.inputs)
        return (*(e.words for e in elements), self.layout.element.words)

    def batch_words(self) -> int:
        """Words of 16 elements per operand and RUN: what L1, one walk and the standard batch allow, halved until the
        code fits."""
        p = self.machine.params
        check_descriptors(self.machine, self.sizes, "elementwise expression", self.source)
        sizes = [size for n, size in enumerate(self.sizes) if n != self.resident]
        room = (p.vl1 - self.resident_words) // sum(sizes)
        most = min(p.vbatch // WORD_ELEMENTS, p.walk_max // max(sizes), room)
        words = min(most, self.part_words or most)
        return words if words < CHUNK_WORDS else words // CHUNK_WORDS * CHUNK_WORDS

    def pieces(self, batch: int) -> list[Piece]:
        """The layout's data words cut into work items of at most `batch` words, holes skipped. Walks are those of FP16;
        `_walk` makes FP32's of them."""
        if isinstance(self.layout, DrainedTiles):
            if any(self.patterns) or any(self.shifts) or self.tiles is not None:
                return self._tile_pieces(self.layout, batch)
            runs = self.layout.runs
        else:
            runs = self.layout.stored_as(FP16).runs
        found: list[tuple[int, Dims, Ints]] = []
        if runs.words > batch or runs.count == 1:
            starts = np.arange(0, runs.words, batch)
            full = starts[starts + batch <= runs.words]
            origin = np.arange(runs.count) * runs.pitch
            if len(full):
                found.append((batch, linear(batch), (origin[:, None] + full[None, :]).reshape(-1) * WORD_BYTES))
            rest = runs.words - batch * len(full)
            if rest:
                found.append((rest, linear(rest), (origin + batch * len(full)) * WORD_BYTES))
        else:
            together = batch // runs.words
            groups, rest = divmod(runs.count, together)
            step = runs.pitch * WORD_BYTES
            for count, first, number in ((together, 0, groups), (rest, groups * together, 1 if rest else 0)):
                if number:
                    dims = ((WORD_BYTES, runs.words), (step, count))
                    found.append((count * runs.words, dims, (first + np.arange(number) * count) * step))
        operands = len(self.inputs) + 1
        return [Piece(w, (Walk(dims, offsets.astype(np.int64)),) * operands) for w, dims, offsets in found]

    def _tile_pieces(self, layout: DrainedTiles, batch: int) -> list[Piece]:
        """Pieces that stay inside a tile and, where a vector is spread over it, cover whole sub-tile rows or part of
        one."""
        gm, gn = layout.gm, layout.gn
        if self.tiles is None:
            down, across = layout.grid
            grid = np.meshgrid(np.arange(layout.batch), np.arange(down), np.arange(across), indexing="ij")
            tiles = np.stack([g.ravel() for g in grid], axis=1)
        else:
            tiles = self.tiles
        if gn <= batch:
            rows = min(gm, batch // gn)
            cuts = [(g, 0, min(rows, gm - g) * gn) for g in range(0, gm, rows)]
        else:
            cuts = [(g, h, min(batch, gn - h)) for g in range(gm) for h in range(0, gn, batch)]
        home = np.array([layout.tile_offset(int(b), int(i), int(j)) for b, i, j in tiles], np.int64)
        found: list[Piece] = []
        for words in sorted({c[2] for c in cuts}, reverse=True):
            mine = np.array([(g, h) for g, h, w in cuts if w == words], np.int64)
            g, h = mine[None, :, 0], mine[None, :, 1]
            walks: list[Walk] = []
            for n, pattern in enumerate((*(self.patterns or (None,) * len(self.inputs)), None)):
                if n == self.resident:
                    walks.append(Walk(((1, 1),), np.broadcast_to(g * gn + h, (len(tiles), len(mine))).reshape(-1)))
                    continue
                if pattern is None:
                    shift = self.shifts[n] if n < len(self.shifts) else 0
                    offsets = home[:, None] + layout.tile_offset(shift, 0, 0) + (g * gn + h) * WORD_BYTES
                    walks.append(Walk(linear(words), offsets.reshape(-1)))
                    continue
                tile = tiles[:, 2 if pattern.axis == "col" else 1]
                of_batch = tiles[:, 0] if pattern.batch > 1 else np.zeros(len(tiles), np.int64)
                chosen = self.vectors[n] if n < len(self.vectors) else None
                of_batch = of_batch if chosen is None else chosen[tiles[:, 0]]
                start = (of_batch * pattern.tiles + tile) * pattern.groups * WORD_BYTES
                offsets = start[:, None] + (h if pattern.axis == "col" else g) * WORD_BYTES
                walks.append(Walk(_pattern_dims(pattern.axis, words, gn), offsets.reshape(-1)))
            found.append(Piece(words, tuple(walks)))
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

    def _assemble(self, batch: int, lengths: Sequence[int]) -> tuple[VectorCode, dict[int, int], int]:
        code = VectorCode(self.machine, self.source)
        vl = self.machine.params.vlmax
        entries: dict[int, int] = {}
        moving = [n for n in range(len(self.inputs)) if n != self.resident]
        sizes = self.sizes
        region: dict[int, int] = {}
        out_word = self.resident_words
        for n in moving:
            region[n] = out_word
            out_word += batch * sizes[n]
        evaluator = Evaluator(code, self.body)
        evaluator.wide = frozenset(n for n in moving if sizes[n] > 1)
        code.wide_descriptor = max(wide_descriptor(sizes), L1_DESCRIPTOR)
        if self.resident >= 0:
            region[self.resident] = 0  # its descriptor's base moves from piece to piece
            evaluator.descriptors[self.resident] = 1 + self.resident
        for words in lengths:
            entries[words] = code.begin(vl)
            for n in moving:
                code.fill(1 + n, region[n])
            if moving:
                code.emit("VBAR")
            for first in range(0, words, CHUNK_WORDS):
                code.set_vl(WORD_ELEMENTS * min(CHUNK_WORDS, words - first))

                def place(node: Node, first: int = first) -> int:
                    return region[node.args[0]] + sizes[node.args[0]] * first

                register = self._chunk(evaluator, place)
                code.store(register, out_word + sizes[-1] * first, wide=sizes[-1] > 1)
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
        count = sum(p.count for p in pieces)
        names = dict(enumerate(self.names))
        lines = [
            f"{count} batches of at most {max((p.words for p in pieces), default=0)} words over {self.layout} on "
            f"{min(count, len(self.cores))} cores; elementwise commutes with this order: no relayout",
            f"expression {self.body.pretty(names)}",
            f"program {len(code.words)} of {self.machine.params.imem} words, "
            f"{len(self.sizes) + len(set(self.sizes))} of {self.machine.params.descs} descriptors",
            *stored_wide(self.names, self.sizes),
        ]
        return [*lines, self.note] if self.note else lines

    def reads(self) -> Sequence[int]:
        return self.inputs

    def writes(self) -> Sequence[tuple[int, Ints]]:
        ranges: list[Ints] = []
        for piece in self.code()[3]:
            walk = self._walk(piece.walks[-1], self.sizes[-1])
            dims, offsets = walk.dims, walk.offsets
            inner, outer = (*dims, (0, 1))[:2]
            first = offsets[:, None] // WORD_BYTES + np.arange(outer[1])[None, :] * (outer[0] // WORD_BYTES)
            ranges.append(np.stack([first.reshape(-1), np.full(first.size, inner[1])], axis=1))
        return ((self.out, np.concatenate(ranges) if ranges else np.zeros((0, 2), np.int64)),)

    @staticmethod
    def _walk(walk: Walk, size: int) -> Walk:
        """A walk over FP16 as one over elements of `size` words for 16."""
        return walk if size == 1 else Walk(widened(walk.dims), walk.offsets * size)

    def run(self, values: dict[int, Array]) -> None:
        if not isinstance(self.layout, DrainedTiles):
            operands = [evaluate.load(values[n]).reshape(1, -1) for n in self.inputs]
            result = np.broadcast_to(evaluate.run_body(self.body, operands), (1, self.layout.size))
            values[self.out] = evaluate.store(np.ascontiguousarray(result), self.layout.dtype).reshape(-1)
            return
        out = self.layout
        shape = (out.batch, out.rows, out.cols)
        operands = []
        none = (None,) * len(self.inputs)
        shifts = self.shifts or (0,) * len(self.inputs)
        for k, (n, pattern, shift) in enumerate(zip(self.inputs, self.patterns or none, shifts)):
            value = values[n].astype(np.float64)
            if pattern is None:
                value = value.reshape(-1, *shape[1:])[shift : shift + out.batch]
            else:
                chosen = self.vectors[k] if k < len(self.vectors) else None
                value = value.reshape(pattern.batch, pattern.length)
                value = value if chosen is None else value[chosen]
                value = value[:, None, :] if pattern.axis == "col" else value[:, :, None]
            operands.append(np.broadcast_to(value, shape).reshape(1, -1))
        whole = np.broadcast_to(evaluate.run_body(self.body, operands), (1, out.size))
        stored = evaluate.store_fp16(np.ascontiguousarray(whole)).reshape(shape)
        if self.tiles is None:
            values[self.out] = stored
            return
        if self.out not in values:
            values[self.out] = np.zeros(shape, np.float16)
        target = values[self.out].reshape(shape)
        for b, i, j in self.tiles.tolist():
            part = (b, slice(4 * out.gm * i, 4 * out.gm * (i + 1)), slice(4 * out.gn * j, 4 * out.gn * (j + 1)))
            target[part] = stored[part]

    def _shares(self, piece: Piece) -> list[Ints]:
        """Which work items each core does: contiguous shares, or those of the tile it holds."""
        if self.resident < 0:
            return np.array_split(np.arange(piece.count), len(self.cores))
        assert self.tiles is not None
        each = piece.count // len(self.tiles)
        return [np.arange(n * each, (n + 1) * each) for n in range(len(self.tiles))]

    def programs(self, source: int) -> list[UnitProgram]:
        """The stream of each core with work: pieces dealt in contiguous shares."""
        code, entries, prologue, pieces = self.code()
        cores = self.cores
        streams: dict[int, VectorStream] = {}
        turn = 0
        for piece in pieces:
            for n, share in enumerate(self._shares(piece)):
                if not len(share):
                    continue
                unit = cores[(n + turn) % len(cores)]
                stream = streams.get(unit.index)
                if stream is None:
                    stream = streams[unit.index] = VectorStream(self.machine, unit, source)
                    stream.program(code.words)
                    stream.l1_walks(self.sizes)
                    stream.run(prologue)
                moves: list[tuple[int, int, Ints]] = []
                for d, (buffer, plain) in enumerate(zip((*self.inputs, self.out), piece.walks)):
                    held = d == self.resident
                    walk = self._walk(plain, self.sizes[d])
                    stream.shape(1 + d, ((1, self.machine.params.vl1),) if held else walk.dims)
                    moves.append((1 + d, -1 if held else buffer, walk.offsets[share]))
                stream.runs(entries[piece.words], moves)
            turn += 0 if self.resident >= 0 else piece.count % len(cores)
        return [streams[i].finish() for i in sorted(streams)]


def _pattern_dims(axis: str, words: int, gn: int) -> Dims:
    """A vector's walk over `words` sub-tiles, whole rows of gn or part of one: along a row for "col", else staying."""
    if words <= gn:
        return ((WORD_BYTES, words),) if axis == "col" else ((0, words),)
    rows = words // gn
    return ((WORD_BYTES, gn), (0, rows)) if axis == "col" else ((0, gn), (WORD_BYTES, rows))
