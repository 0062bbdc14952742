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
SCHEDULE = "tinygrad.schedule"
EARLY = "kohakuaccel.frontends.tinygrad.joined.early"
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


class ScheduleFinder(MetaPathFinder):
    """Has `joined.early` know of one device as soon as tinygrad's schedule is imported."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Answers for one module of tinygrad's, as the next finder does."""
        if fullname != SCHEDULE:
            return None
        after = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next((s for f in after if (s := f.find_spec(fullname, path, target))), None)  # pyright: ignore[reportArgumentType] - a path's type is the import system's own
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, self)
        return spec

    def expect(self) -> None:
        """Tell the seam."""
        import_module(EARLY).expect(self.name, self.source)


class _Then(Loader):
    """A module's own loader, and something to do afterwards."""

    def __init__(self, own: Loader, finder: ScheduleFinder) -> None:
        self.own, self.finder = own, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.own
        if module.__spec__ is not None:
            module.__spec__.loader = self.own
        self.own.exec_module(module)
        self.finder.expect()


def register(name: str, source: str) -> None:
    """Make tinygrad's `Device[name]` find `<name>Device` of module `source`. Doing it again changes nothing."""
    if not name.isupper() or ":" in name or name.startswith(SPECIAL):
        raise ValueError(f"a device of its own is written in capitals and begins like none of {SPECIAL}: {name!r}")
    known = [f for f in sys.meta_path if isinstance(f, DeviceFinder) and f.name == name]
    if not known:
        early = ScheduleFinder(name, source)
        sys.meta_path[:0] = [DeviceFinder(name, source), early]
        if SCHEDULE in sys.modules:
            early.expect()
