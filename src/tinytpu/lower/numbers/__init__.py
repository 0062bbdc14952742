"""Scalar operations of the graph as instructions over tiles: integers, binary32, functions, conversions.

Each is right at the ends that the datasheet's operations get wrong (datasheet 13), or refused.
"""

from tinytpu.lower.numbers.base import Tile
from tinytpu.lower.numbers.operations import convert, identity, operate, reinterpret

__all__ = ["Tile", "convert", "identity", "operate", "reinterpret"]
