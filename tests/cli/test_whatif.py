"""`kohaku whatif` and its Python form: how changes are named, what the table says, what a refusal does."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kohakuaccel.cli import main
from kohakuaccel.diagnostics import DefinitionError, Refusal, SourceLine, Unsupported
from kohakuaccel.machine import Machine
from kohakuaccel.sim import SERVE, Span, Stage, Timeline
from kohakuaccel.whatif import (
    Outcome,
    Setting,
    combined,
    compare,
    parse_changes,
    parse_setting,
    parse_sweep,
    spelt,
    varied,
)
from kohakutpu import device, kernels, machines
from kohakutpu.machines.sizes import SIZES, sized
from kohakutpu.whatif import knobs_of, whatif

SHIP = machines.load("ship_3x2")
Kohaku = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kohaku(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kohaku:
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kohaku", *words])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        code = left.value.code
        return (code if isinstance(code, int) else int(code is not None)), captured.out, captured.err

    return call


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("L=3", ("L", 3)),
        ("r2_dual_acc", ("r2_dual_acc", True)),
        ("r2_dual_acc=off", ("r2_dual_acc", False)),
        ("control_engine = True", ("control_engine", True)),
        ("profile=ideal", ("profile", "ideal")),
        ("eps=0.5", ("eps", 0.5)),
        ("x=[1]", ("x", "[1]")),
    ],
)
def test_a_setting(text: str, pair: tuple[str, Setting]) -> None:
    found = parse_setting(text)
    assert found == pair
    assert type(found[1]) is type(pair[1])


@pytest.mark.parametrize("text", ["", "=3", "L=", "2L=3", "a b"])
def test_no_setting(text: str) -> None:
    with pytest.raises(Refusal, match="a change is name=value, or the name of a feature"):
        parse_setting(text)


def test_variants_and_sweeps() -> None:
    assert parse_changes("clusters=12, L=3,r2_bank_plan") == {"clusters": 12, "L": 3, "r2_bank_plan": True}
    assert parse_sweep("L=3,10") == [{"L": 3}, {"L": 10}]
    with pytest.raises(Refusal, match="a variant changes a name once"):
        parse_changes("L=3,L=4")
    with pytest.raises(Refusal, match="a sweep is name=value,value"):
        parse_sweep("L")
    assert combined({}) == []
    assert combined({"L": 3}) == [{"L": 3}]
    assert combined({"L": 3}, [{"cores": 2}, {"L": 4}]) == [{"L": 3}, {"L": 3, "cores": 2}, {"L": 4}]
    two = [[{"L": 3}, {"L": 4}], [{"cores": 1}, {"cores": 2}]]
    assert [spelt(c) for c in combined({"r2_bank_plan": True}, sweeps=two)] == [
        "r2_bank_plan, L=3, cores=1",
        "r2_bank_plan, L=3, cores=2",
        "r2_bank_plan, L=4, cores=1",
        "r2_bank_plan, L=4, cores=2",
    ]


def test_a_machine_with_changes() -> None:
    made, rest = varied(SHIP, {"clusters": 8, "L": 3, "inst_fifo": 64, "r2_bank_plan": True, "gm": 8}, SIZES, sized)
    assert made.name == "ship_3x2 with clusters=8, L=3, inst_fifo=64, r2_bank_plan"
    assert rest == {"gm": 8}
    assert (len(made.units_of("MG")), made.timing["L"], made.timing.tag("L")) == (8, 3, "A")
    assert (made.params["inst_fifo"], made.features["r2_bank_plan"]) == (64, True)
    assert varied(SHIP, {"gm": 8}, SIZES, sized) == (SHIP, {"gm": 8})
    ideal, _ = varied(SHIP, {"profile": "ideal"}, SIZES, sized)
    assert ideal.timing["vset"] == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clusters": 99}, "a mesh of 4 rows of 14 routers holds it; got 99"),
        ({"clusters": True}, "a size is a whole number; got True"),
        ({"tiles": 513}, r"out of range; got 513; the limit is 1\.\.512"),
        ({"r2_bank_plan": 1}, "must be true or false"),
        ({"L": -1}, "out of range; got -1"),
        ({"profile": "rlt"}, "did you mean 'rtl'"),
        ({"vlanes": 32}, "out of range; got 32; the limit is 16"),
    ],
)
def test_machines_that_cannot_be(changes: dict[str, Setting], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        varied(SHIP, changes, SIZES, sized)


def fake(machine: Machine, knobs: Mapping[str, Setting]) -> Outcome:
    """A unit that works a third of the time and a port that works the whole time; latency makes it long."""
    if machine.features["r2_dual_acc"]:
        raise Unsupported("the feature has no model", where="here", source=SourceLine("a.py", 3, "y = f(x)"))
    t = Timeline("work", machine.name, machine.params.clock_mhz, ("work", SERVE, "wait"), ("work", SERVE))
    t.cycles = 100 * machine.timing["L"]
    unit, port = t.track("MG(1,1)"), t.track("port 0")
    t.spans = [
        Span(unit, 0, t.cycles // 3, "work", "GEMM"),
        Span(port, 0, t.cycles, SERVE, "read"),
        Span(unit, t.cycles // 2, t.cycles, "wait", "FILL", "port 0"),
    ]
    t.stages.append(Stage("stage 0", 0, t.cycles, 1, macs=300_000, nbytes=4096))
    t.peaks["MAC/cycle"] = 512 * len(machine.units_of("MG"))
    t.assumed = (f"L = {machine.timing['L']}",)
    lines = [f"  part {n} of {len(machine.units_of('MG'))}" for n in range(2 * int(knobs.get("gm", 1)))]
    return Outcome(t, "\n".join([f"schedule work on {machine.name}", "  grid 4x2", *lines]), 1 << 20)


def test_the_table() -> None:
    variants: list[Mapping[str, Setting]] = [
        {"L": 10},
        {"clusters": 8},
        {"clock_mhz": 600},
        {"r2_dual_acc": True},
        {"gm": 8, "cores": 3},
        {"gm": 8, "L": 20},
    ]
    found = compare("work", SHIP, variants, fake, sizes=SIZES, sized=sized, knobs=("gm",))
    assert (
        found.text()
        == """\
