"""Figures of a network: what they say before a run is what the run counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from tinytpu.lower import Plan, compile_graph
from tinytpu.models.figures import Figures, figures, timeline_of
from tinytpu.models.layers import MaxPool
from tinytpu.models.network import Lowered, lowered
from tinytpu.models.quantisation import quantise
from tinytpu.models.train import conv, dense, drawn
from tinytpu.recording import recording
from tinytpu.trace.spans import UNITS

RNG = np.random.default_rng(4)
BATCH = 5


@pytest.fixture(scope="module")
def found() -> tuple[Lowered, Plan, Figures]:
    layers = drawn((conv("c", 1, 4), MaxPool("p"), dense("d", 36, 8), dense("e", 8, 3, relu=False)), 2)
    made = quantise(layers, RNG.normal(size=(20, 1, 6, 6)).astype(np.float32))
    graph = lowered(made, BATCH)
    plan = compile_graph(graph.graph)
    return graph, plan, figures(made, graph, plan)


def test_the_sum_is_what_a_run_counts(found: tuple[Lowered, Plan, Figures]) -> None:
    _, plan, told = found
    counts = plan.run({"x": RNG.integers(-128, 128, (BATCH, 1, 6, 6)).astype(np.int8)}).counts
    one = told.total.took
    assert (one.programs, one.cycles, one.instructions) == (counts.programs, counts.cycles, counts.instructions)
    assert (one.records, one.filled, one.nbytes) == (counts.records, counts.filled, counts.bytes)
    assert told.cycles == counts.cycles / BATCH


def test_layers_sum_up_to_all(found: tuple[Lowered, Plan, Figures]) -> None:
    _, _, told = found
    names = " + ".join(layer.name for layer in told.layers).split(" + ")
    assert list(dict.fromkeys(names)) == ["c", "p", "d", "e", "argmax"]
    for what in ("cycles", "records", "programs", "load", "nbytes", "macs"):
        assert sum(getattr(layer.took, what) for layer in told.layers) == getattr(told.total.took, what)
    assert sum(layer.macs for layer in told.layers) == told.total.macs == BATCH * (36 * 4 * 9 + 36 * 8 + 8 * 3)


def test_a_unit_works_no_more_than_all_cycles(found: tuple[Lowered, Plan, Figures]) -> None:
    _, _, told = found
    for layer in told.layers:
        assert all(0 <= layer.took.share(unit) < 1 for unit in UNITS)
        assert layer.took.share("SXU") > 0
        assert layer.macs <= told.peak * layer.took.cycles
    assert told.layers[0].took.share("MXU") > 0.1


def test_the_table_has_a_row_a_layer(found: tuple[Lowered, Plan, Figures]) -> None:
    _, _, told = found
    lines = told.text().splitlines()
    assert lines[0].split() == ["layer", "cycles", "of", "peak", "load", *UNITS, "records", "bytes"]
    assert len(lines) == len(told.layers) + 3
    assert lines[-2].split()[:2] == ["all", f"{told.cycles:,.0f}"]


def test_one_timeline_holds_every_program_under_its_layer(found: tuple[Lowered, Plan, Figures]) -> None:
    graph, plan, told = found
    with recording() as played:
        plan.run({"x": np.zeros((BATCH, 1, 6, 6), np.int8)})
    whole = timeline_of(graph, played, "network")
    assert whole.cycles == told.total.took.cycles
    assert {t.name for t in whole.tracks} == set(UNITS)
    each = Counter(stage.name.rpartition(" ")[0] for stage in whole.stages if stage.name.endswith(" execute"))
    assert each == {layer.name: layer.took.programs for layer in told.layers}
    busy = {share.group: share.busy for share in whole.shares()}
    assert busy == dict(told.total.took.busy)


def test_a_recording_of_something_else_is_refused(found: tuple[Lowered, Plan, Figures]) -> None:
    graph, plan, _ = found
    with pytest.raises(Refusal, match="a recording holds the programs of a run"):
        timeline_of(graph, [], "network")
    with recording() as played:
        plan.run({"x": np.zeros((BATCH, 1, 6, 6), np.int8)})
    with pytest.raises(Refusal, match="a program is of the network's statements; got other"):
        timeline_of(graph, [replace(played[0], name="other")], "network")
