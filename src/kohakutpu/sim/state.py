"""The clock's state as plain arrays: events, instructions, units, ports, links, and what is recorded of them.

It decides where each value is kept. It must not know what an event does. Times are cycles; a cycle of -1 has not come.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Columns of State.misc.
(
    M_NOW,
    M_SEQ,
    M_HEAP,
    M_SPANS,
    M_FLOWS,
    M_GROUP,
    M_LEFT,
    M_START,
    M_STATUS,
    M_WHERE,
    M_INJECTED,
    M_LOST,
    M_LINK,
    M_BIN,
) = range(14)
M_COLUMNS = 16
RUNNING, DONE, FULL, HANG, NO_EMISSION, MANY_EMISSIONS, NO_RENDEZVOUS = range(7)
"""Values of M_STATUS. FULL: a table has to grow, call again. M_WHERE: the unit that is wrong."""

# Kinds of event; the operands of each stand beside it.
(
    EV_STEP,  # mesh: the engine looks at its command
    EV_WRITE,  # mesh
    EV_ADVANCE,  # mesh
    EV_OVER,  # mesh
    EV_FLIT,  # mesh: the dispatcher's next flit
    EV_SIGNAL,  # mesh, node, whether a credit returns
    EV_ACCEPT,  # unit
    EV_REQUEST,  # unit, work: a read request leaves
    EV_READ,  # port, work, unit: it has arrived
    EV_ENTRY,  # port: an entry has left
    EV_RETIRE,  # unit, work: nothing else to do
    EV_FILLED,  # unit, work
    EV_SERIAL,  # unit, work, entries left: a serial requester's request arrives
    EV_AFTER,  # unit, work: the sweep that it waited for is decided
    EV_SWEEP,  # unit, work
    EV_BURST,  # unit, slot
    EV_GRANTED,  # unit, slot, 1 = a core's
    EV_WRITTEN,  # port, words, unit: a burst is whole at the port
    EV_FREED,  # port, unit: and has been served
    EV_ACK,  # receiver, number: acknowledgements leave
    EV_DRAINED,  # unit, work
    EV_STORE,  # unit, work: a core's next burst
    EV_READY,  # leader, work: a follower's FETCH_READY arrives
) = range(23)

# Columns of State.time: values of the machine description, by name, then what follows from them.
TIMES = (
    "endpoint_out", "endpoint_in", "retire_to_accept", "mg_slot", "vc_slot", "L", "entry_preq", "entry_fp16",
    "entry_fp16_extra", "fill_base", "fill_fp16", "read_word", "serial_entry", "serial_entry_shared", "sweep_tail",
    "sweep_gap", "accumulator_idle", "emit_latency", "drain_queue", "drain_short", "drain_long", "drain_word",
    "drain_burst", "run_fetch", "vfill_base", "ctl_write", "ctl_poll", "ctl_poll_retry", "kick_to_flit",
    "flit_interval",
)  # fmt: skip
(
    T_OUT, T_IN, T_GAP, T_MG_SLOT, T_VC_SLOT, T_L, T_PREQ, T_FP16, T_FP16_EXTRA, T_FILL_BASE, T_FILL_FP16,
    T_READ_WORD, T_SERIAL, T_SERIAL_SHARED, T_TAIL, T_SWEEP_GAP, T_IDLE, T_EMIT, T_QUEUE, T_SHORT, T_LONG, T_WORD,
    T_BURST, T_FETCH, T_VFILL, T_CTL_WRITE, T_CTL_POLL, T_CTL_RETRY, T_KICK, T_FLIT, T_REUSE, T_BURST_WORDS,
    T_WRITES,
) = range(64, 97)  # fmt: skip
"""T_WRITES and what follows: cycles of a write of 0, 1, ... words at a port."""

# Columns of State.work, one row per instruction. For a core only those up to W_DST, and from W_CYCLES on.
(
    W_OP, W_LAST, W_FIRST, W_NEXT, W_ARRIVED, W_DST, W_ACKS, W_LINE, W_N, W_SEL, W_GM, W_GN, W_NK, W_PREQ, W_EMIT,
    W_FUSE, W_TO_NODE, W_WORDS, W_EOFF, W_AOFF, W_BOFF, W_ABANK, W_BBANK, W_FBANK, W_TSEL, W_NPEER, W_PEERS, W_LEADER,
    W_DESC, W_CYCLES, W_READS, W_WRITES, W_FLITS, W_TAG, W_PACE,
) = range(35)  # fmt: skip
W_COLUMNS = 35
"""W_NEXT: the unit's next instruction in its FIFO. W_DST: unit that receives what this one sends, -1 = memory. W_ACKS:
for a cluster whether each burst is acknowledged, for a core how many acknowledgements follow. W_WORDS: per sub-tile.
W_PEERS: three units, each plus one, in 16 bits. W_LEADER: unit of the shared fetch's leader, -1 = not shared.
W_PACE: cycles in which a RUN hands out a flit."""

# Columns of State.agent, one row per mesh.
(
    A_CREDIT, A_STALLED, A_PC, A_POLL, A_OVER, A_WINDOW, A_SENT, A_TARGET, A_KICKED, A_TRACK, A_NODE, A_NEXT,
) = range(12)  # fmt: skip
A_COLUMNS = 12

# Commands of a control engine: kind, operand, and for C_NODE the awaited signals; the count to reach is filled in.
C_WRITE, C_CREDIT, C_KICK, C_IDLE, C_NODE, C_DONE = range(6)

# Columns of State.unit, one row per unit.
(
    U_KIND, U_MESH, U_PORT, U_NODE, U_TRACK, U_ARRAY, U_OUT, U_HEAD, U_LAST, U_BUSY, U_READY, U_ACCEPTED, U_SWEEPING,
    U_SWEEP_END, U_SWEEP_NEXT, U_WAITING, U_SENDING, U_OUT_FREE, U_EMISSIONS, U_BESIDE, U_BEGAN, U_ENDED, U_COUNT,
    U_RUN_END, U_ARRIVED, U_LOST, U_LOST_LINK, U_LEFT, U_SENT, U_SINCE, U_CURRENT, U_FILL, U_IDLE,
) = range(33)  # fmt: skip
U_COLUMNS = 34
"""U_IDLE and the next one: first cycle at which a non-fused DRAIN of that accumulator may start. U_NODE: {y,x}.
U_BESIDE: clusters behind its port. U_FILL: how many fills it has noted."""
MG, VC = 0, 1

# Columns of State.port, one row per port.
(
    P_BUSY, P_UNIT, P_WORK, P_LEFT, P_BEGAN, P_PERIOD, P_FLITS, P_WORDS, P_READ_TRACK, P_WRITE_TRACK, P_READ,
    P_WRITTEN, P_RHEAD, P_RCOUNT, P_ROOM, P_WHEAD, P_WCOUNT, P_WRITE_FREE, P_OPEN, P_OPEN_BUSY, P_OPEN_WORDS,
    P_SERIAL_FREE, P_REST,
) = range(23)  # fmt: skip
P_COLUMNS = 23

# Columns of State.link, one row per directed link.
(
    K_WORD, K_LATENCY, K_FREE, K_GAP, K_GAP_END, K_LEFT, K_COUNT, K_BUSY, K_WAITED, K_TRACK, K_RUN, K_RUN_LAST,
    K_RUN_BUSY,
) = range(13)  # fmt: skip
K_COLUMNS = 13
"""K_WORD: cycles per flit. K_LATENCY: to the next link. K_LEFT: cycle at which the FIFO it ends in was last left,
K_COUNT: that FIFO's place in `ring`. K_GAP .. K_GAP_END: free cycles before the latest flits. K_RUN: first flit of an
open span."""
RUN_GAP, RUN_MOST = 1024, 8192
WRITE_GAP, WRITE_MOST = 64, 1024
"""A link's flits, a port's writes make one span while no more than .._GAP cycles lie between them, up to .._MOST."""

# Columns of State.emit, per unit and slot: sub-tiles on their way out of an accumulator.
(
    E_USED, E_N, E_WORDS, E_STEP, E_DST, E_ACKS, E_SWEEP, E_FIRST, E_BEGAN, E_DONE, E_ISSUED, E_LEFT, E_WAITER, E_END,
    E_WORK, E_SINCE,
) = range(16)  # fmt: skip
E_COLUMNS = 16
SLOTS = 4
"""E_USED: 0 = free, else the order of arrival. E_ISSUED, E_LEFT: how many of the sub-tiles are known to have been
handed out, to have left."""

FILLS = 16  # fills of a cluster that are remembered for the sweeps that read them
# Kinds of span, in the order of `parts.KINDS`.
COMPUTE, WAIT, FILLING, DRAINING, CONTROL, SERVE = range(6)
S_TRACK, S_START, S_END, S_KIND, S_TEXT, S_ON, S_LINE = range(7)
ON_CREDITS = 1 << 30
"""What a span waits for is a track's number, or the credits."""

