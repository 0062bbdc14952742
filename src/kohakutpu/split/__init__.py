"""Products as accurate as float32 on clusters that multiply 7-bit integers.

Decides what callers see: `matmul` of arrays, and `mxfp7` for operands that are quantised already.
"""

from kohakutpu.split.multiply import Product, matmul, product
from kohakutpu.split.quantised import mxfp7

__all__ = ["Product", "matmul", "mxfp7", "product"]
