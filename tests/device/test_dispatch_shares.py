"""Rounds of programs with shared fills: which meetings there are, how windows are cut, what is refused."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.image import EncodedProgram, Image
from kohakuaccel.machine import Machine, Unit
from kohakutpu.device import Device
from kohakutpu.dispatch import Limits, Loader
from kohakutpu.dispatch.shares import closed, crews, meetings
from kohakutpu.isa import cluster
from kohakutpu.machines import load

SHIP = load("ship_3x2").with_(name="r2", features={"r2_multicast": True, "r2_bank_plan": True})
MG = SHIP.units_of("MG")


def share(unit: Unit, others: list[Unit], tag: int, **fields: int) -> str:
    peers = sum((u.y << 4 | u.x) << 8 * i for i, u in enumerate(others))
    words = {"addr": 0, "n": 1, "eoff": tag % 256, **fields}
    text = " ".join(f"{name}={value}" for name, value in words.items())
    return f"FILL {text} peers={peers:#x} npeer={len(others)} tag={tag}"


def program(unit: Unit, lines: list[str]) -> EncodedProgram:
    return EncodedProgram(unit, cluster.assemble("\n".join(lines)))


def pair(first: list[str], second: list[str]) -> list[EncodedProgram]:
    return [program(MG[0], first), program(MG[1], second)]


def test_meetings_in_an_order_in_which_they_happen() -> None:
    a = [share(MG[0], [MG[1]], 1), "FILL n=1 fbank", share(MG[0], [MG[1]], 2)]
    b = ["FILL n=1 fbank", share(MG[1], [MG[0]], 1), share(MG[1], [MG[0]], 2)]
    assert [m.at for m in meetings(pair(a, b))] == [{0: 0, 1: 1}, {0: 2, 1: 2}]
    assert meetings(pair(["FILL n=1"], ["FILL n=1"])) == []


def test_streams_that_cannot_meet_are_refused_with_names() -> None:
    crossed = pair(
        [share(MG[0], [MG[1]], 1), share(MG[0], [MG[1]], 2)], [share(MG[1], [MG[0]], 2), share(MG[1], [MG[0]], 1)]
    )
    with pytest.raises(Refusal, match="meet in one order") as caught:
        meetings(crossed)
    assert "MG(1,1) instruction 0 (tag 1) waits for (2,1); MG(2,1) instruction 0 (tag 2) waits for (1,1)" in str(
        caught.value
    )
    with pytest.raises(Refusal, match=r"waits for \(1,2\)"):
        meetings(pair([share(MG[0], [MG[2]], 1)], ["FILL n=1"]))
    with pytest.raises(Refusal, match=r"name one addr.*0x0 and 0x100"):
        meetings(pair([share(MG[0], [MG[1]], 1)], [share(MG[1], [MG[0]], 1, addr=256)]))
    image = Image("r2", (tuple(crossed),))
    with pytest.raises(Refusal, match="meet in one order"):
        Loader(SHIP).rounds(image)


def test_windows_are_closed_under_meetings() -> None:
    a = ["FILL n=1 fbank"] * 4 + [share(MG[0], [MG[1]], 1), "FILL n=1 fbank"]
    b = [share(MG[1], [MG[0]], 1), *["FILL n=1 fbank"] * 5]
    met = meetings(pair(a, b))
    assert closed({0: 0, 1: 0}, {0: 3, 1: 3}, met) == {0: 3, 1: 0}
    assert closed({0: 3, 1: 0}, {0: 6, 1: 3}, met) == {0: 6, 1: 3}
    assert crews([0, 1, 2], met) == [[0, 1], [2]]


def random_stage(rng: Random, machine: Machine, length: int) -> list[EncodedProgram]:
    """Streams of all clusters in which random sets meet again and again."""
    units = machine.units_of("MG")
    lines: list[list[str]] = [[] for _ in units]
    for tag in range(length):
        members = rng.sample(range(len(units)), rng.randrange(1, 5))
        for m in members:
            others = [units[k] for k in members if k != m]
            rng.shuffle(others)
            lines[m] += ["FILL n=1 sel=B"] * rng.choice([0, 0, 1, 5])
            lines[m].append(share(units[m], others, tag % 256) if others else "FILL n=1 fbank")
    return [program(u, some) for u, some in zip(units, lines) if some]


@pytest.mark.parametrize("seed", range(4))
def test_random_companies_run_to_their_end(seed: int) -> None:
    """Whatever the credit and the staging RAM: no round hangs, and every instruction is executed."""
    rng = Random(seed)
    fifo, flits = rng.choice([(8, 12), (16, 40), (32, 128)])
    machine = SHIP.with_(params={"inst_fifo": fifo, "stage_flits": flits, "ncmd": 128})
    device = Device(machine)
    device.upload(device.alloc(4096), np.ones(4096, np.uint8))
    stage = random_stage(rng, machine, 40)
    image = Image(machine.name, (tuple(stage),))
    rounds = Loader(machine).rounds(image)
    assert all(len(r.staging) <= flits and len(r.windows) < Limits.of(machine).credit for r in rounds)
    device.run(image)
    for one in stage:
        assert device.control_value(one.unit, 2) >> 32 == len(one)


def test_a_round_that_cannot_hold_the_members_is_refused() -> None:
    machine = SHIP.with_(params={"stage_flits": 1})
    image = Image(machine.name, (tuple(pair([share(MG[0], [MG[1]], 1)], [share(MG[1], [MG[0]], 1)])),))
    with pytest.raises(Refusal, match="one instruction of every member"):
        Loader(machine).rounds(image)
