"""Traces of runs against what the datasheet's cycle rules say (10, 16), and the strict parser."""

from __future__ import annotations

import re

import pytest

from kohakuaccel.diagnostics import Refusal
from tinytpu import machines
from tinytpu.asm import assemble
from tinytpu.runner import run
from tinytpu.trace import Event, dump, events, parse, timeline
from tinytpu.units.core import Run

M = machines.load()
DATA = "VMEM[0] =" + " 1" * 16 + "\nWMEM[0] =" + " 1" * 16 + "\n" + "".join(f"AMEM[{i}] = 1 2 3 4\n" for i in range(4))
RECORDS = 6


def logged(program: str) -> tuple[Run, int]:
    """A run, and the cycle of its first FETCH: 2r + 3 for r records (datasheet 10.6)."""
    lines = [line.strip() for line in program.strip().splitlines()]
    first = 2 * (RECORDS + len(lines)) + 3
    return run(assemble(DATA + "\n".join(lines) + "\nEND", M), M, log=True), first


def found(
    program: str, unit: str, hide: tuple[str, ...] = ("FETCH", "HALT")
) -> list[tuple[int, str, dict[str, int | str]]]:
    """(cycle after the first FETCH, event, fields) of one unit."""
    done, first = logged(program)
    return [(e.cycle - first, e.ev, dict(e.fields)) for e in events(done) if e.unit == unit and e.ev not in hide]


def test_memory_and_vpu() -> None:
    program = "LOAD v1, VMEM[0]\nVPU v2 = ADD(v1, v1)\nSTORE VMEM[1], v2\nHALT\nOUTPUT_VMEM VMEM[1]"
    assert found(program, "SXU", ()) == [
        (0, "FETCH", {"pc": 0}),
        (1, "LOAD_REQ", {"addr": 0}),
        (2, "LOAD_RESP", {"dst": 1}),
        (3, "FETCH", {"pc": 1}),
        (4, "DISPATCH_VPU", {"op": "ADD"}),
        (5, "VPU_COLLECT", {"dst": 2}),
        (6, "FETCH", {"pc": 2}),
        (7, "STORE", {"addr": 1, "src": 2}),
        (8, "FETCH", {"pc": 3}),
        (8, "HALT", {}),
    ]
    assert found(program, "VPU") == [(4, "EXEC", {"op": "ADD"}), (5, "RESULT", {})]
    assert found(program, "VMEM") == [(1, "READ_REQ", {"addr": 0}), (2, "READ_RESP", {}), (7, "WRITE", {"addr": 1})]


def test_background_write_back() -> None:
    program = "VZERO v1\nVPU_BG v2 = COS(v1)\nVZERO v3\nVMOV v4, v2\nHALT"
    sequencer = found(program, "SXU")
    assert (3, "DISPATCH_VPU_BG", {"op": "COS"}) in sequencer
    written = next(cycle for cycle, ev, _ in sequencer if ev == "VPU_COLLECT")
    assert written >= 3 + 82  # L of COS
    assert next(cycle for cycle, ev, _ in sequencer if ev == "VMOV") == written + 1


def test_moves_and_select() -> None:
    program = "VZERO v1\nROTATE v2, v1, amount=3\nBROADCAST_SCALAR v2 = v1[3,2]\nSELECT v3 = SELECT(v1, v2, v1)\nHALT"
    assert found(program, "XLU") == [
        (3, "ROTATE", {"src": 1, "amount": 3}),
        (5, "BROADCAST_SCALAR", {"src": 1, "element": 14}),
    ]
    assert found(program, "VPU") == [(7, "EXEC", {"op": "COPY"}), (8, "EXEC", {"op": "SELECT"}), (9, "RESULT", {})]
    assert [e for e in found(program, "SXU") if e[1] == "XLU_COLLECT_BG"] == [
        (4, "XLU_COLLECT_BG", {"dst": 2}),
        (6, "XLU_COLLECT_BG", {"dst": 2}),
    ]


def test_a_weight_stationary_dispatch() -> None:
    """EXEC e: weight read e+1, first activation read e+2, feed e+3..e+T+R+1, drain at Done-1 = e+T+R+3 (10.2)."""
    program = "MXU WMEM[0], AMEM[0], tiles=2, psum_write=PSUM[3], psum_row=1\nWAIT_MXU\nHALT"
    assert found(program, "MXU") == [
        (2, "LOAD_W", {"addr": 0}),
        (3, "LOAD_W_RESP", {}),
        *((4 + i, "STREAM_A", {"cyc": i}) for i in range(5)),
        (10, "DRAIN", {}),
        (10, "PSUM_WRITE", {"addr": 3, "row": 1}),
    ]
    sequencer = found(program, "SXU")
    assert sequencer[0] == (
        1, "DISPATCH_MXU", {"wbase": 0, "abase": 0, "tlen": 2, "psum_mode": 1, "psum_addr": 3, "psum_row": 1},
    )  # fmt: skip
    assert [cycle for cycle, ev, _ in sequencer if ev == "WAIT_MXU"] == list(range(3, 12))


def test_an_output_stationary_dispatch() -> None:
    program = "MXU_OS WMEM[0], AMEM[1], k=3\nWAIT_MXU\nHALT"
    array = found(program, "MXU")
    assert [fields["slot"] for _, ev, fields in array if ev == "LOAD_A_OS"] == [1, 2, 3]
    assert sum(ev == "FEED_OS" for _, ev, _ in array) == 3 + 4 + 4 - 2
    assert (1 + 2 * 3 + 11 - 1, "DRAIN", {}) in array
    assert (3, "LOAD_W_RESP_OS", {}) in array


