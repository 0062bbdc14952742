"""What a cluster's program breaks by its order: opened tiles, live sweeps, fused DRAINs (datasheet 5.3-5.6).

Decides only what the stream and the state carried into it show; field limits are checked elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakutpu.isa.cluster_format import CLUSTER, DESTINATION, DRAIN, FILL, GEMM, SIDES, Columns
from kohakutpu.isa.cluster_r2 import FRESH_DESCRIPTORS, Descriptors
from kohakutpu.isa.rules import Mask, Rules, values


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What a cluster carries from one program to the next.

    opened: per accumulator, (gm, gn) that opened its tile, None before any GEMM. tiles: per accumulator, most sub-tiles
    ever opened. gemm: the last GEMM's row; live: its sweep may still read L1. pending: row of an emitting GEMM whose
    sub-tiles no DRAIN has taken yet. descriptors: those of FILLs (`r2_desc_fill`).
    """

    opened: tuple[tuple[int, int] | None, ...] = (None, None)
    tiles: tuple[int, ...] = (0, 0)
    gemm: tuple[int, ...] | None = None
    live: bool = False
    pending: tuple[int, ...] | None = None
    descriptors: Descriptors = FRESH_DESCRIPTORS


FRESH = ClusterState()


def _last(event: Mask) -> NDArray[np.int64]:
    """int64[n]: number of the last event strictly before each row, -1 where there is none."""
    upto = np.maximum.accumulate(np.where(event, np.arange(len(event)), -1))
    return np.concatenate((np.full(1, -1, np.int64), upto[:-1])) if len(event) else upto


def check_order(c: Columns, table: NDArray[np.int64], state: ClusterState, rules: Rules) -> ClusterState:
    """Rules that look back in the stream: opened tiles, live sweeps, emitting GEMMs and their DRAINs."""
    if len(table) == 0:
        return state
    gemm, drain = c.op == GEMM, c.op == DRAIN
    carried = state.gemm or (0,) * len(CLUSTER.fields)
    back = Columns(np.vstack((table, np.array([carried], np.int64))))  # row -1 is the state's

    opened = list(state.opened)
    tiles = list(state.tiles)
    for accumulator in (0, 1) if (c.tsel != 0).any() or state.opened[1] else (0,):
        opened[accumulator], tiles[accumulator] = _check_opened(c, state, accumulator, rules)

    last_gemm = _last(gemm)
    # A plain DRAIN waits for the sweeps on its own accumulator only: one on the other stays live beside it.
    swept_tile = back.tsel[last_gemm]
    stops = drain & (c.fuse == 0)
    last_stop = np.where(swept_tile == 0, _last(stops & (c.tsel == 0)), _last(stops & (c.tsel == 1)))
    live = (last_gemm > last_stop) | ((last_gemm == -1) & (last_stop == -1) & state.live)
    side_b = c.sel == SIDES["B"]
    swept_bank = np.where(side_b, back.bbank[last_gemm], back.abank[last_gemm])
    swept_first = np.where(side_b, back.boff[last_gemm], back.aoff[last_gemm])
    swept_count = np.where(side_b, back.gn[last_gemm], back.gm[last_gemm]) * back.nk[last_gemm]
    rules.refuse(
        (c.op == FILL)
        & live
        & (swept_bank == c.fbank)
        & (c.eoff < swept_first + swept_count)
        & (swept_first < c.eoff + c.n),
        "eoff",
        "the FILL overwrites entries that a live sweep reads",
        lambda i: f"entries {int(c.eoff[i])}..{int(c.eoff[i] + c.n[i]) - 1} of bank {int(c.fbank[i])}",
        lambda i: f"outside {int(swept_first[i])}..{int(swept_first[i] + swept_count[i]) - 1}",
        "fill other entries; the sweep is live until the next GEMM or non-fused DRAIN",
    )
    pending = _check_fused(c, table, state, rules)
    g = np.flatnonzero(gemm)
    last_g = int(g[-1]) if len(g) else -1
    ended = np.flatnonzero(stops & (c.tsel == back.tsel[last_g]))
    last_s = int(ended[-1]) if len(ended) else -1
    return ClusterState(
        opened=tuple(opened),
        tiles=tuple(tiles),
        gemm=tuple(table[last_g].tolist()) if len(g) else state.gemm,
        live=last_g > last_s if len(g) or len(ended) else state.live,
        pending=pending,
    )


