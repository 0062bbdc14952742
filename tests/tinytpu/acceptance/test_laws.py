"""Laws of the datasheet (17) beside those in units/test_laws.py: op 42, requantisation, rotates, the sine, clock."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tinytpu.isa import SXU, VPU
from tinytpu_rig.build import HALT, one, patterns, run, vpu, word
from tinytpu_rig.softfloat import WORD

Words = list[list[int]]
SEEDS = st.integers(0, 2**32 - 1)


def flat(a: np.ndarray) -> dict[int, list[int]]:
    return {i: [int(x) for x in row.reshape(-1)] for i, row in enumerate(a)}


@given(seed=SEEDS, vectors=st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_column_sums_of_op_42_are_the_results(seed: int, vectors: int) -> None:
    """A plain tile of op 42 and one dispatch: the latched results are the sums of its columns."""
    rng = np.random.default_rng(seed)
    w, a = rng.integers(-128, 128, (1, 4, 4)), rng.integers(-128, 128, (8, 4))
    call = word(SXU.MXU_EPILOGUE, tlen=vectors, dst=1)
    sums = [vpu(VPU.SUM_REDUCE_COL, 1, 1), word(SXU.STORE, vmem=0, src=1)]
    latched = [word(SXU.LOAD_MXU_RESULT, dst=2), word(SXU.STORE, vmem=1, src=2)]
    tiles = run([call, *sums, *latched, HALT], wmem=flat(w), amem=flat(a), vmem_outputs=[0, 1]).vmem
    assert np.array_equal(tiles[0][0], tiles[1][0])
    assert np.array_equal(tiles[1][0], a[:vectors].sum(0) @ w[0])


@given(scale=st.integers(-(2**31), 2**31 - 1), shift=st.integers(1, 31), seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_requantisation_is_monotone_and_bounded(scale: int, shift: int, seed: int) -> None:
    """Sorted results give sorted bytes where the factor is not negative, and all are int8: floor(x*m/2^s + 1/2)."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.integers(-16000, 16001, 4))
    w = np.zeros((1, 4, 4), int)
    w[0, 0] = np.clip(x // 127, -128, 127)
    w[0, 1] = x - 127 * w[0, 0]
    bytes_of = [scale >> 8 * i & 255 for i in range(4)]
    fields = dict(zip(("wbase", "abase", "tlen", "vmem"), bytes_of))
    config = word(SXU.SET_REQUANT_CONFIG, vpu=shift, **fields)
    program = [config, word(SXU.DISPATCH_MXU_REQUANT, tlen=1, vmem=9), word(SXU.WAIT_MXU), HALT]
    got = [int(v) for v in run(program, wmem=flat(w), amem={0: [127, 1, 0, 0]}, amem_outputs=[9]).amem[0]]
    exact = [max(-128, min(127, (2 * int(v) * scale + 2**shift) // 2 ** (shift + 1))) for v in x]
    assert got == exact
    assert got == sorted(got, reverse=scale < 0)


@given(values=st.lists(st.integers(0, WORD), min_size=16, max_size=16), seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_rotates_are_each_others_inverse(values: list[int], seed: int) -> None:
    by = [int(n) for n in np.random.default_rng(seed).integers(0, 64, 16)]
    back = [32 - n % 32 for n in by]
    left = one(VPU.ROTL, values, by)
    assert left == one(VPU.ROTR, values, back)
    assert one(VPU.ROTR, left, by) == values
    counts = one(VPU.POPCOUNT, values)
    assert counts == one(VPU.POPCOUNT, left) == [x.bit_count() for x in values]


@given(values=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=16, max_size=16))
@settings(max_examples=20, deadline=None)
def test_signs_of_bytes(values: list[int]) -> None:
    """Per byte: the sign of a sign is itself, a sign times its byte is the magnitude; -128 wraps."""
    x = patterns(values)
    sign = one(VPU.PACKED_I8_SIGN, x)
    assert one(VPU.PACKED_I8_SIGN, sign) == sign
    magnitudes = one(VPU.PACKED_I8_MUL_LOW, sign, x)
    exact = np.abs(np.array(values, np.int32).view(np.int8).astype(int)).astype(np.uint8).view(np.uint32)
    assert magnitudes == [int(m) for m in exact]


SINE = {8: 0x3E22F983, 9: 1 << 31, 10: 0x3F000000, 11: 0x40C90FDB, 12: 0x40490FDB, 13: 0x3FC90FDB, 14: 0x3BFA0514}
MORE = {15: 0xBE2A0E41, 7: 0x3F800000}


def inline_sine() -> Words:
    """19 operations and a SELECT: x in v0, constants of SINE and MORE in vregs, the result in v6."""
    return [
        vpu(VPU.FMUL, 1, 0, 8), vpu(VPU.AND, 2, 0, 9), vpu(VPU.OR, 2, 2, 10), vpu(VPU.FADD, 1, 1, 2),
        vpu(VPU.F2I, 1, 1), vpu(VPU.I2F, 1, 1), vpu(VPU.FMUL, 1, 1, 11), vpu(VPU.FSUB, 1, 0, 1),
        vpu(VPU.AND, 2, 1, 9), vpu(VPU.OR, 2, 2, 12), vpu(VPU.FSUB, 2, 2, 1), vpu(VPU.FABS, 3, 1),
        vpu(VPU.FCMPLT, 3, 13, 3), word(SXU.SELECT, src=3, src2=2, wbase=1, dst=1), vpu(VPU.FMUL, 4, 1, 1),
        vpu(VPU.FMUL, 6, 4, 14), vpu(VPU.FADD, 6, 6, 15), vpu(VPU.FMUL, 6, 6, 4), vpu(VPU.FADD, 6, 6, 7),
        vpu(VPU.FMUL, 6, 6, 1),
    ]  # fmt: skip


def test_the_inline_sine_is_the_units() -> None:
    """Datasheet 14: bit-identical for magnitudes up to 1e9, and 61 cycles."""
    rng = np.random.default_rng(17)
    held = {**SINE, **MORE}
    x = np.concatenate(
        [
            rng.uniform(-10, 10, 128),
            rng.uniform(-1e9, 1e9, 96),
            10.0 ** rng.uniform(-40, 9, 80),
            np.pi / 2 * np.arange(16),
        ]
    ).astype(np.float32)
    for tile in x.view(np.int32).reshape(-1, 16):
        items: dict[str, Any] = {
            "vmem": {0: tile, **{v: [bits - (bits >> 31 << 32)] * 16 for v, bits in held.items()}},
            "vmem_outputs": [30, 31],
        }
        loads = [word(SXU.LOAD, vmem=v, dst=v) for v in (0, *held)]
        unit = [vpu(VPU.SIN, 5, 0), word(SXU.STORE, vmem=31, src=5)]
        done = run([*loads, *inline_sine(), word(SXU.STORE, vmem=30, src=6), *unit, HALT], **items)
        assert np.array_equal(done.vmem[0], done.vmem[1])
        assert done.execute_cycles == 3 * len(loads) + 61 + 2 + 180 + 2 + 1


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_reading_the_cycle_anywhere(seed: int) -> None:
    """With nothing in flight a READ_CYCLE adds two cycles, and two of loading, and changes no value."""
    rng = np.random.default_rng(seed)
    body: Words = []
    for _ in range(int(rng.integers(1, 8))):
        d, a, b = (int(x) for x in rng.integers(0, 4, 3))
        blocks: list[Words] = [
            [vpu(VPU.ADD, d, a, b)], [word(SXU.LOAD, vmem=a, dst=d)], [word(SXU.STORE, vmem=4, src=a)],
            [word(SXU.TRANSPOSE, src=a, dst=d)], [word(SXU.MXU, tlen=1 + a), word(SXU.WAIT_MXU)],
            [word(SXU.PSUM_CLEAR), word(SXU.PSUM_READ, dst=d)], [vpu(VPU.EXP2, d, a)],
            [word(SXU.MXU_EPILOGUE, tlen=1, dst=d)],
        ]  # fmt: skip
        body.append([-1])
        body += blocks[int(rng.integers(len(blocks)))]
    items: dict[str, Any] = {
        "vmem": flat(rng.integers(-99, 99, (4, 16))), "wmem": flat(rng.integers(-9, 9, (1, 4, 4))),
        "amem": flat(rng.integers(-9, 9, (4, 4))), "vmem_outputs": [4],
    }  # fmt: skip
    places = [i for i, w in enumerate(body) if w == [-1]]
    end = [word(SXU.STORE, vmem=4, src=3), HALT]

    def at(place: int | None) -> Any:
        words = [word(SXU.READ_CYCLE, dst=9) if i == place else w for i, w in enumerate(body)]
        return run([*(w for w in words if w != [-1]), *end], **items)

    plain = at(None)
    for place in places:
        timed = at(place)
        assert (timed.cycles, timed.execute_cycles) == (plain.cycles + 4, plain.execute_cycles + 2)
        assert np.array_equal(timed.vmem[0], plain.vmem[0])
