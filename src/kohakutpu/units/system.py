"""A whole KohakuTPU machine behind its bus: what a host may write and read, and what happens then.

It decides the bus map's behaviour: register windows, the memory windows of datasheet 3.1, the quantising
apertures, and how a stopped machine is reported. The machine itself is the compiled loop in control.py. It
must not know images, tensors or rounds.

Two rules the datasheet leaves open. A memory write that covers part of a word never written leaves the
rest unwritten: the word counts as written once all its bytes were. And a machine of several meshes runs every
engine that was started as far as it goes; an engine that waits for another mesh is a hang only when it is looked at.
"""

from __future__ import annotations

import mmap
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Fault, Hang, Refusal
from kohakuaccel.jit import compiling_beside, first_call
from kohakuaccel.machine import Machine
from kohakutpu.isa import control as reg
from kohakutpu.isa import mover
from kohakutpu.units import agent_state as a
from kohakutpu.units import errors
from kohakutpu.units.mover import Mover
from kohakutpu.units.state import NOTE_WORDS, PAGE, WORD, make_memory, make_outbox
from kohakutpu.units.system_report import Party, Report
from kohakutpu.units.vector_state import COUNT_NONFINITE

Bytes = NDArray[np.uint8]
Runs = tuple[int, int, int]

_AGENT_END = reg.AGENT_BASE + reg.WINDOW
_MESH_SPAN = 1 << reg.MESH_SHIFT
_MEMORY = 1 << reg.MEMORY_SHIFT
_APERTURE = 1 << 39
_RESERVED = 1 << 38
_UPLOAD = {4: 0, 5: 1}
_AUX_END = reg.AUX_CFG + 0x100


