"""Where streams meet: shared fills of clusters, and rounds that bring their members together (datasheet 7.3, 10).

A shared fill holds its cluster until every member has reached it, so a round that sent it to some of them would never
end, and neither would one whose credit was spent on instructions behind it. Windows are therefore cut so that what is
sent up to the end of a crew's turn contains whole shared fills only, and a crew's turn fits the credit that is left.
It must not know commands or signals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.image import EncodedProgram
from kohakutpu.isa import cluster

_FIELDS = ("addr", "n", "sel", "preq", "eoff", "fbank")


def _bits(**fields: int) -> NDArray[np.uint64]:
    word = sum(cluster.CLUSTER[name].put(value) for name, value in fields.items())
    return np.frombuffer(word.to_bytes(32, "little"), np.uint64)


_OP, _FILL, _PEERS = _bits(op=15), _bits(op=cluster.FILL), _bits(npeer=3)


@dataclass(frozen=True, slots=True)
class Meeting:
    """One shared fill: instruction `at[program]` of each member's program."""

    at: dict[int, int]


@dataclass(frozen=True, slots=True)
class _Share:
    at: int
    tag: int
    members: frozenset[int]
    fields: tuple[int, ...]


def meetings(stage: Sequence[EncodedProgram]) -> list[Meeting]:
    """The shared fills of a stage, in an order in which they can happen. Raises Refusal where they cannot: a member
    that never comes, members that wait for each other, or that disagree."""
    waiting = {i: found for i, p in enumerate(stage) if (found := _shares(p))}
    if not waiting:
        return []
    program_at = {p.unit.mesh << 8 | p.unit.y << 4 | p.unit.x: i for i, p in enumerate(stage)}
    done: list[Meeting] = []
    while waiting:
        for i, queue in waiting.items():
            head = queue[0]
            members = [program_at.get(node, -1) for node in head.members]
            heads = [waiting[m][0] if m in waiting else None for m in members]
            if all(other is not None and (other.tag, other.members) == (head.tag, head.members) for other in heads):
                _agree(stage, i, head, dict(zip(members, heads)))
                done.append(Meeting({m: waiting[m].pop(0).at for m in members}))
                waiting = {k: v for k, v in waiting.items() if v}
                break
        else:
            raise _stuck(stage, waiting)
    return done


def _shares(program: EncodedProgram) -> list[_Share]:
    if program.unit.kind != "MG":
        return []
    words = program.payloads
    shared = (words & _OP == _FILL).all(axis=1) & (words & _PEERS).any(axis=1)
    positions = np.flatnonzero(shared)
    if not len(positions):
        return []
    rows = cluster.CLUSTER.decode_table(words[positions])
    mesh, own = program.unit.mesh << 8, program.unit.y << 4 | program.unit.x
    found: list[_Share] = []
    for at, row in zip(positions.tolist(), rows.tolist()):
        get = dict(zip(cluster.CLUSTER.names, row))
        peers = [get["peers"] >> 8 * k & 0xFF for k in range(get["npeer"])]
        members = frozenset(mesh | node for node in (own, *peers))
        found.append(_Share(at, get["tag"], members, tuple(get[name] for name in _FIELDS)))
    return found


def _agree(stage: Sequence[EncodedProgram], i: int, head: _Share, others: dict[int, _Share | None]) -> None:
    for m, other in others.items():
        assert other is not None
        for name, mine, theirs in zip(_FIELDS, head.fields, other.fields):
            if mine != theirs:
                raise Refusal(
                    f"the members of a shared fill name one {name}",
                    where=f"{stage[i].unit.name}, instruction {head.at}; {stage[m].unit.name}, instruction {other.at}",
                    got=f"{mine:#x} and {theirs:#x}",
                    hint="write the members' streams together",
                )


def _stuck(stage: Sequence[EncodedProgram], waiting: dict[int, list[_Share]]) -> Refusal:
    texts = [
        f"{stage[i].unit.name} instruction {queue[0].at} (tag {queue[0].tag}) waits for "
        + " and ".join(f"({n & 15},{n >> 4 & 15})" for n in sorted(queue[0].members - {_node(stage[i])}))
        for i, queue in waiting.items()
    ]
    return Refusal(
        "the members of shared fills meet in one order",
        where="; ".join(texts),
        hint="every member runs the same shared fills, in the same order and with the same tags",
    )


def _node(program: EncodedProgram) -> int:
    return program.unit.mesh << 8 | program.unit.y << 4 | program.unit.x


def crews(units: Sequence[int], met: Sequence[Meeting]) -> list[list[int]]:
    """The programs `units` by who meets whom, directly or not; those of one crew one after another."""
    crew = {i: {i} for i in units}
    for meeting in met:
        together = {k for i in meeting.at for k in crew.get(i, ())}
        for i in together:
            crew[i] = together
    return [sorted(crew[i]) for i in sorted(crew) if min(crew[i]) == i]


def closed(start: dict[int, int], end: dict[int, int], met: Sequence[Meeting]) -> dict[int, int]:
    """The ends of windows from `start`, lowered until every shared fill in them has all its members there."""
    end = dict(end)
    ahead = [m.at for m in met if any(i in end and at >= start[i] for i, at in m.at.items())]
    changed = True
    while changed:
        changed = False
        for places in ahead:
            inside = [i for i, at in places.items() if at < end.get(i, 0)]
            if inside and len(inside) < len(places):
                for i in inside:
                    end[i] = places[i]
                changed = True
    return end
