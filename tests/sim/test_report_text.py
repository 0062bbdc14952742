"""The report's text: limiters, roofline, levels, instructions, word for word, for a machine that does not exist."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.sim import Stage, Timeline, joined
from kohakuaccel.sim.report import place_of, plain, stage_tables, tables
from kohakuaccel.sim.summary import place, roofs_of
from sim.report_case import case

WHOLE = """\
layer on toy: 1,000 cycles = 10.0 us at 100 MHz (modelled, not measured)

stages
#  stage           times  cycles  of run  rounds  limiter             it waited for                next fullest
0  matmul stage 0      1     600  60.0 %       1  port 0 read 83.3 %  nothing (others for it: 30)  MG(1,1) 13.3 %
     layer.py:12
1  silu stage 0        1     400  40.0 %       2  VC(1,0) 95.0 %      dispatcher, 5.0 %            nothing
     layer.py:20

roofline
  512 MAC/cycle, 32 B/cycle (port), ridge at 16 MAC/B
  16 FLOP/cycle, 32 B/cycle (port), ridge at 0.5 FLOP/B
#  stage           intensity         attained     roof there  of roof  bound by
0  matmul stage 0    8 MAC/B    109 MAC/cycle  256 MAC/cycle   42.7 %  memory
1  silu stage 0     3 FLOP/B  15.4 FLOP/cycle  16 FLOP/cycle   96.0 %  compute

bytes moved
memory level  bytes  B/cycle
DRAM read     9,216     9.22
DRAM written  1,024     1.02
L1 filled     8,192     8.19

instructions by time, all units together
cycles  times  instruction
   380      1  RUN 0
   298      1  FILL B 16
   220      1  FILL A 8
    80      1  GEMM 4x4x2

fullest units and resources
which          full  its cycles
port 0 read  50.0 %  serve 50.0 %, idle 50.0 %
VC(1,0)      38.0 %  compute 38.0 %, wait 2.0 %, idle 60.0 %
MG(1,1)       8.0 %  compute 8.0 %, wait 3.0 %, filling 48.8 %, idle 40.2 %

waited for, all units together
what         cycles
port 0 read      30
dispatcher       20

host link, not in the cycles above: 100 cycles (staging 40, data in 60)
counted: rounds 3, flits 12
assumed: L = 30
"""

STAGE = """\
layer on toy (modelled, not measured)

stages
#  stage           times  cycles  of run  rounds  limiter             it waited for                next fullest
0  matmul stage 0      1     600  60.0 %       1  port 0 read 83.3 %  nothing (others for it: 30)  MG(1,1) 13.3 %
     layer.py:12

its line: layer.py:12  acc += x[i, k] @ w[j, k]

roofline
  512 MAC/cycle, 32 B/cycle (port), ridge at 16 MAC/B
  16 FLOP/cycle, 32 B/cycle (port), ridge at 0.5 FLOP/B
#  stage           intensity       attained     roof there  of roof  bound by
0  matmul stage 0    8 MAC/B  109 MAC/cycle  256 MAC/cycle   42.7 %  memory

units and resources that worked
which          full  its cycles
port 0 read  83.3 %  serve 83.3 %, idle 16.7 %
MG(1,1)      13.3 %  compute 13.3 %, wait 5.0 %, filling 81.3 %, idle 0.3 %

waited for
what         cycles
port 0 read      30

instructions by time, all units together
cycles  times  instruction
   298      1  FILL B 16
   220      1  FILL A 8
    80      1  GEMM 4x4x2
"""


def test_the_report_word_for_word() -> None:
    t = case()
    t.check()
    assert t.report() == WHOLE.rstrip("\n")


def test_one_stage_word_for_word() -> None:
    assert plain(stage_tables(case().summary(), 0)) == STAGE.rstrip("\n")


@pytest.mark.parametrize("number", [-1, 2])
def test_a_stage_that_is_not_there(number: int) -> None:
    with pytest.raises(Refusal, match=rf"number of the stage table; got {number}; the limit is 0\.\.1"):
        stage_tables(case().summary(), number)


def test_the_fullest_group_is_the_limiter_and_its_waits_are_its_own() -> None:
    summary = case().summary()
    first, second = summary.stages
    assert first.limiter is not None
    assert (first.limiter.group, first.limiter.busy, first.own) == ("port 0 read", 500, {})
    assert second.limiter is not None
    assert (second.limiter.group, second.limiter.busy, second.own) == ("VC(1,0)", 380, {"dispatcher": 20})
    assert summary.whole.waits == {"port 0 read": 30, "dispatcher": 20}
    assert sum(s.cycles for s in summary.stages) == summary.whole.cycles == 1000


def test_stages_under_the_roof() -> None:
    """Worked by hand: 65,536 MAC over 8,192 B are 8 MAC/B; 32 B/cycle allow 256 MAC/cycle there."""
    first, second = (s.placement for s in case().summary().stages)
    assert first is not None
    assert (first.intensity, first.attained, first.limit, first.bound) == (8, 65_536 / 600, 256, "memory")
    assert first.roof.ridge == 16
    assert second is not None
    assert (second.intensity, second.limit, second.bound, second.roof.unit) == (3, 16, "compute", "FLOP")
    assert second.fraction == 6_144 / 400 / 16


def test_what_cannot_be_placed() -> None:
    roofs = roofs_of(case().peaks)
    stage = Stage("x", 0, 10, 1)
    assert place(stage, roofs) is None
    assert place(replace(stage, macs=4), {}) is None
    assert place(replace(stage, end=0, macs=4), roofs) is None
    inside = place(replace(stage, macs=4), roofs)
    assert inside is not None
    assert (inside.intensity, inside.bound, inside.limit) == (math.inf, "compute", 512)
    assert roofs_of({"MAC/cycle": 4.0}) == {}
    assert set(roofs_of({"MAC/cycle": 4.0, "port B/cycle": 2.0})) == {"MAC"}


def test_stages_that_are_left_out_are_counted() -> None:
    summary = case().summary()
    short = plain(tables(summary, stages=1))
    assert "1 shorter stage is not shown: 400 cycles, 40.0 % of the run" in short
    assert "silu stage 0" not in short
    assert "not shown" not in plain(tables(summary, stages=None))


def test_a_repeated_launch_takes_one_row() -> None:
    t = joined([case(), case(), case()], "thrice")
    text = plain(tables(t.summary(), stages=1))
    (row,) = [line for line in text.split("roofline")[0].splitlines() if line.startswith("0  layer matmul stage 0")]
    assert row.split()[5:9] == ["3", "600", "60.0", "%"]
    assert "3 shorter stages are not shown: 1,200 cycles, 40.0 % of the run" in text


def test_a_timeline_without_work_or_levels_says_so() -> None:
    t = Timeline("empty", "toy", 100, ("work",), ("work",), stages=[Stage("nothing ran", 0, 0, 0)])
    text = t.report()
    assert "nothing ran" in text
    assert "no work, traffic or peaks" in text
    assert "assumed: nothing" in text
    assert place_of(None) == ""


def test_an_odd_text_is_shown_as_it_is() -> None:
    """Texts hold brackets, which a table must not take for its own mark-up."""
    t = case()
    spans = list(t.spans)
    spans[5] = spans[5]._replace(text="GEMM [bold]4[/bold]")
    t.spans = spans
    t.host["[red]odd[/red]"] = 1
    assert "GEMM [bold]4[/bold]" in t.report()
    assert "[red]odd[/red] 1" in t.report()
