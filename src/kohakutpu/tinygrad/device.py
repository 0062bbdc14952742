"""The device "KTPU" as tinygrad sees it.

Decides names: of the renderer (`AST`), of the interfaces (`MODEL`, `TIMED`), and what an arch string means.
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
from kohakutpu.machines import DEFAULT
from kohakutpu.tinygrad.engine import KTPUEngine, joins
from kohakutpu.tinygrad.numerics import current

install()
join("KTPU", joins, lambda: current().join == "allow")


class KTPUAstRenderer(GraphRenderer):
    """`DEV=KTPU:AST`, the only one. In a module of its own name, so that compile workers find it."""


class MODELIface:
    """The machine's model, bit for bit, without a clock."""

    timed = False

    def __init__(self, dev: Compiled, device_id: int) -> None:
        self.count = 1


class TIMEDIface(MODELIface):
    """The model with its clock: programs return simulated seconds."""

    timed = True


class KTPUDevice(Compiled):
    """One KohakuTPU. `DEV=[TIMED+]KTPU[:AST[:machine,name=value,...]]`."""

    ifaces = [MODELIface, TIMEDIface]  # noqa: RUF012  (tinygrad's own attribute)

    def __init__(self, device: str) -> None:
        self.iface = self._select_iface(device)
        arch = DEV.target("KTPU").arch or DEFAULT
        self.engine = KTPUEngine(arch, self.iface.timed)
        super().__init__(device, GraphAllocator(self), [KTPUAstRenderer], GraphProgram, SequenceRunner, arch)
