"""Attention against float64 with the error its formats predict: lengths, heads, masks, blocks, stage counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.expected import Value, attention, close, product
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import dims, grid
from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu import lang as L
from kohakutpu.kernels.attention import POSITIONS, from_the_end
from kohakutpu.lang import Kernel, kernel


def draw(b: int, h: int, g: int, lq: int, lk: int, d: int, p: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng((seed, b, h, g, lq, lk, d, p))
    return [rng.standard_normal(s).astype(np.float16) for s in ((b, h, lq, d), (b, g, lk, d), (b, g, lk, p))]


SHAPES = [
    (1, 1, 1, 1, 1, 1, 1),
    (2, 4, 2, 40, 70, 64, 48),
    (1, 3, 1, 7, 131, 33, 5),
    (1, 2, 2, 53, 31, 16, 80),
    (1, 1, 1, 1, 200, 64, 64),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("causal", [False, True])
def test_any_shape(shape: Any, causal: bool) -> None:
    q, k, v = draw(*shape)
    close(kernels.flash_attention(q, k, v, causal=causal).numpy(), attention(q, k, v, causal=causal))


def test_scale() -> None:
    q, k, v = draw(1, 2, 1, 20, 30, 64, 16)
    close(kernels.flash_attention(q, k, v, scale=0.5).numpy(), attention(q, k, v, scale=0.5))


@pytest.mark.parametrize("lengths", [(1, 70), (33, 50), (69, 2)])
def test_key_padding_at_any_length(lengths: tuple[int, int]) -> None:
    q, k, v = draw(2, 2, 2, 20, 70, 32, 32)
    keep = (np.arange(70) < np.array(lengths)[:, None]).astype(np.float16)
    got = kernels.flash_attention(q, k, v, keep=keep).numpy()
    close(got, attention(q, k, v, keep=keep))
    # A hidden key's score never counts, whatever it is; its value counts 0 times,
    # and shares a block scale with its neighbours.
    k2 = k.copy()
    for n, length in enumerate(lengths):
        k2[n, :, length:] = 100
    assert kernels.flash_attention(q, k2, v, keep=keep).numpy().tobytes() == got.tobytes()
    for n, length in enumerate(lengths):
        part = attention(q[n : n + 1], k[n : n + 1, :, :length], v[n : n + 1, :, :length])
        close(got[n : n + 1], Value(part.x, attention(q, k, v, keep=keep).rms[n : n + 1]))


@pytest.mark.slow
def test_scattered_keys_bias_and_causal_with_groups() -> None:
    q, k, v = draw(2, 6, 3, 37, 70, 64, 48)
    rng = np.random.default_rng(5)
    keep = (rng.random((2, 70)) < 0.6).astype(np.float16)
    for heads in [(1, 6), (2, 1), (2, 6), (1, 1)]:
        bias = rng.standard_normal((*heads, 37, 70)).astype(np.float16)
        got = kernels.flash_attention(q, k, v, keep, bias, causal=True).numpy()
        close(got, attention(q, k, v, keep, bias, causal=True))


def test_rows_without_a_key_are_zero() -> None:
    q, k, v = draw(1, 2, 1, 70, 40, 16, 16)
    got = kernels.flash_attention(q, k, v, causal=True).numpy()
    assert not got[:, :, :30].any()
    assert got[:, :, 30:].any(-1).all()
    close(got, attention(q, k, v, causal=True))
    nothing = kernels.flash_attention(q, k, v, keep=np.zeros((1, 40))).numpy()
    assert not nothing.any()


def test_a_mask_of_all_keys_changes_no_bit() -> None:
    q, k, v = draw(1, 2, 1, 20, 50, 64, 32)
    plain = kernels.flash_attention(q, k, v).numpy()
    assert kernels.flash_attention(q, k, v, keep=np.ones((1, 50))).numpy().tobytes() == plain.tobytes()
    last = kernels.flash_attention(q[:, :, -1:], k, v).numpy()
    assert kernels.flash_attention(q, k, v, causal=True).numpy()[:, :, -1:].tobytes() == last.tobytes()


BLOCKS: list[dict[str, int]] = [
    {"qblock": 1, "vm": 3},
    {"qblock": 20},
    {"qblock": 24, "gm": 3},
    {"qblock": 32, "vm": 2},
    {"qblock": 45},
    {"qblock": 500},
    {"gm": 3, "gn": 5, "nk": 1, "vm": 2, "vn": 3, "vk": 3},
]


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_bits_do_not_depend_on_blocks_or_tiles(causal: bool) -> None:
    q, k, v = draw(1, 4, 2, 45, 70, 40, 48)
    keep = (np.arange(70) % 7 != 3).astype(np.float16)[None]
    whole = kernels.flash_attention(q, k, v, keep, causal=causal).numpy()
    for knobs in BLOCKS:
        got = kernels.flash_attention(q, k, v, keep, causal=causal, **knobs).numpy()
        assert got.tobytes() == whole.tobytes(), knobs


def test_blocks_bound_the_temporaries() -> None:
    shapes = [(1, 2, 512, 64)] * 3
    whole = kernels.flash_attention.plan(*shapes).workspace.nbytes
    blocked = kernels.flash_attention.plan(*shapes, qblock=64).workspace.nbytes
    assert blocked <= whole / 5
    assert len(kernels.flash_attention.plan(*shapes, qblock=64).schedule.stages) == 8 * 5


def test_at_most_six_stages() -> None:
    shapes = [(1, 4, 128, 64)] * 3
    for knobs in ({}, {"causal": True}, {"causal": True, "keep": (1, 128), "bias": (1, 1, 128, 128)}):
        plan = kernels.flash_attention.plan(*shapes, **knobs)
        assert len(plan.schedule.stages) == 5
        assert plan.relayouts == 2


def test_large_scores_neither_overflow_nor_vanish() -> None:
    q, k, v = draw(1, 1, 1, 8, 40, 32, 16)
    q, k = q * np.float16(30), k * np.float16(30)
    close(kernels.flash_attention(q, k, v, scale=0.0002).numpy(), attention(q, k, v, scale=0.0002))
    got = kernels.flash_attention(q, k, v).numpy()  # one key takes all of a row
    assert np.isfinite(got).all()
    assert np.abs(got).max() <= 1.1 * np.abs(v).max()


def test_refusals() -> None:
    with pytest.raises(Refusal, match="heads of q are a multiple"):
        kernels.flash_attention.plan((1, 4, 8, 8), (1, 3, 8, 8), (1, 3, 8, 8))
    with pytest.raises(Refusal, match="one or all of the batch"):
        kernels.flash_attention.plan(*[(4, 4, 8, 8)] * 3, bias=(2, 1, 8, 8))
    with pytest.raises(Refusal, match="told apart by finite halves"):
        from_the_end(POSITIONS + 1)


def test_positions_are_in_order_to_the_last() -> None:
    at = from_the_end(POSITIONS).astype(np.float64)
    assert np.isfinite(at).all()
    assert (np.diff(at) > 0).all()
    assert at[-1] == from_the_end(1)[0]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 2, 1, 40, 200, 64, 48), (1, 1, 1, 7, 31, 16, 16), (2, 2, 2, 5, 64, 32, 8)])
def test_online_attention(shape: Any) -> None:
    q, k, v = draw(*shape)
    want = attention(q, k, v)
    blocks = -(-shape[4] // 64)
    # The running values and sums are stored once per block.
    room = np.sqrt(want.rms**2 + (3 * blocks * 2.0**-11 * np.abs(want.x).max()) ** 2)
    close(kernels.online_attention(q, k, v).numpy(), type(want)(want.x, room))


def test_online_attention_of_one_block_is_near_the_whole_row_form() -> None:
    q, k, v = draw(1, 2, 1, 20, 60, 64, 32)
    one = kernels.online_attention(q, k, v, kblock=64).numpy().astype(np.float64)
    whole = kernels.flash_attention(q, k, v).numpy().astype(np.float64)
    assert np.abs(one - whole).max() < 0.05


M, N = dims("M N")


def masking(rows: Any) -> Kernel:
    @kernel
    def masked(x=L.In(M, N), y=L.Out(M, N)):
        keep = L.table(rows)
        for r in grid(x.rows()):
            y[r] <<= L.where(keep[r], x[r], -1.0)

    return masked


def test_two_kernels_of_one_name_keep_their_own_tables() -> None:
    x = np.arange(1, 31, dtype=np.float16).reshape(3, 10)
    masks = [np.tri(3, 10, n, dtype=np.float16) for n in (0, 3)]
    made = [masking(m) for m in masks]
    for mask, one in zip(masks, made):
        assert np.array_equal(one(x).numpy(), np.where(mask, x, -1))


def test_heads_are_split_and_merged_by_the_projections() -> None:
    rng = np.random.default_rng(9)
    x, residual = (rng.standard_normal((2, 13, 40)).astype(np.float16) for _ in range(2))
    w = (rng.standard_normal((3, 20, 40)) / 6).astype(np.float16)
    back = (rng.standard_normal((3, 40, 20)) / 8).astype(np.float16)
    heads = kernels.split_heads(x, w)
    want = product(Value.exact(x[:, None]), Value.exact(w))
    close(heads.numpy(), want)
    merged = kernels.merge_heads(heads, back, residual).numpy()
    sums = product(want, Value.exact(back))
    total = Value(sums.x.sum(1), np.sqrt((sums.rms**2).sum(1)))
    close(merged, total + Value.exact(residual))
    shift = rng.standard_normal(residual.shape[-1]).astype(np.float16)
    close(
        kernels.merge_heads(heads, back, residual, shift).numpy(), total + Value.exact(shift + residual.astype(float))
    )
    assert len(kernels.merge_heads.plan((2, 3, 13, 20), (3, 40, 20)).schedule.stages) == 1


def test_a_chain_of_kernels_stays_on_the_device() -> None:
    rng = np.random.default_rng(10)
    x = ktpu.tensor(rng.standard_normal((1, 37, 64)))
    w = [ktpu.tensor(rng.standard_normal((2, 32, 64)) / 8) for _ in range(3)]
    q, k, v = (kernels.split_heads(x, m) for m in w)
    ktpu.reset_stats()
    o = kernels.flash_attention(q, k, v, causal=True)
    assert ktpu.stats()["relayouts"] == 0
    assert ktpu.stats()["bytes_from_device"] == 0
    close(o.numpy(), attention(q.numpy(), k.numpy(), v.numpy(), causal=True))


def test_causal_values_stop_at_the_last_key_that_is_seen() -> None:
    shapes = [(1, 1, 256, 64)] * 3
    whole = kernels.flash_attention.plan(*shapes, vm=4, vk=1, gm=4, vn=4).pretty()
    causal = kernels.flash_attention.plan(*shapes, vm=4, vk=1, gm=4, vn=4, causal=True).pretty()
    assert ": 8 chunks" in whole
    assert ": 1 to 8 chunks" in causal


def test_many_keys_bound_their_own_temporaries() -> None:
    plan = kernels.flash_attention.plan((1, 8, 4096, 64), (1, 8, 4096, 64), (1, 8, 4096, 64))
    assert plan.workspace.nbytes <= 3 * (64 << 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [(1, 2, 1, 9, 5000, 16, 16), (3, 2, 2, 100, 100, 256, 256), (2, 16, 1, 33, 257, 64, 64)]
)
def test_wide_shapes(shape: Any) -> None:
    """Rows of scores wider than a vector core's L1, heads wider than a fill, many heads on one."""
    q, k, v = draw(*shape)
    keep = (np.random.default_rng(1).random((shape[0], shape[4])) < 0.8).astype(np.float16)
    got = kernels.flash_attention(q, k, v, keep=keep, causal=True).numpy()
    close(got, attention(q, k, v, keep=keep, causal=True))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_drawn_call(data: st.DataObject) -> None:
    """Random lengths, heads, masks, knobs: the error the formats predict, whatever is drawn."""
    small = st.integers(1, 70)
    group, heads = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    shape = (data.draw(st.integers(1, 2)), group * heads, heads, *(data.draw(small) for _ in range(4)))
    q, k, v = draw(*shape, seed=data.draw(st.integers(0, 99)))
    b, h, _, lq, lk, _, _ = shape
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    options: dict[str, Any] = {"causal": data.draw(st.booleans())}
    if data.draw(st.booleans()):
        options["keep"] = (rng.random((b, lk)) < 0.7).astype(np.float16)
    if data.draw(st.booleans()):
        lead = data.draw(st.sampled_from([1, b])), data.draw(st.sampled_from([1, h]))
        options["bias"] = rng.standard_normal((*lead, lq, lk)).astype(np.float16)
    knobs = {name: data.draw(st.integers(1, 6)) for name in ("gm", "gn", "vm", "vn")}
    knobs |= {name: data.draw(st.integers(1, 3)) for name in ("nk", "vk")}
    knobs["qblock"] = data.draw(st.sampled_from([0, 4, 13, 32]))
    close(kernels.flash_attention(q, k, v, **options, **knobs).numpy(), attention(q, k, v, **options))
