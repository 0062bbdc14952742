"""The machine that is meant where nobody names one: the datasheet's, or what `kohaku --machine` chose.

Decides nothing else: code that takes a machine is given one.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from kohakuaccel.machine import Machine
from tinytpu import machines

_chosen: list[Machine] = []


def chosen() -> Machine:
    """The machine chosen for this process, the datasheet's without one."""
    return _chosen[-1] if _chosen else machines.load()


def use(machine: Machine) -> None:
    """Choose a machine from here on."""
    _chosen[:] = [machine]


@contextmanager
def choosing(machine: Machine) -> Generator[None]:
    """Choose a machine within."""
    before = list(_chosen)
    use(machine)
    try:
        yield
    finally:
        _chosen[:] = before
