"""An image and its rounds as the tables of the compiled clock: instructions, windows, commands.

It decides which fields of an instruction have to do with time, and how many bytes and multiplications a stage has.
It must not know when anything happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.image import EncodedProgram, Image
from kohakuaccel.machine import Machine
from kohakutpu.dispatch import Round
from kohakutpu.dispatch.acks import program_acks
from kohakutpu.isa import cluster, flit, vector
from kohakutpu.isa import control as reg
from kohakutpu.sim import programs
from kohakutpu.sim import state as st

KernelCycles = Mapping[str, Sequence[int]]
"""Kernel cycles of each vector core's RUNs, in order, by unit name."""

WORD = 32
_COLUMNS = {
    "op": st.W_OP, "n": st.W_N, "sel": st.W_SEL, "gm": st.W_GM, "gn": st.W_GN, "nk": st.W_NK, "preq": st.W_PREQ,
    "emit": st.W_EMIT, "fuse": st.W_FUSE, "dnode": st.W_TO_NODE, "eoff": st.W_EOFF, "aoff": st.W_AOFF,
    "boff": st.W_BOFF, "abank": st.W_ABANK, "bbank": st.W_BBANK, "fbank": st.W_FBANK, "tsel": st.W_TSEL,
    "npeer": st.W_NPEER, "tag": st.W_TAG, "desc": st.W_DESC,
}  # fmt: skip
_FROM = [cluster.CLUSTER.column(name) for name in _COLUMNS]
_TO = np.array(list(_COLUMNS.values()))
_FP22 = (flit.BUF_MG_TILE, flit.BUF_MG_TILE_1)  # buffers that take two words per sub-tile


class Sums(NamedTuple):
    """Of an image. macs: multiply-accumulates; nbytes: bytes between units and memory; both int64[stages]. line: the
    user's line with most instructions of each stage, -1 where none is known. levels: bytes by memory level."""

    macs: st.Ints
    nbytes: st.Ints
    line: list[int]
    levels: dict[str, int]


@dataclass(frozen=True, eq=False)
class Streams:
    """Tables of `State` for one image, and sums over its stages."""

    work: st.Ints
    windows: st.Ints
    rounds: st.Ints
    groups: st.Ints
    commands: st.Ints
    stage_of: list[int]
    sums: Sums


def streams(machine: Machine, image: Image, rounds: Sequence[Round], kernels: KernelCycles) -> Streams:
    """The tables of an image that `rounds` cut. Raises Refusal where a RUN has no kernel cycles."""
    numbers = {unit.name: n for n, unit in enumerate(machine.units)}
    flat = [(number, program) for number, stage in enumerate(image.stages) for program in stage]
    first = np.concatenate([[0], np.cumsum([len(p) for _, p in flat])]).astype(np.int64)
    unit = np.repeat([numbers[p.unit.name] for _, p in flat], np.diff(first)).astype(np.int64)
    stage = np.repeat([number for number, _ in flat], np.diff(first)).astype(np.int64)
    payloads = np.concatenate([p.payloads for _, p in flat]) if flat else np.zeros((0, 4), np.uint64)
    work = np.zeros((len(payloads), st.W_COLUMNS), np.int64)
    work[:, [st.W_NEXT, st.W_DST, st.W_LINE, st.W_LEADER]] = -1
    work[:, st.W_WORDS] = 1
    kinds = np.array([u.kind == "MG" for u in machine.units])
    matrix = kinds[unit] if len(unit) else np.zeros(0, np.bool_)
    rows, others = np.flatnonzero(matrix), np.flatnonzero(~matrix)
    if len(rows):
        _clusters(machine, work, rows, payloads[rows], unit[rows])
    if len(others):
        _cores(machine, work, others, payloads[others], unit[others], kernels)
    for (_, program), at in zip(flat, first.tolist()):
        if program.sources is not None:
            work[at : at + len(program), st.W_LINE] = program.sources
        if program.unit.kind == "VC" and program.acks:
            _core_acks(machine, work[at : at + len(program)], program, numbers)
    starts = {(number, p.unit.name): int(at) for (number, p), at in zip(flat, first)}
    tables = _rounds(machine, image, rounds, starts, numbers)
    windows = tables[0]
    ends = windows[:, 1] + windows[:, 2] - 1
    work[ends, st.W_LAST] = 1
    work[windows[:, 1], st.W_FIRST] = 1
    return Streams(work, *tables, _sums(work, unit, stage, matrix, len(image.stages)))


