"""Kernels by name for `kohaku plan`, `disasm` and `whatif`: graphs by the shapes of their operands, known programs.

kohaku whatif tinytpu.kernels:matmul 16x64 64x16 --machine tinytpu_4x4 --sweep vregs=4,8,16
"""

from tinytpu.kernels.graphs import GraphKernel, Lowered, add, layernorm, linear, matmul, relu, rowsum, softmax
from tinytpu.kernels.programs import Assembled, ProgramKernel, known, opened

globals().update(known())

__all__ = [
    "Assembled",
    "GraphKernel",
    "Lowered",
    "ProgramKernel",
    "add",
    "known",
    "layernorm",
    "linear",
    "matmul",
    "opened",
    "relu",
    "rowsum",
    "softmax",
]
