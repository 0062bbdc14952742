"""Which kernels of a schedule become one.

Decides from what each kernel reads and writes alone: a value that nobody keeps is no reason for two kernels, where
all that read it can follow in the same one. It must not know tinygrad, graphs or machines.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush


@dataclass(frozen=True)
class Item:
    """One launch. size: what it counts for in `most`; 0 for one that stays by itself.

    inner: of what it writes, buffers that nobody can see after the schedule.
    """

    reads: frozenset[Hashable]
    writes: frozenset[Hashable]
    inner: frozenset[Hashable] = frozenset()
    size: int = 0


def groups(items: Sequence[Item], most: int) -> list[list[int]]:
    """All items in an order that keeps every dependence; those that become one stand in one list, in their own order.

    most: the greatest sum of sizes of a list of several.
    """
    before = _needed(items)
    of = list(range(len(items)))
    readers: dict[Hashable, set[int]] = {}
    for n, item in enumerate(items):
        for buffer in item.reads:
            readers.setdefault(buffer, set()).add(n)
    for n, item in enumerate(items):
        for buffer in sorted(item.inner, key=str):
            joining = {of[m] for m in readers.get(buffer, ())} | {of[n]}
            members = [m for m in range(len(items)) if of[m] in joining]
            if len(joining) < 2 or any(not items[m].size for m in members):
                continue
            if sum(items[m].size for m in members) > most or _written_twice(items, members):
                continue
            trial = [min(joining) if one in joining else one for one in of]
            if _ordered(trial, before) is not None:
                of = trial
    order = _ordered(of, before)
    assert order is not None
    return [[m for m in range(len(items)) if of[m] == one] for one in order]


def _written_twice(items: Sequence[Item], members: Sequence[int]) -> bool:
    """Whether joined kernels would write a buffer again."""
    written: set[Hashable] = set()
    for m in members:
        if written & items[m].writes:
            return True
        written |= items[m].writes
    return False


def _needed(items: Sequence[Item]) -> list[set[int]]:
    """For each item, the earlier ones that it has to follow."""
    before: list[set[int]] = []
    writer: dict[Hashable, int] = {}
    readers: dict[Hashable, set[int]] = {}
    for n, item in enumerate(items):
        needed = {writer[b] for b in item.reads | item.writes if b in writer}
        for b in item.writes:
            needed |= readers.pop(b, set())
            writer[b] = n
        for b in item.reads - item.writes:
            readers.setdefault(b, set()).add(n)
        before.append(needed - {n})
    return before


def _ordered(of: Sequence[int], before: Sequence[set[int]]) -> list[int] | None:
    """The lists in an order of their dependences, the earliest first; None where they go round in a circle."""
    needs: dict[int, set[int]] = {one: set() for one in dict.fromkeys(of)}
    for n, earlier in enumerate(before):
        needs[of[n]] |= {of[m] for m in earlier} - {of[n]}
    order: list[int] = []
    left = {one: len(needed) for one, needed in needs.items()}
    follow: dict[int, list[int]] = {}
    for one, needed in needs.items():
        for other in needed:
            follow.setdefault(other, []).append(one)
    ready = [one for one, count in left.items() if not count]
    heapify(ready)
    while ready:
        order.append(heappop(ready))
        for one in follow.get(order[-1], ()):
            left[one] -= 1
            if not left[one]:
                heappush(ready, one)
    return order if len(order) == len(needs) else None