def _clusters(machine: Machine, work: st.Ints, at: st.Ints, payloads: np.ndarray, unit: st.Ints) -> None:
    table = cluster.CLUSTER.decode_table(payloads)
    table[table[:, 0] == cluster.TDESC, 1:] = 0  # has other fields, and takes a slot whatever they are
    work[at[:, None], _TO] = table[:, _FROM]
    column = {name: table[:, cluster.CLUSTER.column(name)] for name in cluster.DESTINATION}
    mesh_of = np.array([u.mesh for u in machine.units])
    sends = np.flatnonzero(column["dnode"])
    if len(sends):
        c = {name: values[sends] for name, values in column.items()}
        final = c["dfin"]
        mesh = np.where(final != 0, c["dmesh"], mesh_of[unit[sends]])
        x = np.where(final != 0, final & 15, c["dst_x"])
        y = np.where(final != 0, final >> 4, c["dst_y"])
        inside = mesh < len(machine.meshes)
        work[at[sends], st.W_DST] = np.where(inside, machine.node_table[np.where(inside, mesh, 0), y, x], -1)
        agents = np.array([(m.agent_x, m.agent_y) for m in machine.meshes])[np.where(inside, mesh, 0)]
        acked = (c["dflags"] & 1 != 0) & (c["dack_x"] == agents[:, 0]) & (c["dack_y"] == agents[:, 1])
        work[at[sends], st.W_ACKS] = acked
        work[at[sends], st.W_WORDS] = np.where(np.isin(c["dbuf"], _FP22), 2, 1)
    peers, number = table[:, cluster.CLUSTER.column("peers")], table[:, cluster.CLUSTER.column("npeer")]
    for i in np.flatnonzero((table[:, 0] == cluster.FILL) & (number > 0)).tolist():
        mesh = int(mesh_of[unit[i]])
        others = [int(peers[i]) >> 8 * k & 0xFF for k in range(int(number[i]))]
        found = [int(machine.node_table[mesh, node >> 4, node & 15]) for node in others]
        own = machine.units[int(unit[i])]
        leader = min([own.y << 4 | own.x, *others])
        work[at[i], st.W_LEADER] = machine.node_table[mesh, leader >> 4, leader & 15]
        work[at[i], st.W_PEERS] = sum(n + 1 << 16 * k for k, n in enumerate(found))


