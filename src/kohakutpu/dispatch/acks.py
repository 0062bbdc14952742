"""Which data acknowledgements an instruction stream causes, and where: what a round has to await beside completions.

It decodes cluster payloads far enough to see node drains (datasheet 5.4), and takes a vector program's word for
its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.image import EncodedProgram
from kohakuaccel.machine import Machine, Unit
from kohakutpu.isa import cluster, flit, vector

RUN_OP = vector.ENV_RUN
OP_SHIFT = np.uint64(cluster.CLUSTER.position("op")[0] - 192)  # of the opcode in a payload's highest word


def _bits(**fields: int) -> NDArray[np.uint64]:
    """uint64[4]: these fields' bits of a cluster payload, everything else 0."""
    word = sum(cluster.CLUSTER[name].put(value) for name, value in fields.items())
    return np.frombuffer(word.to_bytes(32, "little"), np.uint64)


# A DRAIN to a node that asks for acknowledgement: these bits hold these values.
_NODE_DRAIN = _bits(op=15, dnode=1, dflags=1)
_NODE_DRAIN_IS = _bits(op=cluster.DRAIN, dnode=1, dflags=1)


def drain_acks(machine: Machine, program: EncodedProgram) -> dict[Unit, NDArray[np.int64]]:
    """DATA_RECEIVED signals at each receiver that a cluster's node drains cause, int64[n] per instruction.

    One per burst of 8 granules with dflags[0] and an agent's coordinate as acknowledgement target (datasheet 5.4).
    """
    at = np.flatnonzero((program.payloads & _NODE_DRAIN == _NODE_DRAIN_IS).all(axis=1))
    if not len(at):
        return {}
    rows = cluster.CLUSTER.decode_table(program.payloads[at])
    column = {name: rows[:, cluster.CLUSTER.column(name)] for name in cluster.CLUSTER.names}
    acks: dict[Unit, NDArray[np.int64]] = {}
    for i, position in enumerate(at.tolist()):
        final = int(column["dfin"][i])
        mesh = int(column["dmesh"][i]) if final else program.unit.mesh
        x, y = (final & 15, final >> 4) if final else (int(column["dst_x"][i]), int(column["dst_y"][i]))
        receiver = machine.unit_at(mesh, x, y)
        if receiver is None:
            raise Refusal(
                "a node drain goes to a unit",
                where=f"{program.unit.name}, instruction {position} ({cluster.text(rows[i])})",
                got=f"({x},{y}) of mesh {mesh}",
            )
        agent = machine.meshes[mesh]
        if (int(column["dack_x"][i]), int(column["dack_y"][i])) != (agent.agent_x, agent.agent_y):
            continue
        granules = int(column["n"][i]) * (1 if int(column["dbuf"][i]) == flit.BUF_VC_L1 else 2)
        acks.setdefault(receiver, np.zeros(len(program), np.int64))[position] = -(
            -granules // machine.params.drain_burst
        )
    return acks


def program_acks(machine: Machine, program: EncodedProgram) -> dict[Unit, NDArray[np.int64]]:
    """Acknowledgements per receiver and instruction: counted for a cluster, as stated for a vector core.

    A total stated by a vector program belongs to its RUNs in equal shares (all to the last when it does not
    divide). Refuses a cluster program whose stated totals differ from what its drains cause.
    """
    stated: dict[Unit, NDArray[np.int64]] = {}
    if program.unit.kind == "MG":
        found = drain_acks(machine, program)
        for receiver, count in program.acks:
            total = count if isinstance(count, int) else int(count.sum())
            real = int(found[receiver].sum()) if receiver in found else 0
            if total != real:
                raise Refusal(
                    "the stated acknowledgements are those its drains cause",
                    where=f"program of {program.unit.name}, receiver {receiver.name}",
                    got=total,
                    limit=real,
                )
        return found
    runs = np.flatnonzero((program.payloads[:, 3] >> OP_SHIFT) == RUN_OP)
    for receiver, count in program.acks:
        if not isinstance(count, int):
            stated[receiver] = count
            continue
        if count and not len(runs):
            raise Refusal(
                "only a RUN of a vector program sends data",
                where=f"program of {program.unit.name}, receiver {receiver.name}",
                got=f"{count} acknowledgements",
            )
        each = np.zeros(len(program), np.int64)
        if count and count % len(runs) == 0:
            each[runs] = count // len(runs)
        elif count:
            each[runs[-1]] = count
        stated[receiver] = each
    return stated