def _check_opened(
    c: Columns, state: ClusterState, accumulator: int, rules: Rules
) -> tuple[tuple[int, int] | None, int]:
    """GEMMs that add and plain DRAINs of one accumulator find its tile opened; returns what is open at the end."""
    mine = c.tsel == accumulator
    opening = (c.op == GEMM) & (c.acc == 0) & mine
    carried = state.opened[accumulator]
    last_open = _last(opening)
    opened_m = np.append(c.gm, carried[0] if carried else 0)[last_open]
    opened_n = np.append(c.gn, carried[1] if carried else 0)[last_open]
    rules.refuse(
        (c.op == GEMM) & (c.acc == 1) & mine & ((opened_m != c.gm) | (opened_n != c.gn)),
        "acc",
        "the GEMM adds to a tile that this shape did not open",
        lambda i: f"{int(c.gm[i])}x{int(c.gn[i])}",
        lambda i: f"{int(opened_m[i])}x{int(opened_n[i])}" if opened_m[i] else "no tile is open",
        "open the tile with acc=0 and the same gm, gn",
    )
    most = np.maximum.accumulate(np.where(opening, c.gm * c.gn, 0))
    most = np.maximum(most, state.tiles[accumulator])
    rules.refuse(
        (c.op == DRAIN) & mine & (c.n > most) & (c.fuse == 0),
        "n",
        "the DRAIN reads sub-tiles that no GEMM opened",
        values(c.n),
        lambda i: f"{int(most[i])} opened",
        "run the GEMM first, or drain gm*gn sub-tiles",
    )
    last = np.flatnonzero(opening)
    return (int(c.gm[last[-1]]), int(c.gn[last[-1]])) if len(last) else carried, int(most[-1])


def _check_fused(c: Columns, table: NDArray[np.int64], state: ClusterState, rules: Rules) -> tuple[int, ...] | None:
    """Emitting GEMMs and fused DRAINs alternate, and agree (datasheet 5.4)."""
    emits = (c.op == GEMM) & (c.emit == 1)
    fused = (c.op == DRAIN) & (c.fuse == 1)
    events = np.flatnonzero(emits | fused)
    if len(events) == 0:
        return state.pending
    is_drain = fused[events]
    before_emits = np.concatenate((np.array([state.pending is not None]), ~is_drain[:-1]))
    rules.refuse(
        is_drain & ~before_emits,
        "fuse",
        "a fused DRAIN follows an emitting GEMM",
        lambda _i: "no emitting GEMM before it",
        "one emitting GEMM per fused DRAIN",
        "set emit=1 on the last GEMM of the tile, or fuse=0",
        events,
    )
    rules.refuse(
        ~is_drain & before_emits,
        "emit",
        "the sub-tiles of the previous emitting GEMM were not drained",
        lambda _i: "two emitting GEMMs in a row",
        "one fused DRAIN between them",
        "put the DRAIN fuse=1 of the first tile before this GEMM",
        events,
    )
    pairs = np.flatnonzero(is_drain & before_emits)
    carried = np.array(state.pending if state.pending is not None else (0,) * len(CLUSTER.fields), np.int64)
    drained = table[events[pairs]]
    previous = pairs - 1
    source = table[events[np.maximum(previous, 0)]].copy()
    source[previous < 0] = carried
    handed = source[:, CLUSTER.column("gm")] * source[:, CLUSTER.column("gn")]
    n = drained[:, CLUSTER.column("n")]
    at = events[pairs]
    rules.refuse(
        n != handed,
        "n",
        "a fused DRAIN takes exactly what its GEMM hands out (gm*gn)",
        values(n),
        lambda i: f"{int(handed[i])}",
        "set n = gm*gn",
        at,
    )
    for name in DESTINATION:
        column = CLUSTER.column(name)
        field = CLUSTER[name]
        ours, theirs = drained[:, column], source[:, column]
        rules.refuse(
            ours != theirs,
            name,
            "a fused DRAIN and its emitting GEMM carry the same destination",
            lambda i, ours=ours, field=field: field.text(int(ours[i])),
            lambda i, theirs=theirs, field=field: f"{field.text(int(theirs[i]))}, as the GEMM says",
            "copy addr, dnode, dst, dbuf, dflags, dack, dmesh, dfin and tsel into the GEMM",
            at,
        )
    if is_drain[-1]:
        return None
    return tuple(table[events[-1]].tolist())
