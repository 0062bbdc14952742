"""Kernels that are no graph, interpreted: loops one step at a time, all places of a launch's grid at once.

Decides what each written-out operation does (`linear` writes them). An array has an element a place of the grid, or one
for all. It must not know tinygrad, nor machines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.dtypes import BOOL, SHIPPED, DType, WordFormat, kind_of
from kohakuaccel.graph.native import rounded, stored_in
from kohakuaccel.graph.scalar import compute, to_word

Array = NDArray[Any]
GRID = 1 << 14
"""Places of a grid that run at once."""


@dataclass(frozen=True)
class Node:
    """One operation. format: of its result, None for what has none; end: where a loop ends, or begins."""

    what: str
    format: DType | None
    src: tuple[int, ...]
    arg: Any
    end: int = -1


@dataclass(frozen=True)
class Pointer:
    """Elements of a memory. cells: [n], or [places, n] of registers; own: whether every place has its own."""

    cells: Array
    own: bool
    at: Array | None = None

    @property
    def count(self) -> int:
        """Elements, of one place where every place has its own."""
        return int(self.cells.shape[-1])

    def moved(self, by: Array) -> Pointer:
        return Pointer(self.cells, self.own, by if self.at is None else self.at + by)


def decode(text: str) -> tuple[Node, ...]:
    """The operations of a text that `linear.encode` wrote."""
    records = json.loads(text)
    ends: dict[int, int] = {}
    for n, (what, _, src, _) in enumerate(records):
        if what == "end":
            for loop in src[:1]:
                ends[loop], ends[n] = n, loop
    return tuple(
        Node(what, SHIPPED[name] if name else None, tuple(src), arg, ends.get(n, -1))
        for n, (what, name, src, arg) in enumerate(records)
    )


def run(
    nodes: Sequence[Node], buffers: Mapping[int, NDArray[np.uint8]], values: Sequence[int], grid: Sequence[int]
) -> None:
    """A launch. buffers: bytes by slot, written in place; values: of the variables, in order."""
    total = prod(grid)
    with np.errstate(all="ignore"):
        for start in range(0, total, GRID):
            places = np.arange(start, min(start + GRID, total), dtype=np.int64)
            _Run(nodes, buffers, values, places, grid).go()


@dataclass
class _Run:
    nodes: Sequence[Node]
    buffers: Mapping[int, NDArray[np.uint8]]
    variables: Sequence[int]
    places: Array
    grid: Sequence[int]
    known: dict[int, Any] = field(default_factory=dict)
    masks: list[Array | None] = field(default_factory=lambda: [None])
    given: int = 0

    def go(self) -> None:
        n = 0
        while n < len(self.nodes):
            n = self.step(n, self.nodes[n])

    def step(self, n: int, node: Node) -> int:
        """Do one operation; the number of the next."""
        match node.what:
            case "range":
                return self._range(n, node)
            case "again":
                self.masks.append(self.masks[-1])
            case "end":
                return self._end(n, node)
            case "if":
                self.masks.append(_both(self.masks[-1], self.known[node.src[0]]))
            case "endif":
                self.masks.pop()
            case "store":
                self._store(node)
            case _:
                self.known[n] = self._value(node)
        return n + 1

    # loops

    def _range(self, n: int, node: Node) -> int:
        limit = self.known[node.src[0]]
        if n in self.known:
            self.masks.pop()
            self.known[n] = self.known[n] + 1
        else:
            self.known[n] = np.zeros(1, limit.dtype)
        inside = self.known[n] < limit
        active = _both(self.masks[-1], inside)
        if not inside.any() or (active is not None and not active.any()):
            del self.known[n]
            return node.end + 1
        self.masks.append(self.masks[-1] if inside.all() else active)
        return n + 1

    def _end(self, n: int, node: Node) -> int:
        begin = self.nodes[node.end]
        if begin.what == "range":
            return node.end
        if len(node.src) < 2:
            raise Refusal("a loop without a count has a condition", where="tinygrad", got="a kernel that never ends")
        again = _both(self.masks.pop(), self.known[node.src[1]])
        assert again is not None
        if not again.any():
            return n + 1
        self.masks.append(again)
        return node.end + 1

    # memory

    def _pointer(self, n: int) -> Pointer:
        found = self.known[n]
        assert isinstance(found, Pointer)
        return found

    def _at(self, pointer: Pointer, offset: int, active: Array | None) -> Array:
        """Places of elements; those that nothing is done at lie at 0."""
        at = (np.zeros(1, np.int64) if pointer.at is None else pointer.at.astype(np.int64)) + offset
        count = pointer.count
        bad = (at < 0) | (at >= count)
        if active is not None:
            bad = bad & active
            at = np.where(active, at, 0)
        if bad.any():
            got = int(np.broadcast_to(at, bad.shape)[bad][0])
            raise Refusal("a kernel stays inside its buffers", where="tinygrad", got=got, limit=f"0..{count - 1}")
        return at

    def _load(self, node: Node) -> Any:
        pointer = self._pointer(node.src[0])
        other: Any = None
        gate: Array | None = None
        if len(node.src) > 1:
            other, gate = (self.known[s] for s in node.src[1:])
        active = _both(self.masks[-1], gate) if gate is not None else self.masks[-1]
        found: list[Array] = []
        for lane in range(node.arg):
            at = self._at(pointer, lane, active)
            if pointer.own:
                at = at + np.arange(len(self.places)) * pointer.count
            value: Array = pointer.cells.reshape(-1)[at]
            if gate is not None:
                value = np.where(gate, value, other[lane] if isinstance(other, list) else other).astype(value.dtype)
            found.append(value)
        return found if node.arg > 1 else found[0]

    def _store(self, node: Node) -> None:
        pointer, value = self._pointer(node.src[0]), self.known[node.src[1]]
        active = self.masks[-1]
        if len(node.src) > 2:
            active = _both(active, self.known[node.src[2]])
        for lane, one in enumerate(value if isinstance(value, list) else [value]):
            at = self._at(pointer, lane, active)
            size = len(self.places)
            held = slice(None) if active is None else np.broadcast_to(active, size)
            at, one = np.broadcast_to(at, size)[held], np.broadcast_to(one, size)[held]
            cells = pointer.cells.reshape(-1)
            if pointer.own:
                at = at + np.arange(size)[held] * pointer.count
            cells[at] = one

    # values

    def _value(self, node: Node) -> Any:
        args = [self.known[s] for s in node.src]
        match node.what:
            case "parameter":
                raw, dtype = self.buffers[node.arg], stored_in(_format(node))
                return Pointer(raw[: raw.nbytes // dtype.itemsize * dtype.itemsize].view(dtype), False)
            case "registers":
                return Pointer(np.zeros((len(self.places), node.arg), stored_in(_format(node))), True)
            case "variable":
                self.given += 1
                return np.array([self.variables[self.given - 1]], np.int64).astype(stored_in(_format(node)))
            case "place":
                return self._place(node.arg)
            case "number":
                return _number(node)
            case "index":
                return args[0].moved(args[1])
            case "view":
                assert args[0].at is None
                return Pointer(args[0].cells.view(stored_in(_format(node))), args[0].own)
            case "same":
                return args[0]
            case "load":
                return self._load(node)
            case "stack":
                return args
            case "lane":
                return args[0][int(args[1][0])]
            case _:
                return _each(lambda *one: _scalar(node, self.nodes, one), args)

    def _place(self, name: str) -> Array:
        """Of a launch's grid, whose first axis is the fastest; a group has one member."""
        if not name.startswith(("gidx", "idx")):
            return np.zeros(1, np.int32)
        axis = int(name[-1])
        return (self.places // prod(self.grid[:axis]) % self.grid[axis]).astype(np.int32)


def _format(node: Node) -> DType:
    assert node.format is not None
    return node.format


def _both(mask: Array | None, other: Array) -> Array:
    return other if mask is None else mask & other


def _number(node: Node) -> Array:
    if isinstance(node.arg, str):
        return np.array([float.fromhex(node.arg)])
    if isinstance(node.arg, int) and not isinstance(node.arg, bool) and node.arg >= 1 << 63:
        return np.array([node.arg], np.uint64)
    return np.array([node.arg])


def _each(what: Callable[..., Array], args: list[Any]) -> Any:
    """A value of several lanes lane by lane."""
    lanes = next((len(a) for a in args if isinstance(a, list)), 0)
    if not lanes:
        return what(*args)
    return [what(*(a[n] if isinstance(a, list) else a for a in args)) for n in range(lanes)]


def _scalar(node: Node, nodes: Sequence[Node], args: Sequence[Array]) -> Array:
    target = _format(node)
    if node.what == "cast":
        return _cast(args[0], target)
    if node.what == "bits":
        source = nodes[node.src[0]].format
        assert source is not None
        return np.ascontiguousarray(args[0].astype(stored_in(source), copy=False)).view(stored_in(target))
    assert node.what == "compute"
    if node.arg == "differ":
        return np.not_equal(*args)
    wide = [a.astype(np.float32) if a.dtype.itemsize == 1 and a.dtype.kind not in "iub" else a for a in args]
    if node.arg == "where":
        return _cast(compute("where", wide), target)
    return _cast(compute(node.arg, wide), target)


def _cast(values: Array, target: DType) -> Array:
    if target == BOOL:
        return values != 0
    if isinstance(target, WordFormat):
        return to_word(values, target)
    assert kind_of(target) == "real"
    return rounded(values, stored_in(target))
