"""What a call's arguments say: the value of every dim, batch shapes, and each port's concrete shape.

It decides sizes only; it does not know layouts or units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang.dims import Dim, DimExpr
from kohakuaccel.lang.ports import Port
from kohakuaccel.lang.trace import Trace
from kohakutpu.layouts import Element

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """sizes: dim name -> extent; batch: the leading axes that `...` absorbed; shapes: one per port, outputs too;
    stored: how each input is stored, in port order (FP16 where it ends)."""

    sizes: dict[str, int]
    batch: Shape
    shapes: tuple[Shape, ...]
    stored: tuple[Element, ...] = ()


def _refuse(trace: Trace, port: Port, shape: Shape, rule: str, limit: object, hint: str) -> Refusal:
    return Refusal(
        rule,
        where=f"kernel {trace.name}, port {port.declaration}",
        got=f"shape {shape}",
        limit=limit,
        hint=hint,
    )


def bind(trace: Trace, arguments: Sequence[Shape], stored: tuple[Element, ...] = ()) -> Binding:
    """Solve the dims from the shapes of the inputs, in port order. Raises Refusal naming port, shape and rule."""
    inputs = [p for p in trace.ports if p.direction == "in"]
    if len(inputs) != len(arguments):
        raise Refusal(
            "a call passes one tensor per In port",
            where=f"kernel {trace.name}",
            got=f"{len(arguments)} tensors",
            limit=f"{len(inputs)}: {', '.join(p.name for p in inputs)}",
            hint="outputs are allocated by the call, knobs are keywords",
        )
    # A dim that is named like a knob has the knob's value: outputs whose size only the caller knows.
    sizes = {k: v for k, v in trace.knobs.items() if isinstance(v, int) and not isinstance(v, bool)}
    batch: Shape | None = None
    owner = {name: f"knob {name}" for name in sizes}
    for port, shape in zip(inputs, arguments):
        fixed = len(port.axes)
        if len(shape) < fixed or (len(shape) > fixed and not port.batched):
            wanted = f"at least {fixed} axes" if port.batched else f"{fixed} axes"
            raise _refuse(trace, port, shape, "an argument has its port's rank", wanted, "reshape the argument")
        lead, tail = shape[: len(shape) - fixed], shape[len(shape) - fixed :]
        for axis, extent in zip(port.axes, tail):
            if isinstance(axis, Dim):
                if sizes.setdefault(axis.name, extent) != extent:
                    raise _refuse(
                        trace,
                        port,
                        shape,
                        f"dim {axis.name} has one value",
                        f"{sizes[axis.name]}, from {owner[axis.name]}",
                        "check the shapes of both arguments",
                    )
                owner.setdefault(axis.name, port.name)
            elif axis != extent:
                raise _refuse(trace, port, shape, "a fixed axis has its declared extent", axis, "reshape the argument")
        if port.batched:
            if batch is not None and lead != batch:
                raise _refuse(
                    trace,
                    port,
                    shape,
                    "ports with `...` share their leading axes",
                    batch,
                    "broadcast the argument first, or declare the port without `...` to share it",
                )
            batch = lead
    shapes: list[Shape] = []
    given = iter(arguments)
    for port in trace.ports:
        if port.direction == "in":
            shapes.append(next(given))
            continue
        lead = (batch or ()) if port.batched else ()
        if batch and not port.batched:
            raise Refusal(
                "an output of batched inputs is batched",
                where=f"kernel {trace.name}, port {port.declaration}",
                hint="declare it with a leading `...`",
            )
        shapes.append((*lead, *(int(a.value(sizes)) if isinstance(a, DimExpr) else a for a in port.axes)))
    return Binding(sizes, batch or (), tuple(shapes), stored)
