"""The matmul cluster (datasheet section 5), one instruction at a time.

It executes 256-bit payloads; it must not know the dispatcher, and it hands CU_DATA bursts to its caller.
"""

from __future__ import annotations

from dataclasses import dataclass

from .burst import Burst
from .errors import Raised, UnitFault, Waits
from .formats import Entry, add22, bits, emit16, mxfp7_entry, partial22, unpack_entry
from .memory import PAGE, Memory, from_halves, halves, local_offset
from .walk import Descriptor

FILL, GEMM, DRAIN, TDESC = 1, 2, 3, 4
QUEUE = 112  # outstanding emitted sub-tiles at which a sweep stalls (8.2)


@dataclass(frozen=True)
class Fields:
    """The payload's fields, straight from table 5.1."""

    op: int
    addr: int
    n: int
    sel: int
    acc: int
    gm: int
    gn: int
    nk: int
    anchor: int
    peers: tuple[tuple[int, int], ...]
    tag: int
    tsel: int
    desc: int
    dsel: int
    npeer: int
    preq: int
    eoff: int
    aoff: int
    boff: int
    emit: int
    fuse: int
    abank: int
    bbank: int
    fbank: int
    dnode: int
    dst: tuple[int, int]
    dbuf: int
    dflags: int
    dack: tuple[int, int]
    dmesh: int
    dfin: int

    @property
    def destination(self) -> tuple[object, ...]:
        return (self.addr, self.dnode, self.dst, self.dbuf, self.dflags, self.dack, self.dmesh, self.dfin, self.tsel)

    @property
    def shared(self) -> tuple[object, ...]:
        """What all members of a shared fill must name identically (10)."""
        return (self.addr, self.n, self.sel, self.preq, self.eoff, self.fbank)


def decode(p: int) -> Fields:
    return Fields(
        op=bits(p, 255, 252),
        addr=bits(p, 68, 63) << 34 | bits(p, 251, 218),
        n=bits(p, 217, 202),
        sel=bits(p, 201, 201),
        acc=bits(p, 200, 200),
        gm=bits(p, 199, 192),
        gn=bits(p, 191, 184),
        nk=bits(p, 183, 176),
        anchor=bits(p, 175, 168),
        peers=tuple((bits(p, low + 3, low), bits(p, low + 7, low + 4)) for low in (144, 152, 160)[: bits(p, 143, 142)]),
        tag=bits(p, 61, 54),
        tsel=bits(p, 62, 62),
        desc=bits(p, 53, 53),
        dsel=bits(p, 52, 51),
        npeer=bits(p, 143, 142),
        preq=bits(p, 141, 141),
        eoff=bits(p, 140, 133),
        aoff=bits(p, 132, 125),
        boff=bits(p, 124, 117),
        emit=bits(p, 116, 116),
        fuse=bits(p, 115, 115),
        abank=bits(p, 114, 114),
        bbank=bits(p, 113, 113),
        fbank=bits(p, 112, 112),
        dnode=bits(p, 111, 111),
        dst=(bits(p, 110, 107), bits(p, 106, 103)),
        dbuf=bits(p, 102, 95),
        dflags=bits(p, 94, 87),
        dack=(bits(p, 82, 79), bits(p, 86, 83)),
        dmesh=bits(p, 78, 77),
        dfin=bits(p, 76, 69),
    )


SubTile = list[int]  # 16 FP22 codes, element (i, j) at 4i + j


def subtile_granules(tile: SubTile) -> tuple[int, int]:
    """The two granules of the FP22 transfer (5.4)."""
    image = sum(code << 22 * i for i, code in enumerate(tile))
    return image & ((1 << 256) - 1), image >> 256


def granules_subtile(low: int, high: int) -> SubTile:
    image = low | (high & ((1 << 96) - 1)) << 256
    return [(image >> 22 * i) & 0x3FFFFF for i in range(16)]


