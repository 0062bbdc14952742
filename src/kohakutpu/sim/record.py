"""What a run of the compiled clock recorded, as a timeline.

It decides how numbers become names. It must not know why anything happened.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from kohakuaccel.image import Image
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.sim import Flow, LaterDict, LaterList, LaterSpans, SpanTable, Stage, Timeline, Track
from kohakuaccel.sim.timeline import Points
from kohakutpu.sim import state as st
from kohakutpu.sim.parts import CREDITS, KINDS, flits, port_bytes, words
from kohakutpu.sim.streams import WORD, Streams
from kohakutpu.sim.topology import Topology, topology

LEAST = 0.02  # links that carry less than this part of what they could have no series
WINDOWS = 64  # of a launch in a series


def fill(timeline: Timeline, machine: Machine, image: Image, tables: Streams, state: st.State) -> None:
    """Fill in a timeline of `machine` from the state in which a run of `image` ended."""
    known = topology(machine)
    ends = state.tables["groups"][:, 2].tolist()
    timeline.cycles = ends[-1] if ends else 0
    _stages(timeline, image, tables, ends)
    used = _tracks(timeline, known, state)
    # Copies of the rows, so that what is not looked at yet does not hold the whole state.
    spans = state.tables["spans"][: state.words[st.M_SPANS]].copy()
    flows = state.tables["flows"][: state.words[st.M_FLOWS]].copy()
    timeline.spans = LaterSpans(partial(_spans, timeline.cycles, machine.units, known.tracks, used, spans))
    timeline.flows = LaterList(partial(_flows, timeline.cycles, used, flows))
    timeline.sources = list(image.sources)
    read, written = int(state.tables["port"][:, st.P_READ].sum()), int(state.tables["port"][:, st.P_WRITTEN].sum())
    timeline.counters.update(
        {
            "rounds": len(ends),
            "flits": int(tables.windows[:, 2].sum()),
            "bytes read": WORD * read,
            "bytes written": WORD * written,
            "events": int(state.words[st.M_SEQ]),
        }
    )
    timeline.levels = dict(tables.sums.levels)
    link = state.tables["link"]
    ports = [int(row[column]) for column in (st.P_READ_TRACK, st.P_WRITE_TRACK) for row in state.tables["port"]]
    links = link[link[:, st.K_BUSY] >= max(1.0, LEAST * timeline.cycles), st.K_TRACK].tolist()
    timeline.series = LaterDict(partial(_series, timeline.cycles, known.tracks, ports, links, spans))
    p = machine.params
    clusters, cores = len(machine.units_of("MG")), len(machine.units_of("VC"))
    timeline.peaks = {
        "MAC/cycle": float(p.macs_per_cycle * clusters),
        "FLOP/cycle": float(p.vlanes * cores),
        "port B/cycle": float(WORD * len(machine.ports)),
    }


def _stages(timeline: Timeline, image: Image, tables: Streams, ends: list[int]) -> None:
    before = 0
    for group, (number, end) in enumerate(zip(tables.stage_of, ends)):
        if group and number == tables.stage_of[group - 1]:
            last = timeline.stages.pop()
            start, rounds = last.start, last.rounds + 1
        else:
            start, rounds = before, 1
        line = tables.sums.line[number]
        timeline.stages.append(
            Stage(
                f"stage {number}",
                start,
                end,
                rounds,
                image.sources[line] if 0 <= line < len(image.sources) else None,
                int(tables.sums.macs[number]),
                0,
                int(tables.sums.nbytes[number]),
            )
        )
        before = end


def _tracks(timeline: Timeline, known: Topology, state: st.State) -> np.ndarray:
    """Adds the tracks, links without a flit left out; the new number of each of the machine's tracks."""
    idle = {int(row[st.K_TRACK]) for row in state.tables["link"] if row[st.K_BUSY] == 0}
    used = np.full(len(known.tracks) + 1, -1, np.int64)
    for number, track in enumerate(known.tracks):
        if number not in idle:
            used[number] = timeline.track(track.name, track.group)
    return used


def _spans(cycles: int, units: tuple[Unit, ...], tracks: tuple[Track, ...], used: st.Ints, rows: st.Ints) -> SpanTable:
    """Recorded spans as a table, cut off where the run ends; used: new numbers of tracks."""
    rows = rows[rows[:, st.S_START] < cycles]
    codes, text = np.unique(rows[:, st.S_TEXT], return_inverse=True)
    on = rows[:, st.S_ON]
    waited, which = np.unique(on[on >= 0], return_inverse=True)
    names: dict[str, None] = dict.fromkeys(KINDS)
    unit_names = [u.name for u in units]
    texts = [words(code, unit_names) for code in codes.tolist()]
    ons = [CREDITS if n == st.ON_CREDITS else tracks[n].name for n in waited.tolist()]
    names.update(dict.fromkeys(texts))
    names.update(dict.fromkeys(ons))
    place = {name: n for n, name in enumerate(names)}
    on_names = np.full(len(rows), -1, np.int64)
    on_names[on >= 0] = np.array([place[name] for name in ons], np.int64)[which]
    return SpanTable(
        list(names),
        used[rows[:, st.S_TRACK]],
        rows[:, st.S_START].copy(),
        np.minimum(rows[:, st.S_END], cycles),
        rows[:, st.S_KIND].copy(),
        np.array([place[t] for t in texts], np.int64)[text] if len(rows) else np.zeros(0, np.int64),
        on_names,
        rows[:, st.S_LINE].copy(),
    )


def _flows(cycles: int, used: st.Ints, rows: st.Ints) -> list[Flow]:
    rows = rows[rows[:, 4] < cycles]
    rows[:, 1], rows[:, 3] = used[rows[:, 1]], used[rows[:, 3]]
    return [Flow(f"{'AB'[side]} operand", *rest) for side, *rest in rows.tolist()]


def _series(
    cycles: int, tracks: tuple[Track, ...], ports: list[int], links: list[int], rows: st.Ints
) -> dict[str, Points]:
    """Bytes per cycle of ports, flits per cycle of links over WINDOWS windows, from the spans that stand for them."""
    found: dict[str, Points] = {}
    rows = rows[rows[:, st.S_KIND] == st.SERVE]
    edges = np.linspace(0, cycles, min(WINDOWS, cycles) + 1).astype(np.int64)
    for amount, unit, numbers in (
        (port_bytes(rows[:, st.S_TEXT]), "B/cycle", ports),
        (flits(rows[:, st.S_TEXT]), "flits/cycle", links),
    ):
        for track in numbers:
            mine = np.flatnonzero(rows[:, st.S_TRACK] == track)
            mine = mine[np.argsort(rows[mine, st.S_START], kind="stable")]
            # What a span stands for arrives evenly over it: the sum up to a cycle is a broken line.
            sums = np.zeros(len(edges))
            if len(mine):
                much = np.cumsum(amount[mine])
                at = np.ravel(rows[mine][:, [st.S_START, st.S_END]])
                sums = np.interp(edges, at, np.ravel(np.stack([much - amount[mine], much], 1)))
            values = np.diff(sums) / np.diff(edges)
            keep = np.flatnonzero(np.diff(values, prepend=-1.0))
            found[f"{tracks[track].name} {unit}"] = list(zip(edges[keep].tolist(), values[keep].tolist()))
    return found
