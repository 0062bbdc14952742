"""The instruction set of TinyTPU, declared once: assembler, checks, unit model, traces and tables derive from it.

It decides what an instruction is; it knows no bundle files, no values of tiles and no time.
"""

from tinytpu.isa.codes import FIELDS, SXU, VPU, Column, Epilogue, Psum, Record

__all__ = ["FIELDS", "SXU", "VPU", "Column", "Epilogue", "Psum", "Record"]
