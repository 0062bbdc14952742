"""Vector words and envelopes: the datasheet's golden words, and text that gives every word back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohakuaccel.diagnostics import EncodingRefusal
from kohakutpu.isa import vector

# Examples of datasheet 6.2.
GOLDEN = [
    ("VMOV v1,v2", "00024000"),
    ("VADD v7,v0,K1", "186E0020"),
    ("VFMA v3,v1,S4,v2", "30862840"),
    ("VMUL v5,v5,v6 ?P2", "280AAC12"),
    ("VCMPLT P1,v0,v1", "58000208"),
    ("VLD v3,A2+8 FP16", "A1460008"),
    ("VST v7,A5-1 FP32", "AAAE3FFF"),
    ("VFILL A0,16", "E8000010"),
    ("VDRAIN A3,64", "F0600040"),
    ("VDRAIN A3,64 -> (2,1) buf 0 ack", "F3642040"),
    ("VRED S1,v0,SUM", "98020000"),
    ("VRED S2,v0,EXPSUM->v5", "98040AA0"),
    ("VSETVL S0", "C0000000"),
    ("VSETMODE D4", "C8004000"),
    ("VLOOP S1,3", "D8002600"),
    ("VBCAST v2,S1", "B2042000"),
    ("VBAR", "E0000000"),
    ("VHALT", "F8000000"),
]


@pytest.mark.parametrize(("text", "digits"), GOLDEN)
def test_golden_words(text: str, digits: str) -> None:
    assert vector.assemble(text) == [int(digits, 16)]
    assert vector.disassemble([int(digits, 16)]) == text


def test_golden_constants() -> None:
    assert vector.assemble("VSETI S4,0x3f8000") == [0xD0080000, 0x3F8000]
    assert vector.assemble("VSETI K3,1") == [0xD6000000, 1]
    assert vector.seti(4, 0x3F8000) == [0xD0080000, 0x3F8000]
    assert vector.seti(0, 1, constant=True) == [0xD6000000, 1]
    assert vector.disassemble([0xD0080000, 0x3F8000, 0xF8000000]) == "VSETI S4,0x3f8000\nVHALT"
    assert vector.listing([0xD0080000, 0x3F8000, 0xF8000000]) == [(0, "VSETI S4,0x3f8000"), (2, "VHALT")]


def payload(digits: str) -> str:
    """The datasheet writes `..` for zeros inside 64 digits."""
    head, _, tail = digits.partition("..")
    return head + "0" * (64 - len(head) - len(tail)) + tail


@pytest.mark.parametrize(
    ("digits", "row", "text"),
    [
        ("1028..deadbeef", [1, 5, 0, 0xDEADBEEF], None),
        ("2640020004..", [2, 3, 1, 32 << 16 | 64], "DESC A3.dim0 stride 32 bound 64"),
        (
            "2600000004000000000000000000000000000000000000020000000000000000",
            [2, 3, 0, 0x10_0000_0040],
            "DESC A3.base 0x1000000040",
        ),
        ("3038..", [3, 7, 0, 0], "RUN 7"),
    ],
)
def test_golden_envelopes(digits: str, row: list[int], text: str | None) -> None:
    number = int(payload(digits), 16)
    words = np.frombuffer(number.to_bytes(32, "little"), np.uint64)[None]
    assert vector.decode_envelopes(words).tolist() == [row]
    assert vector.encode_envelopes(np.array([row])).tolist() == words.tolist()
    assert text is None or vector.envelope_text(number) == text
    assert vector.dimension(32, 64) == 32 << 16 | 64


OPCODES = (
    "VMOV VNEG VABS VADD VSUB VMUL VFMA VFNMA VMAX VMIN VSEL VCMPLT VCMPGT VCMPEQ VEXP2 VLOG2 VINV VRSQRT VCVT "
    "VRED VLD VST VBCAST VSHUF VSETVL VSETMODE VSETI VLOOP VBAR VFILL VDRAIN VHALT"
)


def test_opcodes_are_datasheet_6_3() -> None:
    assert [op.name for op in vector.OP] == OPCODES.split()
    assert [op.value for op in vector.OP] == list(range(32))
    for name, fmt in vector.WORDS.formats.items():
        assert vector.WORDS.codes[name] == vector.OP[name.removesuffix("_NODE")].value
        assert fmt.width == 32


ALU_BITS = {
    "sa": (26, 25), "sb": (24, 23), "sc": (22, 21), "vd": (20, 17), "va": (16, 13), "vb": (12, 9), "vc": (8, 5),
    "pr": (4, 3), "pm": (2, 1),
}  # fmt: skip


def test_alu_fields_stand_where_the_table_says() -> None:
    for op in vector.ALU_SOURCES:
        fmt = vector.WORDS.formats[op.name]
        assert {f.name: f.slices[0] for f in fmt.fields} == ALU_BITS


@pytest.mark.parametrize(
    "text",
    [
        "+ VADD v1,C,K1 ?!P3",
        "+ VMOV v1,C",
        "VADD v1,C,K1",
        "VSEL v1,v2,S3,K2 ?P0",
        "VCMPEQ P2,v1,K0 ?P2",
        "VRED S1,v2,SUMSQ",
        "VRED S1,v2,v3,DOT",
        "VRED S1,P2,ANY",
        "VRED S9,P3,ALL",
        "VRED S1,v2,MAX vb=4",
        "VBCAST S1,v2",
        "VSHUF v1,v2,S3",
        "VCVT v1,v2 FP32",
        "VADD v1,v2,v3 vb=9",
        "VADD v1,v2,v3 pr=2",
        "VDRAIN A3,64 -> (2,1) buf 2",
        "VMUL v1,K7,C5",
        ".word 0x80000001",
    ],
)
def test_text_prints_back_unchanged(text: str) -> None:
    assert vector.disassemble(vector.assemble(text)) == text


def test_sumsq_sets_both_sources() -> None:
    _, row = vector.WORDS.decode(vector.assemble("VRED S1,v2,SUMSQ")[0])
    assert (row["va"], row["vb"], row["kind"]) == (2, 2, vector.RED.SUMSQ)


def test_a_chain_prints_naturally() -> None:
    text = "VSETMODE D2\nVMUL v0,v1,S2\n+ VADD v3,C,K1\nVHALT"
    words = vector.assemble(text)
    assert vector.disassemble(words) == text
    _, row = vector.WORDS.decode(words[2])
    assert (row["sb"], row["vb"]) == (vector.SRC.K, 0), "the unused selector of a non-head is K0"


def test_spacing_and_comments_are_free() -> None:
    text = "  VADD   v7 , v0,K1   ; add one\n\n# nothing\nVSETI  K3 , 5\n"
    assert vector.assemble(text) == [
        0x186E0020,
        0xD6000000,
        5,
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, (1 << 32) - 1), max_size=8))
def test_any_words_survive_their_text(words: list[int]) -> None:
    assert vector.assemble(vector.disassemble(words)) == words


def lawful_words() -> st.SearchStrategy[list[int]]:
    def one(name: str) -> st.SearchStrategy[list[int]]:
        fmt = vector.WORDS.formats[name]
        fields = {
            f.name: st.sampled_from(sorted(f.names)) if f.names else st.integers(f.low, f.high) for f in fmt.fields
        }
        words = st.fixed_dictionaries(fields).map(lambda row: [fmt.encode(**row)])
        if name == "VSETI":
            return st.tuples(words, st.integers(0, (1 << 24) - 1)).map(lambda pair: [*pair[0], pair[1]])
        return words

    return st.lists(st.sampled_from(sorted(vector.WORDS.formats)).flatmap(one), max_size=12).map(
        lambda parts: [word for part in parts for word in part]
    )


@settings(max_examples=60, deadline=None)
@given(lawful_words())
def test_lawful_streams_print_as_instructions(words: list[int]) -> None:
    text = vector.disassemble(words)
    assert ".word" not in text
    assert vector.assemble(text) == words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("VADDD v1,v2,v3", r"no instruction 'VADDD'; did you mean 'VADD'"),
        ("VADD v1,v2", r"operands do not fit the instruction; got 'VADD v1,v2'; the limit is VADD v\{vd\},\{a\},\{c\}"),
        ("VADD v16,v2,v3", r"VADD.vd: value does not fit the field; got 16; the limit is 0..15"),
        ("VADD v1,v2,v16", r"VADD.vc: value does not fit the field; got 16"),
        ("VLD v1,A8 FP16", r"VLD.ad: .*got 8"),
        ("VLD v1,A1 FP64", r"VLD.dtype: .*one of FP16=1, FP32=2"),
        ("VLD v1,A1+8192 FP16", r"VLD.off: .*got 8192; the limit is -8192..8191 \(14 bits signed\)"),
        ("VFILL A0,512", r"VFILL.off: .*got 512; the limit is 0..511"),
        ("VSETI S4", r"VSETI takes a register and a constant"),
        ("VSETI S4,0x1000000", r"VSETI takes a register and a constant"),
        ("VLOOP S1,16", r"VLOOP.body: .*got 16; the limit is 1..15"),
        ("VLOOP S1,0", r"VLOOP.body: .*got 0"),
        ("VCMPLT P1,v0,v1 ?P2", r"pr is written twice"),
        ("VADD v1,v2,v3 zz=1", r"no field 'zz'"),
        ("VADD v1,v2,v3 ?P4", r"VADD.pr: .*got 4"),
        (".word 0x1ffffffff", r"not a word"),
        ("", r""),
    ],
)
def test_wrong_text(text: str, message: str) -> None:
    if not text:
        assert vector.assemble(text) == []
        return
    with pytest.raises(EncodingRefusal, match=message):
        vector.assemble(text)


def test_predicate_mode_3_is_refused() -> None:
    with pytest.raises(EncodingRefusal, match=r"VADD.pm: .*got 3; the limit is 0..2"):
        vector.WORDS.encode("VADD", pm=3)


def test_node_record() -> None:
    record = vector.node_record(0x1234, ack=(0, 1), mesh=2, final=(3, 4))
    assert record == 0x1234 | 0x10 << 16 | 2 << 24 | 0x43 << 26
    with pytest.raises(EncodingRefusal, match=r"NODE_RECORD.granule: .*got 65536"):
        vector.node_record(65536)


def test_envelopes_out_of_range() -> None:
    for row, text in (
        ([1, 512, 0, 0], r"IMEM\[0\].addr: .*got 512"),
        ([1, 0, 0, 1 << 32], r"IMEM\[0\].word"),
        ([2, 8, 0, 0], r"DESC\[0\].ad"),
        ([2, 0, 5, 0], r"DESC\[0\].fld: .*got 5; the limit is 0..4"),
        ([3, 512, 0, 0], r"RUN\[0\].pc"),
        ([4, 0, 0, 0], r"no such envelope; got 4"),
    ):
        with pytest.raises(EncodingRefusal, match=text):
            vector.encode_envelopes(np.array([row]))


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=5))
def test_tolerant_decoding_of_anything(items: list[bytes]) -> None:
    rows = vector.decode_envelopes(np.frombuffer(b"".join(items), np.uint64).reshape(-1, 4))
    for item, row in zip(items, rows.tolist()):
        number = int.from_bytes(item, "little")
        op = number >> 252
        assert row[0] == op
        if op == 1:
            assert row[1:] == [number >> 243 & 511, 0, number & 0xFFFFFFFF]
        elif op == 2:
            value = (number >> 63 & 63) << 34 | number >> 212 & ((1 << 34) - 1)
            assert row[1:] == [number >> 249 & 7, number >> 246 & 7, value]
        elif op == 3:
            assert row[1:] == [number >> 243 & 511, 0, 0]
