"""Kernels that are no graph, as tinygrad writes them out: operations in order, as JSON for the evaluator (`loops`).

Decides which of tinygrad's linear operations can be written down. It must not know how they are computed.
"""

from __future__ import annotations

import json
from typing import Any

from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

from kohakuaccel.diagnostics import Unsupported
from kohakuaccel.frontends.tinygrad.alu import operation
from kohakuaccel.frontends.tinygrad.formats import FORMATS, WEAK
from kohakuaccel.frontends.tinygrad.indices import Untranslatable
from kohakuaccel.graph import BOOL, DType

_SKIPPED = (Ops.SINK, Ops.NOOP, Ops.GROUP, Ops.BARRIER)
_PLAIN = {
    Ops.STORE: "store",
    Ops.IF: "if",
    Ops.ENDIF: "endif",
    Ops.CAST: "cast",
    Ops.AFTER: "same",
    Ops.STACK: "stack",
}


def encode(uops: list[UOp]) -> str:
    """[what, format, operands, argument] of each operation; a text, without a line break."""
    kept = [u for u in uops if u.op not in _SKIPPED]
    at = {u: n for n, u in enumerate(kept)}
    try:
        return json.dumps([_node(u, at) for u in kept])
    except (Untranslatable, KeyError) as why:
        raise Unsupported(
            "a kernel without a graph is written in operations that are known", where="tinygrad", got=str(why)
        ) from None


def _node(u: UOp, at: dict[UOp, int]) -> list[Any]:
    what, arg = _what(u)
    return [what, _name(u), [at[s] for s in _operands(u)], arg]


def _operands(u: UOp) -> tuple[UOp, ...]:
    if u.op in (Ops.PARAM, Ops.BUFFER, Ops.ENDIF):
        return ()
    if u.op is Ops.END:  # the loop, and for one without a count whether it goes on
        return u.src[1:]
    if u.op is Ops.AFTER:
        return u.src[:1]
    return tuple(s for s in u.src if s.dtype is not dtypes.void)


def _name(u: UOp) -> str:
    if u.dtype is dtypes.void:
        return ""
    if u.dtype not in FORMATS:
        raise Untranslatable(f"values of {u.dtype}")
    return FORMATS[u.dtype].name


def _what(u: UOp) -> tuple[str, Any]:
    if u.op in _PLAIN:
        return _PLAIN[u.op], None
    match u.op:
        case Ops.PARAM if u.addrspace is AddrSpace.ALU:
            return "variable", None
        case Ops.PARAM:
            return "parameter", u.arg.slot
        case Ops.BUFFER:
            return "registers", int(u.max_numel())
        case Ops.SPECIAL:
            return "place", u.arg
        case Ops.CONST:
            return "number", float(u.arg).hex() if isinstance(u.arg, float) else u.arg
        case Ops.RANGE:
            return ("again" if u.dtype is dtypes.void else "range"), None
        case Ops.END:
            return "end", None
        case Ops.LOAD:
            return "load", int(u.max_numel())
        case Ops.INDEX | Ops.SHRINK:
            return ("lane" if u.src[0].addrspace is AddrSpace.ALU else "index"), None
        case Ops.BITCAST if u.addrspace in (AddrSpace.GLOBAL, AddrSpace.LOCAL, AddrSpace.REG):
            return "view", None
        case Ops.BITCAST:
            return "bits", None
        case _ if u.op in GroupOp.ALU:
            return "compute", _computed(u)
        case _:
            raise Untranslatable(u.op.name)


def _computed(u: UOp) -> str:
    """The graph's operation; of comparisons and choices those that say themselves what they take."""
    simple = {Ops.WHERE: "where", Ops.CMPLT: "less", Ops.CMPEQ: "equal", Ops.CMPNE: "differ"}
    if u.op in simple:
        return simple[u.op]
    strong = [s.dtype for s in u.src if s.dtype not in WEAK]
    taken: DType = FORMATS[(strong or [u.dtype])[0]]
    if u.op is Ops.XOR and taken == BOOL:
        return "differ"
    return operation(u.op, taken)
