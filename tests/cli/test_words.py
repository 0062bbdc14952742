"""How the `kohaku` command reads its words: shapes, options, targets, machines. Nothing is compiled here."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohakuaccel.cli.kernels import find_kernel, is_kernel, parse_option, parse_shape
from kohakuaccel.cli.packages import chosen, commands_of
from kohakuaccel.cli.running import flatten, line_of
from kohakuaccel.diagnostics import KohakuError, Refusal

KERNEL = """
class Kernel:
    def trace(self): ...
    def plan(self, *operands): ...
"""


@pytest.mark.parametrize(
    ("text", "shape"),
    [("8", (8,)), ("256x512", (256, 512)), ("2,3,5", (2, 3, 5)), ("scalar", ()), ("0x4", (0, 4))],
)
def test_a_shape(text: str, shape: tuple[int, ...]) -> None:
    assert parse_shape(text) == shape


@pytest.mark.parametrize("text", ["", "x", "8x", "-1", "8x-1", "3.5", "8 9", "1e3"])
def test_no_shape(text: str) -> None:
    with pytest.raises(Refusal, match="a shape is sizes joined by x"):
        parse_shape(text)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("gm=16", ("gm", 16)),
        ("causal=True", ("causal", True)),
        ("mode=fast", ("mode", "fast")),
        ("s=a=b", ("s", "a=b")),
    ],
)
def test_an_option(text: str, pair: tuple[str, object]) -> None:
    assert parse_option(text) == pair


@pytest.mark.parametrize("text", ["gm", "=3", "2gm=3", ""])
def test_no_option(text: str) -> None:
    with pytest.raises(Refusal, match="an option is name=value"):
        parse_option(text)


def script(folder: Path, text: str) -> str:
    path = folder / "program.py"
    path.write_text(text)
    return str(path)


def test_the_only_kernel_of_a_script_needs_no_name(tmp_path: Path) -> None:
    place = script(tmp_path, KERNEL + "silu = Kernel()\nother = 3\n")
    assert is_kernel(find_kernel(place))
    assert is_kernel(find_kernel(f"{place}:silu"))


def test_a_class_with_those_methods_is_no_kernel(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="Its kernels: none"):
        find_kernel(script(tmp_path, KERNEL))


def test_several_kernels_are_listed(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"Its kernels: matmul, silu; write .*program.py:NAME"):
        find_kernel(script(tmp_path, KERNEL + "matmul, silu = Kernel(), Kernel()\n"))


def test_a_misspelt_kernel_is_guessed(tmp_path: Path) -> None:
    place = script(tmp_path, KERNEL + "matmul, silu = Kernel(), Kernel()\n")
    with pytest.raises(Refusal, match=r"got 'mtmul'.*[Dd]id you mean 'matmul'"):
        find_kernel(f"{place}:mtmul")


def test_planning_does_not_run_the_main_part(tmp_path: Path) -> None:
    text = KERNEL + "silu = Kernel()\nif __name__ == '__main__':\n    raise SystemExit('ran')\n"
    assert is_kernel(find_kernel(script(tmp_path, text)))


def test_a_missing_script_or_module() -> None:
    with pytest.raises(Refusal, match="a script is an existing file"):
        find_kernel("nowhere.py:x")
    with pytest.raises(Refusal, match="a module can be imported"):
        find_kernel("kohakutpu.nowhere:x")


def test_an_error_inside_a_module_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_a_library.py").write_text("import a_library_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_library_nobody_has"):
        find_kernel("needs_a_library:x")


def test_the_default_machine() -> None:
    assert chosen(None).name == commands_of("kohakutpu").DEFAULT_MACHINE == "ship_3x2"
    assert chosen("mini").name == "mini"


def test_a_misspelt_machine_is_guessed() -> None:
    with pytest.raises(KohakuError, match=r"did you mean 'ship_3x2'"):
        chosen("ship3x2")
    with pytest.raises(KohakuError, match="cannot read the machine file"):
        chosen("nowhere.toml")


def test_peak_of_the_default_machine() -> None:
    # datasheet 1.1: 6 x 512 = 3072 MAC/cycle at 300 MHz
    assert commands_of("kohakutpu").peak(chosen(None)) == "3,072 MAC/cycle, 1,843 GFLOP/s at 300 MHz"


def test_nested_counters_become_dotted_names() -> None:
    counts = {"rounds": 2, "flits": {"FILL": 3, "GEMM": {"acc": 1}}}
    assert list(flatten(counts)) == [("rounds", 2), ("flits.FILL", 3), ("flits.GEMM.acc", 1)]


def test_the_innermost_line_of_the_script_is_named(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("def f():\n    raise KeyError(1)\n\nf()\n")
    with pytest.raises(KeyError) as caught:
        exec(compile(path.read_text(), str(path), "exec"), {})
    found = line_of(path, caught.value.__traceback__)
    assert found is not None
    assert (found.line, found.text) == (2, "raise KeyError(1)")
    assert line_of(tmp_path / "other.py", None) is None
