"""What the assembler refuses (datasheet 9): line, column, place, value, limit."""

from __future__ import annotations

import pytest

from kohakuaccel.diagnostics import KohakuError
from tinytpu import machines
from tinytpu.asm import assemble

M = machines.load()
TILE = " 0" * 16
REPEATED = "\n".join(["VZERO v0"] * 256)
OUTPUTS = "\n".join(["OUTPUT_VMEM VMEM[1]"] * 32)

# name -> (text, line, column, message)
REFUSED: dict[str, tuple[str, int, int, str]] = {
    "mnemonic": ("LOADD v1, VMEM[0]", 1, 1, "no instruction 'LOADD'; did you mean 'LOAD'"),
    "operation": ("VPU v1 = FADDD(v1, v2)", 1, 10, "VPU.vpu: no such value; did you mean 'FADD'"),
    "operation of an epilogue": (
        "MXU_VPU_EPILOGUE v1 = GEMM(WMEM[0], AMEM[0], tiles=1) SRC2=v1 OP=NO DST_VREG", 1, 66, "no such value",
    ),
    "syntax": ("LOAD v1 VMEM[0]", 1, 9, r"',' is expected at 'VMEM\[0\]'"),
    "one operand": ("VPU v1 = ADD(v2)", 1, 16, r"',' is expected at '\)'"),
    "two operands": ("VPU v1 = NOT(v2, v3)", 1, 16, r"'\)' is expected at ', v3\)'"),
    "something behind": ("HALT now", 1, 6, "The end of the line is expected at 'now'"),
    "not a number": ("LOAD v1, VMEM[x]", 1, 15, "neither a number nor a name of .equ; got 'x'"),
    "no binary numbers": ("LOAD v1, VMEM[0b1]", 1, 15, "neither a number nor a name of .equ; got '0b1'"),
    "a name like it": (".equ SLOT 1\nLOAD v1, VMEM[SLOTS]", 2, 15, "did you mean 'SLOT'"),
    "vreg": ("LOAD v16, VMEM[0]", 1, 7, r"LOAD.dst: .*got 16; the limit is 0..15 .*vreg"),
    "VMEM": ("LOAD v1, VMEM[32]", 1, 15, r"LOAD.vmem: .*got 32; the limit is 0..31 .*VMEM tile"),
    "negative": ("LOAD v1, VMEM[-1]", 1, 15, r"LOAD.vmem: .*got -1"),
    "WMEM": ("MXU WMEM[32], AMEM[0], tiles=1", 1, 10, r"MXU.wbase: .*got 32; the limit is 0..31"),
    "AMEM": ("MXU WMEM[0], AMEM[32], tiles=1", 1, 19, r"MXU.abase: .*got 32; the limit is 0..31"),
    "bucket": ("PSUM_CLEAR PSUM[8]", 1, 17, r"PSUM_CLEAR.vmem: .*got 8; the limit is 0..7"),
    "bucket of a dispatch": (
        "MXU WMEM[0], AMEM[0], tiles=1, psum_acc=PSUM[8], psum_row=0", 1, 46, r"MXU.dst: .*got 8; the limit is 0..7",
    ),
    "row": ("PSUM_READ_ROW v1, PSUM[0], row=4", 1, 32, r"got 4; the limit is 0..3 .*row"),
    "element": ("BROADCAST_SCALAR v1 = v2[0,4]", 1, 26, r"BROADCAST_SCALAR.column: no such element; got 4"),
    "lane": ("BROADCAST v1, lane=4", 1, 20, r"got 4; the limit is 0..3"),
    "amount": ("ROTATE v1, v2, amount=4", 1, 23, r"got 4; the limit is 0..3"),
    "tiles 0": ("MXU WMEM[0], AMEM[0], tiles=0", 1, 29, r"MXU.tlen: .*got 0; the limit is 1..31"),
    "tiles 32": ("MXU WMEM[0], AMEM[0], tiles=32", 1, 29, r"got 32; the limit is 1..31"),
    "beyond AMEM": (
        "MXU WMEM[0], AMEM[30], tiles=3\nHALT\nEND", 1, 1,
        r"pc 0, MXU.abase: the vectors end beyond AMEM .*got 30 \+ 3 = 33; the limit is 32 vectors",
    ),
    "k 0": ("MXU_OS WMEM[0], AMEM[0], k=0", 1, 28, r"got 0; the limit is 1..4"),
    "k 5": ("MXU_OS WMEM[0], AMEM[0], k=5", 1, 28, r"got 5; the limit is 1..4"),
    "count 0": ("LOOP_BEGIN count=0", 1, 18, r"got 0; the limit is 1..255 .*loop count"),
    "count 256": ("LOOP_BEGIN count=256", 1, 18, r"got 256; the limit is 1..255"),
    "immediate": ("VFILL v1, imm=128", 1, 15, r"VFILL.imm: .*got 128; the limit is -128..127"),
    "scale": (
        "SET_REQUANT_CONFIG scale_mul=2147483648 scale_shift=1", 1, 30,
        r"got 2147483648; the limit is -2147483648",
    ),
    "shift 0": ("SET_REQUANT_CONFIG scale_mul=1 scale_shift=0", 1, 44, r"got 0; the limit is 1..31"),
    "shift 32": ("SET_REQUANT_CONFIG scale_mul=1 scale_shift=32", 1, 44, r"got 32; the limit is 1..31"),
    "requant slot": ("DISPATCH_MXU_REQUANT WMEM[0] AMEM[0] tiles=1 ASRAM[32]", 1, 52, r"got 32; the limit is 0..31"),
    "register of a tile in VMEM": (
        "MXU_EPILOGUE v1 = GEMM(WMEM[0], AMEM[0], tiles=1) DST_VMEM[0]", 1, 51, "'DST_VREG' is expected",
    ),
    "int8": (
        "WMEM[0] = 128" + " 0" * 15 + "\nHALT\nEND", 1, 1,
        r"WMEM\[0\], value 0: .*got 128; the limit is -128..127",
    ),
    "int8 of AMEM": ("AMEM[0] = 0 0 0 -129\nHALT\nEND", 1, 1, r"AMEM\[0\], value 3: .*got -129"),
    "int32": ("VMEM[0] = 2147483648" + " 0" * 15 + "\nHALT\nEND", 1, 1, r"VMEM\[0\], value 0: .*int32; got 2147483648"),
    "too many digits": ("VMEM[0] = 0x100000000" + " 0" * 15 + "\nHALT\nEND", 1, 1, r"an int32; got 4294967296"),
    "too large": ("VMEM[0] = 1e39f" + " 0" * 15, 1, 11, "beyond the largest binary32; got 1e39f"),
    "too small": ("VMEM[0] = 0 1e-60f" + " 0" * 14, 1, 13, "nearer to 0 than any other binary32"),
    "a fraction without f": ("VMEM[0] = 1.5" + " 0" * 15, 1, 11, "neither a number"),
    "too few values": ("VMEM[0] = 1 2 3", 1, 11, "a slot is filled whole; got 3 values; the limit is 16"),
    "too many values": ("AMEM[0] = 1 2 3 4 5", 1, 11, "got 5 values; the limit is 4"),
    "no equals sign": ("AMEM[0] 1 2 3 4", 1, 9, r"AMEM: the statement is incomplete; .*'=' is expected at '1 2 3 4'"),
    "slot beyond": (
        "AMEM[32] = 1 2 3 4\nHALT\nEND", 1, 1,
        r"AMEM\[32\]: the address lies beyond AMEM; got 32; the limit is 0..31",
    ),
    "slot twice": (
        f"VMEM[1] ={TILE}\nVMEM[1] ={TILE}\nHALT\nEND", 2, 1,
        r"VMEM\[1\]: a slot is filled once; .*Line 1 fills it",
    ),
    "output beyond": ("HALT\nOUTPUT_VMEM VMEM[32]\nEND", 2, 1, r"VMEM\[32\]: the address lies beyond VMEM"),
    "outputs": (f"HALT\n{OUTPUTS}\nEND", 33, 1, "more outputs of a kind than are counted; got 32; the limit is 31"),
    "output": ("OUTPUT_ASRAM VMEM[0]", 1, 14, "'AMEM' is expected"),
    "output and more": ("OUTPUT_VMEM VMEM[0] 1", 1, 21, "nothing follows"),
    "flag": ("HALT\nOUTPUT_MXU 2\nEND", 2, 1, "the flag of mxu_result is 0 or 1; got 2"),
    "program": (f"{REPEATED}\nHALT\nEND", 257, 1, "does not fit program memory; got 257 words; the limit is 256 words"),
    "nested loops": (
        "LOOP_BEGIN count=1\n" * 5 + "LOOP_END\n" * 5 + "HALT\nEND", 5, 1,
        "too deep .*got 5; the limit is 4",
    ),
    "loop not closed": ("LOOP_BEGIN count=1\nHALT\nEND", 1, 1, "pc 0, LOOP_BEGIN: LOOP_BEGIN is never closed"),
    "loop not opened": ("LOOP_END\nHALT\nEND", 1, 1, "LOOP_END closes no loop"),
    "no HALT": ("VZERO v1\nEND", 1, 1, "pc 0, VZERO: the last instruction is HALT"),
    "skip past the end": ("SKIP_IF_PRED\nHALT\nEND", 1, 1, "could step past the end"),
    "no END": ("HALT\n", 1, 0, "the text ends with END"),
    "after END": ("HALT\nEND\nHALT", 3, 1, "nothing follows END; got 'HALT'"),
    "END and more": ("HALT\nEND 4", 2, 4, "END stands alone"),
    "equ twice": (".equ A 1\n.equ A 2", 2, 6, "a name stands for one number; got A"),
    "equ without a number": (".equ A", 1, 1, "the limit is .equ NAME int"),
    "equ of a name": (".equ A B", 1, 8, "neither a number"),
    "label twice": ("A: HALT\nA: HALT", 2, 1, "a label is written once; got A"),
    "label of data": ("A: AMEM[0] = 0 0 0 0", 1, 1, "label A: a label names an instruction; got AMEM"),
    "label at the end": ("HALT\nEND\nA:", 3, 1, "a label names an instruction"),
    "label undefined": ("SKIP_IF_PRED B\nVZERO v0\nA: HALT\nEND", 1, 14, "no label 'B'"),
    "label of a skip": (
        "A: SKIP_IF_PRED A\nVZERO v0\nHALT\nEND", 1, 17,
        "pc 0, SKIP_IF_PRED: the instruction goes elsewhere; got A at pc 0; the limit is pc 2",
    ),
    "label of a loop": ("A: LOOP_BEGIN count=2\nVZERO v0\nLOOP_END A\nHALT\nEND", 3, 10, "the limit is pc 1"),
    "word too short": (".word 1 2 3", 1, 6, "not a word; .*the limit is op vmem dst src vpu src2 wbase abase tlen"),
    "word too wide": (".word 64 0 0 0 0 0 0 0 0", 1, 7, r"\.word.op: .*got 64; the limit is 0..63"),
    "opcode": (".word 47 0 0 0 0 0 0 0 0\nHALT\nEND", 1, 1, "pc 0, op 47: no such opcode; got 47; the limit is 46"),
    "VPU code": (
        ".word 2 0 0 0 86 0 0 0 0\nHALT\nEND", 1, 1,
        "no such operation of the vector unit; got 86; the limit is 85",
    ),
    "VPU code of an epilogue": (
        ".word 46 0 0 0 99 0 0 0 1\nHALT\nEND", 1, 1,
        "MXU_VPU_EPILOGUE.vpu: no such operation",
    ),
    "PSUM mode": (".word 4 0 0 0 0 3 0 0 1\nHALT\nEND", 1, 1, "MXU.src2: no such PSUM mode; got 3"),
    "epilogue flags": (
        ".word 42 0 0 0 32 0 0 0 1\nHALT\nEND", 1, 1,
        "an epilogue has five flags; got 32; the limit is 31",
    ),
    "word beyond a limit": (
        ".word 0 32 0 0 0 0 0 0 0\nHALT\nEND", 1, 1,
        r"LOAD.vmem \(VMEM tile\): value beyond the machine's limit; got 32; the limit is 0..31",
    ),
    "word with a shift of 0": (
        ".word 44 0 0 0 32 0 1 0 0\nHALT\nEND", 1, 1,
        r"shift \(shift\): .*got 0; the limit is 1..31",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    text, line, column, message = REFUSED[name]
    with pytest.raises(KohakuError, match=message) as caught:
        assemble(text, M, "p.tasm")
    error = caught.value
    assert str(error).startswith(f"line {line}: ")
    assert error.source is not None
    assert (error.source.file, error.source.line, error.source.column) == ("p.tasm", line, column)
    assert error.source.text == text.splitlines()[line - 1].strip()


def test_the_base_of_these_tests_is_lawful() -> None:
    assemble(f"VMEM[1] ={TILE}\nA: SKIP_IF_PRED B\nVZERO v0\nB: HALT\nOUTPUT_VMEM VMEM[1]\nEND", M)
