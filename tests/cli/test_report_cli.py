"""`kohaku run --time` and `kohaku report` as a person uses them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohakuaccel.cli import main
from kohakuaccel.sim import Timeline
from kohakutpu import api as ktpu
from sim.report_case import case

Kohaku = Callable[..., tuple[int, str, str]]

PROGRAM = """
import sys
import numpy as np
from kohakutpu import api as ktpu

x = ktpu.tensor(np.full((8, 32), 15))
y, inner = ktpu.time(lambda: x @ x)
print("corner", y.numpy()[0, 0].item(), "inner", inner.cycles)
ktpu.silu(y)
sys.exit(3)
"""


@pytest.fixture
def kohaku(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Kohaku]:
    """Call the command in this process; the default machine is put back afterwards."""

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kohaku", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        code = left.value.code
        return (code if isinstance(code, int) else int(code is not None)), captured.out, captured.err

    yield call
    ktpu.use("ship_3x2")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    case().save(path)
    return path


def test_a_program_is_timed_whole(kohaku: Kohaku, tmp_path: Path) -> None:
    """What the program times itself counts too, and its exit code is its own."""
    (tmp_path / "program.py").write_text(PROGRAM)
    file = tmp_path / "run.json"
    code, out, _ = kohaku("run", tmp_path / "program.py", "--machine", "mini", "--no-stats", "--time", file)
    assert code == 3
    assert "corner 7200.0" in out
    t = Timeline.load(file)
    assert t.name == "program.py"
    assert t.machine == "mini"
    assert [s.name for s in t.stages][:1] == ["matmul stage 0"]
    assert any(s.name.startswith("silu") for s in t.stages)
    inner = int(out.split("inner ")[1].split()[0])
    assert t.stages[0].end == inner < t.cycles
    assert f"timeline of {t.cycles:,} cycles on mini (modelled) written to {file}" in out
    assert f"kohaku report {file}" in out
    code, out, _ = kohaku("report", file)
    assert code == 0
    assert "program.py on mini" in out
    assert out.rstrip("\n") == t.report()


def test_a_program_on_another_device_is_told(kohaku: Kohaku, tmp_path: Path) -> None:
    (tmp_path / "idle.py").write_text("print('idle')\n")
    code, out, _ = kohaku("run", tmp_path / "idle.py", "--time", tmp_path / "run.json")
    assert code == 0
    assert "nothing ran on the default device" in out


def test_a_place_that_cannot_be_written_is_refused_before_the_program_runs(kohaku: Kohaku, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('it ran')\n")
    for place in (tmp_path / "nowhere" / "run.json", tmp_path):
        code, out, err = kohaku("run", tmp_path / "program.py", "--time", place)
        assert code == 2
        assert "a timeline is written to a file in an existing folder" in err
        assert "it ran" not in out


def test_the_report_is_the_timelines_own_text(kohaku: Kohaku, saved: Path) -> None:
    code, out, _ = kohaku("report", saved)
    assert (code, out.rstrip("\n")) == (0, case().report())


def test_one_stage(kohaku: Kohaku, saved: Path) -> None:
    code, out, _ = kohaku("report", saved, "--stage", 1)
    assert code == 0
    assert "RUN 0" in out
    assert "GEMM" not in out
    code, _, err = kohaku("report", saved, "--stage", 2)
    assert code == 2
    assert "a stage has a number of the stage table" in err


def test_every_stage(kohaku: Kohaku, tmp_path: Path) -> None:
    t = case()
    last = t.stages.pop()
    t.stages += [type(last)(f"silu stage {n}", 600 + 16 * n, 616 + 16 * n, 1) for n in range(25)]
    t.save(tmp_path / "long.json")
    assert "6 shorter stages are not shown" in kohaku("report", tmp_path / "long.json")[1]
    assert "not shown" not in kohaku("report", tmp_path / "long.json", "--all")[1]


def test_pages_and_traces_are_written(kohaku: Kohaku, saved: Path, tmp_path: Path) -> None:
    page, trace = tmp_path / "run.html", tmp_path / "trace.json"
    code, out, _ = kohaku("report", saved, "--html", page, "--perfetto", trace)
    assert code == 0
    assert f"page written to {page}" in out
    assert f"trace written to {trace}" in out
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(trace.read_text())["traceEvents"]
    code, _, err = kohaku("report", trace)
    assert code == 2
    assert "a trace for the Perfetto UI" in err


def test_a_file_that_is_not_there(kohaku: Kohaku, saved: Path) -> None:
    code, _, err = kohaku("report", saved.with_name("rum.json"))
    assert code == 2
    assert "did you mean 'run.json'" in err
