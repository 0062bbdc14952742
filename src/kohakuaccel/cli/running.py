"""`kohaku run`: a user's program in this process, on the chosen machine, and the table of what it cost."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter
from types import TracebackType

import typer

from kohakuaccel.cli.packages import chosen, commands_of, imported, is_program
from kohakuaccel.diagnostics import KohakuError, Refusal, SourceLine


def run_script(script: Path, arguments: list[str], machine: str | None, stats: bool) -> None:
    """Run `script` as `python script arguments...` would, with `machine` as its default device; a program file of the
    machine prints what it answers."""
    if not script.is_file():
        raise Refusal("a program to run is an existing file", where="kohaku run", got=str(script))
    if machine is not None:
        choose(machine)
    if is_program(str(script)):
        commands_of(chosen(machine).family).opened(script)()
        return
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    start = perf_counter()
    try:
        runpy.run_path(str(script), run_name="__main__")
    except KohakuError as error:
        if error.source is None:
            error.source = line_of(script, error.__traceback__)
        raise
    finally:
        sys.argv, sys.path[:] = argv, path
    if stats:
        _print_costs(perf_counter() - start)


def choose(name: str) -> None:
    """Make the machine `name` the default device of its package."""
    machine = chosen(name)
    commands_of(machine.family).use(machine)


def line_of(script: Path, trace: TracebackType | None) -> SourceLine | None:
    """The innermost line of `script` on the way to an error, if it was on the way."""
    for frame in reversed(traceback.extract_tb(trace)):
        if Path(frame.filename).resolve() == script.resolve():
            return SourceLine(str(script), frame.lineno or 0, frame.line or "")
    return None


def flatten(counts: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Nested counters as (dotted name, value) pairs, in order."""
    for key, value in counts.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")  # pyright: ignore[reportUnknownArgumentType] - a mapping of anything
        else:
            yield f"{prefix}{key}", value


def _print_costs(seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for package in imported():
        counts = [(name, value) for name, value in flatten(commands_of(package).stats()) if value]
        if not counts:
            continue
        table = Table(box=None, show_header=False)
        table.add_column(style="cyan")
        table.add_column(justify="right")
        for name, value in counts:
            table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
        console.print(f"\n{package}: what the run cost", style="bold")
        console.print(table)
    typer.echo(f"\nsimulated machine; {seconds:.2f} s of host time, compiling included, is not the machine's time")
