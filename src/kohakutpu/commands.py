"""What the `kohaku` command asks of this machine package: its default, its peak, one trial, its listings.

Every answer is a line or two over the parts that decide it; nothing is computed here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine

if TYPE_CHECKING:
    from kohakuaccel.image import Image
    from kohakuaccel.sim import Timeline

DEFAULT_MACHINE = "ship_3x2"


def peak(machine: Machine) -> str:
    """Matmul peak: clusters times MACs per cycle, at the model's clock (datasheet 1.3)."""
    macs = len(machine.units_of("MG")) * machine.params.macs_per_cycle
    clock = machine.params.clock_mhz
    return f"{macs:,} MAC/cycle, {2 * macs * clock / 1000:,.0f} GFLOP/s at {clock} MHz"


def use(machine: Machine) -> None:
    """Make `machine` the default device of this process."""
    from kohakutpu import api

    api.use(machine)


_ROOM = ("memory_free", "largest_hole", "fragmentation")  # what is left is no cost


def stats() -> Mapping[str, object]:
    """What the default device has counted; empty when it was not used."""
    if "kohakutpu.device" not in sys.modules:
        return {}
    from kohakutpu import api

    counts = api.stats()
    used = counts["dispatches"] or counts["bytes_to_device"]
    return {name: value for name, value in counts.items() if name not in _ROOM} if used else {}


def timed(call: Callable[[], None], name: str) -> Timeline:
    """Make the call; the modelled timeline of everything that it ran on the default device."""
    from kohakutpu import api
    from kohakutpu.sim import session

    return session.timed(api.device(), call, name)[1]


def smoke(machine: Machine) -> tuple[bool, str]:
    """An integer matmul that the formats hold exactly: with a 15 in every block of 32 the block's scale
    is 1/4, every value of -15..15 is a whole number of quarters (datasheet 2.2), and every sum is below
    2**15.
    """
    import numpy as np

    from kohakutpu import api

    device = api.device(machine)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-15, 16, (2, 16, 64))
    a[:, ::32] = b[:, ::32] = 15
    got = (api.tensor(a, device=device) @ api.tensor(b, device=device)).numpy()
    exact = bool(np.array_equal(got, (a @ b.T).astype(got.dtype)))
    return exact, "16x64 @ 16x64 of integers through the tensor API"


def image_text(image: Image, limit: int | None = None) -> str:
    """An image's instructions, readable; at most `limit` per unit and stage."""
    from kohakutpu import isa

    return isa.image_text(image, limit=limit)


def opened(path: Path) -> NoReturn:
    """Refused: programs of this machine are written in Python."""
    raise Refusal(
        "a program of this machine is a .py file", where="kohaku", got=str(path), hint="--machine names another"
    )


def plan_text(plan: Any, limit: int | None = None) -> str:
    """A compiled kernel's instructions, readable; at most `limit` per unit and stage."""
    from kohakuaccel.cli.kernels import image_of

    return image_text(image_of(plan), limit)
