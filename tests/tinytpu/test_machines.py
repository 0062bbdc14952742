"""The datasheet's parameters, and what a machine of this family cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel import graph
from kohakuaccel.cli.doctor import facts_of
from kohakuaccel.diagnostics import DefinitionError
from tinytpu import commands, machines
from tinytpu.cores.gemm import gemm
from tinytpu.lower import compile_graph
from tinytpu.machines.choice import choosing

SHEET = {
    "rows": 4,
    "columns": 4,
    "vmem_tiles": 32,
    "wmem_tiles": 32,
    "amem_vectors": 32,
    "vregs": 16,
    "psum_buckets": 8,
    "program_words": 256,
    "loop_depth": 4,
    "max_outputs": 31,
    "tiles_max": 31,
    "cycle_limit": 50000,
    "clock_mhz": 100,
    "noc_packets": 1,
    "noc_packet_words": 4,
    "noc_inbox": 8,
    "host_links": 1,
}


def test_the_default_machine_is_the_sheets() -> None:
    machine = machines.load()
    assert machine.params.as_dict() == SHEET
    assert facts_of(machine) == ("1 CORE", "on chip")
    assert commands.peak(machine) == "16 MAC/cycle of int8"


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"rows": 8}, "a tile is square: .*; got 4; the limit is 8, as rows"),
        ({"rows": 3, "columns": 3}, "a row is whole pairs: .*; got 3"),
        ({"vregs": 0}, "params.vregs: out of range; got 0"),
    ],
)
def test_a_machine_that_cannot_be(params: dict[str, int], text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        machines.load().with_(params=params)


def test_a_packet_takes_a_cycle() -> None:
    with pytest.raises(DefinitionError, match=r"timing\.noc_remote: a packet takes a cycle; got 0"):
        machines.load().with_(timing={"noc_remote": 0})


def test_presets_load() -> None:
    assert {name: machines.load(name).params.rows for name in machines.names()} == {"tinytpu_4x4": 4, "tinytpu_8x8": 8}


def test_a_graph_without_a_machine_takes_the_chosen_one() -> None:
    text = graph.parse("input a: S32[64]\no: S32[i<64] = a[i] + a[i]\noutput o")
    big, ones = machines.load("tinytpu_8x8"), np.ones((8, 8), np.int8)
    with choosing(big):
        assert compile_graph(text).machine == big
        assert gemm(ones, ones).cycles == gemm(ones, ones, big).cycles != gemm(ones, ones, machines.load()).cycles
    assert compile_graph(text).machine.name == machines.DEFAULT
