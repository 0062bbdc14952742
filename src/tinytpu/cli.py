"""The `tinytpu` command: assemble, disassemble, run and trace programs of this machine.

A file that ends in .tasm or .asm is TASM; any other is a bundle of numbers. What a word does is decided elsewhere.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kohakuaccel.cli.errors import with_messages
from kohakuaccel.diagnostics import Refusal

if TYPE_CHECKING:
    from kohakuaccel.machine import Machine
    from tinytpu.bundle import Bundle
    from tinytpu.units.core import Run

app = typer.Typer(
    name="tinytpu",
    help="Assemble, run and trace programs of the simulated TinyTPU.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

MachineName = Annotated[str, typer.Option("--machine", "-m", help="A preset's name or a machine TOML file.")]
Program = Annotated[Path | None, typer.Argument(help="A .tasm file or a bundle; TINYTPU_BUNDLE without one.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file, not to the terminal.")]
Silicon = Annotated[bool, typer.Option("--silicon", help="Wrap as the hardware does where it would be refused.")]
DEFAULT = "tinytpu_4x4"


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a refusal or fault.")] = False,
) -> None:
    """Common to all commands; `--debug` itself is read where errors are reported."""


def _machine(name: str) -> Machine:
    from kohakuaccel.machine import load
    from tinytpu.machines import FAMILY

    machine = load(name)
    if machine.family != FAMILY:
        raise Refusal("the machine is a TinyTPU", where="--machine", got=f"{name}, of the family {machine.family}")
    return machine


def _path(given: Path | None) -> Path:
    if given is not None:
        return given
    named = os.environ.get("TINYTPU_BUNDLE")
    if not named:
        raise Refusal("a program is named", where="tinytpu", hint="name a file, or set TINYTPU_BUNDLE")
    return Path(named)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text)


def _run(program: Path | None, machine: Machine, silicon: bool, log: bool) -> Run:
    from tinytpu import runner

    return _run_bundle(runner.read(_path(program), machine, check=not silicon), machine, silicon, log)


def _run_bundle(bundle: Bundle, machine: Machine, silicon: bool, log: bool) -> Run:
    from tinytpu import runner

    run = runner.run(bundle, machine, silicon=silicon, log=log)
    for remark in run.remarks:
        typer.secho(f"warning: pc {remark.pc}: {remark.what}", fg="yellow", err=True)
    return run


@app.command()
def asm(source: Program = None, output: Output = None, machine: MachineName = DEFAULT) -> None:
    """Print the bundle of a TASM text."""
    from tinytpu import runner
    from tinytpu.bundle import dump

    _write(dump(runner.read(_path(source), _machine(machine))), output)


@app.command()
def disasm(bundle: Program = None, output: Output = None, machine: MachineName = DEFAULT) -> None:
    """Print a bundle as TASM; what no text form writes, legal or not, is a `.word`."""
    from tinytpu import runner
    from tinytpu.asm import disassemble

    chosen = _machine(machine)
    _write(disassemble(runner.read(_path(bundle), chosen, check=False), chosen), output)


@app.command()
def run(
    program: Program = None,
    machine: MachineName = DEFAULT,
    silicon: Silicon = False,
    stats: Annotated[bool, typer.Option("--stats", help="Also print what the run counted, on stderr.")] = False,
    against: Annotated[
        bool,
        typer.Option(
            "--against", help="Compare with the simulator that TINYTPU_SIM names; exit code 1 where it differs."
        ),
    ] = False,
) -> None:
    """Run a program and print its result lines."""
    done = _run(program, _machine(machine), silicon, log=False)
    typer.echo("\n".join(done.lines()))
    if stats:
        split = {"load": done.load_cycles, "execute": done.execute_cycles, "output": done.output_cycles}
        counts = {**{f"{name} cycles": cycles for name, cycles in split.items()}, **done.counters}
        for name, value in counts.items():
            typer.echo(f"{name:16} {value:>10,}", err=True)
    if against and not _agrees(_path(program), done):
        raise typer.Exit(1)


def _agrees(path: Path, done: Run) -> bool:
    """Whether another simulator gives the same result lines; prints both where not."""
    from tinytpu import results, runner

    command = os.environ.get("TINYTPU_SIM")
    if not command:
        raise Refusal("the other simulator is named", where="--against", hint="set TINYTPU_SIM to its command")
    other = runner.simulate(runner.read(path, done.machine, check=False), done.machine, command)
    mine = results.parse("\n".join(done.lines()), done.machine)
    if mine != other:
        typer.echo(f"the results differ\nhere:  {mine}\nthere: {other}", err=True)
    return mine == other


@app.command()
def trace(
    program: Program = None,
    output: Output = None,
    machine: MachineName = DEFAULT,
    silicon: Silicon = False,
    report: Annotated[bool, typer.Option("--report", help="What every unit did, instead of trace lines.")] = False,
    save: Annotated[Path | None, typer.Option(help="Also write the timeline: kohaku report FILE reads it.")] = None,
    html: Annotated[Path | None, typer.Option(help="Also write one page for a browser.")] = None,
    perfetto: Annotated[Path | None, typer.Option(help="Also write a trace for the Perfetto UI.")] = None,
) -> None:
    """Run a program and print a line for everything that happened in it."""
    from tinytpu.trace import dump, events, timeline

    path = _path(program)
    done = _run(path, _machine(machine), silicon, log=True)
    spans = timeline(done, path.stem)
    _write(spans.report() if report else dump(events(done)), output)
    for file, write in ((save, spans.save), (html, spans.html), (perfetto, spans.perfetto)):
        if file is not None:
            write(file)


@app.command()
def profile(
    program: Program = None,
    machine: MachineName = DEFAULT,
    top: Annotated[int, typer.Option(min=1, help="How many of the hottest addresses.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print the profile as JSON.")] = False,
) -> None:
    """Run a program and print where its cycles went: instructions, addresses, labels, bubbles, units."""
    from tinytpu import runner
    from tinytpu.trace import profile

    chosen = _machine(machine)
    bundle = runner.read(_path(program), chosen)
    found = profile(_run_bundle(bundle, chosen, silicon=False, log=True), bundle.labels)
    typer.echo(json.dumps(asdict(found), indent=1) if as_json else found.text(top))


@app.command()
def opcodes(units: Annotated[bool, typer.Option("--vpu", help="The operations of the vector unit.")] = False) -> None:
    """Print the instruction set."""
    from tinytpu.isa.listing import operations, sequencer

    typer.echo(operations() if units else sequencer())


@app.command()
def bench(
    kernels: Annotated[list[str] | None, typer.Argument(help="Names, or how they begin; all without one.")] = None,
    best: Annotated[bool, typer.Option(help="Also the best programs known for the same work.")] = True,
    form: Annotated[str, typer.Option("--format", help="text, json or csv.")] = "text",
    show: Annotated[bool, typer.Option("--show", help="Print the programs, do not run them.")] = False,
    history: Annotated[Path | None, typer.Option(help="Compare with the last run in this file, add this one.")] = None,
) -> None:
    """Run the published kernels; exit code 1 where values or cycles are not the known ones."""
    from tinytpu.programs import measure, report
    from tinytpu.programs.bench import chosen

    if show:
        for kernel in chosen(kernels or []):
            typer.echo(f"# {kernel.name}\n{kernel.build(best=best).text}")
        return
    outcomes = measure(kernels or [], best=best)
    typer.echo(report(outcomes, form))
    if history is not None:
        from tinytpu.programs.history import append, compared, cycles_of, last

        now = cycles_of(outcomes)
        typer.echo("\n".join(compared(last(history), now)), err=True)
        append(history, now)
    if not all(outcome.right for outcome in outcomes):
        raise typer.Exit(1)


def main() -> None:
    """Entry point."""
    with_messages(app)
