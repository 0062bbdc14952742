"""The page in a browser without a screen: it draws everything, zooms, says what is under the pointer; no script fails.

A browser is found on the path or named by CHROMIUM. Where there is none the tests are left out, except in continuous
integration (CI=true), which installs one (`make browser`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from kohakuaccel.sim import Span, Stage, Timeline
from kohakuaccel.sim.page import page
from kohakutpu import api as ktpu
from sim.report_case import case

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=5000",
    "--window-size=1400,1000",
    "--enable-logging=stderr",
)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> str:
    named = os.environ.get("CHROMIUM")
    found = named or next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("continuous integration has a browser: run `make browser`")
        pytest.skip(reason="no Chromium on the path; `make browser` installs one, CHROMIUM names one elsewhere")
    return found


class Page:
    """A page as it stands after its scripts have run: the attributes of its main element and the whole document."""

    def __init__(self, dom: str, log: str) -> None:
        self.dom = dom
        main = re.search(r'<main id="app"([^>]*)>', dom)
        assert main is not None, log
        self.state = {name: unescape(value) for name, value in re.findall(r'data-([\w-]+)="([^"]*)"', main[1])}
        self.console = re.findall(r"CONSOLE[^\n]*", log)

    def __getitem__(self, name: str) -> str:
        return self.state[name]

    @property
    def view(self) -> tuple[float, float]:
        low, high = map(float, self["view"].split(","))
        return low, high

    def check(self) -> None:
        """No script failed and nothing was written to the console."""
        assert self["ready"] == "1"
        assert self["errors"] == "0"
        assert not self.console


def opened(browser: str, folder: Path, text: str, address: str = "", script: str = "") -> Page:
    """The page `text` opened at "#address"; `script` runs after the page's own."""
    file = folder / "page.html"
    before, end, after = text.rpartition("</body>")
    file.write_text(f"{before}<script>{script}</script>{end}{after}" if script else text)
    profile = folder / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    command = [browser, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", f"{file.as_uri()}#{address}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return Page(done.stdout, done.stderr)


def test_everything_is_drawn(browser: str, tmp_path: Path) -> None:
    t = case()
    found = opened(browser, tmp_path, page(t))
    found.check()
    assert found.view == (0, 1000)
    assert int(found["rows"]) == len(t.tracks) + len(t.series)
    assert int(found["spans"]) == len(t.spans)
    assert int(found["drawn"]) >= len(t.spans)
    assert int(found["stages"]) == int(found["points"]) == len(t.stages)
    assert int(found["arrows"]) == len(t.flows)
    assert found["launches"] == "2"
    assert found["panes"] == "3"
    for text in ("<circle", "512 MAC/cycle", "32 B/cycle (port)", "DRAM written", "1,024 B", "modelled, not measured"):
        assert text in found.dom
    assert "L = 30" in found.dom
    assert 'data-line="layer.py:12"' in found.dom


def test_the_address_zooms_and_holds_a_span(browser: str, tmp_path: Path) -> None:
    found = opened(browser, tmp_path, page(case()), "t=200-300&at=1:240&theme=dark")
    found.check()
    assert found.view == (200, 300)
    for text in (
        "port busy",
        "waits for port 0 read",
        "30 cycles (0.300 us), 230 to 260",
        "layer.py:12",
        "acc += x[i, k]",
    ):
        assert text in found["details"]
    assert 'data-theme="dark"' in found.dom


GESTURES = """
const seenViews = [];
const note = () => { draw(); seenViews.push(app.dataset.view); };
const box = canvas.getBoundingClientRect();
const event = (type, x, y, more) => ({ clientX: box.left + x, clientY: box.top + y, pointerId: 1, ...more });
canvas.setPointerCapture = () => {};
canvas.dispatchEvent(new WheelEvent("wheel", event("wheel", xOf(500), 60, { deltaY: -300 }))); note();
canvas.dispatchEvent(new PointerEvent("pointerdown", event("", 700, 60)));
canvas.dispatchEvent(new PointerEvent("pointermove", event("", 800, 60)));
canvas.dispatchEvent(new PointerEvent("pointerup", event("", 800, 60))); note();
canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "+" })); note();
canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "0" })); note();
document.querySelector('tr.go[data-stage="1"]').click(); note();
canvas.dispatchEvent(new PointerEvent("pointermove", event("", xOf(700), rows[3].y + 4)));
app.dataset.views = seenViews.join(" ");
const before = getComputedStyle(document.body).backgroundColor;
document.getElementById("theme").click();
app.dataset.themed = String(before !== getComputedStyle(document.body).backgroundColor);
document.getElementById("launch").value = "silu";
document.getElementById("launch").dispatchEvent(new Event("change"));
"""


def test_wheel_drag_keys_and_clicks(browser: str, tmp_path: Path) -> None:
    found = opened(browser, tmp_path, page(case()), script=GESTURES)
    found.check()
    views = [tuple(map(float, view.split(","))) for view in found["views"].split()]
    wheel, drag, key, whole, stage = views
    # At the pointer's cycle the wheel leaves the view where it is: 500 stays in the middle.
    assert wheel[0] == pytest.approx(1000 - wheel[1], abs=0.02)
    assert wheel[1] - wheel[0] == pytest.approx(1000 / 2.71828, rel=1e-3)
    assert drag[0] < wheel[0]
    assert drag[1] - drag[0] == pytest.approx(wheel[1] - wheel[0], abs=0.02)
    assert key[1] - key[0] == pytest.approx(0.6 * (drag[1] - drag[0]), abs=0.02)
    assert whole == (0, 1000)
    assert stage == (584, 1000)  # the stage with a margin, moved to stay inside the run
    assert "RUN 0" in found["details"]
    assert found["themed"] == "true"
    assert found["panes"] == "1"


CHOICES = """
const counts = [rows.length];
document.getElementById("quiet").click(); counts.push(rows.length);
document.getElementById("words").value = "vc( array";
document.getElementById("words").dispatchEvent(new Event("input"));
counts.push(rows.map((row) => row.track.name).join());
draw();
app.dataset.counts = counts.join(" ");
"""


def test_hardly_used_resources_come_when_asked_for(browser: str, tmp_path: Path) -> None:
    t = case()
    quiet, busy = t.track("link a"), t.track("link b")
    t.spans = [*t.spans, Span(quiet, 10, 50, "serve", "flits"), Span(busy, 100, 900, "serve", "flits")]
    t.series = {**t.series, "link a flits/cycle": [(0, 1.0)]}
    found = opened(browser, tmp_path, page(t), script=CHOICES)
    found.check()
    assert found["quiet"] == "1"
    assert found["counts"] == "6 8 MG(1,1) array,VC(1,0)"
    assert "hide 1 resource below 5 % full" in found.dom


def test_a_failing_script_is_seen(browser: str, tmp_path: Path) -> None:
    """The check above can fail: an error shows in the page and on the console."""
    found = opened(browser, tmp_path, page(case()), script="nowhere();")
    assert found["errors"] == "1"
    assert any("nowhere" in line for line in found.console)
    assert "This page failed" in found.dom


def test_many_spans_are_summed_by_pixel(browser: str, tmp_path: Path) -> None:
    t = Timeline("many", "toy", 100, ("compute", "wait"), ("compute",), cycles=400_000)
    t.stages.append(Stage("all", 0, t.cycles, 1))
    units, starts = [t.track(f"unit {n}") for n in range(4)], range(0, t.cycles, 20)
    t.spans = [Span(unit, at, at + 9, t.kinds[at // 20 % 2], "x") for unit in units for at in starts]
    text = page(t)
    whole = opened(browser, tmp_path, text)
    whole.check()
    assert int(whole["spans"]) == 80_000
    # Two kinds in every pixel column of four rows, instead of 80,000 rectangles.
    assert 4 * 1000 < int(whole["drawn"]) <= 4 * 2 * 1400
    near = opened(browser, tmp_path, text, "t=100-300")
    near.check()
    assert int(near["drawn"]) == 4 * 10


def test_a_real_run_and_an_empty_one(browser: str, tmp_path: Path) -> None:
    x = ktpu.tensor([[1.0] * 64] * 64)
    _, t = ktpu.time(lambda: ktpu.silu(x @ x), device=x.device)
    found = opened(browser, tmp_path, page(t))
    found.check()
    assert int(found["stages"]) == len(t.stages)
    assert int(found["launches"]) == 2
    empty = ktpu.time(lambda: None, device=x.device)[1]
    found = opened(browser, tmp_path, page(empty))
    found.check()
    assert found["drawn"] == "0"
