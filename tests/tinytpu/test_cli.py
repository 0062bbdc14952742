"""The `tinytpu` command as a person uses it, and what the `kohaku` command says of this machine."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kohakuaccel.cli import main as kohaku_main
from kohakuaccel.diagnostics import Unsupported
from kohakuaccel.sim import Timeline
from tinytpu import cli, commands, machines
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


def test_what_needs_a_tensor_api_is_refused() -> None:
    machine = machines.load()
    for call in (
        lambda: commands.use(machine),
        lambda: commands.timed(lambda: None, "p"),
        lambda: commands.image_text(None),  # pyright: ignore[reportArgumentType] - refused before it is looked at
    ):
        with pytest.raises(Unsupported, match="takes a program of this machine"):
            call()
    assert commands.stats() == {}
