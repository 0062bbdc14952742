"""Cores, their DMAs, the network between them and the host's link: one compiled loop over cycles (datasheet 1).

Decides what happens in a cycle, and in which order: packets and free places arrive; cores go from state to state; the
link is given away; DMAs take from inboxes; DMAs put packets on the network, which carries `noc_packets` a cycle, in
turn. A DMA kicked in cycle t moves its first packet in t+1 and is done a cycle after its last one. It must not know
programs: where a core is to execute one, `advance` returns, and is called again with the cycles it takes.
"""

from __future__ import annotations

from kohakuaccel.jit import kernel, leaf
from tinytpu.cores import state as s
from tinytpu.cores.state import State

DONE, DEADLOCK, UNWRITTEN = -1, -2, -3
"""Answers of `advance` that are no core."""


@leaf
def _words(w: State, segment: int, done: int) -> int:
    """Words of a segment's next packet."""
    return min(w.payload.shape[1], w.segments[segment, s.WORDS] - done * w.payload.shape[1])


@leaf
def _arrivals(w: State, cycle: int) -> None:
    """Packets reach their inboxes, places their senders."""
    reg = w.reg
    kept = 0
    for k in range(reg[s.FLYING]):
        number, sender, receiver, due = w.flights[k, 0], w.flights[k, 1], w.flights[k, 2], w.flights[k, 3]
        if due > cycle:
            for c in range(4):
                w.flights[kept, c] = w.flights[k, c]
            kept += 1
        elif w.size[sender, receiver] == w.queue.shape[2]:
            reg[s.DROPPED] += 1
        else:
            at = (w.head[sender, receiver] + w.size[sender, receiver]) % w.queue.shape[2]
            w.queue[sender, receiver, at] = number
            w.size[sender, receiver] += 1
            w.packets[number, s.ARRIVED] = due
    reg[s.FLYING] = kept
    kept = 0
    for k in range(reg[s.RETURNING]):
        if w.returns[k, 2] > cycle:
            for c in range(3):
                w.returns[kept, c] = w.returns[k, c]
            kept += 1
        else:
            w.credit[w.returns[k, 0], w.returns[k, 1]] += 1
    reg[s.RETURNING] = kept


@leaf
def _leave(w: State, i: int, cycle: int, state: int) -> None:
    """A core goes on to another state."""
    core = w.core[i]
    if core[s.SINCE] < cycle and core[s.STATE] != s.NEXT:
        row = w.log[w.reg[s.LOGGED]]
        row[0], row[1], row[2], row[3], row[4] = i, core[s.STATE], core[s.SINCE], cycle, core[s.STEP] - w.first[i]
        w.reg[s.LOGGED] += 1
    core[s.STATE], core[s.SINCE] = state, cycle


@leaf
def _step(w: State, i: int, cycle: int) -> bool:
    """Whether a core changed its state in this cycle: it did what it could."""
    core = w.core[i]
    state = core[s.STATE]
    if state == s.NEXT:
        core[s.STEP] += 1
        if core[s.STEP] == w.first[i + 1]:
            _leave(w, i, cycle, s.FINISHED)
            return True
        step = w.steps[core[s.STEP]]
        if step[s.KIND] == s.BUNDLE:
            _leave(w, i, cycle, s.ASK_LOAD if step[s.LOAD] else s.READY)
        else:
            core[s.OUT_SEG], core[s.OUT_DONE], core[s.OUT_KICK] = step[s.SEND0], 0, cycle
            core[s.IN_SEG], core[s.IN_DONE], core[s.IN_KICK] = step[s.TAKE0], 0, cycle
            _leave(w, i, cycle, s.MOVING)
        return True
    if state in (s.LOADING, s.EXECUTING, s.PUTTING) and core[s.UNTIL] == cycle:
        after = s.NEXT
        if state == s.LOADING:
            after = s.READY
        elif state == s.EXECUTING and w.steps[core[s.STEP], s.OUT]:
            after = s.ASK_OUT
        _leave(w, i, cycle, after)
        return True
    if state == s.MOVING:
        step = w.steps[core[s.STEP]]
        over = core[s.OUT_SEG] == step[s.SEND1] and core[s.IN_SEG] == step[s.TAKE1]
        if over and max(core[s.OUT_KICK], core[s.IN_KICK]) <= cycle:
            _leave(w, i, cycle, s.NEXT)
            return True
    return False


@leaf
def _grant(w: State, cycle: int) -> bool:
    """Give a free link to the core that has waited longest."""
    for k in range(len(w.links)):
        if w.links[k] > cycle:
            continue
        best = -1
        for i in range(w.reg[s.CORES]):
            if w.core[i, s.STATE] in (s.ASK_LOAD, s.ASK_OUT) and (
                best < 0 or w.core[i, s.SINCE] < w.core[best, s.SINCE]
            ):
                best = i
        if best < 0:
            return False
        core = w.core[best]
        loading = core[s.STATE] == s.ASK_LOAD
        w.links[k] = core[s.UNTIL] = cycle + w.steps[core[s.STEP], s.LOAD if loading else s.OUT]
        _leave(w, best, cycle, s.LOADING if loading else s.PUTTING)
        return True
    return False


