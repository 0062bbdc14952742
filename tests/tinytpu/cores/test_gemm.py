"""Products split over cores: values equal numpy's, cycles are the plan's and what the link allows, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kohakuaccel import graph
from kohakuaccel.diagnostics import Refusal
from tinytpu.cores import Bundle, Move, Slots
from tinytpu.cores.feeding import FEEDS, packed
from tinytpu.cores.gemm import SPLITS, Gemm, gemm
from tinytpu.lower import compile_graph
from tinytpu.machines import load
from tinytpu.units.core import Image

MACHINE = load()


def operands(m: int, k: int, n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng([m, k, n])
    return rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)


def check(done: Gemm, a: Any, b: Any) -> Gemm:
    assert done.values.dtype == np.int32
    assert (done.values == a.astype(np.int32) @ b).all()
    assert done.cycles == done.ran.cycles == done.tried[done.split, done.feed]
    return done


@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize("split", SPLITS)
def test_every_way_gives_numpys_product(split: str, feed: str) -> None:
    shapes = [(8, 16, 8, 2), (5, 9, 7, 3), (12, 20, 4, 3), (4, 64, 4, 4), (1, 40, 6, 2)]
    for m, k, n, cores in shapes:
        a, b = operands(m, k, n)
        done = check(gemm(a, b, MACHINE, cores=cores, split=split, feed=feed), a, b)
        assert (done.split, done.feed, len(done.parts)) == (split, feed, cores)


def test_sums_wrap_nowhere_and_extremes_are_exact() -> None:
    a, b = np.full((4, 64), -128, np.int8), np.full((64, 4), -128, np.int8)
    for split in SPLITS:
        check(gemm(a, b, MACHINE, cores=4, split=split), a, b)


def plan_cycles(m: int, k: int, n: int) -> int:
    text = f"input a: S8[{m},{k}]\ninput b: S8[{k},{n}]\n"
    text += f"p: S32[i<{m},j<{n}] = sum[q<{k}] cast(a[i, q], S32) * cast(b[q, j], S32)\noutput p"
    a, b = operands(m, k, n)
    return compile_graph(graph.parse(text), MACHINE).run({"a": a, "b": b}).counts.cycles


def test_one_core_by_records_takes_what_the_plan_takes() -> None:
    a, b = operands(12, 40, 8)
    assert gemm(a, b, MACHINE, feed="records").cycles == plan_cycles(12, 40, 8)


@pytest.mark.parametrize("cores", [2, 4])
def test_with_a_link_for_every_core_a_core_takes_what_its_rows_take(cores: int) -> None:
    a, b = operands(32, 16, 8)
    free = MACHINE.with_(name="free", params={"host_links": 4})
    done = check(gemm(a, b, free, cores=cores, split="rows", feed="records"), a, b)
    assert done.cycles == plan_cycles(32 // cores, 16, 8)


def test_one_link_bounds_what_cores_gain() -> None:
    a, b = operands(32, 16, 8)
    for cores in (2, 8):
        done = check(gemm(a, b, MACHINE, cores=cores, split="rows", feed="records"), a, b)
        assert (
            max(done.link_cycles, plan_cycles(32 // cores, 16, 8))
            <= done.cycles
            <= cores * plan_cycles(32 // cores, 16, 8)
        )
    assert done.cycles < 1.5 * done.link_cycles
    assert "limited by the host link" in done.text()


def test_the_text_says_who_does_what_and_what_limits() -> None:
    a, b = operands(8, 16, 8)
    done = gemm(a, b, MACHINE, cores=3, split="rows", feed="packed")
    lines = done.text().splitlines()
    assert lines[0] == f"8x16x8 on 3 cores, rows, packed: {done.cycles} cycles"
    assert lines[1].startswith("  core 0: rows 0..3, terms 0..15: load ")
    assert lines[3].startswith("  core 2: nothing to do: load 0, ")
    assert lines[4].startswith(f"  network: {len(done.ran.packets)} packets; DMAs waited ")
    assert lines[5].startswith("  busy: host link ")
    spans = done.timeline()
    spans.check()
    assert spans.name == "gemm by rows, packed"
    assert spans.counters["macs"] >= 8 * 16 * 8


def test_packed_operands_take_fewer_records_and_the_loopback() -> None:
    a, b = operands(4, 32, 16)
    plain, tight = (gemm(a, b, MACHINE, feed=feed) for feed in ("records", "packed"))
    assert tight.cycles < plain.cycles
    images = plain.parts[0].images
    vectors, weights = sum(len(i.amem) for i in images), sum(len(i.wmem) for i in images)
    tiles = sum(-(-len(i.amem) // 16) + -(-len(i.wmem) // 4) for i in images)
    assert plain.link_cycles - tight.link_cycles == 2 * (vectors + weights - tiles)
    assert (len(plain.ran.packets), len(tight.ran.packets)) == (0, 4 * tiles)


def test_weights_of_other_cores_come_from_the_first() -> None:
    a, b = operands(8, 16, 8)
    done = gemm(a, b, MACHINE, cores=2, feed="broadcast", split="rows")
    routes = {tuple(route) for route in done.ran.routes.tolist()}
    assert routes == {(0, 0), (0, 1), (1, 1)}


def test_what_cannot_be_packed_stays_records() -> None:
    """Slots that do not begin at 0, and no free tile in VMEM."""
    halt = np.array([[7, 0, 0, 0, 0, 0, 0, 0, 0]])
    vector = np.zeros(4, np.int8)
    apart = Image(halt, amem={1: vector})
    full = Image(halt, amem={0: vector}, vmem={k: np.zeros(16, np.int32) for k in range(32)})
    for image in (apart, full):
        ((step,),) = packed(MACHINE, [image], "p")
        assert isinstance(step, Bundle)
        assert step.image.amem.keys() == image.amem.keys()
    fill, move, rest = packed(MACHINE, [Image(halt, amem={0: vector + 1}), None], "p")[0]
    assert isinstance(fill, Bundle)
    assert isinstance(rest, Bundle)
    assert list(fill.image.vmem) == [0]
    assert not rest.image.amem
    assert isinstance(move, Move)
    assert move.receives[0].slots == Slots("AMEM", 0, 16)


def test_a_shorter_depth_gets_zeros_behind_it() -> None:
    a, b = operands(4, 9, 4)
    done = check(gemm(a, b, MACHINE, cores=3, split="depth"), a, b)
    assert [part.text() for part in done.parts][1:] == ["rows 0..3, terms 4..7", "rows 0..3, terms 8..8 and 3 zeros"]


def test_one_row_stays_whole_and_is_refused_by_depth() -> None:
    a, b = operands(1, 64, 4)
    done = check(gemm(a, b, MACHINE, cores=4), a, b)
    assert [part.text() for part in done.parts][1:] == ["nothing to do"] * 3
    wanted = "gemm by depth: a program leaves its sums in VMEM; got one row, as mxu_result; the limit is more rows"
    with pytest.raises(Refusal, match=wanted):
        gemm(a, b, MACHINE, cores=4, split="depth")


def test_sums_that_do_not_fit_a_program_are_refused_by_depth() -> None:
    a, b = operands(4, 600, 4)
    with pytest.raises(Refusal, match="gemm by depth: a program leaves whole sums, side by side; got 300 terms a core"):
        gemm(a, b, MACHINE, cores=2, split="depth")


def test_sums_of_many_tiles_are_reduced_in_groups() -> None:
    a, b = operands(8, 8, 32)
    deep = MACHINE.with_(name="few", params={"vmem_tiles": 18, "max_outputs": 16})
    done = check(gemm(a, b, deep, cores=2, split="depth", feed="records"), a, b)
    most = max(len(image.vmem_outputs) for image in done.parts[0].images)
    adding = [run for run in done.ran.bundles[0] if run is not None and run.counters["vpu_ops"]]
    assert most > 4
    assert len(adding) > len(done.parts[0].images)


def test_sums_without_room_besides_are_refused() -> None:
    a, b = operands(8, 8, 32)
    full = MACHINE.with_(name="full", params={"vmem_tiles": 16, "max_outputs": 16})
    with pytest.raises(Refusal, match="gemm by depth: VMEM holds sums and those of other cores; got 16 tiles of sums"):
        gemm(a, b, full, cores=2, split="depth")


A, B = operands(4, 8, 4)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "shapes": ({"b": B[:4]}, "gemm: rows of b are columns of a; got 4; the limit is 8"),
    "dims": ({"a": A[0]}, r"gemm: a: a matrix of integers, not empty; got int8 \(8,\); the limit is 2 dimensions"),
    "floats": ({"b": B.astype(np.float32)}, "gemm: b: a matrix of integers, not empty; got float32"),
    "int8": ({"a": A.astype(int) * 0 + 200}, "gemm: a: an operand of the array is an int8; got 200"),
    "split": ({"split": "columns"}, "gemm: split: no such way; got columns; the limit is rows, depth"),
    "feed": ({"feed": "magic"}, "gemm: feed: no such way; got magic; the limit is records, packed, broadcast"),
    "cores": ({"cores": 65}, r"a system has cores; got 65; the limit is 1\.\.64"),
    "depth alone": ({"split": "depth"}, "gemm by depth: depth is split over several cores; got 1 core"),
    "depth": (
        {"split": "depth", "cores": 3},
        "gemm by depth: every core adds up some terms; got 8; the limit is more than 8",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    given, text = REFUSED[case]
    with pytest.raises(Refusal, match=text):
        gemm(given.get("a", A), given.get("b", B), MACHINE, **{k: v for k, v in given.items() if len(k) > 1})


@pytest.mark.slow
def test_64x64x64_scales() -> None:
    a, b = operands(64, 64, 64)
    cycles = [check(gemm(a, b, MACHINE, cores=n, split="rows", feed="packed"), a, b).cycles for n in (1, 2, 4)]
    assert cycles[0] >= 1.9 * cycles[1]
    assert cycles[0] >= 3.3 * cycles[2]


@pytest.mark.parametrize("edge", [2, 6, 8])
def test_machines_of_other_sizes(edge: int) -> None:
    """Vectors of 2 or 6 bytes lie a word, or two, apart; tiles of 36 words are no whole number of weights."""
    machine = MACHINE.with_(name="other", params={"rows": edge, "columns": edge, "amem_vectors": 48})
    a, b = operands(13, 4 * edge, 7)
    for split in SPLITS:
        for feed in FEEDS:
            check(gemm(a, b, machine, cores=2, split=split, feed=feed), a, b)
