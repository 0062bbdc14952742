"""Stages of whole rows on the vector cores: arithmetic and reductions along a row, and rows made of other rows.

It decides which row each instance reads and writes, and what is moved before it is computed with; it refuses operands
that do not fit the stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.lang.indices import IndexExpr
from kohakuaccel.lang.ports import Port, Tiling
from kohakuaccel.lang.trace import StageNode, StoreNode
from kohakuaccel.lang.values import Apply, Join, Reduce, Value, View
from kohakutpu.layouts import WORD_ELEMENTS, Element, RowMajor
from kohakutpu.lower.body import Body, Builder
from kohakutpu.lower.instances import enumerate_instances
from kohakutpu.lower.leaves import leaves_of, ports_of
from kohakutpu.lower.row_moves import MoveBand, Strip, groups
from kohakutpu.lower.rows import RowBand
from kohakutpu.lower.work import Env, Tensor, Work

Ints = NDArray[np.int64]


@dataclass(slots=True)
class _Operands:
    """What an expression reads: buffers, their rows per instance, their widths, their names."""

    buffers: list[int] = field(default_factory=list[int])
    rows: list[Ints] = field(default_factory=list[Ints])
    widths: list[int] = field(default_factory=list[int])
    names: list[str] = field(default_factory=list[str])
    elements: list[Element] = field(default_factory=list[Element])

    def add(self, buffer: int, rows: Ints, width: int, name: str, element: Element) -> int:
        for n, (b, r, w) in enumerate(zip(self.buffers, self.rows, self.widths)):
            if b == buffer and w == width and np.array_equal(r, rows):
                return n
        self.buffers.append(buffer)
        self.rows.append(np.ascontiguousarray(rows))
        self.widths.append(width)
        self.names.append(name)
        self.elements.append(element)
        return len(self.buffers) - 1


def readable(work: Work, v: Value, source: SourceLine) -> Tensor:
    """The tensor an operand reads. Refused: accumulators."""
    port = v.port if isinstance(v, View) else v
    if not isinstance(port, Port):
        raise Refusal(
            "an accumulator is used in the stage that opened it",
            where=str(v),
            hint="store it and read the stored tensor",
            source=source,
        )
    return work.tensor(port, source)


def check_joins(value: Value, stored: bool = True) -> None:
    """Rows are joined by a store of a row stage, or inside a joined row, and nowhere else."""
    stack = [(value, stored)]
    while stack:
        v, allowed = stack.pop()
        if isinstance(v, Join) and not allowed:
            raise Refusal(
                "joined rows are what a store takes, not an operand",
                where=str(v),
                hint="store them in an L.temp and use its rows",
                source=v.source,
            )
        inner = v.args if isinstance(v, Join | Apply) else (v.arg,) if isinstance(v, Reduce) else ()
        stack.extend((a, allowed and isinstance(v, Join)) for a in inner)


def shape_of(tensor: Tensor, port: Port) -> tuple[int, ...]:
    """The tensor's shape as a handle of it sees it."""
    return (*tensor.shape[:-2], tensor.shape[-1], tensor.shape[-2]) if port.turned else tensor.shape