# What a span's text is made from: a kind and three numbers, packed.
(
    X_FILL, X_FILL_PREQ, X_GEMM, X_EMISSION, X_DRAIN, X_DRAIN_FUSED, X_RUN, X_STATE, X_DISPATCH, X_PORT_FILL,
    X_PORT_PREQ, X_PORT_READ, X_PORT_WRITE, X_NO_INSTRUCTION, X_NO_CREDIT, X_PORT_BUSY, X_QUEUE_FULL, X_LINK_BUSY,
    X_FLITS, X_PEERS,
) = range(20)  # fmt: skip


# Sizes, and where each table begins.
(
    N_UNITS, N_PORTS, N_LINKS, N_ENDS, N_DEPTH, N_TILES, N_GROUPS, N_HEAP, N_SPANS, N_FLOWS,
) = range(16, 26)  # fmt: skip
TABLES = (
    "heap", "spans", "flows", "groups", "rounds", "commands", "windows", "work", "agent", "counts", "unit", "port",
    "reads", "writes", "link", "ring", "path_at", "path", "emit", "sub", "ready", "fills",
)  # fmt: skip
(
    O_HEAP, O_SPANS, O_FLOWS, O_GROUPS, O_ROUNDS, O_COMMANDS, O_WINDOWS, O_WORK, O_AGENT, O_COUNTS, O_UNIT, O_PORT,
    O_READS, O_WRITES, O_LINK, O_RING, O_PATH_AT, O_PATH, O_EMIT, O_SUB, O_READY, O_FILLS,
) = range(32, 54)  # fmt: skip


