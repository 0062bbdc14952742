"""The memory mover's registers and moves (datasheet 3.4): what a host writes to have words of memory moved.

It decides where bits are and refuses moves that the engine cannot hold. It must not know buffers or transports, nor
whether the memory exists. Offsets are relative to AUX_CFG of a mesh's agent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.isa import Field, Format
from kohakutpu.isa.walks import DIMENSIONS, Walk

WORD = 32
COPY, GATHER, GENERATE, FILL = 0, 2, 3, 4
MODES = {"COPY": COPY, "GATHER": GATHER, "GENERATE": GENERATE, "FILL": FILL}
WIDTHS = {1: 0, 2: 1, 4: 2}
"""Bytes of an immediate's element: code of its width."""
INDICES = 2048
SPAN = 0x80  # bytes of the mover's part of AUX_CFG

MODE, BASE, DIM, STEP, AXIS, INDEX, SEED, IMMEDIATE, PITCH = 0x00, 0x10, 0x18, 0x20, 0x28, 0x30, 0x38, 0x40, 0x50
_WALKER = Field("walker", 0)
FORMATS = {
    MODE: Format(
        "MOVER_MODE",
        64,
        [Field("mode", (2, 0)), Field("width", (4, 3)), Field("flags", (15, 8)), Field("go", 16)],
        {(7, 5): 0, (63, 17): 0},
    ),
    BASE: Format(
        "MOVER_BASE",
        64,
        [_WALKER, Field("base", (43, 4), style="x"), Field("ndim", (46, 44))],
        {(3, 1): 0, (63, 47): 0},
    ),
    DIM: Format(
        "MOVER_DIM",
        64,
        [_WALKER, Field("dim", (3, 1)), Field("count", (19, 4)), Field("stride", (51, 20), signed=True)],
        {(63, 52): 0},
    ),
    STEP: Format("MOVER_STEP", 64, [Field("axis", (1, 0)), Field("astep", (17, 2), signed=True)], {(63, 18): 0}),
    AXIS: Format(
        "MOVER_AXIS",
        64,
        [_WALKER, Field("axis", 1), Field("abase", (17, 2), signed=True), Field("extent", (33, 18))],
        {(63, 34): 0},
    ),
    INDEX: Format("MOVER_INDEX", 64, [Field("base", (39, 0), style="x"), Field("count", (55, 40))], {(63, 56): 0}),
    SEED: Format("MOVER_SEED", 64, [Field("seed", (63, 0), style="x")], {}),
    IMMEDIATE: Format("MOVER_IMMEDIATE", 64, [Field("value", (31, 0), style="x")], {(63, 32): 0}),
    PITCH: Format("MOVER_PITCH", 64, [Field("pitch", (31, 0)), Field("words", (47, 32))], {(63, 48): 0}),
}
"""Register offset: its fields."""
STATUS = Format(
    "AUX_STAT",
    64,
    [
        Field("moves", (63, 40)),
        Field("reads", (39, 24)),
        Field("writes", (23, 8)),
        Field("fault", (7, 4)),
        Field("busy", 0),
    ],
    {(3, 1): 0},
)
F_INDEX, F_RANGE, F_BUS, F_MODE, F_WIDTH, F_ALIGN = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True, slots=True)
class Gather:
    """Rows of `words` words at the source's base + pitch * index, for `count` uint32 indices at byte `base`."""

    base: int
    count: int
    pitch: int
    words: int


@dataclass(frozen=True, slots=True)
class Move:
    """One move. The target's walk decides which words are written, the source steps with it: its own counts are not
    used, and a dimension that it lacks has stride 0 (datasheet 3.4).

    mode: "COPY", "GATHER" (reads rows by index; of the source only the base counts), "GENERATE" (Philox4x32-10 of each
    word's address under `seed`) or "FILL". immediate: the element of `width` bytes (1, 2 or 4) that fills a word where
    the source does not exist, and every word of a FILL.
    """

    mode: str
    target: Walk
    source: Walk = field(default_factory=Walk)
    width: int = 4
    immediate: int = 0
    seed: int = 0
    gather: Gather | None = None

    def registers(self) -> list[tuple[int, int]]:
        """(offset, value) of every register write, GO last. Raises Refusal for what the registers cannot hold."""
        self._check()
        found = [*_walker(0, self.source), *_walker(1, self.target)]
        if self.gather is not None:
            g = self.gather
            found.append((INDEX, FORMATS[INDEX].encode(base=g.base, count=g.count)))
            found.append((PITCH, FORMATS[PITCH].encode(pitch=g.pitch, words=g.words)))
        found.append((SEED, FORMATS[SEED].encode(seed=self.seed)))
        found.append((IMMEDIATE, FORMATS[IMMEDIATE].encode(value=self.immediate)))
        found.append((MODE, FORMATS[MODE].encode(mode=MODES[self.mode], width=WIDTHS[self.width], go=1)))
        return found

    def _check(self) -> None:
        if self.mode not in MODES:
            raise Refusal("a move's mode is COPY, GATHER, GENERATE or FILL", where="a move", got=repr(self.mode))
        if self.width not in WIDTHS:
            raise Refusal("an immediate's element has 1, 2 or 4 bytes", where=f"a {self.mode}", got=self.width)
        if not 0 <= self.immediate < 1 << 8 * self.width:
            raise Refusal(
                "an immediate fits its element",
                where=f"a {self.mode} of {self.width} bytes an element",
                got=self.immediate,
                limit=(1 << 8 * self.width) - 1,
                hint="give the element's bits, not its value",
            )
        if (self.mode == "GATHER") != (self.gather is not None):
            raise Refusal("a GATHER has indices, and only it", where=f"a {self.mode}", hint="set `gather`")
        if self.gather is None:
            return
        g = self.gather
        if not 1 <= g.count <= INDICES:
            raise Refusal("a GATHER has 1 to 2048 indices", where="a GATHER", got=g.count, hint="gather in pieces")
        if g.words < 1 or g.count * g.words != self.target.total:
            raise Refusal(
                "a GATHER writes every word of its rows once",
                where="a GATHER",
                got=f"{g.count} rows of {g.words} words, a target of {self.target.total}",
            )


def _walker(number: int, walk: Walk) -> list[tuple[int, int]]:
    """The register writes of one walker; all dimensions in use and both axes, so that no earlier move shows."""
    if not 0 <= walk.ndim <= min(DIMENSIONS, len(walk.dims)):
        raise Refusal(
            "a walk has at most six dimensions",
            where=f"the {('source', 'target')[number]} of a move",
            got=f"ndim {walk.ndim}, {len(walk.dims)} given",
            limit=DIMENSIONS,
        )
    found = [(BASE, FORMATS[BASE].encode(walker=number, base=walk.base, ndim=walk.ndim))]
    for i, d in enumerate(walk.dims[: walk.ndim]):
        found.append((DIM, FORMATS[DIM].encode(walker=number, dim=i, count=d.count, stride=d.stride)))
        found.append((STEP, FORMATS[STEP].encode(axis=d.axis, astep=d.astep)))
    for axis, (first, extent) in enumerate(walk.axes):
        found.append((AXIS, FORMATS[AXIS].encode(walker=number, axis=axis, abase=first, extent=extent)))
    return found
