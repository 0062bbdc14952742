"""What the encoder refuses of a vector core's envelope stream (datasheet 6.1, 6.3), before it is dispatched.

Kernels are scanned once per distinct entry state; descriptor walks are checked for all RUNs of a kernel at
once. What only the core can see (data, unwritten words, unknown lengths) is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import EncodingRefusal
from kohakuaccel.machine import Machine, Unit
from kohakutpu.isa.flit import BUF_FP22, BUF_VC_L1
from kohakutpu.isa.rules import Rules, SourceOf, values
from kohakutpu.isa.vector_envelope import ENV_DESC, ENV_IMEM, ENV_RUN, NODE_RECORD, encode_envelopes, envelope_text
from kohakutpu.isa.vector_format import MODE
from kohakutpu.isa.vector_kernel import KernelFacts, MemoryUse, scan

WORD = 32
DESCRIPTOR_FIELDS = 5
_SPECIAL_BITS = 3 << 38
_OFFSET_BITS = 36


@dataclass(frozen=True)
class VectorState:
    """What a core carries from one program to the next: program memory (int64[imem], -1 = never written),
    descriptors (int64[descs, 5], raw DESC values), chain mode, and the vector length where it is known."""

    imem: NDArray[np.int64]
    descs: NDArray[np.int64]
    mode: int = MODE.FLAT
    vl: int | None = 128


def reset_state(machine: Machine) -> VectorState:
    """The state after reset (datasheet 6.1)."""
    descs = np.zeros((machine.params.descs, DESCRIPTOR_FIELDS), np.int64)
    descs[:, 1:] = 1
    return VectorState(np.full(machine.params.imem, -1, np.int64), descs)


def check(
    machine: Machine, words: Iterable[int], *, pc: int = 0, mode: int = MODE.FLAT, vl: int | None = None
) -> KernelFacts:
    """Refuses a kernel that a vector core of `machine` would fault on. Raises EncodingRefusal."""
    return scan(machine, [int(w) for w in words], pc, mode=mode, vl=vl)


def check_envelopes(
    machine: Machine,
    unit: Unit,
    rows: NDArray[np.int64],
    state: VectorState | None = None,
    *,
    source: SourceOf | None = None,
) -> VectorState:
    """Refuses the first envelope of `rows` that `unit` cannot take; int64[n, 4] as of decode_envelopes.

    state: what the core carries in (default: reset); returned is what it carries out. source: envelope number
    -> the user's line. Raises EncodingRefusal.
    """
    rows = np.asarray(rows, np.int64).reshape(-1, 4)
    state = reset_state(machine) if state is None else state

    def text(row: int) -> str:
        try:
            return envelope_text(encode_envelopes(rows[row : row + 1])[0])
        except EncodingRefusal:
            return f"op {int(rows[row, 0])}"

    rules = Rules(unit, text, source)
    op, a, b = rows[:, 0], rows[:, 1], rows[:, 2]
    p = machine.params
    rules.refuse((op < 1) | (op > 3), "op", "the core has no such envelope", values(op), "1..3", "IMEM, DESC or RUN")
    is_imem, is_desc, is_run = op == ENV_IMEM, op == ENV_DESC, op == ENV_RUN
    rules.refuse(
        is_imem & (a >= p.imem),
        "addr",
        "outside program memory",
        values(a),
        f"{p.imem} words",
        "split the kernel",
    )
    rules.refuse(
        is_run & (a >= p.imem),
        "pc",
        "outside program memory",
        values(a),
        f"{p.imem} words",
        "RUN a loaded kernel",
    )
    rules.refuse(
        is_desc & (a >= p.descs),
        "ad",
        "no such descriptor",
        values(a),
        f"0..{p.descs - 1}",
        "reuse a descriptor",
    )
    rules.refuse(is_desc & (b > 4), "fld", "the core ignores this field", values(b), "0..4", "0 base, 1..4 dimensions")
    rules.close()
    runs = np.flatnonzero(is_run)
    imem, mode, vl = _run_kernels(machine, unit, rows, runs, state, rules)
    rules.close()
    descs = state.descs.copy()
    for row in np.flatnonzero(is_desc).tolist():
        descs[rows[row, 1], rows[row, 2]] = rows[row, 3]
    return VectorState(imem, descs, mode, vl)


@lru_cache(maxsize=512)
def _facts(machine: Machine, words: tuple[int, ...], pc: int, mode: int, vl: int | None) -> KernelFacts:
    """A scan, remembered: the cores of a band run one program, and the bands of a loop often the same."""
    return scan(machine, words, pc, mode=mode, vl=vl)


def _run_kernels(
    machine: Machine,
    unit: Unit,
    rows: NDArray[np.int64],
    runs: NDArray[np.int64],
    state: VectorState,
    rules: Rules,
) -> tuple[NDArray[np.int64], int, int | None]:
    """Scans each distinct kernel once and checks the walks of all its RUNs."""
    imem = state.imem.copy()
    writes = np.flatnonzero(rows[:, 0] == ENV_IMEM)
    walks = _Walks(rows, state.descs)
    mode, vl = state.mode, state.vl
    facts: dict[tuple[int, int, int, int | None], KernelFacts] = {}
    groups: dict[tuple[int, int, int, int | None], list[int]] = {}
    done = 0
    pcs = rows[runs, 1].tolist()
    versions = np.searchsorted(writes, runs).tolist()
    for run, pc, version in zip(runs.tolist(), pcs, versions):
        if version > done:
            fresh = writes[done:version]
            imem[rows[fresh, 1]] = rows[fresh, 3]
            done = version
        key = (version, pc, mode, vl)
        if key not in facts:
            top = int(np.flatnonzero(imem >= 0)[-1]) + 1 if (imem >= 0).any() else 0
            words = tuple(imem[:top].tolist())
            try:
                facts[key] = _facts(machine, words, pc, mode, vl)
            except EncodingRefusal:  # said again with the place: what is remembered belongs to no unit
                scan(machine, words, pc, mode=mode, vl=vl, name=f"{unit.name}, instruction {run} (RUN {pc})")
                raise
        groups.setdefault(key, []).append(run)
        mode, vl = facts[key].mode, facts[key].vl
    imem[rows[writes[done:], 1]] = rows[writes[done:], 3]
    for key, members in groups.items():
        at = np.array(members, np.int64)
        found: dict[int, NDArray[np.int64]] = {}
        for use in facts[key].uses:
            ad = use.row["ad"]
            if ad not in found:
                found[ad] = walks.at(at, ad)
            _check_use(machine, unit, use, found[ad], at, rules)
    return imem, mode, vl


class _Walks:
    """Descriptor values as they stand at each RUN."""

    def __init__(self, rows: NDArray[np.int64], initial: NDArray[np.int64]) -> None:
        self.rows = rows
        self.initial = initial
        is_desc = rows[:, 0] == ENV_DESC
        self.writes = {
            ad: [np.flatnonzero(is_desc & (rows[:, 1] == ad) & (rows[:, 2] == f)) for f in range(DESCRIPTOR_FIELDS)]
            for ad in np.unique(rows[is_desc, 1]).tolist()
        }

    def at(self, runs: NDArray[np.int64], ad: int) -> NDArray[np.int64]:
        """int64[5, runs]: base and the four dimension values before each RUN."""
        out = np.empty((DESCRIPTOR_FIELDS, len(runs)), np.int64)
        for f in range(DESCRIPTOR_FIELDS):
            writes = self.writes[ad][f] if ad in self.writes else np.empty(0, np.int64)
            if len(writes) == 0:
                out[f] = self.initial[ad, f]
                continue
            last = np.searchsorted(writes, runs) - 1
            out[f] = np.where(last >= 0, self.rows[writes[np.maximum(last, 0)], 3], self.initial[ad, f])
        return out


def _check_use(
    machine: Machine, unit: Unit, use: MemoryUse, walk: NDArray[np.int64], at: NDArray[np.int64], rules: Rules
) -> None:
    base, dims = walk[0], walk[1:]
    bound = np.maximum(dims & 0xFFFF, 1)
    stride = ((dims >> 16 & 0x3FFFF) ^ 0x20000) - 0x20000
    place = f"A{use.row['ad']} at pc {use.pc} ({use.text})"
    room = machine.params.vl1
    if use.mnemonic in ("VLD", "VST"):
        first = base + use.row["off"]
        rules.refuse(
            (first < 0) | (first >= room),
            place,
            "the walk starts outside L1",
            values(first),
            f"{room} words",
            "base and offset count L1 words",
            at,
        )
        return
    total = bound.prod(axis=0)
    most = machine.params.walk_max
    rules.refuse(
        total > most,
        place,
        "the walk is too long (F_LEN)",
        values(total),
        f"{most} words",
        "split the transfer",
        at,
    )
    word = use.row.get("word", use.row.get("off", 0))
    rules.refuse(
        word + total > room,
        place,
        "the transfer reaches beyond L1 (first word + total)",
        lambda i: f"{word} + {int(total[i])}",
        f"{room} words",
        "transfer fewer words",
        at,
    )
    if use.mnemonic == "VDRAIN_NODE":
        _check_node_record(machine, unit, use, place, base, total, at, rules)
        return
    steps = np.where(bound > 1, stride, 0)
    rules.refuse(
        (base % WORD != 0) | (steps % WORD != 0).any(axis=0),
        place,
        "VFILL and VDRAIN bases and strides are bytes, multiples of 32",
        lambda i: f"base {int(base[i]):#x}, strides {steps[:, i].tolist()}",
        "multiples of 32",
        "align the buffer and its rows to words",
        at,
    )
    rules.refuse(
        (base & _SPECIAL_BITS) != 0,
        place,
        "bits 38 and 39 of a unit's address are 0",
        lambda i: f"{int(base[i]):#x}",
        "a DRAM address",
        "apertures are the host's",
        at,
    )
    mesh = (base >> _OFFSET_BITS) & 3
    rules.refuse(
        mesh != unit.mesh,
        place,
        "a unit reaches its own mesh's memory only",
        lambda i: f"mesh {int(mesh[i])}",
        f"mesh {unit.mesh}",
        "allocate in the unit's mesh",
        at,
    )
    reach = steps * (bound - 1)
    local = base & ((1 << _OFFSET_BITS) - 1)
    low = local + np.minimum(reach, 0).sum(axis=0)
    high = local + np.maximum(reach, 0).sum(axis=0) + WORD
    size = machine.memories[unit.mesh].size
    rules.refuse(
        (low < 0) | (high > size),
        place,
        "the walk leaves the mesh's DRAM",
        lambda i: f"{int(low[i]):#x}..{int(high[i]):#x}",
        f"{size:#x} bytes",
        "allocate the buffer with the device",
        at,
    )


def _check_quantised(
    machine: Machine,
    use: MemoryUse,
    place: str,
    granule: NDArray[np.int64],
    elsewhere: NDArray[np.bool_],
    total: NDArray[np.int64],
    at: NDArray[np.int64],
    rules: Rules,
) -> None:
    """A VDRAIN through the drain quantiser (datasheet section 10, r2_vc_quant): whole entries into a cluster's L1."""
    words = machine.params.drain_burst
    rules.refuse(
        elsewhere | (use.row["buf"] > 1),
        place,
        "quantised entries go into a cluster's L1",
        lambda _i: f"buffer {use.row['buf']} of ({use.row['dst_x']},{use.row['dst_y']})",
        "0 (side A) or 1 (side B) of an MG",
        "leave quant off, or name a cluster",
        at,
    )
    rules.refuse(
        total % words != 0,
        place,
        "the drain quantiser takes whole FP16 entries (F_LEN)",
        values(total),
        f"a multiple of {words} words",
        "pad with zeros to whole entries",
        at,
    )
    rules.refuse(
        granule % 4 != 0,
        place,
        "a quantised entry begins at granule 4 * entry",
        values(granule),
        "a multiple of 4",
        "use node_record(4 * entry, ..)",
        at,
    )


