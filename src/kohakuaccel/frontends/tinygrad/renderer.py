"""What tinygrad is told about a device of ours, and the stock form of kernels that are no graph.

Decides the capability flags: no locals, no shared memory, no vectors. It must not know machines.
"""

from __future__ import annotations

import base64
import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

from tinygrad.device import Compiler
from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import Target
from tinygrad.renderer import Renderer
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, python_alu

LOOPS = b"kohakuaccel.tinygrad.loops\n"
"""How the binary of a stock kernel begins; tinygrad's own form of its operations follows."""
notes: deque[tuple[str, str]] = deque(maxlen=1000)
"""Kernels that were left to loops, and why."""


class LoopCompiler(Compiler):
    """Marks the stock form."""

    def compile(self, src: str) -> bytes:
        return LOOPS + base64.b64decode(src)


class GraphRenderer(Renderer):
    """Kernels as graphs; what is none is kept as tinygrad's linear operations, which tinygrad's emulator runs."""

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
        """tinygrad's own encoding for its emulator."""
        return base64.b64encode(pickle.dumps(uops)).decode()

    def supported_dtypes(self) -> set[DType]:
        """All but the 8-bit floats, which tinygrad then keeps as bytes."""
        return {d for d in super().supported_dtypes() if d not in dtypes.fp8s}

    def note(self, ast: UOp, why: str) -> None:
        """Remember a kernel that is left to loops."""
        notes.append((ast.arg.name, why))
