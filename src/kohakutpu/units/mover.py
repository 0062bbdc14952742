"""The memory mover of one mesh (datasheet 3.4): its registers, and what a GO does to memory.

It decides which words are read and written, in which order, and the fault that ends a move. It must not know who
commands it. A walk's addresses are numpy arrays and the words move at once; that equals word after word because a move
that reads a word which it writes is refused: the datasheet gives no order for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Fault, Refusal
from kohakutpu.isa import mover as isa
from kohakutpu.isa.walks import ADDRESS_MASK, DIMENSIONS, Dimension, Walk
from kohakutpu.units import errors
from kohakutpu.units.state import E_UNWRITTEN, WORD, Memory

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
NEVER = 1 << 62
_UNWRITTEN = -1
_ELEMENTS = (np.uint8, np.uint16, np.uint32)


def philox(counters: Words, seed: int) -> Words:
    """Philox4x32-10. counters: uint64[4, n] of 32-bit values; returns the same shape, the lowest output first."""
    low = np.uint64(0xFFFF_FFFF)
    c0, c1, c2, c3 = counters
    k0, k1 = seed & 0xFFFF_FFFF, seed >> 32
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD251_1F53), c2 * np.uint64(0xCD9E_8D57)
        c0, c1, c2, c3 = (
            p1 >> np.uint64(32) ^ c1 ^ np.uint64(k0),
            p1 & low,
            p0 >> np.uint64(32) ^ c3 ^ np.uint64(k1),
            p0 & low,
        )
        k0, k1 = k0 + 0x9E37_79B9 & 0xFFFF_FFFF, k1 + 0xBB67_AE85 & 0xFFFF_FFFF
    return np.stack((c0, c1, c2, c3))


@dataclass
class Mover:
    """The mover of mesh `mesh`. `status` is what AUX_STAT reads."""

    mesh: int
    memory: Memory
    status: int = 0
    walks: list[Walk] = field(default_factory=lambda: [Walk(dims=(Dimension(),) * DIMENSIONS)] * 2)
    _pending: dict[str, int] = field(default_factory=lambda: {"walker": 0, "dim": 0, "count": 0, "stride": 0})
    _registers: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def name(self) -> str:
        return f"memory mover of mesh {self.mesh}"

    def write(self, offset: int, value: int) -> None:
        """A 64-bit register write at AUX_CFG + offset. A GO runs to its end; Fault where one ends it, after memory and
        status show it. Raises Refusal for a register or a field that the datasheet does not give."""
        if offset not in isa.FORMATS:
            raise Refusal("the mover has no such register", where=self.name, got=f"AUX_CFG + {offset:#x}")
        f = isa.FORMATS[offset].decode(value)
        if offset == isa.BASE:
            self._limit("dimensions of a walker", f["ndim"], DIMENSIONS)
            self._set(f["walker"], base=f["base"], ndim=f["ndim"])
        elif offset == isa.DIM:
            self._limit("number of a dimension", f["dim"], DIMENSIONS - 1)
            self._pending = f
        elif offset == isa.STEP:
            self._limit("number of an axis", f["axis"], 2)
            p = self._pending
            dims = list(self.walks[p["walker"]].dims)
            dims[p["dim"]] = Dimension(p["count"], p["stride"], f["axis"], f["astep"])
            self._set(p["walker"], dims=tuple(dims))
        elif offset == isa.AXIS:
            axes = list(self.walks[f["walker"]].axes)
            axes[f["axis"]] = (f["abase"], f["extent"])
            self._set(f["walker"], axes=tuple(axes))
        else:
            self._registers[offset] = value
            if offset == isa.MODE:
                self._limit("flags, which the datasheet does not name,", f["flags"], 0)
                if f["go"]:
                    self._go(f["mode"], f["width"])

    def _set(self, walker: int, **changes: object) -> None:
        self.walks[walker] = replace(self.walks[walker], **changes)

    def _limit(self, what: str, got: int, limit: int) -> None:
        if got > limit:
            raise Refusal(f"the {what} are at most {limit}", where=self.name, got=got, limit=limit)

    def _field(self, offset: int, name: str) -> int:
        return isa.FORMATS[offset].decode(self._registers.get(offset, 0))[name]

    # a move

    def _go(self, mode: int, width: int) -> None:
        reads = writes = bad = 0
        fault = self._wrong(mode, width)
        if not fault:
            reads, writes, fault, bad = self._move(mode, width)
        was = isa.STATUS.decode(self.status)
        self.status = isa.STATUS.encode(
            moves=was["moves"] + (fault == 0) & 0xFF_FFFF,
            reads=was["reads"] + reads & 0xFFFF,
            writes=was["writes"] + writes & 0xFFFF,
            fault=max(fault, 0),
        )
        if fault == _UNWRITTEN:
            message = errors.error(E_UNWRITTEN, [self.mesh, bad & (1 << 36) - 1, 0, 0])
            raise Fault(message.rule, unit=self.name, hint=message.hint)
        if fault:
            message = errors.fault("mover", fault)
            raise Fault(message.rule, unit=self.name, code=fault, hint=message.hint)

    def _wrong(self, mode: int, width: int) -> int:
        if mode not in isa.MODES.values():
            return isa.F_MODE
        if width >= len(_ELEMENTS):
            return isa.F_WIDTH
        if mode == isa.GATHER:
            rows, words = self._field(isa.INDEX, "count"), self._field(isa.PITCH, "words")
            if rows > isa.INDICES or rows * words < self.walks[1].total:
                return isa.F_INDEX
        return 0

    def _move(self, mode: int, width: int) -> tuple[int, int, int, int]:
        """(words read, words written, fault, address of the first unwritten word)."""
        target, exists = self.walks[1].elements()
        steps = np.flatnonzero(exists)
        target = target[steps]
        source, given = np.zeros(len(steps), np.int64), np.zeros(len(steps), np.bool_)
        extra = np.zeros(0, np.int64)
        if mode == isa.COPY:
            source, given = self._beside(self.walks[1]).elements()
            source, given = source[steps], given[steps]
        elif mode == isa.GATHER:
            extra, fault = self._index_words()
            if fault:
                return 0, 0, fault, int(extra[0])
            source, given = self._rows(steps), np.ones(len(steps), np.bool_)
        end, fault = self._first_fault(target, source, given)
        target, given = target[:end], given[:end]
        read = source[:end][given]
        self._no_overlap(target, np.concatenate((read, extra)))
        data = np.empty((len(target), 4), np.uint64)
        data[:] = self._pattern(width)
        if mode == isa.GENERATE:
            data[:] = self._random(target)
        memory = self.memory.wide.reshape(-1, 4)
        data[given] = memory[self._place(read)]
        places = self._place(target)
        memory[places] = data  # of equal places the last one stays, as word after word
        self.memory.written[places] = 1
        return len(read) + len(extra), len(target), fault, int(source[end]) if fault == _UNWRITTEN else 0

    def _beside(self, target: Walk) -> Walk:
        """The source's walk with the target's counts; dimensions that it lacks have stride 0."""
        source = self.walks[0]
        dims = [
            replace(source.dims[d] if d < source.ndim else Dimension(), count=target.dims[d].count)
            for d in range(target.ndim)
        ]
        return replace(source, dims=tuple(dims), ndim=target.ndim)

    def _index_words(self) -> tuple[Ints, int]:
        """Addresses of the words that hold the indices, and the fault of the first that cannot be read."""
        base, count = self._field(isa.INDEX, "base"), self._field(isa.INDEX, "count")
        words = base + WORD * np.arange(-(-4 * count // WORD), dtype=np.int64)
        end, fault = self._first_fault(words[:0], words, np.ones(len(words), np.bool_))
        return (words[end:], fault) if fault else (words, 0)

    def _rows(self, steps: Ints) -> Ints:
        """The source address of each step of a GATHER; one beyond 40 bits where a row lies there."""
        base, count = self._field(isa.INDEX, "base"), self._field(isa.INDEX, "count")
        pitch, words = self._field(isa.PITCH, "pitch"), self._field(isa.PITCH, "words")
        first = int(self._place(np.array([base]))[0]) * WORD
        index = self.memory.byte[first : first + 4 * count].view(np.uint32).astype(np.int64)
        most = (ADDRESS_MASK - self.walks[0].base) // pitch if pitch else NEVER
        row, word = np.divmod(steps, words)
        start = self.walks[0].base + np.minimum(index, most + 1) * pitch  # a product of 64 bits stays below 2^41
        return start[row] + WORD * word

    def _first_fault(self, target: Ints, source: Ints, given: NDArray[np.bool_]) -> tuple[int, int]:
        """(steps before the first fault, that fault). A step's target is looked at before its source."""
        size = int(self.memory.size[self.mesh])
        found: list[tuple[int, int]] = []

        def note(fault: int, wrong: NDArray[np.bool_]) -> None:
            if wrong.any():
                found.append((int(wrong.argmax()), fault))

        low = self.mesh << 36
        note(isa.F_ALIGN, target % WORD != 0)
        note(isa.F_RANGE, (target < low) | (target >= low + size))
        outside = (source < low) | (source >= low + size)
        note(isa.F_RANGE, given & outside)
        note(isa.F_BUS, given & (source % WORD != 0))
        readable = given & ~outside
        blank = np.zeros(len(source), np.bool_)
        blank[readable] = self.memory.written[self._place(source[readable])] == 0
        note(_UNWRITTEN, blank)
        return min(found, key=lambda f: f[0], default=(max(len(target), len(source)), 0))

    def _no_overlap(self, target: Ints, read: Ints) -> None:
        both = np.intersect1d(target, read)
        if len(both):
            raise Refusal(
                "a move reads no word that it writes",
                where=self.name,
                got=f"address {int(both[0]):#x}",
                hint="the datasheet gives no order; move through another place",
            )

    def _place(self, address: Ints) -> Ints:
        """Word numbers in the host's memory."""
        return (int(self.memory.base[self.mesh]) + (address & (1 << 36) - 1)) // WORD

    def _pattern(self, width: int) -> Words:
        value = self._field(isa.IMMEDIATE, "value") & (1 << (8 << width)) - 1
        return np.full(WORD >> width, value, _ELEMENTS[width]).view(np.uint64)

    def _random(self, target: Ints) -> Words:
        """uint64[n, 4]: the Philox words of these addresses, half 0 in the low 128 bits."""
        a = (target // WORD).astype(np.uint64)
        zero = np.zeros_like(a)
        seed = self._registers.get(isa.SEED, 0)
        halves: list[Words] = []
        for half in (0, 1):
            c1 = np.uint64(half) | a >> np.uint64(32) << np.uint64(1)
            c = philox(np.stack((a & np.uint64(0xFFFF_FFFF), c1, zero, zero)), seed)
            halves += [c[0] | c[1] << np.uint64(32), c[2] | c[3] << np.uint64(32)]
        return np.stack(halves, axis=1)
