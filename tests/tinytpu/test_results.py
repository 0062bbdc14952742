"""Result lines, strictly read, and bundles on another simulator."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kohakuaccel.diagnostics import Fault, KohakuError, Refusal
from tinytpu import cli, machines
from tinytpu.asm import assemble
from tinytpu.results import Results, parse
from tinytpu.runner import run, simulate

M = machines.load()
TILE = " ".join(map(str, range(-8, 8)))
GOOD = f"mxu_result 1 2 3 -4\nvmem_result {TILE}\nvmem_result {TILE}\nasram_result 1 2 3 4\ncycles 24\nstatus ok\n"
PROGRAM = f"VMEM[0] = {TILE}\nVMOV v1, v2\nHALT\nOUTPUT_VMEM VMEM[0]\nEND"


def test_a_whole_answer() -> None:
    tile = tuple(range(-8, 8))
    assert parse(GOOD, M) == Results(24, (1, 2, 3, -4), [tile, tile], [(1, 2, 3, 4)])
    assert parse("cycles 6\n\nstatus ok", M) == Results(6)
    done = run(assemble(PROGRAM, M), M)
    assert parse("\n".join(done.lines()), M) == Results(done.cycles, None, [tile], [])


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (GOOD.replace("3 -4\n", "3\n"), 1, "mxu_result is whole; got 3 values; the limit is 4"),
        (GOOD.replace("asram_result 1", "asram_result 1 1"), 4, "asram_result is whole; got 5 values; the limit is 4"),
        (GOOD.replace(TILE, f"{TILE} 8", 1), 2, "vmem_result is whole; got 17 values; the limit is 16"),
        (GOOD.replace("-4", "x"), 1, "a value of mxu_result is an integer; got 'x'"),
        (GOOD.replace("-4", "1.5"), 1, "a value of mxu_result is an integer; got '1.5'"),
        (GOOD.replace("cycles 24", "cycles"), 5, "cycles is whole; got 0 values"),
        (GOOD.replace("status ok", "status bad"), 6, "a run that worked ends with status ok; got 'bad'"),
        (GOOD.replace("mxu_result", "mxu_results"), 1, "no such result; got 'mxu_results'"),
        (GOOD + "cycles 24", 7, "nothing follows the status"),
        (GOOD.replace("cycles 24", "cycles 24\ncycles 25"), 6, "results come in one order; got cycles"),
        (GOOD.replace("cycles 24", f"vmem_result {TILE}\ncycles 24"), 5, "results come in one order; got vmem_result"),
        (GOOD.replace("status ok\n", ""), 5, "the answer holds no status ok; got 5 lines"),
        (GOOD.replace("cycles 24\n", ""), 5, "the answer holds no cycles"),
        ("", 0, "the answer holds no cycles; got 0 lines"),
    ],
)
def test_an_answer_that_is_none(text: str, line: int, message: str) -> None:
    with pytest.raises(Refusal, match=message) as caught:
        parse(text, M)
    assert caught.value.source is not None
    assert caught.value.source.line == line


@pytest.mark.parametrize("line", ["error line 3: timeout", "ERROR: line 3: timeout"])
def test_an_error_line_is_a_fault(line: str) -> None:
    with pytest.raises(Fault, match="line 2: line 3: timeout"):
        parse(f"cycles 3\n{line}", M)


def fake(folder: Path, body: str) -> str:
    script = folder / f"sim{len(list(folder.iterdir()))}.py"
    script.write_text(f"import os, sys\nbundle = open(os.environ['TINYTPU_BUNDLE']).read()\n{body}")
    return f"{sys.executable} {script}"


def test_another_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = assemble(PROGRAM, M)
    cycles = run(bundle, M).cycles
    answer = f"assert bundle.endswith('6 0\\n4\\n'); print('vmem_result {TILE}\\ncycles {cycles}\\nstatus ok')"
    right = fake(tmp_path, answer)
    assert simulate(bundle, M, right) == Results(cycles, None, [tuple(range(-8, 8))], [])
    program = tmp_path / "p.tasm"
    program.write_text(PROGRAM)
    monkeypatch.setattr(sys, "argv", ["tinytpu", "run", str(program), "--against"])
    for command, code in ((right, 0), (fake(tmp_path, answer.replace("-8", "9", 1)), 1)):
        monkeypatch.setenv("TINYTPU_SIM", command)
        with pytest.raises(SystemExit) as left:
            cli.main()
        assert left.value.code == code
        assert ("the results differ" in capsys.readouterr().err) == bool(code)
    monkeypatch.delenv("TINYTPU_SIM")
    with pytest.raises(SystemExit):
        cli.main()
    assert "Set TINYTPU_SIM to its command" in capsys.readouterr().err


def test_a_simulator_that_fails(tmp_path: Path) -> None:
    bundle = assemble(PROGRAM, M)
    cases: list[tuple[str, type[KohakuError], str]] = [
        (fake(tmp_path, "sys.exit('no such opcode')"), Fault, "no such opcode"),
        ("/nowhere/simulator", Refusal, "the simulator runs; got /nowhere/simulator"),
    ]
    for command, kind, message in cases:
        with pytest.raises(kind, match=message):
            simulate(bundle, M, command)
    with pytest.raises(Refusal, match=r"the simulator runs; .*timed out"):
        simulate(bundle, M, fake(tmp_path, "import time; time.sleep(20)"), timeout=0.2)


@pytest.mark.slow
def test_our_own_command_is_a_simulator() -> None:
    bundle = assemble(PROGRAM, M)
    done = run(bundle, M)
    assert simulate(bundle, M, f"{sys.executable} -m tinytpu run") == parse("\n".join(done.lines()), M)
