"""Flits (datasheet 4): the header, the flit types, message payloads, signals, and a staged flit's words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.isa import Field, Format

MEM_RD_REQ, MEM_WR_REQ, MEM_RD_RESP, MEM_WR_ACK, MEM_WR_DATA = 0, 1, 2, 3, 4
CU_INST, CU_SIGNAL, CU_CTRL, CU_DATA, FETCH_READY = 5, 6, 7, 8, 9
TYPES = {
    "MEM_RD_REQ": MEM_RD_REQ,
    "MEM_WR_REQ": MEM_WR_REQ,
    "MEM_RD_RESP": MEM_RD_RESP,
    "MEM_WR_ACK": MEM_WR_ACK,
    "MEM_WR_DATA": MEM_WR_DATA,
    "CU_INST": CU_INST,
    "CU_SIGNAL": CU_SIGNAL,
    "CU_CTRL": CU_CTRL,
    "CU_DATA": CU_DATA,
    "FETCH_READY": FETCH_READY,
}

# Bits 287:256 of a flit as a 32-bit word. `mesh` is the destination mesh when `remote` is set, the word index
# on a MEM_RD_RESP, else 0.
HEADER = Format(
    "HEADER",
    32,
    [
        Field("dst_x", (31, 28)),
        Field("dst_y", (27, 24)),
        Field("src_x", (23, 20)),
        Field("src_y", (19, 16)),
        Field("type", (15, 12), values=TYPES),
        Field("txn", (11, 4), style="x"),
        Field("last", 3),
        Field("remote", 2, doc="the destination is in another mesh"),
        Field("mesh", (1, 0), doc="destination mesh when remote; word index on MEM_RD_RESP"),
    ],
)

READ_REQUEST = Format(
    "MEM_RD_REQ",
    256,
    [
        Field("addr", (255, 216), style="x", doc="byte address"),
        Field("len", (215, 208), doc="words - 1 of a plain read"),
        Field("quant", 204, doc="quantise"),
        Field("blayout", 205, doc="B order"),
        Field("stream", 206, doc="stream of entries"),
        Field("count", (199, 192), doc="entries, 0 reads as 1"),
        Field("peers", (191, 168), style="x", doc="three {y,x} bytes, peer 0 lowest"),
        Field("n_peer", (167, 166)),
        Field("entry_words", (165, 158), doc="0 or > 4 means 4; ignored with quant"),
    ],
    {207: 0, (203, 200): 0, (157, 0): 0},
)
WRITE_REQUEST = Format(
    "MEM_WR_REQ",
    256,
    [Field("addr", (255, 216), style="x"), Field("len", (215, 208), values=range(8), doc="words - 1")],
    {(207, 0): 0},
)
SIGNALS = {"INST_COMPLETE": 0, "BATCH_COMPLETE": 1, "DATA_RECEIVED": 3, "FAULT": 4}
INST_COMPLETE, BATCH_COMPLETE, DATA_RECEIVED, FAULT = 0, 1, 3, 4
SIGNAL = Format("CU_SIGNAL", 256, [Field("code", (255, 248)), Field("arg", (247, 216), style="x")], {(215, 0): 0})
DATA = Format(
    "CU_DATA",
    256,
    [
        Field("buf", (255, 248), doc="buffer id of the receiver"),
        Field("offset", (247, 232), doc="first granule of 32 bytes"),
        Field("len", (231, 224), doc="data flits - 1"),
        Field("ack", 216, doc="the receiver acknowledges"),
        Field("ack_y", (215, 212)),
        Field("ack_x", (211, 208), doc="(0,0) = the descriptor's source"),
    ],
    {(223, 217): 0, (207, 0): 0},
)
READY = Format("FETCH_READY", 256, [Field("tag", (255, 248), doc="share tag")], {(247, 0): 0})
"""A member of a shared FILL to its leader (datasheet 10, r2_multicast)."""
CONTROL_REQUEST = Format("CU_CTRL_REQUEST", 256, [Field("index", (247, 240))], {(255, 248): 0, (239, 0): 0})
CONTROL_REPLY = Format(
    "CU_CTRL_REPLY",
    256,
    [Field("index", (247, 240)), Field("value", (239, 176), style="x")],
    {(255, 248): 2, (175, 0): 0},
)
PAYLOADS = {
    "MEM_RD_REQ": READ_REQUEST,
    "MEM_WR_REQ": WRITE_REQUEST,
    "CU_SIGNAL": SIGNAL,
    "CU_DATA": DATA,
    "CU_CTRL_REQUEST": CONTROL_REQUEST,
    "CU_CTRL_REPLY": CONTROL_REPLY,
}

CAPS_INDEX, STATUS_INDEX, COUNTERS_INDEX, DEBUG_INDEX, NUM_INDEX = 0, 1, 2, 3, 4
TYPE_CODES = {"MG": 0x4D47, "VC": 0x5643}
CAPS = Format(
    "CU_CAPS",
    64,
    [
        Field("type", (63, 48), values=TYPE_CODES),
        Field("version", (47, 40), doc="r1 = 4, r2 = 5"),
        Field("buffers", (39, 36), doc="MG 3, VC 1"),
        Field("inst_fifo", (35, 20)),
        Field("r2", (19, 0), style="x", doc="bits 0..5: the r2 flags, version 5 only"),
    ],
)
STATUS = Format("CU_STATUS", 64, [Field("busy", 63), Field("free", (47, 32))], {(62, 48): 0, (31, 0): 0})
COUNTERS = Format("CU_COUNTERS", 64, [Field("retired", (63, 32)), Field("busy", (31, 0))])
DEBUG = Format("CU_DBG", 64, [Field("high", (63, 32)), Field("low", (31, 0))])
NUM = Format("CU_NUM", 64, [Field("saturated", (63, 32)), Field("nonfinite", (31, 0))])

# Buffer ids of CU_DATA.
BUF_MG_A, BUF_MG_B, BUF_MG_TILE, BUF_MG_TILE_1 = 0, 1, 2, 5
BUF_VC_L1 = 0
BUF_FP22 = BUF_MG_TILE  # FP22 sub-tiles: added to a cluster's tile, or held as FP32 by a vector core (r2_acc_to_vc)


def stage(
    header: int | NDArray[np.uint32] | NDArray[np.uint64], payload: int | NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """The five 64-bit words of staged flits, low word first, word 4 = bits 287:256.

    header: a number or [n]; payload: a number, uint64[4] or uint64[n, 4]. Returns uint64[5] or uint64[n, 5].
    """
    if isinstance(payload, int):
        payload = np.frombuffer(payload.to_bytes(32, "little"), np.uint64)
    heads = np.asarray(header, np.uint64)
    if payload.ndim == 1 and heads.ndim == 0:
        return np.append(payload, heads[None])
    n = len(payload) if payload.ndim == 2 else len(heads)
    out = np.empty((n, 5), np.uint64)
    out[:, :4] = payload
    out[:, 4] = heads
    return out
