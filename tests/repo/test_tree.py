"""Rules that hold for every file of the repository: size, opening words, nothing of one person's machine."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES = 450
LONGER: dict[str, str] = {}
"""Python files that may pass LINES, each with its reason."""

TEXT = {".py", ".md", ".toml", ".lock", ".txt", ".cfg", ".yml", ".yaml", ".json", ".sh", ""}

# Built from halves, so that this file does not hold what it forbids.
FOREIGN = re.compile(
    "|".join(
        (
            r"(?<![\w.])/(?:wo" + r"rk|tm" + r"p|ro" + r"ot)/",
            r"(?<![\w)\]])\.lib" + r"rary\b",
            r"\bpy" + r"pi\.org|pythonho" + r"sted|npm" + r"js\.|deb" + r"ian\.org",
            r"(?i:\bcolle" + r"ague|\bcla" + r"ude\b|\banthr" + r"opic\b|\bthis sess" + r"ion\b)",
        )
    )
)
CODES = r"(?::\s*[A-Z]+\d+(?:\s*,\s*[A-Z]+\d+)*|\[[^\]]*\])?"
SILENCER = re.compile(r"#\s*(?:noqa|type:\s*ignore|pyright:\s*ignore)" + CODES + r"(?P<rest>.*)$")
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b|\braise NotImpl" + r"ementedError\b")
SKIPPED = re.compile(r"pytest\.(?:mark\.)?(?:sk" + r"ip|xf" + r"ail)\w*(?P<rest>.*)$")


def files() -> list[Path]:
    """What git tracks or would track."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted({ROOT / name for name in names if name and (ROOT / name).is_file()})


def texts() -> list[tuple[str, str]]:
    return [(str(p.relative_to(ROOT)), p.read_text()) for p in files() if p.suffix in TEXT]


def silenced(source: str) -> list[int]:
    """Lines that silence a checker and give no reason, on the line or in a comment just above."""
    lines = source.split("\n")
    bare: list[int] = []
    for number, line in enumerate(lines):
        found = SILENCER.search(line)
        above = lines[number - 1].strip() if number else ""
        if found and len(found["rest"].strip(" #-:")) < 3 and not above.startswith("#"):
            bare.append(number + 1)
    return bare


def test_no_trace_of_one_machine() -> None:
    found = [f"{name}: {hit[0]}" for name, text in texts() for hit in FOREIGN.finditer(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", ["see /wo" + "rk/main", "open('/tm" + "p/x')", "my colle" + "agues", "py" + "pi.org"])
def test_a_trace_is_found(text: str) -> None:
    assert FOREIGN.search(text)


@pytest.mark.parametrize(
    "text", ["a/work/b", "rootless", "compiled.lib" + "rary", "worktree", "$HOME/.cache", "dispatch agent"]
)
def test_plain_words_are_no_trace(text: str) -> None:
    assert not FOREIGN.search(text)


def test_files_stay_readable_in_one_sitting() -> None:
    sizes = {name: text.count("\n") for name, text in texts() if name.endswith(".py")}
    long = {name: size for name, size in sizes.items() if size > LINES and name not in LONGER}
    assert not long, f"split by what they decide, or give a reason in LONGER: {long}"
    stale = [name for name in LONGER if sizes.get(name, 0) <= LINES]
    assert not stale, f"no longer need their exception: {stale}"


def test_every_module_opens_with_what_it_decides() -> None:
    missing = [
        name
        for name, text in texts()
        if name.startswith(("src/", "benchmarks/", "examples/")) and name.endswith(".py") and text.strip()
        if len(ast.get_docstring(ast.parse(text)) or "") < 30
    ]
    assert not missing, missing


def test_every_silenced_check_has_a_reason() -> None:
    found = [f"{name}:{line}" for name, text in texts() if name.endswith(".py") for line in silenced(text)]
    assert not found, found


def test_a_bare_silencer_is_found() -> None:
    assert silenced("x = 1  # type: ig" + "nore[attr-defined]") == [1]
    assert silenced("x = 1  # no" + "qa: E501") == [1]
    assert not silenced("x = 1  # no" + "qa: E501 - a table reads better unbroken")
    assert not silenced("# numba gives no types\nx = 1  # type: ig" + "nore[attr-defined]")


def test_nothing_is_left_unfinished() -> None:
    found = [
        f"{name}: {hit[0]}"
        for name, text in texts()
        if name.startswith(("src/", "tests/", "benchmarks/", "examples/")) and name.endswith(".py")
        for hit in UNFINISHED.finditer(text)
    ]
    assert not found, found


def test_every_skip_has_a_reason() -> None:
    found = [
        f"{name}: {hit[0]}"
        for name, text in texts()
        if name.startswith("tests/") and name.endswith(".py") and name != "tests/repo/test_tree.py"
        for hit in SKIPPED.finditer(text)
        if "reason" not in hit["rest"] and '"' not in hit["rest"]
    ]
    assert not found, found
