"""What if a KohakuTPU were another: kernels and programs timed on machines that were never built.

Decides how work is compiled and timed on a machine without touching the default device. What a comparison shows is
`kohakuaccel.whatif`'s to say.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine
from kohakuaccel.whatif import Changes, Comparison, Outcome, Setting, compare, parse_changes
from kohakutpu import machines
from kohakutpu.machines.sizes import SIZES, sized

if TYPE_CHECKING:
    from kohakutpu.device import Device
    from kohakutpu.lang.kernel import Kernel

Shape = tuple[int, ...]

__all__ = ["SIZES", "knobs_of", "measure_kernel", "measure_program", "sized", "whatif"]


def whatif(
    work: Kernel | Callable[[], object],
    *shapes: Shape,
    machine: Machine | str = machines.DEFAULT,
    variants: Iterable[str | Changes],
    **knobs: Setting,
) -> Comparison:
    """A kernel for operands of these shapes, or a function of no argument, timed on `machine` and on variants of it.

    variants: "clusters=12, L=3" or {"clusters": 12, "L": 3}; names are sizes (`SIZES`), params, timing values and
    features of the machine, and knobs of the kernel. knobs: of the kernel, for every row. A function runs once a row
    with the variant as its default device. A variant that is refused says so in its row; an unknown name raises
    DefinitionError.
    """
    from kohakutpu.lang.kernel import Kernel

    base = machines.load(machine) if isinstance(machine, str) else machine
    changes = [parse_changes(v, "variants") if isinstance(v, str) else v for v in variants]
    if isinstance(work, Kernel):
        given = " ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)

        def measure(on: Machine, own: Changes) -> Outcome:
            return measure_kernel(work, shapes, {**knobs, **own}, on)

        return compare(
            f"{work.__name__} {given}", base, changes, measure, sizes=SIZES, sized=sized, knobs=knobs_of(work)
        )
    if shapes or knobs:
        raise Refusal("a function takes no shapes and no knobs", where="whatif", got=(shapes, knobs))
    name = getattr(work, "__name__", "program")
    return compare(name, base, changes, lambda on, _: measure_program(work, name, on), sizes=SIZES, sized=sized)


def knobs_of(kernel: Kernel) -> tuple[str, ...]:
    """The keyword parameters of a kernel, which a variant may change too."""
    parameters = inspect.signature(kernel.fn).parameters.values()
    return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)


def measure_kernel(kernel: Kernel, shapes: Iterable[Shape], knobs: Mapping[str, Setting], machine: Machine) -> Outcome:
    """Compile a kernel for a machine and time one launch. Vector kernels are rehearsed on zeros (`sim.time_image`)."""
    from kohakutpu.sim import time_image

    with device_of(machine):
        plan = kernel.plan(*shapes, **knobs)
    timeline = time_image(machine, plan.image(plan.nominal_addresses()))
    return Outcome(timeline, plan.schedule.pretty(), plan.footprint)


def measure_program(program: Callable[[], object], name: str, machine: Machine) -> Outcome:
    """Run a program with a machine as its default device and time all that it launches there."""
    from kohakutpu.sim.session import timed

    with device_of(machine) as device:
        _, timeline = timed(device, program, name)
        if not timeline.cycles:
            raise Refusal(
                "a program runs something on the default device",
                where=f"{name} on {machine.name}",
                got="nothing",
                hint="a program that chooses its own machine is not compared",
            )
        peak = device.stats()["memory_peak"]
    assert isinstance(peak, int)
    schedules = [text for key, text in timeline.texts.items() if key.endswith("/schedule")]
    return Outcome(timeline, "\n".join(schedules), peak)


@contextmanager
def device_of(machine: Machine) -> Generator[Device, None, None]:
    """A new device of a machine as the default one; the one before is put back. Raises Unsupported for a feature
    that has no model."""
    from kohakutpu import device

    before, made = device.default(), device.Device(machine)
    device.use(made)
    try:
        yield made
    finally:
        device.use(before)
