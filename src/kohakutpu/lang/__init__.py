"""KohakuTPU's half of the kernel language: ports with this machine's tilings, tiles, elementwise functions.

`grid`, `stage`, `units`, `sweep` and `loop` come from `kohakuaccel.lang`. Nothing here knows an address or an
encoding.
"""

from kohakutpu.lang.functions import (
    abs,
    equal,
    exp2,
    fma,
    greater,
    join,
    less,
    log2,
    maximum,
    minimum,
    recip,
    row_max,
    row_mean,
    row_min,
    row_sum,
    row_sumsq,
    rsqrt,
    sqrt,
    where,
)
from kohakutpu.lang.kernel import Kernel, kernel
from kohakutpu.lang.memory import Region, Table, Temp, Windows, region, table, temp, windows
from kohakutpu.lang.ports import In, Out
from kohakutpu.lang.tiles import Tile, tile

__all__ = [
    "In",
    "Kernel",
    "Out",
    "Region",
    "Table",
    "Temp",
    "Tile",
    "Windows",
    "abs",
    "equal",
    "exp2",
    "fma",
    "greater",
    "join",
    "kernel",
    "less",
    "log2",
    "maximum",
    "minimum",
    "recip",
    "region",
    "row_max",
    "row_mean",
    "row_min",
    "row_sum",
    "row_sumsq",
    "rsqrt",
    "sqrt",
    "table",
    "temp",
    "tile",
    "where",
    "windows",
]
