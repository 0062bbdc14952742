"""The arena: no overlap, alignment, coalescing, counters, and an out-of-memory text that shows the map."""

from __future__ import annotations

import gc
import threading
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from kohakuaccel.device import Arena, Buffer
from kohakuaccel.diagnostics import OutOfMemory, Refusal

BASE, SIZE = 4096, 64 * 1024


class ArenaMachine(RuleBasedStateMachine):
    blocks: Bundle[int] = Bundle("blocks")

    def __init__(self) -> None:
        super().__init__()
        self.arena = Arena(BASE, SIZE, name="test")
        self.live: dict[int, tuple[int, int]] = {}
        self.allocations = self.frees = 0

    @rule(
        target=blocks,
        nbytes=st.integers(0, SIZE // 3),
        align=st.sampled_from([0, 256, 512, 4096]),
        at=st.none() | st.integers(BASE // 128, (BASE + SIZE) // 128).map(lambda n: 128 * n),
    )
    def alloc(self, nbytes: int, align: int, at: int | None) -> int:
        need = max(1, -(-nbytes // 256)) * 256
        fits = any(
            ((start + max(align, 256) - 1) // max(align, 256)) * max(align, 256) + need <= end
            for start, end in self.arena.holes
        )
        free = (
            at is not None
            and at % max(align, 256) == 0
            and any(start <= at and at + need <= end for start, end in self.arena.holes)
        )
        try:
            block = self.arena.alloc(nbytes, align, at=at)
        except OutOfMemory:
            assert not fits
            return -1
        assert fits
        assert not free or block.address == at
        assert block.address % max(align, 256) == 0
        assert block.nbytes == need
        self.live[block.address] = (block.nbytes, nbytes)
        self.allocations += 1
        return block.address

    @rule(address=consumes(blocks), late=st.booleans())
    def free(self, address: int, late: bool) -> None:
        if address < 0:
            return
        (self.arena.release if late else self.arena.free)(address)
        del self.live[address]
        self.frees += 1

    @invariant()
    def ranges_tile_the_arena(self) -> None:
        ranges = [(b.address, b.address + b.nbytes) for b in self.arena.blocks]
        assert [a for a, _ in ranges] == sorted(self.live)
        holes = list(self.arena.holes)
        everything = sorted(ranges + holes)
        assert everything[0][0] == BASE
        assert everything[-1][1] == BASE + SIZE
        for (_, end), (start, _) in pairwise(everything):
            assert end == start  # neither overlap nor gap
        for (_, end), (start, _) in pairwise(holes):
            assert end < start  # two holes never touch: they would have been joined

    @invariant()
    def counters_agree(self) -> None:
        stats = self.arena.stats()
        used = sum(n for n, _ in self.live.values())
        sizes = [end - start for start, end in self.arena.holes]
        assert (stats.used, stats.free) == (used, SIZE - used)
        assert stats.largest_hole == max(sizes, default=0)
        assert (stats.blocks, stats.holes) == (len(self.live), len(sizes))
        assert (stats.allocations, stats.frees) == (self.allocations, self.frees)
        assert stats.peak >= stats.used
        expected = 1 - stats.largest_hole / stats.free if stats.free else 0
        assert stats.fragmentation == pytest.approx(expected)


TestArenaMachine = ArenaMachine.TestCase
TestArenaMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_out_of_memory_shows_the_map() -> None:
    arena = Arena(0, 4096, name="DRAM of mesh 0")
    arena.alloc(1024, label="weights")
    middle = arena.alloc(1024)
    arena.alloc(1024, label="bias")
    arena.free(middle.address)
    with pytest.raises(OutOfMemory) as caught:
        arena.alloc(2048)
    assert str(caught.value) == (
        "DRAM of mesh 0: the device memory has no hole for a buffer; got 2048 bytes (2.0 KiB) aligned to 256; "
        "the limit is 1024 bytes (largest hole). "
        "Free tensors, call empty_cache(), or split the work.\n"
        "DRAM of mesh 0: 4.0 KiB, used 2.0 KiB in 2 blocks, free 2.0 KiB in 2 holes, largest 1.0 KiB, "
        "fragmentation 50%\n"
        "  0x0000000000 .. 0x00000003ff     1.0 KiB  weights\n"
        "  0x0000000400 .. 0x00000007ff     1.0 KiB  free\n"
        "  0x0000000800 .. 0x0000000bff     1.0 KiB  bias\n"
        "  0x0000000c00 .. 0x0000000fff     1.0 KiB  free"
    )
    assert arena.stats().used == 2048  # a refused allocation changes nothing


def test_a_long_map_is_cut() -> None:
    arena = Arena(0, 1 << 20)
    for _ in range(100):
        arena.alloc(256)
    lines = arena.map().splitlines()
    assert len(lines) == 26
    assert lines[-1] == "  and 77 smaller ranges, 19.2 KiB in all"


def test_refusals() -> None:
    arena = Arena(0, 4096, name="test")
    with pytest.raises(Refusal, match="at least 0 bytes"):
        arena.alloc(-1)
    with pytest.raises(Refusal, match="power of two"):
        arena.alloc(8, align=3)
    with pytest.raises(Refusal, match="only a live block can be freed"):
        arena.free(256)
    with pytest.raises(Refusal, match="power of two"):
        Arena(0, 4096, align=100)


def test_a_buffer_returns_its_block_when_collected_or_freed() -> None:
    arena = Arena(0, 4096)
    first = Buffer(arena, 1000, label="first")
    second = Buffer(arena, 10)
    assert (first.address, second.address) == (0, 1024)
    del first
    gc.collect()
    assert arena.stats().used == 256
    second.free()
    second.free()
    assert arena.stats().used == 0
    assert not second.live
    with pytest.raises(Refusal, match="a freed buffer has no address"):
        _ = second.address
    assert "freed" in repr(second)
    again = Buffer(arena, 4096)
    assert again.address == 0


def test_buffers_collected_by_other_threads() -> None:
    arena = Arena(0, 1 << 20)
    lock = threading.Lock()

    def churn() -> None:
        for _ in range(200):
            with lock:
                buffer = Buffer(arena, 700)
            del buffer  # finalised outside the lock: goes through the queue

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    stats = arena.stats()
    assert (stats.used, stats.holes, stats.frees) == (0, 1, 800)
