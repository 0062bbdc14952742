"""Buffers and their elements: shapes, places, the conditions under which a place is read.

Decides whether an element is read through index maps and guards, or gathered by value. It must not know what becomes
of what is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Protocol

from tinygrad.dtype import AddrSpace
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

from kohakuaccel.frontends.tinygrad.alu import invalid, zero
from kohakuaccel.frontends.tinygrad.formats import FORMATS
from kohakuaccel.frontends.tinygrad.indices import Indices, Untranslatable, settled, tidied
from kohakuaccel.frontends.tinygrad.places import Place, arranged, shape_of
from kohakuaccel.graph import WORDS, Cast, Const, DType, Expr, Guard, Index, Input, Lookup, Op, Range, Read, WordFormat
from kohakuaccel.graph.rewrite.axes import Cuts, chain, partly_followed, wanted

_S64 = WORDS["S64"]


class Values(Protocol):
    """Who translates expressions."""

    def as_(self, u: UOp, want: DType) -> Expr:
        """An expression as a value of a format."""
        ...

    def all_(self, gates: list[UOp]) -> Expr:
        """Whether all conditions hold."""
        ...


def format_of(u: UOp) -> DType:
    """The graph's format of a value."""
    if u.dtype not in FORMATS:
        raise Untranslatable(f"values of {u.dtype}")
    return FORMATS[u.dtype]


def buffer(u: UOp) -> tuple[int, DType, int]:
    """Slot, format and elements of a buffer."""
    if u.op is not Ops.PARAM or u.addrspace is not AddrSpace.GLOBAL:
        raise Untranslatable(f"an element of {u.op.name}")
    return u.arg.slot, format_of(u), int(u.max_numel())


def peeled(u: UOp) -> tuple[UOp, list[UOp]]:
    """What is chosen where it is valid, and the conditions under which it is."""
    gates: list[UOp] = []
    while True:
        if u.op is Ops.WHERE and invalid(u.src[2]):
            gates.append(u.src[0])
            u = u.src[1]
        elif u.op is Ops.CAST and u.src[0].op is Ops.WHERE and invalid(u.src[0].src[2]):
            gates.append(u.src[0].src[0])
            u = u.src[0].src[1].cast(u.dtype)
        else:
            return u, gates


def cuts_of(nodes: Sequence[UOp]) -> dict[UOp, Cuts]:
    """Where loops are cut: what is read and stored at their quotients and remainders has these as axes.

    Not where a fold would then have an operand that follows a part of a loop only: it is a product as it is.
    """
    plain = Indices()
    strides: dict[Range, set[int]] = defaultdict(set)
    for u in nodes:
        for index in _said(u, plain):
            for r, stride in wanted(index):
                strides[r].add(stride)
    found = {r: cuts for r, some in strides.items() if (cuts := chain(r.extent, some))}
    for u in nodes if found else ():
        if u.op is Ops.REDUCE:
            folded = {r for s in u.src[1:] if s in plain.loops for r in plain.loops[s]}
            reads = [tuple(_said(read, plain)) for read in u.src[0].toposort()]
            for r in partly_followed(found, folded, reads):
                del found[r]
    return {u: found[r] for u, (r,) in plain.loops.items() if r in found}


def _said(u: UOp, indices: Indices) -> Iterator[Index]:
    """The index maps of an element's place and of the conditions it is under; none for another node."""
    for place in u.src[1:] if u.op is Ops.INDEX else ():
        flat, gates = peeled(place)
        found = indices.index(flat)
        yield from () if found is None else (found,)
        for gate in gates:
            yield from (guard.index for guard in indices.guards(gate) or ())


class Reads:
    """The reads of one kernel. inputs: the buffers read so far, flat as `b<slot>`, in a shape as `a<slot>`."""

    def __init__(self, nodes: list[UOp], indices: Indices) -> None:
        self.indices = indices
        self.inputs: dict[str, Input] = {}
        self.shapes = self._shapes(nodes)

    def _shapes(self, nodes: list[UOp]) -> dict[int, tuple[int, ...]]:
        """The shape of every buffer, from all its reads."""
        found: dict[int, list[Place]] = {}
        sizes: dict[int, int] = {}
        for u in nodes:
            if u.op is Ops.INDEX and len(u.src) == 2 and u.src[0].op is Ops.PARAM:
                slot, _, sizes[u.src[0].arg.slot] = buffer(u.src[0])
                place, gates = peeled(u.src[1])
                flat, guards = self.indices.index(place), self._guards(gates) or ()
                found.setdefault(slot, []).extend([] if flat is None else [Place(settled(flat, guards), guards)])
        return {slot: shape_of(sizes[slot], flats) for slot, flats in found.items()}

    def read(self, u: UOp, values: Values) -> Expr:
        """An element of a buffer where its gates hold, else 0."""
        if len(u.src) != 2:
            raise Untranslatable("an element of a value of several axes")
        slot, dtype, size = buffer(u.src[0])
        place, gates = peeled(u.src[1])
        flat = self.indices.index(place)
        nothing = zero(dtype)
        if flat is not None:
            guards = self._guards(gates)
            if guards is not None:
                shape, flat = self.shapes[slot], settled(flat, guards)
                places = arranged(flat, guards, shape) if flat.affine and len(shape) > 1 else None
                if places is not None:
                    return Read(self._input("a", slot, shape, dtype), places, guards, nothing if guards else None)
                if _inside(flat, guards, size):
                    return Read(self._input("b", slot, (size,), dtype), (flat,), guards, nothing if guards else None)
        name = self._input("b", slot, (size,), dtype)
        at = values.as_(place, _S64)
        if not gates:
            return Read(name, (Index.of(Lookup(at, size)),))
        gate = values.all_(gates)
        safe = Lookup(Op("where", (gate, at, Cast(Const(0), _S64))), size)
        pad: Expr = Cast(nothing, dtype) if isinstance(dtype, WordFormat) else nothing
        return Op("where", (gate, Read(name, (Index.of(safe),)), pad))

    def _input(self, form: str, slot: int, shape: tuple[int, ...], dtype: DType) -> str:
        name = f"{form}{slot}"
        self.inputs.setdefault(name, Input(name, shape, dtype))
        return name

    def _guards(self, gates: list[UOp]) -> tuple[Guard, ...] | None:
        found: list[Guard] = []
        for gate in gates:
            some = self.indices.guards(gate)
            if some is None:
                return None
            found += some
        return tidied(found)


def _inside(flat: Index, guards: tuple[Guard, ...], size: int) -> bool:
    if any(g.never for g in guards):
        return True
    low, high = flat.interval(guards)
    return low >= 0 and high < size
