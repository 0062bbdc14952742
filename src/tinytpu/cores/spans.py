"""The timeline of a system of cores: what every core did when, what the network carried, whom the host's link served.

It decides which cycles count as work. Sums, reports and exports are `kohakuaccel.sim`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.sim import SERVE, Span, Stage, Timeline
from tinytpu.cores import state as s
from tinytpu.cores.system import Ran

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = ("execute", "load", "output", "move", SERVE, "wait")
_LINK_STATES = {s.LOADING: "load", s.PUTTING: "output"}


def timeline(ran: Ran, name: str = "system") -> Timeline:
    """The modelled time of a run: a group for each core, the network and the host's link. A core's cycles in a move
    in which neither of its DMAs moves a packet are waiting."""
    machine, p = ran.machine, ran.machine.params
    found = Timeline(name, machine.name, int(p.clock_mhz), KINDS, ("execute", "move", SERVE), cycles=ran.cycles)
    spans: list[Span] = []
    for core in range(len(ran.scripts)):
        track = found.track(f"core {core}")
        busy = np.unique(np.concatenate([ran.packets[ran.routes[:, 0] == core, s.LEFT],
                                         ran.packets[ran.routes[:, 1] == core, s.TAKEN]]))  # fmt: skip
        for _, state, start, end, step in ran.log[ran.log[:, 0] == core].tolist():
            text = ran.scripts[core][step].name
            if state == s.MOVING:
                spans += _move(track, start, end, text, busy)
            elif s.STATES[state] == "link":
                spans.append(Span(track, start, end, "wait", text, "host link"))
            else:
                spans.append(Span(track, start, end, s.STATES[state], text))
    network = found.track("network")
    for (sender, receiver), cycles in _carried(ran).items():
        spans += [Span(network, a, b, SERVE, f"core {sender} to core {receiver}") for a, b in _runs(cycles)]
    links: list[int] = []
    for core, state, start, end, step in sorted(ran.log.tolist(), key=lambda row: row[2]):
        if state in _LINK_STATES:
            free = next((k for k, until in enumerate(links) if until <= start), len(links))
            links[free : free + 1] = [end]
            group = found.tracks[core].name
            text = f"{_LINK_STATES[state]} {group}: {ran.scripts[core][step].name}"
            spans.append(Span(_link(found, free), start, end, SERVE, text))
    found.spans = spans
    runs = [run for script in ran.bundles for run in script if run is not None]
    lanes = int(p.rows * p.columns)
    macs = sum(run.counters["macs"] for run in runs)
    flops = sum(run.counters["vpu_ops"] for run in runs) * lanes
    moved = len(ran.packets) * int(p.noc_packet_words) * 4
    found.stages = [Stage("run", 0, ran.cycles, 1, macs=macs, flops=flops, nbytes=moved)]
    found.counters = {"packets": len(ran.packets), "programs": len(runs), "macs": macs}
    found.counters |= {
        f"waits for {what}": int(n) for what, n in zip(("a place", "the network", "a packet"), ran.waits.sum(0))
    }
    peak = float(lanes * len(ran.scripts))
    found.peaks = {"MAC/cycle": peak, "FLOP/cycle": peak}
    found.levels = {"network": moved}
    found.assumed = (f"clock {p.clock_mhz} MHz", "packets, inboxes, host links")
    return found


def _link(found: Timeline, number: int) -> int:
    name = f"host link {number}"
    known = [track.name for track in found.tracks]
    return known.index(name) if name in known else found.track(name, "host link")


def _carried(ran: Ran) -> dict[tuple[int, int], NDArray[np.int64]]:
    """Cycles in which the network took a packet, by route."""
    routes = sorted(set(map(tuple, ran.routes.tolist())))
    return {(a, b): np.sort(ran.packets[(ran.routes == (a, b)).all(1), s.LEFT]) for a, b in routes}


def _runs(cycles: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Neighbouring cycles as [start, end)."""
    cuts = np.flatnonzero(np.diff(cycles) > 1) + 1
    for part in np.split(cycles, cuts):
        if len(part):
            yield int(part[0]), int(part[-1]) + 1


def _move(track: int, start: int, end: int, text: str, busy: NDArray[np.int64]) -> Iterator[Span]:
    at = start
    for a, b in _runs(busy[(busy >= start) & (busy < end)]):
        if at < a:
            yield Span(track, at, a, "wait", text, "network")
        yield Span(track, a, b, "move", text)
        at = b
    if at < end:
        yield Span(track, at, end, "wait", text, "network")
