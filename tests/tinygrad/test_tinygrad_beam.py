"""BEAM: the scheduler's choices by simulated time, for kernels, joined kernels, symbolic ones and captured steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np
import pytest
from tinygrad import Variable
from tinygrad.dtype import dtypes
from tinygrad.engine.jit import TinyJit
from tinygrad.helpers import BEAM, Context, getenv
from tinygrad.tensor import Tensor

import kohakutpu.tinygrad as kt
from kohakuaccel.frontends.tinygrad.kernel import MARK
from kohakuaccel.frontends.tinygrad.searching import search_of, with_search

D = "KTPU"
TILES = "tiles for "


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    kt.reset()
    yield
    kt.reset()


def half(*shape: int, seed: int = 0) -> Tensor:
    data = np.random.default_rng(seed).normal(size=shape).astype(np.float16)
    return Tensor(data, device=D).realize()


def ran(beam: int, work: Callable[[], Tensor]) -> tuple[bytes, str]:
    """Bits of some work under a BEAM, and what ran."""
    kt.reset()
    with Context(BEAM=beam):
        found = work().numpy().tobytes()
    return found, kt.report().by_kernel()


def test_a_product_is_planned_by_the_clock() -> None:
    x, w = half(24, 96), half(40, 96, seed=1)
    plain, searched = ran(0, lambda: x @ w.T), ran(3, lambda: x @ w.T)
    assert plain[0] == searched[0]
    assert TILES not in plain[1]
    assert searched[1].count(" kept") == 1
    assert searched[1].count(";") == 2  # three candidates
    assert kt.report().host_kernels == 0


def test_each_number_is_a_program_of_its_own_and_searched_once() -> None:
    x, w = half(24, 64), half(48, 64, seed=1)
    with patch("kohakutpu.auto.search.fastest") as unused, patch("kohakutpu.auto.compile.fastest", unused):
        unused.side_effect = AssertionError("no search was asked for")
        ran(0, lambda: x @ w.T)
    from kohakutpu.auto import search

    with patch("kohakutpu.auto.compile.fastest", wraps=search.fastest) as calls:
        for beam, total in ((2, 1), (3, 2), (2, 2), (3, 2)):
            ran(beam, lambda: x @ w.T)
            assert calls.call_count == total


@pytest.mark.slow
def test_joined_kernels_are_planned_by_the_clock() -> None:
    q = half(1, 2, 32, 32)
    plain, searched = (ran(n, lambda: q.scaled_dot_product_attention(q, q)) for n in (0, 2))
    assert plain[0] == searched[0]
    assert (kt.report().device_kernels, kt.report().host_kernels) == (1, 0)
    assert TILES not in plain[1]
    assert TILES in searched[1]


def test_kernels_with_variables_are_planned_by_the_clock() -> None:
    x, w = half(40, 64), half(48, 64, seed=1)
    deep = Variable("deep", 1, 64).bind(32)
    plain, searched = (
        ran(n, lambda: x.shrink(((0, 40), (0, deep))) @ w.shrink(((0, 48), (0, deep))).T) for n in (0, 2)
    )
    assert TILES in searched[1]
    assert plain[0] == searched[0]


def test_jitbeam_searches_what_is_captured() -> None:
    x, w = half(24, 96), half(56, 96, seed=1)

    @TinyJit
    def step(a: Tensor) -> Tensor:
        return (a @ w.T).realize()

    want = step(x).numpy().tobytes()
    assert TILES not in kt.report().by_kernel()

    def asked(key: str, default: int = 0) -> int:
        return 2 if key == "JITBEAM" else getenv(key, default)

    with patch("tinygrad.engine.jit.getenv", side_effect=asked):
        step(x)
    kt.reset()
    assert step(x).numpy().tobytes() == want
    assert kt.report().by_kernel().count(" kept") == 1
    assert BEAM.value == 0


def test_loops_are_not_searched() -> None:
    """A kernel that is no graph has no choices; it runs as it does without BEAM."""
    from kohakuaccel.frontends.tinygrad import compiling

    x = Tensor(np.arange(6, dtype=np.int32), device=D).realize()
    untranslatable = patch.object(compiling, "translate", side_effect=compiling.Untranslatable("for this test"))
    with untranslatable, Context(BEAM=2), patch("tinygrad.codegen.opt.search.beam_search") as beam:
        assert (x * 11 + 5).tolist() == [11 * n + 5 for n in range(6)]
    assert beam.call_count == 0
    assert kt.report().reasons == {"a kernel that is no graph, interpreted loop by loop": 1}


def test_what_stays_on_the_host_runs_under_beam() -> None:
    x = Tensor([1, 2, 3], device=D, dtype=dtypes.int32).realize()
    with Context(BEAM=2):
        assert (x * 7).tolist() == [7, 14, 21]
    assert kt.report().reasons == {"integers": 1}


def test_the_number_stands_in_the_bytes() -> None:
    plain = json.dumps({MARK: 1, "name": "k"}).encode()
    assert with_search(plain, 0) == plain
    assert search_of(json.loads(plain)) == 0
    assert search_of(json.loads(with_search(plain, 5))) == 5
    assert json.loads(with_search(plain, 5))["name"] == "k"
