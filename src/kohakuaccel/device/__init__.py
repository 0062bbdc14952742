"""The machine-independent half of a device: memory arenas, buffers, transports and counters.

Nothing here knows registers, units or instruction formats; a machine's own device puts these parts together.
"""

from kohakuaccel.device.arena import Arena, ArenaStats, Block
from kohakuaccel.device.buffer import Buffer
from kohakuaccel.device.counters import Counters
from kohakuaccel.device.transport import Bytes, Recording, Runs, Transport, replay

__all__ = [
    "Arena",
    "ArenaStats",
    "Block",
    "Buffer",
    "Bytes",
    "Counters",
    "Recording",
    "Runs",
    "Transport",
    "replay",
]
