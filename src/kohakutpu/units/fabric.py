"""Flits between endpoints, compiled: dispatched instructions, CU_CTRL, CU_DATA bursts, acknowledgements.

It decides who receives a flit, and how each is taken. It must not know what an instruction does: units take
and give decoded rows, bursts and result words. Sources: datasheet 4, 5.4, 7.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kohakuaccel.isa.kernels import extract
from kohakuaccel.jit import leaf
from kohakutpu.isa import control as reg
from kohakutpu.isa import flit, vector
from kohakutpu.isa.cluster import CLUSTER, FAULT_CUDATA, TDESC
from kohakutpu.units.agent import RX_OVERFLOW, SLOT, STAGE, W, halt, publish, publish_rx, signal
from kohakutpu.units.agent_state import (
    AGENT_NODE,
    C_BUSY,
    C_HIGH,
    C_LOW,
    C_NONFINITE,
    C_RETIRED,
    C_SATURATED,
    E_FLIT_TYPE,
    E_NO_UNIT,
    E_QUEUE,
    E_STAGE,
    FREE_NODE,
    L_CAPS_MG,
    L_FIFO,
    L_SLOTS,
    Q_INDEX,
    Q_LAST,
    Q_TXN,
    R_AGENT,
    R_CREDIT,
    R_INDEX,
    R_LEFT,
    R_NODE,
    R_RUNNING,
    R_RX_COUNT,
    R_RX_HEAD,
    R_SLOT,
    R_TX,
    RX_FLITS,
    U_ACK,
    U_BLOCKED,
    U_BUF,
    U_COUNT,
    U_FLAGS,
    U_GOT,
    U_HEAD,
    U_KIND,
    U_LENGTH,
    U_NODE,
    U_OFFSET,
    U_OPEN,
    U_PENDING,
    U_TAKES,
)
from kohakutpu.units.state import E_BURST, E_NODE

# Where the fields lie, from their declarations: (word, shift, bits, shift in the value) pieces.
H_TYPE = tuple(flit.HEADER["type"].parts())
H_TXN = tuple(flit.HEADER["txn"].parts())
H_LAST = tuple(flit.HEADER["last"].parts())
H_DST_X = tuple(flit.HEADER["dst_x"].parts())
H_DST_Y = tuple(flit.HEADER["dst_y"].parts())
H_SRC_X = tuple(flit.HEADER["src_x"].parts())
H_SRC_Y = tuple(flit.HEADER["src_y"].parts())
HEADER_PUT_X = flit.HEADER.position("dst_x")[0]
HEADER_PUT_Y = flit.HEADER.position("dst_y")[0]
HEADER_PUT_SRC_X = flit.HEADER.position("src_x")[0]
HEADER_PUT_SRC_Y = flit.HEADER.position("src_y")[0]
HEADER_PUT_TYPE = flit.HEADER.position("type")[0]
HEADER_PUT_TXN = flit.HEADER.position("txn")[0]
HEADER_PUT_LAST = flit.HEADER.position("last")[0]
D_BUF = tuple(flit.DATA["buf"].parts())
D_OFFSET = tuple(flit.DATA["offset"].parts())
D_LEN = tuple(flit.DATA["len"].parts())
D_ACK = tuple(flit.DATA["ack"].parts())
D_ACK_X = tuple(flit.DATA["ack_x"].parts())
D_ACK_Y = tuple(flit.DATA["ack_y"].parts())
C_INDEX = tuple(flit.CONTROL_REQUEST["index"].parts())
C_INDEX_BIT = flit.CONTROL_REPLY.position("index")[0]
C_VALUE_BIT = flit.CONTROL_REPLY.position("value")[0]
C_REPLY_HIGH = flit.CONTROL_REPLY.constant >> 192  # op 2 in its place
V_OP = tuple(CLUSTER["op"].parts())  # both instruction sets have it in the same place
V_IMEM_ADDR = tuple(vector.IMEM["addr"].parts())
V_IMEM_WORD = tuple(vector.IMEM["word"].parts())
V_DESC_AD = tuple(vector.DESC["ad"].parts())
V_DESC_FLD = tuple(vector.DESC["fld"].parts())
V_DESC_VALUE = tuple(vector.DESC["value"].parts())
V_RUN_PC = tuple(vector.RUN["pc"].parts())


@leaf
def field(words: Any, parts: Any) -> Any:
    """The value of a field, from its pieces, in words[] (int64 or uint64, word 0 lowest)."""
    value = np.int64(0)
    for word, shift, size, at in parts:
        piece = (np.int64(words[word]) >> np.int64(shift)) & ((np.int64(1) << np.int64(size)) - np.int64(1))
        value |= piece << np.int64(at)
    return value


@leaf
def enqueue(ctl: Any, u: int, words: Any, index: int) -> None:
    """An instruction enters the FIFO of unit u, decoded once. The caller has checked for room."""
    unit, meta = ctl.unit, ctl.meta
    at = (unit[u, U_HEAD] + unit[u, U_COUNT]) % meta.shape[1]
    unit[u, U_COUNT] += 1
    payload = ctl.words[u, at]
    for w in range(4):
        payload[w] = np.uint64(words[w])
    row, op = ctl.rows[u, at], field(words, V_OP)
    if unit[u, U_KIND] == 0:
        extract(payload, ctl.special if op == TDESC else ctl.layout, row)
    else:
        row[0] = op
        row[1] = 0
        row[2] = 0
        row[3] = 0
        if op == vector.ENV_IMEM:
            row[1] = field(words, V_IMEM_ADDR)
            row[3] = field(words, V_IMEM_WORD)
        elif op == vector.ENV_DESC:
            row[1] = field(words, V_DESC_AD)
            row[2] = field(words, V_DESC_FLD)
            row[3] = field(words, V_DESC_VALUE)
        elif op == vector.ENV_RUN:
            row[1] = field(words, V_RUN_PC)
    head = words[4:5]
    meta[u, at, Q_TXN] = field(head, H_TXN)
    meta[u, at, Q_LAST] = field(head, H_LAST)
    meta[u, at, Q_INDEX] = index


@leaf
def answer(unit: Any, count: Any, limits: Any, u: int, index: int) -> int:
    """The value of a CU_CTRL index (datasheet 4.2); indexes it does not list read 0."""
    low = np.int64(0xFFFFFFFF)
    if index == flit.CAPS_INDEX:
        return limits[L_CAPS_MG + unit[u, U_KIND]]
    if index == flit.STATUS_INDEX:
        busy = np.int64(unit[u, U_COUNT] > 0)
        return busy << 63 | ((limits[L_FIFO] - unit[u, U_COUNT]) & 0xFFFF) << 32
    if index == flit.COUNTERS_INDEX:
        return count[u, C_RETIRED] << 32 | (count[u, C_BUSY] & low)
    if index == flit.DEBUG_INDEX:
        return count[u, C_HIGH] << 32 | (count[u, C_LOW] & low)
    if index == flit.NUM_INDEX:
        return count[u, C_SATURATED] << 32 | (count[u, C_NONFINITE] & low)
    return 0


@leaf
def control(run: Any, agent: Any, rx: Any, m: int, words: Any, src: int, node: int, value: int) -> None:
    """The reply to a CU_CTRL request of `src` to `node` waits in the agent's RX FIFO."""
    count = run[m, R_RX_COUNT]
    if count == RX_FLITS:
        agent[m, reg.RX_STATUS // W] |= RX_OVERFLOW
        return
    run[m, R_RX_COUNT] = count + 1
    reply = rx[m, (run[m, R_RX_HEAD] + count) % RX_FLITS]
    # index [247:240] lies in word 3, value [239:176] across words 3 and 2.
    high = (value >> (192 - C_VALUE_BIT)) & ((np.int64(1) << (C_VALUE_BIT - 128)) - 1)
    reply[0] = 0
    reply[1] = 0
    reply[2] = value << (C_VALUE_BIT - 128)
    reply[3] = C_REPLY_HIGH | field(words, C_INDEX) << (C_INDEX_BIT - 192) | high
    reply[4] = (
        (src & 15) << HEADER_PUT_X
        | (src >> 4) << HEADER_PUT_Y
        | (node & 15) << HEADER_PUT_SRC_X
        | (node >> 4) << HEADER_PUT_SRC_Y
        | flit.CU_CTRL << HEADER_PUT_TYPE
        | field(words[4:5], H_TXN) << HEADER_PUT_TXN
        | 1 << HEADER_PUT_LAST
    )
    publish_rx(run, agent, rx, m)


@leaf
def data_flit(unit: Any, burst: Any, stop: Any, out: Any, m: int, u: int, words: Any, src: int) -> int:
    """A CU_DATA flit of a host reaches unit u: the descriptor first, then its data. The last one makes the
    burst whole: it goes to `out`, to be delivered like a unit's. Returns 0, 2 to stop, 3 when it is whole."""
    if unit[u, U_OPEN] == 0:
        unit[u, U_OPEN] = src + 1
        unit[u, U_BUF] = field(words, D_BUF)
        unit[u, U_OFFSET] = field(words, D_OFFSET)
        unit[u, U_LENGTH] = field(words, D_LEN) + 1
        unit[u, U_GOT] = 0
        unit[u, U_FLAGS] = field(words, D_ACK)
        unit[u, U_ACK] = field(words, D_ACK_Y) << 4 | field(words, D_ACK_X)
        return 0
    node = unit[u, U_NODE]
    if unit[u, U_OPEN] != src + 1:
        return halt(stop, -1 - m, E_BURST, m << 8 | node, 0, 0)
    got = unit[u, U_GOT]
    for w in range(4):
        burst[u, got, w] = np.uint64(words[w])
    unit[u, U_GOT] = got + 1
    if got + 1 < unit[u, U_LENGTH]:
        return 0
    unit[u, U_OPEN] = 0
    ack = unit[u, U_ACK] if unit[u, U_ACK] != 0 else src
    head = out.head[0]
    head[0] = m
    head[1] = node & 15
    head[2] = node >> 4
    head[3] = unit[u, U_BUF]
    head[4] = unit[u, U_OFFSET]
    head[5] = got + 1
    head[6] = unit[u, U_FLAGS]
    head[7] = ack & 15
    head[8] = ack >> 4
    head[9] = 0
    for i in range(got + 1):
        for w in range(4):
            out.data[i, w] = burst[u, i, w]
    out.used[0] = 1
    out.used[1] = got + 1
    return 3


@leaf
def send(ctl: Any, out: Any, m: int) -> int:
    """One flit of mesh m's agent: the raw one if one waits, else the next of the running program.

    The dispatcher rewrites both ends of a staged flit; a raw flit names them itself, and a raw instruction costs a
    credit where one is left, as its completion will return one. Returns 0 when it went out, 1 on a stall, 2 to
    stop, 3 when it made a burst whole in `out`.
    """
    run, unit = ctl.run, ctl.unit
    raw = run[m, R_TX] != 0
    slot, left = run[m, R_SLOT], run[m, R_LEFT]
    at = reg.TX_FLIT // W if raw else STAGE + SLOT * slot
    if not raw and slot + left > ctl.limits[L_SLOTS]:
        return halt(ctl.stop, -1 - m, E_STAGE, slot, left, ctl.limits[L_SLOTS])
    words = ctl.agent[m, at : at + SLOT]
    head = words[4:5]
    kind = field(head, H_TYPE)
    instruction = kind == flit.CU_INST
    if instruction and not raw and run[m, R_CREDIT] == 0:
        return 1
    node, src, index = run[m, R_NODE], run[m, R_AGENT], run[m, R_INDEX]
    if raw:
        run[m, R_TX] = 0
        node = field(head, H_DST_Y) << 4 | field(head, H_DST_X)
        src = field(head, H_SRC_Y) << 4 | field(head, H_SRC_X)
        index = np.int64(-1)
    u, here, code = ctl.node[m, node], m << 8 | node, 0
    if u < 0:
        return halt(ctl.stop, -1 - m, E_NO_UNIT, here, kind, 0)
    if instruction:
        if unit[u, U_COUNT] == ctl.limits[L_FIFO]:
            return halt(ctl.stop, -1 - m, E_QUEUE, here, ctl.limits[L_FIFO], 0) if raw else 1
        enqueue(ctl, u, words, index)
        if run[m, R_CREDIT] > 0:
            run[m, R_CREDIT] -= 1
    elif kind == flit.CU_CTRL:
        # A request (op 0) is answered to its source; only an agent keeps answers.
        if (words[3] >> 56) & 0xFF == 0 and ctl.node[m, src] == AGENT_NODE:
            value = answer(unit, ctl.counts, ctl.limits, u, field(words, C_INDEX))
            control(run, ctl.agent, ctl.rx, m, words, src, node, value)
    elif kind == flit.CU_DATA:
        code = data_flit(unit, ctl.burst, ctl.stop, out, m, u, words, src)
        if code == 2:
            return 2
    else:
        return halt(ctl.stop, -1 - m, E_FLIT_TYPE, here, kind, 0)
    if not raw:
        run[m, R_SLOT] = slot + 1
        run[m, R_INDEX] += 1
        run[m, R_LEFT] = left - 1
        if left == 1:
            run[m, R_RUNNING] = 0
    publish(run, ctl.agent, m)
    return code


@leaf
def address(node_table: Any, unit: Any, stop: Any, head: Any, sender: int) -> Any:
    """The unit that a burst, head int64[10] of an Outbox, is for, or -1 to stop. `sender` is a row of
    Control.unit, or -1 - mesh for an agent."""
    mesh, node, buf = head[0], head[2] << 4 | head[1], head[3]
    inside = 0 <= mesh < node_table.shape[0] and 0 <= node < 256
    u = node_table[mesh, node] if inside else np.int64(FREE_NODE)
    taken = u >= 0 and 0 <= buf < 63 and (unit[u, U_TAKES] >> buf) & 1 != 0
    if taken and unit[u, U_KIND] == 0 and (buf == flit.BUF_MG_A or buf == flit.BUF_MG_B):
        # A cluster's sub-tiles fit only another's resident tile: FP16 is no L1 entry (datasheet 5.6).
        taken = sender < 0 or unit[sender, U_KIND] != 0
    if not taken:
        halt(stop, sender, E_NODE, mesh << 8 | node, buf, 0)
        return -1
    if unit[u, U_OPEN] != 0:
        halt(stop, sender, E_BURST, mesh << 8 | node, 0, 0)
        return -1
    unit[u, U_BLOCKED] = 0
    return u


@leaf
def received(ctl: Any, head: Any, sender: int, u: int, code: int) -> int:
    """What follows a burst that unit u was given: its acknowledgement, its fault, or a stop. Returns 0 or 2.

    A burst that does not fit is dropped and becomes a fault at the unit's next retirement, and is still
    acknowledged (datasheet 4.2); a vector core keeps that fault itself. DATA_RECEIVED goes to the named target,
    or to the source where none is named: a unit ignores it, an agent counts.
    """
    unit = ctl.unit
    mesh, buf, offset = head[0], head[3], head[4]
    if unit[u, U_KIND] == 0 and code == FAULT_CUDATA:
        unit[u, U_PENDING] = code
    elif code != 0:
        tile = buf == flit.BUF_MG_TILE or buf == flit.BUF_MG_TILE_1
        first = offset // 2 if tile else offset // 4
        side = first if tile else buf
        return halt(ctl.stop, sender, code, side, first, (head[5] + 3) // 4)
    if head[6] & 1:
        ack = head[8] << 4 | head[7]
        if ack == 0:
            ack = unit[sender, U_NODE] if sender >= 0 else ctl.run[mesh, R_AGENT]
        if ctl.node[mesh, ack] == AGENT_NODE:
            signal(ctl.run, ctl.agent, mesh, unit[u, U_NODE], flit.DATA_RECEIVED, buf)
    return 0
