"""Imports point downwards, the framework knows no machine, and importing stays cheap.

The order below is the architecture page's, lowest first. Names on one row may not import each other.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"
MACHINES = ("kohakutpu", "tinytpu", "kohakutt", "ktpugrad")
ALIASES = {"ktpugrad": "kohakutpu"}
"""Packages that are another name of a machine's own."""

ORDER: dict[str, tuple[tuple[str, ...], ...]] = {
    "kohakuaccel": (
        ("diagnostics",),
        ("jit",),
        ("numerics",),
        ("machine",),
        ("isa",),
        ("image",),
        ("device",),
        ("sim",),
        ("program",),
        ("schedule",),
        ("graph",),
        ("lang",),
        ("frontends",),
        ("whatif",),
        ("cli",),
    ),
    "kohakutpu": (
        ("machines", "layouts", "broadcasting", "conversion", "callers", "recording"),
        ("isa",),
        ("units",),
        ("dispatch",),
        ("device",),
        ("sim",),
        ("lang",),  # what a kernel's body may say; calling a kernel is lang.kernel, above the lowering
        ("lower",),
        ("storage",),
        ("tensor",),
        ("lang.kernel",),
        ("kernels",),
        ("split",),
        ("auto",),
        ("lazy",),
        ("operators",),
        ("api",),
        ("models",),
        ("whatif",),
        ("tinygrad",),
        ("commands",),
    ),
    "tinytpu": (
        ("machines",),
        ("isa",),
        ("bundle",),
        ("asm", "results"),
        ("units",),
        ("recording",),
        ("lower",),
        ("cores",),
        ("runner",),
        ("trace",),
        ("programs",),
        ("kernels",),
        ("models",),
        ("whatif",),
        ("tinygrad",),
        ("commands",),
        ("cli",),
        ("__main__",),
    ),
}


UPWARD = {
    (
        "kohakutpu.tensor",
        "operators",
    ): "a tensor's operator methods are words for kernels, loaded when one is used",
}
"""Imports that point upwards on purpose, inside a function, each with its reason."""


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(name: str, path: Path, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every absolute module name that a file imports, wherever the statement stands, with its line."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parts, *([base] if base else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno


def rank(name: str) -> int | None:
    """Height of a module within its package; None for a package's own `__init__` and for foreign modules."""
    package, _, rest = name.partition(".")
    if package not in ORDER or not rest:
        return None
    heights = {room: height for height, row in enumerate(ORDER[package]) for room in row}
    parts = rest.split(".")
    rooms = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((heights[room] for room in rooms if room in heights), None)


def violations(name: str, path: Path, source: str) -> list[str]:
    """What a file imports that its place does not allow."""
    package = name.split(".")[0]
    room = name.split(".")[1] if "." in name else ""
    found: list[str] = []
    for target, line in imports(name, path, ast.parse(source)):
        owner, _, rest = target.partition(".")
        if package == "kohakuaccel" and owner in MACHINES:
            found.append(f"{name}:{line} imports the machine {target}")
        elif owner == package and rest and rest.split(".")[0] != room:
            here, there = rank(name), rank(target)
            allowed = (name, rest.split(".")[0]) in UPWARD
            if there is not None and here is not None and there >= here and not allowed:
                found.append(f"{name}:{line} imports {target}, which is not below it")
        elif package in MACHINES and owner in MACHINES and owner not in (package, ALIASES.get(package)):
            found.append(f"{name}:{line} imports another machine, {target}")
    return found


def test_imports_point_downwards() -> None:
    found = [text for name, path in modules() for text in violations(name, path, path.read_text())]
    assert not found, "\n".join(found)


def test_every_room_has_a_level() -> None:
    rooms = {name for name, _ in modules() if "." in name}
    unplaced = sorted(name for name in rooms if name.split(".")[0] in ORDER and rank(name) is None)
    assert not unplaced, f"say in ORDER where these belong: {unplaced}"


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("kohakuaccel.isa.table", "import kohakutpu.isa"),
        ("kohakuaccel.image.files", "from kohakuaccel.schedule import Stage"),
        ("kohakuaccel.machine.model", "from kohakuaccel import lang"),
        ("kohakuaccel.device.arena", "def f():\n    from kohakuaccel.program import x"),
        ("kohakuaccel.device.arena", "from ..program import x"),
        ("kohakutpu.units.vector", "from kohakutpu import api"),
        ("kohakutpu.machines.presets", "from kohakutpu.isa import cluster"),
        ("kohakutpu.lower.plan", "from kohakutpu.lang.kernel import Kernel"),
        ("kohakutpu.api", "import tinytpu"),
    ],
)
def test_a_wrong_import_is_found(name: str, source: str) -> None:
    assert violations(name, SRC / (name.replace(".", "/") + ".py"), source)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("kohakuaccel.lang.trace", "from kohakuaccel.diagnostics import Refusal\nimport numpy"),
        ("kohakutpu.api", "from kohakutpu.kernels import silu\nfrom kohakuaccel.lang import dims"),
        ("kohakutpu.lower.plan", "from kohakutpu.lang.tiles import Tile"),
        ("kohakuaccel.isa.table", "from .fields import Field\nfrom kohakuaccel.numerics import FP16"),
    ],
)
def test_a_right_import_passes(name: str, source: str) -> None:
    assert not violations(name, SRC / (name.replace(".", "/") + ".py"), source)


# Each module in a process of its own, so that an import that works only after another one, or that pulls in a machine,
# is seen. Processes are forked from one that holds the heavy libraries and the rows below, which are known to work by
# then and cannot hide anything: imports point downwards.
EACH_ALONE = """
import importlib, json, os, sys, traceback
import numpy, numba, rich.console, typer, tinygrad, tinygrad.codegen, tinygrad.engine.jit
rows, machines = json.loads(sys.argv[1])
for row in rows:
    for name in row:
        if (pid := os.fork()) == 0:
            try:
                importlib.import_module(name)
                pulled = [m for m in machines if m in sys.modules and name.split(".")[0] not in machines]
                if pulled:
                    print(name, "pulls in", pulled, flush=True)
            except BaseException:
                print(name, traceback.format_exc(), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
    for name in row:
        importlib.import_module(name)
"""


def in_rows(names: list[str]) -> list[list[str]]:
    """Modules of one height together, the lowest first, the framework before machines."""
    packages = [*ORDER, *sorted({name.split(".")[0] for name in names} - set(ORDER))]

    def height(name: str) -> tuple[int, int]:
        found = rank(name)
        package = name.split(".")[0]
        return packages.index(package), len(ORDER.get(package, ())) if found is None else found

    return [list(row) for _, row in groupby(sorted(names, key=height), key=height)]


@pytest.mark.slow
def test_every_module_imports_alone() -> None:
    names = [name for name, _ in modules() if not name.endswith("__main__")]
    command = [sys.executable, "-W", "ignore", "-c", EACH_ALONE, json.dumps([in_rows(names), MACHINES])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not done.stdout, done.stdout


LIGHT = """
import sys, time
start = time.perf_counter()
import kohakutpu
from kohakutpu import api, lang
import kohakuaccel.lang
print(time.perf_counter() - start, "numba" in sys.modules)
"""


def test_importing_is_cheap_and_leaves_numba_out() -> None:
    runs = [
        subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(3)
    ]
    assert {numba for _, numba in runs} == {"False"}
    assert min(float(seconds) for seconds, _ in runs) < 1.0
