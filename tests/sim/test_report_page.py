"""The page as a file: it needs nothing else, its data are the timeline's, and it is part of the package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohakuaccel.sim.page import data, page
from kohakuaccel.sim.page.flat import flattened
from sim.report_case import case

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("page.html", "page.css", "model.js", "view.js", "parts.js")


def embedded(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_needs_nothing_else() -> None:
    """No address, no import, no link to a file, in any of its parts; a policy in the page forbids loading."""
    for name in PARTS:
        text = files("kohakuaccel.sim.page").joinpath(name).read_text()
        for word in ("http:", "https:", "//cdn", "import ", "fetch(", "XMLHttp", "@import", "url(", "src=", "<link"):
            assert word not in text, f"{name} holds {word}"
    assert "default-src 'none'" in page(case())


def test_every_part_is_in_the_page_once() -> None:
    text = page(case())
    assert text.startswith("<!doctype html>")
    assert not re.search("@(CSS|JS|DATA)@", text)
    for mark in (":root {", "const seen =", "function drawTrack", "function roofline"):
        assert text.count(mark) == 1


def test_the_data_are_the_timelines() -> None:
    t = case()
    found = embedded(page(t))
    assert found == json.loads(json.dumps(data(t)))
    assert found["cycles"] == 1000
    assert [s["where"] for s in found["stages"]] == [
        "layer.py:12  acc += x[i, k] @ w[j, k]",
        "layer.py:20  y <<= silu(x)",
    ]
    control = found["tracks"][1]
    assert (control["s"], control["d"]) == ([0, 222, 8], [220, 298, 30])
    assert [found["names"][n] for n in control["t"]] == ["FILL A 8", "FILL B 16", "port busy"]
    assert [found["kinds"][n] for n in control["k"]] == ["filling", "filling", "wait"]
    # The wait shows on top of the fill around it.
    assert control["flat"] == {"s": [0, 222, 8, 30], "d": [220, 8, 30, 260], "i": [0, 1, 2, 1]}
    assert "flat" not in found["tracks"][0]
    assert found["roofs"][0] == ["MAC", 512.0, 32.0, "port", 16.0]


def test_a_text_cannot_end_the_data() -> None:
    t = case()
    t.name = "</script><script>alert(1)</script>"
    t.texts = {**t.texts, "x/@JS@": "@CSS@ @DATA@ <!-- "}
    text = page(t)
    assert text.count("</script>") == 2
    assert embedded(text)["name"] == t.name
    assert embedded(text)["texts"]["x/@JS@"] == "@CSS@ @DATA@ <!-- "


SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 25), st.integers(0, 2)))


@settings(deadline=None, max_examples=50)
@given(SPANS)
def test_overlapping_spans_become_pieces(raw: list[tuple[int, int, int]]) -> None:
    """Cycle by cycle: the lowest rank shows, of those the one that started last; nothing shows where nothing runs."""
    spans = sorted((start, start + n, rank) for start, n, rank in raw)
    start, end, rank = ([s[i] for s in spans] for i in range(3))
    pieces = flattened(start, end, rank)
    shown: dict[int, int] = {}
    at = 0
    for step, length, index in zip(pieces["s"], pieces["d"], pieces["i"], strict=True):
        at += step
        assert length > 0
        assert start[index] <= at < at + length <= end[index]
        for cycle in range(at, at + length):
            assert cycle not in shown
            shown[cycle] = index
    for cycle in range(70):
        running = [i for i, (a, b, _) in enumerate(spans) if a <= cycle < b]
        assert (cycle in shown) == bool(running)
        if running:
            best = min((rank[i], -start[i]) for i in running)
            assert (rank[shown[cycle]], -start[shown[cycle]]) == best


@pytest.mark.slow
def test_the_wheel_holds_the_parts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"kohakuaccel/sim/page/{name}" for name in PARTS} <= names
