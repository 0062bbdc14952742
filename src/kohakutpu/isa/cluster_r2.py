"""What the encoder refuses of revision 2's cluster options (datasheet 10): shared fetches, descriptors, accumulators.

Needs the machine and one unit's stream; whether the members of a shared fetch agree is seen where streams meet
(`dispatch.shares`). Without an option its fields are refused by the option's name.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine, Unit
from kohakutpu.isa.cluster_format import CLUSTER, FILL, TDESC, Columns
from kohakutpu.isa.cluster_tdesc import COLUMNS, FIELD_AXES, FIELD_BASE
from kohakutpu.isa.rules import Rules, values
from kohakutpu.isa.walks import DIMENSIONS, Dimension, Walk

LANE_BYTES = 64  # what an element of a fill's walk reads: 32 halves
LANES = 4
MOST_PEERS = 3
Descriptors = tuple[Walk, ...]
FRESH_DESCRIPTORS: Descriptors = (Walk(dims=(Dimension(),) * DIMENSIONS),) * 4
"""Descriptors out of reset. A stored one keeps all six dimensions; `ndim` is their number in use."""


def peers_of(c: Columns, row: int) -> list[int]:
    """The {y,x} bytes that a FILL names."""
    return [int(c.peers[row]) >> 8 * i & 0xFF for i in range(int(c.npeer[row]))]


def check_options(machine: Machine, unit: Unit, c: Columns, rules: Rules) -> None:
    """Fields of options that the machine lacks, and fields where an option has no meaning."""
    for name, flag in (
        ("peers", "r2_multicast"),
        ("npeer", "r2_multicast"),
        ("tag", "r2_multicast"),
        ("tsel", "r2_dual_acc"),
        ("desc", "r2_desc_fill"),
        ("dsel", "r2_desc_fill"),
    ):
        column = c.field(name)
        if not machine.features[flag]:
            rules.refuse(
                column != 0,
                name,
                f"the machine has no {flag}",
                values(column),
                0,
                f"leave it 0, or use a machine with {flag}",
            )
            continue
        of_fill = name != "tsel"
        rules.refuse(
            (column != 0) & ((c.op != FILL) if of_fill else (c.op == FILL)),
            name,
            f"{name} belongs to a FILL" if of_fill else "a FILL touches no accumulator",
            values(column),
            0,
            "leave it 0",
        )
    rules.refuse(
        (c.desc == 0) & (c.dsel != 0), "dsel", "dsel chooses among descriptors", values(c.dsel), 0, "set desc=1"
    )
    shared = np.flatnonzero((c.op == FILL) & ((c.npeer != 0) | (c.peers != 0) | (c.tag != 0)))
    if len(shared) and machine.features.r2_multicast:
        _check_peers(machine, unit, c, shared, rules)


def _check_peers(machine: Machine, unit: Unit, c: Columns, shared: NDArray[np.int64], rules: Rules) -> None:
    clusters = {u.y << 4 | u.x: u for u in machine.units_of("MG", mesh=unit.mesh)}
    mine = unit.y << 4 | unit.x
    wrong = np.zeros(len(shared), np.bool_)
    for i, row in enumerate(shared.tolist()):
        named = peers_of(c, row)
        rest = int(c.peers[row]) >> 8 * len(named)
        wrong[i] = rest != 0 or not named or len({*named, mine}) != len(named) + 1 or not set(named) <= clusters.keys()
    rules.refuse(
        wrong,
        "peers",
        "a shared FILL names npeer other clusters of its mesh, each once",
        lambda i: f"{int(c.npeer[shared[i]])} of {int(c.peers[shared[i]]):#08x}",
        "1 to 3 {y,x} bytes of clusters, peer 0 lowest, the rest 0",
        "take the coordinates from machine.units",
        shared,
    )
    rules.refuse(
        (c.desc[shared] == 1),
        "desc",
        "a fetch by descriptor is not shared: the members' descriptors are not compared",
        lambda _i: "desc=1 with npeer",
        "one of the two",
        "set npeer=0",
        shared,
    )


def check_descriptors(
    machine: Machine, unit: Unit, table: NDArray[np.int64], descriptors: Descriptors, rules: Rules
) -> Descriptors:
    """TDESC rows, and the walks of the FILLs that use them; returns the descriptors as the stream leaves them."""
    ops = table[:, 0]
    tdesc = np.flatnonzero(ops == TDESC)
    if not machine.features.r2_desc_fill:
        rules.refuse(
            np.ones(len(tdesc), np.bool_),
            "op",
            "the machine has no r2_desc_fill",
            lambda _i: "TDESC",
            "FILL, GEMM, DRAIN",
            "fill by address, or use a machine with r2_desc_fill",
            tdesc,
        )
        return descriptors
    t = table[tdesc]

    def column(name: str) -> NDArray[np.int64]:
        return t[:, COLUMNS.index(name)]

    rules.refuse(
        (column("field") == FIELD_BASE) & (column("ndim") > DIMENSIONS),
        "ndim",
        "a walk has at most six dimensions",
        values(column("ndim")),
        DIMENSIONS,
        "merge dimensions, or fill in pieces",
        tdesc,
    )
    rules.refuse(
        column("axis") > 2,
        "axis",
        "a dimension is bound to axis 1 or 2, or to none",
        values(column("axis")),
        "0..2",
        "use 0 for none",
        tdesc,
    )
    now = list(descriptors)
    desc, dsel = CLUSTER.column("desc"), CLUSTER.column("dsel")
    for row in np.flatnonzero((ops == TDESC) | ((ops == FILL) & (table[:, desc] == 1))).tolist():
        one = table[row].tolist()
        if one[0] == TDESC:
            now[one[COLUMNS.index("index")]] = stored(now[one[COLUMNS.index("index")]], one)
        else:
            _check_walk(machine, unit, table[row], row, now[one[dsel]], rules)
    return tuple(now)


def stored(walk: Walk, row: list[int]) -> Walk:
    """A descriptor after a TDESC row."""
    get = {name: row[i] for i, name in enumerate(COLUMNS)}
    field = get["field"]
    if field == FIELD_BASE:
        return replace(walk, base=get["base"], ndim=get["ndim"])
    if field == FIELD_AXES:
        return replace(walk, axes=((get["abase0"], get["ext0"]), (get["abase1"], get["ext1"])))
    dims = list(walk.dims)
    dims[field - 1] = Dimension(get["count"], get["stride"], get["axis"], get["astep"])
    return replace(walk, dims=tuple(dims))


def _check_walk(machine: Machine, unit: Unit, fill: NDArray[np.int64], row: int, walk: Walk, rules: Rules) -> None:
    n, preq, addr = (int(fill[CLUSTER.column(name)]) for name in ("n", "preq", "addr"))
    at = np.array([row], np.int64)

    def refuse(bad: bool, field: str, rule: str, got: object, limit: object, hint: str) -> None:
        rules.refuse(np.array([bad]), field, rule, lambda _i: got, limit, hint, at)

    refuse(preq != 0, "preq", "a fill by descriptor reads FP16", preq, 0, "set preq=0")
    refuse(addr != 0, "addr", "a fill by descriptor ignores addr", f"{addr:#x}", 0, "put the address into the base")
    refuse(
        walk.total < LANES * n,
        "n",
        "a fill stays inside its descriptor's walk (4 elements per entry)",
        LANES * n,
        f"{walk.total} elements",
        "write the descriptor's counts first",
    )
    address, valid = walk.elements(LANES * n)
    address = address[valid]
    if not len(address):
        return
    low, high = int(address.min()), int(address.max()) + LANE_BYTES
    start = unit.mesh << 36
    refuse(
        bool((address % LANE_BYTES).any()),
        "dsel",
        "a descriptor's elements are 64-byte aligned",
        f"{int(address[(address % LANE_BYTES) != 0][0]):#x}" if (address % LANE_BYTES).any() else "",
        LANE_BYTES,
        "align base and strides to 64 bytes",
    )
    refuse(
        low < start or high > start + machine.memories[unit.mesh].size,
        "dsel",
        "a descriptor's elements lie in the mesh's DRAM",
        f"{low:#x}..{high:#x}",
        f"{start:#x}..{start + machine.memories[unit.mesh].size:#x}",
        "bind dimensions to axes, so that what lies outside is not read",
    )


__all__ = ["FRESH_DESCRIPTORS", "Descriptors", "check_descriptors", "check_options", "peers_of", "stored"]
