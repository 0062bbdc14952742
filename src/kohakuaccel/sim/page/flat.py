"""Overlapping spans of one row as pieces that follow each other: what a row of a drawing can show.

It decides which span shows where several run: the one of the lowest rank, and of those the one that started last.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def flattened(start: Sequence[int], end: Sequence[int], rank: Sequence[int]) -> dict[str, list[int]]:
    """Pieces as columns: s, the distance from the start of the piece before; d, cycles; i, which span.

    start, end, rank: per span, starts not falling.
    """
    pieces: dict[str, list[int]] = {"s": [], "d": [], "i": []}
    running: list[tuple[int, int, int]] = []
    before, after = 0, -1

    def piece(low: int, high: int, index: int) -> None:
        nonlocal before, after
        if low == after and pieces["i"][-1] == index:
            pieces["d"][-1] += high - low
        else:
            pieces["s"].append(low - before)
            pieces["d"].append(high - low)
            pieces["i"].append(index)
            before = low
        after = high

    def until(now: int, limit: int | None) -> None:
        """Show what runs from `now` up to `limit`, or to the end of everything."""
        while running and (limit is None or now < limit):
            index = running[0][2]
            if end[index] <= now:
                heapq.heappop(running)
                continue
            high = end[index] if limit is None else min(end[index], limit)
            piece(now, high, index)
            now = high

    now = 0
    for index, low in enumerate(start):
        until(now, low)
        now = low
        heapq.heappush(running, (rank[index], -low, index))
    until(now, None)
    return pieces
