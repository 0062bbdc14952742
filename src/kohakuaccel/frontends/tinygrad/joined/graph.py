"""Several kernels as one: the graph in which a value that one kernel stores is read by the next where it is computed.

Decides how a buffer between two kernels becomes a value of one graph: both sides name a flat place, and the shape that
both agree on gives it axes. It must not know tinygrad, nor which kernels belong together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from kohakuaccel.frontends.tinygrad.kernel import Kernel, Store
from kohakuaccel.frontends.tinygrad.places import Place, Shape, arranged, shape_of
from kohakuaccel.graph import Expr, Graph, Index, Input, Range, Read, Statement, Value, verify
from kohakuaccel.graph.expr import rebuild


def joined(name: str, parts: Sequence[Kernel], kept: frozenset[int]) -> Kernel:
    """The kernel that computes what `parts` do, one after the other.

    parts: kernels whose slots are numbered alike, each storing whole buffers, no buffer stored to twice.
    kept: the slots whose content is asked for afterwards; what the others hold is read by later parts alone.
    """
    return _Join(parts, kept).kernel(name)


def renumbered(kernel: Kernel, slots: Mapping[int, int]) -> Kernel:
    """The kernel with its buffers in other slots."""
    new = {v.name: f"{v.name[0]}{slots[int(v.name[1:])]}" for v in kernel.graph.inputs}

    def renamed(e: Expr) -> Expr:
        return Read(new[e.value], e.indices, e.guards, e.pad) if isinstance(e, Read) and e.value in new else e

    values: list[Value] = []
    for v in kernel.graph.values:
        if isinstance(v, Input):
            values.append(Input(new[v.name], v.shape, v.dtype))
        elif isinstance(v, Statement):
            values.append(Statement(v.name, v.dtype, v.ranges, rebuild(v.body, renamed), v.reduction))
        else:
            values.append(v)
    stores = tuple(Store(slots[s.slot], s.value, s.place, s.gate) for s in kernel.stores)
    return Kernel(kernel.name, Graph(tuple(values), kernel.graph.outputs), stores)


class _Join:
    def __init__(self, parts: Sequence[Kernel], kept: frozenset[int]) -> None:
        self.parts, self.kept = parts, kept
        self.shapes = _shapes(parts)
        self.made: dict[int, str] = {}
        """The value that a slot holds, where a part has stored to it."""
        self.inputs: dict[str, Input] = {}
        self.values: list[Value] = []

    def kernel(self, name: str) -> Kernel:
        stores: list[Store] = []
        for n, part in enumerate(self.parts):
            self._part(n, part)
            stores += [Store(s.slot, self.made[s.slot]) for s in part.stores if s.slot in self.kept]
        outputs = tuple((s.value, s.value) for s in stores)
        return Kernel(name, verify(Graph((*self.inputs.values(), *self.values), outputs)), tuple(stores))

    def _part(self, n: int, part: Kernel) -> None:
        slots = {v.name: int(v.name[1:]) for v in part.graph.inputs}
        named = dict(part.graph.outputs)
        stored = {named[s.value]: s.slot for s in part.stores}
        new = {v.name: f"k{n}_{v.name}" for v in part.graph.values if v.name not in slots}

        def moved(e: Expr) -> Expr:
            if not isinstance(e, Read):
                return e
            if e.value in new:
                return Read(new[e.value], e.indices, e.guards, e.pad)
            value = part.graph[e.value]
            assert isinstance(value, Input)
            return self._read(slots[e.value], value, e)

        for v in part.graph.values:
            if isinstance(v, Input):
                continue
            if isinstance(v, Statement):
                made = Statement(new[v.name], v.dtype, v.ranges, rebuild(v.body, moved), v.reduction)
                if v.name in stored and not part.graph.readers(v.name):
                    made = _reshaped(made, self.shapes[stored[v.name]])
                self.values.append(made)
            else:
                self.values.append(type(v)(new[v.name], v.shape, v.dtype, v.data))
        self.made |= {slot: new[value] for value, slot in stored.items()}

    def _read(self, slot: int, value: Input, e: Read) -> Read:
        """A read of a buffer, as it has been until now."""
        flat = _flat(e.indices, value.shape)
        name = self.made.get(slot)
        if name is not None:
            shape = next(v.shape for v in reversed(self.values) if v.name == name)
            return Read(name, _places(flat, e, shape), e.guards, e.pad)
        shape = self.shapes[slot]
        places = arranged(flat, e.guards, shape) if flat.affine and len(shape) > 1 else None
        form, places = ("b", (flat,)) if places is None else ("a", places)
        if form == "b":
            shape = (prod(shape),)
        name = f"{form}{slot}"
        self.inputs.setdefault(name, Input(name, shape, value.dtype))
        return Read(name, places, e.guards, e.pad)


def _flat(indices: Sequence[Index], shape: Sequence[int]) -> Index:
    flat, step = Index.of(0), 1
    for index, extent in zip(reversed(indices), reversed(shape)):
        flat, step = flat + index * step, step * extent
    return flat


def _places(flat: Index, e: Read, shape: Shape) -> tuple[Index, ...]:
    """A flat place as places on axes; by quotient and remainder where strides do not tell."""
    found = arranged(flat, e.guards, shape) if flat.affine and shape else None
    if found is not None:
        return found
    made: list[Index] = []
    step = prod(shape)
    for n, extent in enumerate(shape):
        step //= extent
        made.append(flat // step if n == 0 else flat // step % extent)
    return tuple(made)


def _shapes(parts: Sequence[Kernel]) -> dict[int, Shape]:
    """A shape for every buffer, from the strides of all that read it and of what stores to it."""
    sizes: dict[int, int] = {}
    flats: dict[int, list[Place]] = {}
    for part in parts:
        graph, named = part.graph, dict(part.graph.outputs)
        for v in graph.inputs:
            slot = int(v.name[1:])
            sizes[slot] = prod(v.shape)
            reads = [r for s in graph.readers(v.name) for r in s.body.reads() if r.value == v.name]
            flats.setdefault(slot, []).extend(Place(_flat(r.indices, v.shape), r.guards) for r in reads)
        for store in part.stores:
            shape = graph[named[store.value]].shape
            sizes[store.slot] = prod(shape)
            axes = [Index.of(Range(f"x{n}", extent)) for n, extent in enumerate(shape) if extent > 1]
            flats.setdefault(store.slot, []).append(Place(_flat(axes, [e for e in shape if e > 1])))
    return {slot: shape_of(size, flats[slot]) for slot, size in sizes.items()}


def _reshaped(statement: Statement, shape: Shape) -> Statement:
    """The statement over finer loops, where the axes of `shape` cut its own; the statement itself where they do not."""
    new: dict[Range, Index] = {}
    ranges: list[Range] = []
    left = list(shape)
    for r in statement.ranges:
        index, extent = Index.of(0), 1
        while left and extent < r.extent and r.extent % (extent * left[0]) == 0:
            axis = Range(f"{r.name}_{len(ranges)}", left.pop(0))
            index, extent = index * axis.extent + axis, extent * axis.extent
            ranges.append(axis)
        if extent != r.extent:
            return statement
        new[r] = index
    if left:
        return statement
    return Statement(
        statement.name, statement.dtype, tuple(ranges), statement.body.substitute(new), statement.reduction
    )