class RowStage:
    """Lowers one store of a row stage."""

    def __init__(self, work: Work, node: StageNode, store: StoreNode, env: Env) -> None:
        self.work, self.node, self.store = work, node, store
        rows = [a for a in node.axes if isinstance(a.over, Tiling) and a.over.kind == "rows"]
        if len(rows) > 1:
            raise Refusal(
                "a row stage runs over the rows of one port",
                where=" x ".join(str(a.over) for a in node.axes),
                hint="add leading axes with x.each(axis)",
                source=node.source,
            )
        batched = any(p.batched for p in (*ports_of(store.value), store.target.port))
        self.at = enumerate_instances(work, node, env, node.axes, batched)
        self.anchor = rows[0].over.port if rows and isinstance(rows[0].over, Tiling) else None

    # what the stage's rows are

    def _ends(self, view: View, length: int) -> tuple[int, int]:
        """(first, end) of the columns a view takes of rows of this length."""
        if view.columns is None:
            return 0, length
        first, end = (default if c is None else self.work.extent(c) for c, default in zip(view.columns, (0, length)))
        if not 0 <= first < end <= length:
            raise Refusal(
                "columns lie inside their row",
                where=str(view),
                got=f"{first}:{end}",
                limit=f"0:{length}",
                hint="take at least one column of the declared axis",
                source=view.source,
            )
        return first, end

    def _length(self, value: Value) -> int | None:
        """Elements of the row a value is; None where it holds numbers only, which fill a row of any length."""
        if isinstance(value, Join):
            lengths = [self._length(v) for v in value.args]
            return None if None in lengths else sum(n for n in lengths if n is not None)
        rows = [v for v in leaves_of(value) if self._is_row(v)]
        found = None
        for leaf in rows:
            if isinstance(leaf, View) and leaf.columns is not None:
                first, end = self._ends(leaf, shape_of(self._tensor(leaf), leaf.port)[-1])
                return end - first
            if found is None:
                port = leaf.port if isinstance(leaf, View) else leaf
                found = (1, *shape_of(self._tensor(leaf), port))[-1]
        if rows and not self._is_row(value) and self.anchor is not None:
            return shape_of(self.work.tensor(self.anchor, self.node.source), self.anchor)[-1]
        return found

    def _tensor(self, v: Value) -> Tensor:
        return readable(self.work, v, self.store.source)

    def _rows(self, tensor: Tensor, view: View, port: Port) -> Ints:
        wanted = len(port.axes) - 1
        if len(view.index) != wanted:
            raise Refusal(
                "a row is indexed by its leading axes and its row",
                where=str(view),
                got=f"{len(view.index)} indices",
                limit=f"{wanted} for {port.declaration}",
                hint="use the stage's own indices",
                source=view.source,
            )
        return self._position(tensor, view.index, port, view.source)

    def _position(
        self, tensor: Tensor, index: Sequence[IndexExpr | int], port: Port | None, source: SourceLine
    ) -> Ints:
        """Row numbers of a tensor (of its transpose, where `port` is a turned handle)."""
        at = self.work.lead_position(tensor, index, self.at.known, self.at.batch, source, port)
        return np.ascontiguousarray(at)

    # lowering

    def lower(self) -> None:
        """Append the bands of `target[..., r] <<= value`."""
        store, work = self.store, self.work
        check_joins(store.value)
        view = store.target
        if view.port.turned:
            raise Refusal(
                "a transposed port is read, not written",
                where=str(view),
                hint="write rows of a temporary and read its transpose",
                source=store.source,
            )
        tensor = work.tensor(view.port, store.source)
        if len(view.index) == len(view.port.axes) and view.columns is None:
            self._per_row(tensor)
            return
        length = self._length(store.value)
        if len(view.index) != len(view.port.axes) - 1:
            raise self._mismatch(tensor, f"a row of {length}")
        cols = tensor.shape[-1]
        first, end = self._ends(view, cols)
        if length is not None and end - first != length:
            raise self._mismatch(tensor, f"a row of {length}")
        if first % WORD_ELEMENTS or (end % WORD_ELEMENTS and end != cols):
            raise Refusal(
                "a store into part of a row covers whole words of 16 columns",
                where=str(view),
                got=f"{first}:{end}",
                limit=f"multiples of {WORD_ELEMENTS}, or the row's end {cols}",
                hint="put the whole row together in one store: y[r] <<= L.join(...)",
                source=store.source,
            )
        rows = self._position(tensor, view.index, view.port, store.source)
        total = int(np.prod(tensor.shape[:-1], dtype=np.int64))
        layout = RowMajor.of(total, cols, tensor.element)
        whole = end - first == cols and np.array_equal(rows, np.arange(total))
        self._into(store.value, tensor, layout, rows, first, end - first, whole)

    def _mismatch(self, tensor: Tensor, what: str) -> Refusal:
        store = self.store
        return Refusal(
            "a row result has one number per row, or the rows' length",
            where=f"{store.target} <<= {what}",
            got=tensor.shape,
            hint="declare Out(..., M) for one number per row, Out(..., M, N) for rows",
            source=store.source,
        )

    def _into(
        self, value: Value, tensor: Tensor, layout: RowMajor, rows: Ints, first: int, count: int, whole: bool
    ) -> None:
        """Columns [first, first + count) of rows of a tensor."""
        work, source = self.work, self.store.source
        if isinstance(value, View) and whole and self._is_row(value) and self._turned_whole(value, tensor, layout):
            return
        cast = isinstance(value, View | Port) and count == layout.cols and self._tensor(value).element != tensor.element
        if self._is_row(value) and not cast:
            strips = self._strips(value, tensor.element)
            out = work.write(tensor, layout, source)
            target = rows * (layout.pitch // WORD_ELEMENTS) + first // WORD_ELEMENTS
            self._move(strips, out, layout, target, str(value))
            return
        if count != layout.cols:
            strip = self._computed(value, tensor.element)
            out = work.write(tensor, layout, source)
            target = rows * (layout.pitch // WORD_ELEMENTS) + first // WORD_ELEMENTS
            self._move([strip], out, layout, target, str(value))
            return
        operands, body = self._body(value, count)
        out = work.write(tensor, layout, source)
        self._band(operands, body, count, out, layout, rows, False)

    def _is_row(self, value: Value) -> bool:
        """Whether it is rows of tensors, moved and not computed."""
        if isinstance(value, View):
            return value.columns is not None or len(value.index) < len(value.port.axes)
        return isinstance(value, Join | Port)

    def _turned_whole(self, value: View, tensor: Tensor, layout: RowMajor) -> bool:
        """A copy of a whole tensor that a relayout makes by itself is made by it, straight into the target."""
        given = self._tensor(value)
        if value.columns is not None or tensor.home >= 0 or shape_of(given, value.port)[-1] != layout.cols:
            return False
        rows = self._rows(given, value, value.port)
        if not np.array_equal(rows, np.arange(layout.rows)) or given.size != layout.size:
            return False
        return self.work.relayout_into(given, tensor, layout, self.store.source, value.port.turned)

    def _strips(self, value: Value, element: Element) -> list[Strip]:
        """What a row is put together from, all of it stored alike: other rows as they are, the rest computed first."""
        if isinstance(value, Join):
            return [strip for v in value.args for strip in self._strips(v, element)]
        if not self._is_row(value):
            return [self._computed(value, element)]
        assert isinstance(value, View | Port)
        tensor = self._tensor(value)
        if tensor.element != element:
            return [self._computed(value, element)]
        port = value.port if isinstance(value, View) else value
        shape = shape_of(tensor, port)
        layout = RowMajor.of(int(np.prod(shape[:-1], dtype=np.int64)), shape[-1], element)
        first, end = self._ends(value, shape[-1]) if isinstance(value, View) else (0, shape[-1])
        rows = self._operand_rows(value, tensor)
        buffer = self.work.read(tensor, layout, self.store.source, port.turned)
        return [Strip(buffer, layout, rows, first, end - first)]

    def _computed(self, value: Value, element: Element) -> Strip:
        """A part of a joined row that has to be computed first, in rows of its own."""
        length = self._length(value)
        if length is None:
            raise Refusal(
                "a joined part is a row of known length",
                where=str(value),
                hint="use the rows of a port or a table",
                source=self.store.source,
            )
        count = self.at.count
        layout = RowMajor.of(count, length, element)
        operands, body = self._body(value, length)
        buffer = self.work.temporary("part", (count, length), layout)
        rows = np.arange(count)
        self._band(operands, body, length, buffer, layout, rows, False)
        return Strip(buffer, layout, rows, 0, length)

    def _move(self, strips: Sequence[Strip], out: int, layout: RowMajor, target: Ints, text: str) -> None:
        machine, source = self.work.machine, self.store.source
        cores = len(machine.units_of("VC", mesh=0))
        found = groups(strips, target, cores, machine.params.walk_max // layout.element.words, source)
        layouts = {s.buffer: s.layout for s in strips} | {out: layout}
        self.work.stage(MoveBand(machine, layouts, out, tuple(found), text, source))

    def _operand_rows(self, v: Value, tensor: Tensor) -> Ints:
        if isinstance(v, View):
            return self._rows(tensor, v, v.port)
        assert isinstance(v, Port)
        if len(v.axes) != 1:
            raise Refusal(
                "a whole matrix is not a row",
                where=str(v),
                got=tensor.shape,
                limit="one row",
                hint=f"index it: {v}[{', '.join(a.name for a in self.node.axes)}]",
                source=self.store.source,
            )
        return self.at.batch if tensor.port.batched else np.zeros_like(self.at.batch)

    # arithmetic

    def _per_row(self, tensor: Tensor) -> None:
        store, work = self.store, self.work
        rows = self._position(tensor, store.target.index, store.target.port, store.source)
        layout = RowMajor.of(tensor.size, 1, tensor.element)
        length = self._length(store.value) or 1
        operands, body = self._body(store.value, length)
        if not body.nodes[body.result].per_row:
            raise self._mismatch(tensor, f"a row of {length}")
        out = work.write(tensor, layout, store.source)
        self._band(operands, body, length, out, layout, rows, True)

    def _body(self, value: Value, cols: int) -> tuple[_Operands, Body]:
        operands, work, source = _Operands(), self.work, self.store.source

        def leaf(v: Value) -> tuple[int, str]:
            tensor = self._tensor(v)
            port = v.port if isinstance(v, View) else v
            assert isinstance(port, Port)
            if isinstance(v, View) and port.axes and len(v.index) == len(port.axes) and v.columns is None:
                if port.turned:
                    tensor_rows = self._position(tensor, (*v.index[:-2], v.index[-1], v.index[-2]), None, v.source)
                else:
                    tensor_rows = self._position(tensor, v.index, None, v.source)
                buffer = work.read(tensor, RowMajor.of(tensor.size, 1, tensor.element), source)
                return operands.add(buffer, tensor_rows, 1, str(v), tensor.element), "number"
            length = shape_of(tensor, port)[-1] if tensor.shape else 1
            first, end = self._ends(v, length) if isinstance(v, View) else (0, length)
            if end - first != cols or not tensor.shape:
                raise Refusal(
                    "a row operand has the stage's row length, or one number per row",
                    where=str(v),
                    got=tensor.shape,
                    limit=f"{cols} in the last axis",
                    hint="declare a shared row as In(N) and use it without an index; index all axes of one number per "
                    "row",
                    source=v.source if isinstance(v, View) else source,
                )
            numbers = self._operand_rows(v, tensor)
            if (first, end) == (0, length):
                layout = RowMajor.of(tensor.size // length, cols, tensor.element)
                buffer = work.read(tensor, layout, source, port.turned)
            else:
                buffer = self._window(tensor, port, first, end)
            return operands.add(buffer, numbers, cols, str(v), tensor.element), "input"

        return operands, Builder(work.binding.sizes, leaf, cols).build(value)

    def _window(self, tensor: Tensor, port: Port, first: int, end: int) -> int:
        """Some columns of all rows of a tensor as rows of their own."""
        key = first, end, port.turned, tensor.shape
        if key not in tensor.windows:
            shape = shape_of(tensor, port)
            count = int(np.prod(shape[:-1], dtype=np.int64))
            layout, part = (RowMajor.of(count, n, tensor.element) for n in (shape[-1], end - first))
            source = self.work.read(tensor, layout, self.store.source, port.turned)
            made = self.work.temporary(f"{port.name}[{first}:{end}]", (*shape[:-1], end - first), part)
            rows = np.arange(count, dtype=np.int64)
            strip = Strip(source, layout, rows, first, end - first)
            self._move([strip], made, part, rows * (part.pitch // WORD_ELEMENTS), f"{port.name}[..., {first}:{end}]")
            tensor.windows[key] = made
        return tensor.windows[key]

    def _band(
        self, operands: _Operands, body: Body, cols: int, out: int, layout: RowMajor, rows: Ints, per_row: bool
    ) -> None:
        band = RowBand(
            self.work.machine,
            tuple(operands.buffers),
            tuple(operands.rows),
            tuple(operands.widths),
            out,
            cols,
            layout,
            np.ascontiguousarray(rows),
            per_row,
            body,
            tuple(operands.names),
            self.store.source,
            tuple(operands.elements),
        )
        band.plan()
        self.work.stage(band)
