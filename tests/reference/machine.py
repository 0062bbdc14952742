"""The whole machine behind its bus (datasheet 3.1, 4, 7): memory, dispatch agents, control engines.

Everything happens at once and in program order: a kicked program runs to its end inside the KICK write. That
is one legal interleaving of the machine, so it gives the final memory of any program without races. It must
not know the host library; it takes the writes a host made and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .burst import Burst
from .cluster import Cluster, Fields, decode
from .errors import Raised, UnitFault, Waits
from .formats import bits, mxfp7_entry, pack_entry
from .memory import Memory
from .presets import SHIP_3X2, Preset
from .vector import VectorCore

AGENT = 0x1000_0000
PROG_DST, PROG_LEN, PROG_KICK, PROG_STAT, PROG_CRED, PROG_BASE, SIG_DONE = range(0x40, 0x78, 8)
TX_FLIT, TX_KICK, TX_STATUS, RX_FLIT, RX_POP, RX_STATUS = 0x100, 0x140, 0x148, 0x180, 0x1C0, 0x1C8
NODE_STATUS, STAGE = 0x1000, 0x2000
MASK64 = (1 << 64) - 1

INST_COMPLETE, BATCH_COMPLETE, DATA_RECEIVED, FAULT = 0, 1, 3, 4
CU_INST, CU_CTRL, CU_DATA = 5, 7, 8
OPTIONS = ("r2_vc_quant", "r2_dual_acc", "r2_bank_plan", "r2_acc_to_vc", "r2_multicast", "r2_desc_fill")


class MachineFault(Exception):
    """A unit retired an instruction with SIG_FAULT."""

    def __init__(self, where: tuple[int, int, int], code: int, index: int, pc: int) -> None:
        super().__init__(where, code, index, pc)
        self.where, self.code, self.index, self.pc = where, code, index, pc


@dataclass
class Node:
    """A NODE_STATUS entry."""

    code: int = 0
    arg: int = 0
    count: int = 0
    valid: int = 0

    @property
    def register(self) -> int:
        return self.code << 56 | self.arg << 24 | (self.count & 0xFFFF) << 8 | self.valid


@dataclass
class Agent:
    """A dispatch agent and the control engine beside it."""

    xy: tuple[int, int]
    stage: dict[int, int] = field(default_factory=dict[int, int])  # 64-bit words of the staging RAM
    registers: dict[int, int] = field(default_factory=dict[int, int])
    nodes: dict[tuple[int, int], Node] = field(default_factory=dict[tuple[int, int], Node])
    replies: list[int] = field(default_factory=list[int])
    credit: int = 0
    signals: int = 0
    commands: dict[int, int] = field(default_factory=dict[int, int])
    pc: int = 0
    done: int = 0
    error: int = 0
    code: int = 0
    polls: int = 0

    def node(self, x: int, y: int) -> Node:
        return self.nodes.setdefault((x, y), Node())


class Machine:
    """State of a machine; `write` and `read` are its bus."""

    def __init__(self, preset: Preset = SHIP_3X2, nonfinite: str = "raise", faults: str = "raise") -> None:
        self.preset, self.nonfinite, self.faults = preset, nonfinite, faults
        self.memories = [Memory(mesh.dram) for mesh in preset.meshes]
        self.agents = [Agent(mesh.ports[0]) for mesh in preset.meshes]
        self.units: dict[tuple[int, int, int], Cluster | VectorCore] = {}
        self.upload_nonfinite = 0
        self.opened: dict[tuple[int, int, int], tuple[int, list[int]]] = {}
        self.queued: dict[tuple[int, int, int], list[tuple[int, int]]] = {}  # behind a shared fill, that first
        kinds: dict[tuple[int, int, int], str] = {}
        for m, mesh in enumerate(preset.meshes):
            kinds |= {(m, *xy): "port" for xy in mesh.ports}
            kinds |= {(m, *xy): "MG" for xy in mesh.mg} | {(m, *xy): "VC" for xy in mesh.vc}
        options = frozenset(preset.options)
        for where, kind in kinds.items():
            memory, xy = self.memories[where[0]], where[1:]
            if kind == "port":
                continue
            if kind == "MG":
                self.units[where] = Cluster(memory, where[0], xy, preset.tiles, preset.l1, kinds, nonfinite, options)
            else:
                self.units[where] = VectorCore(memory, where[0], xy, kinds, options, nonfinite)

    # --- the bus ---

    def write(self, bus: int, data: bytes) -> None:
        if bus >> 40:
            self._write_memory((bus >> 40) - 1, bus & ((1 << 40) - 1), data)
            return
        if bus % 8 or len(data) % 8:
            raise Raised("ADDRESS", bus)
        for i in range(0, len(data), 8):
            self._write_register(bus >> 32, (bus + i) & 0xFFFFFFFF, int.from_bytes(data[i : i + 8], "little"))

    def read(self, bus: int, nbytes: int) -> bytes:
        if bus >> 40:
            mesh, address = self._mesh((bus >> 40) - 1, bus & ((1 << 40) - 1))
            return self.memories[mesh].peek(address, nbytes)
        words = [self._read_register(bus >> 32, (bus + i) & 0xFFFFFFFF) for i in range(0, nbytes, 8)]
        return b"".join(w.to_bytes(8, "little") for w in words)

    def replay(self, writes: Iterable[tuple[int, bytes]]) -> None:
        for bus, data in writes:
            self.write(bus, bytes(data))

    def _mesh(self, mesh: int, address: int) -> tuple[int, int]:
        if mesh >= len(self.memories) or address >> 38 or (address >> 36) & 3 not in (0, mesh):
            raise Raised("ADDRESS", address)
        return mesh, address & ((1 << 36) - 1)

    def _write_memory(self, mesh: int, address: int, data: bytes) -> None:
        if address >> 39 == 0:
            mesh, offset = self._mesh(mesh, address)
            self.memories[mesh].poke(offset, data)
            return
        aperture, dst = bits(address, 35, 32), bits(address, 31, 0)
        if not self.preset.quantising_upload or aperture not in (4, 5) or bits(address, 38, 38):
            raise Raised("ADDRESS", address)
        if len(data) % 256 or dst % 128:
            raise Raised("ADDRESS", address)
        for n in range(len(data) // 256):
            block = data[256 * n : 256 * n + 256]
            entry, bad = mxfp7_entry([int.from_bytes(block[i : i + 2], "little") for i in range(0, 256, 2)])
            self.upload_nonfinite += bad
            if bad and self.nonfinite == "raise":
                raise UnitFault(0x10)
            for w, word in enumerate(pack_entry(entry, aperture == 5)):
                self.memories[mesh].store(dst + 128 * n + 32 * w, word)

    # --- registers (7.1, 7.2) ---

    def _write_register(self, mesh: int, address: int, value: int) -> None:
        agent = self.agents[mesh]
        if address >= AGENT:
            self._write_agent(mesh, agent, address - AGENT, value)
        elif 0x1000 <= address < 0x1000 + 32 * self.preset.ncmd:
            agent.commands[(address - 0x1000) // 8] = value
        elif address == 0:
            if value & 1:
                self._control(agent)
        else:
            raise Raised("ADDRESS", address)

    def _read_register(self, mesh: int, address: int) -> int:
        agent = self.agents[mesh]
        if address >= AGENT:
            return self._read_agent(agent, address - AGENT)
        if address >= 0x1000:
            return agent.commands.get((address - 0x1000) // 8, 0)
        return {0: agent.done << 1 | agent.error << 2, 8: agent.pc, 16: agent.code, 24: agent.polls}[address]

    def _control(self, agent: Agent) -> None:
        agent.pc = agent.done = agent.error = 0
        while True:
            op, at, data, mask = (agent.commands.get(4 * agent.pc + f, 0) for f in range(4))
            if op & 15 == 1:
                self._write_register(at >> 32, at & 0xFFFFFFFF, data)
            elif op & 15 == 2:
                agent.polls += 1
                if self._read_register(at >> 32, at & 0xFFFFFFFF) & mask != data:
                    raise Waits("POLL")
            elif op & 15 == 3:
                agent.code, agent.done = data, 1
                return
            else:
                agent.error = 1
                return
            agent.pc += 1

    def _write_agent(self, mesh: int, agent: Agent, offset: int, value: int) -> None:
        if offset >= STAGE:
            agent.stage[(offset - STAGE) // 8] = value
        elif offset == PROG_KICK:
            self._kick(mesh, agent)
        elif offset == PROG_CRED:
            agent.credit = value
        elif offset == SIG_DONE:
            agent.signals = 0
        elif offset == TX_KICK:
            self._transmit(mesh, agent)
        elif offset == RX_POP:
            agent.replies.pop(0)
        else:
            agent.registers[offset] = value

    def _read_agent(self, agent: Agent, offset: int) -> int:
        if NODE_STATUS <= offset < STAGE:
            yx = (offset - NODE_STATUS) // 8
            return agent.node(yx & 15, yx >> 4).register
        if RX_FLIT <= offset < RX_POP:
            return (agent.replies[0] >> 8 * (offset - RX_FLIT)) & MASK64 if agent.replies else 0
        if offset == PROG_STAT:
            return agent.credit << 17
        if offset == PROG_CRED:
            return agent.credit
        if offset == SIG_DONE:
            return agent.signals & 0xFFFF
        if offset == RX_STATUS:
            return (not agent.replies) << 16
        if offset == 0x08:
            return 4
        return agent.registers.get(offset, 0)

    # --- flits ---

    def _kick(self, mesh: int, agent: Agent) -> None:
        """Dispatch PROG_LEN staged flits from PROG_BASE to PROG_DST."""
        base, dst = agent.registers.get(PROG_BASE, 0), agent.registers.get(PROG_DST, 0)
        for index in range(agent.registers.get(PROG_LEN, 0)):
            slot = base + index
            flit = sum(agent.stage.get(5 * slot + i, 0) << 64 * i for i in range(5))
            if bits(flit, 271, 268) == CU_INST:
                if agent.credit == 0:
                    raise Waits("CREDIT")
                agent.credit -= 1
            # The dispatcher writes the coordinates of both ends.
            flit = flit & ~(0xFFFF << 272) | (dst & 15) << 284 | (dst >> 4 & 15) << 280
            self._arrive(mesh, agent, flit | agent.xy[0] << 276 | agent.xy[1] << 272, index)

    def _transmit(self, mesh: int, agent: Agent) -> None:
        """A raw flit, as it is."""
        self._arrive(mesh, agent, sum(agent.registers.get(TX_FLIT + 8 * i, 0) << 64 * i for i in range(5)), -1)

    def _arrive(self, mesh: int, agent: Agent, flit: int, index: int) -> None:
        """A flit from the agent at its unit: CU_CTRL reads are answered, CU_DATA flits are put together."""
        where = (mesh, bits(flit, 287, 284), bits(flit, 283, 280))
        kind = bits(flit, 271, 268)
        if where not in self.units:
            raise Raised("NODE", *where)
        if kind == CU_INST:
            self.instruction(where, flit, index)
        elif kind == CU_DATA:
            self._data(where, agent, flit)
        elif kind == CU_CTRL:
            index, unit = bits(flit, 247, 240), self.units[where]
            value = self._identity(unit) if index == 0 else 0
            if index == 1:
                value = self.preset.inst_fifo << 32
            elif index == 4:
                value = unit.saturated << 32 | unit.nonfinite
            if (bits(flit, 279, 276), bits(flit, 275, 272)) != agent.xy:
                return  # the answer goes to whom the flit names as its source
            reply = agent.xy[0] << 284 | agent.xy[1] << 280 | where[1] << 276 | where[2] << 272
            reply |= CU_CTRL << 268 | (flit & 0xFF << 260) | 1 << 259 | 2 << 248 | index << 240 | value << 176
            agent.replies.append(reply)
        else:
            raise Raised("FIELD", kind)

    def _data(self, where: tuple[int, int, int], agent: Agent, flit: int) -> None:
        """A descriptor opens a burst; its last data flit delivers it. 0,0 acknowledges to the descriptor's source."""
        payload = flit & ((1 << 256) - 1)
        if where not in self.opened:
            self.opened[where] = (payload, [])
            return
        head, granules = self.opened[where]
        granules.append(payload)
        if len(granules) == bits(head, 231, 224) + 1:
            del self.opened[where]
            ack = (bits(head, 211, 208), bits(head, 215, 212))
            ack = agent.xy if ack == (0, 0) else ack
            flags, offset = bits(head, 223, 216), bits(head, 247, 232)
            self.deliver(where, Burst(*where, bits(head, 255, 248), offset, tuple(granules), flags, ack))

    def _identity(self, unit: Cluster | VectorCore) -> int:
        cluster = isinstance(unit, Cluster)
        code, buffers = (0x4D47, 3) if cluster else (0x5643, 1)
        flags = sum(1 << OPTIONS.index(name) for name in self.preset.options)
        return code << 48 | (5 if flags else 4) << 40 | buffers << 36 | self.preset.inst_fifo << 20 | flags

    def instruction(self, where: tuple[int, int, int], flit: int, index: int) -> None:
        """An instruction reaches its unit. One behind a shared fill whose members have not met waits with it."""
        if self.queued.get(where):
            self.queued[where].append((flit, index))
            return
        if self._shared(where, flit) is not None:
            self.queued[where] = [(flit, index)]
            while self._meet():
                pass
            return
        self._execute(where, flit, index, False)

    def _shared(self, where: tuple[int, int, int], flit: int) -> Fields | None:
        """The fields of a shared fill of a cluster that has them."""
        payload = flit & ((1 << 256) - 1)
        if (
            not isinstance(self.units[where], Cluster)
            or "r2_multicast" not in self.preset.options
            or payload >> 252 != 1
        ):
            return None
        fields = decode(payload)
        return fields if fields.npeer else None

    def _meet(self) -> bool:
        """Let the members of one shared fill that are all at it go on, up to their next one."""
        for where, queue in self.queued.items():
            fields = self._shared(where, queue[0][0]) if queue else None
            if fields is None:
                continue
            members = [where, *((where[0], *xy) for xy in fields.peers)]
            heads = [self._shared(at, self.queued[at][0][0]) if self.queued.get(at) else None for at in members]
            if any(head is None or head.tag != fields.tag for head in heads):
                continue
            for at, head in zip(members, heads):
                assert head is not None
                if head.shared != fields.shared or {at, *((at[0], *xy) for xy in head.peers)} != set(members):
                    raise Raised("SHARE", fields.tag)
            for at in members:
                self._execute(at, *self.queued[at].pop(0), True)
            for at in members:
                while self.queued[at] and self._shared(at, self.queued[at][0][0]) is None:
                    self._execute(at, *self.queued[at].pop(0), False)
            return True
        return False

    def _execute(self, where: tuple[int, int, int], flit: int, index: int, met: bool) -> None:
        unit = self.units[where]
        payload = flit & ((1 << 256) - 1)
        try:
            result, bursts = unit.execute(payload, True) if met and isinstance(unit, Cluster) else unit.execute(payload)
        except UnitFault as fault:
            # What a RUN sent before its fault has left the core.
            for burst in unit.sent if isinstance(unit, VectorCore) else []:
                self.deliver(where, burst)
            self.signal(where, FAULT, fault.code)
            if self.faults == "raise":
                raise MachineFault(where, fault.code, index, fault.pc) from None
            return
        for burst in bursts:
            self.deliver(where, burst)
        self.signal(where, BATCH_COMPLETE if bits(flit, 259, 259) else INST_COMPLETE, self._arg(flit, result))

    @staticmethod
    def _arg(flit: int, result: int) -> int:
        return bits(flit, 267, 260) if bits(flit, 259, 259) else result

    def signal(self, source: tuple[int, int, int], code: int, arg: int) -> None:
        """A CU_SIGNAL reaches the agent of the source's mesh."""
        agent = self.agents[source[0]]
        node = agent.node(source[1], source[2])
        node.code, node.arg, node.valid = code, arg, 1
        node.count += 1
        agent.signals += 1
        if code == INST_COMPLETE:
            agent.credit += 1

    def _buffers(self, where: tuple[int, int, int]) -> tuple[int, ...]:
        if isinstance(self.units[where], Cluster):
            return (0, 1, 2, 5) if "r2_dual_acc" in self.preset.options else (0, 1, 2)
        return (0, 2) if "r2_acc_to_vc" in self.preset.options else (0,)

    def deliver(self, source: tuple[int, int, int], burst: Burst) -> None:
        where = (burst.mesh, burst.x, burst.y)
        if where not in self.units or burst.buf not in self._buffers(where):
            raise Raised("NODE", *where)
        self.units[where].receive(burst.buf, burst.offset, burst.granules)
        if burst.flags & 1 and burst.ack == self.agents[burst.mesh].xy:
            self.signal(where, DATA_RECEIVED, burst.buf)
