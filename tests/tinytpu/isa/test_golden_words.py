"""Every opcode's text against the nine numbers that the datasheet's tables give, written down by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kohakuaccel.diagnostics import EncodingRefusal
from tinytpu import machines
from tinytpu.isa import SXU, VPU, words
from tinytpu.isa.opcodes import OPCODES
from tinytpu.isa.vpu import VPU_OPS

M = machines.load()

# text -> op vmem dst src vpu src2 wbase abase tlen
GOLDEN: dict[str, tuple[int, ...]] = {
    "LOAD v5, VMEM[31]": (0, 31, 5, 0, 0, 0, 0, 0, 0),
    "STORE VMEM[7], v15": (1, 7, 0, 15, 0, 0, 0, 0, 0),
    "VPU v1 = ADD(v2, v3)": (2, 0, 1, 2, 0, 3, 0, 0, 0),
    "VPU v1 = IPAIR_ROTATE(v2, v3)": (2, 0, 1, 2, 85, 3, 0, 0, 0),
    "VPU v1 = NOT(v2)": (2, 0, 1, 2, 26, 0, 0, 0, 0),
    "BROADCAST v2, lane=3": (3, 0, 2, 2, 0, 3, 0, 0, 0),
    "BROADCAST v2 = LANE(v9, lane=1)": (3, 0, 2, 9, 0, 1, 0, 0, 0),
    "MXU WMEM[3], AMEM[4], tiles=2": (4, 0, 0, 0, 0, 0, 3, 4, 2),
    "MXU WMEM[3], AMEM[4], tiles=2, psum_write=PSUM[7], psum_row=1": (4, 0, 7, 1, 0, 1, 3, 4, 2),
    "MXU WMEM[3], AMEM[4], tiles=2, psum_acc=PSUM[7], psum_row=3": (4, 0, 7, 3, 0, 2, 3, 4, 2),
    "WAIT_MXU": (5, 0, 0, 0, 0, 0, 0, 0, 0),
    "LOAD_MXU_RESULT v6": (6, 0, 6, 0, 0, 0, 0, 0, 0),
    "HALT": (7, 0, 0, 0, 0, 0, 0, 0, 0),
    "SELECT v1 = SELECT(v2, v3, v4)": (8, 0, 1, 2, 0, 3, 4, 0, 0),
    "BROADCAST_SCALAR v1 = v2[3,2]": (9, 0, 1, 2, 0, 14, 0, 0, 0),
    "BROADCAST_ROW v1 = ROW(v2, row=3)": (10, 0, 1, 2, 0, 3, 0, 0, 0),
    "BROADCAST_COL v1 = COL(v2, col=2)": (11, 0, 1, 2, 0, 2, 0, 0, 0),
    "TRANSPOSE v1, v2": (12, 0, 1, 2, 0, 0, 0, 0, 0),
    "LOAD_VPU_RESULT v8": (13, 0, 8, 0, 0, 0, 0, 0, 0),
    "LOAD_XLU_RESULT v8": (14, 0, 8, 0, 0, 0, 0, 0, 0),
    "PSUM_WRITE PSUM[5], v2": (15, 5, 0, 2, 0, 0, 0, 0, 0),
    "PSUM_ACCUMULATE PSUM[5], v2": (16, 5, 0, 2, 0, 0, 0, 0, 0),
    "PSUM_READ v2, PSUM[5]": (17, 5, 2, 0, 0, 0, 0, 0, 0),
    "PSUM_READ_ROW v2, PSUM[5], row=3": (18, 5, 2, 3, 0, 0, 0, 0, 0),
    "PSUM_CLEAR PSUM[5]": (19, 5, 0, 0, 0, 0, 0, 0, 0),
    "SET_PRED_IF_ZERO v4": (20, 0, 0, 4, 0, 0, 0, 0, 0),
    "SKIP_IF_PRED": (21, 0, 0, 0, 0, 0, 0, 0, 0),
    "PSUM_ACCUMULATE_ROW PSUM[5], v2, row=3": (22, 5, 3, 2, 0, 0, 0, 0, 0),
    "MXU_ACCUMULATE WMEM[3], AMEM[4], tiles=2": (23, 0, 0, 0, 0, 0, 3, 4, 2),
    "MXU_CLEAR": (24, 0, 0, 0, 0, 0, 0, 0, 0),
    "MXU_OS WMEM[3], AMEM[4], k=4": (25, 0, 0, 0, 0, 0, 3, 4, 4),
    "LOAD_MXU_MATRIX_ROW v9, row=3": (26, 0, 9, 3, 0, 0, 0, 0, 0),
    "READ_CYCLE v9": (27, 0, 9, 0, 0, 0, 0, 0, 0),
    "LOOP_BEGIN count=255": (28, 0, 0, 0, 0, 0, 0, 0, 255),
    "LOOP_END": (29, 0, 0, 0, 0, 0, 0, 0, 0),
    "VZERO v9": (30, 0, 9, 0, 0, 0, 0, 0, 0),
    "VFILL v9, imm=-128": (31, 0, 9, 0, 0, 0, 128, 0, 0),
    "VMOV v9, v8": (32, 0, 9, 8, 0, 0, 0, 0, 0),
    "MXU_OS_ACCUMULATE WMEM[3], AMEM[4], k=1": (33, 0, 0, 0, 0, 0, 3, 4, 1),
    "VNEG v9, v8": (34, 0, 9, 8, 0, 0, 0, 0, 0),
    "VABS v9, v8": (35, 0, 9, 8, 0, 0, 0, 0, 0),
    "LOAD_LOOP_DEPTH v9": (36, 0, 9, 0, 0, 0, 0, 0, 0),
    "ROTATE v9, v8, amount=3": (37, 0, 9, 8, 0, 3, 0, 0, 0),
    "PSUM_CLEAR_ALL": (38, 0, 0, 0, 0, 0, 0, 0, 0),
    "SET_PRED_NE_ZERO v4": (39, 0, 0, 4, 0, 0, 0, 0, 0),
    "SKIP_IF_NOT_PRED": (40, 0, 0, 0, 0, 0, 0, 0, 0),
    "VPU_BG v1 = EXP2(v2)": (41, 0, 1, 2, 51, 0, 0, 0, 0),
    "VPU_BG v1 = SUB(v2, v3)": (41, 0, 1, 2, 7, 3, 0, 0, 0),
    "MXU_EPILOGUE v9 = GEMM(WMEM[3], AMEM[4], tiles=2) DST_VREG": (42, 0, 9, 0, 0, 0, 3, 4, 2),
    "MXU_EPILOGUE v9 = GEMM(WMEM[3], AMEM[4], tiles=2) BIAS=v8 DST_VREG": (42, 0, 9, 8, 1, 0, 3, 4, 2),
    "MXU_EPILOGUE v9 = GEMM(WMEM[3], AMEM[4], tiles=2) RELU REDUCE_SUM DST_VREG": (42, 0, 9, 0, 6, 0, 3, 4, 2),
    "MXU_EPILOGUE v0 = GEMM(WMEM[3], AMEM[4], tiles=2) BIAS=v8 RELU REDUCE_SUMSQ DST_VMEM[6]": (
        42, 6, 0, 8, 31, 0, 3, 4, 2,
    ),
    "LOAD_EPILOGUE_STAT v9": (43, 0, 9, 0, 0, 0, 0, 0, 0),
    "SET_REQUANT_CONFIG scale_mul=305419896 scale_shift=31": (44, 0x12, 0, 0, 31, 0, 0x78, 0x56, 0x34),
    "SET_REQUANT_CONFIG scale_mul=-2 scale_shift=1": (44, 255, 0, 0, 1, 0, 254, 255, 255),
    "DISPATCH_MXU_REQUANT WMEM[3] AMEM[4] tiles=2 ASRAM[6]": (45, 6, 0, 0, 0, 0, 3, 4, 2),
    "MXU_VPU_EPILOGUE v9 = GEMM(WMEM[3], AMEM[4], tiles=2) SRC2=v8 OP=MIN DST_VREG": (46, 0, 9, 8, 12, 0, 3, 4, 2),
    "MXU_VPU_EPILOGUE v0 = GEMM(WMEM[3], AMEM[4], tiles=2) SRC2=v8 OP=ADD DST_VMEM[6]": (46, 6, 0, 8, 0, 1, 3, 4, 2),
}  # fmt: skip

# The datasheet's section 4, name by name.
VPU_CODES = """
ADD 0 MUL 1 RELU 2 MAX 3 SUM_REDUCE 4 CMPLT 5 CMPNE 6 SUB 7 CMPEQ 8 MAX_REDUCE 9 SHL 10 SHR 11 MIN 12 MIN_REDUCE 13
DIV 14 AND 15 OR 16 XOR 17 FADD 18 FMUL 19 FSUB 20 FMAX 21 FCMPLT 22 FRECIP 23 I2F 24 F2I 25 NOT 26 SELECT 27 COPY 28
SUM_REDUCE_COL 29 MAX_REDUCE_COL 30 MIN_REDUCE_COL 31 SUM_REDUCE_TILE 32 MAX_REDUCE_TILE 33 MIN_REDUCE_TILE 34
MUL_REDUCE 35 MUL_REDUCE_COL 36 MUL_REDUCE_TILE 37 FSUM_REDUCE_TILE 38 FMAX_REDUCE_TILE 39 FMIN_REDUCE_TILE 40 FMIN 41
FSUM_REDUCE 42 FMAX_REDUCE 43 FMIN_REDUCE 44 FSUM_REDUCE_COL 45 FMAX_REDUCE_COL 46 FMIN_REDUCE_COL 47
FPROD_REDUCE_TILE 48 FPROD_REDUCE 49 FPROD_REDUCE_COL 50 EXP2 51 LOG2 52 SIN 53 COS 54 PACKED_I8_ADD 55
PACKED_I8_SUB 56 PACKED_I8_MAX 57 PACKED_I8_MIN 58 PACKED_I8_NEG 59 PACKED_I8_RELU 60 PACKED_I8_CMPLT 61
PACKED_I8_CMPEQ 62 PACKED_I8_MUL_LOW 63 PACKED_I8_MUL_HIGH 64 PACKED_I8_ABS 65 SIGN 66 PACKED_I8_SIGN 67 FSIGN 68
ARGMIN 69 ARGMAX 70 CLZ 71 POPCOUNT 72 CTZ 73 BYTE_REVERSE 74 SAT_ADD_I32 75 SAT_SUB_I32 76 ABS_DIFF_I32 77
PACKED_I8_ABS_DIFF 78 FABS 79 ROTL 80 ROTR 81 MIN_U32 82 MAX_U32 83 PAIR_ROTATE 84 IPAIR_ROTATE 85
"""
UNARY_CODES = {2, 4, 9, 13, *range(23, 27), *range(28, 41), *range(42, 55), 59, 60, *range(65, 75), 79}


@pytest.mark.parametrize(("text", "row"), GOLDEN.items(), ids=[t.split(" =")[0] for t in GOLDEN])
def test_golden(text: str, row: tuple[int, ...]) -> None:
    assert words.read(M, text) == list(row)
    assert words.text_of(M, row) == text
    assert words.read(M, re.sub(r"([=,()\[\]])", r" \1 ", text).lower()) == list(row)


def test_every_opcode_is_written_down_above() -> None:
    assert {row[0] for row in GOLDEN.values()} == set(range(47)) == set(SXU) == set(OPCODES)


def test_every_operation_has_its_code_and_its_operands() -> None:
    named = dict(re.findall(r"(\w+) (\d+)", VPU_CODES))
    assert {name: int(code) for name, code in named.items()} == {op.name: int(op) for op in VPU}
    assert len(VPU_OPS) == 86
    for name, code in named.items():
        operands = "(v2)" if int(code) in UNARY_CODES else "(v2, v3)"
        second = 0 if int(code) in UNARY_CODES else 3
        assert words.read(M, f"VPU v1 = {name}{operands}") == [2, 0, 1, 2, int(code), second, 0, 0, 0]
        other = "(v2, v3)" if int(code) in UNARY_CODES else "(v2)"
        with pytest.raises(EncodingRefusal, match="is expected at"):
            words.read(M, f"VPU v1 = {name}{other}")


def test_a_word_is_the_nine_fields_from_the_top() -> None:
    """op 56:51, vmem 50:43, dst 42:39, src 38:35, vpu 34:28, src2 27:24, wbase 23:16, abase 15:8, tlen 7:0."""
    row = np.array([[46, 0x12, 3, 4, 0x55, 6, 0x78, 0x9A, 0xBC]])
    packed = words.encode(M, row)
    shifts = (51, 43, 39, 35, 28, 24, 16, 8, 0)
    assert packed.tolist() == [[sum(int(v) << s for v, s in zip(row[0], shifts))]]
    assert words.decode(M, packed).tolist() == row.tolist()
    assert words.word_format(M).width == 57


def test_fields_grow_with_the_machine() -> None:
    big = M.with_(params={"rows": 8, "columns": 8, "vmem_tiles": 1024, "vregs": 64})
    widths = {field.name: field.width for field in words.word_format(big).fields}
    grown = {"vmem": 10, "dst": 6, "src": 6, "src2": 6}
    assert widths == {"op": 6, "vpu": 7, "wbase": 8, "abase": 8, "tlen": 8, **grown}
    assert words.read(big, "LOAD v63, VMEM[1023]") == [0, 1023, 63, 0, 0, 0, 0, 0, 0]
    assert words.read(big, "BROADCAST_SCALAR v1 = v2[7,5]") == [9, 0, 1, 2, 0, 61, 0, 0, 0]
    assert words.read(big, "MXU_OS WMEM[0], AMEM[0], k=8")[8] == 8


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ((0, 31, 5, 1, 0, 0, 0, 0, 0), "unused src"),
        ((2, 0, 1, 2, 26, 3, 0, 0, 0), "a second operand of NOT"),
        ((2, 0, 1, 2, 86, 3, 0, 0, 0), "no operation 86"),
        ((4, 0, 7, 1, 0, 0, 3, 4, 2), "a bucket in mode 0"),
        ((4, 0, 7, 1, 0, 3, 3, 4, 2), "mode 3"),
        ((42, 0, 9, 8, 0, 0, 3, 4, 2), "bias vreg without the flag"),
        ((42, 0, 9, 0, 8, 0, 3, 4, 2), "sum of squares without a reduction"),
        ((42, 6, 1, 0, 16, 0, 3, 4, 2), "dst of a result that goes to VMEM"),
        ((42, 0, 1, 0, 32, 0, 3, 4, 2), "a sixth flag"),
        ((46, 0, 9, 8, 12, 2, 3, 4, 2), "src2 bit 1"),
        ((47, 0, 0, 0, 0, 0, 0, 0, 0), "no opcode 47"),
        ((0, 32, 0, 0, 0, 0, 0, 0, 0), "VMEM beyond"),
        ((4, 0, 0, 0, 0, 0, 0, 0, 0), "tiles 0"),
        ((0, 999, 0, 0, 0, 0, 0, 0, 0), "not even a word"),
    ],
)
def test_what_no_text_writes_is_a_word(row: tuple[int, ...], text: str) -> None:
    assert words.text_of(M, row) == f".word {' '.join(map(str, row))}", text


def test_forms_by_name() -> None:
    assert words.row_of(M, "LOAD", dst=1, vmem=3) == words.read(M, "LOAD v1, VMEM[3]")
    assert words.row_of(M, "VPU.2", dst=1, src=2, src2=3, vpu="XOR") == words.read(M, "VPU v1 = XOR(v2, v3)")
    assert words.row_of(M, "VFILL", dst=1, imm=-1) == words.read(M, "VFILL v1, imm=-1")
    with pytest.raises(EncodingRefusal, match=r"VPU.vpu: value does not fit the field; got 'NOT'"):
        words.row_of(M, "VPU.2", dst=1, src=2, src2=3, vpu="NOT")
