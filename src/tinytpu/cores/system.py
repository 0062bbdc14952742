"""A system of cores: scripts of bundles and moves, one a core, run together on the network model (datasheet 1).

Decides what a run returns and how a bundle meets what its core holds: between bundles memories keep it, results and
what came over the network. When packets move is decided in `network`; who sends what to whom, by who writes scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kohakuaccel.diagnostics import Fault, Hang, KohakuError, Refusal
from kohakuaccel.machine import Machine
from tinytpu.cores import state as s
from tinytpu.cores.scripts import MEMORIES, Bundle, Held, Layout, Move, Places, Script, Slots
from tinytpu.units.core import Run, execute
from tinytpu.units.given import filling
from tinytpu.units.state import WRITTEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kohakuaccel.sim import Timeline

MOST_CORES = 64


@dataclass(frozen=True)
class Ran:
    """What a run of a system gave.

    cycles: until the last core is done. bundles: per core, the run of each step; None for moves and for bundles
    without instructions. packets: int64[p, 3], cycles in which each left, arrived and was taken; routes: int64[p, 2],
    sender and receiver. log: int64[.., 5]: core, state (number in `state.STATES`), start, end, step. waits: per core,
    cycles that its DMAs stood for a place in an inbox, the network, a packet.
    """

    machine: Machine
    scripts: tuple[Script, ...]
    cycles: int
    bundles: tuple[tuple[Run | None, ...], ...]
    packets: NDArray[np.int64]
    routes: NDArray[np.int64]
    log: NDArray[np.int64]
    waits: NDArray[np.int64]
    state: s.State

    def held(self, core: int, slots: Slots) -> NDArray[Any]:
        """What a core's slots hold at the end: int32[count, lanes] of VMEM, int8 of the others. Raises Refusal for
        slots that hold nothing."""
        places = Places(self.machine)
        places.of(slots)
        window = slice(slots.first, slots.first + slots.count)
        if not places.written(self.state.written[core], slots.memory)[window].all():
            raise Refusal("a slot holds what was put there", where=f"core {core}, {slots}", got="a slot never written")
        return places.view(self.state.memory[core], slots.memory)[window].copy()

    def spent(self, state: str) -> list[int]:
        """Cycles of each core in a state: "link" (waiting for it), "load", "execute", "output", "move"."""
        wanted = [n for n, name in enumerate(s.STATES) if name == state]
        rows = self.log[np.isin(self.log[:, 1], wanted)]
        return [int((r[:, 3] - r[:, 2]).sum()) for r in (rows[rows[:, 0] == i] for i in range(len(self.scripts)))]

    def timeline(self, name: str = "system") -> Timeline:
        """The modelled time of all cores, the network and the host's link."""
        from tinytpu.cores.spans import timeline

        return timeline(self, name)


