"""`kohaku doctor`: the facts of this installation that a bug report needs, and a trial with a known answer.

It changes nothing but the compiled-kernel cache, which the trial run may fill.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from kohakuaccel.cli.packages import chosen, commands_of
from kohakuaccel.machine import Machine
from kohakuaccel.machine.describe import families, load_preset, preset_names

if TYPE_CHECKING:
    from rich.console import Console

_PACKAGES = ("kohakuaccel", "numpy", "numba", "llvmlite", "ml_dtypes", "rich", "typer")


def usable_cores() -> int:
    """Cores this process may run on, which a container can make fewer than the machine's."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def cache_state() -> tuple[Path, str]:
    """The folder of compiled kernels, and in words what is in it."""
    from kohakuaccel.jit import cache_root

    root = cache_root()
    if not root.is_dir():
        return root, "empty: the first call of each kernel compiles, tens of seconds in all"
    files = [path for path in root.rglob("*.nbc") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    state = f"{len(files)} compiled functions, {size / 2**20:.1f} MiB"
    return root, state if os.access(root, os.W_OK) else f"{state}; NOT WRITABLE, set NUMBA_CACHE_DIR"


def facts_of(machine: Machine) -> tuple[str, str]:
    """Units and memory outside them of a machine, in words."""
    units = " + ".join(f"{len(machine.units_of(kind))} {kind}" for kind in machine.kinds)
    meshes = f" in {len(machine.meshes)} meshes" if len(machine.meshes) > 1 else ""
    if not machine.memories:
        return units + meshes, "on chip"
    size = sum(memory.size for memory in machine.memories) >> 20
    return units + meshes, f"{size >> 10} GiB" if size >= 1024 else f"{size} MiB"


def _table(console: Console, title: str, rows: Iterable[tuple[str, ...]]) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print()


def report(smoke: bool, machine: str | None) -> bool:
    """Print the report; False when the trial program came out wrong."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=110)
    facts = [("python", f"{platform.python_version()} ({platform.system()} {platform.machine()})")]
    facts += [(name, installed(name)) for name in _PACKAGES]
    facts += [("cores", f"{usable_cores()} usable of {os.cpu_count()}")]
    _table(console, "host", facts)
    root, state = cache_state()
    _table(console, "compiled-kernel cache", [("folder", str(root)), ("state", state)])
    for package in families():
        commands = commands_of(package)
        machines = [load_preset(package, name) for name in preset_names(package)]
        rows = [(machine.name, *facts_of(machine), commands.peak(machine)) for machine in machines]
        _table(console, f"{package}: simulated machines (default {commands.DEFAULT_MACHINE})", rows)
    if not smoke:
        return True
    chosen_machine = chosen(machine)
    start = perf_counter()
    good, text = commands_of(chosen_machine.family).smoke(chosen_machine)
    verdict = "[green]bit-exact[/]" if good else "[red]WRONG[/]"
    seconds = perf_counter() - start
    console.print(f"trial on {chosen_machine.name}: {text}: {verdict} ({seconds:.2f} s, compiling included)")
    return good
