"""How an error of ours reaches the terminal: one message on stderr, and an exit code that scripts can test."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from kohakuaccel.diagnostics import KohakuError


def with_messages(app: Callable[[], object]) -> None:
    """Run a command. A refusal or fault of ours is one message on stderr and exit code 2, unless `--debug`."""
    try:
        app()
    except KohakuError as error:
        if "--debug" in sys.argv[1:]:
            raise
        typer.secho(f"{type(error).__name__}: ", fg="red", bold=True, nl=False, err=True)
        typer.echo(str(error), err=True)
        raise SystemExit(2) from None
