"""Kernels with variables: kept as they are, as JSON, and translated once per set of values when they run.

Decides which of tinygrad's nodes can be written down. Nothing in a text is evaluated; what it does not know it refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinygrad.dtype import AddrSpace, Invalid, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, KernelInfo, ParamArg, UOp

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.frontends.tinygrad.indices import Untranslatable

DEVICE = "_device_num"
"""The variable that says which device of several a kernel runs on."""
_TYPES = {d.name: d for d in (*dtypes.all, dtypes.void, dtypes.weakint, dtypes.weakfloat)}
_BY_TYPE = {d: name for name, d in _TYPES.items()}


def variables(sink: UOp) -> tuple[UOp, ...]:
    """The variables a kernel's loops and indices follow, by name."""
    return tuple(sink.variables())


def encode(sink: UOp) -> list[Any]:
    """A kernel's nodes in order, each as [operation, dtype, sources, argument]."""
    nodes = list(sink.toposort())
    at = {u: n for n, u in enumerate(nodes)}
    return [[u.op.name, _BY_TYPE[u.dtype], [at[s] for s in u.src], _argument(u)] for u in nodes]


def _argument(u: UOp) -> Any:
    arg = u.arg
    match arg:
        case None | bool() | int() | str():
            return arg
        case KernelInfo():
            return {"kernel": arg.name}
        case ParamArg():
            ends = list(arg.vmin_vmax) if arg.vmin_vmax else None
            return {
                "slot": arg.slot,
                "type": _BY_TYPE[arg.dtype],
                "ends": ends,
                "name": arg.name,
                "space": arg.addrspace.name if arg.addrspace else None,
            }
        case float():
            return {"float": float(arg).hex() if arg == arg else "nan"}
        case tuple():
            return {"tuple": [_part(p) for p in arg]}
        case _ if arg is Invalid:
            return {"invalid": True}
        case _ if arg in _BY_TYPE:
            return {"type_is": _BY_TYPE[arg]}
        case _:
            raise Untranslatable(f"{u.op.name} with {arg!r}")


def _part(part: Any) -> Any:
    if isinstance(part, Ops):
        return {"op": part.name}
    if isinstance(part, AxisType):
        return {"axis": part.name}
    if isinstance(part, int):
        return part
    raise Untranslatable(f"an argument {part!r}")


def decode(nodes: list[Any]) -> UOp:
    """The kernel that `encode` wrote."""
    made: list[UOp] = []
    for op, dtype, src, arg in nodes:
        made.append(UOp(Ops[op], _TYPES[dtype], tuple(made[n] for n in src), _decoded(arg)))
    return made[-1]


def _decoded(arg: Any) -> Any:
    if not isinstance(arg, dict):
        return arg
    match arg:
        case {"kernel": name}:
            return KernelInfo(name=name)
        case {"slot": slot, "type": dtype, "ends": ends, "name": name, "space": space}:
            return ParamArg(
                slot,
                _TYPES[dtype],
                vmin_vmax=tuple(ends) if ends else None,
                name=name,
                addrspace=AddrSpace[space] if space else None,
            )
        case {"float": text}:
            return dtypes.weakfloat.const(float("nan") if text == "nan" else float.fromhex(text))
        case {"tuple": parts}:
            return tuple(_decoded_part(p) for p in parts)
        case {"invalid": True}:
            return Invalid
        case {"type_is": name}:
            return _TYPES[name]
        case _:
            raise Refusal("a kernel's text has known arguments", where="tinygrad", got=arg)


def _decoded_part(part: Any) -> Any:
    if isinstance(part, dict):
        return Ops[part["op"]] if "op" in part else AxisType[part["axis"]]
    return part


def specialised(sink: UOp, values: Mapping[str, int]) -> UOp:
    """The kernel with its variables replaced by numbers. The device's own loop is closed at its number."""
    new: dict[UOp, UOp] = {}
    for u in sink.toposort():
        if u.op is Ops.PARAM and u.arg.addrspace is AddrSpace.ALU:
            new[u] = u.const_like(values[u.arg.name])
        elif u.op is Ops.RANGE and u.arg[-1] is AxisType.DEVICE:
            new[u] = u.const_like(values[DEVICE])
    return sink.substitute(new)
