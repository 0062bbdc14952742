"""The control plane's numbers (datasheet 7): agent registers, control-engine commands, and the bus map.

The bus map of several meshes is ours, the datasheet leaves it open: the control windows of mesh m lie at
`m << 32`, its memory window at `(m + 1) << 40`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.isa import Field, Format

# Windows of a mesh, relative to `m << 32`.
ENGINE_BASE = 0x0000_0000
AGENT_BASE = 0x1000_0000
WINDOW = 0x1000_0000  # bytes in each of the two windows
MESH_SHIFT = 32
MEMORY_SHIFT = 40

# Dispatch agent, offsets from AGENT_BASE.
STATUS = 0x0008
CAPS = 0x0010
PROG_DST = 0x0040
PROG_LEN = 0x0048
PROG_KICK = 0x0050
PROG_STAT = 0x0058
PROG_CRED = 0x0060
PROG_BASE = 0x0068
SIG_DONE = 0x0070
AUX_STAT = 0x0078
TX_FLIT = 0x0100
TX_KICK = 0x0140
TX_STATUS = 0x0148
RX_FLIT = 0x0180
RX_POP = 0x01C0
RX_STATUS = 0x01C8
AUX_CFG = 0x0800
NODE_STATUS = 0x1000
STAGE = 0x2000
STAGE_BYTES = 40  # per flit slot
AGENT_REGISTERS = {
    "STATUS": STATUS,
    "CAPS": CAPS,
    "PROG_DST": PROG_DST,
    "PROG_LEN": PROG_LEN,
    "PROG_KICK": PROG_KICK,
    "PROG_STAT": PROG_STAT,
    "PROG_CRED": PROG_CRED,
    "PROG_BASE": PROG_BASE,
    "SIG_DONE": SIG_DONE,
    "AUX_STAT": AUX_STAT,
    "TX_KICK": TX_KICK,
    "TX_STATUS": TX_STATUS,
    "RX_POP": RX_POP,
    "RX_STATUS": RX_STATUS,
}
# Registers whose repeated write a program may skip: the hardware reads and never changes them.
SHADOWED = (PROG_DST, PROG_LEN, PROG_BASE)

AGENT_CAPS = Format(
    "CAPS",
    64,
    [
        Field("flit_bits", (15, 0), default=288),
        Field("interface", (23, 16), default=4),
        Field("grid_low", (31, 24)),
        Field("grid_high", (39, 32)),
    ],
    {(63, 40): 0},
)
DESTINATION = Format("PROG_DST", 64, [Field("y", (7, 4)), Field("x", (3, 0))], {(63, 8): 0})
PROGRAM_STATUS = Format(
    "PROG_STAT", 64, [Field("running", 0), Field("left", (16, 1)), Field("credit", (32, 17))], {(63, 33): 0}
)
NODE = Format(
    "NODE_STATUS",
    64,
    [Field("code", (63, 56)), Field("arg", (55, 24), style="x"), Field("count", (23, 8)), Field("valid", 0)],
    {(7, 1): 0},
)

# Control engine, offsets from ENGINE_BASE.
CTRL = 0x0000
PC = 0x0008
DONE_CODE = 0x0010
POLLS = 0x0018
COMMANDS = 0x1000
COMMAND_BYTES = 32
GO = 1
ENGINE_STATUS = Format("CTRL", 64, [Field("busy", 0), Field("done", 1), Field("error", 2)], {(63, 3): 0})

WRITE, POLL, DONE = 1, 2, 3
OPS = {"WRITE": WRITE, "POLL": POLL, "DONE": DONE}
# A command is four 64-bit words f0..f3; as one 256-bit word f0 is lowest.
COMMAND = Format(
    "COMMAND",
    256,
    [
        Field("op", (3, 0), values=OPS, default=DONE),
        Field("addr", (127, 64), style="x"),
        Field("data", (191, 128), style="x", doc="data, wanted value or code"),
        Field("mask", (255, 192), style="x"),
    ],
    {(63, 4): 0},
)


def engine_bus(mesh: int, offset: int) -> int:
    """Bus address of a control-engine register."""
    return mesh << MESH_SHIFT | ENGINE_BASE + offset


def agent_bus(mesh: int, offset: int) -> int:
    """Bus address of a dispatch-agent register."""
    return mesh << MESH_SHIFT | AGENT_BASE + offset


def memory_bus(mesh: int, address: int) -> int:
    """Bus address of a 40-bit memory address through mesh's window (datasheet 3.1)."""
    return (mesh + 1) << MEMORY_SHIFT | address


def node_status(x: int, y: int) -> int:
    """Agent offset of a node's status."""
    return NODE_STATUS + 8 * (y << 4 | x)


def stage_slot(slot: int) -> int:
    """Agent offset of a staging slot."""
    return STAGE + STAGE_BYTES * slot


def poll_node(count: int) -> tuple[int, int]:
    """(wanted value, mask) of the POLL that awaits a node's signal count (datasheet 7.3)."""
    return (count & 0xFFFF) << 8 | 1, 0x00FF_FF01


def describe(addr: int) -> str:
    """A control bus address as text: "agent.PROG_KICK", "mesh1.node(2,1)", ..."""
    mesh, local = addr >> MESH_SHIFT, addr & ((1 << MESH_SHIFT) - 1)
    prefix = f"mesh{mesh}." if mesh else ""
    if local < AGENT_BASE:
        if local >= COMMANDS:
            index, byte = divmod(local - COMMANDS, COMMAND_BYTES)
            return f"{prefix}engine.command[{index}].f{byte // 8}"
        names = {CTRL: "CTRL", PC: "PC", DONE_CODE: "DONE", POLLS: "POLLS"}
        return f"{prefix}engine.{names.get(local, hex(local))}"
    offset = local - AGENT_BASE
    for name, at in AGENT_REGISTERS.items():
        if at == offset:
            return f"{prefix}agent.{name}"
    if TX_FLIT <= offset < TX_KICK:
        return f"{prefix}agent.TX_FLIT[{(offset - TX_FLIT) // 8}]"
    if RX_FLIT <= offset < RX_POP:
        return f"{prefix}agent.RX_FLIT[{(offset - RX_FLIT) // 8}]"
    if NODE_STATUS <= offset < STAGE:
        code = (offset - NODE_STATUS) // 8
        return f"{prefix}node({code & 15},{code >> 4})"
    if offset >= STAGE:
        return f"{prefix}agent.stage[{(offset - STAGE) // STAGE_BYTES}].{(offset - STAGE) % STAGE_BYTES // 8}"
    return f"{prefix}agent.{offset:#06x}"


def command_text(words: NDArray[np.uint64] | Any) -> list[str]:
    """Commands uint64[n, 4] as text lines, up to and including DONE."""
    lines: list[str] = []
    for op, addr, data, mask in np.asarray(words, np.uint64).reshape(-1, 4).tolist():
        if op == WRITE:
            lines.append(f"WRITE {describe(addr)} = {data:#x}")
        elif op == POLL:
            lines.append(f"POLL  {describe(addr)} & {mask:#x} == {data:#x}")
        elif op == DONE:
            lines.append(f"DONE  {data:#x}")
            break
        else:
            lines.append(f".command {op:#x} {addr:#x} {data:#x} {mask:#x}")
    return lines
