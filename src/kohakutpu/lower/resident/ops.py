"""What runs on chip from stage to stage: values in L1, products on clusters, row arithmetic on vector cores.

It decides nothing: these are the words of the other modules here. A value belongs to a row tile, 4 * gm rows of one
matrix; a core and a cluster work on one row tile at a time, and whatever they hand each other stays in their L1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import SourceLine
from kohakutpu.layouts import DrainedTiles, OperandPack, ceil_div
from kohakutpu.lower.body import Body

Ints = NDArray[np.int64]
ENTRY_WORDS = 8  # L1 words of an FP16 entry
QUAD = 4  # sub-tile columns that make 16 elements of each of their 4 rows, half a lane of an entry


class NotResident(Exception):
    """Why temporaries go through memory, and the user's line."""

    def __init__(self, reason: str, source: SourceLine | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.source = source


@dataclass(eq=False, slots=True)
class Held:
    """A temporary of a row tile, on chip.

    kind "tile": sub-tiles (g, h) at word + g * columns + h of a core's L1, FP16, or FP32 in two words where `wide`.
    kind "row": one number per row, word + g holding 4 copies of each of 4 rows' numbers. kind "entries": FP16 entries
    (chunk, g, block) from `word` on, which leave quantised for entries `entry`.. of side A of a cluster.
    """

    name: str
    kind: Literal["tile", "row", "entries"]
    buffer: int
    gm: int
    cols: int
    columns: int = 0
    chunk: int = 0
    wide: bool = False
    word: int = -1
    entry: int = -1

    @property
    def blocks(self) -> int:
        """K blocks of an entries value, whole chunks."""
        return self.chunk * ceil_div(self.cols, 32 * self.chunk)

    @property
    def words(self) -> int:
        """L1 words of a core."""
        if self.kind == "row":
            return self.gm
        if self.kind == "entries":
            return self.gm * self.blocks * ENTRY_WORDS
        return self.gm * self.columns * (2 if self.wide else 1)

    def spot(self) -> tuple[object, ...]:
        """Its form and place: routines that work on equal spots are one."""
        return self.kind, self.word, self.entry, self.cols, self.columns, self.chunk, self.wide

    def place(self) -> str:
        """Where it is, for a reader."""
        last = self.word + self.words - 1
        if self.kind == "entries":
            return f"side A entries {self.entry}..{self.entry + self.gm * self.blocks - 1}, quantised by the core"
        return f"L1 words {self.word}..{last}{', accumulator width' if self.wide else ''}"


@dataclass(eq=False, slots=True)
class Out:
    """An output that a core drains to memory, tile by tile, out of a staging value."""

    buffer: int
    layout: DrainedTiles
    staged: Held


@dataclass(eq=False, slots=True)
class Slot:
    """Entries of one L1 side of every cluster, kept for one operand of one stage of the kernel."""

    side: int
    entries: int
    first: int = -1


@dataclass(eq=False, slots=True)
class Fetched:
    """A matmul operand from memory: int64[row tiles, 2] of (matrix, tile) and int64[row tiles] first chunk."""

    buffer: int
    layout: OperandPack
    at: Ints
    first: Ints
    slot: Slot
    text: str


@dataclass(eq=False, slots=True)
class Product:
    """dst = a @ b.T of every row tile over `count` chunks of nk K blocks; dst in memory where `layout` is given."""

    dst: Held | int
    layout: DrainedTiles | None
    a: Fetched | Held
    b: Fetched
    count: int
    gm: int
    gn: int
    nk: int
    source: SourceLine

    @property
    def name(self) -> str:
        return self.dst.name if isinstance(self.dst, Held) else "output"


@dataclass(eq=False, slots=True)
class Rows:
    """results[n] = (node of the body, where it goes), over rows of `cols` elements. operands: by number in the body."""

    body: Body
    operands: tuple[Held, ...]
    results: tuple[tuple[int, Held | Out], ...]
    cols: int
    source: SourceLine

    def targets(self) -> list[Held]:
        """The L1 values that it writes."""
        return [t.staged if isinstance(t, Out) else t for _, t in self.results]

    def signature(self) -> tuple[object, ...]:
        """Equal for operations that one routine carries out."""
        nodes = tuple((n.op, n.args, repr(n.number), n.text) for n in self.body.nodes)
        where = tuple((n, (t.buffer, t.staged.spot()) if isinstance(t, Out) else t.spot()) for n, t in self.results)
        return nodes, where, tuple(o.spot() for o in self.operands), self.cols


Op = Product | Rows


@dataclass(eq=False, slots=True)
class Step:
    """What clusters and cores do side by side, before they meet again. fills: (product, "a" or "b")."""

    fills: list[tuple[Product, str]] = field(default_factory=list[tuple[Product, str]])
    products: list[Product] = field(default_factory=list[Product])
    rows: list[Rows] = field(default_factory=list[Rows])


@dataclass(eq=False, slots=True)
class Chain:
    """A whole kernel on chip. keys: int64[row tiles, 2] of (matrix, row tile); ops in program order."""

    keys: Ints
    gm: int
    ops: list[Op]
    held: list[Held]
    notes: list[str] = field(default_factory=list[str])
    memo: dict[object, Any] = field(default_factory=dict[object, Any])
    """What its streams' codecs remember."""
