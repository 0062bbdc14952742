"""Flit headers, message payloads, registers and the bus map against datasheet 4 and 7."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel.diagnostics import EncodingRefusal, SourceLine
from kohakuaccel.image import EncodedProgram, Image
from kohakutpu import machines
from kohakutpu.isa import cluster, control, flit, image_text, vector


def digits(number: int, head: str) -> bool:
    text = f"{number:064x}"
    return text.startswith(head) and not text[len(head) :].strip("0")


def test_golden_header() -> None:
    word = flit.HEADER.encode(dst_x=2, dst_y=1, src_x=0, src_y=1, type="CU_INST", txn=0x40, last=1)
    assert word == 0x21015408
    assert flit.HEADER.decode(word)["type"] == flit.CU_INST
    assert flit.HEADER.encode(type="CU_DATA", remote=1, mesh=3) & 7 == 7


def test_flit_types() -> None:
    names = ["MEM_RD_REQ", "MEM_WR_REQ", "MEM_RD_RESP", "MEM_WR_ACK", "MEM_WR_DATA"]
    names += ["CU_INST", "CU_SIGNAL", "CU_CTRL", "CU_DATA", "FETCH_READY"]
    assert list(flit.TYPES) == names
    assert list(flit.TYPES.values()) == list(range(10))
    with pytest.raises(EncodingRefusal, match=r"HEADER\.type"):
        flit.HEADER.encode(type=10)


def test_golden_read_requests() -> None:
    request = flit.READ_REQUEST.encode(addr=0x12345600, len=3, quant=1, stream=1, count=32)
    assert digits(request, "00123456000350200000")
    request = flit.READ_REQUEST.encode(addr=0x10_0000_2000, len=3, blayout=1, stream=1, count=64)
    assert digits(request, "10000020000360400000")


def test_message_payloads() -> None:
    assert digits(flit.WRITE_REQUEST.encode(addr=0x4000, len=7), "000000400007")
    with pytest.raises(EncodingRefusal, match=r"MEM_WR_REQ.len: .*got 8; the limit is 0..7"):
        flit.WRITE_REQUEST.encode(len=8)
    assert digits(flit.SIGNAL.encode(code=flit.FAULT, arg=0x10), "0400000010")
    assert digits(flit.DATA.encode(buf=2, offset=0x102, len=7, ack=1, ack_y=1, ack_x=2), "020102070112")
    assert digits(flit.CONTROL_REQUEST.encode(index=3), "0003")
    reply = flit.CONTROL_REPLY.encode(index=1, value=0x8000_0000_0000_0001)
    assert digits(reply, "02018000000000000001")
    assert flit.CONTROL_REPLY.decode(reply) == {"index": 1, "value": 0x8000_0000_0000_0001}


def test_capability_words() -> None:
    caps = flit.CAPS.encode(type="MG", version=4, buffers=3, inst_fifo=32)
    assert caps == 0x4D47 << 48 | 4 << 40 | 3 << 36 | 32 << 20
    assert flit.CAPS.encode(type="VC", version=5, buffers=1, inst_fifo=512, r2=1) >> 48 == 0x5643
    assert flit.STATUS.encode(busy=1, free=31) == 1 << 63 | 31 << 32
    assert flit.COUNTERS.encode(retired=7, busy=9) == 7 << 32 | 9


def test_stage_words() -> None:
    payload = sum((i + 1) << (64 * i) for i in range(4))
    assert flit.stage(0x21015408, payload).tolist() == [1, 2, 3, 4, 0x21015408]
    table = np.arange(8, dtype=np.uint64).reshape(2, 4)
    assert flit.stage(9, table).tolist() == [[0, 1, 2, 3, 9], [4, 5, 6, 7, 9]]
    assert flit.stage(np.array([8, 9]), table)[:, 4].tolist() == [8, 9]
    assert flit.stage(np.array([8, 9]), table[0]).tolist() == [[0, 1, 2, 3, 8], [0, 1, 2, 3, 9]]


def test_registers_are_datasheet_7_1() -> None:
    offsets = {
        "STATUS": 0x08, "CAPS": 0x10, "PROG_DST": 0x40, "PROG_LEN": 0x48, "PROG_KICK": 0x50, "PROG_STAT": 0x58,
        "PROG_CRED": 0x60, "PROG_BASE": 0x68, "SIG_DONE": 0x70, "AUX_STAT": 0x78, "TX_KICK": 0x140,
        "TX_STATUS": 0x148, "RX_POP": 0x1C0, "RX_STATUS": 0x1C8,
    }  # fmt: skip
    assert offsets == control.AGENT_REGISTERS
    assert (control.TX_FLIT, control.RX_FLIT, control.AUX_CFG) == (0x100, 0x180, 0x800)
    assert control.node_status(2, 1) == 0x1000 + 8 * 0x12
    assert control.stage_slot(0) == 0x2000
    assert control.stage_slot(127) + 40 == 0x3400 - 0, "128 slots end at 0x3400"
    assert control.SHADOWED == (control.PROG_DST, control.PROG_LEN, control.PROG_BASE)
    assert control.NODE.encode(code=4, arg=0x10, count=3, valid=1) == 4 << 56 | 0x10 << 24 | 3 << 8 | 1
    assert control.PROGRAM_STATUS.encode(running=1, left=5, credit=31) == 31 << 17 | 5 << 1 | 1
    assert control.DESTINATION.encode(x=2, y=1) == 0x12
    assert control.AGENT_CAPS.encode() == 4 << 16 | 288


def test_commands() -> None:
    write = control.COMMAND.encode(op="WRITE", addr=0x10000050, data=1)
    words = control.COMMAND.to_words(write)
    assert words.tolist() == [1, 0x10000050, 1, 0]
    want, mask = control.poll_node(65536 + 3)
    wait = control.COMMAND.encode(op="POLL", addr=control.agent_bus(1, 0x1090), data=want, mask=mask)
    poll = control.COMMAND.to_words(wait)
    assert (want, mask) == (3 << 8 | 1, 0x00FFFF01)
    done = control.COMMAND.to_words(control.COMMAND.encode(op="DONE", data=7))
    assert control.command_text(np.stack([words, poll, done, words])) == [
        "WRITE agent.PROG_KICK = 0x1",
        "POLL  mesh1.node(2,1) & 0xffff01 == 0x301",
        "DONE  0x7",
    ]
    assert control.command_text(np.array([[9, 1, 2, 3]])) == [".command 0x9 0x1 0x2 0x3"]


def test_bus_map() -> None:
    assert control.memory_bus(0, 0x40) == 1 << 40 | 0x40
    assert control.memory_bus(3, 0x40) == 4 << 40 | 0x40
    assert control.engine_bus(0, control.COMMANDS) == 0x1000
    assert control.agent_bus(0, control.PROG_KICK) == 0x1000_0050
    assert control.agent_bus(2, control.PROG_KICK) == 2 << 32 | 0x1000_0050
    assert control.describe(control.agent_bus(0, control.stage_slot(3) + 16)) == "agent.stage[3].2"
    assert control.describe(control.engine_bus(1, control.COMMANDS + 40)) == "mesh1.engine.command[1].f1"
    assert control.describe(control.engine_bus(0, 0)) == "engine.CTRL"
    assert control.describe(control.agent_bus(0, 0x188)) == "agent.RX_FLIT[1]"
    assert control.describe(control.agent_bus(0, 0x108)) == "agent.TX_FLIT[1]"
    assert control.describe(control.agent_bus(0, 0x888)) == "agent.0x0888"


def test_an_image_prints_readably() -> None:
    m = machines.load("mini")
    kernel = vector.assemble("VSETI S0,0x80\nVSETVL S0\nVHALT")
    rows = np.array([[1, i, 0, w] for i, w in enumerate(kernel)] + [[3, 0, 0, 0]])
    mg = EncodedProgram(
        unit=m.units[0],
        payloads=cluster.assemble("FILL n=4\nGEMM gm=1 gn=1 nk=4\nDRAIN n=1 addr=0x4000"),
        sources=np.array([0, 0, 1], np.int32),
    )
    vc = EncodedProgram(unit=m.units[1], payloads=vector.encode_envelopes(rows))
    image = Image(
        machine_name="mini",
        stages=((mg,), (vc,)),
        sources=(SourceLine("user.py", 3, "acc += a @ b"), SourceLine("user.py", 4)),
    )
    assert image_text(image).splitlines() == [
        "image for mini: 2 stage(s)",
        "stage 0: 1 unit(s), 3 instructions",
        "  MG(1,1): 3 instructions",
        "         0  FILL addr=0x0 n=4 sel=A  ; user.py:3: acc += a @ b",
        "         1  GEMM gm=1 gn=1 nk=4",
        "         2  DRAIN addr=0x4000 n=1  ; user.py:4",
        "stage 1: 1 unit(s), 5 instructions",
        "  VC(1,0): 5 instructions",
        "         0  IMEM 0: VSETI S0",
        "         1  IMEM 1: 0x80",
        "         2  IMEM 2: VSETVL S0",
        "         3  IMEM 3: VHALT",
        "         4  RUN 0",
    ]
    assert image_text(image, limit=1).splitlines()[4] == "    ...     2 more"
