"""Programs as one graph: tensors are asked, nothing runs, and the whole is compiled together.

Decides what is recorded, when it runs and which values leave it. It must not know tiles, units or addresses.
"""

from kohakutpu.lazy.blocks import Recording, graph
from kohakutpu.lazy.program import Program
from kohakutpu.lazy.tracing import Jitted, jit

__all__ = ["Jitted", "Program", "Recording", "graph", "jit"]
