"""TASM statements, values, labels and names: what they assemble to (datasheet 8)."""

from __future__ import annotations

import struct

import pytest

from tinytpu import machines
from tinytpu.asm import assemble, disassemble
from tinytpu.bundle import dump, loads

M = machines.load()

SHEET = """
WMEM[0] = 1 2 3 4  5 6 7 8  -1 -2 -3 -4  2 0 1 0
AMEM[0] = 1 0 0 0
AMEM[1] = 0 1 0 1
AMEM[2] = 3 -2 5 7
AMEM[3] = -128 127 0 1
MXU WMEM[0], AMEM[0], tiles=1, psum_write=PSUM[0], psum_row=0
MXU WMEM[0], AMEM[1], tiles=1, psum_write=PSUM[0], psum_row=1
MXU WMEM[0], AMEM[2], tiles=1, psum_write=PSUM[0], psum_row=2
MXU WMEM[0], AMEM[3], tiles=1, psum_write=PSUM[0], psum_row=3
WAIT_MXU
PSUM_READ v0, PSUM[0]
STORE VMEM[0], v0
HALT
OUTPUT_VMEM VMEM[0]   # 1 2 3 4  7 6 8 8  2 -16 -13 -24  509 506 506 504
END
"""
SHEET_NUMBERS = """
0 0 1 2 3 4 5 6 7 8 -1 -2 -3 -4 2 0 1 0
1 0 1 0 0 0
1 1 0 1 0 1
1 2 3 -2 5 7
1 3 -128 127 0 1
2 4 0 0 0 0 1 0 0 1
2 4 0 0 1 0 1 0 1 1
2 4 0 0 2 0 1 0 2 1
2 4 0 0 3 0 1 0 3 1
2 5 0 0 0 0 0 0 0 0
2 17 0 0 0 0 0 0 0 0
2 1 0 0 0 0 0 0 0 0
2 7 0 0 0 0 0 0 0 0
6 0
4
"""


def data(statement: str) -> tuple[int, ...]:
    return assemble(f"{statement}\nHALT\nEND", M).entries[0].values


def test_the_datasheets_example() -> None:
    bundle = assemble(SHEET, M)
    assert dump(bundle).split() == SHEET_NUMBERS.split()
    assert disassemble(bundle, M).split() == [*SHEET.partition("#")[0].split(), "END"]
    assert loads(SHEET_NUMBERS, M) == bundle


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("-1", 0xFFFFFFFF),
        ("2147483647", 0x7FFFFFFF),
        ("-2147483648", 0x80000000),
        ("0xFFFFFFFF", 0xFFFFFFFF),
        ("0X7fc00001", 0x7FC00001),
        ("0", 0),
        ("-0f", 0x80000000),
        ("1.5f", 0x3FC00000),
        ("-2e3f", 0xC4FA0000),
        (".1F", 0x3DCCCCCD),
        ("16777217f", 0x4B800000),  # a tie goes to the even neighbour
        ("16777219f", 0x4B800002),
        ("1.00000017881393432617187499f", 0x3F800001),  # below a tie that a double cannot tell from it
        ("1.00000017881393432617187501f", 0x3F800002),
        ("3.4028235e38f", 0x7F7FFFFF),
        ("1e-45f", 0x00000001),
        ("inf", 0x7F800000),
        ("-INF", 0xFF800000),
        ("nan", 0x7FC00000),
    ],
)
def test_values_of_vmem(text: str, bits: int) -> None:
    assert data(f"VMEM[3] = {text}" + " 0" * 15)[1] == struct.unpack("<i", struct.pack("<I", bits))[0]


def test_names_stand_where_integers_stand() -> None:
    text = """
    .equ SLOT 3
    .equ NEG  -0x10
    .equ R 2
    VMEM[SLOT] = NEG NEG NEG NEG 0 0 0 0 0 0 0 0 0 0 0 SLOT
    WMEM[R] = NEG 0 0 0  0 0 0 0  0 0 0 0  0 0 0 0x7f
    AMEM[R] = 0 0 0 NEG
    START: load v1, vmem[SLOT]
    BROADCAST_SCALAR v1 = v1[R, SLOT]
    vfill v1, imm=NEG
    LOOP_BEGIN count=R
    LOOP_END
    .word 0 SLOT R 0 0 0 0 0 0
    HALT
    OUTPUT_VMEM VMEM[SLOT]
    END
    """
    bundle = assemble(text, M)
    assert [e.values[0] for e in bundle.entries[:3]] == [3, 2, 2]
    assert bundle.entries[0].values[1:] == (-16,) * 4 + (0,) * 11 + (3,)
    assert bundle.instructions[[0, 1, 2, 3, 5]].tolist() == [
        [0, 3, 1, 0, 0, 0, 0, 0, 0],
        [9, 0, 1, 1, 0, 11, 0, 0, 0],
        [31, 0, 1, 0, 0, 0, 240, 0, 0],
        [28, 0, 0, 0, 0, 0, 0, 0, 2],
        [0, 3, 2, 0, 0, 0, 0, 0, 0],
    ]
    assert bundle.labels == {"START": 0}


def test_labels() -> None:
    text = """
    LOOP_BEGIN count=3
    BODY:
    OUTER:
      VZERO v1
      LOOP_BEGIN count=2
    INNER: VZERO v2
      LOOP_END INNER
      SET_PRED_IF_ZERO v1
      SKIP_IF_PRED AFTER
      VZERO v3
    AFTER: LOOP_END BODY   # back to the first instruction of its loop
    HALT
    END
    """
    bundle = assemble(text, M)
    assert bundle.labels == {"BODY": 1, "OUTER": 1, "INNER": 3, "AFTER": 8}
    printed = disassemble(bundle, M)
    again = assemble(printed, M)
    assert again == bundle
    assert again.labels == bundle.labels


def test_optional_parts() -> None:
    assert assemble("OUTPUT_MXU\nHALT\nEND", M).entries[0].values == (1,)
    off = assemble("OUTPUT_MXU 0\noutput_mxu 1\nHALT\noutput_asram amem[5]\nend", M)
    assert [entry.values for entry in off.entries if entry.kind != 2] == [(0,), (1,), (5,)]
    assert off.mxu_result
    assert assemble("BROADCAST v7\nHALT\nEND", M).instructions[0].tolist() == [3, 0, 7, 7, 0, 0, 0, 0, 0]


def test_every_record_keeps_its_line() -> None:
    bundle = assemble("# head\nVZERO v1\n\nHALT # stop\nEND", M, "p.tasm")
    assert [str(source) for source in bundle.sources] == ["p.tasm:2:1: VZERO v1", "p.tasm:4:1: HALT # stop"]
