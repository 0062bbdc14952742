"""A small timeline of a machine that does not exist, with every field filled: what the report's golden texts show."""

from __future__ import annotations

from kohakuaccel.diagnostics import SourceLine
from kohakuaccel.sim import Flow, Span, Stage, Timeline

KINDS = ("compute", "wait", "filling", "serve")


def case() -> Timeline:
    """Two stages: one that a matrix unit computes, bound by its port, and one of a vector unit, bound by itself."""
    t = Timeline("layer", "toy", 100, KINDS, ("compute", "serve"), cycles=1000)
    port, control, array = t.track("port 0 read"), t.track("MG(1,1)"), t.track("MG(1,1) array", "MG(1,1)")
    vector = t.track("VC(1,0)")
    t.sources += [SourceLine("layer.py", 12, "acc += x[i, k] @ w[j, k]"), SourceLine("layer.py", 20, "y <<= silu(x)")]
    t.spans = [
        Span(port, 10, 210, "serve", "MG(1,1) FILL A 8", line=0),
        Span(port, 210, 510, "serve", "MG(1,1) FILL B 16", line=0),
        Span(control, 0, 220, "filling", "FILL A 8", line=0),
        Span(control, 222, 520, "filling", "FILL B 16", line=0),
        Span(control, 230, 260, "wait", "port busy", "port 0 read", line=0),
        Span(array, 520, 600, "compute", "GEMM 4x4x2", line=0),
        Span(vector, 600, 980, "compute", "RUN 0", line=1),
        Span(vector, 980, 1000, "wait", "no instruction", "dispatcher"),
    ]
    t.stages += [
        Stage("matmul stage 0", 0, 600, 1, t.sources[0], macs=65_536, nbytes=8_192),
        Stage("silu stage 0", 600, 1000, 2, t.sources[1], flops=6_144, nbytes=2_048),
    ]
    t.host = {"staging": 40, "data in": 60}
    t.counters = {"rounds": 3, "flits": 12}
    t.assumed = ("L = 30",)
    t.flows = [
        Flow("A", control, 220, array, 520),
        Flow("B", control, 520, array, 520),
    ]
    t.series = {"port 0 read B/cycle": [(0, 0.0), (10, 16.0), (510, 0.0), (600, 5.0), (980, 0.0)]}
    t.levels = {"DRAM read": 9_216, "DRAM written": 1_024, "L1 filled": 8_192}
    t.peaks = {"MAC/cycle": 512.0, "FLOP/cycle": 16.0, "port B/cycle": 32.0, "DRAM B/cycle": 64.0}
    t.texts = {
        "matmul/trace": "kernel matmul\n  s0  sweep k: acc += x[i,k] @ w[j,k]    layer.py:12",
        "matmul/schedule": "schedule matmul on toy\n  stage 0  MG  grid 1x1",
        "matmul/program": "program matmul on toy: 4 instructions\n    FILL A 8  ; layer.py:12",
        "silu/schedule": "schedule silu on toy\n  stage 0  VC  1 batch",
    }
    return t
