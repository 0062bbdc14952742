"""A core's program run once per data set, compiled: one decode, many resets, fills and runs.

Decides what a set finds on the core and what is kept of it; it must not know instructions or limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import boolean, int8, int32, int64, void

from kohakuaccel.jit import leaf, separate
from tinytpu.units import state as s
from tinytpu.units.dispatch import CORE
from tinytpu.units.run import run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tinytpu.units.state import Core

_SLOTS, _CHOSEN, _TILES, _VECTORS = int64[::1], int64[:, ::1], int32[:, ::1], int8[:, ::1]


@leaf
def _zeros(array: NDArray[Any]) -> None:
    flat = array.reshape(-1)
    for i in range(flat.size):
        flat[i] = 0


@separate(void(CORE))
def _reset(core: Core) -> None:
    """The core as `state.reset_core` makes it, but for its program and for what runs add up."""
    _zeros(core.v)
    _zeros(core.vmem)
    _zeros(core.vmem_state)
    _zeros(core.stored_by)
    _zeros(core.wmem)
    _zeros(core.wmem_written)
    _zeros(core.amem)
    _zeros(core.amem_written)
    _zeros(core.psum)
    _zeros(core.psum_written)
    _zeros(core.acc)
    _zeros(core.matrix)
    _zeros(core.results)
    _zeros(core.stat)
    _zeros(core.late)
    _zeros(core.known)
    _zeros(core.loop)
    _zeros(core.reg)


@leaf
def _fill(
    memory: NDArray[Any],
    written: NDArray[np.uint8],
    slots: NDArray[np.int64],
    items: NDArray[Any],
    chosen: NDArray[np.int64],
) -> None:
    for k in range(slots.size):
        slot, item = slots[k], chosen[k]
        for i in range(memory.shape[1]):
            memory[slot, i] = items[item, i]
        written[slot] = s.WRITTEN


@leaf
def _taken(memory: NDArray[Any], written: NDArray[np.uint8], slots: NDArray[np.int64], out: NDArray[Any]) -> bool:
    """Whether every output was written; they are copied."""
    for k in range(slots.size):
        slot = slots[k]
        if written[slot] == 0:
            return False
        for i in range(memory.shape[1]):
            out[k, i] = memory[slot, i]
    return True


@separate(
    int64(CORE, int64, boolean, _SLOTS, _TILES, _CHOSEN, _SLOTS, _VECTORS, _CHOSEN, _SLOTS, _VECTORS, _CHOSEN,
          _SLOTS, int32[:, :, ::1], _SLOTS, int8[:, :, ::1], _TILES, _CHOSEN, _CHOSEN),
    python=True,
)  # fmt: skip
def run_sets(
    core: Core, first: int, sums: bool,
    vmem_slots: NDArray[np.int64], vmem: NDArray[np.int32], vmem_chosen: NDArray[np.int64],
    wmem_slots: NDArray[np.int64], wmem: NDArray[np.int8], wmem_chosen: NDArray[np.int64],
    amem_slots: NDArray[np.int64], amem: NDArray[np.int8], amem_chosen: NDArray[np.int64],
    tile_slots: NDArray[np.int64], tiles: NDArray[np.int32],
    vector_slots: NDArray[np.int64], vectors: NDArray[np.int8],
    results: NDArray[np.int32], ends: NDArray[np.int64], counts: NDArray[np.int64],
) -> int:  # fmt: skip
    """Run the program for every set n: slot `slots[k]` of a memory holds its item `chosen[n, k]`, all else is as after
    reset. tiles, vectors: [n, k, words] outputs; results: [n, columns]; ends: [n, 2] cycle of the HALT, and when the
    last dispatch is done; counts: [n, state.COUNTED]. sums: whether the results are output. Hits, cycles by address and
    lints add up on the core.

    Returns the number of the set that stopped, with reg[WHY] its fault or 0 where an output was never written; else
    the number of sets.
    """
    queued = int64(vector_slots.size > 0)
    for n in range(ends.shape[0]):
        _reset(core)
        _fill(core.vmem, core.vmem_state, vmem_slots, vmem, vmem_chosen[n])
        _fill(core.wmem, core.wmem_written, wmem_slots, wmem, wmem_chosen[n])
        _fill(core.amem, core.amem_written, amem_slots, amem, amem_chosen[n])
        lints = core.counts[s.N_LINTS]
        _zeros(core.counts)
        core.counts[s.N_LINTS] = lints
        fault = run(core, first, queued)
        core.reg[s.WHY] = fault
        if fault or (sums and core.reg[s.DISPATCHED] == 0):
            return n
        if not _taken(core.vmem, core.vmem_state, tile_slots, tiles[n]):
            return n
        if not _taken(core.amem, core.amem_written, vector_slots, vectors[n]):
            return n
        for c in range(results.shape[1]):
            results[n, c] = core.results[c]
        ends[n, 0], ends[n, 1] = core.reg[s.TIME], core.reg[s.DONE]
        for c in range(counts.shape[1]):
            counts[n, c] = core.counts[c]
    return ends.shape[0]
