"""Kernels of tinygrad on a TinyTPU: as plans of programs where the lowering has them, else as counted host steps.

Decides when a kernel's plan is made, what becomes of one that there is no plan for, and what is refused. It must not
know tinygrad's kernels, nor instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from kohakuaccel.diagnostics import KohakuError, Refusal
from kohakuaccel.frontends.tinygrad.joined.running import Apart
from kohakuaccel.frontends.tinygrad.kernel import Kernel
from kohakuaccel.frontends.tinygrad.memory import View
from kohakuaccel.frontends.tinygrad.program import Engine, Prepared
from kohakuaccel.graph import from_json, to_json
from kohakuaccel.machine import Machine
from tinytpu import machines
from tinytpu.lower import NotLowered, Plan, compile_graph
from tinytpu.lower.numbers.base import check_format
from tinytpu.recording import labelled
from tinytpu.tinygrad import counting, dump
from tinytpu.tinygrad.numerics import Mxu, current

_ALLOW = 'allow steps of the host: TINYTPU_HOST=allow, or numerics(host="allow")'
_ARRAY = {"fits": "where it fits", "demanded": "demanded", "never": "never"}


@lru_cache(maxsize=32)
def machine_of(arch: str) -> Machine:
    """The machine an arch string names: a preset, then changes of params (`tinytpu_4x4,vregs=8`)."""
    from kohakuaccel.whatif import named

    return named(arch, machines.load, machines.DEFAULT, (), lambda machine, _: machine)


@lru_cache(maxsize=4096)
def planned(graph: str, machine: Machine, mxu: Mxu) -> Plan | NotLowered:
    """The plan of a graph given as JSON, or why there is none. Equal kernels have one plan."""
    try:
        return compile_graph(from_json(graph), machine, mxu=_ARRAY[mxu])  # pyright: ignore[reportArgumentType] - its own words for the same three
    except NotLowered as why:
        return why


@dataclass
class Known:
    """What is known of a kernel. graph: as JSON, which names its plans; dumped: where its lowering was written."""

    graph: str
    dumped: set[str] = field(default_factory=set[str])


def joins(kernel: Kernel) -> bool:
    """Whether a kernel may become a part of a larger one: its values are ones that lanes may hold."""
    try:
        for value in kernel.graph.values:
            check_format(value.dtype, value.name)
    except NotLowered:
        return False
    return True


class TinyTPUEngine(Engine):
    """One device, a core of a machine. device: its name."""

    def __init__(self, arch: str, device: str = "TINYTPU") -> None:
        self.arch, self.device = arch, device
        self.machine = machine_of(arch)

    def run(self, prepared: Prepared, buffers: Sequence[View]) -> float | None:
        """On the machine where it can be, else a counted step of the host."""
        name = prepared.kernel.name
        plan = self._planned(prepared)
        if not isinstance(plan, Plan):
            return self._host(prepared, buffers, plan)
        given = prepared.given(buffers)
        try:
            with labelled(name):
                ran = plan.run(given)
        except Refusal as why:
            if current().mxu == "demanded":
                raise
            return self._host(prepared, buffers, why)
        prepared.put(buffers, ran.outputs)
        return counting.total.device(name, plan, ran, self.device)

    def run_whole(self, prepared: Prepared, buffers: Sequence[View]) -> float | None:
        """A kernel that stands for several: on the machine, or not at all."""
        plan = self._planned(prepared)
        if not isinstance(plan, Plan):
            raise Apart(reason_of(plan), lasting=True)
        try:
            with labelled(prepared.kernel.name):
                ran = plan.run(prepared.given(buffers))
        except Refusal as why:
            raise Apart(reason_of(why)) from None
        prepared.put(buffers, ran.outputs)
        return counting.total.device(prepared.kernel.name, plan, ran, self.device)

    def takes(self, prepared: Prepared) -> bool:
        """Whether a kernel has a plan."""
        return isinstance(self._planned(prepared), Plan)

    def apart(self, name: str, parts: int, reason: str) -> None:
        """Several kernels that could have been one."""
        counting.total.apart(name, parts, reason)

    def loops(self, name: str, nbytes: int) -> None:
        """A kernel that is no graph."""
        reason = "a kernel that is no graph, interpreted loop by loop"
        if current().host == "refuse":
            raise NotLowered("a kernel is a graph", where=f"kernel {name}", got="loops", hint=_ALLOW)
        counting.total.host(reason, name, nbytes)

    def _planned(self, prepared: Prepared) -> Plan | NotLowered:
        if prepared.machine is None:
            prepared.machine = Known(to_json(prepared.kernel.graph))
        known: Known = prepared.machine
        plan = planned(known.graph, self.machine, current().mxu)
        where = dump.wanted()
        if where and where not in known.dumped:
            known.dumped.add(where)
            dump.write(where, prepared.kernel, plan)
        return plan

    @staticmethod
    def _host(prepared: Prepared, buffers: Sequence[View], why: KohakuError) -> float:
        """A step of the host, or the refusal itself."""
        name = prepared.kernel.name
        if current().host == "refuse":
            kind = NotLowered if isinstance(why, NotLowered) else Refusal
            where = ", ".join(part for part in (f"kernel {name}", why.where) if part)
            raise kind(why.rule, where=where, got=why.got, limit=why.limit, hint=why.hint or _ALLOW) from None
        counting.total.host(reason_of(why), name, prepared.nbytes(buffers))
        prepared.on_host(buffers)
        return 0.0


def reason_of(why: KohakuError) -> str:
    """A refusal as a reason: its rule, and the format that breaks it."""
    got = str(why.got)
    return f"{why.rule}; got {got}" if got.isalnum() else why.rule
