"""The matmul cluster's instruction set as its users see it: format, text, and the checks of datasheet 5.6."""

from kohakutpu.isa.cluster_format import (
    CLUSTER,
    DESTINATION,
    DRAIN,
    FAULT_CUDATA,
    FAULT_NONFINITE,
    FAULT_OPCODE,
    FILL,
    GEMM,
    OPS,
    SIDES,
    assemble,
    disassemble,
    text,
)

__all__ = [
    "CLUSTER",
    "DESTINATION",
    "DRAIN",
    "FAULT_CUDATA",
    "FAULT_NONFINITE",
    "FAULT_OPCODE",
    "FILL",
    "GEMM",
    "OPS",
    "SIDES",
    "assemble",
    "disassemble",
    "text",
]
