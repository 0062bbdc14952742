"""A KohakuTPU as a device: memory for tensors, images run in rounds, counters, faults in the user's terms.

It decides the order of bus transactions and nothing they contain. It must not know tensors, layouts or kernels.
One lock per device: its methods may be called from any thread, one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.device import Arena, Buffer, Bytes, Counters, Recording, Runs, Transport
from kohakuaccel.diagnostics import Fault, Hang, Refusal, SourceLine
from kohakuaccel.image import EncodedProgram, Image
from kohakuaccel.machine import Machine, Unit
from kohakutpu import machines
from kohakutpu.dispatch import Loader, Round, opcode_counts
from kohakutpu.dispatch.moves import check_indices, command, placed
from kohakutpu.isa import control as reg
from kohakutpu.isa import flit
from kohakutpu.isa.mover import WORD, Move
from kohakutpu.units import errors

_APERTURE = {"A": 1 << 39 | 4 << 32, "B": 1 << 39 | 5 << 32}
_COUNT, _CODE = (np.uint64(reg.NODE.position(name)[0]) for name in ("count", "code"))
_NODES = 256
_CTRL_ERROR, _CTRL_BUSY = 4, 1
_HOST_POLLS = 1000  # reads before a POLL executed by the host counts as a hang
_OPCODE_KEY = "kohakutpu.opcodes"


OnRun = Callable[[Image, dict[str, list[int]]], None]


class Device:
    """One machine behind a transport (by default its model), with an arena per mesh memory.

    machine: a Machine or the name of a preset. Buffers are freed when nobody holds them.
    """

    def __init__(self, machine: Machine | str = machines.DEFAULT, transport: Transport | None = None) -> None:
        self.machine = machines.load(machine) if isinstance(machine, str) else machine
        if transport is None:
            from kohakutpu.units.system import System

            transport = System(self.machine)
        self.transport = transport
        # What answers behind a recording: models know more than a bus does (waits, policies, written words).
        while isinstance(transport, Recording) and transport.inner is not None:
            transport = transport.inner
        self._model = transport
        self.counters = Counters()
        self.on_run: OnRun | None = None
        """Called after each run with the image and the kernel cycles of each vector core's RUNs, by unit name. The
        cycles are empty where the transport is no model."""
        self.loader = Loader(self.machine)
        self.lock = threading.RLock()
        self._arenas = tuple(
            Arena(0, m.size, name=f"DRAM of mesh {m.mesh} ({self.machine.name})") for m in self.machine.memories
        )
        self._numbers = np.zeros((len(self.machine.units), 2), np.int64)
        self._uploads = 0

    @property
    def identity(self) -> str:
        """Tells machines apart: name and fingerprint."""
        return f"{self.machine.name}:{self.machine.fingerprint}"

    def __repr__(self) -> str:
        return f"<Device {self.machine.name}, {len(self._arenas)} memories>"

    # memory

    def arena(self, mesh: int = 0) -> Arena:
        """The allocator of one mesh's DRAM."""
        return self._arenas[mesh]

    def alloc(
        self,
        nbytes: int,
        align: int = 256,
        mesh: int = 0,
        label: str = "",
        layout: object = None,
        at: int | None = None,
    ) -> Buffer:
        """A buffer of `nbytes` bytes whose content counts as never written. Raises OutOfMemory with the map.

        at: where it lies if that is free.
        """
        with self.lock:
            buffer = Buffer(self._arenas[mesh], nbytes, align, mesh, label, layout, at)
            forget = getattr(self._model, "forget", None)
            if forget is not None:
                forget(mesh, buffer.address, max(nbytes, 1) + 31 & -32)
            return buffer

    def address(self, buffer: Buffer) -> int:
        """The 40-bit address that instructions use for a buffer (datasheet 3.1)."""
        return buffer.mesh << 36 | buffer.address

    def upload(self, buffer: Buffer, data: NDArray[Any], quantise: str | None = None, offset: int = 0) -> None:
        """Write bytes into a buffer from byte `offset`.

        quantise "A" or "B": `data` are FP16 entries of 256 bytes in pack order, which land as quantised entries of
        128 bytes in that order. Raises Refusal when they do not fit, Fault on a non-finite operand.
        """
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        landed = raw.size // 2 if quantise else raw.size
        self._inside(buffer, offset, landed, "an upload")
        if quantise is not None and quantise not in _APERTURE:
            raise Refusal("the quantised order is 'A' or 'B'", where=repr(buffer), got=quantise)
        if raw.size == 0:
            return
        address = self.address(buffer) + offset
        if quantise is not None:
            address = buffer.mesh << 36 | _APERTURE[quantise] | buffer.address + offset
        with self.lock:
            self.transport.write(reg.memory_bus(buffer.mesh, address), raw)
            self.counters.bytes_to_device += raw.size
            self.counters.transfers += 1
            if quantise is not None:
                self.counters.quantised_bytes += raw.size

    def download(self, buffer: Buffer, nbytes: int | None = None, offset: int = 0, runs: Runs | None = None) -> Bytes:
        """uint8[nbytes] from byte `offset` of a buffer (all of it by default).

        Words that nobody wrote are refused. `runs` = (words, pitch, count) names the words of 32 bytes that matter,
        as a layout's `runs` does; unwritten padding between them then reads as zero.
        """
        size = buffer.nbytes - offset if nbytes is None else nbytes
        self._inside(buffer, offset, size, "a download")
        if size == 0:
            return np.zeros(0, np.uint8)
        with self.lock:
            data = self.transport.read(reg.memory_bus(buffer.mesh, self.address(buffer) + offset), size, runs)
            self.counters.bytes_from_device += size
            self.counters.transfers += 1
            return data

    @staticmethod
    def _inside(buffer: Buffer, offset: int, size: int, what: str) -> None:
        if offset < 0 or size < 0 or offset + size > buffer.nbytes:
            raise Refusal(
                f"{what} stays inside its buffer", where=repr(buffer), got=f"{offset} + {size}", limit=buffer.nbytes
            )

    def move(self, move: Move, target: Buffer, source: Buffer | None = None, index: NDArray[Any] | None = None) -> None:
        """Have the memory mover of target's mesh write words of `target` (datasheet 3.4; feature `mover`).

        move: its walks' bases are byte offsets in `target` and `source` (a COPY's and a GATHER's). index: integers[n],
        the rows of a GATHER; they are uploaded for it. Raises Refusal before anything is written for words outside the
        buffers, off 32 bytes, read and written, or written twice; Fault with the mover's code. Counted as `moves`.
        """
        rows = check_indices(move, index, source)
        with self.lock:
            places = None
            if rows is not None:
                places = self.alloc(rows.nbytes + 31 & -32, mesh=target.mesh, label="indices of a move")
            ready = placed(self.machine, move, target, source, places)
            registers = ready.registers()
            if places is not None and rows is not None:
                self.upload(places, np.concatenate((rows, np.zeros(-rows.size % 8, np.uint32))))
            counters = self.counters
            try:
                counters.move_transactions += command(self.transport, target.mesh, registers)
            except (Fault, Hang):
                counters.faults += 1
                raise
            counters.moves += 1
            counters.moved_bytes += WORD * int(move.target.elements()[1].sum())

    def empty_cache(self) -> None:
        """Give the host pages behind free device memory back to the operating system."""
        release = getattr(self._model, "release", None)
        with self.lock:
            for mesh, arena in enumerate(self._arenas):
                for start, end in arena.holes:
                    if release is not None:
                        release(mesh, start, end - start)

    # running

    def run(self, image: Image) -> None:
        """Run every stage of an image to completion.

        Raises Fault with the unit, the instruction's number in its stream, its text and the user's line where known;
        Hang with everybody who waits; Refusal before anything ran for an image this machine cannot take. Memory
        keeps what was there.
        """
        with self.lock:
            rounds = self.loader.rounds(image)
            flits = image.cache.get(_OPCODE_KEY)
            if flits is None:
                flits = image.cache[_OPCODE_KEY] = opcode_counts(image)
            counters = self.counters
            counters.dispatches += 1
            counters.rounds += len(rounds)
            counters.count_flits(flits)
            counts: dict[int, NDArray[np.int64]] = {}
            kernels: dict[str, list[int]] = {}
            log = getattr(self._model, "log_kernels", None) if self.on_run is not None else None
            if log is not None:
                log()
            at = 0
            while at < len(rounds):
                end = at + 1
                while end < len(rounds) and rounds[end].group == rounds[at].group:
                    end += 1
                self._group(image, rounds[at:end], counts)
                if log is not None:
                    for unit, cycles in getattr(self._model, "take_kernels")():  # noqa: B009  (a model's own method)
                        kernels.setdefault(self.machine.units[unit].name, []).append(cycles)
                at = end
            if log is not None:
                log(False)
            if self.on_run is not None:
                self.on_run(image, kernels)

    def _group(self, image: Image, rounds: tuple[Round, ...], counts: dict[int, NDArray[np.int64]]) -> None:
        """Rounds that start together, one per mesh. `counts` holds each mesh's signal counts per node."""
        write = self.transport.write
        lists: list[NDArray[np.uint64]] = []
        for r in rounds:
            if r.mesh not in counts:
                counts[r.mesh] = self._counts(self._node_status(r.mesh))
            lists.append(commands := r.awaiting(counts[r.mesh]))
            if len(r.staging):
                write(reg.agent_bus(r.mesh, reg.STAGE), r.staging)
            if self.machine.features.control_engine:
                write(reg.engine_bus(r.mesh, reg.COMMANDS), commands)
            self.counters.control_bytes += r.staging.nbytes + commands.nbytes
        try:
            for r, commands in zip(rounds, lists, strict=True):
                if self.machine.features.control_engine:
                    write(reg.engine_bus(r.mesh, reg.CTRL), _GO)
                else:
                    self._execute(commands)
            for r in rounds:
                self._finish(r, counts)
        except Hang as hang:
            self.counters.faults += 1
            raise self._told_hang(hang, image, rounds) from None
        except Fault as fault:
            self.counters.faults += 1
            raise self._told(fault, image, rounds) from None

    def _finish(self, r: Round, counts: dict[int, NDArray[np.int64]]) -> None:
        """After a round: the engine is done without error, and no awaited node's last signal is a FAULT."""
        if self.machine.features.control_engine:
            status = int(self.transport.read(reg.engine_bus(r.mesh, reg.CTRL), 16).view(np.uint64)[0])
            if status & (_CTRL_ERROR | _CTRL_BUSY):
                pc = int(self.transport.read(reg.engine_bus(r.mesh, reg.PC), 8).view(np.uint64)[0])
                raise Fault(f"the control engine stopped at command {pc}", unit=f"control engine of mesh {r.mesh}")
        nodes = self._node_status(r.mesh)
        last = (nodes[r.nodes] >> _CODE).astype(np.int64)
        if (last == flit.FAULT).any():
            node = int(r.nodes[int((last == flit.FAULT).argmax())])
            self._raise_signalled(r.mesh, node, int(nodes[node]))
        known = counts[r.mesh]
        known[r.nodes] = (known[r.nodes] + r.expected) & 0xFFFF

    def _raise_signalled(self, mesh: int, node: int, word: int) -> None:
        unit = self.machine.unit_at(mesh, node & 15, node >> 4)
        assert unit is not None
        code = reg.NODE.decode(word)["arg"]
        message = errors.fault(unit.kind, code)
        raise Fault(message.rule, unit=unit.name, code=code, hint=message.hint)

    def _execute(self, commands: NDArray[np.uint64]) -> None:
        """The command list of a round, executed by the host: for machines without the engine."""
        transport = self.transport
        for number, (op, address, data, mask) in enumerate(commands.tolist()):
            if op == reg.WRITE:
                transport.write(address, np.array([data], np.uint64))
                continue
            if op == reg.DONE:
                return
            value = 0
            for _ in range(_HOST_POLLS):
                value = int(transport.read(address, 8).view(np.uint64)[0])
                if value & mask == data:
                    break
            else:
                text = f"the host, command {number}, polls {reg.describe(address)} for {data:#x}, has {value & mask:#x}"
                hang = getattr(self._model, "hang", None)
                raise hang(text) if hang is not None else Hang([text])

    def _node_status(self, mesh: int) -> NDArray[np.uint64]:
        """uint64[256] NODE_STATUS words of a mesh."""
        return self.transport.read(reg.agent_bus(mesh, reg.NODE_STATUS), 8 * _NODES).view(np.uint64)

    @staticmethod
    def _counts(nodes: NDArray[np.uint64]) -> NDArray[np.int64]:
        return (nodes >> _COUNT).astype(np.int64) & 0xFFFF

    # faults in the user's terms

    @staticmethod
    def _find(image: Image, rounds: tuple[Round, ...], unit: str, index: int) -> tuple[EncodedProgram, int] | None:
        """The program and the stream position of instruction `index` since the kick of a unit in these rounds."""
        for r in rounds:
            for w in r.windows:
                program = image.stages[r.stage][w.program]
                if program.unit.name == unit and 0 <= index < w.count:
                    return program, w.start + index
        return None

    def _told(self, fault: Fault, image: Image, rounds: tuple[Round, ...]) -> Fault:
        found = self._find(image, rounds, fault.unit, fault.index)
        if found is None:
            return fault
        program, index = found
        return Fault(
            fault.rule,
            unit=fault.unit,
            index=index,
            disassembly=fault.disassembly,
            code=fault.code,
            hint=fault.hint,
            source=image.line(program, index),
        )

    def _told_hang(self, hang: Hang, image: Image, rounds: tuple[Round, ...]) -> Hang:
        parties = getattr(self._model, "parties", ())
        texts: list[str] = list(hang.waits)
        source: SourceLine | None = None
        for i, party in enumerate(parties):
            found = self._find(image, rounds, party.unit, party.index)
            if found is None or i >= len(texts):
                continue
            program, index = found
            if index != party.index:
                texts[i] += f" (instruction {index} of its stream)"
            line = image.line(program, index)
            if line is not None:
                texts[i] += f" at {line.file}:{line.line}"
                source = source or line
        told = Hang(texts, unit=hang.unit, hint=hang.hint)
        told.source = source
        return told

    # counters

    @property
    def nonfinite(self) -> str:
        """Policy for non-finite operands at quantisers: "raise" or "count"."""
        return cast(str, getattr(self._model, "nonfinite", "raise"))

    @nonfinite.setter
    def nonfinite(self, policy: str) -> None:
        if not hasattr(self._model, "nonfinite"):
            raise Refusal("this transport has no policy for non-finite operands", where=repr(self.transport))
        with self.lock:
            setattr(self._model, "nonfinite", policy)  # noqa: B010  (a protocol without the attribute)

    def control_value(self, unit: Unit, index: int) -> int:
        """The 64-bit answer of a unit to a CU_CTRL request (datasheet 4.2), asked by a raw flit."""
        mesh = self.machine.meshes[unit.mesh]
        header = flit.HEADER.encode(
            dst_x=unit.x, dst_y=unit.y, src_x=mesh.agent_x, src_y=mesh.agent_y, type=flit.CU_CTRL, last=1
        )
        words = flit.stage(header, flit.CONTROL_REQUEST.encode(index=index))
        with self.lock:
            t = self.transport
            t.write(reg.agent_bus(unit.mesh, reg.TX_FLIT), words)
            t.write(reg.agent_bus(unit.mesh, reg.TX_KICK), _GO)
            reply = t.read(reg.agent_bus(unit.mesh, reg.RX_FLIT), 40)
            t.write(reg.agent_bus(unit.mesh, reg.RX_POP), _GO)
        low, high = reply.view(np.uint64)[2:4].tolist()
        return (high << 64 | low) >> flit.CONTROL_REPLY.position("value")[0] - 128 & (1 << 64) - 1

    def sync(self) -> None:
        """Everything submitted is done (runs are synchronous); reads the units' numeric counters."""
        with self.lock:
            now = self._numeric_counters()
            saturated, nonfinite = ((now - self._numbers) & 0xFFFF_FFFF).sum(axis=0).tolist()
            uploads = getattr(self._model, "upload_nonfinite", 0)
            self.counters.saturations += saturated
            self.counters.nonfinite += nonfinite + uploads - self._uploads
            self._numbers, self._uploads = now, uploads

    def _numeric_counters(self) -> NDArray[np.int64]:
        """int64[units, 2]. A model tells them at once, as a run that is watched for saturation asks after every
        launch; whatever else answers is asked by flits."""
        told = getattr(self.transport, "numeric_counters", None)
        if told is not None:
            return told()
        values = [self.control_value(unit, flit.NUM_INDEX) for unit in self.machine.units]
        return np.array([(v >> 32, v & 0xFFFF_FFFF) for v in values], np.int64)

    def stats(self) -> dict[str, object]:
        """Counters since the last reset, and the memory of each mesh."""
        with self.lock:
            self.sync()
            found: dict[str, object] = {"machine": self.machine.name, **self.counters.as_dict()}
            arenas = [arena.stats() for arena in self._arenas]
            found["memory_used"] = sum(s.used for s in arenas)
            found["memory_peak"] = sum(s.peak for s in arenas)
            found["memory_free"] = sum(s.free for s in arenas)
            found["largest_hole"] = max(s.largest_hole for s in arenas)
            found["fragmentation"] = max(s.fragmentation for s in arenas)
            found["buffers"] = sum(s.blocks for s in arenas)
            return found

    def reset_stats(self) -> None:
        """Count from zero again. The units' own counters go on; they are read relative to now."""
        with self.lock:
            self.sync()
            self.counters.reset()


_GO = np.array([reg.GO], np.uint64)
_lock = threading.Lock()
_default: Device | None = None


def default() -> Device:
    """The device that tensors use when none is named: the one of `use`, else the model of ship_3x2."""
    global _default
    with _lock:
        if _default is None:
            _default = Device()
        return _default


def use(machine: Machine | str | Device) -> Device:
    """Make a machine (or an open device) the default; tensors on other devices keep theirs.

    The same machine as now keeps the device as it is.
    """
    global _default
    with _lock:
        if isinstance(machine, Device):
            _default = machine
            return machine
        wanted = machines.load(machine) if isinstance(machine, str) else machine
        if _default is None or _default.machine != wanted:
            _default = Device(wanted)
        return _default
