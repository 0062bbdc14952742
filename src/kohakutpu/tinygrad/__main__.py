"""`python -m kohakutpu.tinygrad install | uninstall`: whether scripts find the device without an import."""

from __future__ import annotations

import sys

from kohakuaccel.frontends.tinygrad.autoload import install, uninstall


def main(args: list[str]) -> int:
    """Install or remove the `.pth` file, and say where it is."""
    if args == ["install"]:
        print(f"wrote {install('KTPU', 'kohakutpu.tinygrad.device')}: DEV=KTPU works without an import")
        return 0
    if args == ["uninstall"]:
        path = uninstall("KTPU")
        print(f"removed {path}" if path else "nothing was installed")
        return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
