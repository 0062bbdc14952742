"""What programs of this process ran, for whoever wants their timeline: image, how often, how long.

Decides what is kept of a run, and under which name. Nothing is kept, and nothing costs, outside of `recording`. It must
not know what a timeline is.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from kohakuaccel.machine import Machine
    from tinytpu.units.core import Batch, Image, Run, Sets


@dataclass(frozen=True)
class Played:
    """A program that ran `times` times, `cycles` each; image: of one of the runs. name: labels and the program's own,
    joined by " / "."""

    name: str
    machine: Machine
    image: Image
    times: int
    cycles: int
    silicon: bool = False


_kept: ContextVar[list[Played] | None] = ContextVar("_kept", default=None)
_labels: ContextVar[tuple[str, ...]] = ContextVar("_labels", default=())


@contextmanager
def recording() -> Generator[list[Played]]:
    """Within it, the programs that this thread runs, in order; those of a recording inside of it are that one's."""
    found: list[Played] = []
    before = _kept.set(found)
    try:
        yield found
    finally:
        _kept.reset(before)


@contextmanager
def labelled(name: str) -> Generator[None]:
    """Within it, programs that run are of `name`: a layer, or a kernel of a frontend."""
    before = _labels.set((*_labels.get(), name))
    try:
        yield
    finally:
        _labels.reset(before)


def keep(name: str, run: Run, *, silicon: bool = False) -> None:
    """Keep a run, where somebody wants it."""
    kept = _kept.get()
    if kept is not None:
        kept.append(Played(_named(name), run.machine, run.image, 1, run.cycles, silicon))


def keep_sets(name: str, machine: Machine, sets: Sets, batch: Batch) -> None:
    """Keep the runs of a program on many data sets, where somebody wants them; those of equal length are as one."""
    kept = _kept.get()
    if kept is None:
        return
    lengths, first, times = np.unique(batch.cycles, return_index=True, return_counts=True)
    for cycles, number, count in zip(lengths.tolist(), first.tolist(), times.tolist()):
        kept.append(Played(_named(name), machine, sets.image(number), count, cycles))


def _named(name: str) -> str:
    return " / ".join([*_labels.get(), *([name] if name else [])])
