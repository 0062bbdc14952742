"""The device "TINYTPU" as tinygrad sees it.

Decides names: of the renderer (`AST`), and what an arch string means; that devices are cores of one system, between
which copies go over the network.
"""

from __future__ import annotations

from tinygrad.device import Compiled
from tinygrad.helpers import DEV

from kohakuaccel.frontends.tinygrad.compiling import install
from kohakuaccel.frontends.tinygrad.joined.schedule import install as join
from kohakuaccel.frontends.tinygrad.memory import GraphAllocator, View
from kohakuaccel.frontends.tinygrad.program import GraphProgram
from kohakuaccel.frontends.tinygrad.renderer import GraphRenderer
from kohakuaccel.frontends.tinygrad.runner import SequenceRunner
from tinytpu.cores.copying import copy
from tinytpu.machines import DEFAULT
from tinytpu.tinygrad import counting
from tinytpu.tinygrad.engine import TinyTPUEngine, joins
from tinytpu.tinygrad.numerics import current

install()
join("TINYTPU", joins, lambda: current().join == "allow")


class TinyTPUAstRenderer(GraphRenderer):
    """`DEV=TINYTPU:AST`, the only one. In a module of its own name, so that compile workers find it."""


class TinyTPUAllocator(GraphAllocator):
    """Memory of one core, which the host holds; from one core to another bytes go over the network, counted."""

    def _transfer(self, dest: View, src: View, sz: int, src_dev: Compiled, dest_dev: Compiled) -> None:
        if src_dev is dest_dev:
            super()._transfer(dest, src, sz, src_dev, dest_dev)
            return
        assert isinstance(src_dev, TINYTPUDevice)
        done = copy(src.read()[:sz], src_dev.engine.machine)
        counting.total.copied(sz, done.cycles, src_dev.engine.machine)
        dest.write()[:sz] = done.data


class TINYTPUDevice(Compiled):
    """One TinyTPU core. `DEV=TINYTPU[:AST[:machine,name=value,...]]`; it always has a clock."""

    def __init__(self, device: str) -> None:
        arch = DEV.target("TINYTPU").arch or DEFAULT
        self.engine = TinyTPUEngine(arch, device)
        super().__init__(device, TinyTPUAllocator(self), [TinyTPUAstRenderer], GraphProgram, SequenceRunner, arch)