class Cluster:
    """State of one cluster. `kinds` tells what sits at (mesh, x, y), to judge node drains."""

    def __init__(
        self,
        memory: Memory,
        mesh: int = 0,
        xy: tuple[int, int] = (1, 1),
        tiles: int = 512,
        l1: tuple[int, int] = (512, 512),
        kinds: dict[tuple[int, int, int], str] | None = None,
        policy: str = "raise",
        options: frozenset[str] = frozenset(),
    ) -> None:
        self.dual = "r2_dual_acc" in options
        self.multicast = "r2_multicast" in options
        self.by_descriptor = "r2_desc_fill" in options
        self.descriptors = [Descriptor() for _ in range(4)]
        self.memory, self.mesh, self.xy = memory, mesh, xy
        self.tiles, self.capacity = tiles, l1
        self.kinds = kinds or {}
        self.policy = policy
        self.options = options
        self.l1: tuple[dict[int, Entry], dict[int, Entry]] = ({}, {})
        self.arriving: tuple[dict[int, int], dict[int, int]] = (
            {},
            {},
        )  # granules of entries not yet committed
        self.accumulators: list[dict[int, SubTile]] = [{}, {}]
        self.openings: list[tuple[int, int] | None] = [None, None]
        self.live_tile = 0
        self.live: dict[tuple[int, int], tuple[int, int]] = {}
        self.queue: list[tuple[Fields, list[int]]] = []
        self.bad_burst = False
        self.retired = 0
        self.saturated = 0
        self.nonfinite = 0

    @property
    def tile(self) -> dict[int, SubTile]:
        """The first accumulator's."""
        return self.accumulators[0]

    @property
    def opened(self) -> tuple[int, int] | None:
        return self.openings[0]

    @property
    def open_tiles(self) -> int:
        """Sub-tiles 0.. of the first accumulator that hold a value, of the present shape or of an earlier one."""
        return len(self.tile)

    # --- one instruction ---

    def execute(self, payload: int, met: bool = False) -> tuple[int, list[Burst]]:
        """Execute to retirement: the result word and the bursts sent. met: all members are at this shared fill."""
        f = decode(payload)
        sent: list[Burst] = []
        fault = 0
        if f.op == FILL:
            fault = self._fill(f, met)
        elif f.op == GEMM:
            self._gemm(f)
        elif f.op == DRAIN:
            sent = self._drain(f)
        elif f.op == TDESC and self.by_descriptor:
            self.descriptors[bits(payload, 251, 250)].write(bits(payload, 249, 247), bits(payload, 246, 119))
        else:
            fault = 0x12
        self.retired += 1
        if self.bad_burst:
            self.bad_burst = False
            fault = fault or 0x11
        if fault:
            raise UnitFault(fault)
        return self.retired & 0xFFFF, sent

    # --- FILL (5.2) ---

    def _index(self, side: int, bank: int, offset: int) -> int:
        """The L1 entry of (bank, offset); a side of at most 256 entries has no banks."""
        if self.capacity[side] <= 256:
            return offset
        return 256 * bank + offset

    def _range(self, side: int, bank: int, first: int, count: int) -> None:
        if self.capacity[side] <= 256 and bank:
            raise Raised("FIELD", bank)
        if first + count > min(256, self.capacity[side]):
            raise Raised("L1_RANGE", first, count)

    def _fill(self, f: Fields, met: bool) -> int:
        if f.anchor != 40 or not 1 <= f.n <= 255:
            raise Raised("FIELD")
        if (f.npeer and not self.multicast) or (f.desc and (f.npeer or not self.by_descriptor)):
            raise Raised("FIELD")
        self._range(f.sel, f.fbank, f.eoff, f.n)
        first, count = self.live.get((f.sel, f.fbank), (0, 0))
        if f.eoff < first + count and first < f.eoff + f.n:
            raise Raised("LIVE_SWEEP", f.sel, f.eoff, f.n)
        if f.npeer and not met:
            members = [self.xy, *f.peers]
            if len(set(members)) != len(members):
                raise Raised("FIELD")
            if any(self.kinds.get((self.mesh, *xy)) != "MG" for xy in members):
                raise Raised("NODE")
            raise Waits("SHARE")
        entries: list[Entry] = []
        nonfinite = 0
        for words in self._by_descriptor(f) if f.desc else self._by_address(f):
            if f.preq:
                entry = unpack_entry(words, f.sel == 1)
            else:
                entry, bad = mxfp7_entry([h for w in words for h in halves(w)])
                nonfinite += bad
            entries.append(entry)
        self.nonfinite += nonfinite
        for i, entry in enumerate(entries):
            self.l1[f.sel][self._index(f.sel, f.fbank, f.eoff + i)] = entry
        return 0x10 if nonfinite and self.policy == "raise" else 0

    def _by_address(self, f: Fields) -> list[list[int]]:
        """The words of each entry."""
        size = 128 if f.preq else 256
        base = local_offset(self.mesh, f.addr)
        if base % 32 or base + size * f.n > self.memory.size:
            raise Raised("ADDRESS", f.addr)
        entries: list[list[int]] = []
        for at in range(base, base + size * f.n, size):
            if at // PAGE != (at + size - 1) // PAGE:
                raise Raised("PAGE", at)
            entries.append([self.memory.load(at + 32 * w) for w in range(size // 32)])
        return entries

    def _by_descriptor(self, f: Fields) -> list[list[int]]:
        """The same where a descriptor says where each lane is: element 4 * entry + lane (10)."""
        if f.preq:
            raise Raised("FIELD")
        lanes = self.descriptors[f.dsel].lanes()
        if len(lanes) < 4 * f.n:
            raise Raised("WALK", 4 * f.n)
        words: list[int] = []
        for address in lanes[: 4 * f.n]:
            if address is None:
                words += [0, 0]
                continue
            if address < 0 or address % 64:
                raise Raised("ADDRESS", address)
            base = local_offset(self.mesh, address)
            if base + 64 > self.memory.size:
                raise Raised("ADDRESS", address)
            words += [self.memory.load(base), self.memory.load(base + 32)]
        return [words[8 * e : 8 * e + 8] for e in range(f.n)]

    # --- GEMM (5.3) ---

    def _gemm(self, f: Fields) -> None:
        if f.anchor != 40 or not (f.gm and f.gn and f.nk) or f.tsel > self.dual:
            raise Raised("FIELD")
        tile = self.accumulators[f.tsel]
        count = f.gm * f.gn
        if count > self.tiles:
            raise Raised("TILE_RANGE", count)
        self._range(0, f.abank, f.aoff, f.gm * f.nk)
        self._range(1, f.bbank, f.boff, f.gn * f.nk)
        if f.acc and self.openings[f.tsel] != (f.gm, f.gn):
            raise Raised("TILE_UNOPENED")
        if sum(len(words) for _, words in self.queue) > QUEUE:
            raise Waits("DRAIN_QUEUE")  # the previous sweep is stalled and nobody drains it
        a = [self._entry(0, f.abank, f.aoff + i) for i in range(f.gm * f.nk)]
        b = [self._entry(1, f.bbank, f.boff + i) for i in range(f.gn * f.nk)]
        # Block 0 of an opening GEMM is a LOAD, which hands nothing out.
        emit = f.emit and (f.acc or f.nk > 1)
        handed: list[int] = []
        for kb in range(f.nk):
            for g in range(f.gm):
                for h in range(f.gn):
                    t = g * f.gn + h
                    block = self._partial(a[g * f.nk + kb], b[h * f.nk + kb])
                    if kb or f.acc:
                        block = [add22(old, new) for old, new in zip(tile[t], block)]
                    tile[t] = block
                    if emit and kb == f.nk - 1:
                        handed.append(self._fp16(block))
        if not f.acc:
            self.openings[f.tsel] = (f.gm, f.gn)
        if emit:
            self.queue.append((f, handed))
        self.live_tile = f.tsel
        self.live = {(0, f.abank): (f.aoff, f.gm * f.nk), (1, f.bbank): (f.boff, f.gn * f.nk)}

    def _entry(self, side: int, bank: int, offset: int) -> Entry:
        index = self._index(side, bank, offset)
        if index not in self.l1[side]:
            raise Raised("L1_UNWRITTEN", side, index)
        return self.l1[side][index]

    def _partial(self, a: Entry, b: Entry) -> SubTile:
        out: SubTile = []
        for qa, sa in a:
            for qb, sb in b:
                out.append(partial22(sum(map(int.__mul__, qa, qb)), sa, sb))
        return out

    def _fp16(self, tile: SubTile) -> int:
        values: list[int] = []
        for code in tile:
            half, beyond = emit16(code)
            self.saturated += beyond
            values.append(half)
        return from_halves(values)

    # --- DRAIN (5.4) ---

    def _drain(self, f: Fields) -> list[Burst]:
        if f.anchor != 40 or not f.n or f.tsel > self.dual:
            raise Raised("FIELD")
        tile = self.accumulators[f.tsel]
        if f.n > self.tiles:
            raise Raised("TILE_RANGE", f.n)
        if f.fuse:
            if not self.queue:
                raise Waits("NO_EMIT")
            gemm, words = self.queue[0]
            # What a GEMM hands out is FP16, so a fused DRAIN cannot be an FP22 transfer.
            if len(words) != f.n or gemm.destination != f.destination or (f.dnode and f.dbuf != 0):
                raise Raised("DRAIN_MISMATCH")
        else:
            if f.n > len(tile):
                raise Raised("TILE_UNOPENED")
            if sum(len(words) for _, words in self.queue) > QUEUE:
                raise Waits("DRAIN_QUEUE")
        target = self._node(f) if f.dnode else None
        base = 0 if f.dnode else self._drain_range(f)
        if f.fuse:
            granules = self.queue.pop(0)[1]
        else:
            if self.live_tile == f.tsel:
                self.live = {}  # a sweep on the other accumulator goes on
            if f.dnode and f.dbuf != 0:
                granules = [g for t in range(f.n) for g in subtile_granules(tile[t])]
            else:
                granules = [self._fp16(tile[t]) for t in range(f.n)]
        if target is not None:
            offset = bits(f.addr, 20, 5)
            return [
                Burst(*target, f.dbuf, offset + i, tuple(granules[i : i + 8]), f.dflags, f.dack)
                for i in range(0, len(granules), 8)
            ]
        for t, word in enumerate(granules):
            self.memory.store(base + 32 * t, word)
        return []

    def _drain_range(self, f: Fields) -> int:
        base = local_offset(self.mesh, f.addr)
        if base % 32 or base + 32 * f.n > self.memory.size:
            raise Raised("ADDRESS", f.addr)
        for t in range(0, f.n, 8):
            last = min(t + 8, f.n) - 1
            if (base + 32 * t) // PAGE != (base + 32 * last) // PAGE:
                raise Raised("PAGE", base + 32 * t)
        return base

    def _node(self, f: Fields) -> tuple[int, int, int]:
        where = (f.dmesh, f.dfin & 15, f.dfin >> 4) if f.dfin else (self.mesh, *f.dst)
        if f.addr % 32 or f.addr >> 21:
            raise Raised("ADDRESS", f.addr)
        if f.dfin:
            if self.kinds.get((self.mesh, *f.dst)) != "port":
                raise Raised("NODE", self.mesh, *f.dst)
            if f.dflags & 1 and f.dack == (0, 0):
                raise Raised("FIELD", 0)
        kind = self.kinds.get(where)
        takes = {"VC": (0, 2) if "r2_acc_to_vc" in self.options else (0,), "MG": (2, 5) if self.dual else (2,)}
        if f.dbuf not in takes.get(kind or "", ()):
            raise Raised("NODE", *where)
        granules = f.n if f.dbuf == 0 else 2 * f.n
        capacity = 512 if kind == "VC" else 2 * self.tiles
        if bits(f.addr, 20, 5) + granules > capacity:
            raise Raised("L1_RANGE", bits(f.addr, 20, 5), granules, capacity)
        return where

    # --- CU_DATA (4.2) ---

    def receive(self, buf: int, offset: int, granules: tuple[int, ...]) -> None:
        """Accept a burst, or drop it whole and report it at the next retirement."""
        n = len(granules)
        if buf in (0, 1) and offset + n <= 4 * self.capacity[buf]:
            self._receive_entries(buf, offset, granules)
        elif (buf == 2 or (buf == 5 and self.dual)) and offset % 2 == 0 and n % 2 == 0 and offset + n <= 2 * self.tiles:
            first, tile = offset // 2, self.accumulators[buf == 5]
            for t in range(first, first + n // 2):
                if t >= len(tile):
                    raise Raised("TILE_UNOPENED", t)
            for i in range(0, n, 2):
                value = granules_subtile(granules[i], granules[i + 1])
                old = tile[first + i // 2]
                tile[first + i // 2] = [add22(x, y) for x, y in zip(old, value)]
        else:
            self.bad_burst = True

    def _receive_entries(self, buf: int, offset: int, granules: tuple[int, ...]) -> None:
        """Packed entries, each committed by its word 3; a commit without the first three words is a bad burst."""
        n = len(granules)
        for (side, bank), (first, count) in self.live.items():
            touched = {(offset + i) // 4 for i in range(n)}
            swept = {self._index(side, bank, first + i) for i in range(count)}
            if side == buf and touched & swept:
                raise Raised("LIVE_SWEEP", buf)
        arriving = dict(self.arriving[buf])
        for i, word in enumerate(granules):
            arriving[offset + i] = word
            if (offset + i) % 4 == 3:
                index = (offset + i) // 4
                if any(4 * index + w not in arriving for w in range(3)):
                    self.bad_burst = True
                    return
                words = [arriving.pop(4 * index + w) for w in range(4)]
                self.l1[buf][index] = unpack_entry(words, buf == 1)
        self.arriving[buf].clear()
        self.arriving[buf].update(arriving)