@dataclass(frozen=True)
class System:
    """`cores` equal cores of a machine. drop: as the hardware's network alone, which loses packets for full inboxes;
    without it a sender knows the free places and waits for one."""

    machine: Machine
    cores: int
    drop: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.cores <= MOST_CORES:
            raise Refusal("a system has cores", where="cores", got=self.cores, limit=f"1..{MOST_CORES}")

    def run(self, scripts: Sequence[Script], held: Sequence[Held] = ()) -> Ran:
        """Run a script on each core from reset. held: what the cores' memories hold before cycle 0, uncounted.

        Raises Refusal for scripts that cannot be right (a transfer with one end, slots that are not there), Fault for
        what stops a run: a bundle's own faults, words sent that nothing wrote, cores that wait for each other.
        """
        if len(scripts) != self.cores:
            raise Refusal("every core has a script", where="scripts", got=len(scripts), limit=self.cores)
        places = Places(self.machine)
        laid = Layout(places, scripts, int(self.machine.params.noc_packet_words))
        state = s.reset(
            self.machine, laid.first, laid.steps, laid.segments, len(laid.routes), places.words, drop=self.drop
        )
        for core, items in enumerate(held):
            for slots, values in items.items():
                at, words = places.of(slots)
                view = places.view(state.memory[core], slots.memory)[slots.first : slots.first + slots.count]
                given = np.asarray(values).reshape(view.shape)
                view[...] = given
                if not np.array_equal(view, given):
                    raise Refusal("a memory holds its own numbers", where=f"core {core}, {slots}", limit=view.dtype)
                state.written[core, at : at + words] = 1
        runs: list[list[Run | None]] = [[None] * len(script) for script in scripts]
        advance, deadlock, unwritten = _kernel()
        while (who := int(advance(state))) >= 0:
            number = int(state.core[who, s.STEP] - laid.first[who])
            step = scripts[who][number]
            assert isinstance(step, Bundle)
            runs[who][number] = self._bundle(places, state, who, number, step)
        if who == unwritten:
            self._unwritten(scripts, state)
        if who == deadlock:
            self._deadlock(scripts, state)
        log = state.log[: state.reg[s.LOGGED]]
        return Ran(
            self.machine, tuple(scripts), int(state.reg[s.CYCLE]), tuple(tuple(r) for r in runs), state.packets,
            laid.routes, log, state.waits, state,
        )  # fmt: skip

    def _bundle(self, places: Places, state: s.State, who: int, number: int, step: Bundle) -> Run | None:
        """Execute a bundle on what the core's memories hold; its cycles are known to the network from there on."""
        image, run = step.image, None
        own: dict[str, dict[int, Any]]
        own = {"VMEM": dict(image.vmem), "WMEM": dict(image.wmem), "AMEM": dict(image.amem)}
        held = {name: places.view(state.memory[who], name) for name in MEMORIES}
        flags = {name: places.flags(state.written[who], name) for name in MEMORIES}
        try:
            if len(image.instructions):
                there = {n: {int(k): held[n][k] for k in np.flatnonzero(flags[n].all(axis=1))} for n in MEMORIES}
                vmem, wmem, amem = (there[n] | own[n] for n in MEMORIES)
                whole = replace(image, vmem=vmem, wmem=wmem, amem=amem, records=image.record_count())
                run = execute(self.machine, whole)
                core = run.core
                left = (core.vmem, core.vmem_state & WRITTEN), (core.wmem, core.wmem_written)
                for name, (values, written) in zip(MEMORIES, (*left, (core.amem, core.amem_written))):
                    held[name][...], flags[name][...] = values, written[:, None]
            else:
                for name, items in own.items():
                    filled = filling(name, items, held[name], silicon=False)
                    held[name][filled.slots], flags[name][filled.slots] = filled.items, 1
        except KohakuError as error:
            error.where = f"core {who}, step {number} ({step.name}): {error.where}"
            raise
        row, now = state.core[who], int(state.reg[s.CYCLE])
        on_link = int(state.steps[row[s.STEP], [s.LOAD, s.OUT]].sum())
        row[s.STATE], row[s.SINCE] = s.EXECUTING, now
        row[s.UNTIL] = now + (0 if run is None else run.cycles - on_link)
        return run

    def _unwritten(self, scripts: Sequence[Script], state: s.State) -> None:
        who = int(state.reg[s.TURN])
        raise Fault("words are sent that nothing wrote", unit=_place(scripts, state, who, out=True))

    def _deadlock(self, scripts: Sequence[Script], state: s.State) -> None:
        waiting: list[str] = []
        for who in range(self.cores):
            core = state.core[who]
            if core[s.STATE] != s.MOVING:
                continue
            step = state.steps[core[s.STEP]]
            if core[s.OUT_SEG] < step[s.SEND1]:
                waiting.append(f"{_place(scripts, state, who, out=True)} waits for a place in the inbox")
            if core[s.IN_SEG] < step[s.TAKE1]:
                waiting.append(f"{_place(scripts, state, who, out=False)} waits for a packet")
        lost = int(state.reg[s.DROPPED])
        if lost:
            waiting.insert(0, f"{lost} packets were dropped at full inboxes")
        raise Hang(
            waiting,
            unit=f"{self.cores} cores of {self.machine.name}, cycle {int(state.reg[s.CYCLE])}",
            hint="leave drop out" if lost else "receive beside the send, in one move",
        )


def _place(scripts: Sequence[Script], state: s.State, who: int, *, out: bool) -> str:
    """Where a core's DMA is: core, step, transfer."""
    core = state.core[who]
    number = int(core[s.STEP] - state.first[who])
    step = scripts[who][number]
    assert isinstance(step, Move)
    row = state.steps[core[s.STEP]]
    if out:
        transfer = step.sends[int(core[s.OUT_SEG] - row[s.SEND0])]
        return f"core {who}, step {number} ({step.name}): send of {transfer.slots} to core {transfer.peer}"
    transfer = step.receives[int(core[s.IN_SEG] - row[s.TAKE0])]
    return f"core {who}, step {number} ({step.name}): receive of {transfer.slots} from core {transfer.peer}"


@cache
def _kernel() -> tuple[Any, int, int]:
    from kohakuaccel.jit import first_call

    with first_call("the network of TinyTPU cores", "tinytpu.cores.network"):
        from tinytpu.cores import network
    return network.advance, network.DEADLOCK, network.UNWRITTEN
