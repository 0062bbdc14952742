"""One program on many data sets in one compiled call: as that many runs, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import Fault, Refusal, SourceLine
from tinytpu.isa import SXU, VPU
from tinytpu.machines import load
from tinytpu.units.core import execute, execute_sets
from tinytpu.units.given import Filling, Sets
from tinytpu_rig.build import HALT, vpu, word

SETS = 7
PROGRAM = np.array(
    [
        word(SXU.LOAD, vmem=2, dst=1),
        word(SXU.LOAD, vmem=0, dst=2),
        vpu(VPU.MUL, 3, 1, 2),
        word(SXU.MXU, tlen=2, src2=1, src=1),
        # Where the first element is zero the sum is stored, else the product of the tiles.
        word(SXU.SET_PRED_IF_ZERO, src=1),
        word(SXU.SKIP_IF_NOT_PRED),
        vpu(VPU.ADD, 3, 1, 2),
        word(SXU.STORE, vmem=3, src=3),
        word(SXU.STORE, vmem=4, src=3),
        HALT,
    ],
    np.int64,
)


@pytest.fixture(scope="module")
def sets() -> Sets:
    rng = np.random.default_rng(0)
    tiles = rng.integers(-(2**31), 2**31, (5, 16)).astype(np.int32)
    tiles[::2, 0] = 0

    def filling(slots: list[int], items: np.ndarray[Any, Any]) -> Filling:
        return Filling(np.array(slots), items, rng.integers(0, len(items), (SETS, len(slots))))

    return Sets(
        SETS,
        PROGRAM,
        filling([2, 0], tiles),
        filling([0], rng.integers(-128, 128, (3, 16)).astype(np.int8)),
        filling([1, 0], rng.integers(-128, 128, (6, 4)).astype(np.int8)),
        vmem_outputs=(3, 0),
        amem_outputs=(1,),
        mxu_result=True,
    )


def test_sets_are_runs(sets: Sets) -> None:
    machine = load()
    batch = execute_sets(machine, sets)
    alone = [execute(machine, sets.image(n)) for n in range(SETS)]
    assert len({run.cycles for run in alone}) == 2  # both ways were taken
    assert batch.cycles.tolist() == [run.cycles for run in alone]
    assert all(np.array_equal(batch.vmem[n].reshape(2, 4, 4), run.vmem) for n, run in enumerate(alone))
    assert all(np.array_equal(batch.amem[n], run.amem) for n, run in enumerate(alone))
    assert batch.mxu_results.tolist() == [run.mxu_result.tolist() for run in alone if run.mxu_result is not None]
    for name, counted in batch.counters.items():
        if name != "lints":  # each place is remarked once, whatever the sets
            assert counted.tolist() == [run.counters[name] for run in alone], name
    assert batch.remarks == alone[0].remarks
    assert [remark.pc for remark in batch.remarks] == [8]
    assert (batch.core.hits == sum(run.hits for run in alone)).all()
    assert (batch.core.spent == sum(run.spent for run in alone)).all()


def test_no_set_sees_another(sets: Sets) -> None:
    """A set that reads what only the program writes is refused, although the set in front of it left it."""
    program = np.array([word(SXU.LOAD, vmem=5), word(SXU.STORE, vmem=5), HALT], np.int64)
    only = Filling(np.array([5]), np.zeros((1, 16), np.int32), np.zeros((2, 1), np.int64))
    execute_sets(load(), Sets(2, program, only, vmem_outputs=(5,)))
    with pytest.raises(Fault, match=r"VMEM\[5\] is read before it is written; cycle \d+ of data set 0"):
        execute_sets(load(), Sets(2, program, vmem_outputs=(5,)))


def test_a_fault_names_its_set(sets: Sets) -> None:
    """The skip steps over the HALT where the element is zero, and the next word is no instruction."""
    program = np.array(
        [word(SXU.LOAD), word(SXU.SET_PRED_IF_ZERO), word(SXU.SKIP_IF_PRED), HALT, [47, *[0] * 8]], np.int64
    )
    items = np.array([[1] * 16, [0] * 16], np.int32)
    chosen = np.array([[0], [0], [1], [0]])
    lines = [SourceLine("a.tasm", n + 1) for n in range(5)]
    with pytest.raises(Fault, match=r"opcode 47 is not defined.* of data set 2") as caught:
        execute_sets(load(), Sets(4, program, Filling(np.array([0]), items, chosen), lines=lines))
    assert caught.value.source == lines[4]
    short = load().with_(params={"cycle_limit": 12})
    with pytest.raises(Fault, match="more than 12 cycles"):
        execute_sets(short, Sets(2, program, Filling(np.array([0]), items, chosen[:2])))


REFUSED: dict[str, tuple[str, Callable[[Filling], Filling]]] = {
    "wide items": (r"items are as the memory.*int64\[5, 16\].*int32\[items, 16\]",
                   lambda f: f._replace(items=f.items.astype(np.int64))),
    "a slot twice": ("a slot is filled once", lambda f: f._replace(slots=np.array([2, 2]))),
    "a slot beyond": ("VMEM has 32 items", lambda f: f._replace(slots=np.array([2, 32]))),
    "an item beyond": ("a chosen item is there", lambda f: f._replace(chosen=f.chosen + 4)),
    "an item before": ("a chosen item is there", lambda f: f._replace(chosen=f.chosen - 4)),
    "too few sets": ("a set chooses an item for every slot", lambda f: f._replace(chosen=f.chosen[1:])),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_fillings_are_held_to_the_memory(sets: Sets, case: str) -> None:
    text, wrong = REFUSED[case]
    assert sets.vmem is not None
    with pytest.raises(Refusal, match=text):
        execute_sets(load(), replace(sets, vmem=wrong(sets.vmem)))


def test_outputs_are_written(sets: Sets) -> None:
    with pytest.raises(Refusal, match=r"VMEM\[9\]: an output was never written"):
        execute_sets(load(), replace(sets, vmem_outputs=(9,)))
    with pytest.raises(Refusal, match="nothing was dispatched"):
        execute_sets(load(), Sets(1, PROGRAM[-1:], mxu_result=True))
    nothing = execute_sets(load(), Sets(0, PROGRAM[-1:]))
    assert nothing.cycles.size == 0
