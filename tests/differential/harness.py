"""Puts a compiled unit and its reference into one state, steps both and compares all that they hold.

It knows how the compiled models keep their state; what instructions mean it must not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kohakuaccel.machine import Machine
from kohakutpu import machines
from kohakutpu.units import state
from reference import encode as enc
from reference.burst import Burst
from reference.cluster import Cluster
from reference.errors import Raised, UnitFault, Waits
from reference.formats import fp22_value
from reference.machine import Machine as ReferenceMachine
from reference.memory import Memory
from reference.recordings import UNIT_REGION, UNITS
from reference.vector import VectorCore

if TYPE_CHECKING:
    from kohakutpu.units.cluster_state import Clusters
    from kohakutpu.units.system import System
    from kohakutpu.units.vector_state import Vectors

EXTENT = UNITS + UNIT_REGION * 16 * 6  # bytes that recordings touch: unit regions up to row 5
MASK64 = (1 << 64) - 1

Outcome = tuple[object, ...]
WAITS = {"NO_EMIT": state.W_DRAIN_NO_EMIT, "DRAIN_QUEUE": state.W_DRAIN_QUEUE, "SHARE": state.W_SHARE}


def quads(word: int) -> list[int]:
    """A 256-bit word as four 64-bit words, low first."""
    return [word >> 64 * i & MASK64 for i in range(4)]


def load_memory(mem: state.Memory, mesh: int, memory: Memory) -> None:
    """Write the reference's memory into the compiled models'."""
    first = int(mem.base[mesh]) // 32
    for w, word in memory.words.items():
        mem.wide[4 * (first + w) : 4 * (first + w) + 4] = quads(word)
        mem.written[first + w] = 1


def same_memory(mem: state.Memory, mesh: int, memory: Memory, extent: int, forgets: bool = False) -> None:
    """Every word below `extent` bytes is the same and is marked written on both sides or on neither.

    forgets: an allocator has told the compiled model, not through the bus, that some words count as never
    written again; then what the model holds as written is compared.
    """
    first = int(mem.base[mesh]) // 32
    wide = np.zeros((extent // 32, 4), np.uint64)
    written = np.zeros(extent // 32, np.uint8)
    for w, word in memory.words.items():
        wide[w] = quads(word)
        written[w] = 1
    marks = mem.written[first : first + extent // 32]
    if forgets:
        assert (marks <= written).all()
        written = np.array(marks)
        wide *= written[:, None]
    np.testing.assert_array_equal(marks, written)
    got = np.array(mem.wide[4 * first : 4 * first + extent // 8]).reshape(-1, 4)
    np.testing.assert_array_equal(got * written[:, None], wide)


def bursts(out: state.Outbox) -> list[Burst]:
    """What a compiled unit put into its outbox."""
    found: list[Burst] = []
    for i in range(int(out.used[0])):
        mesh, x, y, buf, offset, n, flags, ack_x, ack_y, row = (int(v) for v in out.head[i])
        granules = tuple(sum(int(q) << 64 * k for k, q in enumerate(out.data[row + g])) for g in range(n))
        found.append(Burst(mesh, x, y, buf, offset, granules, flags, (ack_x, ack_y)))
    return found


def outcome(unit: Any, payload: int) -> Outcome:
    """What the reference says to one instruction: retired with its bursts, faulted, raised or waiting."""
    try:
        result, sent = unit.execute(payload)
    except UnitFault as fault:
        return ("fault", fault.code, fault.pc, getattr(unit, "sent", []))
    except Raised as error:
        return ("raised", error.what)
    except Waits as wait:
        return ("waits", wait.why)
    return ("retired", result, sent)


def compiled_outcome(status: int, note: Any, out: state.Outbox, pc: bool) -> Outcome:
    """The same of a compiled step."""
    code = int(note[1])
    if status == state.RETIRED:
        return ("retired", code, bursts(out))
    if status == state.FAULTED:
        return ("fault", code, int(note[6]) if pc else -1, bursts(out))
    if status == state.WAITING:
        return ("waits", next(name for name, number in WAITS.items() if number == code))
    names = {v: k[2:] for k, v in vars(state).items() if k.startswith("E_")}
    return ("raised", names.get(code, str(code)))


def fp22_as_float(code: int) -> float:
    m, e = fp22_value(code)
    return float(m) * 2.0**e


def same_vector(vc: Vectors, u: int, ref: VectorCore) -> None:
    """Registers, predicates, L1, program, descriptors, VL, mode and counters of compiled core `u`."""
    from kohakutpu.units import vector_state as vs

    rows = vc.bits[u * vs.ROWS : u * vs.ROWS + 16] >> 8
    np.testing.assert_array_equal(rows, np.array(ref.v, np.uint32), "V")
    np.testing.assert_array_equal(vc.scalar[u], ref.s, "S")
    np.testing.assert_array_equal(vc.constant[u], ref.k, "K")
    np.testing.assert_array_equal(vc.predicate[4 * u : 4 * u + 4], ref.p, "P")
    at = u * vs.L1
    wide = vc.wide[4 * at : 4 * (at + vs.L1)].reshape(-1, 4)
    np.testing.assert_array_equal(wide, np.array([quads(w) for w in ref.l1], np.uint64), "L1")
    words = np.array(vc.word[u * vs.IMEM : (u + 1) * vs.IMEM]) & 0xFFFFFFFF
    np.testing.assert_array_equal(words, ref.imem, "IMEM")
    for ad, d in enumerate(ref.desc):
        row = [int(v) for v in vc.descriptor[u * vs.DESCRIPTORS + ad]]
        assert row == [d.base, *d.stride, *(max(b, 1) for b in d.bound)], f"descriptor {ad}"
    assert (int(vc.core[u, vs.VL]), int(vc.core[u, vs.MODE])) == (ref.vl, ref.mode)
    counted = int(vc.saturated[u]), int(vc.nonfinite[u]), int(vc.retired[u])
    assert counted == (ref.saturated, ref.nonfinite, ref.retired)


def live_sweep(reg: list[int], ref: Cluster) -> list[int]:
    """The live sweep as the compiled model notes it: 1, then first L1 entry and count of each side."""
    from kohakutpu.units import cluster_state as cs

    if not ref.live:
        return [0, *reg[cs.LIVE + 1 : cs.LIVE + 5]]
    sides = {side: (256 * bank + first, count) for (side, bank), (first, count) in ref.live.items()}
    return [1, *sides[0], *sides[1]]


def same_cluster(cl: Clusters, u: int, ref: Cluster) -> None:
    """L1, tiles, what is open, live and queued, and counters of compiled cluster `u`."""
    from kohakutpu.units import cluster_state as cs

    for side in range(2):
        n = ref.capacity[side]
        valid = [int(e in ref.l1[side]) for e in range(n)]
        np.testing.assert_array_equal(cl.valid[u, side, :n] & 1, valid, "L1 valid")
        image = cl.q8[u, side].reshape(-1, 128)
        scale = cl.scale[u, side].reshape(-1, 4)
        for e, entry in ref.l1[side].items():
            q = np.array([lane[0] for lane in entry], np.int8)
            np.testing.assert_array_equal(image[e], (q.T if side else q).ravel(), f"L1 entry {side} {e}")
            assert [int(s) for s in scale[e]] == [lane[1] for lane in entry]
    reg = [int(v) for v in cl.reg[u]]
    for k, held in enumerate(ref.accumulators[: 1 + ref.dual]):
        tiles = [fp22_as_float(c) for t in range(len(held)) for c in held[t]]
        at = 16 * ref.tiles * k
        np.testing.assert_array_equal(cl.tile[u, at : at + len(tiles)], np.array(tiles, np.float32), "tile")
        opened = cs.OPEN_GM + cs.OPEN_STRIDE * k
        assert reg[opened : opened + 3] == [*(ref.openings[k] or (0, 0)), len(held)]
    assert reg[cs.LIVE : cs.LIVE_B_COUNT + 1] == live_sweep(reg, ref)
    assert (reg[cs.PENDING], reg[cs.OUTSTANDING]) == (len(ref.queue), sum(len(w) for _, w in ref.queue))
    assert (reg[cs.SATURATED], reg[cs.NONFINITE]) == (ref.saturated, ref.nonfinite)
    assert reg[cs.RETIRED] == ref.retired


def same_machine(system: System, ref: ReferenceMachine, extent: int = EXTENT, forgets: bool = False) -> None:
    """Memory, units, node status, credits and the engine's verdict."""
    for mesh, memory in enumerate(ref.memories):
        same_memory(system.memory, mesh, memory, extent, forgets)
    for u, unit in enumerate(system.machine.units_of("MG")):
        mine = ref.units[unit.mesh, unit.x, unit.y]
        assert isinstance(mine, Cluster)
        same_cluster(system.clusters, u, mine)
    for u, unit in enumerate(system.machine.units_of("VC")):
        mine = ref.units[unit.mesh, unit.x, unit.y]
        assert not isinstance(mine, Cluster)
        same_vector(system.vectors, u, mine)
    assert system.upload_nonfinite == ref.upload_nonfinite
    for mesh in range(len(ref.agents)):
        for at in (0x60, 0x70, 0x58):
            assert register(system, mesh, enc.AGENT + at) == register(ref, mesh, enc.AGENT + at)
        for at in (0x0, 0x10):
            assert register(system, mesh, at) == register(ref, mesh, at)
        for yx in range(256):
            at = enc.AGENT + 0x1000 + 8 * yx
            got, expect = register(system, mesh, at), register(ref, mesh, at)
            # The last signal of a node that also receives data depends on who was faster.
            if (expect >> 56) == 3 or (got >> 56) == 3:
                got, expect = got & 0xFFFFFF, expect & 0xFFFFFF
            assert got == expect, f"node {yx:#x} of mesh {mesh}"


