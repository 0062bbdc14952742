"""Running compiled kernels: what their bytes say, on which engine, and what time that took.

Decides how a kernel's buffers become values and how results are written. It must not know machines; an `Engine` does.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad.device import Compiled, Program, TinyELF

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.frontends.tinygrad import loops
from kohakuaccel.frontends.tinygrad.joined.running import Apart, GroupRun, decode_group
from kohakuaccel.frontends.tinygrad.kernel import MARK, Kernel, decode
from kohakuaccel.frontends.tinygrad.memory import View
from kohakuaccel.frontends.tinygrad.renderer import LOOPS
from kohakuaccel.frontends.tinygrad.searching import search_of
from kohakuaccel.graph.native import Native, stored_in

Array = NDArray[Any]


class Prepared:
    """A kernel ready to run: buffers by position, `order` holds the slot of each. search: how many choices a scheduler
    may time for it."""

    def __init__(self, kernel: Kernel, order: Sequence[int], search: int = 0) -> None:
        self.kernel, self.search = kernel, search
        self.at = {slot: n for n, slot in enumerate(order)}
        self.inputs = [(v, self.at[int(v.name[1:])]) for v in kernel.graph.inputs]
        self._native: Native | None = None
        self.updates = kernel.updates
        """Whether it changes a buffer from what that held, by itself or with kernels that follow it."""
        self.machine: Any = None
        """What an engine remembers of it."""

    @property
    def native(self) -> Native:
        """The kernel for the host."""
        if self._native is None:
            self._native = Native(self.kernel.graph)
        return self._native

    def on_host(self, buffers: Sequence[View], native: Native | None = None) -> None:
        """Run on the host: every read before every store. native: the kernel with products of its own."""
        self.put(buffers, (native or self.native)(self.given(buffers)))

    def given(self, buffers: Sequence[View]) -> dict[str, Array]:
        """The kernel's inputs by name, in their formats' own dtypes; they may share memory with the buffers."""
        found: dict[str, Array] = {}
        for value, at in self.inputs:
            dtype = stored_in(value.dtype)
            raw = buffers[at].read()
            array = raw.view(dtype) if raw.ctypes.data % dtype.itemsize == 0 else raw.copy().view(dtype)
            found[value.name] = array.reshape(value.shape)
        return found

    def put(self, buffers: Sequence[View], found: Mapping[str, Array]) -> None:
        """Store the kernel's outputs, given by label, where they go. Raises Refusal for a place outside a buffer."""
        for store in self.kernel.stores:
            values = found[store.value]
            target = buffers[self.at[store.slot]].write()
            if store.place is None:
                target[: values.nbytes] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
                continue
            _scatter(target, values, found[store.place], None if store.gate is None else found[store.gate])

    def nbytes(self, buffers: Sequence[View]) -> int:
        """Bytes of every buffer it reads or writes."""
        used = {at for _, at in self.inputs} | {self.at[s.slot] for s in self.kernel.stores}
        return sum(buffers[at].nbytes for at in used)


def _scatter(target: NDArray[np.uint8], values: Array, places: Array, gate: Array | None) -> None:
    size = values.dtype.itemsize
    flat, at = values.reshape(-1), places.reshape(-1)
    if gate is not None:
        held = np.broadcast_to(gate, values.shape).reshape(-1)
        flat, at = flat[held], at[held]
    count = target.nbytes // size
    bad = (at < 0) | (at >= count)
    if bad.any():
        raise Refusal("an element is stored inside its buffer", where="store", got=int(at[bad][0]), limit=count)
    target.reshape(-1, size)[at] = np.ascontiguousarray(flat).view(np.uint8).reshape(-1, size)


class Engine(ABC):
    """How one device runs kernels."""

    @abstractmethod
    def run(self, prepared: Prepared, buffers: Sequence[View]) -> float | None:
        """Run a kernel; the device's seconds, where it knows them."""

    @abstractmethod
    def loops(self, name: str, nbytes: int) -> None:
        """Count (or refuse) a kernel that is no graph, run loop by loop on the host."""

    def own(self, name: str, record: Mapping[str, Any]) -> Callable[[Sequence[View]], float | None]:
        """How a kernel of the machine's own kind runs, of which a program holds `record`."""
        raise Refusal("a device runs kernels of its own machine", where=f"kernel {name}", got=sorted(record))

    def run_whole(self, prepared: Prepared, buffers: Sequence[View]) -> float | None:
        """Run a kernel that stands for several; `Apart` with the reason where these are to run one by one."""
        raise Apart("the machine takes kernels one by one")

    def takes(self, prepared: Prepared) -> bool:
        """Whether `run_whole` would run a kernel, unless values forbid it."""
        return False

    @abstractmethod
    def apart(self, name: str, parts: int, reason: str) -> None:
        """Count a group that runs as its parts."""


class GraphProgram(Program[Any]):
    """A compiled kernel of a device that has an `engine`."""

    def __init__(self, dev: Compiled, obj: TinyELF) -> None:
        self.engine: Engine = getattr(dev, "engine")  # noqa: B009  (a device's own attribute)
        self.name = obj.name
        self.order = tuple(slot for name, slot, _, _ in obj.signature if slot >= 0 and name is None)
        self.loops: tuple[loops.Node, ...] | None = None
        self.made: dict[tuple[int, ...], Prepared] = {}
        self.record: dict[str, Any] = {}
        self.group: GroupRun | None = None
        self.own: Callable[[Sequence[View]], float | None] | None = None
        if obj.lib.startswith(LOOPS):
            self.loops = loops.decode(obj.lib[len(LOOPS) :].decode())
            return
        self.record = _record(obj.lib)
        search = search_of(self.record)
        if "parts" in self.record:
            self.group = GroupRun(decode_group(self.record), self.order, partial(Prepared, search=search))
        if "own" in self.record:
            self.own = self.engine.own(self.record["name"], self.record["own"])

    def __call__(
        self,
        *bufs: View,
        global_size: tuple[int, int, int] = (1, 1, 1),
        local_size: tuple[int, int, int] | None = (1, 1, 1),
        vals: tuple[int, ...] = (),
        wait: bool = False,
        timeout: int | None = None,
    ) -> float | None:
        if self.loops is not None:
            self.engine.loops(self.name, sum(b.nbytes for b in bufs))
            loops.run(self.loops, {slot: b.write() for slot, b in zip(self.order, bufs)}, vals, global_size)
            return None
        if self.group is not None:
            return self.group(self.engine, bufs)
        if self.own is not None:
            return self.own(bufs)
        if vals not in self.made:
            self.made[vals] = Prepared(_kernel(self.record, vals), self.order, search_of(self.record))
        return self.engine.run(self.made[vals], bufs)


@lru_cache(maxsize=4096)
def _record(lib: bytes) -> dict[str, Any]:
    record = json.loads(lib)
    if not isinstance(record, dict) or MARK not in record:
        raise Refusal("a program's bytes hold a kernel", where="tinygrad", got=lib[:40])
    return record


def _kernel(record: dict[str, Any], vals: tuple[int, ...]) -> Kernel:
    if "nodes" not in record:
        return decode(record)
    from kohakuaccel.frontends.tinygrad.compiling import simplified
    from kohakuaccel.frontends.tinygrad.symbolic import decode as decode_nodes
    from kohakuaccel.frontends.tinygrad.symbolic import specialised
    from kohakuaccel.frontends.tinygrad.translate import translate

    sink = specialised(decode_nodes(record["nodes"]), dict(zip(record["variables"], vals)))
    return translate(simplified(sink), record["name"])
