"""A copy of bytes from one core to another: records in, packets over the network, result lines out.

Decides how many tiles go at once. When things happen is decided in `network`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine
from tinytpu.cores.scripts import Bundle, Move, Receive, Send, Slots, Step
from tinytpu.cores.system import System
from tinytpu.isa.codes import Column
from tinytpu.isa.words import row_of
from tinytpu.units.core import Image


@dataclass(frozen=True)
class Copied:
    """What arrived, uint8, and what it took. padded: bytes beside the data's own in the last tile."""

    data: NDArray[np.uint8]
    cycles: int
    packets: int
    padded: int


def copy(data: NDArray[np.uint8], machine: Machine) -> Copied:
    """Copy bytes that the host holds for one core to where it holds another core's.

    As many tiles at once as VMEM and the result lines of a program allow; the sender is loaded anew while the receiver
    puts out what came before.
    """
    lanes = int(machine.params.rows * machine.params.columns)
    whole = np.zeros(-(-len(data) // (4 * lanes)) * 4 * lanes, np.uint8)
    whole[: len(data)] = data
    tiles = whole.view(np.int32).reshape(-1, lanes)
    most = int(min(machine.params.vmem_tiles, machine.params.max_outputs))
    nothing = np.zeros((0, len(Column)), np.int64)
    halt = np.array([row_of(machine, "HALT")], np.int64)
    sender: list[Step] = []
    receiver: list[Step] = []
    for start in range(0, len(tiles), most):
        part = tiles[start : start + most]
        slots = Slots("VMEM", 0, len(part))
        sender += [Bundle(Image(nothing, vmem=dict(enumerate(part))), "copy in"), Move((Send(1, slots),), (), "copy")]
        out = Image(halt, vmem_outputs=tuple(range(len(part))))
        receiver += [Move((), (Receive(0, slots),), "copy"), Bundle(out, "copy out")]
    ran = System(machine, 2).run([sender, receiver])
    shown = [tile.reshape(-1) for run in ran.bundles[1] if run is not None for tile in run.vmem]
    flat = np.concatenate([np.zeros(0, np.int32), *shown]).view(np.uint8)
    return Copied(flat[: len(data)], ran.cycles, len(ran.packets), len(whole) - len(data))
