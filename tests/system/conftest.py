"""A host's hand on the bus: staging, kicks and command lists built flit by flit, without any loader."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.machine import Unit
from kohakutpu import machines
from kohakutpu.isa import control as reg
from kohakutpu.isa import flit
from kohakutpu.units.system import System

Command = tuple[int, int, int, int]


class Host:
    """Register-level access to one mesh of a System."""

    def __init__(self, system: System, mesh: int = 0) -> None:
        self.system = system
        self.mesh = mesh
        self.machine = system.machine
        self._slot = 0

    def unit(self, name: str) -> Unit:
        return next(u for u in self.machine.units if u.name == name)

    def put(self, offset: int, value: int) -> None:
        """One agent register."""
        self.system.write(reg.agent_bus(self.mesh, offset), np.array([value], np.uint64))

    def get(self, offset: int) -> int:
        return int(self.system.read(reg.agent_bus(self.mesh, offset), 8).view(np.uint64)[0])

    def engine(self, offset: int) -> int:
        return int(self.system.read(reg.engine_bus(self.mesh, offset), 8).view(np.uint64)[0])

    def node(self, unit: str) -> dict[str, int]:
        u = self.unit(unit)
        return reg.NODE.decode(self.get(reg.node_status(u.x, u.y)))

    def stage(self, payloads: NDArray[np.uint64], slot: int = 0, *, last: bool = True, txn: int = 0) -> int:
        """Instruction flits into staging slots; returns how many."""
        heads = np.full(len(payloads), flit.HEADER.encode(type=flit.CU_INST, txn=txn), np.uint64)
        if last:
            heads[-1] = flit.HEADER.encode(type=flit.CU_INST, txn=txn, last=1)
        self.stage_flits(flit.stage(heads, payloads), slot)
        return len(payloads)

    def stage_flits(self, flits: NDArray[np.uint64], slot: int = 0) -> None:
        self.system.write(reg.agent_bus(self.mesh, reg.stage_slot(slot)), flits)

    def kick(self, unit: str, flits: int, slot: int = 0, credit: int | None = 32) -> None:
        """Start a program from the host, without the control engine."""
        u = self.unit(unit)
        if credit is not None:
            self.put(reg.PROG_CRED, credit)
        self.put(reg.PROG_DST, u.y << 4 | u.x)
        self.put(reg.PROG_BASE, slot)
        self.put(reg.PROG_LEN, flits)
        self.put(reg.PROG_KICK, 1)

    def launch(self, commands: Sequence[Command]) -> None:
        """A command list and GO."""
        table = np.array(commands, np.uint64)
        self.system.write(reg.engine_bus(self.mesh, reg.COMMANDS), table)
        self.system.write(reg.engine_bus(self.mesh, reg.CTRL), np.array([reg.GO], np.uint64))

    def round(self, programs: Sequence[tuple[str, NDArray[np.uint64]]], credit: int = 32) -> list[Command]:
        """Stage programs one after another; the commands that kick each and await its instructions."""
        at = reg.agent_bus(self.mesh, 0)
        commands: list[Command] = [(reg.WRITE, at + reg.PROG_CRED, credit, 0)]
        awaits: list[Command] = []
        slot = 0
        for name, payloads in programs:
            u = self.unit(name)
            n = self.stage(payloads, slot)
            commands += [
                (reg.POLL, at + reg.PROG_STAT, 0, 1),
                (reg.WRITE, at + reg.PROG_DST, u.y << 4 | u.x, 0),
                (reg.WRITE, at + reg.PROG_BASE, slot, 0),
                (reg.WRITE, at + reg.PROG_LEN, n, 0),
                (reg.WRITE, at + reg.PROG_KICK, 1, 0),
            ]
            want, mask = reg.poll_node(self.node(name)["count"] + n)
            awaits.append((reg.POLL, at + reg.node_status(u.x, u.y), want, mask))
            slot += n
        return [*commands, *awaits, (reg.DONE, 0, 0, 0)]

    def run(self, *programs: tuple[str, NDArray[np.uint64]], credit: int = 32) -> None:
        self.launch(self.round(programs, credit))

    def control_value(self, unit: str, index: int, txn: int = 0) -> tuple[int, dict[str, int]]:
        """A CU_CTRL answer: (value, header)."""
        u, mesh = self.unit(unit), self.machine.meshes[self.mesh]
        header = flit.HEADER.encode(
            dst_x=u.x, dst_y=u.y, src_x=mesh.agent_x, src_y=mesh.agent_y, type=flit.CU_CTRL, txn=txn, last=1
        )
        words = flit.stage(header, flit.CONTROL_REQUEST.encode(index=index))
        self.system.write(reg.agent_bus(self.mesh, reg.TX_FLIT), words)
        self.put(reg.TX_KICK, 1)
        reply = self.system.read(reg.agent_bus(self.mesh, reg.RX_FLIT), 40).view(np.uint64)
        self.put(reg.RX_POP, 1)
        payload = int.from_bytes(reply[:4].tobytes(), "little")
        row = flit.CONTROL_REPLY.decode(payload)
        assert row["index"] == index
        return row["value"], flit.HEADER.decode(int(reply[4]))


@pytest.fixture
def host() -> Callable[..., Host]:
    """Makes a Host on a fresh System of a preset."""

    def make(machine: str = "ship_3x2", mesh: int = 0, **options: str) -> Host:
        return Host(System(machines.load(machine), **options), mesh)

    return make
