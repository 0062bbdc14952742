"""The `kohaku` command: what its words are called and how an error reaches the terminal.

Each command's work is in a module of its own, imported when that command runs, so `kohaku --help` is quick.
Nothing here knows a machine: machine families are found by `families` through their entry points.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kohakuaccel.cli.errors import with_messages

app = typer.Typer(
    name="kohaku",
    help="Compile, run and inspect tensor programs on simulated tile accelerators.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Machine = Annotated[str | None, typer.Option("--machine", "-m", help="A preset's name or a machine TOML file.")]
Target = Annotated[str, typer.Argument(help="script.py, script.py:kernel or package.module:kernel.")]
Shapes = Annotated[list[str] | None, typer.Argument(help="One per operand: 256x512, or 8 for a vector.")]
Options = Annotated[list[str] | None, typer.Option("--set", help="A block parameter of the kernel: gm=16.")]


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a refusal or fault.")] = False,
) -> None:
    """Common to all commands; `--debug` itself is read by `main`, around everything."""


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="A Python program.")],
    machine: Machine = None,
    stats: Annotated[bool, typer.Option(help="Print what the run cost.")] = True,
    time: Annotated[Path | None, typer.Option(help="Also time it, and write the timeline to this file.")] = None,
) -> None:
    """Run a Python program on a machine, then print what it cost. Further words go to the program."""
    if time is not None:
        from kohakuaccel.cli.timing import run_timed

        run_timed(script, context.args, machine, stats, time)
    else:
        from kohakuaccel.cli.running import run_script

        run_script(script, context.args, machine, stats)


@app.command()
def report(
    file: Annotated[Path, typer.Argument(help="A timeline: kohaku run SCRIPT --time FILE writes one.")],
    stage: Annotated[int | None, typer.Option(help="Everything about the stage of this number.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every stage, not only the longest.")] = False,
    html: Annotated[Path | None, typer.Option(help="Also write one page for a browser.")] = None,
    perfetto: Annotated[Path | None, typer.Option(help="Also write a trace for the Perfetto UI.")] = None,
) -> None:
    """Show what limits a timed run: stages, roofline, bytes moved, instructions."""
    from kohakuaccel.cli.reporting import report

    report(file, stage, every, html, perfetto)


@app.command()
def plan(
    target: Target,
    shapes: Shapes = None,
    machine: Machine = None,
    option: Options = None,
    save: Annotated[Path | None, typer.Option(help="Also write the compiled image to this .npz file.")] = None,
) -> None:
    """Compile a kernel without running it and print its stages, units, relayouts and buffers."""
    from kohakuaccel.cli.kernels import image_of, plan_kernel

    found = plan_kernel(target, shapes or [], option or [], machine)
    typer.echo(found.pretty())
    if save is not None:
        from kohakuaccel.image import save as save_image

        save_image(image_of(found), save)
        typer.echo(f"\nimage for {found.machine.name} written to {save}")


@app.command()
def whatif(
    target: Annotated[str, typer.Argument(help="A kernel as in `plan`, or a script.py to run.")],
    shapes: Shapes = None,
    machine: Machine = None,
    setting: Annotated[list[str] | None, typer.Option("--set", help="A change for every variant: clusters=12.")] = None,
    feature: Annotated[list[str] | None, typer.Option(help="A feature switched on for every variant.")] = None,
    variant: Annotated[list[str] | None, typer.Option(help="One more variant: clusters=12,L=3.")] = None,
    sweep: Annotated[list[str] | None, typer.Option(help="A variant for each value: L=3,10,30.")] = None,
    knob: Annotated[list[str] | None, typer.Option(help="A block parameter of the kernel, for every row.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare schedules and times on machines that do not exist."""
    from kohakuaccel.cli.whatif import show

    listed = [words or [] for words in (shapes, setting, feature, variant, sweep, knob)]
    if not show(target, machine, *listed, as_json=as_json):
        raise typer.Exit(2)


@app.command()
def disasm(
    target: Annotated[str, typer.Argument(help="An image file (.npz), or a kernel as in `plan`.")],
    shapes: Shapes = None,
    machine: Machine = None,
    option: Options = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most instructions per unit and stage.")] = None,
) -> None:
    """Print every unit's instructions, of a saved image or of a kernel compiled for these shapes."""
    from kohakuaccel.cli.kernels import disassemble

    typer.echo(disassemble(target, shapes or [], option or [], machine, limit))


@app.command()
def doctor(
    smoke: Annotated[bool, typer.Option(help="Multiply two small matrices and check every bit.")] = True,
    machine: Machine = None,
) -> None:
    """Report versions, cores, the compiled-kernel cache and the machines, and try one matmul."""
    from kohakuaccel.cli.doctor import report

    if not report(smoke, machine):
        raise typer.Exit(1)


def main() -> None:
    """Entry point."""
    with_messages(app)
