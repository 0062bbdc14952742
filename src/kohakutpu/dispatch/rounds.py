"""What a round is: staging words, a command list and the counts to await (datasheet 7.3), and what it may hold.

It must not know how streams are cut, nor how a transport works.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.image import Image
from kohakuaccel.machine import Machine
from kohakutpu.dispatch.acks import OP_SHIFT
from kohakutpu.isa import cluster, flit, vector
from kohakutpu.isa import control as reg

OPCODES = {
    "MG": {code: name for name, code in cluster.OPS.items()} | {cluster.TDESC: "TDESC"},
    "VC": {vector.ENV_IMEM: "IMEM", vector.ENV_DESC: "DESC", vector.ENV_RUN: "RUN"},
}
HEADER = flit.HEADER.encode(type=flit.CU_INST)
TXN, LAST = flit.HEADER.position("txn")[0], flit.HEADER.position("last")[0]
MASK = reg.poll_node(0)[1]


@dataclass(frozen=True, slots=True)
class Window:
    """Instructions start .. start + count - 1 of `program` (its number in the stage), staged from slot `base`."""

    program: int
    start: int
    count: int
    base: int


@dataclass(frozen=True, slots=True)
class Round:
    """One run of one mesh's control engine. Rounds with the same `group` start together, one per mesh.

    staging: uint64[flits, 5]. commands: uint64[n, 4], complete but for the wanted counts of `polls` (row numbers),
    which a run fills in: node nodes[i] ({y,x}) is awaited for expected[i] signals more than it had.
    """

    stage: int
    group: int
    mesh: int
    staging: NDArray[np.uint64]
    commands: NDArray[np.uint64]
    polls: NDArray[np.int64]
    nodes: NDArray[np.int64]
    expected: NDArray[np.int64]
    windows: tuple[Window, ...]

    def awaiting(self, counts: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The commands with the wanted counts filled in from the nodes' signal counts now, int64[256]."""
        commands = self.commands.copy()
        commands[self.polls, 2] = ((counts[self.nodes] + self.expected) & 0xFFFF) << 8 | 1
        return commands


@dataclass(frozen=True, slots=True)
class Limits:
    """What one round of a machine may hold."""

    flits: int
    commands: int
    credit: int

    @staticmethod
    def of(machine: Machine) -> Limits:
        p = machine.params
        return Limits(p.stage_flits, p.ncmd, min(p.inst_fifo, 0xFFFF))


def opcode_counts(image: Image) -> dict[str, int]:
    """Instructions of an image by opcode name."""
    found: dict[str, int] = {}
    for program in (p for stage in image.stages for p in stage):
        ops = (program.payloads[:, 3] >> OP_SHIFT).astype(np.int64)
        names = OPCODES[program.unit.kind]
        for code, number in enumerate(np.bincount(ops, minlength=1).tolist()):
            if number:
                name = names.get(code, f"op {code}")
                found[name] = found.get(name, 0) + number
    return found
