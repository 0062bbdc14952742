"""The L1 run: unit models execute a program's rows in stage order, with no encoding, staging or signals in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Fault
from kohakuaccel.machine import Machine
from kohakuaccel.program import UnitProgram
from kohakuaccel.schedule import Array
from kohakutpu.layouts import OperandPack
from kohakutpu.units.state import NOTE_WORDS, RETIRED, WAITING, WORD, make_memory, make_outbox

if TYPE_CHECKING:
    from kohakutpu.lower.plan import Plan


def execute(plan: Plan, inputs: Sequence[NDArray[np.float16]]) -> list[Array]:
    """Outputs of a program whose buffers lie as on an empty device. inputs: float16 arrays of the "in" buffers."""
    from kohakutpu.units.cluster_state import make_clusters
    from kohakutpu.units.memory import quantising_upload
    from kohakutpu.units.vector_state import make_vectors

    addresses = plan.nominal_addresses()
    end = max(at + spec.layout.nbytes for at, spec in zip(addresses, plan.buffers))
    memory = make_memory([-(-max(end, 1) // 4096) * 4096])
    clusters, vectors, outbox = make_clusters(plan.machine), make_vectors(plan.machine), make_outbox()
    note = np.zeros(NOTE_WORDS, np.int64)
    for number, spec in enumerate(plan.buffers):
        values = plan.schedule.source_values(spec, inputs)
        if values is None:
            continue
        layout = plan.layout(number)
        data = layout.pack(values.reshape(-1))
        at = addresses[number]
        if isinstance(layout, OperandPack) and layout.preq:
            status = quantising_upload(memory, 0, "AB".index(layout.side), at, data.view(np.uint16), 0, note)
            if status != RETIRED:
                raise Fault("a non-finite operand at the quantiser", unit="memory agent")
        else:
            memory.byte[at : at + data.nbytes] = data
            memory.written[at // WORD : (at + data.nbytes) // WORD] = 1
    base = np.array(addresses, np.int64)
    for stage in plan.program.stages:
        machine = _Machine(plan.machine, clusters, vectors, memory, outbox)
        waiting = [_Running(one, one.linked(base)) for one in stage]
        while waiting:
            before = sum(one.at for one in waiting)
            for one in waiting:
                machine.advance(one)
            if sum(one.at for one in waiting) == before:
                # Only a shared fill waits for another unit, and compiled streams meet in one order.
                stuck = waiting[0]
                text = stuck.program.codec.text(stuck.rows[stuck.at : stuck.at + 1])[0]
                raise Fault("no unit can go on", unit=stuck.program.unit.name, index=stuck.at, disassembly=text)
            waiting = [one for one in waiting if one.at < len(one.rows)]
    results: list[Array] = []
    for number, spec in plan.schedule.outputs():
        layout = plan.layout(number)
        at = addresses[number]
        results.append(layout.unpack(memory.byte[at : at + layout.nbytes].copy()).reshape(spec.shape))
    return results


@dataclass(slots=True)
class _Running:
    """A unit's linked rows, and the next one."""

    program: UnitProgram
    rows: NDArray[np.int64]
    at: int = 0


class _Machine:
    """The unit models and their memory, stepped row by row."""

    def __init__(self, machine: Machine, clusters: Any, vectors: Any, memory: Any, outbox: Any) -> None:
        from kohakutpu.units.cluster import cluster_receive, cluster_step
        from kohakutpu.units.vector import vector_receive, vector_step

        self.machine = machine
        self._state = (clusters, vectors, memory, outbox)
        self._steps = (cluster_step, vector_step)
        self._receivers = {"MG": (cluster_receive, clusters), "VC": (vector_receive, vectors)}
        self._note = np.zeros(NOTE_WORDS, np.int64)

    def advance(self, one: _Running) -> None:
        """Execute rows until the last, or one that waits for another unit. Raises Fault."""
        clusters, vectors, memory, outbox = self._state
        cluster_step, vector_step = self._steps
        note, u = self._note, one.program.unit.index
        while one.at < len(one.rows):
            row = one.rows[one.at]
            outbox.used[:] = 0
            if one.program.unit.kind == "MG":
                status = cluster_step(clusters, memory, outbox, u, row, 0, note)
            else:
                op, a, b, value = (int(v) for v in row)
                status = vector_step(vectors, memory, outbox, u, op, a, b, value, note)
            if status == WAITING:
                return
            if status != RETIRED:
                raise Fault(
                    f"status {status}, code {int(note[1])}",
                    unit=one.program.unit.name,
                    index=one.at,
                    disassembly=one.program.codec.text(one.rows[one.at : one.at + 1])[0],
                )
            one.at += 1
            self._deliver(outbox)

    def _deliver(self, outbox: Any) -> None:
        for burst in outbox.head[: int(outbox.used[0])].tolist():
            mesh, x, y, buf, offset, granules, _, _, _, first = burst
            target = self.machine.unit_at(mesh, x, y)
            assert target is not None
            receive, state = self._receivers[target.kind]
            receive(state, target.index, buf, offset, outbox.data[first : first + granules], granules)
