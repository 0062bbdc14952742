"""`DEV=KTPU python script.py` without an import: a line in a `.pth` file registers a device at every start of Python.

Decides where that file lies and what it says. Nothing is installed unless somebody asks: `python -m <package> install`.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path


def path_of(name: str) -> Path:
    """The file for a device, among the packages of this Python."""
    return Path(sysconfig.get_path("purelib")) / f"kohaku_tinygrad_{name.lower()}.pth"


def install(name: str, source: str) -> Path:
    """Write the file. It costs an import of one small module at every start; tinygrad is imported when it is used."""
    path = path_of(name)
    register = "kohakuaccel.frontends.tinygrad.register"
    path.write_text(f"import {register}; {register}.register({name!r}, {source!r})\n")
    return path


def uninstall(name: str) -> Path | None:
    """Remove the file; None where there is none."""
    path = path_of(name)
    if not path.exists():
        return None
    path.unlink()
    return path


def command(args: list[str], name: str, source: str, usage: str) -> int:
    """What `python -m <package>` does: install or remove the `.pth` file, and say where it is; the exit code."""
    if args == ["install"]:
        print(f"wrote {install(name, source)}: DEV={name} works without an import")
        return 0
    if args == ["uninstall"]:
        path = uninstall(name)
        print(f"removed {path}" if path else "nothing was installed")
        return 0
    print(usage)
    return 2
