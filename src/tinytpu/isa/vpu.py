"""What each operation of the vector unit takes, gives and costs (datasheet 4 to 6, 10).

One row per opcode. The arithmetic itself is the unit model's.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohakuaccel.machine import Machine
from tinytpu.isa.codes import VPU

INT, FLOAT, PACKED, BITS = "int32", "binary32", "4 x int8", "bits"
LANE, PAIR, ROW, COLUMN, TILE = "lane", "pair", "row", "column", "tile"


@dataclass(frozen=True, slots=True)
class VpuOp:
    """operands: 1 (the second vreg is ignored) or 2. data: how lanes are read. span: the lanes that one result depends
    on, and which it is written to. serial: steps per lane of the transcendental unit, or 1 of the serial reducer."""

    code: VPU
    operands: int
    data: str
    span: str
    effect: str
    steps: int = 0

    def latency(self, machine: Machine) -> int:
        """L: cycles until the result (datasheet 4); the instruction takes L + 2."""
        lanes = machine.params.rows * machine.params.columns
        if self.steps:
            return lanes * self.steps + 2
        return lanes + 1 if self.data == FLOAT and self.span == TILE else 1


_ROWS: tuple[tuple[VPU, int, str, str, str], ...] = (
    (VPU.ADD, 2, INT, LANE, "a + b, low 32 bits"),
    (VPU.MUL, 2, INT, LANE, "a * b, low 32 bits"),
    (VPU.RELU, 1, INT, LANE, "max(a, 0)"),
    (VPU.MAX, 2, INT, LANE, "the greater, signed"),
    (VPU.SUM_REDUCE, 1, INT, ROW, "sum of the row"),
    (VPU.CMPLT, 2, INT, LANE, "1 where a < b, else 0"),
    (VPU.CMPNE, 2, BITS, LANE, "1 where a != b, else 0"),
    (VPU.SUB, 2, INT, LANE, "a - b, low 32 bits"),
    (VPU.CMPEQ, 2, BITS, LANE, "1 where a == b, else 0"),
    (VPU.MAX_REDUCE, 1, INT, ROW, "maximum of the row"),
    (VPU.SHL, 2, BITS, LANE, "a << (b & 31)"),
    (VPU.SHR, 2, BITS, LANE, "a >> (b & 31), logical"),
    (VPU.MIN, 2, INT, LANE, "the smaller, signed"),
    (VPU.MIN_REDUCE, 1, INT, ROW, "minimum of the row"),
    (VPU.DIV, 2, INT, LANE, "a / b towards zero; a / 0 = 0; INT_MIN / -1 = INT_MIN"),
    (VPU.AND, 2, BITS, LANE, "a & b"),
    (VPU.OR, 2, BITS, LANE, "a | b"),
    (VPU.XOR, 2, BITS, LANE, "a ^ b"),
    (VPU.FADD, 2, FLOAT, LANE, "a + b"),
    (VPU.FMUL, 2, FLOAT, LANE, "a * b"),
    (VPU.FSUB, 2, FLOAT, LANE, "a + (b with its sign flipped)"),
    (VPU.FMAX, 2, FLOAT, LANE, "a where a >= b, else b; unordered gives b"),
    (VPU.FCMPLT, 2, FLOAT, LANE, "1 where a < b, else 0"),
    (VPU.FRECIP, 1, FLOAT, LANE, "about 1 / a: an estimate and three Newton steps"),
    (VPU.I2F, 1, INT, LANE, "to binary32, extra low bits dropped"),
    (VPU.F2I, 1, FLOAT, LANE, "to int32, truncated"),
    (VPU.NOT, 1, BITS, LANE, "~a"),
    (VPU.SELECT, 2, BITS, LANE, "b where a != 0, else the lane of the result register"),
    (VPU.COPY, 1, BITS, LANE, "a"),
    (VPU.SUM_REDUCE_COL, 1, INT, COLUMN, "sum of the column"),
    (VPU.MAX_REDUCE_COL, 1, INT, COLUMN, "maximum of the column"),
    (VPU.MIN_REDUCE_COL, 1, INT, COLUMN, "minimum of the column"),
    (VPU.SUM_REDUCE_TILE, 1, INT, TILE, "sum of the tile"),
    (VPU.MAX_REDUCE_TILE, 1, INT, TILE, "maximum of the tile"),
    (VPU.MIN_REDUCE_TILE, 1, INT, TILE, "minimum of the tile"),
    (VPU.MUL_REDUCE, 1, INT, ROW, "product of the row"),
    (VPU.MUL_REDUCE_COL, 1, INT, COLUMN, "product of the column"),
    (VPU.MUL_REDUCE_TILE, 1, INT, TILE, "product of the tile"),
    (VPU.FSUM_REDUCE_TILE, 1, FLOAT, TILE, "sum, element after element"),
    (VPU.FMAX_REDUCE_TILE, 1, FLOAT, TILE, "maximum, element after element"),
    (VPU.FMIN_REDUCE_TILE, 1, FLOAT, TILE, "minimum, element after element"),
    (VPU.FMIN, 2, FLOAT, LANE, "a where a <= b, else b; unordered gives b"),
    (VPU.FSUM_REDUCE, 1, FLOAT, ROW, "sum of the row, as a tree"),
    (VPU.FMAX_REDUCE, 1, FLOAT, ROW, "maximum of the row, as a tree"),
    (VPU.FMIN_REDUCE, 1, FLOAT, ROW, "minimum of the row, as a tree"),
    (VPU.FSUM_REDUCE_COL, 1, FLOAT, COLUMN, "sum of the column, from +0.0 down"),
    (VPU.FMAX_REDUCE_COL, 1, FLOAT, COLUMN, "maximum of the column, downwards"),
    (VPU.FMIN_REDUCE_COL, 1, FLOAT, COLUMN, "minimum of the column, downwards"),
    (VPU.FPROD_REDUCE_TILE, 1, FLOAT, TILE, "product, element after element"),
    (VPU.FPROD_REDUCE, 1, FLOAT, ROW, "product of the row, from 1.0"),
    (VPU.FPROD_REDUCE_COL, 1, FLOAT, COLUMN, "product of the column, from 1.0"),
    (VPU.EXP2, 1, FLOAT, LANE, "about 2 ** a"),
    (VPU.LOG2, 1, FLOAT, LANE, "about log2 of a > 0"),
    (VPU.SIN, 1, FLOAT, LANE, "about sin a"),
    (VPU.COS, 1, FLOAT, LANE, "about cos a, within +-pi/2"),
    (VPU.PACKED_I8_ADD, 2, PACKED, LANE, "a + b per byte, saturating"),
    (VPU.PACKED_I8_SUB, 2, PACKED, LANE, "a - b per byte, saturating"),
    (VPU.PACKED_I8_MAX, 2, PACKED, LANE, "the greater per byte"),
    (VPU.PACKED_I8_MIN, 2, PACKED, LANE, "the smaller per byte"),
    (VPU.PACKED_I8_NEG, 1, PACKED, LANE, "-a per byte; -128 gives 127"),
    (VPU.PACKED_I8_RELU, 1, PACKED, LANE, "max(a, 0) per byte"),
    (VPU.PACKED_I8_CMPLT, 2, PACKED, LANE, "FF where a < b per byte, else 00"),
    (VPU.PACKED_I8_CMPEQ, 2, PACKED, LANE, "FF where a == b per byte, else 00"),
    (VPU.PACKED_I8_MUL_LOW, 2, PACKED, LANE, "low byte of the product per byte"),
    (VPU.PACKED_I8_MUL_HIGH, 2, PACKED, LANE, "high byte of the product per byte"),
    (VPU.PACKED_I8_ABS, 1, PACKED, LANE, "abs(a) per byte; -128 gives 127"),
    (VPU.SIGN, 1, INT, LANE, "-1, 0 or 1"),
    (VPU.PACKED_I8_SIGN, 1, PACKED, LANE, "-1, 0 or 1 per byte"),
    (VPU.FSIGN, 1, FLOAT, LANE, "0 for +-0, else 1.0 with the sign of a"),
    (VPU.ARGMIN, 1, INT, ROW, "index of the row's minimum, the first one"),
    (VPU.ARGMAX, 1, INT, ROW, "index of the row's maximum, the first one"),
    (VPU.CLZ, 1, BITS, LANE, "leading zeros; 32 of 0"),
    (VPU.POPCOUNT, 1, BITS, LANE, "ones"),
    (VPU.CTZ, 1, BITS, LANE, "trailing zeros; 32 of 0"),
    (VPU.BYTE_REVERSE, 1, BITS, LANE, "bytes swapped"),
    (VPU.SAT_ADD_I32, 2, INT, LANE, "a + b, saturating"),
    (VPU.SAT_SUB_I32, 2, INT, LANE, "a - b, saturating"),
    (VPU.ABS_DIFF_I32, 2, INT, LANE, "abs(a - b), saturating"),
    (VPU.PACKED_I8_ABS_DIFF, 2, PACKED, LANE, "abs of the saturated difference per byte; -128 gives 127"),
    (VPU.FABS, 1, FLOAT, LANE, "a with its sign cleared"),
    (VPU.ROTL, 2, BITS, LANE, "a rotated left by b & 31"),
    (VPU.ROTR, 2, BITS, LANE, "a rotated right by b & 31"),
    (VPU.MIN_U32, 2, BITS, LANE, "the smaller, unsigned"),
    (VPU.MAX_U32, 2, BITS, LANE, "the greater, unsigned"),
    (VPU.PAIR_ROTATE, 2, FLOAT, PAIR, "(x, y) turned by (cos, sin) of b's pair"),
    (VPU.IPAIR_ROTATE, 2, INT, PAIR, "(x, y) turned by (c, s) of b's pair"),
)
_STEPS = {VPU.EXP2: 7, VPU.LOG2: 6, VPU.SIN: 11, VPU.COS: 5}
VPU_OPS: dict[VPU, VpuOp] = {row[0]: VpuOp(*row, steps=_STEPS.get(row[0], 0)) for row in _ROWS}
UNARY = {code.name: int(code) for code, op in VPU_OPS.items() if op.operands == 1}
BINARY = {code.name: int(code) for code, op in VPU_OPS.items() if op.operands == 2}