@leaf
def _receive(w: State, cycle: int) -> bool:
    """Every DMA takes the oldest packet of the core that it expects one from."""
    worked = False
    for i in range(w.reg[s.CORES]):
        core = w.core[i]
        core[s.IN_MOVED] = 0
        if core[s.STATE] != s.MOVING or core[s.IN_SEG] == w.steps[core[s.STEP], s.TAKE1] or core[s.IN_KICK] >= cycle:
            continue
        segment, done = core[s.IN_SEG], core[s.IN_DONE]
        sender = w.segments[segment, s.PEER]
        if w.size[sender, i] == 0:
            continue
        number = w.queue[sender, i, w.head[sender, i]]
        w.head[sender, i] = (w.head[sender, i] + 1) % w.queue.shape[2]
        w.size[sender, i] -= 1
        at = w.segments[segment, s.WORD] + done * w.payload.shape[1]
        for k in range(_words(w, segment, done)):
            w.memory[i, at + k], w.written[i, at + k] = w.payload[number, k], 1
        w.packets[number, s.TAKEN] = cycle
        w.received[w.segments[segment, s.BASE] + done] = number
        if w.reg[s.CREDITED]:
            row = w.returns[w.reg[s.RETURNING]]
            row[0], row[1], row[2] = sender, i, cycle + w.reg[s.LOOPBACK if sender == i else s.REMOTE]
            w.reg[s.RETURNING] += 1
        core[s.IN_DONE], core[s.IN_MOVED] = done + 1, 1
        if (done + 1) * w.payload.shape[1] >= w.segments[segment, s.WORDS]:
            core[s.IN_SEG], core[s.IN_DONE], core[s.IN_KICK] = segment + 1, 0, cycle + w.reg[s.DMA]
        worked = True
    return worked


@leaf
def _send(w: State, cycle: int) -> int:
    """The network takes packets of DMAs in turn; how many, or a negative answer."""
    reg, carried = w.reg, 0
    start, n = reg[s.TURN], reg[s.CORES]
    for j in range(n):
        i = (start + j) % n
        core = w.core[i]
        core[s.OUT_MOVED] = 0
        if core[s.STATE] != s.MOVING or core[s.OUT_SEG] == w.steps[core[s.STEP], s.SEND1] or core[s.OUT_KICK] >= cycle:
            continue
        segment, done = core[s.OUT_SEG], core[s.OUT_DONE]
        receiver = w.segments[segment, s.PEER]
        if reg[s.CREDITED] and w.credit[i, receiver] == 0:
            core[s.WHY] = s.W_PLACE
            continue
        if carried == reg[s.CARRIED]:
            core[s.WHY] = s.W_NETWORK
            continue
        number = w.segments[segment, s.BASE] + done
        at = w.segments[segment, s.WORD] + done * w.payload.shape[1]
        for k in range(_words(w, segment, done)):
            if w.written[i, at + k] == 0:
                reg[s.TURN] = i
                return UNWRITTEN
            w.payload[number, k] = w.memory[i, at + k]
        row = w.flights[reg[s.FLYING]]
        row[0], row[1], row[2], row[3] = number, i, receiver, cycle + reg[s.LOOPBACK if receiver == i else s.REMOTE]
        reg[s.FLYING] += 1
        w.packets[number, s.LEFT] = cycle
        w.credit[i, receiver] -= reg[s.CREDITED]
        core[s.OUT_DONE], core[s.OUT_MOVED] = done + 1, 1
        if (done + 1) * w.payload.shape[1] >= w.segments[segment, s.WORDS]:
            core[s.OUT_SEG], core[s.OUT_DONE], core[s.OUT_KICK] = segment + 1, 0, cycle + reg[s.DMA]
        carried += 1
        reg[s.TURN] = (i + 1) % n
    return carried


@leaf
def _later(w: State, cycle: int) -> int:
    """The next cycle in which something can happen although no packet moved; -1 where nothing ever will."""
    found = -1
    if w.reg[s.FLYING] or w.reg[s.RETURNING]:
        return cycle + 1
    for i in range(w.reg[s.CORES]):
        core = w.core[i]
        until = -1
        if core[s.STATE] in (s.LOADING, s.EXECUTING, s.PUTTING):
            until = core[s.UNTIL]
        elif core[s.STATE] == s.MOVING and max(core[s.OUT_KICK], core[s.IN_KICK]) >= cycle:
            until = cycle + 1
        if until >= 0 and (found < 0 or until < found):
            found = until
    return found


@leaf
def _count_waits(w: State, cycle: int, cycles: int) -> None:
    for i in range(w.reg[s.CORES]):
        core = w.core[i]
        if core[s.STATE] != s.MOVING:
            continue
        step = w.steps[core[s.STEP]]
        if core[s.OUT_SEG] < step[s.SEND1] and core[s.OUT_KICK] < cycle and not core[s.OUT_MOVED]:
            w.waits[i, core[s.WHY]] += cycles
        if core[s.IN_SEG] < step[s.TAKE1] and core[s.IN_KICK] < cycle and not core[s.IN_MOVED]:
            w.waits[i, s.W_PACKET] += cycles


@kernel
def advance(w: State) -> int:
    """Go on from cycle reg[CYCLE] until a core is READY (its number), or all are finished, or none can go on.

    After UNWRITTEN reg[TURN] is the core that sends words which nothing wrote.
    """
    reg = w.reg
    while True:
        cycle = reg[s.CYCLE]
        _arrivals(w, cycle)
        changed = True
        while changed:
            changed = False
            for i in range(reg[s.CORES]):
                changed |= _step(w, i, cycle)
            if not changed:
                # Before the link is given away every core has come to where it asks for it.
                for i in range(reg[s.CORES]):
                    if w.core[i, s.STATE] == s.READY:
                        return i
                changed = _grant(w, cycle)
        finished = 0
        for i in range(reg[s.CORES]):
            finished += w.core[i, s.STATE] == s.FINISHED
        if finished == reg[s.CORES]:
            return DONE
        worked = _receive(w, cycle)
        sent = _send(w, cycle)
        if sent < 0:
            return sent
        later = cycle + 1 if worked or sent else _later(w, cycle)
        if later < 0:
            return DEADLOCK
        _count_waits(w, cycle, later - cycle)
        reg[s.CYCLE] = later
