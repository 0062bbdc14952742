"""Revision 2's cluster words (datasheet 10): TDESC's layouts, and what encoders refuse, by name."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.diagnostics import EncodingRefusal
from kohakuaccel.machine import Machine
from kohakutpu import machines
from kohakutpu.isa import cluster
from kohakutpu.isa.cluster import ClusterState
from kohakutpu.isa.cluster_tdesc import extraction, row_of
from kohakutpu.isa.walks import Dimension, Walk
from reference import encode as enc

SHIP = machines.load("ship_3x2")
R2 = SHIP.with_(name="r2", features=dict.fromkeys(("r2_dual_acc", "r2_multicast", "r2_desc_fill"), True))
NODE_DRAIN = enc.drain(64, 6, dnode=1, dst_x=2, dst_y=1, dbuf=5, tsel=1)
EXAMPLES = [
    ("TDESC index=2 field=0 base=0xfffffffff0 ndim=6", enc.walk_base(2, 0xFFFFFFFFF0, 6)),
    ("TDESC index=3 field=4 count=65535 stride=-64 axis=2 astep=-3", enc.walk_dim(3, 3, 65535, -64, 2, -3)),
    ("TDESC index=1 field=7 abase0=-1 ext0=9 abase1=-2 ext1=65535", enc.walk_axes(1, (-1, -2), (9, 65535))),
    ("FILL addr=0x0 n=4 sel=A peers=0x2112 npeer=2 tag=255", enc.fill(0, 4, 0, peers=0x2112, npeer=2, tag=255)),
    ("FILL addr=0x0 n=4 sel=B desc dsel=3", enc.fill(0, 4, 1, desc=1, dsel=3)),
    ("GEMM gm=2 gn=3 nk=1 tsel", enc.gemm(2, 3, 1, tsel=1)),
    ("DRAIN addr=0x40 n=6 dnode dst_x=2 dst_y=1 dbuf=5 tsel", NODE_DRAIN),
]  # fmt: skip


@pytest.mark.parametrize(("text", "payload"), EXAMPLES)
def test_words_text_and_rows(text: str, payload: int) -> None:
    """The same bits as the datasheet's table typed by hand; text, rows and payloads are one another's reverse."""
    words = cluster.assemble(text)
    assert int.from_bytes(words[0].tobytes(), "little") == payload
    assert cluster.disassemble(words) == text
    rows = cluster.decode_rows(words)
    assert cluster.text(rows[0]) == text
    np.testing.assert_array_equal(cluster.encode_rows(rows), words)


def test_rows_of_all_opcodes_together() -> None:
    words = cluster.assemble("\n".join(text for text, _ in EXAMPLES))
    np.testing.assert_array_equal(cluster.encode_rows(cluster.decode_rows(words)), words)


def test_the_compiled_decoder_finds_the_same_fields() -> None:
    from kohakuaccel.isa.kernels import extract

    for _, payload in EXAMPLES[:3]:
        words = np.frombuffer(payload.to_bytes(32, "little"), np.uint64)
        row = np.zeros(len(cluster.CLUSTER.fields), np.int64)
        extract(words, extraction(), row)
        expect = cluster.decode_rows(words[None])[0]
        for column in np.flatnonzero(expect):
            assert row[column] == expect[column]


def test_what_is_no_tdesc() -> None:
    assert cluster.disassemble([enc.tdesc(0, 0, 1 << 43)]) == f".payload {enc.tdesc(0, 0, 1 << 43):064x}"
    with pytest.raises(EncodingRefusal, match="no field 'strid'"):
        row_of(strid=1)
    with pytest.raises(EncodingRefusal, match="no instruction 'TDES'"):
        cluster.assemble("TDES index=1")


def test_a_walk_is_nested_loops() -> None:
    """The walk against loops written out, with both axes bound and dimension 0 outermost."""
    dims = (Dimension(3, 640, 1, 2), Dimension(0, 5), Dimension(4, 64, 2, -1), Dimension(9, 9, 0, 9))
    walk = Walk(1000, dims, ((-1, 4), (2, 0)), 3)
    address, valid = walk.elements()
    assert address.tolist() == [1000 + 640 * i + 64 * k for i in range(3) for k in range(4)]
    assert valid.tolist() == [0 <= 2 * i - 1 < 4 for i in range(3) for _ in range(4)]
    bounded = Walk(1000, dims, ((-1, 4), (2, 3)), 3).elements(5)[1]
    assert bounded.tolist() == [False] * 4 + [True]


def refused(text: str, machine: Machine = R2, state: ClusterState = cluster.FRESH) -> str:
    with pytest.raises(EncodingRefusal) as caught:
        cluster.check(machine, machine.units[0], cluster.decode_rows(cluster.assemble(text)), state)
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("GEMM gm=1 gn=1 tsel", "r2_dual_acc"),
        ("GEMM gm=1 gn=1\nDRAIN n=1 tsel", "r2_dual_acc"),
        ("FILL n=1 peers=0x12 npeer=1", "r2_multicast"),
        ("FILL n=1 tag=1", "r2_multicast"),
        ("FILL n=1 desc", "r2_desc_fill"),
        ("TDESC index=0 field=0", "r2_desc_fill"),
    ],
)
def test_forms_of_an_option_that_is_off(text: str, flag: str) -> None:
    assert f"the machine has no {flag}" in refused(text, SHIP)
    assert flag not in refused(text + "\nFILL n=0")  # on, the last line is what is wrong


WALK = """
TDESC index=1 field=0 base=0x1000 ndim=2
TDESC index=1 field=1 count=4 stride=256
TDESC index=1 field=2 count=4 stride=64
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FILL n=1 peers=0x12", "names npeer other clusters"),
        ("FILL n=1 peers=0x11 npeer=1", "names npeer other clusters"),
        ("FILL n=1 peers=0x1212 npeer=2", "names npeer other clusters"),
        ("FILL n=1 peers=0x01 npeer=1", "names npeer other clusters"),
        ("FILL n=1 peers=0x211212 npeer=1", "names npeer other clusters"),
        ("FILL n=1 tag=3", "names npeer other clusters"),
        ("GEMM gm=1 gn=1 tag=3", "tag belongs to a FILL; got 3"),
        ("FILL n=1 tsel", "a FILL touches no accumulator"),
        ("FILL n=1 dsel=1", "dsel chooses among descriptors"),
        (f"{WALK}FILL n=4 desc dsel=1 peers=0x12 npeer=1", "a fetch by descriptor is not shared"),
        (f"{WALK}FILL n=4 desc dsel=1 preq", "a fill by descriptor reads FP16"),
        (f"{WALK}FILL n=4 desc dsel=1 addr=0x40", "a fill by descriptor ignores addr; got 0x40"),
        (f"{WALK}FILL n=5 desc dsel=1", "walk (4 elements per entry); got 20; the limit is 16"),
        (f"{WALK}FILL n=1 desc", "stays inside its descriptor's walk"),
        (f"{WALK}TDESC index=1 field=2 count=4 stride=32\nFILL n=4 desc dsel=1", "64-byte aligned; got 0x1020"),
        (f"{WALK}TDESC index=1 field=1 count=4 stride=-4096\nFILL n=4 desc dsel=1", "DRAM; got 0x0..0xfffffff100"),
        ("TDESC index=1 field=0 ndim=7", "at most six dimensions; got 7"),
        ("TDESC index=1 field=3 axis=3", "axis 1 or 2, or to none; got 3"),
        ("GEMM gm=2 gn=2\nDRAIN n=4 tsel", "no GEMM opened; got 4; the limit is 0 opened"),
        ("GEMM gm=2 gn=2\nGEMM gm=2 gn=2 acc tsel", "this shape did not open"),
        ("FILL n=1\nGEMM gm=1 gn=1 tsel\nGEMM gm=1 gn=1\nDRAIN n=1 tsel\nFILL n=1", "a live sweep reads"),
    ],
)  # fmt: skip
def test_refused(text: str, said: str) -> None:
    assert said in refused(text)


def test_what_passes_and_what_is_carried() -> None:
    """Descriptors and both accumulators survive into the next program; elements outside an axis are not looked at."""
    table = cluster.decode_rows(cluster.assemble(f"{WALK}FILL n=4 desc dsel=1\nGEMM gm=2 gn=2 tsel\nDRAIN n=4 tsel"))
    state = cluster.check(R2, R2.units[0], table)
    assert (state.opened, state.tiles) == ((None, (2, 2)), (0, 4))
    more = "TDESC index=1 field=1 count=4 stride=-4096 axis=1 astep=-1\nTDESC index=1 field=7 ext0=1\n"
    after = cluster.decode_rows(cluster.assemble(f"{more}FILL n=4 desc dsel=1\nGEMM gm=2 gn=2 acc tsel"))
    cluster.check(R2, R2.units[0], after, state)
    two = "GEMM gm=1 gn=1 tsel\nGEMM gm=1 gn=1\nDRAIN n=1 tsel\nDRAIN n=1\nFILL n=1"
    cluster.check(R2, R2.units[0], cluster.decode_rows(cluster.assemble(two)))
