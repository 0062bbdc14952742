"""Where a device memory's bytes are: an aligned, coalescing first-fit arena with counters and a printable map.

It decides addresses and nothing else; it must not know what a buffer holds, nor the bus it lies behind.
Released blocks arrive through a queue, because a garbage-collected buffer may be finalised in the middle of an
allocation of the same thread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
from typing import cast

from kohakuaccel.diagnostics import OutOfMemory, Refusal

GRANULE = 256  # sizes are rounded up to this many bytes, so neighbours never share a burst
MAP_ROWS = 24  # most rows a printed map has


@dataclass(frozen=True, slots=True)
class Block:
    """A live allocation: [address, address + nbytes) of which `asked` bytes were requested."""

    address: int
    nbytes: int
    asked: int
    label: str


@dataclass(frozen=True, slots=True)
class ArenaStats:
    """Bytes of an arena. `fragmentation` = 1 - largest hole / free bytes (0 when nothing is free)."""

    size: int
    used: int
    peak: int
    free: int
    largest_hole: int
    holes: int
    blocks: int
    allocations: int
    frees: int

    @property
    def fragmentation(self) -> float:
        return 1.0 - self.largest_hole / self.free if self.free else 0.0


def _bytes(n: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n >= 1 << shift:
            return f"{n / (1 << shift):.1f} {unit}"
    return f"{n} B"


class Arena:
    """Addresses base .. base + size - 1, handed out in multiples of `align` bytes (a power of two)."""

    def __init__(self, base: int, size: int, align: int = GRANULE, name: str = "memory") -> None:
        if align <= 0 or align & (align - 1):
            raise Refusal("an alignment is a power of two", where=name, got=align)
        self.base, self.size, self.align, self.name = base, size, align, name
        self._starts = [base] if size else []
        self._ends = [base + size] if size else []
        self._live: dict[int, Block] = {}
        self._returned: deque[int] = deque()
        self._used = self._peak = self._allocations = self._frees = 0

    def alloc(self, nbytes: int, align: int = 0, label: str = "", at: int | None = None) -> Block:
        """First hole that holds `nbytes` at `align` (at least the arena's own). Raises OutOfMemory with the map.

        at: an address that is taken instead where it is free: what was placed there before may be done again as it was.
        """
        if nbytes < 0:
            raise Refusal("a buffer has at least 0 bytes", where=self.name, got=nbytes)
        if align < 0 or align & (align - 1):
            raise Refusal("an alignment is a power of two", where=self.name, got=align)
        align = max(align, self.align)
        self._collect()
        need = max(-(-nbytes // GRANULE), 1) * GRANULE
        starts, ends = self._starts, self._ends
        wanted = None if at is None or at % align else self._hole(at, need)
        for i in range(len(starts)) if wanted is None else (wanted,):
            start, end = starts[i], ends[i]
            address = (start + align - 1) & -align if wanted is None else cast(int, at)
            if address + need > end:
                continue
            if address + need < end:
                starts[i] = address + need
            else:
                del starts[i], ends[i]
            if address > start:
                starts.insert(i, start)
                ends.insert(i, address)
            block = Block(address, need, nbytes, label)
            self._live[address] = block
            self._used += need
            self._peak = max(self._peak, self._used)
            self._allocations += 1
            return block
        raise OutOfMemory(
            "the device memory has no hole for a buffer",
            where=self.name,
            got=f"{need} bytes ({_bytes(need)}) aligned to {align}",
            limit=f"{self.stats().largest_hole} bytes (largest hole)",
            hint="free tensors, call empty_cache(), or split the work.\n" + self.map(),
        )

    def _hole(self, address: int, need: int) -> int | None:
        """The number of the hole that holds `need` bytes from `address` on."""
        i = bisect_right(self._starts, address) - 1
        return i if i >= 0 and address + need <= self._ends[i] else None

    def release(self, address: int) -> None:
        """Queue the block at `address` for freeing. Safe from a finaliser: touches nothing but the queue."""
        self._returned.append(address)

    def free(self, address: int) -> None:
        """Give the block at `address` back at once, joining it with its free neighbours."""
        self._collect()
        self._free(address)

    def _collect(self) -> None:
        while self._returned:
            self._free(self._returned.popleft())

    def _free(self, address: int) -> None:
        block = self._live.pop(address, None)
        if block is None:
            raise Refusal("only a live block can be freed", where=self.name, got=f"{address:#x}")
        self._used -= block.nbytes
        self._frees += 1
        start, end = address, address + block.nbytes
        starts, ends = self._starts, self._ends
        i = bisect_left(starts, start)
        if i < len(starts) and starts[i] == end:
            end = ends[i]
            del starts[i], ends[i]
        if i and ends[i - 1] == start:
            ends[i - 1] = end
        else:
            starts.insert(i, start)
            ends.insert(i, end)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Live blocks by address."""
        self._collect()
        return tuple(self._live[a] for a in sorted(self._live))

    @property
    def holes(self) -> tuple[tuple[int, int], ...]:
        """Free ranges (start, end) by address; no two touch."""
        self._collect()
        return tuple(zip(self._starts, self._ends, strict=True))

    def stats(self) -> ArenaStats:
        """Byte and fragmentation counters now."""
        self._collect()
        sizes = [e - s for s, e in zip(self._starts, self._ends, strict=True)]
        free = sum(sizes)
        largest = max(sizes, default=0)
        return ArenaStats(
            self.size,
            self._used,
            self._peak,
            free,
            largest,
            len(sizes),
            len(self._live),
            self._allocations,
            self._frees,
        )

    def map(self) -> str:
        """The memory as text: totals, then one row per block and hole (the smallest left out beyond 24 rows)."""
        s = self.stats()
        rows = [(b.address, b.nbytes, b.label or "buffer") for b in self.blocks]
        rows += [(start, end - start, "free") for start, end in self.holes]
        shown = sorted(sorted(rows, key=lambda r: (-r[1], r[0]))[:MAP_ROWS])
        lines = [
            f"{self.name}: {_bytes(s.size)}, used {_bytes(s.used)} in {s.blocks} blocks, free {_bytes(s.free)} in "
            f"{s.holes} holes, largest {_bytes(s.largest_hole)}, fragmentation {s.fragmentation:.0%}"
        ]
        lines += [f"  {a:#012x} .. {a + n - 1:#012x}  {_bytes(n):>10}  {what}" for a, n, what in shown]
        if len(rows) > len(shown):
            rest = sum(n for _, n, _ in rows) - sum(n for _, n, _ in shown)
            lines.append(f"  and {len(rows) - len(shown)} smaller ranges, {_bytes(rest)} in all")
        return "\n".join(lines)
