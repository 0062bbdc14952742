"""Tensors stored in FP32: what cores read and write of them, what products take, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal, Unsupported
from kohakuaccel.lang import dims, grid, stage, sweep
from kohakutpu import api as ktpu
from kohakutpu import kernels
from kohakutpu import lang as L
from kohakutpu.lang import kernel
from kohakutpu.layouts import FP16, FP32, RowMajor
from kohakutpu.lower import evaluate
from kohakutpu.machines import load
from reference import formats

M, N, K = dims("M, N, K")
SHIP = load("ship_3x2")


def codes() -> np.ndarray:
    """FP32 codes around every boundary of the conversion, and any others."""
    rng = np.random.default_rng(5)
    edges = [0, 1, 0x007FFFFF, 0x00800000, 0x3F800080, 0x3F800180, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000]
    some = np.concatenate([np.array(edges, np.uint32), rng.integers(0, 1 << 31, 3000, np.uint32)])
    return np.concatenate([some, some | np.uint32(1 << 31)])


def test_a_schedule_reads_fp32_as_the_reference_does() -> None:
    words = codes()
    loaded = evaluate.load(words.view(np.float32))
    stored = evaluate.store(loaded, np.dtype(np.float32)).view(np.uint32)
    for word, made in zip(words.tolist(), stored.tolist()):
        eight = formats.e8_from_fp32(word)
        assert made == (0x7FC00000 if formats.is_nan(eight) else formats.fp32_from_e8(eight)), hex(word)


def test_a_kernel_computes_on_fp32_as_the_reference_does() -> None:
    words = codes()[:600]
    other = np.roll(words, 7)
    x, y = (ktpu.tensor(w.view(np.float32), dtype="float32") for w in (words, other))
    got = (x * y).storage.host().reshape(-1).view(np.uint32)
    for a, b, made in zip(words.tolist(), other.tolist(), got.tolist()):
        product = formats.mul8(formats.e8_from_fp32(a), formats.e8_from_fp32(b))
        assert made == formats.fp32_from_e8(product), (hex(a), hex(b))


def test_rows_of_fp32_take_two_words_for_sixteen() -> None:
    layout = RowMajor.of(3, 17, FP32)
    assert (layout.pitch, layout.row_words, layout.nbytes) == (32, 4, 3 * 32 * 4)
    values = np.arange(51, dtype=np.float32) * 1e-30
    assert np.array_equal(layout.unpack(layout.pack(values)), values)
    assert layout.stored_as(FP16) == RowMajor.of(3, 17)


def test_an_expression_has_a_descriptor_less_where_fp32_meets_fp16() -> None:
    @kernel
    def five(
        a=L.In(...), b=L.In(...), c=L.In(...), d=L.In(...), e=L.In(...), f=L.In(...), y=L.Out(..., dtype="float32")
    ):
        for i in grid(a.parts()):
            y[i] <<= a[i] + b[i] + c[i] + d[i] + e[i] + f[i]

    shapes, none = [(9,)] * 6, (None,) * 6
    assert five._plan(SHIP, shapes, none, {}, stored=(FP32,) * 6).schedule.stages
    with pytest.raises(Refusal, match="FP32 beside FP16") as refused:
        five._plan(SHIP, shapes, none, {}, stored=(FP32,) * 5)
    assert refused.value.limit == "5 operands"


@kernel
def scaled_product(x=L.In(M, K), w=L.In(N, K), y=L.Out(M, N, dtype="float32")):
    """A temporary of FP32 that a product takes, and a result of FP32 that follows one."""
    wide, acc = L.temp(M, K, dtype="float32"), L.temp(M, N)
    with stage(x.rows()) as r:
        wide[r] <<= x[r] * 1e5
    for i, j in grid(wide.tiles(2), w.tiles(2)):
        tile = L.tile(2, 2, 1)
        for k in sweep(wide.chunks32(1)):
            tile += wide[i, k] @ w[j, k]
        acc[i, j] <<= tile
    with stage(acc.rows()) as r:
        y[r] <<= acc[r] * 1e-9


def test_a_product_takes_fp32_through_a_stage_that_narrows_it() -> None:
    rng = np.random.default_rng(0)
    x, w = (
        rng.uniform(0.5, 2, (9, 40)) * np.where(np.arange(9) < 8, 1, 0.01)[:, None],
        rng.uniform(0.5, 1, (5, 40)) / 99,
    )
    plan = scaled_product.plan(x, w)
    text = plan.pretty()
    assert ".fp16 temp 9x40 fp16" in text
    assert "as FP16, which products and accumulators' operands are; saturation is counted" in text
    (one,), (two,), (three,) = plan.run_schedule(x, w), plan.run_program(x, w), plan.run_image(x, w)
    assert one.dtype == np.float32
    assert one.tobytes() == two.tobytes() == three.tobytes()
    ktpu.reset_stats()
    y = scaled_product(x, w)
    assert y.stored == np.float32
    assert ktpu.stats()["saturations"] > 0  # rows of about 1e5
    wanted = np.minimum(x * 1e5, 65504) @ w.T * 1e-9
    assert np.abs(y.numpy() / wanted - 1).max() < 0.05  # 1e-5 and below: FP16 would have left few bits


def test_what_fp32_cannot_be_is_refused_by_name() -> None:
    @kernel
    def tiles(x=L.In(M, K), w=L.In(N, K), y=L.Out(M, N, dtype="float32")):
        for i, j in grid(x.tiles(1), w.tiles(1)):
            acc = L.tile(1, 1, 1)
            for k in sweep(x.chunks32(1)):
                acc += x[i, k] @ w[j, k]
            y[i, j] <<= acc

    with pytest.raises(Refusal, match="clusters drain FP16 tiles"):
        tiles._plan(SHIP, [(4, 32), (4, 32)], (None, None), {})

    @kernel
    def turned(x=L.In(M, N), y=L.Out(N, M)):
        t = L.temp(M, N, dtype="float32")
        with stage(x.rows()) as r:
            t[r] <<= x[r]
        with stage(t.T.rows()) as c:
            y[c] <<= t.T[c]

    with pytest.raises(Unsupported, match="not turned or tiled on the device"):
        turned._plan(SHIP, [(20, 30)], (None,), {})
    with pytest.raises(Refusal, match="float16 or float32"):
        L.Out(M, dtype="float64")


def test_a_chain_on_chip_leaves_fp32_to_memory() -> None:
    r2 = load("ship_3x2").with_(name="r2", features={"r2_vc_quant": True})
    shapes = [(1, 1, 40, 32)] * 3
    plan = kernels.online_attention._plan(r2, shapes, (None,) * 3, {}, stored=(FP32, FP16, FP16))
    assert any("tensors are stored in FP32" in note for note in plan.schedule.notes)
