"""What an encoder refuses of revision 2's drain quantiser and accumulator-width transfer, and on r1 machines."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.diagnostics import EncodingRefusal
from kohakuaccel.machine import Machine
from kohakutpu import machines
from kohakutpu.isa import cluster, vector
from kohakutpu.units import agent_state

SHIP = machines.load("ship_3x2")
R2 = SHIP.with_(name="r2", features={"r2_vc_quant": True, "r2_acc_to_vc": True})


def stream(target: str, granule: int, bound: int) -> NDArray[np.int64]:
    """IMEM of one VDRAIN from L1 word 0, its descriptor, RUN."""
    words = vector.assemble(f"VDRAIN A0,0 -> {target}\nVHALT")
    rows = [[1, i, 0, w] for i, w in enumerate(words)]
    rows += [[2, 0, 0, vector.node_record(granule, ack=(0, 1))], [2, 0, 1, vector.dimension(0, bound)]]
    return np.array([*rows, [3, 0, 0, 0]], np.int64)


def refused(machine: Machine, rows: NDArray[np.int64]) -> str:
    with pytest.raises(EncodingRefusal) as caught:
        vector.check_envelopes(machine, machine.units_of("VC")[0], rows)
    assert caught.value.hint
    return str(caught.value)


def test_the_bit_has_a_place_and_a_text() -> None:
    text = "VDRAIN A3,64 -> (2,1) buf 1 quant ack"
    (word,) = vector.assemble(text)
    assert word == 0xF3642040 | 1 << 26 | 1 << 9
    assert vector.disassemble([word]) == text


def test_lawful_ones_pass() -> None:
    for buf, granule, words in ((0, 0, 8), (1, 4 * 511, 8), (0, 4 * 480, 256)):
        vector.check_envelopes(R2, R2.units_of("VC")[0], stream(f"(1,1) buf {buf} quant ack", granule, words))
    vector.check_envelopes(R2, R2.units_of("VC")[0], stream("(2,0) buf 2", 510, 2))


@pytest.mark.parametrize(
    ("target", "granule", "words", "message"),
    [
        ("(1,1) buf 0 quant", 0, 12, "whole FP16 entries (F_LEN); got 12; the limit is a multiple of 8 words"),
        ("(1,1) buf 0 quant", 2, 8, "begins at granule 4 * entry; got 2"),
        ("(1,1) buf 1 quant", 4 * 511, 16, "(granule + words); got 2052; the limit is 2048 granules"),
        ("(1,1) buf 2 quant", 0, 8, "quantised entries go into a cluster's L1; got buffer 2 of (1,1)"),
        ("(2,0) buf 0 quant", 0, 8, "quantised entries go into a cluster's L1; got buffer 0 of (2,0)"),
        ("(1,1) buf 0 quant", 0, 264, "the walk is too long (F_LEN); got 264"),
        ("(2,0) buf 2", 3, 2, "FP22 sub-tiles are pairs of granules; got granule 3"),
        ("(2,0) buf 2", 512, 2, "(granule + words); got 514; the limit is 512 granules"),
    ],
)
def test_what_does_not_fit(target: str, granule: int, words: int, message: str) -> None:
    assert message in refused(R2, stream(target, granule, words))


def test_an_r1_machine_has_neither() -> None:
    assert "field quant: the machine has no r2_vc_quant; got 1; the limit is 0" in refused(
        SHIP, stream("(1,1) buf 0 quant", 0, 8)
    )
    assert "does not take this buffer; got buffer 2 of VC(2,0)" in refused(SHIP, stream("(2,0) buf 2", 0, 2))


TILE = "FILL n=2\nFILL n=2 sel=B\n"


def drains(machine: Machine, text: str) -> None:
    rows = cluster.CLUSTER.decode_table(cluster.assemble(f"{TILE}GEMM gm=1 gn=1 nk=2\n{text}"))
    cluster.check(machine, machine.units_of("MG")[0], rows)


def test_accumulators_to_cores() -> None:
    wide = "DRAIN addr=0x40 n=1 dnode dst_x=1 dbuf=2"
    drains(R2, wide)
    with pytest.raises(EncodingRefusal, match=r"field dbuf: .*got 2 of VC\(1,0\)"):
        drains(SHIP, wide)
    with pytest.raises(EncodingRefusal, match="field addr: an FP22 transfer starts at an even granule; got 1"):
        drains(R2, "DRAIN addr=0x20 n=1 dnode dst_x=1 dbuf=2")
    with pytest.raises(EncodingRefusal, match=r"field addr: .*beyond the target's buffer.*got 512 \+ 2"):
        drains(R2, "DRAIN addr=0x4000 n=1 dnode dst_x=1 dbuf=2")
    fused = cluster.assemble(
        f"{TILE}GEMM gm=1 gn=1 nk=2 emit addr=0x40 dnode dst_x=1 dbuf=2\nDRAIN addr=0x40 n=1 fuse dnode dst_x=1 dbuf=2"
    )
    with pytest.raises(EncodingRefusal, match="field fuse: what a sweep hands out is FP16"):
        cluster.check(R2, R2.units_of("MG")[0], cluster.CLUSTER.decode_table(fused))


def test_a_machine_says_which_options_it_has() -> None:
    caps = agent_state.make_control(R2, 8, 8).limits[agent_state.L_CAPS_MG : agent_state.L_CAPS_VC + 1]
    assert [int(c) & 0xFFFFF for c in caps] == [0b001001] * 2
    assert [int(c) >> 40 & 0xFF for c in caps] == [5, 5]
