"""The published kernels: exact cycles, exact values, and a bench that notices when either is wrong."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from tinytpu import cli, machines
from tinytpu.asm import assemble, disassemble
from tinytpu.programs import KERNELS, Program, geomean, measure, report
from tinytpu.programs.kernels import relu

# The datasheet's tables: 10.7, and section 14 for the best.
PUBLISHED = {
    "add_16": 33, "add_256": 423, "relu_64": 83, "reshape_64": 63, "sum_16": 26, "sum_256": 281, "rowsum_8x8": 79,
    "colsum_8x8": 79, "gemm_1x4x4": 37, "gemm_4x4x4": 121, "gemm_4x8x4": 227,
}  # fmt: skip
BEST = {**PUBLISHED, "reshape_64": 27, "sum_256": 200, "rowsum_8x8": 69, "colsum_8x8": 69, "gemm_1x4x4": 24,
        "gemm_4x4x4": 77, "gemm_4x8x4": 113}  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
def test_values_and_cycles(seed: int) -> None:
    outcomes = measure(seed=seed)
    assert all(outcome.values for outcome in outcomes)
    assert {o.kernel: o.cycles for o in outcomes if o.variant == "published"} == PUBLISHED
    assert {o.kernel: o.cycles for o in outcomes if o.variant == "best"} == BEST
    assert round(geomean(outcomes, "published"), 3) == 0.663
    assert all(outcome.right for outcome in outcomes)


def test_programs_are_not_the_same_for_every_seed() -> None:
    for kernel in KERNELS.values():
        for best in (False, True):
            first, second = (kernel.build(best=best, seed=seed) for seed in (1, 2))
            assert first.text != second.text
            bundle = assemble(first.text, machines.load())
            assert assemble(disassemble(bundle, machines.load()), machines.load()) == bundle


def test_a_wrong_program_has_no_cycle_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(rng: np.random.Generator) -> Program:
        program = relu(rng)
        return replace(program, text=program.text.replace("RELU", "NOT"))

    monkeypatch.setitem(KERNELS, "relu_64", replace(KERNELS["relu_64"], plain=wrong))
    outcomes = measure(["relu"])
    assert [(o.cycles, o.values, o.right) for o in outcomes] == [(0, False, False)] * 2
    assert "WRONG VALUES" in report(outcomes)
    assert geomean(outcomes, "best") == 0
    monkeypatch.setattr(sys, "argv", ["tinytpu", "bench", "relu"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 1


def test_a_wrong_count_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS, "add_16", replace(KERNELS["add_16"], published=32))
    outcomes = measure(["add_16"], best=False)
    assert not outcomes[0].right
    assert "NOT 32" in report(outcomes)


def test_forms_and_filters() -> None:
    outcomes = measure(["gemm_4x4", "sum_1"])
    assert [o.kernel for o in outcomes] == ["sum_16", "sum_16", "gemm_4x4x4", "gemm_4x4x4"]
    rows = list(csv.DictReader(report(outcomes, "csv").splitlines()))
    assert [row["cycles"] for row in rows] == ["26", "26", "121", "77"]
    assert json.loads(report(outcomes, "json"))[3]["rate"] == round(64 / 77, 4)
    with pytest.raises(Refusal, match="no kernel 'gem_4'; did you mean"):
        measure(["gem_4"])
    with pytest.raises(Refusal, match="a form is text, json or csv; got 'xml'"):
        report(outcomes, "xml")
