"""A machine that cannot go on says so at once, naming everybody who waits and what for. The texts are pinned."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Hang
from kohakutpu.isa import cluster, flit, vector
from kohakutpu.isa import control as reg

Make = Callable[..., Any]


def imem(n: int) -> NDArray[np.uint64]:
    rows = np.zeros((n, 4), np.int64)
    rows[:, 0] = vector.ENV_IMEM
    return vector.encode_envelopes(rows)


def test_a_poll_that_nothing_will_satisfy(host: Make) -> None:
    h = host()
    commands = h.round([("VC(1,0)", imem(3))])
    want, mask = reg.poll_node(7)
    u = h.unit("VC(1,0)")
    commands[-2] = (reg.POLL, reg.agent_bus(0, reg.node_status(u.x, u.y)), want, mask)
    begin = time.process_time()
    with pytest.raises(Hang) as caught:
        h.launch(commands)
    assert time.process_time() - begin < 0.5
    assert caught.value.waits == (
        "control engine command 6 polls node(1,0): wants 0x701 under mask 0xffff01, has 0x301 "
        "(VC(1,0) has signalled 3, 4 of 7 missing)",
    )
    assert "machine: nothing can make progress: control engine command 6" in str(caught.value)


def test_a_dispatcher_without_credit(host: Make) -> None:
    h = host()
    # Two programs of two instructions and a credit of 1: a program's last instruction returns none.
    with pytest.raises(Hang) as caught:
        h.run(("VC(1,0)", imem(2)), ("VC(2,0)", imem(2)), credit=1)
    assert caught.value.waits == (
        "control engine command 12 polls node(2,0): wants 0x201 under mask 0xffff01, has 0x0 "
        "(VC(2,0) has signalled 0, 2 of 2 missing)",
        "dispatch agent waits for credit (0 left) before flit 0 of 2 of the program for VC(2,0) (slot 2)",
    )


def test_a_unit_that_waits_for_ever(host: Make) -> None:
    h = host()
    program = cluster.assemble("DRAIN n=4 addr=0x0 fuse\nDRAIN n=1 addr=0x0")
    with pytest.raises(Hang) as caught:
        h.run(("MG(2,2)", program))
    assert caught.value.waits == (
        "control engine command 6 polls node(2,2): wants 0x201 under mask 0xffff01, has 0x0 "
        "(MG(2,2) has signalled 0, 2 of 2 missing)",
        "MG(2,2) instruction 0 (DRAIN addr=0x0 n=4 fuse) waits for 4 sub-tiles from an emitting GEMM, "
        "0 are outstanding (fuse=1 needs a GEMM with emit=1 and n = gm*gn before it), 1 behind it",
    )
    assert [(p.unit, p.index) for p in h.system.parties] == [("", -1), ("MG(2,2)", 0)]


def test_a_full_fifo_behind_a_waiting_unit(host: Make) -> None:
    h = host()
    program = np.repeat(cluster.assemble("DRAIN n=4 addr=0x0 fuse"), 40, axis=0)
    with pytest.raises(Hang) as caught:
        h.run(("MG(1,1)", program), credit=100)
    engine, dispatcher, unit = caught.value.waits
    assert engine.startswith("control engine command 6 polls node(1,1)")
    assert dispatcher == (
        "dispatch agent waits for room in the instruction FIFO of MG(1,1) before flit 32 of 40 of the program "
        "for MG(1,1) (slot 32)"
    )
    assert unit.endswith(", 31 behind it")


def test_an_open_burst(host: Make) -> None:
    h = host()
    commands = h.round([("VC(1,0)", imem(1))])
    descriptor = flit.DATA.encode(buf=0, offset=0, len=3, ack=1, ack_x=0, ack_y=1)
    head = flit.HEADER.encode(type=flit.CU_DATA)
    payload = np.frombuffer(descriptor.to_bytes(32, "little"), np.uint64)
    h.stage_flits(flit.stage(head, payload))
    with pytest.raises(Hang) as caught:
        h.launch(commands)
    assert caught.value.waits[-1] == "VC(1,0) waits for data flit 1 of 4 of an open burst"


def test_a_waiting_unit_alone_is_no_hang_and_can_be_asked(host: Make) -> None:
    h = host()
    h.stage(cluster.assemble("DRAIN n=4 addr=0x0 fuse"))
    h.kick("MG(1,1)", 1)
    (party,) = h.system.waits()
    assert party.text.startswith("MG(1,1) instruction 0 (DRAIN addr=0x0 n=4 fuse) waits for 4 sub-tiles")
    assert flit.STATUS.decode(h.control_value("MG(1,1)", flit.STATUS_INDEX)[0]) == {"busy": 1, "free": 31}
    h.system.reset_units()
    assert h.system.waits() == ()


def test_the_next_run_works_after_a_hang(host: Make) -> None:
    h = host()
    with pytest.raises(Hang):
        h.run(("VC(1,0)", imem(2)), ("VC(2,0)", imem(2)), credit=1)
    for _ in range(3):
        h.run(("VC(1,0)", imem(2)), ("VC(2,0)", imem(2)))
    assert h.engine(reg.CTRL) == 2


def test_several_meshes_wait_for_each_other(host: Make) -> None:
    first = host("multimesh_4", 0)
    second = type(first)(first.system, 3)
    name = "VC(2,0)"
    unit0 = next(u for u in first.machine.units_of("VC", 0))
    unit3 = next(u for u in first.machine.units_of("VC", 3))
    assert name in unit0.name
    want, mask = reg.poll_node(1)
    # Mesh 0's engine awaits a unit of mesh 3: it stays busy, and is done once mesh 3 ran.
    first.launch([(reg.POLL, reg.agent_bus(3, reg.node_status(unit3.x, unit3.y)), want, mask), (reg.DONE, 0, 9, 0)])
    second.run((unit3.name, imem(1)))
    assert (first.engine(reg.CTRL), first.engine(reg.DONE_CODE)) == (2, 9)
    # Nobody will signal again: looking at the engine says so.
    want, mask = reg.poll_node(2)
    first.launch([(reg.POLL, reg.agent_bus(3, reg.node_status(unit3.x, unit3.y)), want, mask), (reg.DONE, 0, 9, 0)])
    with pytest.raises(Hang) as caught:
        first.engine(reg.CTRL)
    assert caught.value.waits == (
        "control engine of mesh 0 command 0 polls mesh3.node(2,0): wants 0x201 under mask 0xffff01, has 0x101 "
        f"({unit3.name} has signalled 1, 1 of 2 missing)",
    )
