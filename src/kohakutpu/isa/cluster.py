"""The matmul cluster's instruction set as its users see it: format, text, and the checks of datasheet 5.6."""

from kohakutpu.isa.cluster_check import check
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
    TDESC,
)
from kohakutpu.isa.cluster_order import FRESH, ClusterState
from kohakutpu.isa.cluster_tdesc import assemble, decode_rows, disassemble, encode_rows, text

__all__ = [
    "CLUSTER",
    "DESTINATION",
    "DRAIN",
    "FAULT_CUDATA",
    "FAULT_NONFINITE",
    "FAULT_OPCODE",
    "FILL",
    "FRESH",
    "GEMM",
    "OPS",
    "SIDES",
    "TDESC",
    "ClusterState",
    "assemble",
    "check",
    "decode_rows",
    "disassemble",
    "encode_rows",
    "text",
]
