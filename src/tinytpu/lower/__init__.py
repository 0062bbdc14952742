"""Lowering: a graph of tensor expressions becomes bundles and the data that fills them.

`compile_graph` gives a plan, `Plan.run` runs it on the machine model.
"""

from tinytpu.lower.errors import NotLowered
from tinytpu.lower.plan import Plan, Ran, compile_graph

__all__ = ["NotLowered", "Plan", "Ran", "compile_graph"]
