"""tinygrad on an accelerator: registration of a device outside tinygrad's tree, its memory, and kernels as graphs.

Decides what every machine's tinygrad device shares. A machine gives a name and a way to run graphs (`Engine`).
"""
