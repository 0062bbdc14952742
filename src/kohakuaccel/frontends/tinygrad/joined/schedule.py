"""The seam: tinygrad's own schedule, in which kernels that belong together are one program.

Decides where tinygrad is entered (`tinygrad.schedule.pm_schedule`), which launches are kernels of ours, and the form of
a joined program. Nothing here touches a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import tinygrad.schedule as schedule
from tinygrad.dtype import AddrSpace
from tinygrad.helpers import Context
from tinygrad.uop import Ops
from tinygrad.uop.ops import ParamArg, UOp

from kohakuaccel.diagnostics import DefinitionError, Refusal
from kohakuaccel.frontends.tinygrad.compiling import clean, estimates, name_of
from kohakuaccel.frontends.tinygrad.finished import finished
from kohakuaccel.frontends.tinygrad.indices import Symbolic, Untranslatable
from kohakuaccel.frontends.tinygrad.joined import early
from kohakuaccel.frontends.tinygrad.joined.choice import Item, groups
from kohakuaccel.frontends.tinygrad.joined.graph import joined, renumbered
from kohakuaccel.frontends.tinygrad.joined.running import Group
from kohakuaccel.frontends.tinygrad.kernel import Kernel
from kohakuaccel.frontends.tinygrad.translate import translate

MOST = 64
"""Statements that a joined kernel may have."""
Wants = Callable[[Kernel], bool]
"""Whether a device would run a kernel by itself, so that it may become a part of another one."""
_stock = schedule.lower_sink_to_linear
_devices: dict[str, tuple[Wants, Callable[[], bool]]] = {}
"""By name: the devices whose kernels are joined, and whether they are now."""


def install(name: str, wants: Wants, now: Callable[[], bool]) -> None:
    """Join kernels of a device, where `now` says so when they are scheduled. Doing it again replaces both."""
    _devices[name] = wants, now
    early.enter()


def lowered(function: UOp) -> UOp | None:
    """tinygrad's own lowering of a schedule, and what became of its kernels."""
    linear = _stock(function)
    if linear is None:
        return None
    names = frozenset(name for name, (_, now) in _devices.items() if now())
    return _joined(linear, names) if names else linear


@lru_cache(maxsize=1024)
def _joined(linear: UOp, names: frozenset[str]) -> UOp:
    """The schedule with fewer kernels of these devices; the schedule itself where none go together."""
    calls = linear.src
    inner = {b for c in calls if c.op is Ops.CALL for b in c.src[1:] if _inner(b)}
    if not inner:
        return linear
    found = [_kernel(c, inner, names) for c in calls]
    if sum(k is not None for k in found) < 2:
        return linear
    items = [_item(c, k, inner) for c, k in zip(calls, found)]
    made: list[UOp] = []
    for members in groups(items, MOST):
        one = None
        if len(members) > 1:
            others = {b for n, c in enumerate(calls) if n not in members for b in c.src[1:]}
            one = _launch([calls[m] for m in members], [k for m in members if (k := found[m])], others)
        made += [calls[m] for m in members] if one is None else [one]
    return linear.replace(src=tuple(made))


def _inner(buffer: UOp) -> bool:
    """Whether a buffer is made for this schedule alone."""
    return buffer.op is Ops.BUFFER and isinstance(buffer.arg, ParamArg) and buffer.addrspace is AddrSpace.GLOBAL


def _kernel(call: UOp, inner: set[UOp], names: frozenset[str]) -> Kernel | None:
    """A launch as a kernel that may be joined, its buffers in the order of the launch; None where it is none."""
    if call.op is not Ops.CALL or call.src[0].op is not Ops.SINK or not inner & set(call.src[1:]):
        return None
    devices = {b.device for b in call.src[1:]}
    device = next(iter(devices))
    if len(devices) != 1 or not isinstance(device, str) or len(set(call.src[1:])) != len(call.src) - 1:
        return None
    name = device.partition(":")[0]
    kernel = _translated(call.src[0]) if name in names else None
    if kernel is None or any(s.place is not None for s in kernel.stores) or not _devices[name][0](kernel):
        return None
    return kernel


@lru_cache(maxsize=4096)
def _translated(ast: UOp) -> Kernel | None:
    with Context(ALLOW_DEVICE_USAGE=0):
        try:
            sink = clean(ast)
            return translate(sink, name_of(sink, ast.arg.name))
        except (Symbolic, Untranslatable, DefinitionError):
            return None


def _item(call: UOp, kernel: Kernel | None, inner: set[UOp]) -> Item:
    buffers = call.src[1:]
    if kernel is None:  # what a launch of another kind does with its buffers is not asked
        return Item(frozenset(buffers), frozenset(buffers))
    written = frozenset(buffers[s.slot] for s in kernel.stores)
    read = frozenset(buffers[slot] for slot in kernel.reads)
    return Item(read, written, written & inner, len(kernel.graph.statements))


def _launch(calls: Sequence[UOp], kernels: Sequence[Kernel], others: set[UOp]) -> UOp | None:
    """One launch for several. Buffers that only they see are no buffers of the launch."""
    used = dict.fromkeys(b for c in calls for b in c.src[1:])
    hidden = [b for b in used if _inner(b) and b not in others]
    outer = [b for b in used if b not in hidden]
    at = {b: n for n, b in enumerate((*outer, *hidden))}
    parts = [renumbered(k, {n: at[b] for n, b in enumerate(c.src[1:])}) for c, k in zip(calls, kernels)]
    name = f"j{len(parts)}_{parts[-1].name}"
    try:
        whole = joined(name, parts, frozenset(range(len(outer))))
    except (Refusal, DefinitionError):
        return None
    group = Group(name, whole, tuple(parts), tuple(int(b.max_numel()) * b.dtype.itemsize for b in hidden))
    program = finished(
        name,
        group.encode(),
        str(whole.graph),
        [(b.dtype, int(b.max_numel())) for b in outer],
        str(outer[0].device),
        [s.slot for s in whole.stores],
        sorted(set(whole.reads)),
        estimates(whole),
    )
    return program.call(*outer)
