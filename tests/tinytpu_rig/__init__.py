"""A slow, plain-Python TinyTPU written from the datasheet alone, and what the unit tests build programs with.

`softfloat`, `lanes` and `machine` are the second opinion for the compiled model: integers, exact fractions and one
step per cycle. They must not import anything from the packages under test.
"""
