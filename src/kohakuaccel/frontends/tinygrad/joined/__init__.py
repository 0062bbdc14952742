"""Kernels that tinygrad cut apart, as one.

Decides which kernels of a schedule belong together, what one kernel of them computes, and how they run. It must not
know machines: an engine says which kernels it could take.
"""
