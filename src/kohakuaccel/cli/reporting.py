"""`kohaku report`: a saved timeline as tables, as one page for a browser, or as a trace for the Perfetto UI.

What is said about a timeline is `kohakuaccel.sim`'s; here files meet options.
"""

from __future__ import annotations

from pathlib import Path

import typer

from kohakuaccel.sim import Timeline


def report(file: Path, stage: int | None, every: bool, html: Path | None, perfetto: Path | None) -> None:
    """Print the report of a saved timeline, or of one of its stages, and write what was asked for."""
    from rich.console import Console

    from kohakuaccel.sim.report import STAGES, plain, show, stage_tables, tables

    timeline = Timeline.load(file)
    summary = timeline.summary()
    parts = stage_tables(summary, stage) if stage is not None else tables(summary, None if every else STAGES)
    console = Console()
    if console.is_terminal:
        show(parts, console)
    else:
        typer.echo(plain(parts))
    if html is not None:
        timeline.html(html)
        typer.echo(f"\npage written to {html}")
    if perfetto is not None:
        timeline.perfetto(perfetto)
        typer.echo(f"\ntrace written to {perfetto}; open it at ui.perfetto.dev")
