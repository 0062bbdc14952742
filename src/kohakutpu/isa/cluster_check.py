"""What the encoder refuses of a cluster's program (datasheet 5.6), before anything is dispatched.

Needs only the machine description and the stream itself, plus what earlier programs left in the cluster
(`ClusterState`). What only a unit can see (memory never written, credits) is not decided here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine, Unit
from kohakutpu.isa.cluster_format import CLUSTER, DRAIN, FILL, GEMM, OPS, SIDES, TDESC, Columns
from kohakutpu.isa.cluster_node import check_node
from kohakutpu.isa.cluster_order import FRESH, ClusterState, check_order
from kohakutpu.isa.cluster_r2 import check_descriptors, check_options
from kohakutpu.isa.cluster_tdesc import text
from kohakutpu.isa.rules import Rules, SourceOf, values
from kohakutpu.machines import capacity

PAGE = 4096
WORD = 32
ENTRY_FP16, ENTRY_PREQ = 256, 128
ANCHOR = 40
SPECIAL_BITS = 3 << 38  # bit 39 selects an aperture, bit 38 is reserved
OFFSET_BITS = 36
_DESC = CLUSTER.column("desc")
_NEUTRAL = [TDESC if f.name == "op" else f.default for f in CLUSTER.fields]


def check(
    machine: Machine,
    unit: Unit,
    table: NDArray[np.int64],
    state: ClusterState = FRESH,
    *,
    source: SourceOf | None = None,
    final: bool = False,
) -> ClusterState:
    """Refuses the first instruction of `table`, int64[n, nfields], that `unit` of `machine` cannot take.

    state: what the cluster carries in; returned is what it carries out. source: instruction number -> the
    user's line. final: nothing follows, so sub-tiles handed out by an emitting GEMM must have been drained.
    Raises EncodingRefusal naming unit, instruction, field, value, limit and the way out.
    """
    given = np.asarray(table, np.int64).reshape(-1, len(CLUSTER.fields))
    rules = Rules(unit, lambda row: text(given[row]), source)
    descriptors = state.descriptors
    table = given
    if (given[:, 0] == TDESC).any() or (given[:, _DESC] != 0).any():
        descriptors = check_descriptors(machine, unit, given, descriptors, rules)
        # A TDESC row's columns are its own; the other rules see an instruction that breaks none of them.
        table = given.copy()
        table[given[:, 0] == TDESC] = _NEUTRAL
    c = Columns(table)
    known = (c.op >= FILL) & (c.op <= TDESC)
    names = ", ".join(OPS)
    rules.refuse(~known, "op", "the cluster has no such opcode", values(c.op), names, "use FILL, GEMM or DRAIN")
    rules.refuse(
        c.anchor != ANCHOR,
        "anchor",
        "the exponent anchor is fixed",
        values(c.anchor),
        ANCHOR,
        "leave it at its default",
    )
    check_options(machine, unit, c, rules)
    fills = np.flatnonzero(c.op == FILL)
    gemms = np.flatnonzero(c.op == GEMM)
    drains = np.flatnonzero(c.op == DRAIN)
    _check_fill(machine, unit, c.take(fills), fills, rules)
    _check_gemm(machine, c.take(gemms), gemms, rules)
    _check_drain(machine, unit, c.take(drains), drains, rules)
    after = check_order(c, table, state, rules)
    if final and after.pending is not None:
        row = np.flatnonzero((c.op == GEMM) & (c.emit == 1))
        rules.refuse(
            np.ones(1, np.bool_),
            "emit",
            "sub-tiles handed out by an emitting GEMM are never drained",
            lambda _i: "no DRAIN fuse after it",
            "one DRAIN fuse per emitting GEMM",
            "add a DRAIN with fuse=1 and the same destination",
            rows=row[-1:] if len(row) else np.array([max(len(table) - 1, 0)], np.int64),
        )
    rules.close()
    return replace(after, descriptors=descriptors)


def _bank(c: NDArray[np.int64], name: str, banks: Any, rows: NDArray[np.int64], rules: Rules) -> None:
    rules.refuse(
        c >= banks,
        name,
        "the bank is not offered by this machine",
        values(c),
        lambda i: f"{int(banks if isinstance(banks, int) else banks[i]) - 1} (banks per side, see capacity())",
        "use bank 0, or a machine with 512 entries per side and r2_bank_plan",
        rows,
    )


def _check_fill(machine: Machine, unit: Unit, c: Columns, rows: NDArray[np.int64], rules: Rules) -> None:
    cap = capacity(machine)
    side_b = c.sel == SIDES["B"]
    entries = np.where(side_b, cap.bank_entries_b, cap.bank_entries_a)
    banks = np.where(side_b, cap.banks_b, cap.banks_a)
    most = machine.params.fill_max
    rules.refuse(
        (c.n < 1) | (c.n > most),
        "n",
        "a FILL moves 1..255 entries",
        values(c.n),
        f"1..{most}",
        "split the FILL",
        rows,
    )
    _bank(c.fbank, "fbank", banks, rows, rules)
    rules.refuse(
        c.eoff + c.n > entries,
        "eoff",
        "the FILL reaches beyond its L1 bank (eoff + n)",
        lambda i: f"{int(c.eoff[i])} + {int(c.n[i])} = {int(c.eoff[i] + c.n[i])}",
        lambda i: f"{int(entries[i])} entries",
        "use smaller chunks (nk) or a smaller tile",
        rows,
    )
    plain = np.flatnonzero(c.desc == 0)  # a descriptor says where the others read
    c, rows = c.take(plain), rows[plain]
    size = np.where(c.preq == 1, ENTRY_PREQ, ENTRY_FP16)
    _check_dram(machine, unit, c.addr, c.n * size, size, "an entry", rows, rules)


def _check_dram(
    machine: Machine,
    unit: Unit,
    addr: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    chunk: NDArray[np.int64],
    what: str,
    rows: NDArray[np.int64],
    rules: Rules,
) -> None:
    """Rules for a run of `nbytes` at `addr`, moved in chunks none of which may cross a 4 KiB page."""
    limit = machine.memories[unit.mesh].size
    offset = addr & ((1 << OFFSET_BITS) - 1)
    mesh = (addr >> OFFSET_BITS) & 3

    def at(i: int) -> str:
        return f"{int(addr[i]):#x}"

    rules.refuse(
        (addr & SPECIAL_BITS) != 0,
        "addr",
        "bits 38 and 39 of a unit's address are 0",
        at,
        "a DRAM address",
        "apertures are the host's",
        rows,
    )
    rules.refuse(
        mesh != unit.mesh,
        "addr",
        "a unit reaches its own mesh's memory only",
        lambda i: f"mesh {int(mesh[i])} ({at(i)})",
        f"mesh {unit.mesh}",
        "allocate in the unit's mesh, or drain to a node of the other mesh",
        rows,
    )
    rules.refuse(
        addr % WORD != 0,
        "addr",
        "addresses are multiples of 32",
        at,
        "a multiple of 32",
        "align the buffer",
        rows,
    )
    rules.refuse(
        offset + nbytes > limit,
        "addr",
        "the run ends outside the mesh's DRAM",
        lambda i: f"{int(offset[i]):#x} + {int(nbytes[i]):#x}",
        f"{limit:#x} bytes",
        "allocate the buffer with the device",
        rows,
    )
    to_page = PAGE - offset % PAGE
    rules.refuse(
        (to_page < nbytes) & (to_page % chunk != 0),
        "addr",
        f"{what} crosses a 4 KiB page",
        at,
        lambda i: f"chunks of {int(chunk[i])} bytes inside a page",
        "align the address to the chunk",
        rows,
    )


def _check_gemm(machine: Machine, c: Columns, rows: NDArray[np.int64], rules: Rules) -> None:
    cap = capacity(machine)
    for name in ("gm", "gn", "nk"):
        column = c.field(name)
        rules.refuse(
            (column < 1) | (column > 255),
            name,
            "sweep extents are 1..255",
            values(column),
            "1..255",
            "split the product",
            rows,
        )
    rules.refuse(
        c.gm * c.gn > cap.tiles,
        "gm",
        "the tile has more sub-tiles than the cluster holds (gm*gn)",
        lambda i: f"{int(c.gm[i])}*{int(c.gn[i])} = {int(c.gm[i] * c.gn[i])}",
        f"{cap.tiles} sub-tiles",
        "use a smaller tile",
        rows,
    )
    for side, offset, groups, bank, entries, banks in (
        ("A", "aoff", "gm", "abank", cap.bank_entries_a, cap.banks_a),
        ("B", "boff", "gn", "bbank", cap.bank_entries_b, cap.banks_b),
    ):
        first = c.field(offset)
        count = c.field(groups) * c.nk
        _bank(c.field(bank), bank, banks, rows, rules)
        rules.refuse(
            first + count > entries,
            offset,
            f"the sweep reads beyond its {side} bank ({offset} + {groups}*nk)",
            lambda i, first=first, count=count: f"{int(first[i])} + {int(count[i])} = {int(first[i] + count[i])}",
            f"{entries} entries",
            "use smaller chunks (nk) or a smaller tile",
            rows,
        )
    rules.refuse(
        (c.emit == 1) & (c.acc == 0) & (c.nk == 1),
        "emit",
        "an opening GEMM with nk = 1 cannot emit: its sub-tiles would never leave",
        lambda _i: "emit=1 acc=0 nk=1",
        "emit with acc=1 or nk >= 2",
        "use nk >= 2, or drain with fuse=0",
        rows,
    )


def _check_drain(machine: Machine, unit: Unit, c: Columns, rows: NDArray[np.int64], rules: Rules) -> None:
    cap = capacity(machine)
    rules.refuse(
        (c.n < 1) | (c.n > cap.tiles),
        "n",
        "a DRAIN moves 1..tiles sub-tiles",
        values(c.n),
        f"1..{cap.tiles}",
        "split the tile",
        rows,
    )
    to_memory = np.flatnonzero(c.dnode == 0)
    m, at = c.take(to_memory), rows[to_memory]
    burst = np.full(len(at), WORD * machine.params.drain_burst, np.int64)
    _check_dram(machine, unit, m.addr, m.n * WORD, burst, "a burst", at, rules)
    rules.refuse(
        m.dfin != 0,
        "dfin",
        "only a node drain goes to another mesh",
        values(m.dfin),
        0,
        "set dnode=1, or dfin=0",
        at,
    )
    to_node = np.flatnonzero(c.dnode == 1)
    if len(to_node):
        check_node(machine, unit, c.take(to_node), rows[to_node], rules)
