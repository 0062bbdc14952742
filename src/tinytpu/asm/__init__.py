"""TASM: bundles as text that people write and read (datasheet 8).

`assemble` and `disassemble` are each other's inverse: a bundle's text assembles to the same records.
"""

from tinytpu.asm.assembler import assemble
from tinytpu.asm.disassembler import disassemble

__all__ = ["assemble", "disassemble"]
