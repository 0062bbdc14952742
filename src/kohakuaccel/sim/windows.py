"""Sums of a timeline's spans over windows of time, for all windows in one pass.

It decides how cycles of overlapping spans are counted: within a group, a cycle belongs to the most telling kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.sim.spans import SpanTable, covered
from kohakuaccel.sim.timeline import IDLE, SERVE, Share

if TYPE_CHECKING:
    from kohakuaccel.sim.timeline import Timeline


class Windows:
    """edges: window w reaches from `edges[w]` up to `edges[w + 1]`."""

    def __init__(self, timeline: Timeline, edges: Sequence[int]) -> None:
        self.timeline = timeline
        self.edges = np.asarray(edges, np.int64)
        self.table = table = SpanTable.of(timeline.spans)
        self._cover: list[list[list[int]]] | None = None
        row, window, cycles = table.clipped(self.edges)
        order = np.argsort(window, kind="stable")
        self._row, self._cycles = row[order], cycles[order]
        self._cut = np.searchsorted(window[order], np.arange(len(self.edges)))
        self._waiting = table.on[self._row] >= 0
        self._serving = table.kind[self._row] == table.number(SERVE)

    def _covered(self) -> list[list[list[int]]]:
        """Cycles by group, kind (in the timeline's order) and window, of the first kind at each cycle."""
        if self._cover is None:
            t, table = self.timeline, self.table
            groups = {group: n for n, group in enumerate(t.groups)}
            group_of = np.array([groups[track.group] for track in t.tracks], np.int64)
            group = group_of[table.track] if len(table) else np.zeros(0, np.int64)
            order = np.argsort(group, kind="stable")
            cut = np.searchsorted(group[order], np.arange(len(groups) + 1))
            known = [table.number(kind) for kind in t.kinds]
            found: list[list[list[int]]] = []
            for n in range(len(groups)):
                rows = order[cut[n] : cut[n + 1]]
                kind, low, high = table.kind[rows], table.start[rows], table.end[rows]
                taken = np.zeros(len(rows), np.bool_)
                before = np.zeros(len(self.edges), np.int64)
                by_kind: list[list[int]] = []
                for number in known:
                    these = kind == number
                    if these.any():
                        taken |= these
                        now = covered(low[taken], high[taken], self.edges)
                    else:
                        now = before
                    by_kind.append(np.diff(now - before).tolist())
                    before = now
                found.append(by_kind)
            self._cover = found
        return self._cover

    def shares(self, window: int) -> list[Share]:
        """What each group did, in the order of the tracks."""
        t = self.timeline
        total = int(self.edges[window + 1] - self.edges[window])
        shares: list[Share] = []
        for group, by_kind in zip(t.groups, self._covered()):
            kinds = {kind: cycles[window] for kind, cycles in zip(t.kinds, by_kind) if cycles[window]}
            busy = sum(n for kind, n in kinds.items() if kind in t.work)
            kinds[IDLE] = total - sum(kinds.values())
            shares.append(Share(group, total, kinds, busy))
        return shares

    def waits(self, window: int, group: str | None = None) -> dict[str, int]:
        """Cycles waited, by what was waited for, longest first: those of one group, or of all."""
        which = self._waiting
        if group is not None:
            tracks = [n for n, track in enumerate(self.timeline.tracks) if track.group == group]
            which = which & np.isin(self.table.track[self._row], tracks)
        return {name: cycles for name, (cycles, _) in self._sums(window, self.table.on, which).items()}

    def top(self, window: int) -> dict[str, tuple[int, int]]:
        """(cycles, times) by text of what units worked at, longest first."""
        return self._sums(window, self.table.text, ~self._waiting & ~self._serving)

    def _sums(self, window: int, column: np.ndarray, which: np.ndarray) -> dict[str, tuple[int, int]]:
        part = slice(self._cut[window], self._cut[window + 1])
        these = which[part]
        key = column[self._row[part][these]]
        size = len(self.table.names)
        times = np.bincount(key, minlength=size)
        cycles = np.zeros(size, np.int64)
        np.add.at(cycles, key, self._cycles[part][these])
        found = [n for n in np.argsort(-cycles, kind="stable").tolist() if times[n]]
        return {self.table.names[n]: (int(cycles[n]), int(times[n])) for n in found}
