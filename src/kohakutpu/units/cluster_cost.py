"""What a cluster's instructions cost on their own, with no contention (datasheet 8.1, 8.2).

Decides cycles from shapes and the machine's timing values; it must not know data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohakuaccel.jit import kernel
from kohakutpu.units.cluster_state import (
    BUSY,
    COMPUTE,
    FILL_WAIT,
    FIRST_EMIT,
    HOPS,
    IDLE,
    NOW,
    SWEEP_ISSUE,
    SWEEP_NEXT,
    SWEEP_START,
    T_ACC_IDLE,
    T_DRAIN_BURST,
    T_DRAIN_LONG,
    T_DRAIN_SHORT,
    T_DRAIN_WORD,
    T_EMIT,
    T_ENDPOINT,
    T_ENTRY_FP16,
    T_ENTRY_FP16_EXTRA,
    T_ENTRY_PREQ,
    T_FILL_BASE,
    T_FILL_FP16,
    T_L,
    T_REUSE,
    T_ROUTER,
    T_SERIAL,
    T_SWEEP_GAP,
    T_SWEEP_TAIL,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@kernel(inline="always")
def pace_of(timing: NDArray[np.int64], subtiles: int, nk: int) -> int:
    """Idle cycles after each issue, so that commands to one sub-tile are `reuse_min` apart (5.3)."""
    if nk <= 1:
        return 0
    return (timing[T_REUSE] + subtiles - 1) // subtiles - 1


@kernel(inline="always")
def sweep_issue(timing: NDArray[np.int64], gm: int, gn: int, nk: int) -> int:
    """Issue cycles N of a sweep."""
    total = gm * gn * nk
    return total + pace_of(timing, gm * gn, nk) * (total - 1)


@kernel(inline="always")
def sweep_busy(timing: NDArray[np.int64], gm: int, gn: int, nk: int) -> int:
    """Cycles the array is busy with a sweep: N + 20."""
    return sweep_issue(timing, gm, gn, nk) + timing[T_SWEEP_TAIL]


@kernel(inline="always")
def fill_cycles(timing: NDArray[np.int64], hops: int, n: int, preq: int, peers: int) -> int:
    """A FILL of n entries through an idle port `hops` routers away, shared with `peers` others (8.1)."""
    out = 4 * (1 + peers)
    if preq:
        period = max(timing[T_ENTRY_PREQ] + timing[T_L], out)
    elif timing[T_SERIAL]:
        period = timing[T_SERIAL]
    else:
        period = max(timing[T_ENTRY_FP16] + timing[T_L] + timing[T_ENTRY_FP16_EXTRA], out)
    way = timing[T_ROUTER] * hops + timing[T_ENDPOINT]
    extra = 0 if preq else timing[T_FILL_FP16]
    return 2 * way + timing[T_FILL_BASE] + extra + n * period


@kernel(inline="always")
def drain_cycles(timing: NDArray[np.int64], words: int) -> int:
    """A non-fused DRAIN of `words` words (two per FP22 sub-tile)."""
    per = timing[T_DRAIN_WORD]
    if words < 8:
        return timing[T_DRAIN_SHORT] + per * words
    rest = words % 8
    return timing[T_DRAIN_LONG] + timing[T_DRAIN_BURST] * (words // 8) + (rest + per if rest else 0)


@kernel(inline="always")
def fused_cycles(timing: NDArray[np.int64], words: int) -> int:
    """A fused DRAIN from the first queued sub-tile: 10 per burst of 8, and the start of a long DRAIN.

    The start (23 - 10) makes the measured point of 8.2: 256 sub-tiles of 16x16x2 retire 84 after the sweep.
    """
    start = timing[T_DRAIN_LONG] - timing[T_DRAIN_BURST]
    return start + timing[T_DRAIN_BURST] * ((words + 7) // 8)


@kernel(inline="always")
def charge_fill(reg: NDArray[np.int64], timing: NDArray[np.int64], n: int, preq: int, peers: int) -> None:
    """Advance one cluster's unit-local time and counters by a FILL. A wait for the members of a shared one has no place
    in a time that is one unit's own."""
    cycles = fill_cycles(timing, reg[HOPS], n, preq, peers)
    reg[NOW] += cycles
    reg[FILL_WAIT] += cycles
    reg[BUSY] = max(reg[BUSY], reg[NOW])


@kernel(inline="always")
def charge_sweep(
    reg: NDArray[np.int64], timing: NDArray[np.int64], gm: int, gn: int, nk: int, accumulator: int, emits: bool
) -> None:
    """A sweep starts: it runs on its own, the next instruction is accepted at once."""
    issue = sweep_issue(timing, gm, gn, nk)
    start = max(reg[NOW], reg[SWEEP_NEXT])
    gap = timing[T_SWEEP_TAIL] + timing[T_SWEEP_GAP] if gm * gn >= timing[T_REUSE] else timing[T_ACC_IDLE]
    reg[NOW] = start
    reg[SWEEP_START] = start
    reg[SWEEP_ISSUE] = issue
    reg[SWEEP_NEXT] = start + issue + gap
    reg[IDLE + accumulator] = start + issue + timing[T_ACC_IDLE]
    if emits:
        reg[FIRST_EMIT] = start + gm * gn * (nk - 1) * (1 + pace_of(timing, gm * gn, nk)) + timing[T_EMIT]
    reg[COMPUTE] += issue
    reg[BUSY] = max(reg[BUSY], start + issue + timing[T_SWEEP_TAIL])


@kernel(inline="always")
def charge_drain(reg: NDArray[np.int64], timing: NDArray[np.int64], words: int, fused: int, accumulator: int) -> None:
    """A DRAIN: a fused one overlaps its sweep, the other waits until its accumulator is idle."""
    if fused:
        reg[NOW] = max(reg[NOW], reg[FIRST_EMIT] + fused_cycles(timing, words))
    else:
        reg[NOW] = max(reg[NOW], reg[IDLE + accumulator]) + drain_cycles(timing, words)
    reg[BUSY] = max(reg[BUSY], reg[NOW])
