"""The network between cores: against a slow second model, by closed formulas, and what it refuses (datasheet 1)."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import Fault, Hang, Refusal
from tinytpu.cores import Bundle, Move, Receive, Send, Slots, System
from tinytpu.cores.scripts import Places, Step
from tinytpu.isa.words import row_of
from tinytpu.machines import load
from tinytpu.units.core import Image
from tinytpu_rig.network import Slow

MACHINE = load()
LANES = 16
A = Slots("VMEM", 0, 5)
B = Slots("VMEM", 8, 5)


def full(seed: int) -> dict[Slots, Any]:
    """Something everywhere."""
    rng = np.random.default_rng(seed)
    return {
        Slots("VMEM", 0, 32): rng.integers(-(2**31), 2**31, (32, LANES)),
        Slots("WMEM", 0, 32): rng.integers(-128, 128, (32, LANES)),
        Slots("AMEM", 0, 32): rng.integers(-128, 128, (32, 4)),
    }


def program(instructions: int, outputs: int) -> Bundle:
    rows = [row_of(MACHINE, "VZERO", dst=0)] * instructions + [row_of(MACHINE, "HALT")]
    return Bundle(Image(np.array(rows, np.int64), vmem_outputs=tuple(range(outputs))))


def overlap(a: Slots, b: Slots) -> bool:
    return a.memory == b.memory and a.first < b.first + b.count and b.first < a.first + a.count


def scripts(rng: random.Random, cores: int) -> list[list[Step]]:
    """Matching transfers in one order, grouped at random into moves, programs between them."""
    made: list[list[Step]] = [[] for _ in range(cores)]
    ends: list[list[Send | Receive]] = [[] for _ in range(cores)]

    def close(core: int) -> None:
        sends = tuple(e for e in ends[core] if isinstance(e, Send))
        takes = tuple(e for e in ends[core] if isinstance(e, Receive))
        made[core] += [Move(sends, takes)] if ends[core] else []
        ends[core] = []

    for _ in range(rng.randrange(2, 14)):
        pair = (rng.randrange(cores), rng.randrange(cores))
        memory, most = rng.choice([("VMEM", 4), ("WMEM", 5), ("AMEM", 12)])
        count = rng.randrange(1, most + 1)
        slots = [Slots(memory, rng.randrange(33 - count), count) for _ in range(2)]
        if pair[0] == pair[1] and overlap(*slots):
            continue
        for core, end in zip(pair, (Send(pair[1], slots[0]), Receive(pair[0], slots[1]))):
            clash = any(overlap(end.slots, e.slots) and type(e) is not type(end) for e in ends[core])
            if clash or rng.random() < 0.4:
                close(core)
            if rng.random() < 0.25:
                close(core)
                made[core].append(program(rng.randrange(9), rng.randrange(4)))
            ends[core].append(end)
    for core in range(cores):
        close(core)
        if rng.random() < 0.3:
            made[core].append(program(rng.randrange(9), rng.randrange(4)))
    return made


def plain(places: Places, script: list[Step]) -> list[Any]:
    """A script for the slow model. A program of k VZERO: 2k + 1 cycles and four more (datasheet 10.6)."""
    steps: list[Any] = []
    for step in script:
        if isinstance(step, Bundle):
            k, n = len(step.image.instructions), len(step.image.vmem_outputs)
            steps.append(("bundle", 2 * (k + n), 2 * (k - 1) + 1 + 4, n))
        else:
            cut = [[(e.peer, *places.of(e.slots)) for e in group] for group in (step.sends, step.receives)]
            steps.append(("move", *cut))
    return steps


@pytest.mark.parametrize("seed", range(40))
def test_random_scripts_agree_with_the_slow_model(seed: int) -> None:
    rng = random.Random(seed)
    cores = rng.choice([1, 2, 3, 3, 5])
    carried, width, depth, links, remote, loopback, dma = (
        rng.choice(c) for c in ((1, 1, 2, 5), (4, 1, 3, 7, 64), (8, 1, 2, 3), (1, 1, 2), (2, 1, 5), (1, 3), (1, 0, 4))
    )
    machine = MACHINE.with_(
        name="drawn",
        params={"noc_packets": carried, "noc_packet_words": width, "noc_inbox": depth, "host_links": links},
        timing={"noc_remote": remote, "noc_loopback": loopback, "dma": dma},
    )
    drawn = scripts(rng, cores)
    held = [full(100 * seed + core) for core in range(cores)]
    places = Places(machine)
    memory: list[dict[int, int]] = []
    for items in held:
        words = np.zeros(places.words, np.int32)
        for slots, values in items.items():
            places.view(words, slots.memory)[...] = values
        memory.append(dict(enumerate(words.tolist())))
    slow = Slow([plain(places, s) for s in drawn], memory, carried, width, depth, links, remote, loopback, dma)
    cycles = slow.run(5000)
    if cycles < 0:
        with pytest.raises(Hang, match="waits for"):
            System(machine, cores).run(drawn, held)
        return
    ran = System(machine, cores).run(drawn, held)
    assert ran.cycles == cycles
    assert [dict(enumerate(row.tolist())) for row in ran.state.memory] == slow.memory
    key = ["sender", "receiver", "left", "arrived", "taken"]
    want = sorted(tuple(getattr(p, k) for k in key) for p in slow.packets)
    assert sorted(map(tuple, np.concatenate([ran.routes, ran.packets], 1).tolist())) == want
    conserved(ran.routes, ran.packets, ran.state.received)


def conserved(routes: Any, packets: Any, received: Any) -> None:
    """Every packet arrives once and is taken once, those of a pair in the order in which they left."""
    assert sorted(received.tolist()) == list(range(len(packets)))
    assert (np.diff(packets, axis=1) >= 0).all()
    assert (packets >= 0).all()
    pairs: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for route, times in zip(routes.tolist(), packets.tolist()):
        pairs[tuple(route)].append(times)
    for times in pairs.values():
        assert all((np.diff(column) > 0).all() for column in np.array(times, np.int64).T)


@pytest.mark.parametrize("n", [1, 2, 7, 20])
def test_a_transfer_takes_as_long_as_the_datasheet_says(n: int) -> None:
    """n items: the sender is done n + 1 cycles after the kick; a packet is there 2 cycles later, 1 to itself."""
    slots = (Slots("AMEM", 0, 4 * n), Slots("AMEM", 100, 4 * n))
    machine = load("tinytpu_8x8").with_(name="wide", params={"noc_packet_words": 8})
    held = [{slots[0]: np.zeros((4 * n, 8))}]
    send, take = Move((Send(1, slots[0]),)), Move((), (Receive(0, slots[1]),))
    ran = System(machine, 2).run([[send], [take]], held)
    assert ran.log[:, 3].tolist() == [n + 1, n + 3]
    assert (ran.packets - ran.packets[:, :1]).tolist() == [[0, 2, 2]] * n
    own = Move((Send(0, slots[0]),), (Receive(0, slots[1]),))
    assert System(machine, 1).run([[own]], held).cycles == n + 2


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_an_inbox_shorter_than_the_round_trip_slows_a_sender(depth: int) -> None:
    """A place is back 4 cycles after its packet left: `depth` packets in 4 cycles, at most one a cycle."""
    machine = MACHINE.with_(name="short", params={"noc_inbox": depth})
    ran = System(machine, 2).run([[Move((Send(1, A),))], [Move((), (Receive(0, A),))]], [{A: np.zeros((5, LANES))}])
    left = [4 * (k // depth) + k % depth + 1 for k in range(20)] if depth < 4 else list(range(1, 21))
    assert ran.packets[:, 0].tolist() == left
    assert ran.waits[0].tolist() == [left[-1] - 20, 0, 0]


def test_two_senders_take_turns_on_the_network() -> None:
    held = [{A: np.zeros((5, LANES))}] * 4
    pairs = ((0, 1), (2, 3))
    moves = [[Move((Send(c + 1, A),))] if c % 2 == 0 else [Move((), (Receive(c - 1, B),))] for c in range(4)]
    for carried, cycles in ((1, 40 + 3), (2, 20 + 3)):
        ran = System(MACHINE.with_(name="n", params={"noc_packets": carried}), 4).run(moves, held)
        assert ran.cycles == cycles
        counts = [[int((ran.packets[(ran.routes == p).all(1), 0] <= 20).sum()) for p in pairs]]
        assert counts == [[10 * carried] * 2]


def test_the_hosts_link_serves_one_core_after_the_other() -> None:
    """Loading 2 a record, execution, output a cycle a line: alone as long as the bundle; two share the link."""
    step = program(5, 2)
    alone = System(MACHINE, 1).run([[step]], [full(0)])
    run = alone.bundles[0][0]
    assert run is not None
    assert alone.cycles == run.cycles == 2 * 8 + 11 + 4 + 2
    both = System(MACHINE, 2).run([[step], [step]], [full(0), full(1)])
    assert both.cycles == 2 * 16 + 15 + 2
    assert both.spent("link") == [1, 16]  # core 0 puts its results out when core 1 has been loaded
    two = System(MACHINE.with_(name="two", params={"host_links": 2}), 2)
    assert two.run([[step], [step]], [full(0), full(1)]).cycles == run.cycles


def test_a_bundle_works_on_what_came_over_the_network() -> None:
    rows = [
        row_of(MACHINE, "LOAD", dst=0, vmem=8),
        row_of(MACHINE, "VNEG", dst=1, src=0),
        row_of(MACHINE, "STORE", vmem=9, src=1),
        row_of(MACHINE, "HALT"),
    ]
    one, there, back = Slots("VMEM", 0, 1), Slots("VMEM", 8, 1), Slots("VMEM", 9, 1)
    tile = np.arange(LANES, dtype=np.int32)
    negate = Bundle(Image(np.array(rows, np.int64)), "negate")
    load_only = Bundle(Image(np.zeros((0, 9), np.int64), vmem={0: tile}), "load")
    ran = System(MACHINE, 2).run(
        [
            [load_only, Move((Send(1, one),)), Move((), (Receive(1, one),))],
            [Move((), (Receive(0, there),)), negate, Move((Send(0, back),))],
        ]
    )
    assert (ran.held(0, one) == -tile).all()
    assert ran.bundles[0][0] is None
    assert ran.bundles[1][1] is not None
    assert ran.cycles == 2 + (4 + 3) + 2 * 4 + (3 + 2 + 2 + 1 + 4) + (4 + 3)
    with pytest.raises(Refusal, match=r"core 1, VMEM\[0\]: a slot holds what was put there; got a slot never written"):
        ran.held(1, one)


NOTHING = np.zeros((0, 9), np.int64)
TRANSFER = Move((Send(1, A),), (), "give")
TAKE = Move((), (Receive(0, B),), "take")
REFUSED: dict[str, tuple[list[list[Step]], type[Exception], str]] = {
    "one end": ([[TRANSFER], []], Refusal, r"core 0, step 0 \(give\): VMEM\[0..4\]: transfer 0 .* received: nothing"),
    "no send": ([[], [TAKE]], Refusal, r"transfer 0 from core 0 to core 1 has two ends.*sent: nothing; received: 80"),
    "sizes": ([[TRANSFER], [Move((), (Receive(0, Slots("VMEM", 0, 4)),))]], Refusal, "sent: 80 words .*received: 64"),
    "no core": ([[Move((Send(2, A),))], []], Refusal, "a transfer's other end is a core; got 2; the limit is 1"),
    "slots": ([[Move((Send(1, Slots("VMEM", 30, 3)),))], []], Refusal, r"VMEM\[30..32\]: slots lie within VMEM"),
    "memory": ([[Move((Send(1, Slots("PSUM", 0, 1)),))], []], Refusal, "no such memory; got PSUM"),
    "overlap": (
        [[Move((Send(1, A),), (Receive(1, Slots("VMEM", 4, 2)),))], []],
        Refusal,
        r"core 0, step 0 \(move\): what is sent is not overwritten meanwhile; got send of VMEM\[0..4\], receive into",
    ),
    "scripts": ([[]], Refusal, "every core has a script; got 1; the limit is 2"),
    "unwritten": (
        [[Move((Send(1, B),))], [Move((), (Receive(0, A),))]],
        Fault,
        r"core 0, step 0 \(move\): send of VMEM\[8..12\] to core 1: words are sent that nothing wrote",
    ),
    "in a bundle": (
        [[Bundle(Image(np.array([row_of(MACHINE, "LOAD", dst=0, vmem=20)])), "bad")], []],
        Fault,
        r"core 0, step 0 \(bad\): ",
    ),
    "filled beyond": (
        [[Bundle(Image(NOTHING, vmem={32: [0] * LANES}), "fill")], []],
        Refusal,
        r"core 0, step 0 \(fill\): VMEM\[32\]: VMEM has 32 items; the limit is 31",
    ),
    "filled with more": (
        [[Bundle(Image(NOTHING, amem={0: [0, 0, 0, 128]}), "fill")], []],
        Refusal,
        r"core 0, step 0 \(fill\): AMEM\[0\]: a value of AMEM is int8; got 128",
    ),
    "hang": (
        [[Move((Send(1, A),)), Move((), (Receive(1, B),))], [Move((Send(0, A),)), Move((), (Receive(0, B),))]],
        Hang,
        r"2 cores of tinytpu_4x4, cycle \d+: .*core 1, step 0 \(move\): send of VMEM\[0..4\] to core 0 waits for a pla",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_scripts_that_are_refused(case: str) -> None:
    moves, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text):
        System(MACHINE, 2).run(moves, [{A: np.zeros((5, LANES))}] * len(moves))


def test_the_number_of_cores_is_refused() -> None:
    with pytest.raises(Refusal, match=r"a system has cores; got 0; the limit is 1\.\.64"):
        System(MACHINE, 0)


def test_without_credits_a_full_inbox_drops_and_the_receiver_waits_for_ever() -> None:
    late: list[list[Step]] = [[TRANSFER], [program(8, 0), TAKE]]
    held = [{A: np.arange(80)}, {}]
    assert (System(MACHINE, 2).run(late, held).held(1, B) == np.arange(80).reshape(5, LANES)).all()
    with pytest.raises(
        Hang, match=r"12 packets were dropped at full inboxes; core 1, step 1 \(take\): .* waits for a "
    ):
        System(MACHINE, 2, drop=True).run(late, held)


def test_the_timeline_shows_cores_network_and_link(tmp_path: Path) -> None:
    give, take = Move((Send(1, A),), (), "give"), Move((), (Receive(0, B),), "take")
    ran = System(MACHINE, 2).run([[program(5, 2), give], [program(5, 0), take]], [full(0), full(1)])
    spans = ran.timeline("two cores")
    spans.check()
    assert spans.groups == ("core 0", "core 1", "network", "host link")
    shares = {share.group: share.kinds for share in spans.shares()}
    assert {k: shares["network"][k] for k in ("serve",)} == {"serve": 20}
    assert shares["host link"]["serve"] == 16 + 12 + 2
    for core, want in enumerate(((16, 15, 2, 20), (12, 15, 0, 20))):
        assert tuple(shares[f"core {core}"].get(k, 0) for k in ("load", "execute", "output", "move")) == want
    assert spans.waits()["host link"] == sum(ran.spent("link"))
    assert "core 0" in spans.report()
    spans.save(tmp_path / "spans.json")
    assert type(spans).load(tmp_path / "spans.json").cycles == ran.cycles
