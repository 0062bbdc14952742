"""The instruction sets of KohakuTPU, bit for bit as the datasheet's tables (sections 4 to 7).

Modules: `cluster` and `vector` (the two units), `flit` (headers and message payloads), `control` (register
offsets and the control engine), `listing` (a program as text). They decide where bits are and refuse what a
machine cannot take; they know no kernels and no layouts.
"""

from kohakutpu.isa.listing import image_text

__all__ = ["image_text"]
