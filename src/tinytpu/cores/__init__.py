"""Several cores on one network: systems of cores, collectives, products split over cores (datasheet 1, 15).

`collective` runs a collective over arrays, `System` runs scripts of one's own.
"""

from tinytpu.cores.collectives import Collected, collective
from tinytpu.cores.scripts import Bundle, Move, Receive, Send, Slots
from tinytpu.cores.system import Ran, System

__all__ = ["Bundle", "Collected", "Move", "Ran", "Receive", "Send", "Slots", "System", "collective"]
