"""Kernels that stay on chip on machines with the drain quantiser: what a plan says, what memory sees, the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.expected import attention, close
from kohakuaccel.lang import dims, grid, sweep
from kohakutpu import api as ktpu
from kohakutpu import kernels, machines
from kohakutpu import lang as L
from kohakutpu.dispatch import opcode_counts
from kohakutpu.lang import Kernel, kernel
from kohakutpu.lower.resident.values import reduce_tiles
from levels import language_cases as cases

SHIP = machines.load("ship_3x2")
QUANT = SHIP.with_(name="quant", features={"r2_vc_quant": True})
WIDE = SHIP.with_(name="wide", features={"r2_vc_quant": True, "r2_acc_to_vc": True})
M, K, N, P = dims("M K N P")
HEADS = (1, 2, 70, 32), (1, 1, 150, 32), (1, 1, 150, 48)
LAYERS = (45, 70), (61, 70), (30, 61)


def plan(k: Kernel, shapes: Any, machine: Any = QUANT, **knobs: object) -> Any:
    return k._plan(machine, list(shapes), (None,) * len(shapes), knobs)


def test_flash_attention_needs_no_memory_between_its_operands_and_its_result() -> None:
    """No temporary in memory, no VFILL, and what is drained is o, once; on r1 the same call has all of that."""
    made = plan(kernels.flash_attention, HEADS)
    assert made.workspace.nbytes == 0
    assert [s.name for s in made.buffers if s.role not in ("l1",)] == ["q", "k", "v^T", "o"]
    words = [
        i for stage in made.program.stages for one in stage if one.unit.kind == "VC" for i in one.codec.text(one.rows)
    ]
    assert not [w for w in words if "VFILL" in w]
    drains = [
        i for stage in made.program.stages for one in stage if one.unit.kind == "MG" for i in one.codec.text(one.rows)
    ]
    assert all("dnode" in d for d in drains if d.startswith("DRAIN"))
    before = plan(kernels.flash_attention, HEADS, SHIP)
    assert before.workspace.nbytes > 0
    assert before.schedule.notes == ()


def test_the_plan_says_where_everything_is() -> None:
    q, k, _ = HEADS
    text = plan(kernels.flash_attention, (q, k, (1, 1, 150, 64)), WIDE).pretty()
    assert "stay on chip: from a core into its cluster's L1, quantised" in text
    assert "from accumulators to cores in accumulator width" in text
    assert "quantised by the core: no memory" in text
    assert "row tiles 0..3 of 6, 32 rows each, on VC(1,0), VC(2,0), VC(1,4), VC(2,4)" in text
    assert "from accumulators to cores as FP16: values take" in text


def test_few_flits_once_the_routines_are_loaded() -> None:
    """A step costs a core one RUN per statement group: no program words, no descriptors."""
    made = plan(kernels.flash_attention, ((1, 1, 32, 32), (1, 1, 256, 32), (1, 1, 256, 32)))
    counts = opcode_counts(made.image(made.nominal_addresses()))
    assert counts["IMEM"] <= SHIP.params.imem
    assert counts["RUN"] < 40


@pytest.mark.slow
@pytest.mark.parametrize("machine", [QUANT, WIDE], ids=["quant", "wide"])
@pytest.mark.parametrize("lengths", [(70, 150), (5, 33), (33, 64)])
def test_values(machine: Any, lengths: tuple[int, int]) -> None:
    rng = np.random.default_rng(lengths)
    device = ktpu.device(machine)
    q, k, v = (rng.standard_normal((1, h, n, 32)).astype(np.float16) for h, n in zip((2, 1, 1), (*lengths, lengths[1])))
    got = kernels.flash_attention(*(ktpu.tensor(x, device=device) for x in (q, k, v)))
    close(got.numpy(), attention(q, k, v))


def test_scores_beyond_fp16_saturate_only_where_they_travel_as_fp16() -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, 1, 32, 32)).astype(np.float16) for _ in range(3))
    q *= np.float16(3000)
    k *= np.float16(8)
    saturated: list[int] = []
    for machine in (QUANT, WIDE):
        device = ktpu.device(machine)
        got = kernels.flash_attention(*(ktpu.tensor(x, device=device) for x in (q, k, v)), scale=1e-6)
        device.sync()
        saturated.append(device.counters.saturations)
        if machine is WIDE:
            close(got.numpy(), attention(q, k, v, scale=1e-6))
    assert saturated[0] > 100
    assert saturated[1] == 0


REASONS: list[tuple[str, Kernel, Any, dict[str, object], str]] = [
    ("mask", kernels.flash_attention, HEADS, {"causal": True, "kblock": 0}, "rows of t span"),
    ("tall", cases.two_layers, LAYERS, {"gm": 16, "gn": 16, "hn": 8}, "a row tile of 64 rows exceeds the 32 rows"),
    (
        "wide",
        cases.two_layers,
        LAYERS,
        {"gm": 4, "gn": 4},
        "rows of t span 4 tiles of 16 columns, and a core holds one",
    ),
    ("L1", cases.two_layers, ((45, 70), (500, 70), (30, 500)), {"gm": 4, "gn": 128, "nk": 1}, "values take"),
]


@pytest.mark.parametrize(("k", "shapes", "knobs", "text"), [r[1:] for r in REASONS], ids=[r[0] for r in REASONS])
def test_what_goes_through_memory_says_why(k: Kernel, shapes: Any, knobs: dict[str, object], text: str) -> None:
    made = plan(k, shapes, **knobs)
    (note,) = made.schedule.notes
    assert "through memory: " in note
    assert text in note
    assert note in made.pretty()
    assert made.workspace.nbytes > 0


def twice(body: Any) -> Kernel:
    """A kernel of two products around a stage of rows that `body` states."""

    @kernel
    def around(x=L.In(M, K), w=L.In(N, K), v=L.In(P, N), y=L.Out(M, P)):
        s, h = L.temp(M, N), L.temp(M, N)
        for i, j in grid(x.tiles(4), w.tiles(16)):
            acc = L.tile(4, 16, 1)
            for k in sweep(x.chunks32(1)):
                acc += x[i, k] @ w[j, k]
            s[i, j] <<= acc
        body(x, s, h)
        for i, j in grid(h.tiles(4), v.tiles(16)):
            acc = L.tile(4, 16, 1)
            for k in sweep(h.chunks32(1)):
                acc += h[i, k] @ v[j, k]
            y[i, j] <<= acc

    return around


def compares(x: Any, s: Any, h: Any) -> None:
    for r in grid(s.rows()):
        h[r] <<= L.where(L.greater(s[r], 0.5), s[r], 0.0)


def reads_memory(x: Any, s: Any, h: Any) -> None:
    for r in grid(s.rows()):
        h[r] <<= s[r] + x[r]


def other_rows(x: Any, s: Any, h: Any) -> None:
    for r in grid(s.rows()):
        h[r] <<= s[(r + 1) % M]


def reads_entries(x: Any, s: Any, h: Any) -> None:
    for r in grid(s.rows()):
        h[r] <<= s[r] * 2
    rest = L.temp(M, N)
    for r in grid(s.rows()):
        rest[r] <<= h[r] + s[r]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (compares, "a comparison needs a predicate"),
        (reads_memory, "lies in memory, in the order of rows"),
        (other_rows, "is not the row of its stage's instance"),
        (reads_entries, "is read by a row stage and by a product"),
    ],
)
def test_rows_that_a_core_cannot_keep(body: Any, text: str) -> None:
    shapes = (40, 64), (64, 64), (64, 64)
    (note,) = plan(twice(body), shapes).schedule.notes
    assert text in note


@kernel
def right_temporary(x=L.In(M, K), w=L.In(N, K), y=L.Out(M, N)):
    """The temporary is on both sides of the second product."""
    s = L.temp(M, K)
    for r in grid(x.rows()):
        s[r] <<= x[r] * 2
    t = L.temp(N, K)
    for r in grid(w.rows()):
        t[r] <<= w[r] * 2
    for i, j in grid(s.tiles(4), t.tiles(4)):
        acc = L.tile(4, 4, 1)
        for k in sweep(s.chunks32(1)):
            acc += s[i, k] @ t[j, k]
        y[i, j] <<= acc


@kernel
def two_accumulators(x=L.In(M, K), w=L.In(N, K), v=L.In(P, N), y=L.Out(M, P)):
    h = L.temp(M, N)
    for i, j in grid(x.tiles(4), w.tiles(16)):
        one, two = L.tile(4, 16, 1), L.tile(4, 16, 1)
        for k in sweep(x.chunks32(1)):
            one += x[i, k] @ w[j, k]
        for k in sweep(x.chunks32(1)):
            two += x[i, k] @ w[j, k]
        h[i, j] <<= one * two
    for i, j in grid(h.tiles(4), v.tiles(16)):
        acc = L.tile(4, 16, 1)
        for k in sweep(h.chunks32(1)):
            acc += h[i, k] @ v[j, k]
        y[i, j] <<= acc


def parts(x: Any, s: Any, h: Any) -> None:
    for e in grid(s.parts()):
        h[e] <<= s[e] * 2


@pytest.mark.parametrize(
    ("k", "text"),
    [
        (right_temporary, "lies in memory, in the order of rows"),
        (two_accumulators, "a stage of several accumulators or stores meets in memory"),
        (twice(parts), "a stage over parts knows no rows"),
    ],
)
def test_stages_that_no_row_tile_holds(k: Kernel, text: str) -> None:
    shapes = ((40, 64), (64, 64), (64, 64))[: 2 if k is right_temporary else 3]
    (note,) = plan(k, shapes).schedule.notes
    assert text in note


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_levels_agree_on_random_shapes(seed: int) -> None:
    """Rows, keys and columns of any length, both widths, more and fewer row tiles than cores."""
    rng = np.random.default_rng(seed)
    b, h, rows, keys, depth, values = (int(rng.integers(1, n)) for n in (3, 4, 90, 200, 70, 70))
    machine = (QUANT, WIDE, machines.load("mini").with_(features={"r2_vc_quant": True}))[seed % 3]
    shapes = (b, h, rows, depth), (b, 1, keys, depth), (b, 1, keys, values)
    made = plan(kernels.flash_attention, shapes, machine)
    assert "stay on chip" in made.schedule.notes[0]
    inputs = [rng.standard_normal(s).astype(np.float16) for s in shapes]
    (one,), (two,), (three,) = made.run_schedule(*inputs), made.run_program(*inputs), made.run_image(*inputs)
    assert one.tobytes() == two.tobytes() == three.tobytes()
    q, k, v = inputs
    close(three, attention(q, k, v))


def test_the_order_of_a_row_sum() -> None:
    """Sub-tile after sub-tile lane by lane, then neighbours, then pairs: worked out by hand where the order shows."""
    big, one = 2.0**16, 1.0
    row = np.array([[big, one, one, 0, one, 0, 0, -big, 0.5]])
    # Lanes: (2^16 + 1 -> 2^16) + 0.5 -> 2^16; 1; 1; -2^16. Neighbours: 2^16 + 1 -> 2^16, and 1 - 2^16 exactly.
    assert reduce_tiles("sum", row).tolist() == [[1.0] * 4]
    assert reduce_tiles("max", row).tolist() == [[big] * 4]
    assert reduce_tiles("min", -row).tolist() == [[-big] * 4]
