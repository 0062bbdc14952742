"""What tinygrad is told about a device of ours, and the stock form of kernels that are no graph.

Decides the capability flags: no locals, no shared memory, no vectors. It must not know machines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tinygrad.device import Compiler
from tinygrad.helpers import Target
from tinygrad.renderer import Renderer
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, python_alu

from kohakuaccel.frontends.tinygrad import linear

LOOPS = b"kohakuaccel.tinygrad.loops\n"
"""How the binary of a kernel that is no graph begins; its operations follow as JSON."""
notes: deque[tuple[str, str]] = deque(maxlen=1000)
"""Kernels that were left to loops, and why."""


class LoopCompiler(Compiler):
    """Marks the written-out form."""

    def compile(self, src: str) -> bytes:
        return LOOPS + src.encode()


class GraphRenderer(Renderer):
    """Kernels as graphs; what is none is written out in tinygrad's linear operations, which are interpreted."""

    has_local = False
    has_shared = False
    shared_max = 0
    has_threads = False
    supports_float4 = False
    code_for_op: dict[Ops, Callable[..., Any]] = python_alu
    compiler: Compiler = LoopCompiler()

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.suffix = target.arch

    def render(self, uops: list[UOp]) -> str:
        """A kernel that is no graph."""
        return linear.encode(uops)

    def note(self, ast: UOp, why: str) -> None:
        """Remember a kernel that is left to loops."""
        notes.append((ast.arg.name, why))
