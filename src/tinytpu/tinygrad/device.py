"""The device "TINYTPU" as tinygrad sees it.

Decides names: of the renderer (`AST`), and what an arch string means.
"""

from __future__ import annotations

from tinygrad.device import Compiled
from tinygrad.helpers import DEV

from kohakuaccel.frontends.tinygrad.compiling import install
from kohakuaccel.frontends.tinygrad.joined.schedule import install as join
from kohakuaccel.frontends.tinygrad.memory import GraphAllocator
from kohakuaccel.frontends.tinygrad.program import GraphProgram
from kohakuaccel.frontends.tinygrad.renderer import GraphRenderer
from kohakuaccel.frontends.tinygrad.runner import SequenceRunner
from tinytpu.machines import DEFAULT
from tinytpu.tinygrad.engine import TinyTPUEngine, joins
from tinytpu.tinygrad.numerics import current

install()
join("TINYTPU", joins, lambda: current().join == "allow")


class TinyTPUAstRenderer(GraphRenderer):
    """`DEV=TINYTPU:AST`, the only one. In a module of its own name, so that compile workers find it."""


class TINYTPUDevice(Compiled):
    """One TinyTPU. `DEV=TINYTPU[:AST[:machine,name=value,...]]`; it always has a clock."""

    def __init__(self, device: str) -> None:
        arch = DEV.target("TINYTPU").arch or DEFAULT
        self.engine = TinyTPUEngine(arch)
        super().__init__(device, GraphAllocator(self), [TinyTPUAstRenderer], GraphProgram, SequenceRunner, arch)
