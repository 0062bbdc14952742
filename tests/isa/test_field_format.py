"""Field tables: construction refuses contradictions; encode, decode, tables and text agree with plain bit work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohakuaccel.diagnostics import DefinitionError, EncodingRefusal
from kohakuaccel.isa import Field, Format, InstructionSet
from kohakuaccel.isa.instructions import Syntax
from kohakutpu.isa import cluster, control, flit, vector

FORMATS = [
    cluster.CLUSTER,
    vector.IMEM,
    vector.DESC,
    vector.RUN,
    vector.DIMENSION,
    vector.NODE_RECORD,
    *vector.WORDS.formats.values(),
    flit.HEADER,
    *flit.PAYLOADS.values(),
    flit.CAPS,
    flit.STATUS,
    flit.COUNTERS,
    flit.DEBUG,
    flit.NUM,
    control.AGENT_CAPS,
    control.DESTINATION,
    control.PROGRAM_STATUS,
    control.NODE,
    control.ENGINE_STATUS,
    control.COMMAND,
]
IDS = [f.name for f in FORMATS]


def reference(fmt: Format, values: dict[str, int]) -> int:
    """The word, bit by bit from the slices, with constants from the format."""
    word = fmt.constant
    for field in fmt.fields:
        bits = [b for hi, lo in field.slices for b in range(hi, lo - 1, -1)]
        pattern = f"{values[field.name] & ((1 << len(bits)) - 1):0{len(bits)}b}"
        for bit, digit in zip(bits, pattern):
            word |= int(digit) << bit
    return word


def values_of(fmt: Format) -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries(
        {f.name: st.sampled_from(sorted(f.names)) if f.names else st.integers(f.low, f.high) for f in fmt.fields}
    )


# construction


@pytest.mark.parametrize(
    ("fields", "constants", "text"),
    [
        ([Field("a", (7, 4)), Field("b", (4, 0))], {}, r"bit 4 belongs to a and to b"),
        ([Field("a", (7, 4))], {(4, 0): 0}, r"bit 4 belongs to constant \[4:0\] and to a"),
        ([Field("a", (8, 0))], {}, r"format f.a: a field reaches beyond the word; got bit 8; the limit is 7"),
        ([Field("a", (7, 6)), Field("b", (3, 0))], {}, r"bits without a field or constant; got \[5:4\]"),
        ([Field("a", (7, 4)), Field("a", (3, 0))], {}, r"two fields have one name; got a"),
        ([Field("a", (7, 2))], {(1, 0): 4}, r"a constant does not fit its bits; got 4"),
    ],
)
def test_wrong_tables_cannot_be_built(fields: list[Field], constants: Any, text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        Format("f", 8, fields, constants)


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (((0, 3),), {}, r"hi >= lo"),
        (((64, 0),), {}, r"1 to 64 bits; got 65"),
        ((), {}, r"1 to 64 bits; got 0"),
        (((3, 0),), {"default": 16}, r"the default is not a value of the field; got 16"),
        (((3, 0),), {"values": range(10, 17)}, r"values do not fit the bits; got 10..16"),
        (((3, 0),), {"values": {"X": 16}}, r"values do not fit the bits; got 16"),
        (((3, 0),), {"values": range(0)}, r"a value range is not empty"),
    ],
)
def test_wrong_fields_cannot_be_built(arguments: Any, options: Any, text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        Field("a", *arguments, **options)


def test_defaults_of_fields_without_zero() -> None:
    assert Field("a", (3, 0), values=range(3, 9)).default == 3
    assert Field("a", (3, 0), values={"X": 5, "Y": 2}).default == 2
    assert Field("a", (3, 0), values={"X": 5, "N": 0}).default == 0


# ranges, for every field that is declared anywhere


@pytest.mark.parametrize("fmt", FORMATS, ids=IDS)
def test_every_field_refuses_what_does_not_fit(fmt: Format) -> None:
    for field in fmt.fields:
        inside = sorted(field.names) if field.names else [field.low, field.high]
        outside = [1 << field.width, -(1 << field.width), max(inside) + 1, min(inside) - 1]
        for value in outside:
            if field.allows(value):
                continue
            with pytest.raises(EncodingRefusal) as caught:
                fmt.encode(**{field.name: value})
            assert caught.value.where == f"{fmt.name}.{field.name}"
            assert caught.value.got == value
            assert caught.value.limit == field.limit
        for value in inside:
            assert fmt.decode(fmt.encode(**{field.name: value}))[field.name] == value
            if field.width < 64:
                column = np.full(3, value)
                assert (
                    fmt.decode_table(fmt.encode_table(3, **{field.name: column}))[:, fmt.column(field.name)] == value
                ).all()
        if field.width < 63:
            rows = np.array([inside[0], outside[0]], np.int64)
            with pytest.raises(EncodingRefusal, match=rf"{fmt.name}\[1\].{field.name}: value does not fit the field"):
                fmt.encode_table(2, **{field.name: rows})


def test_refusal_text() -> None:
    with pytest.raises(EncodingRefusal) as caught:
        cluster.CLUSTER.encode(gm=256)
    text = "CLUSTER.gm: value does not fit the field; got 256; the limit is 0..255 (8 bits unsigned)"
    assert str(caught.value).startswith(text)
    with pytest.raises(EncodingRefusal, match=r"no field 'gmm'; did you mean 'gm'"):
        cluster.CLUSTER.encode(gmm=1)
    with pytest.raises(EncodingRefusal, match=r"got 2.5 \(float\)"):
        cluster.CLUSTER.encode(gm=2.5)
    with pytest.raises(EncodingRefusal, match=r"got 'C'; the limit is one of A=0, B=1"):
        cluster.CLUSTER.encode(sel="C")
    with pytest.raises(EncodingRefusal, match=r"a column is int64\[n\]; got float64\[2\]; the limit is int64\[2\]"):
        cluster.CLUSTER.encode_table(2, gm=np.array([1.0, 2.0]))
    with pytest.raises(EncodingRefusal, match=r"a column is int64\[n\]; got int64\[3\]"):
        cluster.CLUSTER.encode_table(2, gm=np.arange(3))


# decode(encode(x)) == x, against bit-by-bit work


@pytest.mark.parametrize("fmt", FORMATS, ids=IDS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_encode_is_the_declared_bits_and_decode_undoes_it(fmt: Format, data: st.DataObject) -> None:
    values = data.draw(values_of(fmt))
    word = fmt.encode(**values)
    assert word == reference(fmt, values)
    assert fmt.decode(word) == values
    row = [values[n] - (1 << 64) if values[n] >> 63 == 1 else values[n] for n in fmt.names]
    table = fmt.to_words(word)[None]
    assert fmt.decode_table(table).tolist() == [row]
    assert fmt.encode_rows(np.array([row], np.int64)).tolist() == table.tolist()


def test_constants_are_held() -> None:
    word = cluster.CLUSTER.encode() | 1
    with pytest.raises(EncodingRefusal, match=r"CLUSTER: constant bits \[0:0\] differ"):
        cluster.CLUSTER.decode(word)
    table = np.stack([cluster.CLUSTER.to_words(cluster.CLUSTER.encode()), cluster.CLUSTER.to_words(word)])
    with pytest.raises(EncodingRefusal, match=r"CLUSTER\[1\]: constant bits differ; got [0-9a-f]{64}"):
        cluster.CLUSTER.decode_table(table)
    with pytest.raises(EncodingRefusal, match="not a word of this width"):
        vector.DIMENSION.decode(1 << 34)
    with pytest.raises(EncodingRefusal, match=r"encoded tables are uint64\[n, words\]; got \[1, 3\]"):
        cluster.CLUSTER.decode_table(np.zeros((1, 3), np.uint64))


def test_empty_tables() -> None:
    assert cluster.CLUSTER.encode_table(0, gm=np.zeros(0, np.int64)).shape == (0, 4)
    assert cluster.CLUSTER.decode_table(np.zeros((0, 4), np.uint64)).shape == (0, len(cluster.CLUSTER.fields))


def test_scalars_names_and_columns_mix() -> None:
    table = cluster.CLUSTER.encode_table(3, op="GEMM", gm=np.array([1, 2, 3]), gn=4, acc=np.array([True, False, True]))
    assert [row["gm"] for row in map(decoded, table)] == [1, 2, 3]
    assert [row["acc"] for row in map(decoded, table)] == [1, 0, 1]
    assert {row["op"] for row in map(decoded, table)} == {cluster.GEMM}
    assert {row["anchor"] for row in map(decoded, table)} == {40}


def decoded(words: Any) -> dict[str, int]:
    return cluster.CLUSTER.decode(int.from_bytes(words.tobytes(), "little"))


def test_position_of_split_fields() -> None:
    assert vector.WORDS.formats["VADD"].position("va") == (13, 4)
    with pytest.raises(DefinitionError, match="several pieces"):
        cluster.CLUSTER.position("addr")


# text of a format


@given(values=values_of(cluster.CLUSTER))
def test_row_text_round_trips(values: dict[str, int]) -> None:
    text = cluster.CLUSTER.format_row(values)
    assert cluster.CLUSTER.parse_row(text) == [values[n] for n in cluster.CLUSTER.names]


def test_row_text_refuses_nonsense() -> None:
    with pytest.raises(EncodingRefusal, match="no field 'gq'"):
        cluster.CLUSTER.parse_row("GEMM gq=3")
    with pytest.raises(EncodingRefusal, match=r"CLUSTER.gm: .*got 'x'"):
        cluster.CLUSTER.parse_row("GEMM gm=x")
    with pytest.raises(EncodingRefusal, match=r"CLUSTER: gm is written twice; got 'GEMM gm=1 gm=2'"):
        cluster.CLUSTER.parse_row("GEMM gm=1 gm=2")
    with pytest.raises(EncodingRefusal, match=r"op is written twice"):
        cluster.CLUSTER.parse_row("GEMM op=FILL")
    with pytest.raises(EncodingRefusal, match=r"CLUSTER.gm: .*got ''"):
        cluster.CLUSTER.parse_row("GEMM gm")


# instruction sets


def test_instruction_sets_are_checked() -> None:
    one = Format("ONE", 8, [Field("a", (3, 0))], {(7, 4): 1})
    same = Format("SAME", 8, [Field("b", (3, 0))], {(7, 4): 1})
    wide = Format("WIDE", 16, [Field("b", (11, 0))], {(15, 12): 2})
    free = Format("FREE", 8, [Field("op", (7, 4)), Field("a", (3, 0))])
    with pytest.raises(DefinitionError, match=r"s.SAME: cannot be told apart from ONE"):
        InstructionSet("s", (7, 4), {"ONE": one, "SAME": same})
    with pytest.raises(DefinitionError, match="one width"):
        InstructionSet("s", (7, 4), {"ONE": one, "WIDE": wide})
    with pytest.raises(DefinitionError, match=r"opcode bits \[7:4\] are not constant"):
        InstructionSet("s", (7, 4), {"FREE": free})
    with pytest.raises(DefinitionError, match=r"the syntax shows no field 'z'"):
        InstructionSet("s", (7, 4), {"ONE": one}, {"ONE": [Syntax("ONE {z}")]})
    toy = InstructionSet("toy", (7, 4), {"ONE": one})
    assert toy.parse(toy.text(0x1A)) == 0x1A
    assert toy.text(0x1A) == "ONE a=10"
    assert toy.columns("ONE") == toy.columns(1) == ("a",)
    with pytest.raises(EncodingRefusal, match="no such opcode; got 0x9"):
        toy.columns(9)
    with pytest.raises(EncodingRefusal, match=r"no instruction has this word; got 0x90"):
        toy.decode(0x90)
    with pytest.raises(EncodingRefusal, match="not a word"):
        toy.parse(".word 0x100")
