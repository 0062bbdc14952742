"""`python -m tinytpu.tinygrad install | uninstall`: whether scripts find the device without an import."""

from __future__ import annotations

import sys

from kohakuaccel.frontends.tinygrad.autoload import command

if __name__ == "__main__":
    sys.exit(command(sys.argv[1:], "TINYTPU", "tinytpu.tinygrad.device", __doc__ or ""))
