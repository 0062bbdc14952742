"""Equal windows as loops: the values of the unrolled program, fewer cycles, and programs beyond the program memory."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel import graph
from tinytpu import machines
from tinytpu.isa.codes import SXU, Column
from tinytpu.isa.words import row_of
from tinytpu.lower import compile_graph
from tinytpu.lower.listing import listed
from tinytpu.lower.program.roll import roll
from tinytpu.units.core import Image, Run, execute

MACHINE = machines.load()
WINDOWS = (
    row_of(MACHINE, "VPU.2", dst=1, src=1, src2=2, vpu="MUL"),
    row_of(MACHINE, "VPU.2", dst=2, src=1, src2=3, vpu="ADD"),
    row_of(MACHINE, "TRANSPOSE", dst=3, src=1),
    row_of(MACHINE, "ROTATE", dst=1, src=2, src2=1),
    row_of(MACHINE, "PSUM_ACCUMULATE", vmem=0, src=2),
    row_of(MACHINE, "MXU.ACCUMULATE", wbase=0, abase=0, tlen=1, dst=1, src=0),
)


def program(body: list[list[int]]) -> list[list[int]]:
    head = [row_of(MACHINE, "LOAD", dst=v, vmem=v) for v in (1, 2, 3)]
    head += [row_of(MACHINE, "PSUM_WRITE", vmem=b, src=3) for b in (0, 1)]
    tail = [row_of(MACHINE, "WAIT_MXU")] if any(row[0] == SXU.MXU for row in body) else []
    tail += [row_of(MACHINE, "PSUM_READ", dst=4 + b, vmem=b) for b in (0, 1)]
    tail += [row_of(MACHINE, "STORE", src=v, vmem=v) for v in (1, 2, 3, 4, 5)]
    return [*head, *body, *tail, row_of(MACHINE, "HALT")]


def ran(rows: list[list[int]]) -> Run:
    tiles = np.random.default_rng(0).integers(-(1 << 31), 1 << 31, (4, 16)).astype(np.int32)
    weights, vector = np.arange(-8, 8, dtype=np.int8), np.array([1, 2, 3, 4], np.int8)
    return execute(
        MACHINE,
        Image(
            np.array(rows),
            vmem={n: tiles[n] for n in (1, 2, 3)},
            wmem={0: weights},
            amem={0: vector},
            vmem_outputs=[1, 2, 3, 4, 5],
        ),
    )


def unrolled(rows: list[list[int]]) -> list[list[int]]:
    """The rows without loops."""
    made: list[list[int]] = []
    at = 0
    while at < len(rows):
        if rows[at][Column.OP] == SXU.LOOP_BEGIN:
            depth, end = 1, at + 1
            while depth:
                depth += {SXU.LOOP_BEGIN: 1, SXU.LOOP_END: -1}.get(SXU(rows[end][Column.OP]), 0)
                end += 1
            made += unrolled(rows[at + 1 : end - 1]) * rows[at][Column.TLEN]
            at = end
        else:
            made.append(rows[at])
            at += 1
    return made


@pytest.mark.parametrize("seed", range(12))
def test_a_rolled_program_computes_the_same_in_fewer_cycles(seed: int) -> None:
    """Random bodies, repeated and nested in each other."""
    rng = np.random.default_rng(seed)

    def some(level: int) -> list[list[int]]:
        rows = [WINDOWS[int(rng.integers(len(WINDOWS)))] for _ in range(int(rng.integers(1, 4)))]
        if level:
            rows += some(level - 1) * int(rng.integers(1, 9))
        return rows

    rows = program(some(int(rng.integers(1, 3))))[:255]
    rows = rows if rows[-1][0] == SXU.HALT else program([])
    made = roll(MACHINE, rows)
    assert unrolled(made.rows) == rows
    one, two = ran(rows), ran(made.rows)
    assert np.array_equal(one.vmem, two.vmem)
    assert two.cycles <= one.cycles
    if not any(row[0] == SXU.MXU for row in rows):
        assert two.cycles == one.cycles - 2 * (len(rows) - len(made.rows)) + made.loops


@pytest.mark.parametrize(
    ("body", "count", "pays"), [(1, 9, False), (2, 5, False), (2, 6, True), (3, 3, False), (3, 4, True)]
)
def test_from_where_on_a_loop_pays(body: int, count: int, pays: bool) -> None:
    """Datasheet 10.5: 2 (N - 1) b - 6 - 2 N cycles. The bodies are of three different words."""
    rows = [WINDOWS[n] for n in range(body)] * count
    assert (len(roll(MACHINE, rows).rows) < len(rows)) is pays


def test_no_more_loops_inside_each_other_than_fit() -> None:
    flat = MACHINE.with_(name="flat", params={"loop_depth": 1})
    rows = ([*WINDOWS] * 4 + [WINDOWS[0]]) * 2
    loops = {m: [row[Column.OP] for row in roll(m, rows).rows].count(SXU.LOOP_BEGIN) for m in (MACHINE, flat)}
    assert loops == {MACHINE: 2, flat: 1}
    assert unrolled(roll(MACHINE, rows).rows) == unrolled(roll(flat, rows).rows) == rows


def test_powers_are_loops() -> None:
    text = f"input a: S32[20]\no: S32[i<20] = {' * '.join(['a[i]'] * 40)}\noutput o"
    plan = compile_graph(graph.parse(text))
    a = np.arange(20, dtype=np.int32)
    run = plan.run({"a": a})
    with np.errstate(over="ignore"):
        want = np.multiply.reduce(np.broadcast_to(a, (40, 20)), dtype=np.int32)
    assert run.outputs["o"].tolist() == want.tolist()
    assert run.cycles == (plan.steps[0].cycles,)  # pyright: ignore[reportAttributeAccessIssue] - a stage has them
    (program,) = (one.program for one in listed(plan.steps[0]))
    assert SXU.LOOP_BEGIN in program.rows[:, Column.OP]
    assert len(program.rows) < 40


def test_loops_go_past_the_program_memory() -> None:
    """A program of 24 words where the unrolled one has 33; without loops it would be cut."""
    short = MACHINE.with_(name="short", params={"program_words": 24})
    text = f"input a: S32[16]\no: S32[i<16] = {' * '.join(['a[i]'] * 31)}\noutput o"
    run = compile_graph(graph.parse(text), short).run({"a": np.full(16, 3, np.int32)})
    assert (run.counts.programs, run.counts.carried) == (1, 0)
    assert run.outputs["o"][0] == (3**31 + (1 << 31)) % (1 << 32) - (1 << 31)
