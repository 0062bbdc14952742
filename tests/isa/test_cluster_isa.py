"""Cluster payloads: the datasheet's golden words, field by field and through the text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohakuaccel.diagnostics import EncodingRefusal
from kohakutpu.isa import cluster

CLUSTER = cluster.CLUSTER

GOLDEN: list[tuple[str, dict[str, Any], str]] = [
    (
        "1000000000008000000128000000000000000000000000000000000000000000",
        {"op": "FILL", "addr": 0, "n": 32, "sel": "A"},
        "FILL addr=0x0 n=32 sel=A",
    ),
    (
        "1000008000008200000128000000000000000000000000000000000000000000",
        {"op": "FILL", "addr": 0x2000, "n": 32, "sel": "B"},
        "FILL addr=0x2000 n=32 sel=B",
    ),
    (
        "2000000000000008080428000000000000000000000000000000000000000000",
        {"op": "GEMM", "gm": 8, "gn": 8, "nk": 4},
        "GEMM gm=8 gn=8 nk=4",
    ),
    (
        "3000010000010000000128000000000000000000000000000000000000000000",
        {"op": "DRAIN", "addr": 0x4000, "n": 64},
        "DRAIN addr=0x4000 n=64",
    ),
    (
        "1000008000010200000128000000220000010000000000020000000000000000",
        {"op": "FILL", "sel": "B", "preq": 1, "n": 64, "eoff": 16, "fbank": 1, "addr": 0x10_0000_2000},
        "FILL addr=0x1000002000 n=64 sel=B preq eoff=16 fbank",
    ),
    (
        "3000000000010000000128000000000000008800008800000000000000000000",
        {"op": "DRAIN", "n": 64, "dnode": 1, "dst_x": 1, "dst_y": 0, "dflags": 1, "dack_x": 0, "dack_y": 1},
        "DRAIN addr=0x0 n=64 dnode dst_x=1 dflags=0x1 dack_y=1",
    ),
]


@pytest.mark.parametrize(("digits", "fields", "text"), GOLDEN)
def test_golden_payloads(digits: str, fields: dict[str, Any], text: str) -> None:
    assert CLUSTER.hex(CLUSTER.encode(**fields)) == digits
    assert cluster.disassemble([int(digits, 16)]) == text
    assert CLUSTER.hex(cluster.assemble(text)[0]) == digits


# Every field's bits as the table of datasheet 5.1 prints them.
BITS: dict[str, list[tuple[int, int]]] = {
    "op": [(255, 252)], "addr": [(68, 63), (251, 218)], "n": [(217, 202)], "sel": [(201, 201)], "acc": [(200, 200)],
    "gm": [(199, 192)], "gn": [(191, 184)], "nk": [(183, 176)], "anchor": [(175, 168)], "peers": [(167, 144)],
    "npeer": [(143, 142)], "preq": [(141, 141)], "eoff": [(140, 133)], "aoff": [(132, 125)], "boff": [(124, 117)],
    "emit": [(116, 116)], "fuse": [(115, 115)], "abank": [(114, 114)], "bbank": [(113, 113)],
    "fbank": [(112, 112)], "dnode": [(111, 111)], "dst_x": [(110, 107)], "dst_y": [(106, 103)],
    "dbuf": [(102, 95)], "dflags": [(94, 87)], "dack_y": [(86, 83)], "dack_x": [(82, 79)], "dmesh": [(78, 77)],
    "dfin": [(76, 69)],
}  # fmt: skip


def test_fields_stand_where_the_table_says() -> None:
    for name, slices in BITS.items():
        assert list(CLUSTER[name].slices) == slices, name
    assert [n for n in CLUSTER.names if n not in BITS] == ["tsel", "tag", "desc", "dsel"], "reserved for r2"


def test_opcodes() -> None:
    assert (cluster.FILL, cluster.GEMM, cluster.DRAIN) == (1, 2, 3)
    with pytest.raises(EncodingRefusal, match="one of FILL=1, GEMM=2, DRAIN=3"):
        CLUSTER.encode(op=4)


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=6))
def test_any_payload_survives_its_text(items: list[bytes]) -> None:
    payloads = np.frombuffer(b"".join(items), np.uint64).reshape(-1, 4)
    assert cluster.assemble(cluster.disassemble(payloads)).tolist() == payloads.tolist()


def valid_rows() -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries(
        {f.name: st.sampled_from(sorted(f.names)) if f.names else st.integers(f.low, f.high) for f in CLUSTER.fields}
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(valid_rows(), min_size=1, max_size=3))
def test_lawful_payloads_print_as_instructions(rows: list[dict[str, int]]) -> None:
    payloads = np.stack([CLUSTER.to_words(CLUSTER.encode(**row)) for row in rows])
    text = cluster.disassemble(payloads)
    assert ".payload" not in text
    assert cluster.assemble(text).tolist() == payloads.tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GEM gm=1", r"no instruction 'GEM'; did you mean 'GEMM'"),
        ("gm=1", r"no instruction 'gm=1'"),
        ("GEMM gn=256", r"CLUSTER.gn: .*got 256; the limit is 0..255"),
        (".payload 12", r"a payload is 64 hexadecimal digits"),
        ("FILL sel=C", r"CLUSTER.sel: .*got 'C'; the limit is one of A=0, B=1"),
    ],
)
def test_wrong_text(text: str, message: str) -> None:
    with pytest.raises(EncodingRefusal, match=message):
        cluster.assemble(text)


def test_comments_and_blanks() -> None:
    assert cluster.assemble("; a program\n\nGEMM gm=8 gn=8 nk=4  # the sweep\n").tolist() == (
        cluster.assemble("GEMM gm=8 gn=8 nk=4").tolist()
    )
    assert cluster.assemble("").shape == (0, 4)
