"""Everything of datasheet 7.1 and 7.2 through reads and writes of the bus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Fault, Refusal
from kohakutpu.isa import cluster, flit, vector
from kohakutpu.isa import control as reg

Make = Callable[..., Any]


def payloads(*digits: str) -> NDArray[np.uint64]:
    return np.array([np.frombuffer(int(d, 16).to_bytes(32, "little"), np.uint64) for d in digits])


# C[32,32] = A[32,128] x B[32,128]^T of datasheet 5.1: A at 0, B at 0x2000, C at 0x4000.
EXAMPLE = payloads(
    "1000000000008000000128000000000000000000000000000000000000000000",
    "1000008000008200000128000000000000000000000000000000000000000000",
    "2000000000000008080428000000000000000000000000000000000000000000",
    "3000010000010000000128000000000000000000000000000000000000000000",
)
IMEM5 = payloads("1028" + "0" * 52 + "deadbeef")


def imem(n: int) -> NDArray[np.uint64]:
    """n harmless vector envelopes: program words."""
    rows = np.zeros((n, 4), np.int64)
    rows[:, 0], rows[:, 1], rows[:, 3] = vector.ENV_IMEM, np.arange(n) % 512, vector.assemble("VHALT")[0]
    return vector.encode_envelopes(rows)


def exact_operands() -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Integers that MXFP7 holds exactly: with a 15 in every block the scale is 1/4 (datasheet 2.2)."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(-15, 16, (2, 32, 128)).astype(np.float16)
    a[:, ::32] = b[:, ::32] = 15
    return a, b


def pack(x: NDArray[np.float16]) -> NDArray[np.float16]:
    """One tile of 8 groups, one chunk of 4 blocks: byte order of datasheet 3.3."""
    return np.ascontiguousarray(x.reshape(8, 4, 4, 32).transpose(0, 2, 1, 3))


def test_the_datasheet_matmul_end_to_end(host: Make) -> None:
    h = host()
    a, b = exact_operands()
    h.system.write(reg.memory_bus(0, 0), pack(a))
    h.system.write(reg.memory_bus(0, 0x2000), pack(b))
    h.run(("MG(1,1)", EXAMPLE))
    drained = h.system.read(reg.memory_bus(0, 0x4000), 2048).view(np.float16)
    got = drained.reshape(8, 8, 4, 4).transpose(0, 2, 1, 3).reshape(32, 32)
    want = (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float16)
    assert np.array_equal(got, want)
    assert h.engine(reg.CTRL) == 2  # done, neither busy nor in error
    assert h.node("MG(1,1)") == {"code": flit.BATCH_COMPLETE, "arg": 0, "count": 4, "valid": 1}
    assert h.get(reg.SIG_DONE) == 4
    assert h.control_value("MG(1,1)", flit.COUNTERS_INDEX)[0] >> 32 == 4  # retired


def test_a_kick_without_the_engine(host: Make) -> None:
    h = host()
    n = h.stage(imem(5), txn=0x40)
    h.kick("VC(1,0)", n)
    status = reg.PROGRAM_STATUS.decode(h.get(reg.PROG_STAT))
    # Five credits out, four INST_COMPLETE back: the last instruction returns none.
    assert status == {"running": 0, "left": 0, "credit": 31}
    assert h.get(reg.PROG_CRED) == 31
    assert h.node("VC(1,0)") == {"code": flit.BATCH_COMPLETE, "arg": 0x40, "count": 5, "valid": 1}
    assert h.get(reg.STATUS) == 4


def test_result_words(host: Make) -> None:
    h = host()
    h.stage(imem(3), last=False)
    h.kick("VC(1,0)", 3)
    assert h.node("VC(1,0)")["code"] == flit.INST_COMPLETE
    assert h.get(reg.PROG_CRED) == 32
    run = np.concatenate([imem(1), vector.encode_envelopes(np.array([[vector.ENV_RUN, 0, 0, 0]], np.int64))])
    h.stage(run, last=False)
    h.kick("VC(1,0)", 2)
    cycles = h.node("VC(1,0)")["arg"]
    assert cycles > 0  # VC RUN = kernel cycles
    assert h.control_value("VC(1,0)", flit.DEBUG_INDEX)[0] == cycles
    assert h.node("VC(1,0)")["count"] == 5


def test_the_dispatcher_stalls_without_credit_and_goes_on_when_seeded(host: Make) -> None:
    h = host()
    h.stage(imem(6))
    h.kick("VC(1,0)", 6, credit=0)
    assert reg.PROGRAM_STATUS.decode(h.get(reg.PROG_STAT)) == {"running": 1, "left": 6, "credit": 0}
    assert h.get(reg.STATUS) == 5
    h.put(reg.PROG_KICK, 1)  # ignored while running
    assert h.get(reg.SIG_DONE) == 0
    h.put(reg.PROG_CRED, 1)  # each completion returns the credit, so one is enough
    assert reg.PROGRAM_STATUS.decode(h.get(reg.PROG_STAT)) == {"running": 0, "left": 0, "credit": 0}
    assert h.node("VC(1,0)")["count"] == 6


def test_kick_is_ignored_without_length_and_registers_hold_their_value(host: Make) -> None:
    h = host()
    h.put(reg.PROG_CRED, 4)
    h.put(reg.PROG_KICK, 1)
    assert h.get(reg.PROG_STAT) == 4 << 17
    for register, value in ((reg.PROG_DST, 0x21), (reg.PROG_LEN, 7), (reg.PROG_BASE, 3)):
        h.put(register, value)
        assert h.get(register) == value


def test_destination_and_source_are_rewritten_the_rest_passes(host: Make) -> None:
    h = host()
    u = h.unit("VC(2,0)")
    request = flit.HEADER.encode(dst_x=9, dst_y=9, src_x=9, src_y=9, type=flit.CU_CTRL, txn=0x77, last=1)
    h.stage_flits(flit.stage(request, flit.CONTROL_REQUEST.encode(index=0))[None])
    h.kick("VC(2,0)", 1, credit=0)  # only CU_INST costs credit
    reply = h.system.read(reg.agent_bus(0, reg.RX_FLIT), 40).view(np.uint64)
    header = flit.HEADER.decode(int(reply[4]))
    agent = h.machine.meshes[0]
    assert (header["dst_x"], header["dst_y"]) == (agent.agent_x, agent.agent_y)
    assert (header["src_x"], header["src_y"], header["txn"], header["type"]) == (u.x, u.y, 0x77, flit.CU_CTRL)


def test_sig_done_wraps_and_clears_and_node_counts_go_on(host: Make) -> None:
    h = host()
    h.stage(imem(100), last=False)
    h.system.control.agent[0, reg.SIG_DONE // 8] = 65_500
    h.kick("VC(1,0)", 100)
    assert h.get(reg.SIG_DONE) == 64
    h.put(reg.SIG_DONE, 123)
    assert h.get(reg.SIG_DONE) == 0
    h.put(reg.PROG_KICK, 1)
    assert h.get(reg.SIG_DONE) == 100
    assert h.node("VC(1,0)")["count"] == 200
    h.system.control.agent[0, reg.node_status(1, 0) // 8] = 65_500 << 8 | 1
    h.put(reg.PROG_KICK, 1)
    assert h.node("VC(1,0)")["count"] == 64


def test_control_requests(host: Make) -> None:
    h = host()
    for name, code, buffers in (("MG(2,3)", 0x4D47, 3), ("VC(2,4)", 0x5643, 1)):
        value, header = h.control_value(name, flit.CAPS_INDEX, txn=0x5A)
        assert flit.CAPS.decode(value) == {"type": code, "version": 4, "buffers": buffers, "inst_fifo": 32, "r2": 0}
        u = h.unit(name)
        assert (header["src_x"], header["src_y"], header["txn"]) == (u.x, u.y, 0x5A)
        assert flit.STATUS.decode(h.control_value(name, flit.STATUS_INDEX)[0]) == {"busy": 0, "free": 32}
        assert h.control_value(name, flit.NUM_INDEX)[0] == 0
        assert h.control_value(name, 200)[0] == 0
    assert h.get(reg.RX_STATUS) == 1 << 16


def test_replies_queue_and_overflow(host: Make) -> None:
    h = host()
    for i in range(65):
        header = flit.HEADER.encode(dst_x=1, dst_y=1, src_x=0, src_y=1, type=flit.CU_CTRL, txn=i, last=1)
        h.system.write(reg.agent_bus(0, reg.TX_FLIT), flit.stage(header, flit.CONTROL_REQUEST.encode(index=0)))
        h.put(reg.TX_KICK, 1)
    assert h.get(reg.RX_STATUS) == 1 << 17
    for i in range(64):
        assert flit.HEADER.decode(h.get(reg.RX_FLIT + 32))["txn"] == i
        h.put(reg.RX_POP, 1)
    assert h.get(reg.RX_STATUS) == 1 << 17 | 1 << 16
    assert h.get(reg.RX_FLIT + 32) == 0


def test_a_raw_instruction_flit(host: Make) -> None:
    h = host()
    header = flit.HEADER.encode(dst_x=1, dst_y=0, src_x=0, src_y=1, type=flit.CU_INST, txn=3, last=1)
    h.system.write(reg.agent_bus(0, reg.TX_FLIT), flit.stage(header, IMEM5[0]))
    h.put(reg.TX_KICK, 1)
    assert h.node("VC(1,0)") == {"code": flit.BATCH_COMPLETE, "arg": 3, "count": 1, "valid": 1}
    assert int(h.system.vectors.word[5]) == 0xDEADBEEF


def test_the_engine_reports_done_code_polls_and_pc(host: Make) -> None:
    h = host()
    at = reg.agent_bus(0, 0)
    h.launch([(reg.WRITE, at + reg.PROG_BASE, 5, 0), (reg.POLL, at + reg.PROG_BASE, 5, 0xF), (reg.DONE, 0, 0xC0DE, 0)])
    assert (h.engine(reg.CTRL), h.engine(reg.DONE_CODE), h.engine(reg.PC)) == (2, 0xC0DE, 2)
    assert h.engine(reg.POLLS) == 1
    command = h.system.read(reg.engine_bus(0, reg.COMMANDS + 32), 32).view(np.uint64)
    assert command.tolist() == [reg.POLL, at + reg.PROG_BASE, 5, 0xF]


@pytest.mark.parametrize(
    "command",
    [
        (7, 0, 0, 0),
        (reg.WRITE, reg.engine_bus(0, reg.CTRL), 1, 0),
        (reg.WRITE, reg.memory_bus(0, 0), 1, 0),
        (reg.WRITE, reg.agent_bus(0, reg.CAPS), 1, 0),
        (reg.WRITE, reg.agent_bus(0, reg.AUX_CFG), 1, 0),
        (reg.POLL, reg.agent_bus(1, 0), 0, 0),
        (reg.POLL, reg.agent_bus(0, reg.PROG_STAT + 4), 0, 0),
    ],
)
def test_bad_commands_set_error(host: Make, command: tuple[int, int, int, int]) -> None:
    h = host()
    h.launch([command, (reg.DONE, 0, 0, 0)])
    assert (h.engine(reg.CTRL), h.engine(reg.PC)) == (4, 0)


def test_a_list_without_done_sets_error(host: Make) -> None:
    h = host()
    at = reg.agent_bus(0, 0)
    h.launch([(reg.WRITE, at + reg.PROG_BASE, 5, 0)] * 128)
    assert (h.engine(reg.CTRL), h.engine(reg.PC)) == (4, 128)


def test_staging_and_commands_read_back_and_take_partial_runs(host: Make) -> None:
    h = host()
    words = np.arange(640, dtype=np.uint64)
    h.system.write(reg.agent_bus(0, reg.STAGE), words)
    assert np.array_equal(h.system.read(reg.agent_bus(0, reg.STAGE), 5120).view(np.uint64), words)
    h.system.write(reg.agent_bus(0, reg.STAGE + 80), np.array([7, 8], np.uint64))
    assert h.system.read(reg.agent_bus(0, reg.STAGE + 72), 32).view(np.uint64).tolist() == [9, 7, 8, 12]


def test_capabilities(host: Make) -> None:
    caps = reg.AGENT_CAPS.decode(host().get(reg.CAPS))
    assert caps == {"flit_bits": 288, "interface": 4, "grid_low": 0x11, "grid_high": 0x32}


def test_refused_accesses(host: Make) -> None:
    h = host()
    one = np.array([1], np.uint64)
    for bus in (reg.agent_bus(1, 0), reg.agent_bus(0, 0x3400), reg.engine_bus(0, 0x2000), 0x3000_0000, -8):
        with pytest.raises(Refusal, match="nothing answers at this bus address"):
            h.system.write(bus, one)
        with pytest.raises(Refusal, match="nothing answers at this bus address"):
            h.system.read(bus, 8)
    with pytest.raises(
        Refusal, match=r"agent\.PROG_LEN: control windows are read and written in whole 64-bit registers"
    ):
        h.system.write(reg.agent_bus(0, reg.PROG_LEN), np.array([1], np.uint32))
    for register in (reg.CAPS, reg.STATUS, reg.PROG_STAT, 0x128, reg.node_status(1, 1), reg.RX_FLIT):
        with pytest.raises(Refusal, match="the register cannot be written"):
            h.put(register, 1)
    for register in (reg.AUX_STAT, reg.AUX_CFG, reg.AUX_CFG + 0xF8):
        with pytest.raises(Refusal, match="no memory mover"):
            h.put(register, 1)
        with pytest.raises(Refusal, match="no memory mover"):
            h.get(register)
    with pytest.raises(Refusal, match="'raise' or 'count'"):
        h.system.nonfinite = "maybe"
    with pytest.raises(Refusal, match="'raise' or 'signal'"):
        h.system.faults = "maybe"


def test_flits_nobody_takes(host: Make) -> None:
    h = host()
    h.put(reg.PROG_CRED, 5)
    h.put(reg.PROG_DST, 0x22)
    h.put(reg.PROG_LEN, 1)
    with pytest.raises(Fault, match=r"dispatch agent: a flit of type 0 for \(2,2\) of mesh 0, which does not take it"):
        h.put(reg.PROG_KICK, 1)  # slot 0 was never staged: type 0
    h.stage(imem(1))
    h.put(reg.PROG_CRED, 5)
    h.put(reg.PROG_DST, 0x30)
    with pytest.raises(Fault, match=r"a flit of type 5 for \(0,3\) of mesh 0, where no unit is"):
        h.put(reg.PROG_KICK, 1)
    h.put(reg.PROG_BASE, 127)
    h.put(reg.PROG_LEN, 2)
    with pytest.raises(Fault, match="a program of 2 flits from slot 127 runs beyond the 128 staging slots"):
        h.put(reg.PROG_KICK, 1)
    assert cluster.CLUSTER.width == 256
