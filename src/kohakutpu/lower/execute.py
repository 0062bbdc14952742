"""The L1 run: unit models execute a program's rows in stage order, with no encoding, staging or signals in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Fault
from kohakuaccel.schedule import Array
from kohakutpu.layouts import OperandPack
from kohakutpu.units.state import NOTE_WORDS, RETIRED, WORD, make_memory, make_outbox

if TYPE_CHECKING:
    from kohakutpu.lower.plan import Plan


def execute(plan: Plan, inputs: Sequence[NDArray[np.float16]]) -> list[Array]:
    """Outputs of a program whose buffers lie as on an empty device. inputs: float16 arrays of the "in" buffers."""
    from kohakutpu.units.cluster import cluster_receive, cluster_step
    from kohakutpu.units.cluster_state import make_clusters
    from kohakutpu.units.memory import quantising_upload
    from kohakutpu.units.vector import vector_receive, vector_step
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
        for one in stage:
            rows = one.linked(base)
            u = one.unit.index
            for index, row in enumerate(rows):
                outbox.used[:] = 0
                if one.unit.kind == "MG":
                    status = cluster_step(clusters, memory, outbox, u, row, 0, note)
                else:
                    op, a, b, value = (int(v) for v in row)
                    status = vector_step(vectors, memory, outbox, u, op, a, b, value, note)
                if status != RETIRED:
                    raise Fault(
                        f"status {status}, code {int(note[1])}",
                        unit=one.unit.name,
                        index=index,
                        disassembly=one.codec.text(rows[index : index + 1])[0],
                    )
                for burst in outbox.head[: int(outbox.used[0])].tolist():
                    mesh, x, y, buf, offset, granules, _, _, _, first = burst
                    target = plan.machine.unit_at(mesh, x, y)
                    assert target is not None
                    receive, state = (vector_receive, vectors) if target.kind == "VC" else (cluster_receive, clusters)
                    receive(state, target.index, buf, offset, outbox.data[first : first + granules], granules)
    results: list[Array] = []
    for number, spec in plan.schedule.outputs():
        layout = plan.layout(number)
        at = addresses[number]
        results.append(layout.unpack(memory.byte[at : at + layout.nbytes].copy()).reshape(spec.shape))
    return results
