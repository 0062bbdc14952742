"""What a forward pass cost: error against a reference, simulated time, its limiter, the host's time, what was counted.

It decides what is told of a run. It must not know the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from kohakutpu import api as ktpu
from kohakutpu.device import Device
from kohakutpu.tensor import Tensor


@dataclass(frozen=True)
class Figures:
    """error: norm of the difference to the reference over the reference's norm. cycles, milliseconds and limiter are
    modelled; host_seconds is measured on the host that runs the model, and says nothing about a card."""

    error: float
    cycles: int
    milliseconds: float
    limiter: str
    cold_seconds: float
    host_seconds: float
    launches: int
    host_steps: int
    relayouts: int
    device_relayouts: int
    saturations: int

    def pretty(self) -> str:
        """Four lines."""
        return "\n".join(
            (
                f"  error to float32 {self.error:.2e}",
                f"  simulated {self.milliseconds:.3f} ms, {self.cycles:,} cycles (modelled); limiter {self.limiter}",
                f"  host time {self.host_seconds:.3f} s, {self.cold_seconds:.2f} s the first time, with compiling",
                f"  {self.launches} launches, {self.device_relayouts} relayouts on the device, {self.relayouts} by "
                f"the host, host steps {self.host_steps}, saturated values {self.saturations}",
            )
        )


def relative(got: Any, want: Any) -> float:
    """Norm of the difference over the norm of what is wanted."""
    exact = np.asarray(want, np.float64)
    return float(np.linalg.norm(np.asarray(got, np.float64) - exact) / np.linalg.norm(exact))


def jitted(eager: Figures, run: Callable[[], Tensor], want: Any, device: Device | None = None) -> str:
    """One line: simulated time of the same forward pass compiled as one program, beside kernel by kernel."""
    _, one = measured(run, want, device)
    return (
        f"  as one program {one.milliseconds:.3f} ms instead of {eager.milliseconds:.3f} (modelled), {one.launches} "
        f"launches instead of {eager.launches}, host steps {one.host_steps}, error {one.error:.2e}"
    )


def measured(run: Callable[[], Tensor], want: Any, device: Device | None = None) -> tuple[Any, Figures]:
    """(what run() returned, its figures). It runs three times: compiling, timed, and for the host's time.

    want: the reference's result of the same shape.
    """
    start = perf_counter()
    got = run().numpy()
    cold = perf_counter() - start
    timeline = ktpu.time(run, device=device)[1]  # its result is let go, so that every pass finds the same memory free
    ktpu.reset_stats(device)
    start = perf_counter()
    run().numpy()
    warm = perf_counter() - start
    counted = ktpu.stats(device)
    fullest = max(timeline.shares(), key=lambda share: share.busy, default=None)
    limiter = "none" if fullest is None else f"{fullest.group} {100 * fullest.busy / max(fullest.total, 1):.0f} % full"
    figures = Figures(
        relative(got, want),
        timeline.cycles,
        timeline.seconds * 1e3,
        limiter,
        cold,
        warm,
        counted["dispatches"],
        counted["host_steps"],
        counted["relayouts"],
        counted["device_relayouts"],
        counted["saturations"],
    )
    return got, figures
