"""What if a TinyTPU were another: kernels, programs and scripts timed on machines that were never built.

Decides how work is timed on a machine. What a comparison shows is `kohakuaccel.whatif`'s to say.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from kohakuaccel.diagnostics import DefinitionError, Refusal
from kohakuaccel.machine import Machine
from kohakuaccel.whatif import Outcome, Setting
from tinytpu.machines.choice import choosing

if TYPE_CHECKING:
    from tinytpu.recording import Played

SIZES: Mapping[str, str] = {}
"""Nothing grows but by params: rows and columns, depths of memories, vregs, buckets."""


def sized(machine: Machine, sizes: Mapping[str, int]) -> NoReturn:
    """Refused: there are no sizes."""
    raise DefinitionError("a TinyTPU changes by its params", where=machine.name, got=", ".join(sizes))


def knobs_of(kernel: Any) -> tuple[str, ...]:
    """The options of a kernel's plan, but for its machine."""
    parameters = inspect.signature(kernel.plan).parameters.values()
    return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY and p.name != "machine")


def _footprint(played: Iterable[Played]) -> int:
    """Bytes that the fullest program loads."""
    return max(
        sum(len(memory) * size for memory, size in (
            (one.image.vmem, 4 * one.machine.params.rows * one.machine.params.columns),
            (one.image.wmem, one.machine.params.rows * one.machine.params.columns),
            (one.image.amem, one.machine.params.rows),
        ))
        for one in played
    )  # fmt: skip


def measure_kernel(
    kernel: Any, shapes: Iterable[tuple[int, ...]], knobs: Mapping[str, Setting], machine: Machine
) -> Outcome:
    """Lower or assemble a kernel for a machine and time every program. bytes: of the fullest program's memories."""
    from tinytpu.trace.whole import whole

    plan = kernel.plan(*shapes, machine=machine, **knobs)
    played = plan.played()
    return Outcome(whole(played, kernel.__name__, machine), plan.pretty(), _footprint(played))


def measure_program(program: Callable[[], object], name: str, machine: Machine) -> Outcome:
    """Run a script with a machine as the chosen one and time every program of it.

    Raises Refusal for one that runs nothing, or runs it on another machine.
    """
    from tinytpu.recording import recording
    from tinytpu.trace.whole import whole

    with choosing(machine), recording() as played:
        program()
    where = f"{name} on {machine.name}"
    if not played:
        raise Refusal("a program runs something on the chosen machine", where=where, got="nothing")
    other = next((one.machine.name for one in played if one.machine != machine), None)
    if other is not None:
        raise Refusal("a program that is compared runs on the chosen machine", where=where, got=other,
                      hint="take tinytpu.machines.choice.chosen()")  # fmt: skip
    text = "\n".join(f"{one.name}: {one.times} times, {one.cycles:,} cycles" for one in played)
    return Outcome(whole(played, name, machine), text, _footprint(played))