work on ship_3x2 and 6 variants (modelled, not measured)
variant        stages  cycles    us  ratio  limiter      waits for  moved B    needs B   use  schedule
as it is            1   3,000  10.0  1.000  port 0 100%  port 0       4,096  1,048,576  3.3%
L=10                1   1,000   3.3  0.333  port 0 100%  port 0       4,096  1,048,576  9.8%  the same
clusters=8          1   3,000  10.0  1.000  port 0 100%  port 0       4,096  1,048,576  2.4%  4 lines other
clock_mhz=600       1   3,000   5.0  0.500  port 0 100%  port 0       4,096  1,048,576  3.3%  the same
r2_dual_acc    refused: here: the feature has no model at a.py:3: y = f(x)
gm=8, cores=3       1   3,000  10.0  1.000  port 0 100%  port 0       4,096  1,048,576  3.3%  14 lines other
gm=8, L=20          1   2,000   6.7  0.667  port 0 100%  port 0       4,096  1,048,576  4.9%  14 lines other

schedule with clusters=8
  - part 0 of 6
  - part 1 of 6
  + part 0 of 8
  + part 1 of 8

schedule with gm=8, cores=3; gm=8, L=20
  + part 2 of 6
  + part 3 of 6
  + part 4 of 6
  + part 5 of 6
  + part 6 of 6
  + part 7 of 6
  + part 8 of 6
  + part 9 of 6
  + part 10 of 6
  + part 11 of 6
  + part 12 of 6
  + part 13 of 6
  and 2 more lines

