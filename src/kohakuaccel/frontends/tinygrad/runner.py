"""A captured batch of TinyJit as one sequence of launches.

Decides what is looked up once, when a batch is captured, and what at every replay. It must not know machines.
"""

from __future__ import annotations

from typing import Any, cast

from tinygrad.device import MultiBuffer
from tinygrad.engine.jit import GraphRunner
from tinygrad.engine.realize import get_call_arg_uops, resolve_params, unwrap_multi
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class SequenceRunner(GraphRunner):
    """Programs of one device in order; buffers that are no inputs are resolved when the batch is captured."""

    def __init__(self, linear: UOp, input_uops: tuple[UOp, ...] = ()) -> None:
        super().__init__(linear, input_uops)
        self.fixed: list[list[Any]] = [[b.get_buf(b.device) for b in bufs] for _, _, bufs, _ in self.calls]
        # A part of an input is another buffer at every replay.
        self.parts = [
            self._part(call) for call in self.linear.src for _ in unwrap_multi(call, self._now(call, input_uops))
        ]

    @staticmethod
    def _now(call: UOp, input_uops: tuple[UOp, ...]) -> list[UOp]:
        return resolve_params(call, input_uops)

    @staticmethod
    def _part(call: UOp) -> UOp | None:
        whole = all(
            not any(u.op is Ops.PARAM for u in b.toposort()) or b.op is Ops.PARAM for b in get_call_arg_uops(call)
        )
        return None if whole else call

    def __call__(self, input_uops: tuple[UOp, ...], var_vals: dict[str, int], wait: bool = False) -> float | None:
        """Replay; the sum of the devices' own seconds, where they know them."""
        total: float | None = None
        for n, (lane, program, _, own) in enumerate(self.calls):
            buffers = self.fixed[n]
            part = self.parts[n]
            if part is not None:
                found = list(unwrap_multi(part, resolve_params(part, input_uops)))[lane][0]
                buffers = [b.ensure_allocated().get_buf(b.device) for b in found]
            elif self.uop_replace[n]:
                buffers = list(buffers)
                for position, slot in self.uop_replace[n]:
                    given = input_uops[slot].buffer
                    one = given.bufs[lane] if isinstance(given, MultiBuffer) else given
                    buffers[position] = one.ensure_allocated().get_buf(one.device)
            info = program.arg
            run = cast(Any, self.runtimes[n])
            seconds = run(*[buffers[i] for i in info.globals], vals=info.vals({**var_vals, **own}), wait=wait)
            if seconds is not None:
                total = (total or 0.0) + seconds
        return total
