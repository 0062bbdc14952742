"""The `kohaku` command as a person uses it: output, exit codes, and errors as messages rather than
tracebacks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohakuaccel.cli import main
from kohakuaccel.diagnostics import Refusal
from kohakutpu import api as ktpu

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "kohakutpu"
Kohaku = Callable[..., tuple[int, str, str]]

PROGRAM = """
import sys
import numpy as np
from kohakutpu import api as ktpu

x = ktpu.tensor(np.full((8, 32), 15))
print("corner", (x @ x).numpy()[0, 0].item(), "on", x.device.machine.name, sys.argv[1:])
"""


@pytest.fixture
def kohaku(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Kohaku]:
    """Call the command in this process; the default machine is put back afterwards."""

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kohaku", *words])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        code = left.value.code
        return (code if isinstance(code, int) else int(code is not None)), captured.out, captured.err

    yield call
    ktpu.use("ship_3x2")


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def test_help_is_quick_and_loads_no_arrays() -> None:
    code = (
        "import sys\nfrom kohakuaccel.cli import main\nsys.argv = ['kohaku', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('numpy', 'numba', 'kohakutpu') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for word in ("run", "plan", "disasm", "doctor"):
        assert word in done.stdout


def test_run_prints_the_program_and_its_cost(kohaku: Kohaku, program: str) -> None:
    code, out, _ = kohaku("run", program, "--machine", "mini", "one", "--two")
    assert code == 0
    assert "corner 7200.0 on mini ['one', '--two']" in out
    assert "what the run cost" in out
    assert "rounds" in out
    assert "simulated machine" in out


def test_a_program_that_computes_nothing_has_no_cost(kohaku: Kohaku, tmp_path: Path) -> None:
    path = tmp_path / "idle.py"
    path.write_text("from kohakutpu import api as ktpu\nktpu.reset_stats()\nprint(ktpu.zeros(3).shape)\n")
    code, out, _ = kohaku("run", str(path))
    assert code == 0
    assert "what the run cost" not in out


def test_run_without_stats(kohaku: Kohaku, program: str) -> None:
    code, out, _ = kohaku("run", "--no-stats", program)
    assert (code, out) == (0, "corner 7200.0 on ship_3x2 []\n")


def test_run_leaves_the_process_as_it_was(kohaku: Kohaku, program: str) -> None:
    before = list(sys.path)
    kohaku("run", program, "word")
    assert sys.path == before


def test_a_refusal_is_a_message_with_the_users_line(kohaku: Kohaku, tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("from kohakutpu import api as ktpu\n\nx = ktpu.zeros((4, 32)) @ ktpu.zeros((4, 64))\n")
    code, _, err = kohaku("run", str(path))
    assert code == 2
    assert "Traceback" not in err
    assert "Refusal: " in err
    assert "wrong.py:3: x = ktpu.zeros((4, 32)) @ ktpu.zeros((4, 64))" in err


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["kohaku", "--debug", "run", "nowhere.py"])
    with pytest.raises(Refusal, match="a program to run is an existing file"):
        main()


def test_the_programs_own_errors_are_not_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("1 / 0\n")
    monkeypatch.setattr(sys, "argv", ["kohaku", "run", str(path)])
    with pytest.raises(ZeroDivisionError):
        main()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("run", "nowhere.py"), "a program to run is an existing file; got nowhere.py"),
        (("run", __file__, "--machine", "minni"), "did you mean 'mini'"),
        (("plan", "nowhere.py"), "a script is an existing file"),
        (("plan", "kohakutpu.kernels:matmul", "8xx8"), "a shape is sizes joined by x"),
        (("plan", "kohakutpu.kernels:matmul", "8x32"), "a call passes one tensor per In port"),
        (("plan", "kohakutpu.kernels:matmul", "0x32", "8x32"), "a kernel works on at least one element"),
        (("plan", "kohakutpu.kernels:softmax", "0x3"), "a kernel works on at least one element"),
        (("plan", "kohakutpu.kernels:silu", "8", "--set", "size=3"), "a knob is a keyword parameter of the kernel"),
        (("disasm", "nowhere.npz"), "an image is an existing file"),
        (("disasm", "nowhere.npz", "8x8"), "an image is compiled already"),
        (("doctor", "--machine", "minni"), "did you mean 'mini'"),
    ],
)
def test_wrong_words(kohaku: Kohaku, words: tuple[str, ...], text: str) -> None:
    code, _, err = kohaku(*words)
    assert code == 2
    assert "Traceback" not in err
    assert text in err


def test_plan_prints_without_running(kohaku: Kohaku) -> None:
    target = f"{EXAMPLES / '02_kernel.py'}:matmul"
    code, out, _ = kohaku("plan", target, "64x64", "32x64", "--set", "gm=8", "--set", "gn=4")
    assert code == 0
    assert "stage" in out
    assert "matmul" in out
    assert "another split" not in out  # printed by the example's main part


def test_disasm_of_a_kernel_and_of_its_saved_image_agree(kohaku: Kohaku, tmp_path: Path) -> None:
    words = (f"{EXAMPLES / '02_kernel.py'}:matmul", "64x64", "32x64")
    code, from_kernel, _ = kohaku("disasm", *words)
    assert code == 0
    for word in ("FILL", "GEMM", "DRAIN"):
        assert word in from_kernel
    path = tmp_path / "matmul.npz"
    code, out, _ = kohaku("plan", *words, "--save", str(path))
    assert code == 0
    assert f"image for ship_3x2 written to {path}" in out
    code, from_file, _ = kohaku("disasm", str(path))
    assert (code, from_file) == (0, from_kernel)


def test_disasm_can_be_kept_short(kohaku: Kohaku) -> None:
    words = ("disasm", f"{EXAMPLES / '02_kernel.py'}:matmul", "64x64", "32x64")
    whole, short = kohaku(*words)[1], kohaku(*words, "--limit", "2")[1]
    assert "more" in short
    assert len(short) < len(whole)


def test_disasm_of_an_image_for_an_unknown_machine(kohaku: Kohaku, tmp_path: Path) -> None:
    from kohakuaccel.image import Image, save

    path = tmp_path / "foreign.npz"
    save(Image("mine", ()), path)
    code, _, err = kohaku("disasm", str(path))
    assert code == 2
    assert "got 'mine'" in err
    assert "--machine FILE.toml" in err
    assert kohaku("disasm", str(path), "--machine", "mini")[0] == 0


def test_a_file_that_is_no_image(kohaku: Kohaku, tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    path.write_bytes(b"not an archive")
    code, _, err = kohaku("disasm", str(path))
    assert code == 2
    assert "not an image file" in err
    assert "pickle" not in err


def test_a_machine_of_ones_own(kohaku: Kohaku, program: str, tmp_path: Path) -> None:
    preset = ROOT / "src" / "kohakutpu" / "machines" / "mini.toml"
    path = tmp_path / "mine.toml"
    path.write_text(preset.read_text().replace('name = "mini"', 'name = "mine"'))
    code, out, _ = kohaku("run", program, "--machine", str(path))
    assert code == 0
    assert "on mine" in out


def test_doctor_reports_and_tries(kohaku: Kohaku) -> None:
    code, out, _ = kohaku("doctor", "--machine", "mini")
    assert code == 0
    for word in ("python", "numba", "cores", "folder", "ship_3x2", "multimesh_4", "6 MG + 4 VC", "bit-exact"):
        assert word in out


def test_doctor_fails_when_the_trial_is_wrong(kohaku: Kohaku, monkeypatch: pytest.MonkeyPatch) -> None:
    from kohakutpu import commands

    def wrong(machine: object) -> tuple[bool, str]:
        return False, "a trial"

    monkeypatch.setattr(commands, "smoke", wrong)
    code, out, _ = kohaku("doctor")
    assert code == 1
    assert "WRONG" in out


def test_doctor_without_a_trial_compiles_nothing(kohaku: Kohaku, monkeypatch: pytest.MonkeyPatch) -> None:
    from kohakutpu import commands

    def never(machine: object) -> tuple[bool, str]:
        raise AssertionError("the trial ran")

    monkeypatch.setattr(commands, "smoke", never)
    assert kohaku("doctor", "--no-smoke")[0] == 0


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kohakuaccel.cli", "run", "nowhere.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Refusal: ")
