"""The `tinytpu` command as a person uses it, and what the `kohaku` command says of this machine."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohakuaccel.cli import main as kohaku_main
from kohakuaccel.diagnostics import Unsupported
from kohakuaccel.sim import Timeline
from tinytpu import cli, commands, machines
from tinytpu.machines import choice
from tinytpu.trace import parse

PROGRAM = """WMEM[0] = 1 0 0 0  0 1 0 0  0 0 1 0  0 0 0 1
AMEM[0] = 1 2 3 -4
MXU WMEM[0], AMEM[0], tiles=1
HALT
OUTPUT_MXU
END
"""
NUMBERS = "0 0 1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1\n1 0 1 2 3 -4\n2 4 0 0 0 0 0 0 0 1\n2 7 0 0 0 0 0 0 0 0\n3 1\n4\n"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tinytpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*words: str, main: Callable[[], None] = cli.main) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tinytpu", *words])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        code = left.value.code
        return (code if isinstance(code, int) else int(code is not None)), captured.out, captured.err

    return call


@pytest.fixture(autouse=True)
def _machine_is_put_back() -> Iterator[None]:
    with choice.choosing(machines.load()):
        yield


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "p.tasm"
    path.write_text(PROGRAM)
    return path


def test_assemble_and_disassemble(tinytpu: Command, program: Path, tmp_path: Path) -> None:
    assert tinytpu("asm", str(program)) == (0, NUMBERS, "")
    bundle = tmp_path / "p.bundle"
    assert tinytpu("asm", str(program), "-o", str(bundle)) == (0, "", "")
    assert bundle.read_text() == NUMBERS
    assert tinytpu("disasm", str(bundle)) == (0, PROGRAM, "")


def test_a_bundle_with_an_unknown_opcode_still_prints(tinytpu: Command, tmp_path: Path) -> None:
    bundle = tmp_path / "p.bundle"
    bundle.write_text("2 47 1 2 3 4 5 6 7 8 4")
    assert tinytpu("disasm", str(bundle)) == (0, ".word 47 1 2 3 4 5 6 7 8\nEND\n", "")
    code, out, err = tinytpu("asm", str(bundle))
    assert (code, out) == (2, "")
    assert "line 1: pc 0, op 47: no such opcode; got 47; the limit is 46" in err


def test_run(tinytpu: Command, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = "mxu_result 1 2 3 -4\ncycles 24\nstatus ok\n"
    assert tinytpu("run", str(program)) == (0, result, "")
    code, out, err = tinytpu("run", str(program), "--stats")
    assert (code, out) == (0, result)
    assert re.search(r"^execute cycles +3$", err, re.MULTILINE)
    monkeypatch.setenv("TINYTPU_BUNDLE", str(program))
    assert tinytpu("run") == (0, result, "")


def test_run_remarks_and_faults(tinytpu: Command, tmp_path: Path) -> None:
    path = tmp_path / "p.tasm"
    path.write_text("STORE VMEM[0], v3\nHALT\nOUTPUT_VMEM VMEM[0]\nEND\n")
    code, out, err = tinytpu("run", str(path))
    assert (code, out) == (0, "vmem_result" + " 0" * 16 + "\ncycles 14\nstatus ok\n")
    assert "warning: pc 0: v3 is read before anything wrote it" in err
    path.write_text("# nothing dispatched\nWAIT_MXU\nHALT\nEND\n")
    code, out, err = tinytpu("run", str(path))
    assert (code, out) == (2, "")
    assert err.startswith("Fault: line 2: ")
    assert "WAIT_MXU" in err


def test_silicon_wraps_what_is_refused_else(tinytpu: Command, tmp_path: Path) -> None:
    path = tmp_path / "p.bundle"
    path.write_text("5 33 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n2 7 0 0 0 0 0 0 0 0\n6 1\n4\n")
    code, _, err = tinytpu("run", str(path))
    assert code == 2
    assert "VMEM[33]: the address lies beyond VMEM; got 33; the limit is 0..31" in err
    code, out, _ = tinytpu("run", str(path), "--silicon")
    assert code == 0
    assert out.startswith("vmem_result 1 2 3 4 5")


def test_trace(tinytpu: Command, program: Path, tmp_path: Path) -> None:
    code, out, _ = tinytpu("trace", str(program))
    assert code == 0
    assert [event.ev for event in parse(out) if event.unit == "SXU"] == ["FETCH", "DISPATCH_MXU", "FETCH", "HALT"]
    files = {name: tmp_path / f"t.{name}" for name in ("json", "html", "perfetto")}
    words = ["--save", str(files["json"]), "--html", str(files["html"]), "--perfetto", str(files["perfetto"])]
    code, out, _ = tinytpu("trace", str(program), "--report", *words)
    assert out.startswith("p on tinytpu_4x4: 24 cycles")
    assert Timeline.load(files["json"]).cycles == 24
    assert all(path.stat().st_size > 500 for path in files.values())


def test_opcodes_lists_all(tinytpu: Command) -> None:
    _, out, _ = tinytpu("opcodes")
    assert re.findall(r"^ {0,2}(\d+) ", out, re.MULTILINE) == [str(n) for n in range(47)]
    _, out, _ = tinytpu("opcodes", "--vpu")
    assert re.findall(r"^ {0,2}(\d+) ", out, re.MULTILINE) == [str(n) for n in range(86)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run",), "a program is named. Name a file, or set TINYTPU_BUNDLE"),
        (("run", "missing.tasm"), "a program is an existing file; got missing.tasm"),
        (("asm", "missing.tasm", "-m", "mini"), "the machine is a TinyTPU; got mini, of the family kohakutpu"),
        (("asm", "missing.tasm", "-m", "tinytpu_4x5"), "no machine 'tinytpu_4x5'; did you mean 'tinytpu_4x4'"),
    ],
)
def test_refusals(tinytpu: Command, words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINYTPU_BUNDLE", raising=False)
    code, out, err = tinytpu(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_doctor_knows_the_machine(tinytpu: Command) -> None:
    code, out, _ = tinytpu("doctor", "--machine", "tinytpu_8x8", main=kohaku_main)
    assert code == 0
    assert re.search(r"tinytpu_4x4 +1 CORE +on chip +16 MAC/cycle of int8", out)
    assert "trial on tinytpu_8x8: 2x8 @ 8x8 of int8 in 63 cycles: bit-exact" in out


def kohaku(tinytpu: Command, *words: str) -> tuple[int, str, str]:
    return tinytpu(*words, main=kohaku_main)


def test_kohaku_runs_and_times_a_program_file(tinytpu: Command, program: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    code, out, _ = kohaku(tinytpu, "run", str(program), "--machine", "tinytpu_4x4", "--time", str(file))
    assert code == 0
    assert out.startswith("mxu_result 1 2 3 -4\ncycles 24\nstatus ok\n")
    assert re.search(r"^p +1 +24 +100\.0%", out, re.MULTILINE)
    assert Timeline.load(file).cycles == 24
    code, _, err = kohaku(tinytpu, "run", str(program))
    assert (code, "--machine names another" in err) == (2, True)


def test_kohaku_plans_and_lists_kernels_and_program_files(tinytpu: Command, program: Path) -> None:
    on = ("--machine", "tinytpu_8x8")
    code, out, _ = kohaku(tinytpu, "plan", "tinytpu.kernels:linear", "8x8", "8x8", "8", *on)
    assert (code, out.splitlines()[0]) == (0, "schedule linear on tinytpu_8x8")
    assert out.splitlines()[1].startswith("p, o: 1 programs, ")
    code, out, _ = kohaku(tinytpu, "plan", str(program), "--machine", "tinytpu_4x4")
    assert out.splitlines()[1] == (
        "2 instructions; loads 1 to WMEM, 1 to AMEM; 24 cycles: load 13, execute 3, output 8"
    )
    code, out, _ = kohaku(tinytpu, "disasm", str(program), "--machine", "tinytpu_4x4", "--limit", "2")
    assert out == "WMEM[0] = 1 0 0 0  0 1 0 0  0 0 1 0  0 0 0 1\nAMEM[0] = 1 2 3 -4\n"
    code, out, _ = kohaku(tinytpu, "disasm", "tinytpu.kernels:relu", "4x4", "--machine", "tinytpu_4x4")
    assert out.startswith("# o: 1 times, ")
    assert {"LOAD v0, VMEM[0]", "HALT", "END"} <= set(out.splitlines())


WRONG: dict[tuple[str, ...], str] = {
    ("tinytpu.kernels:matmul", "4x4", "5x4"): "matmul takes MxK and KxN; got 4x4 5x4",
    ("tinytpu.kernels:matmul", "4x4"): "matmul takes MxK and KxN; got 1 shapes",
    ("tinytpu.kernels:add", "4x4", "4x5"): "add takes MxN twice",
    ("tinytpu.kernels:linear", "4x4", "4x4", "5"): "linear takes MxK, KxN and N",
    ("tinytpu.kernels:sum_256", "4x4"): "a program has its own shapes",
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_shapes_are_refused(tinytpu: Command, words: tuple[str, ...]) -> None:
    code, _, err = kohaku(tinytpu, "plan", *words, "--machine", "tinytpu_4x4")
    assert code == 2
    assert WRONG[words] in err


def test_an_image_is_refused(tinytpu: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tinytpu.tinygrad.counting", raising=False)
    words = ("plan", "tinytpu.kernels:relu", "4x4", "--machine", "tinytpu_4x4", "--save", str(tmp_path / "a.npz"))
    code, _, err = kohaku(tinytpu, *words)
    assert code == 2
    assert "an image is saved of a machine that has them" in err
    with pytest.raises(Unsupported, match="an image is of a machine that has them"):
        commands.image_text(None)  # pyright: ignore[reportArgumentType] - refused before it is looked at
    assert commands.stats() == {}


def test_what_if_the_machine_were_another(tinytpu: Command, program: Path, tmp_path: Path) -> None:
    on = ("--machine", "tinytpu_4x4")
    code, out, _ = kohaku(tinytpu, "whatif", "tinytpu.kernels:softmax", "4x8", *on, "--sweep", "vregs=6,16", "--json")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert [row["label"] for row in rows] == ["as it is", "vregs=6", "vregs=16"]
    assert rows[1]["cycles"] > rows[0]["cycles"] == rows[2]["cycles"]
    code, out, _ = kohaku(
        tinytpu, "whatif", str(program), *on, "--variant", "record=1", "--variant", "rows=8", "--json"
    )
    rows = json.loads(out)["rows"]
    assert [row.get("cycles") for row in rows] == [24, 19, None]
    assert "square" in rows[2]["refused"]["rule"]
    script = tmp_path / "s.py"
    script.write_text(
        "from tinytpu import kernels, machines, runner\n"
        "from tinytpu.machines.choice import chosen\n"
        "plan = kernels.matmul.plan((4, 4), (4, 4))\nplan.played()\n"
        "runner.run(kernels.known()['sum_16'].read(chosen()), chosen())\n"
    )
    code, out, _ = kohaku(tinytpu, "whatif", str(script), *on, "--variant", "line=3", "--json")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert rows[1]["cycles"] > rows[0]["cycles"]
    assert machines.load() == choice.chosen()
    script.write_text(script.read_text().replace("chosen()", "machines.load()"))
    code, out, _ = kohaku(tinytpu, "whatif", str(script), *on, "--variant", "line=3")
    assert "a program that is compared runs on the chosen machine; got tinytpu_4x4" in out
    assert choice.chosen() == machines.load()


def test_a_history_of_the_benchmark(tinytpu: Command, tmp_path: Path) -> None:
    file = tmp_path / "history"
    code, _, err = tinytpu("bench", "sum_16", "--history", str(file))
    assert (code, err) == (0, "history: this is the first run\n")
    before = json.loads(file.read_text())
    assert before["cycles"] == {"sum_16 published": 26, "sum_16 best": 26}
    file.write_text(json.dumps({"at": "some day", "cycles": {**before["cycles"], "sum_16 best": 52}}) + "\n")
    _, _, err = tinytpu("bench", "sum_16", "gemm_1x4x4", "--history", str(file))
    assert err.splitlines() == [
        "history: 2 programs as on some day, 1 other, 2 new",
        "  sum_16 best: 52 to 26, 0.500 of it",
    ]
    assert len(file.read_text().splitlines()) == 2
    for wrong in ("no history", "[]", '{"at": 1}'):
        file.write_text(f"{before}\n{wrong}\n")
        code, _, err = tinytpu("bench", "sum_16", "--history", str(file))
        assert code == 2
        assert "a line of a history is a measurement" in err
        assert f"{file}:2" in err
