"""What a cluster's DRAIN to a node breaks: target, buffer, range, acknowledgement (datasheet 5.4, 5.6)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine, Unit
from kohakutpu.isa.cluster_format import Columns
from kohakutpu.isa.rules import Rules, values

WORD = 32


def check_node(machine: Machine, unit: Unit, c: Columns, rows: NDArray[np.int64], rules: Rules) -> None:
    remote = c.dfin != 0
    mesh = np.where(remote, c.dmesh, unit.mesh)
    x = np.where(remote, c.dfin & 15, c.dst_x)
    y = np.where(remote, c.dfin >> 4, c.dst_y)
    meshes = len(machine.meshes)
    rules.refuse(
        remote & ((c.dmesh >= meshes) | (c.dmesh == unit.mesh)),
        "dmesh",
        "a remote drain names another mesh of the machine",
        values(c.dmesh),
        f"0..{meshes - 1}, not {unit.mesh}" if meshes > 1 else "a machine of several meshes",
        "set dfin=0 for a unit of the same mesh",
        rows,
    )
    node = np.where(mesh < meshes, machine.node_table[np.minimum(mesh, meshes - 1), y, x], -1)
    for field, mine in (("dst_x", ~remote), ("dfin", remote)):
        rules.refuse(
            mine & (node < 0),
            field,
            "no unit at the target coordinate",
            lambda i: f"({int(x[i])},{int(y[i])}) of mesh {int(mesh[i])}",
            "a unit's coordinate",
            "take the coordinate from machine.units",
            rows,
        )
    ports = {(p.x, p.y) for p in machine.ports_of(unit.mesh)}
    port_code = np.array([py << 4 | px for px, py in ports])
    rules.refuse(
        remote & ~np.isin(c.dst_y << 4 | c.dst_x, port_code),
        "dst_x",
        "a remote drain leaves through a memory port of its own mesh",
        lambda i: f"({int(c.dst_x[i])},{int(c.dst_y[i])})",
        ", ".join(f"({px},{py})" for px, py in sorted(ports)),
        "set dst to a local port, dfin to the target",
        rows,
    )
    is_vc = np.array([u.kind == "VC" for u in machine.units])[node]
    wide = (not is_vc.all()) or machine.features.r2_acc_to_vc
    takes = np.where(is_vc, (c.dbuf == 0) | ((c.dbuf == 2) & machine.features.r2_acc_to_vc), c.dbuf == 2)
    if machine.features.r2_dual_acc:
        takes |= ~is_vc & (c.dbuf == 5)
    rules.refuse(
        ~takes & (node >= 0),
        "dbuf",
        "the target does not take a DRAIN into this buffer",
        lambda i: f"{int(c.dbuf[i])} of {machine.units[int(node[i])].name}",
        "0 (L1 word) of a VC, 2 (resident tile; 5 the second one's) of an MG; 2 (FP32 in L1) of a VC with r2_acc_to_vc",
        "a cluster sends FP16 to vector cores and FP22 to clusters",
        rows,
    )
    rules.refuse(
        is_vc & (c.dbuf == 2) & (c.fuse == 1),
        "fuse",
        "what a sweep hands out is FP16, an accumulator-width transfer is not",
        values(c.fuse),
        0,
        "drain after the sweep (fuse=0)",
        rows,
    )
    granules = np.where(c.dbuf == 0, c.n, 2 * c.n)
    room = np.where(is_vc, machine.params.vl1, 2 * machine.params.tiles)
    first = c.addr >> 5
    rules.refuse(
        (c.addr & (WORD - 1)) != 0,
        "addr",
        "granules are 32 bytes",
        values(c.addr),
        "a multiple of 32",
        "align the offset",
        rows,
    )
    rules.refuse(
        first + granules > room,
        "addr",
        "the DRAIN reaches beyond the target's buffer (addr/32 + granules)",
        lambda i: f"{int(first[i])} + {int(granules[i])}",
        lambda i: f"{int(room[i])} granules",
        "drain fewer sub-tiles, or to memory",
        rows,
    )
    if wide:
        rules.refuse(
            (c.dbuf != 0) & (first % 2 != 0),
            "addr",
            "an FP22 transfer starts at an even granule",
            values(first),
            "even",
            "addr is 64 * sub-tile",
            rows,
        )
    rules.refuse(
        c.dflags > 1,
        "dflags",
        "only bit 0 (acknowledge) is defined",
        values(c.dflags),
        "0 or 1",
        "set 0 or 1",
        rows,
    )
    ask = (c.dflags & 1) == 1
    ack = c.dack_y << 4 | c.dack_x
    agent = machine.meshes[unit.mesh]
    local = {u.y << 4 | u.x for u in machine.units if u.mesh == unit.mesh} | {agent.agent_y << 4 | agent.agent_x}
    allowed = np.array(sorted({0} | local))
    rules.refuse(
        ask & ~remote & ~np.isin(ack, allowed),
        "dack_x",
        "nothing at the coordinate that the acknowledgement goes to",
        lambda i: f"({int(c.dack_x[i])},{int(c.dack_y[i])})",
        f"the agent ({agent.agent_x},{agent.agent_y}), a unit, or (0,0) for the sender",
        "use the dispatch agent's coordinate",
        rows,
    )
    rules.refuse(
        ask & remote & (ack == 0),
        "dack_x",
        "a remote drain names its acknowledgement's receiver",
        lambda _i: "(0,0)",
        "an explicit coordinate",
        "use the dispatch agent's coordinate",
        rows,
    )
