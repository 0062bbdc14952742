"""How instruction streams become rounds: where each unit's stream is cut, and what the control engine executes.

It must not know what a payload means beyond the acknowledgements it causes and the shared fills it joins, nor how a
transport works.

A round obeys three limits: its flits fit the staging RAM, its commands (DONE included) fit the engine, and its
programs P leave a credit over: P < C, where C = the smallest instruction FIFO among the kicked nodes, because each
program's last instruction returns none. Every unit that has work left advances in every round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.image import EncodedProgram, Image
from kohakuaccel.machine import Machine, Unit
from kohakutpu.dispatch.acks import program_acks
from kohakutpu.dispatch.check import check_rounds
from kohakutpu.dispatch.rounds import HEADER, LAST, MASK, TXN, Limits, Round, Window
from kohakutpu.dispatch.shares import Meeting, closed, crews, meetings
from kohakutpu.isa import control as reg

TURNS = 4  # programs per unit and round; more gain nothing, and each costs a credit and up to five commands
WORTH = 0.99  # of the estimated length, below which streams are cut alike
ROUND = 2  # instructions that a round's start and end are worth in that estimate

Plan = dict[int, list[Window]]
"""Windows of one group of rounds, per mesh."""


def _length(plans: Sequence[Plan]) -> int:
    """Instructions one after another: a round ends with its longest share."""
    total = 0
    for plan in plans:
        share: dict[int, int] = {}
        for w in (w for windows in plan.values() for w in windows):
            share[w.program] = share.get(w.program, 0) + w.count
        total += ROUND + max(share.values(), default=0)
    return total


class Loader:
    """Cuts images into rounds for one machine. Rounds are built once per image and kept in its cache."""

    def __init__(self, machine: Machine, limits: Limits | None = None) -> None:
        self.machine = machine
        self.limits = limits or Limits.of(machine)
        self._key = ("kohakutpu.rounds", machine.fingerprint, self.limits)
        self._registers = np.array([reg.PROG_DST, reg.PROG_BASE, reg.PROG_LEN, reg.PROG_KICK], np.uint64)
        if self.limits.credit < 2 or self.limits.commands < 8 or self.limits.flits < 1:
            raise Refusal("a round holds at least one program", where=f"machine {machine.name}", got=self.limits)

    def rounds(self, image: Image) -> tuple[Round, ...]:
        """The rounds of an image, in order. Raises Refusal for programs this machine cannot take."""
        found = image.cache.get(self._key)
        if found is None:
            found = tuple(self._image(image))
            check_rounds(self.machine, image, found, self.limits)
            image.cache[self._key] = found
        return found

    def _image(self, image: Image) -> Iterator[Round]:
        group = 0
        for number, stage in enumerate(image.stages):
            for program in stage:
                known = self.machine.unit_at(program.unit.mesh, program.unit.x, program.unit.y)
                if known is None or known.kind != program.unit.kind:
                    raise Refusal(
                        "a program is for a unit of this machine",
                        where=f"stage {number} of an image for {image.machine_name}",
                        got=program.unit.name,
                        limit=f"the units of {self.machine.name}",
                    )
            acks = [
                {unit: np.concatenate([[0], np.cumsum(each)]) for unit, each in program_acks(self.machine, p).items()}
                for p in stage
            ]
            receivers = len({unit for known in acks for unit in known})
            for plan in self._stage(stage, receivers):
                yield from self._group(number, group, stage, plan, acks)
                group += 1

    def _stage(self, stage: Sequence[EncodedProgram], receivers: int) -> list[Plan]:
        """Windows per mesh, group after group: the shorter of two ways to share the staging RAM."""
        met = meetings(stage)
        # Credit seed and DONE, then at most five commands and one await per program, one per receiver.
        most = max(1, min((self.limits.commands - 2 - receivers) // 6, self.limits.credit - 1, self.limits.flits))
        passed_on = list(self._plans(stage, most, met, alike=False))
        if met:
            return passed_on
        alike = list(self._plans(stage, most, met, alike=True))
        return alike if _length(alike) < WORTH * _length(passed_on) else passed_on

    def _plans(
        self, stage: Sequence[EncodedProgram], most: int, met: Sequence[Meeting], *, alike: bool
    ) -> Iterator[Plan]:
        position = [0] * len(stage)
        meshes = sorted({p.unit.mesh for p in stage})
        first = dict.fromkeys(meshes, 0)
        while True:
            plan: Plan = {}
            for mesh in meshes:
                waiting = [i for i, p in enumerate(stage) if p.unit.mesh == mesh and position[i] < len(p)]
                if not waiting:
                    continue
                if len(waiting) > most:
                    start = first[mesh] % len(waiting)
                    waiting = sorted((waiting[start:] + waiting[:start])[:most])
                    first[mesh] += most
                if met:
                    plan[mesh] = self._cut_together(stage, position, waiting, most, met)
                else:
                    plan[mesh] = self._cut(stage, position, waiting, most, alike)
            if not plan:
                return
            yield plan

    def _cut(
        self, stage: Sequence[EncodedProgram], position: list[int], units: list[int], most: int, alike: bool
    ) -> list[Window]:
        """How far each of `units` goes in one round; advances `position`. Short streams leave room to long ones.

        alike: streams with as many instructions left have one cap, else what a pass start leaves goes to the next.
        All units share the credit and programs are served in order: kicked turn by turn, the last unit starts early."""
        room, left = self.limits.flits, len(units)
        count: dict[int, int] = {}
        cap = length = 0
        for i in sorted(units, key=lambda k: len(stage[k]) - position[k]):
            program, at = stage[i], position[i]
            if not alike or len(program) - at != length:
                cap, length = room // left, len(program) - at
            end = min(len(program), at + cap)
            if end < len(program) and len(program.passes):
                cut = int(np.searchsorted(program.passes, end, side="right")) - 1
                if cut >= 0 and program.passes[cut] > at:
                    end = int(program.passes[cut])
            count[i] = end - at
            room -= end - at
            left -= 1
        shared = len(units) > 1 and sum(count.values()) > self.limits.credit
        turns = max(1, min(TURNS, most // len(units))) if shared else 1
        windows: list[Window] = []
        base = 0
        for turn in range(turns):
            for i in units:
                start, end = (-(-count[i] * t // turns) for t in (turn, turn + 1))
                if end > start:
                    windows.append(Window(i, position[i] + start, end - start, base))
                    base += end - start
        for i in units:
            position[i] += count[i]
        return windows

    def _cut_together(
        self,
        stage: Sequence[EncodedProgram],
        position: list[int],
        units: list[int],
        most: int,
        met: Sequence[Meeting],
    ) -> list[Window]:
        """How far each of `units` goes in one round of a stage with shared fills; advances `position`.

        Everything before a crew's turn can end on its own, so it holds no credit but one per program kicked; the turn
        itself may hold as many as it sends.
        """
        room = dict.fromkeys(units, self.limits.flits // len(units))
        windows: list[Window] = []
        base = 0
        turns = max(1, min(TURNS, most // len(units)))
        fair = -(-room[units[0]] // turns)  # a longer turn of one crew would keep the credit from the others
        for _ in range(turns):
            for crew in crews(units, met):
                alive = [i for i in crew if position[i] < len(stage[i])]
                each = min(fair, (self.limits.credit - len(windows)) // max(1, len(alive)))
                start = {i: position[i] for i in alive}
                end = {i: min(len(stage[i]), position[i] + min(each, room[i])) for i in alive}
                for i, stop in closed(start, end, met).items():
                    count = stop - position[i]
                    if count > 0:
                        windows.append(Window(i, position[i], count, base))
                        base += count
                        room[i] -= count
                        position[i] = stop
        if not windows:
            raise Refusal(
                "a round holds one instruction of every member of a shared fill",
                where=", ".join(stage[i].unit.name for i in units),
                got=f"{self.limits.flits} flits, {self.limits.credit} credits",
                limit=f"{len(units)} of each",
                hint="share between fewer clusters, or use a machine with a larger staging RAM",
            )
        return windows

    def _group(
        self,
        number: int,
        group: int,
        stage: Sequence[EncodedProgram],
        plan: dict[int, list[Window]],
        acks: Sequence[dict[Unit, NDArray[np.int64]]],
    ) -> Iterator[Round]:
        expected: dict[int, dict[int, int]] = {mesh: {} for mesh in plan}
        for windows in plan.values():
            for w in windows:
                unit = stage[w.program].unit
                self._expect(expected, unit, w.count)
                for receiver, before in acks[w.program].items():
                    signals = int(before[w.start + w.count] - before[w.start])
                    if signals:
                        self._expect(expected, receiver, signals)
        for mesh in sorted(expected):
            yield self._round(number, group, mesh, stage, plan.get(mesh, []), expected[mesh])

    @staticmethod
    def _expect(expected: dict[int, dict[int, int]], unit: Unit, count: int) -> None:
        nodes = expected.setdefault(unit.mesh, {})
        node = unit.y << 4 | unit.x
        nodes[node] = nodes.get(node, 0) + count
        if nodes[node] > 0xFFFF:
            raise Refusal(
                "a round awaits at most 65535 signals of one node", where=unit.name, got=nodes[node], limit=0xFFFF
            )

    def _round(
        self,
        number: int,
        group: int,
        mesh: int,
        stage: Sequence[EncodedProgram],
        windows: list[Window],
        expected: dict[int, int],
    ) -> Round:
        total = sum(w.count for w in windows)
        staging = np.empty((total, 5), np.uint64)
        programs = np.zeros((len(windows), 3), np.int64)
        for i, w in enumerate(windows):
            end = w.base + w.count
            program = stage[w.program]
            staging[w.base : end, :4] = program.payloads[w.start : w.start + w.count]
            staging[w.base : end, 4] = HEADER | (i & 0xFF) << TXN
            staging[end - 1, 4] |= np.uint64(1 << LAST)
            programs[i] = program.unit.y << 4 | program.unit.x, w.base, w.count
        nodes = np.fromiter(expected, np.int64, len(expected))
        counts = np.fromiter(expected.values(), np.int64, len(expected))
        commands, polls = self._commands(mesh, programs, nodes, counts)
        return Round(number, group, mesh, staging, commands, polls, nodes, counts, tuple(windows))

    def _commands(
        self, mesh: int, programs: NDArray[np.int64], nodes: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """The command list of a round: programs int64[P, 3] = destination, first slot, flits."""
        n, window = len(programs), reg.agent_bus(mesh, 0)
        commands = np.zeros((1 + 5 * n + len(nodes) + 1, 4), np.uint64)
        keep = np.ones(len(commands), np.bool_)
        commands[0, :3] = reg.WRITE, window + reg.PROG_CRED, self.limits.credit
        keep[0] = n > 0
        kick = commands[1 : 1 + 5 * n].reshape(n, 5, 4)
        kick[:, 0] = reg.POLL, window + reg.PROG_STAT, 0, 1
        kick[:, 1:, 0] = reg.WRITE
        kick[:, 1:, 1] = self._registers + np.uint64(window)
        kick[:, 1:4, 2] = programs
        kick[:, 4, 2] = 1
        # The shadow rule: a register that the hardware only reads keeps its value; the shadow starts empty.
        keep[1 : 1 + 5 * n].reshape(n, 5)[1:, 1:4] = programs[1:] != programs[:-1]
        awaits = commands[1 + 5 * n : -1]
        awaits[:, 0] = reg.POLL
        awaits[:, 1] = window + reg.NODE_STATUS + 8 * nodes
        awaits[:, 2] = counts << 8 | 1
        awaits[:, 3] = MASK
        commands[-1, 0] = reg.DONE
        commands = commands[keep]
        first = len(commands) - 1 - len(nodes)
        return commands, np.arange(first, first + len(nodes))
