"""The coverage page: areas with their checks, laws, opcodes, and tinyspec's areas, all counted from the tests.

Decides what the page says and how it is counted. Counts of tests outside of the tables are rounded down, so that a new
test does not make the page wrong.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tinytpu.isa import SXU, VPU
from tinytpu_acceptance.areas import AREAS, LAWS, TABLES, Area
from tinytpu_acceptance.corpus import GRAPHS, UNIT, emitted
from tinytpu_acceptance.spec import SPEC
from tinytpu_acceptance.table import Check

FOLDER = Path(__file__).resolve().parents[1] / "tinytpu"
COMMAND = ".venv/bin/python scripts/tinytpu_coverage.py"


@cache
def module(file: str) -> ModuleType:
    """A test module of tests/tinytpu, under a name of its own."""
    name = f"tinytpu_coverage_of_{file.replace('/', '_').removesuffix('.py')}"
    spec = importlib.util.spec_from_file_location(name, FOLDER / file)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


def functions(reference: str) -> Iterator[Callable[..., Any]]:
    """The test functions that `file::name` names; all of a file for `*`. Raises AttributeError for one there is not."""
    file, _, name = reference.partition("::")
    held = module(file)
    if name != "*":
        yield getattr(held, name)
        return
    for key, value in vars(held).items():
        if key.startswith("test_") and callable(value):
            yield value


def cases(function: Any) -> int:
    """How many cases pytest makes of a function."""
    count = 1
    for mark in getattr(function, "pytestmark", ()):
        if mark.name == "parametrize":
            values = mark.args[1]
            count *= len(values if isinstance(values, Sized) else list(values))
    return count


def elsewhere(area: Area) -> int:
    """Cases of tests outside of the tables."""
    return sum(cases(function) for reference in area.tests for function in functions(reference))


def rows(area: Area) -> list[Check]:
    return [check for table in area.tables() for check in table.checks]


def rounded(count: int) -> str:
    return f"{count // 10 * 10}+" if count >= 10 else str(count) if count else ""


def table(head: str, lines: Iterable[Iterable[object]]) -> Iterator[str]:
    names = head.split("|")
    yield "| " + " | ".join(names) + " |"
    yield "|" + "|".join("--:" if name in ("asked", "rows", "tests", "open", "#") else "---" for name in names) + "|"
    for line in lines:
        yield "| " + " | ".join(str(cell) for cell in line) + " |"


def areas() -> Iterator[str]:
    lines: list[tuple[object, ...]] = []
    for area in AREAS:
        checks = rows(area)
        known = sum(1 for check in checks if check.open)
        lines.append((area.title, area.floor, len(checks) or "", rounded(elsewhere(area)), known or ""))
    total = sum(len(rows(area)) for area in AREAS)
    lines.append(("**all**", sum(area.floor for area in AREAS), total, "", ""))
    yield from table("area|asked|rows|tests|open", lines)
    known_wrong = [f"- {t.area}, {c.name}: {c.open}" for t in TABLES for c in t.checks if c.open]
    yield ""
    yield (
        "No row is open."
        if not known_wrong
        else "Open, that is known to be wrong today (the row fails when it is right):"
    )
    if known_wrong:
        yield ""
        yield from known_wrong


def laws() -> Iterator[str]:
    lines = []
    for number, (what, references) in LAWS.items():
        found = [name for reference in references for name in _names(reference)]
        lines.append((number, what, ", ".join(f"`{name}`" for name in found)))
    yield from table("#|law|tests that hold it", lines)


def _names(reference: str) -> list[str]:
    file, _, name = reference.partition("::")
    list(functions(reference))
    return [file if name == "*" else name]


def texts() -> list[str]:
    return [check.text for rows_of in TABLES for check in rows_of.checks if check.text]


def opcodes() -> Iterator[str]:
    stepped = module("units/test_differential.py")
    stated = {SXU(row[0]) for row in module("isa/test_golden_words.py").GOLDEN.values()}
    modelled = {*stepped.PLAIN, *stepped.ARRAY, SXU.LOOP_BEGIN, SXU.LOOP_END, SXU.HALT}
    lowered, _ = emitted()
    lines = [
        (int(op), op.name, yes(op in modelled), yes(op in stated), yes(op in lowered), used(rf"^(\w+: )?{op.name}\b"))
        for op in SXU
    ]
    yield from table("#|opcode|model|TASM|lowered|rows", lines)


def operations() -> Iterator[str]:
    names = set(re.findall(r"[A-Z]\w+", module("isa/test_golden_words.py").VPU_CODES))
    (mark,) = [m for m in module("units/test_vpu.py").test_every_operation.pytestmark if m.name == "parametrize"]
    modelled = set(mark.args[1])
    _, lowered = emitted()
    lines = [
        (
            int(op),
            op.name,
            yes(op in modelled),
            yes(op.name in names),
            yes(op in lowered),
            used(rf"(= |OP=){op.name}\b"),
        )
        for op in VPU
    ]
    yield from table("#|operation|model|TASM|lowered|rows", lines)


def yes(held: bool) -> str:
    return "yes" if held else "-"


def used(pattern: str) -> object:
    """How many of the tables' bundles hold a pattern."""
    compiled = re.compile(pattern, re.MULTILINE)
    return sum(1 for text in texts() if compiled.search(text)) or ""


def spec() -> Iterator[str]:
    yield from table("area|done|not done", SPEC)


HEAD = f"""# TinyTPU: what is covered

Made by `{COMMAND}` from the tables of `tests/tinytpu_acceptance` and from what the
lowering emits; a test holds the page to it. The tables run with `.venv/bin/python -m pytest tests/tinytpu/acceptance`.
"""
ABOUT_AREAS = """`asked` is the number of checks that the datasheet lists, `rows` those in tables: through tinygrad's
device with no step of the host, or as bundles beside the slow reference. `tests` are cases of others, rounded down.
"""
ABOUT_OPCODES = """`model`: random programs that hold it equal the slow reference in state and cycles. `TASM`: its text
is held against the nine numbers. `lowered`: found in a plan of the {graphs} graphs of `tinytpu_acceptance.corpus`,
{count} of {all}. `rows`: bundles of the tables that hold it.
"""
ABOUT_OPERATIONS = """As above; `model` by a test of each operation against exact arithmetic. {count} of {all} are
lowered.
"""


def page() -> str:
    """docs/tinytpu-coverage.md."""
    lowered, operated = emitted()
    parts = {
        "Areas": (ABOUT_AREAS, areas()),
        "Laws": ("The datasheet's properties (17).\n", laws()),
        "tinyspec": ("The datasheet's areas (15).\n", spec()),
        "Opcodes of the sequencer": (
            ABOUT_OPCODES.format(graphs=len(GRAPHS) + len(UNIT), count=len(lowered), all=len(SXU)),
            opcodes(),
        ),
        "Operations of the vector unit": (ABOUT_OPERATIONS.format(count=len(operated), all=len(VPU)), operations()),
    }
    sections = [f"## {title}\n\n{about}\n" + "\n".join(lines) + "\n" for title, (about, lines) in parts.items()]
    return "\n".join([HEAD, *sections])
