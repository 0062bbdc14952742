"""L4, the machine-independent half of the kernel language: dims, ports, stages, loops, tracing.

It decides how a kernel body becomes a trace. It must not know addresses, coordinates or encodings; a machine's own
`lang` adds its tiles, regions and elementwise functions.
"""

from kohakuaccel.lang.dims import Dim, DimExpr, dims
from kohakuaccel.lang.indices import greatest, least, lookup
from kohakuaccel.lang.loops import grid, loop, stage, sweep, units
from kohakuaccel.lang.ports import Port, Tiling
from kohakuaccel.lang.trace import Trace
from kohakuaccel.lang.values import Value, View

__all__ = [
    "Dim",
    "DimExpr",
    "Port",
    "Tiling",
    "Trace",
    "Value",
    "View",
    "dims",
    "greatest",
    "grid",
    "least",
    "lookup",
    "loop",
    "stage",
    "sweep",
    "units",
]
