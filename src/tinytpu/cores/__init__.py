"""Several cores on one network: systems of cores, collectives, products split over cores (datasheet 1, 15).

`cores.gemm` multiplies, `cores.collective` runs a collective, `cores.System` runs scripts of one's own.
"""

from tinytpu.cores.scripts import Bundle, Move, Receive, Send, Slots
from tinytpu.cores.system import System

__all__ = ["Bundle", "Move", "Receive", "Send", "Slots", "System"]
