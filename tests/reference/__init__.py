"""A slow, plain-Python interpreter of the KohakuTPU instruction sets, written from the datasheet alone.

It is the second opinion for the compiled unit models: integers and exact dyadic arithmetic, no numpy, no
shared definitions. It must not import anything from the packages under test.
"""
