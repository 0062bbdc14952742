"""Rounds: the three limits, the order of every stream, the shadow rule, acknowledgements, and the checker itself."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.image import EncodedProgram, Image
from kohakuaccel.machine import Unit
from kohakutpu import machines
from kohakutpu.dispatch import Limits, Loader, Round, check_rounds, opcode_counts
from kohakutpu.dispatch.acks import program_acks
from kohakutpu.isa import cluster, vector
from kohakutpu.isa import control as reg

SHIP = machines.load("ship_3x2")
MESHES = machines.load("multimesh_4")
CLUSTER = cluster.CLUSTER


def fills(n: int, salt: int = 0) -> NDArray[np.uint64]:
    """n distinct FILLs."""
    return CLUSTER.encode_table(n, op="FILL", n=1, addr=(np.arange(n, dtype=np.int64) + salt * 100_000) * 256)


def image(sizes: list[int], machine: machines.Machine = SHIP, passes: int = 0) -> Image:
    units = machine.units_of("MG")
    starts = np.arange(0, max(sizes, default=0), passes, dtype=np.int64) if passes else np.zeros(0, np.int64)
    programs = tuple(EncodedProgram(units[i], fills(n, i), passes=starts[starts < n]) for i, n in enumerate(sizes))
    return Image(machine.name, (programs,))


def kicks(r: Round) -> list[tuple[int, int, int]]:
    """(destination, base, length) of each kick, read from the commands with registers that keep their value."""
    registers: dict[int, int] = {}
    out: list[tuple[int, int, int]] = []
    for op, address, data, _ in r.commands.tolist():
        if op == reg.WRITE:
            offset = address - reg.agent_bus(r.mesh, 0)
            if offset == reg.PROG_KICK:
                out.append((registers[reg.PROG_DST], registers[reg.PROG_BASE], registers[reg.PROG_LEN]))
            registers[offset] = data
    return out


def test_a_small_image_is_one_round_with_these_commands() -> None:
    (r,) = Loader(SHIP).rounds(image([3, 3]))
    assert reg.command_text(r.commands) == [
        "WRITE agent.PROG_CRED = 0x20",
        "POLL  agent.PROG_STAT & 0x1 == 0x0",
        "WRITE agent.PROG_DST = 0x11",
        "WRITE agent.PROG_BASE = 0x0",
        "WRITE agent.PROG_LEN = 0x3",
        "WRITE agent.PROG_KICK = 0x1",
        "POLL  agent.PROG_STAT & 0x1 == 0x0",
        "WRITE agent.PROG_DST = 0x12",
        "WRITE agent.PROG_BASE = 0x3",  # PROG_LEN is shadowed, PROG_KICK and the credit never are
        "WRITE agent.PROG_KICK = 0x1",
        "POLL  node(1,1) & 0xffff01 == 0x301",
        "POLL  node(2,1) & 0xffff01 == 0x301",
        "DONE  0x0",
    ]
    assert [int(h) for h in r.staging[:, 4]] == [0x5000, 0x5000, 0x5008, 0x5010, 0x5010, 0x5018]


def test_awaited_counts_wrap() -> None:
    (r,) = Loader(SHIP).rounds(image([3]))
    counts = np.zeros(256, np.int64)
    counts[0x11] = 0xFFFE
    commands = r.awaiting(counts)
    assert int(commands[r.polls[0], 2]) == 0x0001 << 8 | 1
    assert int(r.commands[r.polls[0], 2]) == 0x0003 << 8 | 1  # the round itself is shared and stays as it is


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=6),
    st.integers(0, 60),
    st.integers(6, 140),
    st.integers(8, 140),
    st.integers(2, 40),
)
def test_limits_hold_and_nothing_is_lost(sizes: list[int], passes: int, flits: int, commands: int, credit: int) -> None:
    limits = Limits(flits, commands, credit)
    found = image(sizes, passes=passes)
    rounds = Loader(SHIP, limits).rounds(found)
    check_rounds(SHIP, found, rounds, limits)
    sent: dict[int, list[NDArray[np.uint64]]] = {}
    for r in rounds:
        started = kicks(r)
        assert len(r.staging) <= flits
        assert len(r.commands) <= commands
        assert len(started) < credit
        for node, base, count in started:
            sent.setdefault(node, []).append(r.staging[base : base + count, :4])
        totals: dict[int, int] = {}
        for node, _, count in started:
            totals[node] = totals.get(node, 0) + count
        assert dict(zip(r.nodes.tolist(), r.expected.tolist(), strict=True)) == totals
    for program in found.stages[0]:
        node = program.unit.y << 4 | program.unit.x
        got = np.concatenate(sent.pop(node, [np.zeros((0, 4), np.uint64)]))
        assert np.array_equal(got, program.payloads)
    assert not sent


def test_every_unit_advances_every_round_while_it_has_work() -> None:
    found = image([500, 500, 500, 500, 100, 10])
    left = [len(p) for p in found.stages[0]]
    for r in Loader(SHIP).rounds(found):
        working = [i for i, n in enumerate(left) if n]
        assert [w.program for w in r.windows][: len(working)] == working  # everybody's first turn comes first
        assert {w.program for w in r.windows} == set(working)
        for w in r.windows:
            left[w.program] -= w.count


def test_cuts_prefer_pass_starts() -> None:
    rounds = Loader(SHIP).rounds(image([300, 300], passes=20))
    for r in rounds:
        for program in {w.program for w in r.windows}:
            mine = [w for w in r.windows if w.program == program]
            assert mine[0].start % 20 == 0
            assert all(b.start == a.start + a.count for a, b in pairwise(mine))
    rounds = Loader(SHIP).rounds(image([400], passes=260))  # a pass that does not fit is cut where it must be
    assert [w.start for r in rounds for w in r.windows] == [0, 128, 256, 260, 388]


def longest_shares(found: Image) -> list[int]:
    """Of each round, the instructions of the unit that gets most."""
    return [
        max(sum(w.count for w in r.windows if w.program == p) for p in {w.program for w in r.windows})
        for r in Loader(SHIP).rounds(found)
    ]


def test_equal_streams_are_cut_alike_where_that_is_shorter() -> None:
    """A share of 21 is cut to a pass of 16; what that leaves does not give the last two units another pass, for which
    the others would wait."""
    found = image([48] * 6, passes=16)
    assert longest_shares(found) == [16, 16, 16]
    for r in Loader(SHIP).rounds(found):
        assert {sum(w.count for w in r.windows if w.program == p) for p in range(6)} == {16}
    # Here equal caps would leave a few instructions for one more round.
    assert longest_shares(image([76] * 5)) == [26, 26, 25]


def test_units_that_share_the_credit_take_turns() -> None:
    """The dispatcher serves programs in order: one long program per unit would keep the last units waiting."""
    (first, *_) = Loader(SHIP).rounds(image([500] * 6))
    order = [w.program for w in first.windows]
    assert order == list(range(6)) * (len(order) // 6)
    assert len(order) == 18  # as many turns as commands allow, at most four
    (small,) = Loader(SHIP).rounds(image([5] * 6))
    assert len(small.windows) == 6  # all of it fits the credit: nothing to gain
    assert all(len(r.windows) == 1 for r in Loader(SHIP).rounds(image([500])))


def test_more_units_than_a_round_kicks_take_turns() -> None:
    limits = Limits(128, 128, 3)
    found = image([40] * 6)
    rounds = Loader(SHIP, limits).rounds(found)
    assert all(len(r.windows) <= 2 for r in rounds)
    assert {w.program for r in rounds[:3] for w in r.windows} == set(range(6))


def test_stages_follow_each_other() -> None:
    units = SHIP.units_of("MG")
    first = (EncodedProgram(units[0], fills(200)), EncodedProgram(units[1], fills(10)))
    second = (EncodedProgram(units[1], fills(10, 1)),)
    rounds = Loader(SHIP).rounds(Image("ship_3x2", (first, (), second)))
    assert [r.stage for r in rounds] == [0, 0, 2]
    assert Loader(SHIP).rounds(Image("ship_3x2", ())) == ()


def test_large_images_are_cut_quickly() -> None:
    found = image([4000] * 6)
    begin = time.process_time()
    rounds = tuple(Loader(SHIP)._image(found))
    cut = time.process_time() - begin
    assert len(rounds) > 180
    assert cut < 0.5  # a few tens of milliseconds on an idle core
    assert Loader(SHIP).rounds(found) is Loader(SHIP).rounds(found)  # built once, kept by the image


def test_one_round_per_mesh_starts_together() -> None:
    units = [MESHES.units_of("MG", mesh)[0] for mesh in range(4)]
    programs = tuple(EncodedProgram(u, fills(n, u.mesh)) for u, n in zip(units, (130, 10, 10, 260), strict=True))
    rounds = Loader(MESHES).rounds(Image("multimesh_4", (programs,)))
    assert [(r.group, r.mesh) for r in rounds] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 3), (2, 3)]


# acknowledgements


def drain(n: int, to: Unit, ack: tuple[int, int], buf: int = 0, flags: int = 1, **more: int) -> NDArray[np.uint64]:
    return CLUSTER.encode_table(
        1,
        op="DRAIN",
        n=n,
        dnode=1,
        dst_x=to.x,
        dst_y=to.y,
        dbuf=buf,
        dflags=flags,
        dack_x=ack[0],
        dack_y=ack[1],
        **more,
    )


def test_cluster_acknowledgements_are_counted_from_the_payloads() -> None:
    mg, vc = SHIP.units_of("MG")[0], SHIP.units_of("VC")[0]
    peer = SHIP.units_of("MG")[1]
    payloads = np.concatenate(
        [
            drain(64, vc, (0, 1)),
            drain(1, vc, (0, 1)),
            drain(9, peer, (0, 1), buf=2),
            drain(8, vc, (0, 1), flags=0),  # not asked for
            drain(8, vc, (0, 0)),  # back to the sender, which ignores it
            fills(1),
        ]
    )
    program = EncodedProgram(mg, payloads, acks=((vc, 9),))
    acks = program_acks(SHIP, program)
    assert acks[vc].tolist() == [8, 1, 0, 0, 0, 0]
    assert acks[peer].tolist() == [0, 0, 3, 0, 0, 0]
    (r,) = Loader(SHIP).rounds(Image("ship_3x2", ((program,),)))
    assert dict(zip(r.nodes.tolist(), r.expected.tolist(), strict=True)) == {0x11: 6, 0x01: 9, 0x12: 3}
    with pytest.raises(Refusal, match=r"those its drains cause; got 8; the limit is 9"):
        program_acks(SHIP, replace(program, acks=((vc, 8),)))
    with pytest.raises(Refusal, match=r"a node drain goes to a unit; got \(5,5\) of mesh 0"):
        program_acks(SHIP, EncodedProgram(mg, drain(1, replace(vc, x=5, y=5), (0, 1))))


def test_vector_acknowledgements_belong_to_runs() -> None:
    vc, mg = SHIP.units_of("VC")[0], SHIP.units_of("MG")[0]
    rows = np.array([[vector.ENV_IMEM, 0, 0, 1], [vector.ENV_RUN, 0, 0, 0], [vector.ENV_RUN, 0, 0, 0]], np.int64)
    payloads = vector.encode_envelopes(rows)
    even = program_acks(SHIP, EncodedProgram(vc, payloads, acks=((mg, 4),)))
    assert even[mg].tolist() == [0, 2, 2]
    odd = program_acks(SHIP, EncodedProgram(vc, payloads, acks=((mg, 3),)))
    assert odd[mg].tolist() == [0, 0, 3]
    own = program_acks(SHIP, EncodedProgram(vc, payloads, acks=((mg, np.array([0, 1, 0], np.int64)),)))
    assert own[mg].tolist() == [0, 1, 0]
    with pytest.raises(Refusal, match="only a RUN of a vector program sends data"):
        program_acks(SHIP, EncodedProgram(vc, payloads[:1], acks=((mg, 1),)))


def test_a_receiver_in_another_mesh_is_awaited_by_its_own_engine() -> None:
    sender, receiver = MESHES.units_of("MG", 1)[0], MESHES.units_of("VC", 3)[0]
    port = MESHES.ports_of(1)[0]
    payload = drain(16, replace(receiver, x=port.x, y=port.y), (0, 1), dmesh=3, dfin=receiver.y << 4 | receiver.x)
    rounds = Loader(MESHES).rounds(Image("multimesh_4", ((EncodedProgram(sender, payload),),)))
    assert [(r.mesh, r.expected.tolist()) for r in rounds] == [(1, [1]), (3, [2])]
    assert reg.command_text(rounds[1].commands) == ["POLL  mesh3.node(2,0) & 0xffff01 == 0x201", "DONE  0x0"]


# refusals and the checker


def test_refusals() -> None:
    other = machines.load("singlemesh_2x2")
    vc = other.units_of("VC")[-1]
    with pytest.raises(Refusal, match=r"stage 0 of an image for x: a program is for a unit of this machine.*VC\(2,3\)"):
        Loader(SHIP).rounds(Image("x", ((EncodedProgram(vc, fills(1)),),)))
    with pytest.raises(Refusal, match="a round holds at least one program"):
        Loader(SHIP, Limits(128, 128, 1))


def broken(r: Round, **changes: object) -> Round:
    return replace(r, **changes)  # type: ignore[arg-type]  # each case changes another field


def test_the_checker_sees_what_it_must() -> None:
    found = image([5, 4])
    (r,) = Loader(SHIP).rounds(found)
    check_rounds(SHIP, found, (r,))
    swapped = r.staging.copy()
    swapped[[0, 1], :4] = swapped[[1, 0], :4]
    unlast = r.staging.copy()
    unlast[4, 4] &= ~np.uint64(8)
    no_done = r.commands.copy()
    no_done[-1, 0] = reg.WRITE
    credit = r.commands.copy()
    credit[0, 2] = 2
    unpolled = r.commands.copy()
    unpolled[1, 3] = 0
    twice = r.commands.copy()
    twice[r.polls[1]] = twice[r.polls[0]]
    cases: list[tuple[tuple[Round, ...], str]] = [
        ((broken(r, staging=swapped),), r"the stream of MG\(1,1\) continues where it stopped"),
        ((broken(r, staging=unlast),), "last on the last one"),
        ((broken(r, commands=no_done),), "ends with DONE"),
        ((broken(r, commands=credit),), "programs < credit"),
        ((broken(r, commands=unpolled),), r"a kick follows PROG_STAT = 0"),
        ((broken(r, commands=twice),), "a node is awaited once"),
        ((broken(r, expected=r.expected - 1),), "every instruction of a round is awaited"),
        ((r, r), "continues where it stopped|staged for a unit"),
        ((), r"stage 0, MG\(1,1\): every instruction of a stage is sent; got 0; the limit is 5"),
    ]
    for rounds, text in cases:
        with pytest.raises(Refusal, match=text):
            check_rounds(SHIP, found, rounds)
    for limits, text in ((Limits(8, 128, 32), "staging RAM; got 9"), (Limits(128, 12, 32), "control engine; got 14")):
        with pytest.raises(Refusal, match=text):
            check_rounds(SHIP, found, (r,), limits)


def test_opcodes_are_counted_by_name() -> None:
    vc = SHIP.units_of("VC")[0]
    rows = np.array([[vector.ENV_IMEM, 0, 0, 1], [vector.ENV_DESC, 0, 0, 0], [vector.ENV_RUN, 0, 0, 0]], np.int64)
    payloads = np.concatenate([vector.encode_envelopes(rows), np.array([[0, 0, 0, 9 << 60]], np.uint64)])
    found = Image("x", (image([3]).stages[0], (EncodedProgram(vc, payloads),)))
    assert opcode_counts(found) == {"FILL": 3, "IMEM": 1, "DESC": 1, "RUN": 1, "op 9": 1}
