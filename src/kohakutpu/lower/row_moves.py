"""The move band: rows put together from columns of other rows, with no arithmetic on them.

It decides which words move whole and which are assembled from shifted lanes, and how rows share a RUN; the assembling
code is `row_moves_code`. It must not know how a kernel spells a move.

Words are of 16 elements, in FP32 two memory words each.

Bits. Words that move whole keep every bit (a row's padding lanes included). In words that are assembled any NaN becomes
the core's own (0x7E00 in FP16), as after every operation (datasheet 2.6), and FP32 is rounded to E8M15, which the plan
says; everything else is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.program import UnitProgram
from kohakuaccel.schedule import Array
from kohakutpu.layouts import WORD_BYTES, WORD_ELEMENTS, RowMajor, ceil_div
from kohakutpu.lower import evaluate
from kohakutpu.lower.row_moves_code import FIRST_FILL, OUT, PARTS, Part, Recipe, SpliceCode, whole_words
from kohakutpu.lower.vector_stream import Dims, VectorStream, widened

Ints = NDArray[np.int64]
STRIDE_BYTES = 1 << 17  # a descriptor's stride is a signed 18-bit byte count (datasheet 6.1)
SPLICED = 64  # words that one routine assembles per row
SHAPES = 8  # envelopes that give two descriptors another shape; a RUN with its bases is three


@dataclass(frozen=True, eq=False, slots=True)
class Strip:
    """`count` columns from column `start` on, of row rows[n] of a buffer, for every instance n."""

    buffer: int
    layout: RowMajor
    rows: Ints
    start: int
    count: int


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """Row pieces made alike. source: int64[parts, n] first words; target: int64[n] first words."""

    recipe: Recipe
    buffers: tuple[int, ...]
    source: Ints
    target: Ints


def groups(strips: Sequence[Strip], target: Ints, cores: int, walk: int, source: SourceLine) -> list[Group]:
    """Rows whose columns are the strips one behind another, cut into pieces. target: first word of each row.

    Raises Refusal where one word gathers more strips than a core has descriptors.
    """
    starts = [sum(s.count for s in strips[:n]) for n in range(len(strips) + 1)]
    total = starts[-1]
    whole = np.full(ceil_div(total, WORD_ELEMENTS), -1)
    for number, (strip, at) in enumerate(zip(strips, starts)):
        if at % WORD_ELEMENTS or strip.start % WORD_ELEMENTS:
            continue
        ends_both = at + strip.count == total and strip.start + strip.count == strip.layout.cols
        complete = ceil_div(strip.count, WORD_ELEMENTS) if ends_both else strip.count // WORD_ELEMENTS
        whole[at // WORD_ELEMENTS : at // WORD_ELEMENTS + complete] = number
    found: dict[tuple[Recipe, tuple[int, ...]], list[tuple[Ints, Ints]]] = {}
    bounds = [0, *(np.flatnonzero(np.diff(whole)) + 1).tolist(), len(whole)]
    most = walk if len(target) >= cores else max(WORD_ELEMENTS, ceil_div(len(whole), cores))
    stack = [(a, b) for a, b in pairwise(bounds) if b > a][::-1]
    while stack:
        low, high = stack.pop()
        plain = int(whole[low]) >= 0
        size = min(most, walk) if plain else SPLICED
        first, last = low * WORD_ELEMENTS, min(total, high * WORD_ELEMENTS)
        here = [(s, at) for s, at in zip(strips, starts) if at < last and at + s.count > first and s.count]
        if high - low > size or len(here) > PARTS:
            if high - low == 1:
                raise Refusal(
                    "a word of a joined row gathers at most as many strips as a core has descriptors for",
                    where=f"columns {first}..{last - 1}",
                    got=f"{len(here)} strips",
                    limit=PARTS,
                    hint="join fewer at a time, or join the transposed values row by row",
                    source=source,
                )
            middle = low + (size if high - low > size else (high - low) // 2)
            stack += [(middle, high), (low, middle)]
            continue
        parts: list[Part] = []
        words: list[Ints] = []
        for strip, at in here:
            begin, end = max(first, at), min(last, at + strip.count)
            column = strip.start + begin - at
            parts.append(Part(column % WORD_ELEMENTS, begin - first, end - begin))
            words.append(strip.rows * (strip.layout.pitch // WORD_ELEMENTS) + column // WORD_ELEMENTS)
        key = Recipe(tuple(parts), high - low, plain), tuple(s.buffer for s, _ in here)
        found.setdefault(key, []).append((np.stack(words), target + low))
    return [
        Group(recipe, buffers, np.concatenate([s for s, _ in many], axis=1), np.concatenate([t for _, t in many]))
        for (recipe, buffers), many in found.items()
    ]


def stretches(offsets: Ints, most: int, size: int = 1) -> list[tuple[int, int]]:
    """(first, length) of runs of at most `most` rows whose every word offset steps evenly. offsets: int64[k, n]; size:
    memory words of a word."""
    count = offsets.shape[1]
    if most == 1 or count == 1:
        return [(n, 1) for n in range(count)]
    steps = np.diff(offsets, axis=1)
    even = np.all(steps[:, 1:] == steps[:, :-1], axis=0)
    fits = np.all(np.abs(steps) * WORD_BYTES * size < STRIDE_BYTES, axis=0)
    bounds = [0, *(np.flatnonzero(~even) + 1).tolist(), count - 1]
    found: list[tuple[int, int]] = []
    position = 0
    for a, b in pairwise(bounds):
        start = max(position, a)
        if b <= start or not fits[start]:
            continue
        found += [(n, 1) for n in range(position, start)]
        found += [(n, min(most, b + 1 - n)) for n in range(start, b + 1, most)]
        position = b + 1
    return found + [(n, 1) for n in range(position, count)]


@dataclass(frozen=True, eq=False)
class MoveBand:
    """Words of buffer `out` from words of other row-major buffers, all stored alike; layouts by buffer number. No word
    twice."""

    machine: Machine
    layouts: dict[int, RowMajor]
    out: int
    groups: tuple[Group, ...]
    text: str
    source: SourceLine
    relayout: bool = False
    """Whether it only gives a value another byte order."""

    @property
    def engine(self) -> str:
        return "VC"

    @property
    def cores(self) -> tuple[Unit, ...]:
        return self.machine.units_of("VC", mesh=0)

    @property
    def size(self) -> int:
        """Memory words of 16 elements."""
        return self.layouts[self.out].element.words

    @cached_property
    def codes(self) -> list[SpliceCode]:
        """Programs for the assembled pieces, as few as fit the program memory one after another."""
        longest: dict[Recipe, int] = {}
        for group in self.groups:
            if not group.recipe.plain:
                share = ceil_div(len(group.target), len(self.cores))
                offsets = np.vstack([group.source, group.target])[:, :share]
                run = max(length for _, length in stretches(offsets, 1 << 16, self.size))
                longest[group.recipe] = max(longest.get(group.recipe, 1), run)
        rows = {recipe: SpliceCode.rows(self.machine, recipe, n, self.size) for recipe, n in longest.items()}
        return self._programs(list(rows.items()))

    def _programs(self, recipes: list[tuple[Recipe, int]]) -> list[SpliceCode]:
        if not recipes:
            return []
        code = SpliceCode(self.machine, self.source, recipes, self.size)
        if len(code.code.words) <= self.machine.params.imem:
            return [code]
        if len(recipes) > 1:
            half = len(recipes) // 2
            return self._programs(recipes[:half]) + self._programs(recipes[half:])
        ((recipe, rows),) = recipes
        if rows == 1:
            code.code.check_size()
        return self._programs([(recipe, rows // 2)])

    def describe(self) -> Sequence[str]:
        plain = sum(g.recipe.words * len(g.target) for g in self.groups if g.recipe.plain)
        spliced = sum(g.recipe.words * len(g.target) for g in self.groups if not g.recipe.plain)
        lines = [f"move {self.text}: {plain + spliced} words"]
        if plain:
            lines.append(f"whole words, no arithmetic: {plain} words")
        if spliced:
            sizes = ", ".join(str(len(code.code.words)) for code in self.codes)
            how = ", FP32 rounded to E8M15" if self.size > 1 else ""
            lines.append(f"assembled from shifted lanes: {spliced} words{how}, program {sizes} words")
        return lines

    def reads(self) -> Sequence[int]:
        return tuple(dict.fromkeys(b for g in self.groups for b in g.buffers))

    def writes(self) -> Sequence[tuple[int, Ints]]:
        ranges = [np.stack([g.target, np.full_like(g.target, g.recipe.words)], axis=1) for g in self.groups]
        return ((self.out, self.size * np.concatenate(ranges)),)

    def run(self, values: dict[int, Array]) -> None:
        layout = self.layouts[self.out]
        if self.out not in values:
            values[self.out] = np.zeros(layout.size, layout.dtype)
        code = np.uint16 if self.size == 1 else np.uint32
        result = values[self.out].reshape(-1).view(code)
        for group in self.groups:
            for part, buffer, words in zip(group.recipe.parts, group.buffers, group.source):
                taken = _elements(self.layouts[buffer], words, part.lane, part.count)
                given = np.ascontiguousarray(values[buffer]).reshape(-1)
                bits = given.view(code)[taken]
                if not group.recipe.plain:
                    bits = evaluate.store(evaluate.load(given[taken]), layout.dtype).view(code)
                result[_elements(layout, group.target, part.at, part.count)] = bits
        values[self.out] = result.view(layout.dtype)

    def programs(self, source: int) -> list[UnitProgram]:
        """The stream of each core with work: the rows of each group dealt in contiguous shares."""
        streams: dict[int, VectorStream] = {}
        plain = whole_words(self.machine, self.source)
        jobs: list[tuple[Sequence[int], SpliceCode | None, list[Group]]] = []
        chosen = [g for g in self.groups if g.recipe.plain]
        if chosen:
            jobs.append((plain.words, None, chosen))
        jobs += [(code.code.words, code, [g for g in self.groups if g.recipe in code.counts]) for code in self.codes]
        for words, code, some in jobs:
            loaded: set[int] = set()
            turn = 0
            for group in some:
                for n, share in enumerate(np.array_split(np.arange(len(group.target)), len(self.cores))):
                    if not len(share):
                        continue
                    unit = self.cores[(n + turn) % len(self.cores)]
                    stream = streams.setdefault(unit.index, VectorStream(self.machine, unit, source))
                    if unit.index not in loaded:
                        loaded.add(unit.index)
                        self._load(stream, words, code)
                    piece = replace(group, source=group.source[:, share], target=group.target[share])
                    self._emit(stream, code, piece)
                turn += len(group.target) % len(self.cores)
        return [streams[i].finish() for i in sorted(streams)]

    def _load(self, stream: VectorStream, words: Sequence[int], code: SpliceCode | None) -> None:
        stream.program(words)
        if code is not None:
            for descriptor, dims in code.walks():
                stream.shape(descriptor, dims)
                stream.base(descriptor, -1, 0)
            stream.run(code.prologue)

    def _emit(self, stream: VectorStream, code: SpliceCode | None, group: Group) -> None:
        recipe = group.recipe
        offsets = np.vstack([group.source, group.target])
        most = self.machine.params.walk_max // self.size // recipe.words if code is None else code.counts[recipe]
        together: dict[tuple[int, ...], list[int]] = {}
        for first, length in stretches(offsets, max(most, 1), self.size):
            steps = tuple((offsets[:, first + 1] - offsets[:, first]).tolist()) if length > 1 else ()
            together.setdefault((length, *steps), []).append(first)
        singles: list[int] = []
        for (length, *steps), firsts in together.items():
            cheaper = SHAPES + 3 * len(firsts) < 3 * length * len(firsts)
            if cheaper and (length == most or code is None):
                self._runs(stream, code, group, offsets, length, steps, firsts)
            else:
                singles += [f + n for f in firsts for n in range(length)]
        if singles:
            self._runs(stream, code, group, offsets, 1, [0] * len(offsets), sorted(singles))

    def _runs(
        self,
        stream: VectorStream,
        code: SpliceCode | None,
        group: Group,
        offsets: Ints,
        length: int,
        steps: Sequence[int],
        firsts: Sequence[int],
    ) -> None:
        recipe = group.recipe
        parts = [recipe.words] if code is None else [part.words for part in recipe.parts]
        moves: list[tuple[int, int, Ints]] = []
        for n, (words, step) in enumerate(zip([*parts, recipe.words], steps)):
            last = n == len(parts)
            descriptor = OUT if last else FIRST_FILL + n
            dims: Dims = ((WORD_BYTES, words),)
            if length > 1:
                dims = (*dims, (step * WORD_BYTES, length))
            stream.shape(descriptor, dims if self.size == 1 else widened(dims))
            starts = offsets[n][list(firsts)] * (WORD_BYTES * self.size)
            moves.append((descriptor, self.out if last else group.buffers[n], starts))
        stream.runs(0 if code is None else code.entries[recipe, length], moves)


def _elements(layout: RowMajor, words: Ints, lane: int, count: int) -> Ints:
    """int64[n, count] logical positions of `count` columns from a lane of each word on."""
    at = words[:, None] * WORD_ELEMENTS + lane + np.arange(count, dtype=np.int64)[None, :]
    return at // layout.pitch * layout.cols + at % layout.pitch
