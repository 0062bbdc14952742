"""A device outside tinygrad's tree: found under `tinygrad.runtime.ops_<name>`, imported when tinygrad asks for it.

Decides how tinygrad's own lookup, an import, ends at our module. tinygrad itself is not imported here, so that the hook
may stand in a `.pth` file that every start of Python reads.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "tinygrad.runtime.ops_"
SPECIAL = ("CL", "WEBGPU", "DISK", "TINYFS", "NULL", "NPY", "PYTHON")
"""Beginnings of names that tinygrad treats in a way of its own."""


class DeviceFinder(MetaPathFinder, Loader):
    """Finds one device's module: the attribute `<NAME>Device` of `source`, in a module of tinygrad's name for it."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Answers for this device's module alone."""
        if fullname != PACKAGE + self.name.lower():
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """An ordinary module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """The device's class, from where it is defined."""
        attribute = f"{self.name}Device"
        setattr(module, attribute, getattr(import_module(self.source), attribute))


def register(name: str, source: str) -> None:
    """Make tinygrad's `Device[name]` find `<name>Device` of module `source`. Doing it again changes nothing."""
    if not name.isupper() or ":" in name or name.startswith(SPECIAL):
        raise ValueError(f"a device of its own is written in capitals and begins like none of {SPECIAL}: {name!r}")
    known = [f for f in sys.meta_path if isinstance(f, DeviceFinder) and f.name == name]
    if not known:
        sys.meta_path.insert(0, DeviceFinder(name, source))
