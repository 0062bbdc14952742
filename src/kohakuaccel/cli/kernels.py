"""`kohaku plan` and `kohaku disasm`: from words on the command line to a compiled kernel or a saved image.

A kernel is anything with `trace` and `plan`; what a plan holds is the compiler's business.
"""

from __future__ import annotations

import ast
import importlib
import re
import runpy
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohakuaccel.cli.packages import chosen, commands_of, is_program
from kohakuaccel.cli.running import choose
from kohakuaccel.diagnostics import DefinitionError, Refusal

if TYPE_CHECKING:
    from kohakuaccel.image import Image

_SHAPE = re.compile(r"\d+(?:[x,]\d+)*|scalar")


def parse_shape(text: str) -> tuple[int, ...]:
    """`"256x512"` (or `"256,512"`) as (256, 512); `"scalar"` as ()."""
    if not _SHAPE.fullmatch(text):
        raise Refusal("a shape is sizes joined by x", where="shapes", got=repr(text), hint="write 256x512, or 8")
    return () if text == "scalar" else tuple(int(size) for size in re.split("[x,]", text))


def parse_option(text: str) -> tuple[str, Any]:
    """`"gm=16"` as ("gm", 16); a value is a Python literal, anything else a string."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise Refusal("an option is name=value", where="--set", got=repr(text), hint="write --set gm=16")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def is_kernel(value: object) -> bool:
    """Whether `value` can be traced and planned."""
    return (
        not isinstance(value, type)
        and callable(getattr(value, "plan", None))
        and callable(getattr(value, "trace", None))
    )


def find_kernel(target: str, machine: str | None = None) -> Any:
    """The kernel that `target` names: "script.py", "script.py:name" or "package.module:name"; or a program file of
    the machine.

    A script is executed with a `__name__` other than "__main__". Without a name it must hold one kernel.
    """
    if is_program(target):
        return commands_of(chosen(machine).family).opened(Path(target))
    place, _, name = target.partition(":")
    where = f"target {target!r}"
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise Refusal("a script is an existing file", where=where, got=place)
        space: Mapping[str, Any] = runpy.run_path(place, run_name="kohaku_target")
    else:
        try:
            space = vars(importlib.import_module(place))
        except ModuleNotFoundError as error:
            if error.name is None or not (place == error.name or place.startswith(f"{error.name}.")):
                raise
            raise Refusal(
                "a module can be imported", where=where, got=place, hint="name a .py file or module"
            ) from None
    kernels = {key: value for key, value in space.items() if is_kernel(value)}
    listing = ", ".join(kernels) or "none"
    if not name:
        if len(kernels) == 1:
            return next(iter(kernels.values()))
        raise Refusal("a kernel must be named", where=where, hint=f"its kernels: {listing}; write {place}:NAME")
    if name in kernels:
        return kernels[name]
    near = get_close_matches(name, kernels, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise Refusal("the name is a kernel", where=where, got=repr(name), hint=f"{hint}its kernels: {listing}")


def plan_kernel(target: str, shapes: list[str], options: list[str], machine: str | None) -> Any:
    """The plan of a kernel for operands of these shapes, on `machine` or the default one."""
    sizes = [parse_shape(text) for text in shapes]
    settings = dict(parse_option(text) for text in options)
    kernel = find_kernel(target, machine)
    if machine is not None:
        choose(machine)
    return kernel.plan(*sizes, **settings)


def image_of(plan: Any) -> Image:
    """The plan's image, linked for buffers as an empty device would place them."""
    return plan.image(plan.nominal_addresses())


def disassemble(
    target: str, shapes: list[str], options: list[str], machine: str | None, limit: int | None = None
) -> str:
    """The instructions of a saved image (`target` ends in .npz) or of a kernel planned for these shapes.

    limit: most instructions shown per unit and stage.
    """
    if not target.endswith(".npz"):
        plan = plan_kernel(target, shapes, options, machine)
        return commands_of(plan.machine.family).plan_text(plan, limit)
    if shapes or options:
        raise Refusal("an image is compiled already", where="kohaku disasm", hint="give shapes with a kernel only")
    if not Path(target).is_file():
        raise Refusal("an image is an existing file", where="kohaku disasm", got=target)
    from kohakuaccel.image import load

    image = load(target)
    return commands_of(_package_of(image, machine)).image_text(image, limit)


def _package_of(image: Image, machine: str | None) -> str:
    try:
        return chosen(machine or image.machine_name).family
    except DefinitionError:
        if machine is not None:
            raise
        raise Refusal(
            "the machine of an image is a preset",
            where="kohaku disasm",
            got=repr(image.machine_name),
            hint="name its file: --machine FILE.toml",
        ) from None
