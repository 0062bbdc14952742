"""CU_DATA from unit to unit and from the host: who takes what, acknowledgements, bad and interleaved bursts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Fault
from kohakutpu.isa import cluster, flit, vector
from kohakutpu.isa import control as reg

Make = Callable[..., Any]
TILE = """
    FILL addr=0x0 n=4 sel=A
    FILL addr=0x400 n=4 sel=B
    GEMM gm=4 gn=4 nk=1
    """
SUM = 15 * 15 * 32


def operands(h: Any) -> None:
    """Eight entries of 15: every sub-tile element of TILE is SUM exactly."""
    h.system.write(reg.memory_bus(0, 0), np.full(8 * 128, 15, np.float16))


def words(text: str) -> NDArray[np.uint64]:
    return cluster.assemble(TILE + text)


def vector_program(source: str, *descriptors: tuple[int, int, int]) -> NDArray[np.uint64]:
    rows = [(vector.ENV_IMEM, i, 0, w) for i, w in enumerate(vector.assemble(source))]
    rows += [(vector.ENV_DESC, ad, fld, value) for ad, fld, value in descriptors]
    rows.append((vector.ENV_RUN, 0, 0, 0))
    return vector.encode_envelopes(np.array(rows, np.int64))


def await_node(h: Any, name: str, count: int) -> tuple[int, int, int, int]:
    u = h.unit(name)
    want, mask = reg.poll_node(count)
    return (reg.POLL, reg.agent_bus(0, reg.node_status(u.x, u.y)), want, mask)


def test_a_cluster_drains_to_a_vector_core_which_acknowledges(host: Make) -> None:
    h = host()
    operands(h)
    # 16 sub-tiles to VC (1,0) from L1 word 32: two bursts, acknowledged to the agent at (0,1).
    program = words("DRAIN addr=0x400 n=16 dnode dst_x=1 dbuf=0 dflags=0x1 dack_y=1")
    commands = h.round([("MG(1,1)", program)])
    commands.insert(-1, await_node(h, "VC(1,0)", 2))
    h.launch(commands)
    assert h.node("VC(1,0)") == {"code": flit.DATA_RECEIVED, "arg": 0, "count": 2, "valid": 1}
    assert h.get(reg.SIG_DONE) == 4 + 2
    assert h.get(reg.PROG_CRED) == 31  # DATA_RECEIVED returns no credit
    # The consumer: doubles the 256 halves and drains them to memory.
    source = """
        VSETI S0,0x80
        VSETVL S0
        VLD v0,A0+0 FP16
        VLD v1,A0+8 FP16
        VADD v0,v0,v0
        VADD v1,v1,v1
        VST v0,A0+0 FP16
        VST v1,A0+8 FP16
        VDRAIN A1,32
        VHALT
        """
    descriptors = [(0, 0, 32), (0, 1, vector.dimension(1, 16)), (1, 0, 0x8000), (1, 1, vector.dimension(32, 16))]
    h.run(("VC(1,0)", vector_program(source, *descriptors)))
    got = h.system.read(reg.memory_bus(0, 0x8000), 512).view(np.float16)
    assert (got == 2 * SUM).all()


def test_acknowledgements_to_nobody_are_ignored(host: Make) -> None:
    h = host()
    operands(h)
    h.run(("MG(1,1)", words("DRAIN addr=0x400 n=16 dnode dst_x=1 dbuf=0 dflags=0x1")))
    assert h.node("VC(1,0)")["count"] == 0
    assert h.get(reg.SIG_DONE) == 4


def test_a_cluster_adds_into_another(host: Make) -> None:
    h = host()
    operands(h)
    h.run(("MG(2,1)", words("")))
    h.run(("MG(1,1)", words("DRAIN addr=0x0 n=16 dnode dst_x=2 dst_y=1 dbuf=2 dflags=0x1 dack_y=1")))
    assert h.node("MG(2,1)") == {"code": flit.DATA_RECEIVED, "arg": 2, "count": 3 + 4, "valid": 1}
    h.run(("MG(2,1)", cluster.assemble("DRAIN addr=0x4000 n=16")))
    assert (h.system.read(reg.memory_bus(0, 0x4000), 512).view(np.float16) == 2 * SUM).all()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("DRAIN addr=0x0 n=1 dnode dst_x=2 dst_y=1 dbuf=0", r"data for \(2,1\) of mesh 0, buffer 0"),
        ("DRAIN addr=0x0 n=1 dnode dst_x=1 dbuf=2", r"data for \(1,0\) of mesh 0, buffer 2"),
        ("DRAIN addr=0x0 n=1 dnode dst_x=3 dst_y=3 dbuf=0", r"data for \(3,3\) of mesh 0, buffer 0"),
        ("DRAIN addr=0x0 n=1 dnode dst_y=1 dbuf=0", r"data for \(0,1\) of mesh 0, buffer 0"),
        ("DRAIN addr=0x0 n=1 dnode dst_x=2 dst_y=1 dbuf=2", "sub-tile .* was never opened"),
    ],
)
def test_targets_that_take_nothing(host: Make, text: str, problem: str) -> None:
    h = host()
    operands(h)
    with pytest.raises(Fault, match=rf"MG\(1,1\), instruction 3 .*{problem}"):
        h.run(("MG(1,1)", words(text)))


# bursts from the host


def burst(h: Any, name: str, buf: int, offset: int, data: NDArray[np.uint64], *, flags: int = 1, part: int = 99) -> int:
    """Stage a burst for a unit and kick it: a descriptor, then data flits (at most `part` of them)."""
    descriptor = flit.DATA.encode(buf=buf, offset=offset, len=len(data) - 1, ack=flags)
    head = np.uint64(flit.HEADER.encode(type=flit.CU_DATA))
    first = np.frombuffer(descriptor.to_bytes(32, "little"), np.uint64)[None]
    flits = flit.stage(np.full(1 + len(data), head), np.concatenate([first, data]))[: 1 + part]
    h.stage_flits(flits)
    h.kick(name, len(flits), credit=None)
    return len(flits)


def test_a_host_writes_a_vector_cores_l1(host: Make) -> None:
    h = host()
    data = np.arange(20, dtype=np.uint64).reshape(5, 4)
    burst(h, "VC(1,0)", 0, 100, data)
    assert np.array_equal(h.system.vectors.wide[400:420], data.reshape(-1))
    # No acknowledgement target: the source, which is the agent.
    assert h.node("VC(1,0)") == {"code": flit.DATA_RECEIVED, "arg": 0, "count": 1, "valid": 1}
    burst(h, "VC(1,0)", 0, 100, data, flags=0)
    assert h.node("VC(1,0)")["count"] == 1


def test_a_host_writes_a_clusters_l1(host: Make) -> None:
    h = host()
    operands(h)
    # A quantised entry as it lies in memory is what buffers 0 and 1 take.
    h.system.write(reg.memory_bus(0, 1 << 39 | 4 << 32 | 0x8000), np.full(128, 15, np.float16))
    h.system.write(reg.memory_bus(0, 1 << 39 | 5 << 32 | 0x8080), np.full(128, 15, np.float16))
    for buf, at in ((0, 0x8000), (1, 0x8080)):
        entry = h.system.read(reg.memory_bus(0, at), 128).view(np.uint64).reshape(4, 4)
        burst(h, "MG(1,1)", buf, 0, entry)
    h.run(("MG(1,1)", cluster.assemble("GEMM gm=1 gn=1 nk=1\nDRAIN addr=0x4000 n=1")))
    assert (h.system.read(reg.memory_bus(0, 0x4000), 32).view(np.float16) == SUM).all()


def test_a_bad_burst_is_acknowledged_and_faults_at_the_next_retirement(host: Make) -> None:
    data = np.zeros((4, 4), np.uint64)
    for name, buf, offset, code, text in (
        ("VC(1,0)", 0, 510, 9, "F_CUDATA"),
        ("MG(1,1)", 0, 4 * 512 - 2, 0x11, "bad CU_DATA"),
    ):
        h = host()
        operands(h)
        burst(h, name, buf, offset, data)
        assert h.node(name)["code"] == flit.DATA_RECEIVED
        program = vector_program("VHALT") if name.startswith("VC") else words("")
        with pytest.raises(Fault, match=text) as caught:
            h.run((name, program))
        assert (caught.value.unit, caught.value.index, caught.value.code) == (name, 0, code)
        h.run((name, program))


def test_two_open_bursts_raise(host: Make) -> None:
    h = host()
    operands(h)
    burst(h, "VC(1,0)", 0, 0, np.zeros((4, 4), np.uint64), part=2)
    with pytest.raises(Fault, match=r"MG\(1,1\), instruction 3 .*two CU_DATA bursts are open at \(1,0\) of mesh 0"):
        h.run(("MG(1,1)", words("DRAIN addr=0x400 n=1 dnode dst_x=1 dbuf=0")))
    # The reset closed the open burst.
    h.run(("MG(1,1)", words("DRAIN addr=0x400 n=1 dnode dst_x=1 dbuf=0")))


def test_a_buffer_a_host_may_not_fill(host: Make) -> None:
    h = host()
    with pytest.raises(Fault, match=r"dispatch agent: data for \(1,0\) of mesh 0, buffer 3"):
        burst(h, "VC(1,0)", 3, 0, np.zeros((1, 4), np.uint64))


def test_a_remote_drain_crosses_meshes(host: Make) -> None:
    h = host("multimesh_4", 1)
    mg = h.machine.units_of("MG", 1)[2]
    vc = h.machine.units_of("VC", 0)[0]
    h.system.write(reg.memory_bus(1, 1 << 36), np.full(8 * 128, 15, np.float16))
    port = h.machine.port_of(mg)
    tile = TILE.replace("0x0", hex(1 << 36)).replace("0x400", hex((1 << 36) + 0x400))
    text = (
        f"DRAIN addr=0x0 n=16 dnode dst_x={port.x} dst_y={port.y} dbuf=0 dflags=0x1 dack_y=1 "
        f"dmesh=0 dfin={vc.y << 4 | vc.x:#x}"
    )
    h.run((mg.name, cluster.assemble(tile + text)))
    status = h.system.read(reg.agent_bus(0, reg.node_status(vc.x, vc.y)), 8).view(np.uint64)[0]
    assert reg.NODE.decode(int(status)) == {"code": flit.DATA_RECEIVED, "arg": 0, "count": 2, "valid": 1}
    half = h.system.vectors.half[: 16 * 16]
    assert (half.view(np.float16) == SUM).all()