class System:
    """The model of `machine`, out of reset. Writes take effect, and what they start runs, before they return.

    nonfinite: "raise" (a non-finite operand at a quantiser is a fault) or "count" (datasheet 2.2).
    faults: "raise" stops at the first faulting instruction with Fault; "signal" goes on as a card does, and
        the host finds code 4 in NODE_STATUS.

    After a Fault or Hang memory holds what was there, and the units have been reset (`reset_units`).
    """

    def __init__(self, machine: Machine, *, nonfinite: str = "raise", faults: str = "raise") -> None:
        with first_call("the machine model", "kohakutpu.units.control") as cold:
            # Two halves of equal size that do not know each other; control.py, which knows both, is small.
            beside = ("kohakutpu.units.vector", "kohakutpu.units.engine")
            with compiling_beside(*beside) if cold else nullcontext():
                from kohakutpu.units import cluster, memory
            from kohakutpu.units import control, engine, vector

            self._build(machine, cluster, control, engine, memory, vector)
            self.nonfinite = nonfinite
            self.faults = faults
            self.reset_units()
            self._advance()

    def _build(
        self,
        machine: Machine,
        cluster: ModuleType,
        control: ModuleType,
        engine: ModuleType,
        memory: ModuleType,
        vector: ModuleType,
    ) -> None:
        """State arrays of the whole machine, and the compiled functions that work on them."""
        self.machine = machine
        self._upload = memory.quantising_upload
        p = machine.params
        agent_words = (reg.STAGE + reg.STAGE_BYTES * p.stage_flits) // 8
        engine_words = (reg.COMMANDS + reg.COMMAND_BYTES * p.ncmd) // 8
        self.control = a.make_control(machine, engine_words, agent_words)
        self.memory = make_memory([m.size for m in machine.memories])
        self.clusters = cluster.make_clusters(machine)
        self.vectors = vector.make_vectors(machine)
        self.outbox = make_outbox()
        self.fault_count = 0
        self.upload_nonfinite = 0
        self.parties: tuple[Party, ...] = ()
        self._partial: dict[int, int] = {}
        self._agent_bytes = self.control.agent.view(np.uint8)
        self._engine_bytes = self.control.engine.view(np.uint8)
        self._stage_bus = reg.AGENT_BASE + reg.STAGE
        self._agent_limit = reg.AGENT_BASE + 8 * agent_words
        self._engine_limit = 8 * engine_words
        for mesh in machine.meshes:
            low, high = 1 << 4 | 1, mesh.ny << 4 | mesh.nx
            caps = reg.AGENT_CAPS.encode(grid_low=low, grid_high=high)
            self.control.agent[mesh.index, reg.CAPS // 8] = caps
        c = self.control
        self._state = (c, self.clusters, self.vectors, self.memory, self.outbox)
        self._registers = (c.run, c.agent, c.rx)
        self._report = Report(machine, c, self.vectors)
        self._run, self._write = control.advance, engine.write_registers
        self.movers = [Mover(m.index, self.memory) for m in machine.meshes] if machine.features.mover else []

    @property
    def nonfinite(self) -> str:
        """Policy for non-finite operands at quantisers: "raise" or "count"."""
        return "count" if self._policy else "raise"

    @nonfinite.setter
    def nonfinite(self, policy: str) -> None:
        if policy not in ("raise", "count"):
            raise Refusal("the non-finite policy is 'raise' or 'count'", got=policy)
        self._policy = int(policy == "count")
        self.vectors.option[COUNT_NONFINITE] = self._policy

    @property
    def faults(self) -> str:
        """What a faulting instruction does to the run: "raise" or "signal"."""
        return "raise" if self._stop_on_fault else "signal"

    @faults.setter
    def faults(self, policy: str) -> None:
        if policy not in ("raise", "signal"):
            raise Refusal("faults are 'raise' or 'signal'", got=policy)
        self._stop_on_fault = int(policy == "raise")

    def log_kernels(self, on: bool = True) -> None:
        """Note the kernel cycles of every RUN from now on, for `take_kernels`: room for one round of each mesh."""
        self.control.log[0] = int(on)

    def take_kernels(self) -> list[tuple[int, int]]:
        """(number of the unit in the machine's list, kernel cycles) of the RUNs noted since the last call, in order."""
        log = self.control.log
        noted = log[1 : log[0]].tolist()
        self.log_kernels()
        return [(word >> a.LOG_SHIFT, word & (1 << a.LOG_SHIFT) - 1) for word in noted]

    def numeric_counters(self) -> NDArray[np.int64]:
        """int64[units, 2], what CU_CTRL index 4 answers: values saturated, and non-finite ones quantised (datasheet
        4.2). Without the flits."""
        return self.control.counts[:, [a.C_SATURATED, a.C_NONFINITE]] & 0xFFFF_FFFF

    # the bus

    def write(self, bus: int, data: NDArray[Any]) -> None:
        """Write bytes at a bus address. Control windows take whole 64-bit registers, memory any bytes."""
        raw = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        if bus >= _MEMORY:
            self._write_memory(bus, raw)
            return
        mesh, offset = divmod(bus, _MESH_SPAN)
        end = offset + raw.size
        if mesh >= len(self.machine.meshes) or bus < 0:
            raise self._no_such(bus)
        if offset % 8 or raw.size % 8:
            raise Refusal(
                "control windows are read and written in whole 64-bit registers",
                where=reg.describe(bus),
                got=f"{raw.size} bytes at {bus:#x}",
            )
        if self._stage_bus <= offset and end <= self._agent_limit:
            at = offset - reg.AGENT_BASE
            self._agent_bytes[mesh, at : at + raw.size] = raw
        elif offset >= reg.COMMANDS and end <= self._engine_limit:
            self._engine_bytes[mesh, offset:end] = raw
        elif reg.AGENT_BASE <= offset < _AGENT_END and end <= self._agent_limit:
            self._write_agent(mesh, offset - reg.AGENT_BASE, np.array(raw).view(np.int64))
        elif offset == reg.CTRL and raw.size == 8:
            if raw[0] & reg.GO:
                self.control.run[mesh, a.R_BUSY] = 1
                self.control.engine[mesh, 0] = 1
                self.control.engine[mesh, reg.PC // 8] = 0
                self._advance()
        else:
            raise self._no_such(bus)

    def read(self, bus: int, nbytes: int, runs: Runs | None = None) -> Bytes:
        """Read bytes at a bus address. Memory never written is refused; `runs` as in device.Transport."""
        if bus >= _MEMORY:
            return self._read_memory(bus, nbytes, runs)
        mesh, offset = divmod(bus, _MESH_SPAN)
        end = offset + nbytes
        if 0 <= mesh < len(self.machine.meshes) and offset % 8 == 0 and nbytes % 8 == 0:
            if offset >= reg.AGENT_BASE and end <= self._agent_limit:
                at = offset - reg.AGENT_BASE
                self._check_aux(at, nbytes, writing=False)
                return self._agent_bytes[mesh, at : at + nbytes].copy()
            if end <= self._engine_limit:
                if self.control.run[mesh, a.R_BUSY] and offset < reg.COMMANDS:
                    raise self.hang()
                return self._engine_bytes[mesh, offset:end].copy()
        raise self._no_such(bus)

    def _no_such(self, bus: int) -> Refusal:
        return Refusal("nothing answers at this bus address", where=f"bus of {self.machine.name}", got=f"{bus:#x}")

    def _check_aux(self, offset: int, nbytes: int, writing: bool) -> None:
        """Refuses what is not there: all of AUX_CFG but the mover's registers, which are only written."""
        config = offset < _AUX_END and offset + nbytes > reg.AUX_CFG
        status = offset <= reg.AUX_STAT < offset + nbytes
        if not self.movers and (config or status):
            raise Refusal(
                "this machine has no memory mover and no interlink registers",
                where=f"agent registers at {offset:#x}",
                hint="the feature `mover` is off (datasheet 3.4)",
            )
        inside = writing and offset >= reg.AUX_CFG and offset + nbytes <= reg.AUX_CFG + mover.SPAN
        if config and not inside:
            raise Refusal(
                "of AUX_CFG only the memory mover's registers are there, and they are only written",
                where=f"agent registers at {offset:#x}",
                limit=f"{reg.AUX_CFG:#x} to {reg.AUX_CFG + mover.SPAN - 1:#x}",
                hint="AUX_STAT reads the mover's counters and fault (datasheet 7.1)",
            )

    def _write_mover(self, mesh: int, offset: int, values: NDArray[np.int64]) -> None:
        """The mover's registers, one after another; AUX_STAT shows what the last one did."""
        for i, value in enumerate(values.view(np.uint64).tolist()):
            try:
                self.movers[mesh].write(offset - reg.AUX_CFG + 8 * i, value)
            except Fault as fault:
                self.fault_count += 1
                if self._stop_on_fault or fault.code is None:
                    raise
            finally:
                status = np.uint64(self.movers[mesh].status)
                self.control.agent[mesh].view(np.uint64)[reg.AUX_STAT // 8] = status

    def _write_agent(self, mesh: int, offset: int, values: NDArray[np.int64]) -> None:
        self._check_aux(offset, 8 * values.size, writing=True)
        if reg.AUX_CFG <= offset < _AUX_END:
            self._write_mover(mesh, offset, values)
            return
        at = 0
        while at < values.size:
            taken = self._write(*self._registers, mesh, offset + 8 * at, values[at:])
            if taken < 0:
                where = reg.describe(reg.agent_bus(mesh, offset + 8 * (at - 1 - taken)))
                raise Refusal("the register cannot be written", where=where)
            at += taken
            self._advance()

    # memory

    def _place(self, bus: int, nbytes: int) -> tuple[int, int]:
        """(mesh, address) of a memory window access."""
        mesh, address = (bus >> reg.MEMORY_SHIFT) - 1, bus & (_MEMORY - 1)
        if mesh >= len(self.machine.meshes):
            raise self._no_such(bus)
        if address & _APERTURE:
            return mesh, address
        if address & _RESERVED or address >> 36 != mesh:
            raise Refusal(
                "a memory address names the mesh of its window",
                where=f"memory window of mesh {mesh}",
                got=f"{address:#x}",
                hint="bits 37:36 are the mesh, bit 38 is 0 (datasheet 3.1)",
            )
        offset, size = address & (1 << 36) - 1, int(self.memory.size[mesh])
        if offset + nbytes > size:
            raise Refusal(
                "an access stays inside the mesh's DRAM",
                where=f"memory window of mesh {mesh}",
                got=f"{offset:#x} + {nbytes}",
                limit=f"{size:#x} bytes",
            )
        return mesh, offset

    def _write_memory(self, bus: int, raw: Bytes) -> None:
        mesh, offset = self._place(bus, raw.size)
        if offset & _APERTURE:
            self._write_aperture(mesh, offset, raw)
            return
        if raw.size == 0:
            return
        start = int(self.memory.base[mesh]) + offset
        end = start + raw.size
        self.memory.byte[start:end] = raw
        first, last = -(-start // WORD), end // WORD
        if first < last:
            self.memory.written[first:last] = 1
        if start % WORD:
            self._touch(start // WORD, start % WORD, min(WORD, start % WORD + raw.size))
        if end % WORD and (first <= last):
            self._touch(last, 0, end % WORD)

    def _touch(self, word: int, low: int, high: int) -> None:
        """Bytes low..high-1 of a word were written; it counts as written once all 32 were."""
        if self.memory.written[word]:
            return
        mask = self._partial.get(word, 0) | (1 << high) - (1 << low)
        if mask == (1 << WORD) - 1:
            self._partial.pop(word, None)
            self.memory.written[word] = 1
        else:
            self._partial[word] = mask

    def _write_aperture(self, mesh: int, address: int, raw: Bytes) -> None:
        from kohakutpu.units.memory import check_quantising_upload

        order = _UPLOAD.get(address >> 32 & 15)
        if order is None or address & _RESERVED or address >> 36 & 3 != mesh:
            raise Refusal(
                "no such special aperture",
                where=f"memory window of mesh {mesh}",
                got=f"{address:#x}",
                hint="4 and 5 in bits 35:32 are the quantising uploads (datasheet 3.1)",
            )
        dst = address & 0xFFFF_FFFF
        check_quantising_upload(self.machine, mesh, dst, raw.size)
        note = np.zeros(NOTE_WORDS, np.int64)
        # Compiled loops take one array type: aligned and writable, which replayed or sliced bytes need not be.
        fine = raw.flags.writeable and raw.ctypes.data % 8 == 0
        half = (raw if fine else np.array(raw)).view(np.uint16)
        status = self._upload(self.memory, mesh, order, dst, half, self._policy, note)
        if status == 1:
            message = errors.NONFINITE
            self.fault_count += 1
            raise Fault(
                f"{message.rule} ({int(note[2])} elements)",
                unit=f"quantising upload of mesh {mesh}",
                code=int(note[1]),
                hint=message.hint,
            )
        if status != 0:
            message = errors.error(int(note[1]), note[2:6].tolist())
            raise Refusal(message.rule, where=f"quantising upload of mesh {mesh}", hint=message.hint)
        self.upload_nonfinite += int(note[2])

    def _read_memory(self, bus: int, nbytes: int, runs: Runs | None) -> Bytes:
        mesh, offset = self._place(bus, nbytes)
        if offset & _APERTURE:
            raise Refusal(
                "a special aperture cannot be read", where=f"memory window of mesh {mesh}", got=f"{offset:#x}"
            )
        start = int(self.memory.base[mesh]) + offset
        first, last = start // WORD, -(-(start + nbytes) // WORD)
        flags = self.memory.written[first:last]
        data = self.memory.byte[start : start + nbytes].copy()
        if flags.all():
            return data
        missing = np.flatnonzero(flags == 0)
        if runs is not None:
            words, pitch, count = runs
            run, within = np.divmod(missing, pitch)
            needed = missing[(run < count) & (within < words)]
            for word in np.setdiff1d(missing, needed, assume_unique=True).tolist():
                data[max(0, WORD * word - start % WORD) : WORD * (word + 1) - start % WORD] = 0
            missing = needed
        for word in missing.tolist():
            low, high = max(start, WORD * (first + word)), min(start + nbytes, WORD * (first + word + 1))
            bits = (1 << high - WORD * (first + word)) - (1 << low - WORD * (first + word))
            if self._partial.get(first + word, 0) & bits != bits:
                raise Refusal(
                    "memory that nobody wrote is read",
                    where=f"memory window of mesh {mesh}",
                    got=f"byte {low - int(self.memory.base[mesh]):#x}",
                    hint="run what computes it first, or check the address and length",
                )
        return data

    def forget(self, mesh: int, address: int, nbytes: int) -> None:
        """Whole words of a range count as never written again: what a fresh allocation must look like."""
        start = int(self.memory.base[mesh]) + address
        flags = self.memory.written[-(-start // WORD) : (start + nbytes) // WORD]
        if flags.any():  # pages of flags never touched stay without memory behind them
            flags[:] = 0
        if self._partial:
            self._partial = {w: bits for w, bits in self._partial.items() if not start <= WORD * w < start + nbytes}

    def release(self, mesh: int, address: int, nbytes: int) -> None:
        """Forget a range and give its pages back to the operating system."""
        self.forget(mesh, address, nbytes)
        start = int(self.memory.base[mesh]) + address
        first, last = -(-start // PAGE) * PAGE, (start + nbytes) // PAGE * PAGE
        pages = self.memory.byte.base
        if first < last and isinstance(pages, memoryview):
            pages = pages.obj
        if first < last and isinstance(pages, mmap.mmap):
            pages.madvise(mmap.MADV_DONTNEED, first, last - first)

    # running

    def _advance(self) -> None:
        code = self._run(*self._state, self._policy, self._stop_on_fault)
        if code == a.QUIET:
            return
        if code != a.STOP_HANG:
            raise self._fault()
        if len(self.machine.meshes) == 1:
            raise self.hang()

    def reset_units(self) -> None:
        """Drop everything under way: FIFOs, bursts, dispatchers, engines, and what units hold but memory.

        Counters, node counts, staging and command RAM stay.
        """
        from kohakutpu.units.agent import RX_EMPTY
        from kohakutpu.units.cluster_state import reset_clusters
        from kohakutpu.units.vector_state import make_vectors

        c = self.control
        for column in (a.U_HEAD, a.U_COUNT, a.U_BLOCKED, a.U_OPEN, a.U_PENDING):
            c.unit[:, column] = 0
        for column in (a.R_BUSY, a.R_RUNNING, a.R_LEFT, a.R_CREDIT, a.R_TX):
            c.run[:, column] = 0
        c.engine[:, reg.CTRL // 8] = 0
        self._write_all(reg.RX_POP, 0, a.RX_FLITS)
        c.agent[:, reg.RX_STATUS // 8] = RX_EMPTY  # nothing to pop publishes nothing
        self._write_all(reg.PROG_CRED, 0)
        reset_clusters(self.clusters)
        fresh = make_vectors(self.machine)
        for name, array, value in zip(fresh._fields, self.vectors, fresh, strict=True):
            if name not in ("retired", "busy", "kernel", "saturated", "nonfinite", "option"):
                array[...] = value

    def _write_all(self, offset: int, value: int, times: int = 1) -> None:
        """A register of every agent, `times` times."""
        values = np.array([value], np.int64)
        for mesh in range(len(self.machine.meshes)):
            for _ in range(times):
                self._write(*self._registers, mesh, offset, values)

    def _fault(self) -> Fault:
        """What stopped the machine, as an exception; resets the units."""
        fault = self._report.fault()
        self.fault_count += 1
        self.reset_units()
        return fault

    def hang(self, *first: str) -> Hang:
        """The machine as it waits now, as an exception; resets the units. `first`: what the host waits for."""
        self.parties = (*(Party(text) for text in first), *self.waits())
        self.fault_count += 1
        self.reset_units()
        return Hang([p.text for p in self.parties])

    def waits(self) -> tuple[Party, ...]:
        """Everybody who cannot proceed now, and what each waits for."""
        return self._report.waits()
