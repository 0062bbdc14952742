"""TINYTPU_DUMP_LOWERING: a record a kernel, of what the kernel became."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor

import tinytpu.tinygrad as tt
from tinytpu import machines
from tinytpu.isa.words import read

D = "TINYTPU"


def filled(*shape: int, low: int = -8) -> Tensor:
    count = int(np.prod(shape))
    return Tensor(np.arange(low, low + count, dtype=np.int32).reshape(shape), device=D).realize()


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the kernels of an expression were lowered to."""

    def dumped(*made: Tensor) -> list[dict[str, Any]]:
        file = tmp_path / "dump.jsonl"
        monkeypatch.setenv("TINYTPU_DUMP_LOWERING", str(file))
        made[0].realize(*made[1:])
        return [json.loads(line) for line in file.read_text().splitlines()]

    return dumped


CASES: dict[str, tuple[Any, str, str]] = {
    "gemm": (lambda x: x @ filled(4, 4), "gemm", "MXU"),
    "rows": (lambda x: x.sum(1), "reduction", "SUM_REDUCE"),
    "columns": (lambda x: x.max(0), "reduction", "MAX_REDUCE"),
    "less": (lambda x: x < 3, "elementwise", "CMPLT"),
    "where": (lambda x: (x < 3).where(x, x * 5), "elementwise", "SELECT"),
    "relu": (lambda x: x.relu(), "elementwise", "CMPLT|RELU|MAX"),
    "transpose": (lambda x: x.T.contiguous(), "movement", ""),
    "slice": (lambda x: x[1:3, 1:3].contiguous(), "movement", ""),
    "pad": (lambda x: x.pad((1, 1)).contiguous(), "movement", ""),
    "fill": (lambda x: Tensor.full((5, 5), 3, device=D).contiguous(), "constant", ""),
    "row": (lambda x: x + filled(1, 4), "broadcast", "ADD"),
    "column": (lambda x: x + filled(4, 1), "broadcast", "ADD"),
    "scalar": (lambda x: x + filled(1, 1), "broadcast", "ADD"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_says_its_class_and_what_it_uses(name: str, records: Any) -> None:
    make, kind, primitive = CASES[name]
    (found,) = records(make(filled(4, 4)))
    assert found["op"] == kind
    assert set(primitive.split("|")) & {"", *found["primitives"]}
    assert (found["programs"], found["bool_output"]) == (1, name == "less")
    assert found["weight_tiles"] == (name == "gemm")
    (step,) = found["steps"]
    (listing,) = step["listings"]
    machine = machines.load()
    assert [read(machine, text) for text in listing["instructions"]] == listing["words"]
    moved = [one["primitive"] for one in step["data"] if "primitive" in one]
    assert moved == {"row": ["BROADCAST_ROW"], "column": ["BROADCAST_COL"], "scalar": ["BROADCAST_SCALAR"]}.get(
        name, []
    )


def test_a_record_counts_what_a_run_takes(records: Any) -> None:
    tt.reset()
    (found,) = records(filled(9, 13) @ filled(13, 6))
    took = tt.report().took
    assert (found["programs"], found["cycles"]) == (took.programs, took.cycles)
    assert found["weight_tiles"] == sum(len(one["wmem"]) * one["count"] for one in found["steps"][0]["listings"])
    assert {v["name"]: v["shape"] for v in found["inputs"]} == {"a1": [9, 13], "a2": [13, 6]}
    assert found["outputs"] == [{"slot": 0, "value": "out0", "shape": [9, 6], "dtype": "S32"}]


def test_a_kernel_without_a_plan_says_why(records: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = records(Tensor([0.5, 2.0], device=D, dtype=dtypes.double) + 1)
    assert "got FP64" in found["refused"]
    assert "steps" not in found
    assert capsys.readouterr().out == ""


def test_records_go_to_stdout_and_a_kernel_is_dumped_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TINYTPU_DUMP_LOWERING", "1")
    for _ in range(3):
        (filled(7) * 11).realize()
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["ops"] == ["mul", "cast S32"]
