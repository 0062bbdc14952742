"""The benchmarks run, report what they promise, and know a missed bar; the page of figures keeps its marks."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks"


@pytest.fixture
def timing(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(FOLDER)
    return import_module("timing")


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(FOLDER)
    return import_module("publish")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemm", "vector"])
def test_a_quick_run_ends_in_a_record(name: str) -> None:
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["benchmark"] == name
    assert record["rows"]
    assert record["bars"]
    assert record["conditions"]["cores"] >= 1
    for row in record["rows"]:
        assert row["ratio"] > 0
        assert 1e-4 < row["relative error"] < 2e-2


@pytest.mark.slow
def test_a_quick_clock_run() -> None:
    command = [sys.executable, str(FOLDER / "clock.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    record = json.loads(done.stdout.splitlines()[-1])
    assert all(row["simulated cycles"] > 0 and row["M cycles/s"] > 1 for row in record["rows"])
    assert len(record["bars"]) == 3


@pytest.mark.slow
def test_a_quick_revision_2_run() -> None:
    command = [sys.executable, str(FOLDER / "revision2.py"), "--quick", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    record = json.loads(done.stdout.splitlines()[-1])
    works = {row["work"].split()[0] for row in record["rows"]}
    assert works == {"attention", "matmul", "conv"}
    assert all(row["of r1"] == 1 for row in record["rows"] if row["machine"] == "r1")
    assert all(row["relative error"] < 0.05 for row in record["rows"])


@pytest.mark.slow
def test_a_quick_split_run() -> None:
    command = [sys.executable, str(FOLDER / "split.py"), "--quick", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    record = json.loads(done.stdout.splitlines()[-1])
    assert [row["passes"] for row in record["rows"]] == [26, 26]
    assert all(1 < row["ratio"] < 26 for row in record["rows"])


@pytest.mark.slow
def test_a_search_run() -> None:
    command = [sys.executable, str(FOLDER / "search.py"), "--check", "wide product"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert row["ratio"] < 0.8
    assert row["same bits"] == 1


@pytest.mark.slow
def test_a_quick_models_run() -> None:
    command = [sys.executable, str(FOLDER / "models.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    record = json.loads(done.stdout.splitlines()[-1])
    assert all(1e-3 < row["relative error"] < 0.06 and row["simulated ms (modelled)"] > 0 for row in record["rows"])


@pytest.mark.slow
def test_a_quick_dispatch_run_compiles_from_nothing() -> None:
    command = [sys.executable, str(FOLDER / "dispatch.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = {row["what"]: row["figure"] for row in json.loads(done.stdout.splitlines()[-1])["rows"]}
    assert figures["first result, cold kernel cache"] > figures["first result, warm kernel cache"]
    assert figures["warm 64^3 matmul, beyond the machine"] < figures["warm 64^3 matmul, in all"]


def test_a_bar_is_a_floor_or_a_ceiling(timing: Any) -> None:
    assert timing.Bar("rate", 50.0, 50.0).met
    assert not timing.Bar("rate", 49.9, 50.0).met
    assert timing.Bar("time", 0.9, 1.0, below=True).met
    assert not timing.Bar("time", 1.0, 1.0, below=True).met
    assert "MISSED" in str(timing.Bar("rate", 1.0, 2.0))


def test_check_fails_on_a_missed_bar(timing: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"size": 1, "ratio": 0.5}]
    assert timing.finish("x", rows, [timing.Bar("ratio", 0.5, 1.0)], True) == 1
    assert timing.finish("x", rows, [timing.Bar("ratio", 0.5, 1.0)], False) == 0
    assert timing.finish("x", rows, [timing.Bar("ratio", 0.5, 0.1)], True) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows"] == rows


def test_alternatives_take_turns(timing: Any) -> None:
    order: list[str] = []
    works = [lambda: order.append("a"), lambda: order.append("b")]
    times = timing.interleaved(works, repeats=3, seconds=0.0)
    assert len(times) == 2
    assert all(0 <= taken.best <= taken.median for taken in times)
    assert order[-6:] == ["a", "b"] * 3  # after the warm-up calls


def test_a_disturbed_run_is_not_published(publish: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- gemm -->\n<!-- /gemm -->\n")

    def measure(name: str) -> dict[str, Any]:
        return {"rows": [{"size": 1}], "bars": [], "conditions": {"busy with other work": busy}}

    monkeypatch.setattr(publish, "PAGE", page)
    monkeypatch.setattr(publish, "NAMES", ("gemm",))
    monkeypatch.setattr(publish, "measure", measure)
    busy = 0.5
    with pytest.raises(SystemExit, match="nothing was written"):
        publish.main()
    assert "size" not in page.read_text()
    busy = 0.0
    assert publish.main() == 0
    assert "| size |" in page.read_text()


def test_what_is_modelled_does_not_depend_on_others(publish: Any) -> None:
    assert set(publish.NAMES) > publish.MODELLED
    record = {"rows": [{"size": 1}], "bars": [], "conditions": {"busy with other work": 2.0}}
    assert publish.section("tinytpu_cycles", record).startswith("Modelled, not measured")
    with pytest.raises(SystemExit, match=r"gemm: other programs kept 2\.0 processors busy"):
        publish.section("gemm", record)


def test_other_programs_are_noticed(timing: Any) -> None:
    assert timing.others() >= 0.0
    assert "busy with other work" in timing.conditions()


def test_the_page_has_a_place_for_every_benchmark(publish: Any) -> None:
    page = (ROOT / "docs" / "measured.md").read_text()
    for name in publish.NAMES:
        changed = publish.between(page, name, "new figures")
        assert f"<!-- {name} -->\nnew figures\n<!-- /{name} -->" in changed
        assert f"benchmarks/{name}.py" in page
    with pytest.raises(SystemExit, match="no marks for other"):
        publish.between(page, "other", "")


def test_a_table_of_figures(publish: Any) -> None:
    text = publish.table([{"what": "call", "ms": 0.12345, "n": 4}, {"what": "start", "ms": 12345.6, "n": 5}])
    assert text.splitlines() == [
        "| what | ms | n |",
        "| --- | ---: | ---: |",
        "| call | 0.123 | 4 |",
        "| start | 12,346 | 5 |",
    ]


def test_a_missed_bar_is_marked_on_the_page(publish: Any) -> None:
    assert publish.bar_line({"name": "x", "value": 2.0, "limit": 1.0, "below": True}).endswith("**missed**")
    assert publish.bar_line({"name": "x", "value": 2.0, "limit": 1.0, "below": False}).endswith("met")
