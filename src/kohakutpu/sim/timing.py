"""The simulated time of an image: its rounds played through engines, dispatchers, units, links and ports.

It decides how a run of the compiled clock becomes a timeline, and what is reported beside the device's own time (the
host link). The cycles of vector kernels come from a functional run; where none is given, the image is rehearsed on
memory full of zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.diagnostics import Hang, Refusal
from kohakuaccel.image import Image
from kohakuaccel.jit import first_call
from kohakuaccel.machine import Machine
from kohakuaccel.sim import Timeline
from kohakutpu.dispatch import Loader, Round
from kohakutpu.sim import state as st
from kohakutpu.sim.parts import KINDS, WORK
from kohakutpu.sim.topology import topology

if TYPE_CHECKING:
    from kohakutpu.device import Device
    from kohakutpu.sim.streams import KernelCycles, Streams

_NODE_STATUS_BYTES, _CONTROL_BYTES, _GO_BYTES = 8 * 256, 16, 8


def time_image(
    machine: Machine,
    image: Image,
    *,
    kernel_cycles: KernelCycles | None = None,
    loader: Loader | None = None,
    name: str | None = None,
) -> Timeline:
    """The Timeline of one launch of `image` on an idle machine.

    kernel_cycles: as a functional run counted them (datasheet 4.2's result words); without them a vector image is run
    once on zeros, which costs what a functional run costs. Raises Refusal for an image the machine cannot take, Hang
    when a round cannot end.
    """
    if kernel_cycles is None:
        kernel_cycles = rehearse(machine, image) if _runs(image) else {}
    rounds = (loader or Loader(machine)).rounds(image)
    timeline = Timeline(
        image.name if name is None else name,
        machine.name,
        machine.params.clock_mhz,
        KINDS,
        WORK,
        assumed=assumed(machine),
    )
    with first_call("the clock", "kohakutpu.sim.loop"):
        from kohakutpu.sim.loop import play
        from kohakutpu.sim.record import fill
        from kohakutpu.sim.streams import streams

        tables = streams(machine, image, rounds, kernel_cycles)
        state = _state(machine, tables)
        while True:
            play(state.words)
            if state.words[st.M_STATUS] != st.FULL:
                break
            state = state.grown("heap", "spans", "flows")
    if state.words[st.M_STATUS] != st.DONE:
        raise _problem(machine, tables, state)
    fill(timeline, machine, image, tables, state)
    _host(timeline, machine, rounds)
    return timeline


def assumed(machine: Machine) -> tuple[str, ...]:
    """The timing values behind a timeline that no measurement gave (tag A)."""
    timing = machine.timing
    used = ("L", "host_bytes", "host_transaction", "link_latency", "upload_in", "upload_out")
    return tuple(f"{name} = {timing[name]}" for name in used if timing.tag(name) == "A")


def _runs(image: Image) -> bool:
    return any(p.unit.kind == "VC" for stage in image.stages for p in stage)


def _state(machine: Machine, streams: Streams) -> st.State:
    """The machine idle, before the first round."""
    known = topology(machine)
    units, ports, links = len(known.unit), len(known.port), len(known.link)
    work = streams.work
    # Sub-tiles of one emission: of a GEMM that emits, or of a DRAIN.
    tiles = np.maximum(work[:, st.W_GM], 1) * np.maximum(work[:, st.W_GN], 1) * (work[:, st.W_EMIT] != 0)
    most = max(1, int(tiles.max(initial=1)), int(work[work[:, st.W_WORDS] > 0, st.W_N].max(initial=1)))
    heap, spans, flows = 1024 + 8 * units, 4096 + 4 * len(work), 512 + len(work)

    tables: dict[str, st.Ints | tuple[int, ...]] = {
        "heap": (heap, 3),
        "spans": (spans, 7),
        "flows": (flows, 5),
        "groups": streams.groups,
        "rounds": streams.rounds,
        "commands": streams.commands,
        "windows": streams.windows,
        "work": work,
        "agent": known.agent,
        "counts": (len(known.agent), 256),
        "unit": known.unit,
        "port": known.port,
        "reads": (ports, units + 1, 3),
        "writes": (ports, units + 1, 3),
        "link": known.link,
        "ring": (links, machine.params.router_fifo),
        "path_at": known.path_at,
        "path": known.path,
        "emit": (units, st.SLOTS, st.E_COLUMNS),
        "sub": (units, st.SLOTS, 2, most),
        "ready": (units, 256),
        "fills": (units, st.FILLS, 4),
    }
    head = {
        st.M_GROUP: -1,
        st.N_UNITS: units,
        st.N_PORTS: ports,
        st.N_LINKS: links,
        st.N_ENDS: len(known.path_at),
        st.N_DEPTH: machine.params.router_fifo,
        st.N_TILES: most,
        st.N_GROUPS: len(streams.groups),
        st.N_HEAP: heap,
        st.N_SPANS: spans,
        st.N_FLOWS: flows,
    }
    return st.State(tables, head, known.time)


def _problem(machine: Machine, tables: Streams, state: st.State) -> Refusal | Hang:
    """Why the clock stopped."""
    status, where = int(state.words[st.M_STATUS]), machine.units[int(state.words[st.M_WHERE])].name
    if status == st.NO_EMISSION:
        return Refusal("a fused DRAIN follows an emitting GEMM", where=where)
    if status == st.MANY_EMISSIONS:
        return Refusal(
            "what emitting GEMMs hand out is drained before more of them start", where=where, limit=st.SLOTS - 1
        )
    waits: list[str] = []
    group = int(state.words[st.M_GROUP])
    first, number, _ = tables.groups[group].tolist()
    for mesh, _, _ in tables.rounds[first : first + number].tolist():
        agent = state.tables["agent"][mesh].tolist()
        if agent[st.A_OVER] >= 0:
            continue
        name = topology(machine).tracks[agent[st.A_TRACK]].name
        kind, node, _, wanted = state.tables["commands"][agent[st.A_PC]].tolist()
        if kind == st.C_NODE:
            sent = int(state.tables["counts"][mesh, node])
            waits.append(f"{name}: signal {wanted} of node {node:#04x}, which has sent {sent}")
        else:
            waits.append(f"{name}, command {agent[st.A_PC]}: the dispatcher, credit {agent[st.A_CREDIT]}")
    return Hang(waits, hint="the timed run waits for what never comes; does the functional run end?")


def _host(timeline: Timeline, machine: Machine, rounds: Sequence[Round]) -> None:
    """The bus transactions around rounds: staging and commands, GO, status and signal counts."""
    if not rounds:
        return
    each, per_cycle = machine.timing.host_transaction, machine.timing.host_bytes
    sizes = [n for r in rounds for n in (r.staging.nbytes, r.commands.nbytes) if n]
    timeline.host["staging"] = sum(each + -(-n // per_cycle) for n in sizes)
    status = sum(each + -(-n // per_cycle) for n in (_GO_BYTES, _CONTROL_BYTES, _NODE_STATUS_BYTES))
    timeline.host["go and status"] = len(rounds) * status


def host_cycles(machine: Machine, nbytes: int, transactions: int = 1) -> int:
    """Bus transactions of `nbytes` in all (datasheet 8.1), in cycles of the device."""
    t = machine.timing
    return transactions * t.host_transaction + -(-nbytes // t.host_bytes)


def rehearse(machine: Machine, image: Image) -> KernelCycles:
    """Kernel cycles of an image's RUNs, from a functional run of its own on memory that reads as zeros."""
    from kohakutpu.device import Device
    from kohakutpu.units.system import System

    system = System(machine, nonfinite="count")
    memory = system.memory
    for base, size in zip(memory.base.tolist(), memory.size.tolist()):
        used = min(size, _REHEARSED)
        memory.written[base // 32 : (base + used) // 32] = 1
    device = Device(machine, system)
    return recorded(device, image)


_REHEARSED = 1 << 28  # bytes of each memory that count as written in a rehearsal


def recorded(device: Device, image: Image) -> KernelCycles:
    """Run an image on a device and return its RUNs' kernel cycles."""
    found: list[KernelCycles] = []

    def note(_: Image, kernels: dict[str, list[int]]) -> None:
        found.append(kernels)

    before, device.on_run = device.on_run, note
    try:
        device.run(image)
    finally:
        device.on_run = before
    return found[0]