def register(machine: System | ReferenceMachine, mesh: int, offset: int) -> int:
    return int.from_bytes(bytes(machine.read(enc.control(mesh, offset), 8)), "little")


class Bench:
    """A machine's compiled unit state with its memory, an outbox and a note."""

    def __init__(self, name: str = "ship_3x2", options: Sequence[str] = (), **params: int) -> None:
        machine = machines.load(name)
        features = dict.fromkeys(options, True)
        changed = machine.with_(name="small", params=params, features=features) if params or options else machine
        self.machine: Machine = changed
        self.options = frozenset(options)
        self.mem = state.make_memory([1 << 20] * len(self.machine.meshes))
        self.out = state.make_outbox()
        self.note = np.zeros(state.NOTE_WORDS, np.int64)
        self.kinds = {(u.mesh, u.x, u.y): u.kind for u in self.machine.units}
        self.kinds |= {(p.mesh, p.x, p.y): "port" for p in self.machine.ports}

    def clear(self) -> None:
        self.out.used[:] = 0
        self.note[:] = 0

    def forget(self) -> None:
        """Memory as never written."""
        self.mem.written[:] = 0


class VectorBench(Bench):
    """One compiled vector core beside its reference."""

    def __init__(self, name: str = "ship_3x2", index: int = 1, options: Sequence[str] = ()) -> None:
        from kohakutpu.units.vector import make_vectors

        super().__init__(name, options)
        self.u = index
        self.unit = self.machine.units_of("VC")[index]
        self.vc = make_vectors(self.machine)
        self.reference(Memory(1 << 20))

    def reference(self, memory: Memory, policy: str = "raise") -> VectorCore:
        """A fresh pair over this memory; the compiled memory takes its contents."""
        from kohakutpu.units.vector import make_vectors
        from kohakutpu.units.vector_state import COUNT_NONFINITE

        self.vc = make_vectors(self.machine)
        self.vc.option[COUNT_NONFINITE] = {"raise": 0, "count": 1}[policy]
        self.forget()
        load_memory(self.mem, 0, memory)
        self.ref = VectorCore(memory, 0, (self.unit.x, self.unit.y), self.kinds, self.options, policy)
        return self.ref

    def poke(self) -> None:
        """Copy the reference's registers, predicates and L1 into the compiled core."""
        from kohakutpu.units import vector_state as vs

        rows = self.vc.bits[self.u * vs.ROWS : (self.u + 1) * vs.ROWS]
        rows[:16] = np.array(self.ref.v, np.uint32) << 8
        self.vc.odd[self.u] = 1
        for s, code in enumerate(self.ref.s):
            self.vc.scalar[self.u, s] = code
            rows[vs.ROW_S + s] = (code if code >> 15 & 255 else code & 0x800000) << 8
        self.vc.predicate[4 * self.u : 4 * self.u + 4] = np.array(self.ref.p, np.uint8)
        at = self.u * vs.L1
        self.vc.wide[4 * at : 4 * (at + vs.L1)] = np.array([q for w in self.ref.l1 for q in quads(w)], np.uint64)
        self.vc.filled[at : at + vs.L1] = vs.WRITTEN

    def receive(self, buf: int, offset: int, granules: list[int]) -> tuple[str, str]:
        """One CU_DATA burst to both: taken, or bad and to be reported."""
        from kohakutpu.units import vector_state as vs
        from kohakutpu.units.vector import vector_receive

        self.ref.receive(buf, offset, tuple(granules))
        data = np.array([quads(g) for g in granules], np.uint64)
        code = int(vector_receive(self.vc, self.u, buf, offset, data, len(granules)))
        bad = bool(self.vc.core[self.u, vs.BAD_BURST])
        return "bad" if self.ref.bad_burst else "taken", str(code) if code else "bad" if bad else "taken"

    def step(self, payload: int) -> tuple[Outcome, Outcome]:
        """One instruction on both; the result word of a RUN, a time, is left out."""
        from kohakutpu.isa import vector as isa
        from kohakutpu.units.vector import vector_step

        expect = outcome(self.ref, payload)
        op = payload >> 252
        envelope = {1: isa.IMEM, 2: isa.DESC, 3: isa.RUN}[op].decode(payload)
        a, b, value = {
            1: lambda: (envelope["addr"], 0, envelope["word"]),
            2: lambda: (envelope["ad"], envelope["fld"], envelope["value"]),
            3: lambda: (envelope["pc"], 0, 0),
        }[op]()
        self.clear()
        status = vector_step(self.vc, self.mem, self.out, self.u, op, a, b, value, self.note)
        got = compiled_outcome(status, self.note, self.out, pc=expect[0] == "fault" and expect[2] != -1)
        if op == 3 and got[0] == "retired":
            got = (got[0], 0, got[2])
        return expect, got

    def compare(self) -> None:
        """All architectural state of the core, then memory."""
        same_vector(self.vc, self.u, self.ref)
        same_memory(self.mem, 0, self.ref.memory, 1 << 17)


