"""L3: a program as a list of tensor expressions, each printable, verified and runnable in float64.

Decides which values exist and who reads them. It must not know byte order, placement or time, nor any machine.
"""

from kohakuaccel.graph.dtypes import BOOL, FP64, WORDS, BoolFormat, DType, Kind, WordFormat, kind_of, numpy_of
from kohakuaccel.graph.expr import OPS, Bits, Cast, Const, Expr, Iota, Op, Read
from kohakuaccel.graph.files import from_json, load, save, to_json
from kohakuaccel.graph.index import Guard, Index, Lookup, Range
from kohakuaccel.graph.model import Constant, Graph, Input, Reduction, Statement, Value
from kohakuaccel.graph.parse import parse
from kohakuaccel.graph.run import run
from kohakuaccel.graph.text import write
from kohakuaccel.graph.verify import verify

__all__ = [
    "BOOL",
    "FP64",
    "OPS",
    "WORDS",
    "Bits",
    "BoolFormat",
    "Cast",
    "Const",
    "Constant",
    "DType",
    "Expr",
    "Graph",
    "Guard",
    "Index",
    "Input",
    "Iota",
    "Kind",
    "Lookup",
    "Op",
    "Range",
    "Read",
    "Reduction",
    "Statement",
    "Value",
    "WordFormat",
    "from_json",
    "kind_of",
    "load",
    "numpy_of",
    "parse",
    "run",
    "save",
    "to_json",
    "verify",
    "write",
]
