"""A kernel written for a machine as a function of tinygrad's Tensors, with a gradient.

Decides how a call becomes a launch of tinygrad's (`Tensor.custom_kernel`), and where gradients come from. What the
kernel is, is the machine's: here it is a JSON record that its engine understands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from tinygrad.dtype import DType
from tinygrad.renderer import Estimates
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.frontends.tinygrad.finished import finished
from kohakuaccel.frontends.tinygrad.kernel import MARK, VERSION

Shape = tuple[int, ...]
Gradient = Callable[..., "Sequence[Tensor | None] | Tensor"]


def launched(
    name: str,
    record: Mapping[str, Any],
    outputs: Sequence[tuple[Shape, DType]],
    inputs: Sequence[Tensor],
    gradient: Gradient | None,
) -> list[Tensor]:
    """New Tensors that a kernel fills.

    record: what the device's engine needs to find it. gradient(gradient of the output, *inputs): one of each input, or
    None for those that have none.
    """
    device = inputs[0].device
    if not isinstance(device, str) or any(t.device != device for t in inputs):
        raise Refusal(
            "operands of a kernel lie on one device",
            where=f"kernel {name}",
            got=", ".join(str(t.device) for t in inputs),
            hint="call it on every shard, or move the operands with .to(device)",
        )
    if gradient is not None and len(outputs) > 1:
        raise Refusal(
            "a kernel with a gradient has one output",
            where=f"kernel {name}",
            got=len(outputs),
            hint="give no gradient, or write a kernel per output",
        )
    fresh = [Tensor.empty(*shape, dtype=dtype, device=device) for shape, dtype in outputs]
    binary = json.dumps({MARK: VERSION, "name": name, "own": dict(record)}).encode()
    buffers = [(t.dtype, prod(int(n) for n in t.shape)) for t in (*fresh, *inputs)]
    count = len(fresh)
    size = sum(n * dtype.itemsize for dtype, n in buffers)
    outs, ins = range(count), range(count, len(buffers))
    program = finished(name, binary, str(record), buffers, device, outs, ins, Estimates(ops=0, lds=size, mem=size))

    def body(*placeholders: UOp) -> UOp:
        return program

    made = fresh[0].custom_kernel(
        *fresh[1:], *inputs, fxn=body, grad_fxn=_gradient(name, gradient) if gradient else None
    )
    return made[:count]


def _gradient(name: str, gradient: Gradient) -> Callable[..., tuple[UOp | None, ...]]:
    """As tinygrad asks for it: of a gradient and the launch, one gradient per buffer of the launch."""

    def found(of_output: UOp, call: UOp) -> tuple[UOp | None, ...]:
        inputs = [Tensor(u) for u in call.src[2:]]
        given = gradient(Tensor(of_output), *inputs)
        grads = [given] if isinstance(given, Tensor) else list(given)
        if len(grads) != len(inputs):
            raise Refusal(
                "a gradient function returns one gradient per operand, or None",
                where=f"kernel {name}",
                got=len(grads),
                limit=len(inputs),
            )
        for n, (grad, operand) in enumerate(zip(grads, inputs)):
            if grad is not None and grad.shape != operand.shape:
                raise Refusal(
                    "a gradient has its operand's shape",
                    where=f"kernel {name}, operand {n}",
                    got=grad.shape,
                    limit=operand.shape,
                )
        return (None, *(None if g is None else g.uop for g in grads))

    return found
