"""`kohaku run --time`: everything a program runs on the default device, on one timeline in a file.

A program runs as without it; its results are the same.
"""

from __future__ import annotations

from pathlib import Path

import typer

from kohakuaccel.cli.packages import chosen, commands_of
from kohakuaccel.cli.running import choose, run_script
from kohakuaccel.diagnostics import Refusal


def run_timed(script: Path, arguments: list[str], machine: str | None, stats: bool, file: Path) -> None:
    """Run `script` as `run_script` does and save the timeline of the default device to `file`.

    A program that ends itself (`sys.exit`) is timed up to there. Raises Refusal before anything runs where the
    timeline could not be written.
    """
    if not file.parent.is_dir() or file.is_dir():
        raise Refusal("a timeline is written to a file in an existing folder", where="--time", got=str(file))
    if machine is not None:
        choose(machine)
    left: list[SystemExit] = []

    def program() -> None:
        try:
            run_script(script, arguments, machine, stats)
        except SystemExit as error:
            left.append(error)

    timeline = commands_of(chosen(machine).family).timed(program, script.name)
    timeline.save(file)
    typer.echo(f"\ntimeline of {timeline.cycles:,} cycles on {timeline.machine} (modelled) written to {file}", nl=False)
    typer.echo(f"; read it with: kohaku report {file}")
    if not timeline.cycles:
        typer.echo("nothing ran on the default device; a machine is chosen with --machine")
    if left:
        raise left[0]