assumed where no variant says otherwise: L = 30"""
    )


def test_the_record() -> None:
    found = compare("work", SHIP, [{"L": 10}, {"r2_dual_acc": True}], fake)
    record: Any = json.loads(json.dumps(found.record()))
    assert (record["work"], record["machine"], record["kind"]) == ("work", "ship_3x2", "modelled")
    base, fast, refused = record["rows"]
    assert base["changes"] == {}
    assert fast == {
        "label": "L=10",
        "changes": {"L": 10},
        "machine": "ship_3x2 with L=10",
        "stages": 1,
        "cycles": 1000,
        "seconds": pytest.approx(1000 / 300e6),
        "ratio": pytest.approx(1 / 3),
        "limiter": {"name": "port 0", "full": 1.0},
        "waits": {"port 0": 500},
        "bytes_moved": 4096,
        "footprint": 1 << 20,
        "utilisation": pytest.approx(300_000 / 3072 / 1000),
        "schedule": [],
    }
    assert refused["refused"] == {"type": "Unsupported", "rule": "the feature has no model", "where": "here"}


def test_a_base_that_is_refused_leaves_the_variants() -> None:
    base = SHIP.with_(features={"r2_dual_acc": True})
    found = compare("work", base, [{"r2_dual_acc": False}], fake)
    assert found.rows[0].refusal
    assert found.rows[1].cycles == 3000
    assert found.ratio(found.rows[1]) is None
    assert "as it is           refused: here" in found.text()
    assert found.text().splitlines()[3].split()[4] == "-"


def test_an_unknown_name_is_refused_before_anything_is_timed() -> None:
    def never(machine: Machine, knobs: Mapping[str, Setting]) -> Outcome:
        raise AssertionError("it was timed")

    for name, near in [("clustres", "clusters"), ("inst_fif", "inst_fifo"), ("r2_dual_ac", "r2_dual_acc")]:
        with pytest.raises(DefinitionError, match=f"did you mean '{near}'"):
            compare("work", SHIP, [{name: 3}], never, sizes=SIZES, sized=sized)
    with pytest.raises(DefinitionError, match="a change is of a size, param, timing value, feature or knob"):
        compare("work", SHIP, [{"gm": 3}], never, sizes=SIZES, sized=sized)
    found = compare("work", SHIP, [{"clusters": 3}], fake, sizes=SIZES)
    assert "this machine has one size" in str(found.rows[1].refusal)


# with the machine's own compiler and clock


def test_a_kernel_from_python() -> None:
    before = device.default()
    found = whatif(
        kernels.matmul,
        (64, 64),
        (64, 64),
        machine="mini",
        variants=["L=3", {"clusters": 4}, "gm=4", "imem=256"],
    )
    assert device.default() is before
    base, fast, wide, tile, unmodelled = found.rows
    assert found.work == "matmul 64x64 64x64"
    assert fast.cycles is not None
    assert base.cycles is not None
    assert fast.cycles < base.cycles
    assert found.changed(fast) == []
    assert wide.outcome
    assert wide.outcome.timeline.machine == "mini with clusters=4"
    assert any(line.startswith("+ ") and "tile 4x" in line for line in found.changed(tile))
    assert base.outcome
    assert base.outcome.footprint == 2 * 64 * 64 + 64 * 64 * 2  # operands come quantised, the result is FP16
    assert "the vector core model has imem = 512" in str(unmodelled.refusal)


def test_knobs_are_a_kernels_keywords() -> None:
    assert {"gm", "gn", "nk"} <= set(knobs_of(kernels.matmul))
    found = whatif(kernels.matmul, (64, 64), (64, 64), machine="mini", variants=["gm=8"], gm=4)
    assert found.changed(found.rows[1])
    with pytest.raises(DefinitionError, match="did you mean 'gm'"):
        whatif(kernels.matmul, (64, 64), (64, 64), machine="mini", variants=["gmm=8"])


def test_a_function_runs_on_every_machine() -> None:
    from kohakutpu import api as ktpu

    seen: list[str] = []

    def program() -> None:
        seen.append(ktpu.device().machine.name)
        x = ktpu.ones((16, 32))
        ktpu.silu(x @ x)

    found = whatif(program, machine="mini", variants=["L=3", "clusters=2"])
    assert seen == ["mini", "mini with L=3", "mini with clusters=2"]
    assert found.work == "program"
    assert [row.refusal for row in found.rows] == [None] * 3
    assert "silu" in (found.rows[0].outcome.schedule if found.rows[0].outcome else "")
    idle = whatif(lambda: None, machine="mini", variants=[])
    assert "a program runs something on the default device" in str(idle.rows[0].refusal)
    with pytest.raises(Refusal, match="no shapes and no knobs"):
        whatif(program, (3, 4), variants=[])


TARGET = ("whatif", "kohakutpu.kernels:matmul", "64x64", "64x64", "--machine", "mini")


def test_the_command(kohaku: Kohaku) -> None:
    code, out, _ = kohaku(
        *TARGET, "--set", "L=3", "--feature", "r2_bank_plan", "--variant", "cores=2", "--knob", "gm=4"
    )
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "matmul 64x64 64x64 gm=4 on mini and 2 variants (modelled, not measured)"
    assert [line.split("  ")[0] for line in lines[2:5]] == [
        "as it is",
        "L=3, r2_bank_plan",
        "L=3, r2_bank_plan, cores=2",
    ]


def test_the_command_as_json(kohaku: Kohaku) -> None:
    code, out, _ = kohaku(*TARGET, "--sweep", "L=3,30", "--sweep", "clusters=1,2", "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert [row["label"] for row in rows[1:]] == [
        "L=3, clusters=1",
        "L=3, clusters=2",
        "L=30, clusters=1",
        "L=30, clusters=2",
    ]
    assert rows[3]["cycles"] == rows[0]["cycles"]


def test_a_script_is_timed_as_it_runs(kohaku: Kohaku, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "from kohakutpu import api as ktpu\nprint('loud')\nx = ktpu.ones((16, 32))\n(x @ x).numpy()\nraise SystemExit\n"
    )
    code, out, _ = kohaku("whatif", str(path), "--machine", "mini", "--set", "L=3")
    assert code == 0
    assert "loud" not in out
    assert out.startswith("program.py on mini and 1 variant (")
    assert "L=3" in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((*TARGET, "--set", "clustres=3"), "did you mean 'clusters'"),
        ((*TARGET, "--set", "L"), "must be a whole number"),
        ((*TARGET, "--feature", "r2_dual_acc=off"), "a feature is named, and switched on"),
        ((*TARGET[:4], "--machine", "minni"), "did you mean 'mini'"),
        (("whatif", "nowhere.py"), "a program to time is an existing file"),
        (("whatif", __file__, "--knob", "gm=3"), "knobs are a kernel's"),
        (("whatif", "kohakutpu.kernels:matmull", "8x8"), "Did you mean 'matmul'"),
    ],
)
def test_wrong_words(kohaku: Kohaku, words: tuple[str, ...], text: str) -> None:
    code, out, err = kohaku(*words)
    assert "Traceback" not in err
    assert text in out + err
    assert code == (0 if "L" in words else 2)


def test_nothing_that_could_be_timed_is_a_failure(kohaku: Kohaku) -> None:
    code, out, _ = kohaku("whatif", "kohakutpu.kernels:matmul", "64x64", "--machine", "mini", "--set", "L=3")
    assert code == 2
    assert out.count("refused: kernel matmul: a call passes one tensor per In port") == 2
