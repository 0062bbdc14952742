"""`kohaku whatif`: from words on the command line to a comparison of machines that may not exist.

What a variant is and what is shown is `kohakuaccel.whatif`'s to say; how work is timed is the machine package's
(`<package>.whatif`).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import runpy
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import typer

from kohakuaccel.cli.kernels import find_kernel, parse_option, parse_shape
from kohakuaccel.cli.packages import chosen
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine
from kohakuaccel.whatif import (
    Comparison,
    Outcome,
    Setting,
    combined,
    compare,
    parse_changes,
    parse_setting,
    parse_sweep,
)


class WhatIf(Protocol):
    """What `<package>.whatif` holds."""

    SIZES: Mapping[str, str]
    """What can be grown on a machine of this package: name and meaning."""

    def sized(self, machine: Machine, sizes: Mapping[str, int]) -> Machine:
        """A machine with these sizes."""
        ...

    def knobs_of(self, kernel: Any) -> tuple[str, ...]:
        """The block parameters of a kernel."""
        ...

    def measure_kernel(
        self, kernel: Any, shapes: Iterable[tuple[int, ...]], knobs: Mapping[str, Setting], machine: Machine
    ) -> Outcome:
        """Compile and time a kernel on a machine."""
        ...

    def measure_program(self, program: Callable[[], object], name: str, machine: Machine) -> Outcome:
        """Run and time a program with a machine as its default device."""
        ...


def show(
    target: str,
    machine: str | None,
    shapes: list[str],
    settings: list[str],
    features: list[str],
    variants: list[str],
    sweeps: list[str],
    knobs: list[str],
    *,
    as_json: bool,
) -> bool:
    """Print the comparison; False where no row has an outcome."""
    found = comparison(target, machine, shapes, settings, features, variants, sweeps, knobs)
    typer.echo(json.dumps(found.record(), indent=1) if as_json else found.text())
    return any(row.outcome for row in found.rows)


def comparison(
    target: str,
    machine: str | None,
    shapes: list[str],
    settings: list[str],
    features: list[str],
    variants: list[str],
    sweeps: list[str],
    knobs: list[str],
) -> Comparison:
    """The comparison that the words ask for."""
    common = dict(parse_setting(text) for text in settings)
    for name in features:
        feature, value = parse_setting(name, "--feature")
        if value is not True:
            raise Refusal(
                "a feature is named, and switched on", where="--feature", got=repr(name), hint=f"--set {name}"
            )
        common[feature] = True
    changes = combined(common, [parse_changes(text) for text in variants], [parse_sweep(text) for text in sweeps])
    base = chosen(machine)
    package = cast(WhatIf, importlib.import_module(f"{base.family}.whatif"))
    options = dict(parse_option(text) for text in knobs)
    if target.endswith(".py") and not shapes:
        if options:
            raise Refusal("knobs are a kernel's", where="--knob", got=", ".join(options), hint=f"write {target}:KERNEL")
        program = Path(target)

        def ran(on: Machine, _: Mapping[str, Setting]) -> Outcome:
            return package.measure_program(lambda: _quietly(program), program.name, on)

        return compare(program.name, base, changes, ran, sizes=package.SIZES, sized=package.sized)
    sizes = [parse_shape(text) for text in shapes]
    kernel = find_kernel(target, machine)
    work = " ".join([kernel.__name__, *shapes, *(f"{name}={value}" for name, value in options.items())])

    def measured(on: Machine, own: Mapping[str, Setting]) -> Outcome:
        return package.measure_kernel(kernel, sizes, {**options, **own}, on)

    return compare(
        work, base, changes, measured, sizes=package.SIZES, sized=package.sized, knobs=package.knobs_of(kernel)
    )


def _quietly(script: Path) -> None:
    """Run a script as `python script` would; what it prints is not shown, since it says the same on every machine."""
    if not script.is_file():
        raise Refusal("a program to time is an existing file", where="kohaku whatif", got=str(script))
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script)]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = argv, path
