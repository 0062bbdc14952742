"""Bundle files: what they hold and what is refused of them (datasheet 2, 9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohakuaccel.diagnostics import KohakuError
from tinytpu import machines
from tinytpu.bundle import Bundle, Entry, dump, load, loads
from tinytpu.isa import Record

M = machines.load()
HALT = "2 7 0 0 0 0 0 0 0 0\n"
TILE = " 0" * 16


def test_line_breaks_and_comments_mean_nothing(tmp_path: Path) -> None:
    text = "5 3 1 2 3 4 5 6 7 8 # half\n9 10 11 12 13 14 15 -16\n1 2 9 8 7 6 2 7 0 0 0 0 0\n0 0 0 3 1\n6 3 7 2\n4"
    path = tmp_path / "p.bundle"
    path.write_text(text)
    bundle = load(path, M)
    assert bundle == loads(" ".join(text.replace("# half", "").split()), M)
    assert bundle.memory(Record.VMEM) == {3: (*range(1, 16), -16)}
    assert bundle.memory(Record.AMEM) == {2: (9, 8, 7, 6)}
    assert bundle.memory(Record.WMEM) == {}
    assert bundle.instructions.tolist() == [[7, 0, 0, 0, 0, 0, 0, 0, 0]]
    assert (bundle.outputs(Record.OUTPUT_VMEM), bundle.outputs(Record.OUTPUT_AMEM)) == ((3,), (2,))
    assert bundle.mxu_result
    assert loads(dump(bundle), M) == bundle


def test_the_last_flag_decides() -> None:
    assert not loads(f"3 1 {HALT} 3 0 4", M).mxu_result
    assert not loads(f"{HALT} 4", M).mxu_result


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (f"{HALT}8 0\n4", 2, r"bundle: no such record; got 8; the limit is 7"),
        (f"{HALT}-1\n4", 2, r"no such record; got -1"),
        (f"{HALT}6 x\n4", 2, r"a bundle holds decimal integers; got 'x'"),
        (f"{HALT}6 0x1\n4", 2, r"a bundle holds decimal integers; got '0x1'"),
        (f"{HALT}\n6", 3, r"OUTPUT_VMEM record: a record holds all its numbers; got 0 numbers; the limit is 1"),
        ("2 7 0 0 0 0 0\n0 0", 1, r"INSTRUCTION record: a record holds all its numbers; got 8 numbers; the limit is 9"),
        (HALT, 1, r"a bundle ends with record 4; got the end of the text"),
        (f"{HALT}4\n4", 3, r"nothing follows END; got 4"),
        (f"{HALT}4 6 0", 2, r"nothing follows END; got 6"),
        (f"{HALT}3 2 4", 2, r"record 3: the flag of mxu_result is 0 or 1; got 2"),
        (f"{HALT}6 32 4", 2, r"VMEM\[32\]: the address lies beyond VMEM; got 32; the limit is 0..31"),
        (f"{HALT}7 32 4", 2, r"AMEM\[32\]: the address lies beyond AMEM"),
        (f"0 32{TILE}\n{HALT}4", 1, r"WMEM\[32\]: the address lies beyond WMEM"),
        (f"5 -1{TILE}\n{HALT}4", 1, r"VMEM\[-1\]: the address lies beyond VMEM; got -1"),
        (f"{HALT}1 0 0 0 0 128\n4", 2, r"AMEM\[0\], value 3: a value of AMEM is an int8; got 128"),
        (f"1 0 0 0 0 0\n1 0 0 0 0 0\n{HALT}4", 2, r"AMEM\[0\]: a slot is filled once; .*Line 1 fills it"),
        (f"{HALT}" + "7 1 " * 32 + "4", 2, r"output of AMEM\[1\]: more outputs .*got 32; the limit is 31"),
        ("2 47 0 0 0 0 0 0 0 0 4", 1, r"pc 0, op 47: no such opcode; got 47; the limit is 46"),
        (f"2 2 0 0 0 86 0 0 0 0\n{HALT}4", 1, r"pc 0, VPU.vpu: no such operation of the vector unit; got 86"),
        (
            f"2 0 256 0 0 0 0 0 0 0\n{HALT}4",
            1,
            r"LOAD.vmem: value does not fit the field; got 256; the limit is 0..255",
        ),
        (f"2 0 0 16 0 0 0 0 0 0\n{HALT}4", 1, r"LOAD.dst: value does not fit the field; got 16; the limit is 0..15"),
        (f"2 0 0 -1 0 0 0 0 0 0\n{HALT}4", 1, r"LOAD.dst: value does not fit the field; got -1"),
        (f"2 28 0 0 0 0 0 0 0 0\n{HALT}4", 1, r"LOOP_BEGIN.tlen \(loop count\): .*got 0; the limit is 1..255"),
        (f"2 25 0 0 0 0 0 0 0 5\n{HALT}4", 1, r"MXU_OS.tlen \(depth k\): .*got 5; the limit is 1..4"),
        (f"2 45 32 0 0 0 0 0 0 1\n{HALT}4", 1, r"DISPATCH_MXU_REQUANT.vmem \(AMEM vector\): .*got 32"),
        (f"2 42 32 0 0 16 0 0 0 1\n{HALT}4", 1, r"MXU_EPILOGUE.vmem \(VMEM tile\): .*got 32"),
        ("3 0 4", 1, r"program: the last instruction is HALT; got an empty program"),
    ],
)
def test_refused(text: str, line: int, message: str) -> None:
    with pytest.raises(KohakuError, match=message) as caught:
        loads(text, M, "p.bundle")
    if "empty program" not in message:
        assert caught.value.source is not None
        assert str(caught.value).startswith(f"line {line}: ")


def test_a_bundle_made_by_hand_is_checked_too() -> None:
    halt = Entry(Record.INSTRUCTION, (7, 0, 0, 0, 0, 0, 0, 0, 0))
    with pytest.raises(
        KohakuError, match=r"VMEM record: a record holds all its numbers; got 2 numbers; the limit is 17"
    ):
        Bundle((Entry(Record.VMEM, (0, 1)), halt)).check(M)
    twice = Entry(Record.AMEM, (0, 1, 2, 3, 4))
    with pytest.raises(KohakuError, match=r"AMEM\[0\]: a slot is filled once; .*An earlier record fills it"):
        Bundle((twice, Entry(*twice), halt)).check(M)


def test_unused_fields_may_hold_anything() -> None:
    loads("2 5 99 3 3 3 3 3 3 3 2 7 200 15 15 127 15 255 255 255 4", M)
    loads("2 42 99 1 15 14 9 0 0 1 2 7 0 0 0 0 0 0 0 0 4", M)  # no bias asked for, and no VMEM
