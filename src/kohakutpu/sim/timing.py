"""The simulated time of an image: its rounds played through engines, dispatchers, units and ports.

It decides how rounds follow each other and what is reported beside the device's own time (the host link). The cycles
of vector kernels come from a functional run; where none is given, the image is rehearsed on memory full of zeros.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Hang
from kohakuaccel.image import EncodedProgram, Image
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.sim import Stage, Timeline
from kohakutpu.dispatch import Loader, Round
from kohakutpu.dispatch_acks import program_acks
from kohakutpu.isa import cluster, vector
from kohakutpu.sim.clusters import FIELDS, Cluster
from kohakutpu.sim.control import Agent, Program
from kohakutpu.sim.cores import Core
from kohakutpu.sim.parts import KINDS, WORK, Clock, Port, Station, Work

if TYPE_CHECKING:
    from kohakutpu.device import Device

KernelCycles = Mapping[str, Sequence[int]]
"""Kernel cycles of each vector core's RUNs, in order, by unit name."""

_COLUMNS = [cluster.CLUSTER.column(name) for name in FIELDS]
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
    loader = loader or Loader(machine)
    rounds = loader.rounds(image)
    title = image.name if name is None else name
    timeline = Timeline(title, machine.name, machine.params.clock_mhz, KINDS, WORK, assumed=assumed(machine))
    player = _Player(machine, timeline, image, kernel_cycles)
    at = 0
    while at < len(rounds):
        end = at + 1
        while end < len(rounds) and rounds[end].group == rounds[at].group:
            end += 1
        player.play(rounds[at:end])
        at = end
    player.finish()
    return timeline


def assumed(machine: Machine) -> tuple[str, ...]:
    """The timing values behind a timeline that no measurement gave (tag A)."""
    timing = machine.timing
    used = ("L", "host_bytes", "host_transaction", "link_latency")
    return tuple(f"{name} = {timing[name]}" for name in used if timing.tag(name) == "A")


def _runs(image: Image) -> bool:
    return any(p.unit.kind == "VC" for stage in image.stages for p in stage)


class _Player:
    """Plays rounds one group after another on one clock."""

    def __init__(self, machine: Machine, timeline: Timeline, image: Image, kernels: KernelCycles) -> None:
        self.machine, self.timeline, self.image = machine, timeline, image
        self.clock = clock = Clock(machine, timeline)
        several = len(machine.meshes) > 1
        self._agents = [
            Agent(clock, mesh, f"dispatcher of mesh {mesh.index}" if several else "dispatcher")
            for mesh in machine.meshes
        ]
        self._ports = {
            (p.mesh, p.index): Port(clock, f"port {p.index}" + (f" of mesh {p.mesh}" if several else ""))
            for p in machine.ports
        }
        self._stations: dict[str, Station] = {}
        for unit in machine.units:
            port = self._ports[unit.mesh, unit.port]
            if unit.kind == "MG":
                self._stations[unit.name] = Cluster(clock, unit, port)
            else:
                self._stations[unit.name] = Core(clock, unit, port, iter(kernels.get(unit.name, ())))
        clock.signal = self._signal
        clock.round_over = self._round_over
        self._active: list[Agent] = []
        self._now = 0
        self._stage = -1
        self._streams: list[list[Work]] = []
        self._flits = 0
        self.timeline.counters.update(rounds=0, flits=0)

    def _signal(self, unit: Unit, at: int, credit: bool) -> None:
        self.clock.events.at(at, self._agents[unit.mesh].signal, unit.y << 4 | unit.x, credit)

    def play(self, rounds: Sequence[Round]) -> None:
        """Rounds that start together, one per mesh."""
        number = rounds[0].stage
        if number != self._stage:
            self._stage = number
            self._streams = [_works(self.machine, p) for p in self.image.stages[number]]
            self.timeline.stages.append(Stage(f"stage {number}", self._now, self._now, 0))
        stage = self.image.stages[number]
        for r in rounds:
            programs: list[Program] = []
            for w in r.windows:
                works = self._streams[w.program][w.start : w.start + w.count]
                works[-1] = works[-1]._replace(last=True)
                programs.append((self._stations[stage[w.program].unit.name], works))
            self._agents[r.mesh].over = -1
            self.clock.events.at(self._now, self._agents[r.mesh].start, r, programs)
            self._host(r)
        self._active = active = [self._agents[r.mesh] for r in rounds]
        self.clock.events.run()
        waits = [agent.waits_for() for agent in active if agent.over < 0]
        if waits:
            raise Hang(waits, hint="the timed run waits for what never comes; does the functional run end?")
        # What still goes on (a sweep whose GEMM has retired, a write at a port) overlaps the next round.
        self._now = max(self._now, *(agent.over for agent in active))
        last = self.timeline.stages[-1]
        self.timeline.stages[-1] = Stage(last.name, last.start, self._now, last.rounds + 1)
        self.timeline.counters["rounds"] += 1
        self.timeline.counters["flits"] += sum(len(r.staging) for r in rounds)

    def _round_over(self) -> None:
        self.clock.events.stop = all(agent.over >= 0 for agent in self._active)

    def _host(self, r: Round) -> None:
        """The bus transactions around a round: staging and commands, GO, status and signal counts."""
        host = self.timeline.host
        for purpose, sizes in (
            ("staging", (r.staging.nbytes, r.commands.nbytes)),
            ("go and status", (_GO_BYTES, _CONTROL_BYTES, _NODE_STATUS_BYTES)),
        ):
            host[purpose] = host.get(purpose, 0) + sum(host_cycles(self.machine, n) for n in sizes if n)

    def finish(self) -> None:
        """Close the timeline."""
        self.clock.events.run()
        t = self.timeline
        t.cycles = self._now
        for port in self._ports.values():
            port.flush()
        word = 32
        t.counters["bytes read"] = word * sum(p.words_read for p in self._ports.values())
        t.counters["bytes written"] = word * sum(p.words_written for p in self._ports.values())
        end = t.cycles
        t.spans[:] = [s if s.end <= end else s._replace(end=end) for s in t.spans if s.start < end]
        t.counters["events"] = self.clock.events.count