def _cores(
    machine: Machine, work: st.Ints, at: st.Ints, payloads: np.ndarray, unit: st.Ints, kernels: KernelCycles
) -> None:
    table = vector.decode_envelopes(payloads)
    work[at, st.W_OP], work[at, st.W_N] = table[:, 0], table[:, 1]
    found = np.zeros((len(at), programs.FOUND), np.int64)
    programs.traffic(programs.cores(len(machine.units)), unit, table, found)
    work[at, st.W_READS], work[at, st.W_WRITES], work[at, st.W_FLITS] = found[:, :3].T
    # An entry of eight words leaves the drain quantiser as four (datasheet 10, r2_vc_quant).
    t = machine.timing
    work[at, st.W_PACE] = np.where(found[:, 5] != 0, -(-t.vdrain_entry // 4), t.vdrain_word)
    mesh_of = np.array([u.mesh for u in machine.units])
    sends = np.flatnonzero(found[:, 2])
    if len(sends):
        target = found[sends, 3]
        mesh = np.where(found[sends, 4] != 0, target >> 8, mesh_of[unit[sends]])
        mesh = np.minimum(mesh, len(machine.meshes) - 1)
        work[at[sends], st.W_DST] = machine.node_table[mesh, target >> 4 & 15, target & 15]
    run = table[:, 0] == vector.ENV_RUN
    for n in np.unique(unit[run]).tolist():
        mine = np.flatnonzero(run & (unit == n))
        cycles = kernels.get(machine.units[n].name, ())
        if len(cycles) < len(mine):
            raise Refusal(
                "every RUN has the kernel cycles of a functional run",
                where=machine.units[n].name,
                got=len(cycles),
                limit=len(mine),
                hint="time the image that was run, or leave kernel_cycles out",
            )
        work[at[mine], st.W_CYCLES] = cycles[: len(mine)]


def _core_acks(machine: Machine, work: st.Ints, program: EncodedProgram, numbers: Mapping[str, int]) -> None:
    """Acknowledgements that RUNs cause, as the program states them. A RUN sends to one node."""
    for receiver, each in program_acks(machine, program).items():
        sends = np.flatnonzero(each)
        work[sends, st.W_ACKS] += each[sends]
        work[sends, st.W_DST] = numbers[receiver.name]
        # A program that was written by hand may send what its words do not show.
        work[sends, st.W_FLITS] = np.maximum(work[sends, st.W_FLITS], 1)


def _rounds(
    machine: Machine,
    image: Image,
    rounds: Sequence[Round],
    starts: Mapping[tuple[int, str], int],
    numbers: Mapping[str, int],
) -> tuple[st.Ints, st.Ints, st.Ints, st.Ints, list[int]]:
    """Windows, rounds, groups and commands, and the stage of each group."""
    windows: list[tuple[int, int, int]] = []
    table: list[tuple[int, int, int]] = []
    groups: list[list[int]] = []
    stage_of: list[int] = []
    command = 0
    for number, r in enumerate(rounds):
        if number == 0 or r.group != rounds[number - 1].group:
            groups.append([number, 0, 0])
            stage_of.append(r.stage)
        groups[-1][1] += 1
        table.append((r.mesh, command, len(windows)))
        for w in r.windows:
            name = image.stages[r.stage][w.program].unit.name
            windows.append((numbers[name], starts[r.stage, name] + w.start, w.count))
        command += len(r.commands)
    return (
        np.array(windows, np.int64).reshape(-1, 3),
        np.array(table, np.int64).reshape(-1, 3),
        np.array(groups, np.int64).reshape(-1, 3),
        _commands(rounds),
        stage_of,
    )


def _commands(rounds: Sequence[Round]) -> st.Ints:
    """Command lists in the columns of `State.commands`."""
    if not rounds:
        return np.zeros((0, 4), np.int64)
    lists = np.concatenate([r.commands for r in rounds])
    found = np.zeros((len(lists), 4), np.int64)
    op = lists[:, 0]
    offset = lists[:, 1] & np.uint64(0xFFFF_FFFF)
    writes = op == reg.WRITE
    found[:, 0] = np.where(writes, st.C_WRITE, np.where(op == reg.POLL, st.C_IDLE, st.C_DONE))
    found[writes & (offset == reg.AGENT_BASE + reg.PROG_KICK), 0] = st.C_KICK
    credit = writes & (offset == reg.AGENT_BASE + reg.PROG_CRED)
    found[credit, 0] = st.C_CREDIT
    found[credit, 1] = lists[credit, 2].astype(np.int64)
    first = np.cumsum([0, *(len(r.commands) for r in rounds[:-1])])
    polls = np.concatenate([r.polls + at for r, at in zip(rounds, first.tolist())])
    found[polls, 0] = st.C_NODE
    found[polls, 1] = np.concatenate([r.nodes for r in rounds])
    found[polls, 2] = np.concatenate([r.expected for r in rounds])
    return found


def _sums(work: st.Ints, unit: st.Ints, stage: st.Ints, matrix: np.ndarray, stages: int) -> Sums:
    """What `Streams` says of stages and memory levels."""
    column = work.T
    op, n = column[st.W_OP], np.maximum(column[st.W_N], 1)
    fill, gemm, drain = (matrix & (op == code) for code in (cluster.FILL, cluster.GEMM, cluster.DRAIN))
    tiles = np.maximum(column[st.W_GM], 1) * np.maximum(column[st.W_GN], 1) * np.maximum(column[st.W_NK], 1)
    macs = np.where(gemm, tiles * (4 * 4 * 32), 0)
    entry = np.where(fill, n * (4 * WORD), 0)  # what lands in L1; an FP16 entry is twice that in memory
    leads = (column[st.W_LEADER] < 0) | (column[st.W_LEADER] == unit)
    read = np.where(column[st.W_PREQ] != 0, entry, 2 * entry) * leads
    out = np.where(drain, n * column[st.W_WORDS] * WORD, 0)
    written = out * (column[st.W_TO_NODE] == 0)
    core_read, core_written = (np.where(matrix, 0, column[c]) * WORD for c in (st.W_READS, st.W_WRITES))
    nbytes = read + written + core_read + core_written

    def by_stage(values: st.Ints) -> st.Ints:
        return np.bincount(stage, values, stages).astype(np.int64)

    line: list[int] = []
    for number in range(stages):
        known = column[st.W_LINE][(stage == number) & (column[st.W_LINE] >= 0)]
        line.append(int(np.bincount(known).argmax()) if len(known) else -1)
    levels = {
        "DRAM read": read.sum() + core_read.sum(),
        "DRAM written": written.sum() + core_written.sum(),
        "L1 A filled": entry[column[st.W_SEL] == 0].sum(),
        "L1 B filled": entry[column[st.W_SEL] == 1].sum(),
        "VC L1": core_read.sum() + core_written.sum(),
        "accumulator drained": out.sum(),
    }
    return Sums(by_stage(macs), by_stage(nbytes), line, {name: int(value) for name, value in levels.items()})
