"""What a system of cores holds while it runs: one named tuple of arrays (datasheet 1: network, DMA).

Decides shapes and reset values. What happens in a cycle is decided in `network`; what words mean, in `system`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kohakuaccel.machine import Machine

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Entries of `reg`: the setting, then where the run has come to.
CORES, CARRIED, REMOTE, LOOPBACK, DMA, CREDITED, CYCLE, TURN, FLYING, RETURNING, DROPPED, LOGGED = range(12)
REGISTERS = 12

# Columns of a step: a bundle (cycles to load, to execute, to output) or a move (its segments, from and to).
KIND, LOAD, EXEC, OUT, SEND0, SEND1, TAKE0, TAKE1 = range(8)
BUNDLE, MOVE = 0, 1

# Columns of a segment: the other core, first word in this core's memory, words, number of its first packet.
PEER, WORD, WORDS, BASE = range(4)

# Columns of a core: its step, what it does, since when, until when; its DMAs, out then in: segment, packets done,
# cycle of the kick, whether it moved a packet in this cycle; why the one out did not.
STEP, STATE, SINCE, UNTIL, OUT_SEG, OUT_DONE, OUT_KICK, OUT_MOVED, WHY, IN_SEG, IN_DONE, IN_KICK, IN_MOVED = range(13)
CORE_COLUMNS = 13

NEXT, ASK_LOAD, LOADING, READY, EXECUTING, ASK_OUT, PUTTING, MOVING, FINISHED = range(9)
"""States of a core. READY: its bundle is about to be executed, and its cycles are not known yet."""
STATES = ("", "link", "load", "", "execute", "link", "output", "move", "")
"""What a logged state is called; `link` is waiting for the host's link."""

# Columns of a packet's log: cycles in which it left, arrived and was taken.
LEFT, ARRIVED, TAKEN = range(3)

# Entries of `waits` per core: cycles that a DMA stood for a place in the inbox, for the network, for a packet.
W_PLACE, W_NETWORK, W_PACKET = range(3)
WAITED = ("place", "network", "packet")


class State(NamedTuple):
    """n cores, W words a packet, p packets in all, d places for each sender in an inbox."""

    reg: NDArray[np.int64]
    core: NDArray[np.int64]  # [n, CORE_COLUMNS]
    first: NDArray[np.int64]  # [n + 1] first step of each core
    steps: NDArray[np.int64]  # [steps, 8]
    segments: NDArray[np.int64]  # [segments, 4]
    memory: NDArray[np.int32]  # [n, words]
    written: NDArray[np.uint8]  # [n, words]
    credit: NDArray[np.int64]  # [n, n] places that a sender (row) knows to be free at a receiver
    returns: NDArray[np.int64]  # [.., 3] places on their way back: sender, receiver, due
    queue: NDArray[np.int64]  # [n, n, d] packets in the inbox of a receiver (second) from a sender (first)
    head: NDArray[np.int64]  # [n, n]
    size: NDArray[np.int64]  # [n, n]
    flights: NDArray[np.int64]  # [.., 4] packets on their way: number, sender, receiver, due
    payload: NDArray[np.int32]  # [p, W]
    packets: NDArray[np.int64]  # [p, 3]
    received: NDArray[np.int64]  # [p] number of the packet that came as each expected one
    links: NDArray[np.int64]  # [links] cycle from which each host link is free
    waits: NDArray[np.int64]  # [n, 3]
    log: NDArray[np.int64]  # [.., 5] core, state, start, end, step


def reset(
    machine: Machine, first: NDArray[np.int64], steps: NDArray[np.int64], segments: NDArray[np.int64], packets: int,
    words: int, *, drop: bool,
) -> State:  # fmt: skip
    """The state before cycle 0. drop: no credits, a packet for a full inbox is lost (and counted)."""
    n = len(first) - 1
    p, t = machine.params, machine.timing
    depth, remote, loopback = int(p.noc_inbox), int(t.noc_remote), int(t.noc_loopback)
    reg = np.zeros(REGISTERS, np.int64)
    reg[[CORES, CARRIED, REMOTE, LOOPBACK, DMA, CREDITED]] = (n, p.noc_packets, remote, loopback, t.dma, not drop)
    flying = n * (max(remote, loopback) + 1)
    core = np.zeros((n, CORE_COLUMNS), np.int64)
    core[:, STEP] = first[:-1] - 1
    return State(
        reg=reg,
        core=core,
        first=first,
        steps=steps,
        segments=segments,
        memory=np.zeros((n, words), np.int32),
        written=np.zeros((n, words), np.uint8),
        credit=np.full((n, n), depth, np.int64),
        returns=np.zeros((flying, 3), np.int64),
        queue=np.zeros((n, n, depth), np.int64),
        head=np.zeros((n, n), np.int64),
        size=np.zeros((n, n), np.int64),
        flights=np.zeros((flying, 4), np.int64),
        payload=np.zeros((packets, int(p.noc_packet_words)), np.int32),
        packets=np.full((packets, 3), -1, np.int64),
        received=np.full(packets, -1, np.int64),
        links=np.zeros(int(p.host_links), np.int64),
        waits=np.zeros((n, 3), np.int64),
        log=np.zeros((5 * len(steps) + 1, 5), np.int64),
    )