def host_cycles(machine: Machine, nbytes: int) -> int:
    """One bus transaction of `nbytes` (datasheet 8.1), in cycles of the device."""
    t = machine.timing
    return t.host_transaction + -(-nbytes // t.host_bytes)


def _works(machine: Machine, program: EncodedProgram) -> list[Work]:
    """A stream decoded, with the acknowledgements of each instruction."""
    if program.unit.kind == "MG":
        rows = cluster.CLUSTER.decode_table(program.payloads)[:, _COLUMNS]
    else:
        rows = vector.decode_envelopes(program.payloads)
    acks = program_acks(machine, program)
    if not acks:
        return [Work(row, False, ()) for row in rows.tolist()]
    return [
        Work(row, False, tuple((unit, int(each[i])) for unit, each in acks.items() if each[i]))
        for i, row in enumerate(rows.tolist())
    ]


def signature(image: Image, kernel_cycles: KernelCycles) -> bytes:
    """Equal for images of one machine that take the same time: everything but the addresses in memory."""
    found = hashlib.blake2b(repr(sorted((k, tuple(v)) for k, v in kernel_cycles.items())).encode(), digest_size=16)
    for number, stage in enumerate(image.stages):
        for program in stage:
            found.update(f"{number} {program.unit.name} {len(program)}".encode())
            found.update(program.passes.tobytes())
            if program.unit.kind == "MG":
                found.update((program.payloads & _NO_ADDRESS).tobytes())
            else:
                rows = vector.decode_envelopes(program.payloads)
                rows[(rows[:, 0] == vector.ENV_DESC) & (rows[:, 2] == 0), 3] = 0
                found.update(rows.tobytes())
            for receiver, count in program.acks:
                found.update(receiver.name.encode())
                found.update(repr(count).encode() if isinstance(count, int) else count.tobytes())
    return found.digest()


def _no_address() -> NDArray[np.uint64]:
    """uint64[4]: every bit of a cluster payload outside the address."""
    address = cluster.CLUSTER["addr"]
    word = (1 << 256) - 1 ^ address.put((1 << address.width) - 1)
    return np.frombuffer(word.to_bytes(32, "little"), np.uint64)


_NO_ADDRESS = _no_address()


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