class ClusterBench(Bench):
    """One compiled cluster beside its reference."""

    def __init__(self, name: str = "ship_3x2", index: int = 1, options: Sequence[str] = (), **params: int) -> None:
        super().__init__(name, options, **params)
        self.u = index
        self.unit = self.machine.units_of("MG")[index]
        self.reference(Memory(1 << 20), "count")

    def reference(self, memory: Memory, policy: str) -> Cluster:
        """A fresh pair over this memory; the compiled memory takes its contents."""
        from kohakutpu.units.cluster import make_clusters

        params = self.machine.params
        self.cl = make_clusters(self.machine)
        self.policy = {"raise": 0, "count": 1}[policy]
        self.forget()
        load_memory(self.mem, 0, memory)
        where = (self.unit.x, self.unit.y)
        sides = (params.l1_a, params.l1_b)
        self.ref = Cluster(memory, 0, where, params.tiles, sides, self.kinds, policy, self.options)
        return self.ref

    def step(self, payload: int) -> tuple[Outcome, Outcome]:
        """One instruction on both."""
        from kohakuaccel.isa.kernels import extract
        from kohakutpu.isa.cluster import CLUSTER
        from kohakutpu.isa.cluster_tdesc import extraction
        from kohakutpu.units.cluster import cluster_step

        expect = outcome(self.ref, payload)
        row = np.zeros(len(CLUSTER.fields), np.int64)
        layout = extraction() if payload >> 252 == 4 else CLUSTER.extraction()
        extract(np.array(quads(payload), np.uint64), layout, row)
        self.clear()
        status = cluster_step(self.cl, self.mem, self.out, self.u, row, self.policy, self.note)
        return expect, compiled_outcome(status, self.note, self.out, pc=False)

    def receive(self, buf: int, offset: int, granules: list[int]) -> tuple[str, str]:
        """One CU_DATA burst to both: taken, bad, or raised."""
        from kohakutpu.units.cluster import cluster_receive

        before = self.ref.bad_burst
        try:
            self.ref.receive(buf, offset, tuple(granules))
            expect = "bad" if self.ref.bad_burst and not before else "taken"
        except Raised as error:
            expect = error.what
        self.ref.bad_burst = False
        data = np.array([quads(g) for g in granules], np.uint64)
        code = int(cluster_receive(self.cl, self.u, buf, offset, data, len(granules)))
        names = {v: k[2:] for k, v in vars(state).items() if k.startswith("E_")}
        return expect, {0: "taken", 0x11: "bad"}.get(code) or names[code]

    def compare(self) -> None:
        """All architectural state of the cluster, then memory."""
        same_cluster(self.cl, self.u, self.ref)
        same_memory(self.mem, 0, self.ref.memory, 1 << 18)