def test_epilogues_and_requantisation() -> None:
    program = (
        "MXU_EPILOGUE v1 = GEMM(WMEM[0], AMEM[0], tiles=1) DST_VREG\nSET_REQUANT_CONFIG scale_mul=-2 scale_shift=1\n"
        "DISPATCH_MXU_REQUANT WMEM[0] AMEM[0] tiles=1 ASRAM[9]\nWAIT_MXU\nHALT\nOUTPUT_ASRAM AMEM[9]"
    )
    sequencer = found(program, "SXU", ("FETCH", "HALT", "WAIT_MXU"))
    assert [ev for _, ev, _ in sequencer] == [
        "DISPATCH_MXU_EPILOGUE", "EPILOGUE_WAIT", "EPILOGUE_WRITE_BACK", "SET_REQUANT_CONFIG", "DISPATCH_MXU_REQUANT",
    ]  # fmt: skip
    assert sequencer[2][0] == 1 + 11 - 1
    assert sequencer[3][2] == {"mul": -2, "shift": 1}
    assert [fields for _, ev, fields in found(program, "MXU") if ev == "REQUANT"] == [{"slot": 9}]


def test_other_opcodes_by_name_with_their_fields() -> None:
    program = "LOOP_BEGIN count=2\nVFILL v1, imm=-1\nLOOP_END\nPSUM_CLEAR PSUM[2]\nHALT"
    assert [(ev, fields) for _, ev, fields in found(program, "SXU")] == [
        ("LOOP_BEGIN", {"tlen": 2}),
        ("VFILL", {"dst": 1, "imm": -1}),
        ("LOOP_END", {}),
        ("VFILL", {"dst": 1, "imm": -1}),
        ("LOOP_END", {}),
        ("PSUM_CLEAR", {"vmem": 2}),
    ]


def test_a_trace_reads_as_it_was_written() -> None:
    done, _ = logged("LOAD v1, VMEM[0]\nVPU v2 = EXP2(v1)\nMXU WMEM[0], AMEM[0], tiles=1\nWAIT_MXU\nHALT")
    trace = events(done)
    assert parse(dump(trace)) == trace
    assert str(Event(3, "SXU", "FETCH", {"pc": 7})) == "TRACE cycle=3 unit=SXU ev=FETCH pc=7"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        (" ", 1, "a trace line begins with TRACE"),
        ("TRACY cycle=1 unit=A ev=B", 1, "a trace line begins with TRACE"),
        ("TRACE cycle=1 unit=A", 21, "a trace line has cycle, unit and ev"),
        ("TRACE unit=A cycle=1 ev=B", 7, "begins with cycle, unit and ev; got unit; the limit is cycle"),
        ("TRACE cycle=x unit=A ev=B", 7, "a cycle is a whole number; got 'x'"),
        ("TRACE cycle=-1 unit=A ev=B", 7, "a cycle is a whole number"),
        ("TRACE cycle=1 unit= ev=B", 15, "key=value; got 'unit='"),
        ("TRACE cycle=1 unit=A ev=B pc", 27, "key=value; got 'pc'"),
        ("TRACE cycle=1 unit=A ev=B pc=1 pc=2", 32, "a key is written once; got pc"),
        ("TRACE cycle=0 unit=A ev=B", 1, "events stand in the order of their cycles; got 0; the limit is 1 or later"),
    ],
)
def test_a_line_that_is_none(text: str, column: int, message: str) -> None:
    with pytest.raises(Refusal, match=message) as caught:
        parse(f"TRACE cycle=1 unit=A ev=B\n{text}", "t.trace")
    assert str(caught.value).startswith("line 2: ")
    assert caught.value.source is not None
    assert (caught.value.source.line, caught.value.source.column) == (2, column)


def test_a_trace_needs_a_log() -> None:
    done = run(assemble("HALT\nEND", M), M)
    with pytest.raises(Refusal, match="a trace needs a log of the run"):
        events(done)


def test_the_timeline_says_who_was_busy_and_who_waited() -> None:
    done, first = logged(
        "LOAD v1, VMEM[0]\nVPU v2 = COS(v1)\nMXU WMEM[0], AMEM[0], tiles=1\nWAIT_MXU\nHALT\nOUTPUT_MXU"
    )
    spans = timeline(done, "p")
    spans.check()
    shares = {share.group: share for share in spans.shares()}
    # FETCH and EXEC follow each other: one span; those that a wait stands between are two.
    assert [s.end - s.start for s in spans.spans if s.text == "LOAD"] == [3]
    assert [s.end - s.start for s in spans.spans if s.text == "VPU COS" and s.kind == "work"] == [2, 1]
    assert shares["VPU"].busy == 82
    assert shares["MXU"].kinds["work"] == 4
    assert shares["SXU"].kinds["load"] == first
    assert spans.waits() == {"VPU": 81, "records": first, "MXU": 7, "result lines": 2}
    assert re.search(r"0  load .* nothing ran +records, 100\.0 % +nothing", spans.report())
    assert [stage.name for stage in spans.stages] == ["load", "execute", "output"]
    assert spans.cycles == done.cycles
    assert [source.text for source in spans.sources if "COS" in source.text] == ["VPU v2 = COS(v1)"]


def test_a_dispatch_that_outlives_the_run_ends_with_it() -> None:
    done, _ = logged("MXU WMEM[0], AMEM[0], tiles=1\nHALT")
    timeline(done).check()