class State:
    """Everything the compiled clock reads and writes: `words`, one array whose head holds M_, N_, O_ and T_ values.

    tables: the same memory as a view per name of TABLES. One array, because many are slow to pass and to compile.
    heap [capacity, 3] time, order, packed event; spans [capacity, 7]; flows [capacity, 5] side, from track, cycle, to
    track, cycle; groups [groups, 3] first round, rounds, end; rounds [rounds, 3] mesh, first command, first window;
    commands [commands, 4]; windows [windows, 3] unit, first work, count; work [instructions, W_COLUMNS]; agent
    [meshes, A_COLUMNS]; counts [meshes, 256] signals by node; unit [units, U_COLUMNS]; port [ports, P_COLUMNS]; reads
    [ports, units + 1, 3] unit, work, arrival, a ring; writes [ports, units + 1, 3] unit, slot, whether a core's, a
    ring; link [links, K_COLUMNS]; ring [links, router_fifo] cycles at which the last flits left the FIFO behind a link;
    path_at [ends, ends, 2] first, length in `path`; path: links; emit [units, SLOTS, E_COLUMNS]; sub [units, SLOTS, 2,
    sub-tiles] cycles of issue and of leaving; ready [units, 256] followers that are ready at a leader, by share tag;
    fills [units, FILLS, 4] side and bank, first entry, end, cycle.
    """

    def __init__(self, tables: Mapping[str, Ints | tuple[int, ...]], head: Mapping[int, int], time: Ints) -> None:
        """tables: their content, or the shape of one that begins as zeros."""
        shapes = {name: table if isinstance(table, tuple) else table.shape for name, table in tables.items()}
        self.words = words = np.zeros(T_OUT + len(time) + sum(map(prod, shapes.values())), np.int64)
        words[T_OUT : T_OUT + len(time)] = time
        for place, value in head.items():
            words[place] = value
        self.tables: dict[str, Ints] = {}
        at = T_OUT + len(time)
        for n, name in enumerate(TABLES):
            table = tables[name]
            words[O_HEAP + n] = at
            size = prod(shapes[name])
            view = self.tables[name] = words[at : at + size].reshape(shapes[name])
            if not isinstance(table, tuple):
                view[...] = table
            at += size

    def grown(self, *names: str) -> State:
        """A copy in which these tables have room for twice as many rows."""
        tables: dict[str, Ints] = dict(self.tables)
        for name in names:
            tables[name] = np.concatenate([tables[name], np.empty_like(tables[name])])
        head = {place: int(self.words[place]) for place in range(N_FLOWS + 1)}
        for name, place in (("heap", N_HEAP), ("spans", N_SPANS), ("flows", N_FLOWS)):
            head[place] = len(tables[name])
        begin = int(self.words[O_HEAP])
        return State(tables, head, self.words[T_OUT:begin])
