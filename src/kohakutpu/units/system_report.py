"""Why a machine does not go on, in words: the fault that stopped it, or everybody who waits and what for.

It decides these texts. It reads the state of a machine and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kohakuaccel.diagnostics import Fault
from kohakuaccel.machine import Machine
from kohakutpu.isa import cluster as cluster_isa
from kohakutpu.isa import control as reg
from kohakutpu.isa import vector as vector_isa
from kohakutpu.units import agent_state as a
from kohakutpu.units import errors
from kohakutpu.units.vector_state import Vectors

_MESH_SPAN = 1 << reg.MESH_SHIFT


@dataclass(frozen=True, slots=True)
class Party:
    """Somebody who cannot proceed: `unit` and the number of its instruction since the kick, -1 if none."""

    text: str
    unit: str = ""
    index: int = -1
    disassembly: str = ""


class Report:
    """Reads one machine's control and vector state."""

    def __init__(self, machine: Machine, control: a.Control, vectors: Vectors) -> None:
        self.machine = machine
        self.control = control
        self.vectors = vectors

    def fault(self) -> Fault:
        """What stopped the machine, as an exception."""
        stop = self.control.stop
        row, code, pc = int(stop[a.S_UNIT]), int(stop[a.S_CODE]), int(stop[a.S_PC])
        details = stop[a.S_DETAIL : a.S_DETAIL + 4].tolist()
        index = int(stop[a.S_INDEX])
        faulted = int(stop[a.S_KIND]) == a.STOP_FAULT
        if row >= 0:
            unit = self.machine.units[row]
            message = errors.fault(unit.kind, code) if faulted else errors.error(code, details)
            name, text = unit.name, self._head_text(row, pc)
        else:
            message, name, text = errors.error(code, details), self._agent_name(-1 - row), ""
        shown = code if faulted else None
        return Fault(message.rule, unit=name, index=index, disassembly=text, code=shown, hint=message.hint)

    def _agent_name(self, mesh: int) -> str:
        return "dispatch agent" if len(self.machine.meshes) == 1 else f"dispatch agent of mesh {mesh}"

    def _head_text(self, row: int, pc: int = -1) -> str:
        """The oldest instruction of a unit as text; within a RUN also the vector word at `pc`."""
        payload = self.control.words[row, int(self.control.unit[row, a.U_HEAD])]
        if self.machine.units[row].kind == "MG":
            return cluster_isa.disassemble([payload])
        text = vector_isa.envelope_text(payload)
        if pc < 0 or not text.startswith("RUN"):
            return text
        at = int(self.control.unit[row, a.U_INDEX]) * self.machine.params.imem + pc
        word = int(self.vectors.word[at]) if 0 <= pc < self.machine.params.imem else None
        return f"{text}, pc {pc}" + (f": {vector_isa.disassemble([word])}" if word is not None else "")

    def waits(self) -> tuple[Party, ...]:
        """Everybody who cannot proceed now, and what each waits for."""
        found: list[Party] = []
        run, unit = self.control.run, self.control.unit
        for mesh in range(len(self.machine.meshes)):
            if run[mesh, a.R_BUSY]:
                found.append(self._engine_wait(mesh))
            if run[mesh, a.R_RUNNING]:
                found.append(self._dispatcher_wait(mesh))
        for row, u in enumerate(self.machine.units):
            reason, queued = int(unit[row, a.U_BLOCKED]), int(unit[row, a.U_COUNT])
            if reason and queued:
                index = int(self.control.meta[row, int(unit[row, a.U_HEAD]), a.Q_INDEX])
                details = unit[row, a.U_WAIT : a.U_WAIT + 2].tolist()
                text = self._head_text(row)
                behind = f", {queued - 1} behind it" if queued > 1 else ""
                reason_text = errors.wait(reason, details)
                found.append(
                    Party(
                        f"{u.name} instruction {index} ({text}) waits for {reason_text}{behind}",
                        u.name,
                        index,
                        text,
                    )
                )
            elif unit[row, a.U_OPEN]:
                got, length = int(unit[row, a.U_GOT]), int(unit[row, a.U_LENGTH])
                found.append(Party(f"{u.name} waits for data flit {got + 1} of {length} of an open burst", u.name))
        return tuple(found)

    def _engine_wait(self, mesh: int) -> Party:
        engine = self.control.engine[mesh].view(np.uint64)
        pc = int(engine[reg.PC // 8])
        at = reg.COMMANDS // 8 + 4 * pc
        _, address, want, mask = (int(v) for v in engine[at : at + 4])
        target, offset = address >> reg.MESH_SHIFT, (address & _MESH_SPAN - 1) - reg.AGENT_BASE
        value = int(self.control.agent[target].view(np.uint64)[offset // 8])
        who = "control engine" if len(self.machine.meshes) == 1 else f"control engine of mesh {mesh}"
        text = (
            f"{who} command {pc} polls {reg.describe(address)}: "
            f"wants {want:#x} under mask {mask:#x}, has {value & mask:#x}"
        )
        node = (offset - reg.NODE_STATUS) // 8
        if 0 <= node < 256:
            counted, wanted = value >> 8 & 0xFFFF, want >> 8 & 0xFFFF
            unit = self.machine.unit_at(target, node & 15, node >> 4)
            missing = (wanted - counted) & 0xFFFF
            name = unit.name if unit else f"({node & 15},{node >> 4}), where no unit is"
            text += f" ({name} has signalled {counted}, {missing} of {wanted} missing)"
        return Party(text)

    def _dispatcher_wait(self, mesh: int) -> Party:
        run = self.control.run[mesh]
        node, left, index = int(run[a.R_NODE]), int(run[a.R_LEFT]), int(run[a.R_INDEX])
        unit = self.machine.unit_at(mesh, node & 15, node >> 4)
        name = unit.name if unit else f"({node & 15},{node >> 4})"
        reason = "credit (0 left)" if run[a.R_CREDIT] == 0 else f"room in the instruction FIFO of {name}"
        return Party(
            f"{self._agent_name(mesh)} waits for {reason} before flit {index} of {index + left} of the program "
            f"for {name} (slot {int(run[a.R_SLOT])})"
        )
