"""Columns of rows, joined rows, transposed rows and grids over numbers: what they give and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import dims, grid, lookup, sweep
from kohakutpu import lang as L
from kohakutpu.lang import Kernel, kernel
from kohakutpu.machines import load

M, K, N, count = dims("M K N count")
SHIP = load("ship_3x2")


def refused(k: Kernel, *shapes: tuple[int, ...], match: str, line: str = "<<=", **knobs: Any) -> None:
    with pytest.raises(Refusal, match=match) as caught:
        k._plan(SHIP, list(shapes), (None,) * len(shapes), knobs)
    source = caught.value.source
    assert source is not None
    assert Path(source.file).name == Path(__file__).name
    assert line in source.text


def draw(*shape: int) -> Any:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float16)


def test_columns_take_part_in_arithmetic() -> None:
    @kernel
    def halves(x=L.In(M, N), y=L.Out(M, N // 2), s=L.Out(M)):
        for r in grid(x.rows()):
            y[r] <<= x[r, : N // 2] + x[r, N // 2 :]
            s[r] <<= L.row_max(x[r, 3:7])

    x = draw(9, 50)
    y, s = halves(x)
    assert np.allclose(y.numpy(), x[:, :25].astype(float) + x[:, 25:], atol=4e-3)
    assert np.array_equal(s.numpy(), x[:, 3:7].max(1))


def test_a_window_used_twice_is_moved_once() -> None:
    @kernel
    def twice(x=L.In(M, N), y=L.Out(M, 5), z=L.Out(M, 5)):
        for r in grid(x.rows()):
            y[r] <<= x[r, 3:8] * 2.0
            z[r] <<= x[r, 3:8] + x[r, 3:8]

    plan = twice.plan((10, 20))
    assert plan.pretty().count("move x[..., 3:8]") == 1


def test_a_dim_named_like_a_knob_has_its_value() -> None:
    @kernel
    def first(x=L.In(M, N), y=L.Out(count, N), *, count=1):
        for r in grid(count):
            y[r] <<= x[r]

    x = draw(9, 20)
    assert np.array_equal(first(x, count=4).numpy(), x[:4])

    @kernel
    def given(x=L.In(count, N), y=L.Out(count, N), *, count=1):
        for r in grid(count):
            y[r] <<= x[r]

    with pytest.raises(Refusal, match=r"dim count has one value.*limit is 4, from knob count"):
        given(x, count=4)


def test_a_step_along_columns_is_refused() -> None:
    @kernel
    def stepped(x=L.In(M, N), y=L.Out(M, N)):
        for r in grid(x.rows()):
            y[r] <<= x[r, ::2]

    refused(stepped, (4, 8), match="one stretch.*step 2")


def test_columns_are_known_numbers_inside_the_row() -> None:
    @kernel
    def symbolic(x=L.In(M, N), y=L.Out(M, N)):
        for r in grid(x.rows()):
            y[r] <<= x[r, r:]  # pyright: ignore[reportArgumentType]  # the point of the test

    @kernel
    def outside(x=L.In(M, N), y=L.Out(M, 9)):
        for r in grid(x.rows()):
            y[r] <<= x[r, 4:13]

    refused(symbolic, (4, 8), match="known while tracing")
    refused(outside, (4, 8), match=r"inside their row; got 4:13; the limit is 0:8")


def test_a_store_into_columns_covers_whole_words() -> None:
    @kernel
    def ragged(x=L.In(M, N), y=L.Out(M, 2 * N)):
        for r in grid(x.rows()):
            y[r, 8:24] <<= x[r]

    @kernel
    def overlapping(x=L.In(M, N), y=L.Out(M, 2 * N)):
        for r in grid(x.rows()):
            y[r, :16] <<= x[r]
            y[r, 0:] <<= L.join(x[r], x[r])

    refused(ragged, (4, 16), match="whole words of 16 columns; got 8:24")
    refused(overlapping, (4, 16), match="exactly once")


def test_rows_and_targets_have_one_length() -> None:
    @kernel
    def short(x=L.In(M, N), y=L.Out(M, N)):
        for r in grid(x.rows()):
            y[r] <<= L.join(x[r], x[r, 1:])

    refused(short, (4, 16), match="a row of 31: .* or the rows' length")


def test_joined_rows_are_stored_and_nothing_else() -> None:
    @kernel
    def inside(x=L.In(M, N), y=L.Out(M, 2 * N)):
        for r in grid(x.rows()):
            y[r] <<= L.join(x[r], x[r]) * 2.0

    @kernel
    def many(x=L.In(M, N), y=L.Out(M, 7)):
        for r in grid(x.rows()):
            y[r] <<= L.join(*(x[r, c : c + 1] for c in (6, 5, 4, 3, 2, 1, 0)))

    refused(inside, (4, 16), match="what a store takes")
    refused(many, (4, 16), match="at most as many strips.*got 7 strips; the limit is 5")


def test_columns_belong_to_row_stages() -> None:
    @kernel
    def tiles(a=L.In(M, K), b=L.In(N, K), c=L.Out(M, N)):
        for i, j in grid(a.tiles(1), b.tiles(1)):
            acc = L.tile(1, 1, 1)
            for k in sweep(a.chunks32(1)):
                acc += a[i, k] @ b[j, k]
            c[i, j, :4] <<= acc

    @kernel
    def parts(x=L.In(...), y=L.Out(...)):
        for e in grid(x.parts()):
            y[e] <<= L.join(x[e])

    refused(tiles, (4, 32), (4, 32), match="stage over rows")
    refused(parts, (4, 32), match="what a store takes")


def test_a_transposed_port_is_not_written() -> None:
    @kernel
    def backwards(x=L.In(M, N), y=L.Out(N, M)):
        for r in grid(x.rows()):
            y.T[r] <<= x[r]

    refused(backwards, (4, 8), match="read, not written")


def test_an_index_of_a_transposed_port_stays_inside_it() -> None:
    @kernel
    def beyond(x=L.In(M, N), y=L.Out(M, M)):
        for r in grid(x.rows()):
            y[r] <<= x.T[r + 5]

    refused(beyond, (4, 8), match=r"inside its axis.*5\.\.8; the limit is 0\.\.7")


def test_a_lookup_stays_inside_its_table() -> None:
    @kernel
    def looked(x=L.In(M, N), y=L.Out(M, N)):
        order = lookup([0, 1])
        for r in grid(x.rows()):
            y[r] <<= x[order[r]]

    with pytest.raises(Refusal, match="lies in its table"):
        looked(draw(3, 4))
