"""Documents are programs: every Python block and every `kohaku` and `tinytpu` line of the pages runs, and every
link leads somewhere.

Blocks of a page run top to bottom in one namespace. A block fenced as ```python no-run: reason is left
out.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kohakuaccel.cli import main as kohaku
from kohakutpu import api as ktpu
from tinytpu import machines
from tinytpu.cli import main as tinytpu
from tinytpu.machines import choice

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "examples" / "README.md", *(ROOT / "docs").rglob("*.md")])
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
SHORTENED = {"examples/tinygrad/10_digits_mlp.py": ("50",), "examples/tinygrad/11_digits_convnet.py": ("30",)}
"""Steps of trainings, which take minutes; `make bench` runs them whole."""
FENCE = re.compile(r"^```(?P<words>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = {"kohaku": kohaku, "tinytpu": tinytpu}
COMMAND = re.compile(rf"(?:\.venv/bin/)?(?:{'|'.join(COMMANDS)}) ")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    words: str
    body: str
    line: int


def blocks(text: str) -> list[Block]:
    return [
        Block(found["words"].strip(), found["body"], text.count("\n", 0, found.start("body")))
        for found in FENCE.finditer(text)
    ]


def runnable(block: Block) -> bool:
    """Whether a block is Python to run; leaving one out takes a reason."""
    words = block.words.split(maxsplit=1)
    if not words or words[0] != "python":
        return False
    if len(words) == 1:
        return True
    assert re.fullmatch(r"no-run: \S.{5,}", words[1]), f"line {block.line}: write ```python no-run: reason"
    return False


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(autouse=True)
def default_machines() -> Iterator[None]:
    yield
    ktpu.use("ship_3x2")
    choice.use(machines.load())


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_blocks_run(page: Path) -> None:
    space: dict[str, object] = {"__name__": "page"}
    for block in blocks(page.read_text()):
        if runnable(block):
            # Blank lines in front give the block its true line numbers in errors and plans.
            exec(compile("\n" * block.line + block.body, str(page), "exec"), space)


def command_lines(text: str) -> list[list[str]]:
    """The lines of a page's plain blocks that call a command of ours, as words."""
    lines = [line.strip() for block in blocks(text) if not block.words for line in block.body.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if COMMAND.match(line)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_command_lines_run(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a folder that holds what the repository holds, so that files which a line writes stay out of it."""
    for entry in ROOT.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    for words in command_lines(page.read_text()):
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as left:
            COMMANDS[Path(words[0]).name]()
        assert left.value.code in (None, 0), words


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if not target.startswith(("http:", "https:", "#")):
            assert (page.parent / target.split("#")[0]).exists(), f"{name_of(page)} links to {target}"


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / target.split("#")[0]).resolve() for target in LINK.findall(index.read_text())}
    missing = [name_of(page) for page in PAGES if page not in linked and page not in (index, ROOT / "README.md")]
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_examples_run(example: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(example), *SHORTENED.get(name_of(example), ())])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_every_example_is_listed(example: Path) -> None:
    listing = (ROOT / "examples" / "README.md").read_text()
    assert f"({example.relative_to(ROOT / 'examples')})" in listing


def test_fences_are_read_with_their_lines() -> None:
    found = blocks("one\n```python\nx = 1\n```\n\n```\nmake demo\n```\n```python no-run: needs a card\ny\n```\n")
    assert [(block.words, block.line) for block in found] == [
        ("python", 2),
        ("", 6),
        ("python no-run: needs a card", 9),
    ]
    assert [runnable(block) for block in found] == [True, False, False]
    with pytest.raises(AssertionError, match="no-run: reason"):
        runnable(Block("python no-run", "", 1))


def test_command_lines_are_found() -> None:
    text = "```\n.venv/bin/kohaku doctor  # versions\nmake demo\ntinytpu run a.tasm\n```\nkohaku is a word\n"
    assert command_lines(text) == [[".venv/bin/kohaku", "doctor"], ["tinytpu", "run", "a.tasm"]]
