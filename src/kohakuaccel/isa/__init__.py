"""Instruction formats as field tables: one declaration gives encoder, decoder, range checks and text.

It must not know any machine's instructions; those are declared by the machine's own package.
"""

from kohakuaccel.isa.field import Field
from kohakuaccel.isa.format import Format
from kohakuaccel.isa.instructions import InstructionSet

__all__ = ["Field", "Format", "InstructionSet"]
