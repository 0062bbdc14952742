"""The automatic scheduler: a graph becomes a plan of kernels that it writes, kernels that stand for patterns, and host
steps.

Decides fusion, tiles and order; see docs/scheduler.md.
"""

from kohakutpu.auto.compile import compile_graph
from kohakutpu.auto.host import HostStep
from kohakutpu.auto.patterns import Pattern
from kohakutpu.auto.plan import GraphPlan
from kohakutpu.auto.steps import KernelStep, LibraryStep, Step
from kohakutpu.auto.substitute import Substitution, registered, substitute, unregister

__all__ = [
    "GraphPlan",
    "HostStep",
    "KernelStep",
    "LibraryStep",
    "Pattern",
    "Step",
    "Substitution",
    "compile_graph",
    "registered",
    "substitute",
    "unregister",
]
