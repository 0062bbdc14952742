"""Tiles chosen by the clock: they are faster where the estimate errs, change no bit, and say what was tried."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph import Graph
from kohakuaccel.graph import build as g
from kohakuaccel.numerics import FP16
from kohakutpu import api as ktpu
from kohakutpu.auto import GraphPlan, compile_graph
from kohakutpu.auto import compile as compiling
from kohakutpu.auto.search import fastest
from kohakutpu.auto.stages import Extents
from kohakutpu.auto.steps import KernelStep
from kohakutpu.device import Device
from kohakutpu.lower import tiling
from kohakutpu.machines import load
from kohakutpu.sim.session import timed

SHIP = load("ship_3x2")
Arrays = Mapping[str, np.ndarray]


def _graph(build: Callable[..., g.Tensor], **shapes: tuple[int, ...]) -> tuple[Graph, Arrays]:
    b, rng = g.Builder(), np.random.default_rng(4)
    made = b.graph(y=build(*(b.input(name, shape, FP16) for name, shape in shapes.items())))
    return made, {n: (rng.standard_normal(s) * s[-1] ** -0.25).astype(np.float16) for n, s in shapes.items()}


def _run(plan: GraphPlan, data: Arrays) -> tuple[bytes, int]:
    """Bits and cycles of a run whose operands are on the device."""
    device = Device(plan.machine)
    tensors = {n: ktpu.tensor(a, device=device) for n, a in data.items()}
    made, timeline = timed(device, lambda: plan.run(tensors)["y"], "y")
    return made.numpy().tobytes(), timeline.cycles


def test_ranked_tiles_begin_with_the_chosen_one() -> None:
    shape = 128, 1024, 256
    first, *others = tiling.ranked(SHIP, *shape, count=6)
    assert first == tiling.choose(SHIP, *shape)
    estimates = [tiling.cycles(SHIP, tile, *shape) for tile in (first, *others)]
    assert len({first, *others}) == 6
    assert estimates == sorted(estimates)
    for tile, estimated in zip((first, *others), estimates):
        assert f"{estimated:,} cycles estimated" in tile.why


def test_the_clock_finds_a_faster_tile_with_the_same_bits() -> None:
    program, data = _graph(g.linear, x=(128, 256), w=(1024, 256))
    plain = compile_graph(program, SHIP)
    searched = compile_graph(program, SHIP, search=4)
    (bits, before), (same, after) = _run(plain, data), _run(searched, data)
    assert bits == same
    assert after < 0.8 * before
    (note,) = searched.notes
    tried = re.findall(r"(\d+x\d+x\d+) ([\d,]+) \(([\d,]+)\)( kept)?", note)
    assert len(tried) == 4
    assert "tiles for 128x1024x256" in note
    assert f"note: {note}" in searched.pretty()
    simulated = [int(cycles.replace(",", "")) for _, cycles, _, _ in tried]
    assert simulated == sorted(simulated)
    assert (simulated[0], tried[0][3]) == (after, " kept")  # what was promised is what a run takes
    assert before in simulated
    assert plain.notes == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "shapes"),
    [
        (lambda x, w, b: g.gelu(g.linear(x, w, b)), {"x": (40, 96), "w": (72, 96), "b": (72,)}),
        (lambda x, w: g.softmax(g.linear(x, w)), {"x": (24, 160), "w": (48, 160)}),
        (lambda x, u, d: x + g.linear(g.relu(g.linear(x, u)), d), {"x": (20, 64), "u": (80, 64), "d": (64, 80)}),
        (lambda q, k, v: g.attention(q, k, v), dict.fromkeys("qkv", (2, 20, 32))),
        (lambda x, w: g.linear(x, w), {"x": (1, 320), "w": (96, 320)}),
    ],
    ids=["epilogue", "rows behind", "two products", "heads", "one row"],
)
def test_bits_do_not_depend_on_the_search(build: Callable[..., g.Tensor], shapes: dict[str, tuple[int, ...]]) -> None:
    program, data = _graph(build, **shapes)
    plans = [compile_graph(program, SHIP, substitutions=(), search=n) for n in (0, 3)]
    (bits, before), (same, after) = (_run(plan, data) for plan in plans)
    assert bits == same
    assert after <= before


@pytest.mark.parametrize("k", [32, 96, 300])
def test_every_tile_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch, k: int) -> None:
    """Not only the tiles that win: K is folded in one order whatever is fed at a time."""
    program, data = _graph(g.linear, x=(36, k), w=(52, k))
    seen: set[bytes] = set()
    tiles = tiling.ranked(SHIP, 36, 52, k, count=12)
    for tile in tiles:
        monkeypatch.setattr("kohakutpu.auto.emit.choose", lambda *_, tile=tile: tile)
        seen.add(compile_graph(program, SHIP).run_schedule(data)["y"].tobytes())
        seen.add(compile_graph(program, SHIP).run_program(data)["y"].tobytes())
    assert len(tiles) == 12
    assert len(seen) == 1


def test_one_candidate_is_the_estimates() -> None:
    program, _ = _graph(g.linear, x=(32, 64), w=(32, 64))
    (note,) = compile_graph(program, SHIP, search=1).notes
    assert note.count("kept") == 1
    assert ";" not in note


def test_a_plan_without_products_searches_nothing() -> None:
    program, data = _graph(lambda x: g.softmax(x), x=(8, 32))
    plan = compile_graph(program, SHIP, search=4)
    assert plan.notes == ()
    assert _run(plan, data)[0] == _run(compile_graph(program, SHIP), data)[0]


def test_a_refused_tile_is_told_and_passed_over() -> None:
    program, _ = _graph(g.linear, x=(32, 64), w=(32, 64))
    (step,) = compile_graph(program, SHIP).kernel_steps
    product = Extents(32, 32, 64, 1, 1)
    first, second, _ = tiling.ranked(SHIP, *product, count=3)

    def make(tiles: Mapping[Extents, tiling.Tile]) -> KernelStep:
        if tiles.get(product) == second:
            raise Refusal("not this one", where="test")
        return step

    kept, trials = fastest(make, SHIP, 3)
    assert kept is step
    assert [t.simulated is None for t in trials] == [False, True, False]
    assert (trials[0].tile, trials[0].kept, trials[1].refused) == (first, True, "not this one")
    assert str(trials[1]).endswith("refused: not this one")


def test_a_plan_that_a_search_would_break_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    program, data = _graph(g.linear, x=(32, 64), w=(32, 64))

    def broken(*_: object) -> None:
        raise Refusal("no such order", where="test")

    monkeypatch.setattr(compiling, "fastest", broken)
    plan = compile_graph(program, SHIP, search=2)
    assert plan.notes == ("no tiles were searched: auto0 would be refused: no such order",)
    assert _run(plan, data)[0] == _run(compile_graph(program, SHIP), data)[0]


def test_a_negative_search_is_refused() -> None:
    program, _ = _graph(g.linear, x=(32, 64), w=(32, 64))
    with pytest.raises(Refusal, match=r"a search tries a number of tiles; got -1; the limit is 0 or more"):
        compile_graph(program, SHIP, search=-1)


def test_extents_print() -> None:
    assert str(Extents(8, 16, 32, 1, 1)) == "8x16x32"
    assert str(Extents(8, 16, 32, 4, 9)) == "4 x 9 x 8x16x32"


def test_a_jitted_function_searches() -> None:
    w = ktpu.tensor(np.random.default_rng(0).standard_normal((1024, 256)) / 16)
    x = ktpu.tensor(np.random.default_rng(1).standard_normal((128, 256)))
    plain, searched = ktpu.jit(lambda x: x @ w), ktpu.jit(search=4)(lambda x: x @ w)
    assert plain(x).numpy().tobytes() == searched(x).numpy().tobytes()
    assert (plain.plan(x).notes, len(searched.plan(x).notes)) == ((), 1)
