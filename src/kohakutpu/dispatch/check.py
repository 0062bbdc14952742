"""Whether rounds are right: their command lists are read back as the hardware does (datasheet 7.1 to 7.3).

It must not know how the rounds were made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.image import EncodedProgram, Image
from kohakuaccel.machine import Machine
from kohakutpu.dispatch.rounds import HEADER, LAST, MASK, TXN, Limits, Round
from kohakutpu.isa import control as reg


def _broken(rule: str, number: int, got: object = None, limit: object = None) -> Refusal:
    return Refusal(rule, where=f"round {number}", got=got, limit=limit)


def _programs(
    machine: Machine, number: int, r: Round, limits: Limits
) -> tuple[list[tuple[int, int, int]], dict[int, int]]:
    """What a command list does, read back: kicks as (destination, first slot, flits), and awaits per node."""
    window = reg.agent_bus(r.mesh, 0)
    registers: dict[int, int] = {}
    kicks: list[tuple[int, int, int]] = []
    awaits: dict[int, int] = {}
    idle = False
    rows = r.commands.tolist()
    for op, address, data, mask in rows[:-1]:
        offset = address - window
        if op == reg.WRITE and offset == reg.PROG_KICK:
            if not idle or not all(k in registers for k in reg.SHADOWED) or reg.PROG_CRED not in registers:
                raise _broken("a kick follows PROG_STAT = 0, DST, BASE, LEN and a seeded credit", number)
            kicks.append((registers[reg.PROG_DST], registers[reg.PROG_BASE], registers[reg.PROG_LEN]))
            idle = False
        elif op == reg.WRITE:
            if offset == reg.PROG_CRED and offset in registers:
                raise _broken("the credit is seeded once a round", number)
            registers[offset] = data
        elif op == reg.POLL and offset == reg.PROG_STAT:
            idle = (data, mask) == (0, 1)
        elif op == reg.POLL and 0 <= offset - reg.NODE_STATUS < 8 * 256 and mask == MASK and data & 1:
            awaits[(offset - reg.NODE_STATUS) // 8] = awaits.get((offset - reg.NODE_STATUS) // 8, 0) + 1
        else:
            raise _broken("a round writes program registers and polls", number, got=(op, hex(address)))
    if not rows or rows[-1][0] != reg.DONE:
        raise _broken("a command list ends with DONE", number)
    credit = registers.get(reg.PROG_CRED, 0)
    if kicks and not len(kicks) < credit <= limits.credit:
        raise _broken("programs < credit <= instruction FIFO", number, got=(len(kicks), credit), limit=limits.credit)
    if any(times != 1 for times in awaits.values()):
        raise _broken("a node is awaited once, for its total", number)
    return kicks, awaits


def check_rounds(machine: Machine, image: Image, rounds: Sequence[Round], limits: Limits | None = None) -> None:
    """Prove that rounds respect the three limits and send every instruction once, in order, and awaited.

    Reads the command lists back as the hardware does. Raises Refusal naming the round and the broken rule.
    """
    limits = limits or Limits.of(machine)
    stage = -1
    at: dict[int, int] = {}
    streams: dict[tuple[int, int], EncodedProgram] = {}

    def finish() -> None:
        for (mesh, node), program in streams.items():
            if at.get(mesh << 8 | node, 0) != len(program):
                raise Refusal(
                    "every instruction of a stage is sent",
                    where=f"stage {stage}, {program.unit.name}",
                    got=at.get(mesh << 8 | node, 0),
                    limit=len(program),
                )

    for number, r in enumerate(rounds):
        while stage < r.stage:
            finish()
            stage += 1
            at = {}
            streams = {(p.unit.mesh, p.unit.y << 4 | p.unit.x): p for p in image.stages[stage]}
        if len(r.staging) > limits.flits:
            raise _broken("flits fit the staging RAM", number, len(r.staging), limits.flits)
        if len(r.commands) > limits.commands:
            raise _broken("commands fit the control engine", number, len(r.commands), limits.commands)
        kicks, awaits = _programs(machine, number, r, limits)
        sent: dict[int, int] = {}
        for node, base, count in kicks:
            program = streams.get((r.mesh, node))
            start = at.get(r.mesh << 8 | node, 0)
            staged = r.staging[base : base + count]
            if program is None or len(staged) != count or count == 0:
                raise _broken("a program is staged for a unit of the stage", number, (hex(node), base, count))
            if not np.array_equal(staged[:, :4], program.payloads[start : start + count]):
                raise _broken(f"the stream of {program.unit.name} continues where it stopped", number, start)
            heads = staged[:, 4] & ~np.uint64(0xFF << TXN)
            if int(heads[-1]) != HEADER | 1 << LAST or (heads[:-1] != np.uint64(HEADER)).any():
                raise _broken(f"flits of {program.unit.name} are CU_INST, last on the last one", number)
            at[r.mesh << 8 | node] = start + count
            sent[node] = sent.get(node, 0) + count
        waited = dict(zip(r.nodes.tolist(), r.expected.tolist(), strict=True))
        polled = [(int(a) - reg.agent_bus(r.mesh, reg.NODE_STATUS)) // 8 for a in r.commands[r.polls, 1]]
        if set(awaits) != set(waited) or polled != r.nodes.tolist():
            raise _broken("the awaited nodes are those of the list", number, sorted(awaits), sorted(waited))
        if any(waited.get(node, 0) < count for node, count in sent.items()):
            raise _broken("every instruction of a round is awaited in it", number, sent, waited)
    while stage < len(image.stages):
        finish()
        stage += 1
        if stage < len(image.stages):
            at, streams = {}, {(p.unit.mesh, p.unit.y << 4 | p.unit.x): p for p in image.stages[stage]}
