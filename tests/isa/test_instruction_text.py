"""Texts of instruction sets: blanks, case, names for numbers, columns of errors, formats told apart by values."""

from __future__ import annotations

import pytest

from kohakuaccel.diagnostics import DefinitionError, EncodingRefusal, SourceLine
from kohakuaccel.isa import Field, Format, InstructionSet
from kohakuaccel.isa.instructions import Operand, Syntax
from kohakuaccel.isa.template import Misfit, Operands, Template

ONE = {"NOT": 0, "NEG": 1}
TWO = {"ADD": 2, "SUB": 3}
RAW = Format("raw", 16, [Field("op", (15, 12)), Field("f", (11, 8)), Field("a", (7, 4)), Field("b", (3, 0))])


def toy() -> InstructionSet:
    """A word whose second field decides whether the fourth counts."""
    one = Format("ALU", 16, [Field("f", (11, 8), values=ONE), Field("a", (7, 4))], {(15, 12): 1, (3, 0): 0})
    two = Format("ALU", 16, [Field("f", (11, 8), values=TWO), Field("a", (7, 4)), Field("b", (3, 0))], {(15, 12): 1})
    row = Format("ROW", 16, [Field("n", (7, 0), values=range(10))], {(15, 8): 0x20})
    pair = Operand(r"\w+\s*,\s*\w+", lambda r: (f"{r['n'] // 4},{r['n'] % 4}", ("n",)), _read_pair, numbers=True)
    syntax = {
        "ALU.1": [Syntax("ALU {f}(r{a})")],
        "ALU.2": [Syntax("ALU {f}(r{a}, r{b})")],
        "ROW": [Syntax("ROW m[{at}]")],
    }
    formats = {"ALU.1": one, "ALU.2": two, "ROW": row}
    return InstructionSet("toy", (15, 12), formats, syntax, {"at": pair}, ignore_case=True, raw=RAW, extras=False)


def _read_pair(text: str) -> dict[str, int]:
    row, column = (int(number) for number in text.split(","))
    if column > 3:
        raise EncodingRefusal("no such column", where="ROW.column", got=column, limit=3)
    return {"n": 4 * row + column}


@pytest.mark.parametrize(
    ("text", "word", "printed"),
    [
        ("ALU NEG(r7)", 0x1170, "ALU NEG(r7)"),
        ("  alu  neg ( R7 )  ", 0x1170, "ALU NEG(r7)"),
        ("ALU SUB(r1,r2)", 0x1312, "ALU SUB(r1, r2)"),
        ("ROW M[ 2 , 1 ]", 0x2009, "ROW m[2,1]"),
        (".word 1 9 2 3", 0x1923, ".word 1 9 2 3"),
        (".WORD 0x1 0 2 0xf", 0x102F, ".word 1 0 2 15"),  # NOT takes one operand: b would not be seen
        (".word 2 0 1 5", 0x2015, ".word 2 0 1 5"),  # beyond the values of n
    ],
)
def test_text_and_back(text: str, word: int, printed: str) -> None:
    isa = toy()
    assert isa.parse(text) == word
    assert isa.text(word) == printed
    assert isa.parse(printed) == word


@pytest.mark.slow
def test_every_word_has_a_text_that_reads_as_the_word() -> None:
    isa = toy()
    for word in range(1 << 16):
        assert isa.parse(isa.text(word)) == word


def test_names_stand_for_numbers() -> None:
    names = {"ACC": 6, "COL": 3}
    assert toy().parse("ALU ADD(rACC, rCOL)", numbers=names.get) == 0x1263
    assert toy().parse("ROW m[0,COL]", numbers=names.get) == 0x2003


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("ALU ADD(r1 r2)", 12, r"operands do not fit .*\. ',' is expected at 'r2\)'"),
        ("ALU ADD(r1)", 11, r"',' is expected at '\)'"),
        ("ALU NOT(r1, r2)", 11, r"'\)' is expected at ', r2\)'"),
        (
            "ALU ADDD(r1, r2)",
            5,
            r"ALU.f: value does not fit the field; got 'ADDD'; the limit is one of NOT=0, NEG=1, ADD",
        ),
        ("ALU ADD(r1, r16)", 14, r"ALU.b: value does not fit the field; got 16; the limit is 0..15"),
        ("ALU ADD(r1, r2) x", 17, r"The end of the line is expected at 'x'"),
        ("ROW m[0,7]", 7, r"ROW.column: no such column; got 7"),
        ("ROV m[0,1]", 1, r"no instruction 'ROV'; did you mean 'ROW'"),
        (".word 1 2 3", 6, r"not a word; .*the limit is op f a b"),
        (".word 1 2 16 3", 11, r"\.word\.a: value does not fit the field; got 16"),
    ],
)
def test_an_error_names_its_column(text: str, column: int, message: str) -> None:
    with pytest.raises(EncodingRefusal, match=message) as caught:
        toy().parse(text, source=SourceLine("a.asm", 3, text))
    assert caught.value.source == SourceLine("a.asm", 3, text, column)
    assert f"a.asm:3:{column}: " in str(caught.value)
    shifted = SourceLine("a.asm", 3, f"L: {text}")
    with pytest.raises(EncodingRefusal) as caught:
        toy().parse(f"L: {text}", start=3, source=shifted)
    assert caught.value.source is not None
    assert caught.value.source.column == column + 3


def test_a_text_without_a_place_has_no_line() -> None:
    with pytest.raises(EncodingRefusal) as caught:
        toy().parse("ALU ADD(r1)")
    assert caught.value.source is None


def test_formats_with_common_values_cannot_be_told_apart() -> None:
    a = Format("A", 8, [Field("f", (3, 0), values={"X": 1, "Y": 2})], {(7, 4): 1})
    b = Format("B", 8, [Field("f", (3, 0), values={"Z": 2, "W": 3})], {(7, 4): 1})
    c = Format("C", 8, [Field("f", (3, 0), values=range(3, 9))], {(7, 4): 1})
    fixed = Format("D", 8, [], {(7, 4): 1, (3, 0): 2})
    with pytest.raises(DefinitionError, match=r"s.B: cannot be told apart from A"):
        InstructionSet("s", (7, 4), {"A": a, "B": b})
    with pytest.raises(DefinitionError, match=r"s.D: cannot be told apart from A"):
        InstructionSet("s", (7, 4), {"A": a, "D": fixed})
    isa = InstructionSet("s", (7, 4), {"A": a, "C": c, "D": Format("D", 8, [], {(7, 4): 1, (3, 0): 9})})
    assert [isa.find(word) for word in (0x11, 0x12, 0x13, 0x18, 0x19)] == ["A", "A", "C", "C", "D"]


def test_a_template_says_where_a_text_stops_to_fit() -> None:
    template = Template("DO {x} -> ({y:+})", {"x": r"[ab]"})
    assert template.names == ("x", "y")
    assert template.match("DO a -> ( +3 )rest") == Operands({"x": ("a", 3), "y": ("+3", 10)}, 14)
    assert template.match("DO  c") == Misfit(4, "x", "x")
    assert template.match("DO b = (1)") == Misfit(5, "'-'")