def _check_node_record(
    machine: Machine,
    unit: Unit,
    use: MemoryUse,
    place: str,
    base: NDArray[np.int64],
    total: NDArray[np.int64],
    at: NDArray[np.int64],
    rules: Rules,
) -> None:
    """A VDRAIN to a node: its descriptor's base is a packed record (datasheet 6.3)."""
    record = {f.name: base >> f.slices[0][1] & ((1 << f.width) - 1) for f in NODE_RECORD.fields}
    rules.refuse(
        base >> 34 != 0,
        place,
        "bits above the record are 0",
        lambda i: f"{int(base[i]):#x}",
        "34 bits",
        "use node_record()",
        at,
    )
    remote = (record["final_x"] | record["final_y"]) != 0
    meshes = len(machine.meshes)
    mesh = np.where(remote, record["mesh"], unit.mesh)
    rules.refuse(
        remote & ((mesh >= meshes) | (mesh == unit.mesh)),
        place,
        "a remote drain names another mesh of the machine",
        values(mesh),
        f"0..{meshes - 1}, not {unit.mesh}" if meshes > 1 else "a machine of several meshes",
        "set the final coordinate to 0 for a unit of the same mesh",
        at,
    )
    x = np.where(remote, record["final_x"], use.row["dst_x"])
    y = np.where(remote, record["final_y"], use.row["dst_y"])
    node = np.where(mesh < meshes, machine.node_table[np.minimum(mesh, meshes - 1), y, x], -1)
    rules.refuse(
        node < 0,
        place,
        "no unit at the target coordinate",
        lambda i: f"({int(x[i])},{int(y[i])}) of mesh {int(mesh[i])}",
        "a unit's coordinate",
        "take the coordinate from machine.units",
        at,
    )
    is_vc = np.array([u.kind == "VC" for u in machine.units])[node]
    buf, p = use.row["buf"], machine.params
    room_mg = {0: 4 * p.l1_a, 1: 4 * p.l1_b, 2: 2 * p.tiles}.get(buf, 0)
    wide = buf == BUF_FP22 and machine.features.r2_acc_to_vc
    room_vc = p.vl1 if buf == BUF_VC_L1 or wide else 0
    room = np.where(is_vc, room_vc, room_mg)
    rules.refuse(
        (room == 0) & (node >= 0),
        place,
        "the target does not take this buffer",
        lambda i: f"buffer {buf} of {machine.units[int(node[i])].name}",
        "0 of a VC (2 with r2_acc_to_vc); 0, 1 or 2 of an MG",
        "use a buffer id of datasheet 4.2",
        at,
    )
    sent = total // 2 if use.row["quant"] else total
    if use.row["quant"]:
        _check_quantised(machine, use, place, record["granule"], is_vc | (node < 0), total, at, rules)
    end = record["granule"] + sent
    rules.refuse(
        (end > room) & (room > 0),
        place,
        "the burst reaches beyond the target's buffer (granule + words)",
        values(end),
        lambda i: f"{int(room[i])} granules",
        "send fewer words",
        at,
    )
    if buf == BUF_FP22:
        rules.refuse(
            (record["granule"] | total) % 2 != 0,
            place,
            "FP22 sub-tiles are pairs of granules",
            lambda i: f"granule {int(record['granule'][i])}, {int(total[i])} words",
            "even",
            "send whole sub-tiles",
            at,
        )
