"""The instruction set as text, a line per opcode: what `tinytpu opcodes` prints."""

from __future__ import annotations

from tinytpu.isa.opcodes import OPCODES, Form
from tinytpu.isa.vpu import VPU_OPS


def sequencer() -> str:
    """Every opcode of the sequencer: number, cycles, what it waits for, effect, and how it is written."""
    lines = [f"{'':>3} {'cycles':22} {'waits':5} effect"]
    for code, opcode in OPCODES.items():
        lines.append(f"{int(code):3} {opcode.cycles:22} {opcode.stall or '-':5} {opcode.effect}")
        lines += [f"{'':14}{way}" for form in opcode.forms.values() for way in _ways(form)]
    return "\n".join(lines)


def _ways(form: Form) -> list[str]:
    return [way if isinstance(way, str) else way[0] for way in form.ways]


def operations() -> str:
    """Every operation of the vector unit: number, name, operands, data, span, effect."""
    lines = [f"{'':>3} {'operation':20} {'operands':8} {'data':9} {'span':7} effect"]
    for code, op in VPU_OPS.items():
        lines.append(f"{int(code):3} {code.name:20} {op.operands:<8} {op.data:9} {op.span:7} {op.effect}")
    return "\n".join(lines)
