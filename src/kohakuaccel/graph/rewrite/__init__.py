"""Rewrites: rules as values. `TIDY` is the pipeline that changes no algebra; the catalogue's forms are added by name.

Decides which rules ship and in which order.
"""

from kohakuaccel.graph.rewrite.base import Rewrite, Rewrites
from kohakuaccel.graph.rewrite.clean import Canonicalise, CommonSubexpressions, DeadCode, FoldConstants
from kohakuaccel.graph.rewrite.forms import OnlineSoftmax, ShiftedLogSumExp
from kohakuaccel.graph.rewrite.movement import FoldMovement, SinkMovement
from kohakuaccel.graph.rewrite.scales import DivideLast, MeanInside, ScaleOperand
from kohakuaccel.graph.rewrite.scans import BlockedScan
from kohakuaccel.graph.rewrite.variance import ShiftedVariance, WelfordVariance

TIDY = Canonicalise() + FoldConstants() + FoldMovement() + SinkMovement() + CommonSubexpressions() + DeadCode()
"""Fewer statements, the same results in every format (constants computed now are rounded once, not at every step)."""

__all__ = [
    "TIDY",
    "BlockedScan",
    "Canonicalise",
    "CommonSubexpressions",
    "DeadCode",
    "DivideLast",
    "FoldConstants",
    "FoldMovement",
    "MeanInside",
    "OnlineSoftmax",
    "Rewrite",
    "Rewrites",
    "ScaleOperand",
    "ShiftedLogSumExp",
    "ShiftedVariance",
    "SinkMovement",
    "WelfordVariance",
]
