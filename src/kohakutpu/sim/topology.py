"""A machine as the compiled clock sees it: links and the one path between two ends, tracks, and values of time.

It decides which links a flit takes. It must not know what is sent. Source: datasheet 1 (coordinates, routing, binding),
8.1 (fabric, interlink).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine, Mesh, Unit
from kohakuaccel.sim import Track
from kohakutpu.sim import state as st

Place = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Topology:
    """Arrays that a run starts from, in the columns of `state`; the names of tracks and links beside them."""

    tracks: tuple[Track, ...]
    links: tuple[str, ...]
    time: st.Ints
    unit: st.Ints
    port: st.Ints
    link: st.Ints
    agent: st.Ints
    path_at: st.Ints
    path: st.Ints


class _Paths:
    """Links by the two places they join, found as paths need them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.links: dict[str, int] = {}
        self.rows: list[tuple[int, int]] = []  # cycles per flit, latency to the next link
        self.path: list[int] = []
        ends = 2 * len(machine.units) + len(machine.ports) + len(machine.meshes)
        self.at = np.zeros((ends, ends, 2), np.int64)

    def _link(self, mesh: int, a: str, b: str, word: int, latency: int) -> int:
        several = f" of mesh {mesh}" if len(self.machine.meshes) > 1 and mesh >= 0 else ""
        name = f"link {a}>{b}{several}"
        found = self.links.get(name)
        if found is None:
            found = self.links[name] = len(self.rows)
            self.rows.append((word, latency))
        return found

    def within(self, mesh: Mesh, source: Place, target: Place) -> list[int]:
        """Links between two ends of a mesh: in through the source's router, x first, then y, out to the target."""
        t = self.machine.timing
        x, y = mesh.clamp(*source)
        goal = mesh.clamp(*target)
        places = [_end(mesh, source), f"({x},{y})"]
        while (x, y) != goal:
            if x != goal[0]:
                x += 1 if goal[0] > x else -1
            else:
                y += 1 if goal[1] > y else -1
            places.append(f"({x},{y})")
        places.append(_end(mesh, target))
        last = len(places) - 2
        return [
            self._link(mesh.index, a, b, 1, t.endpoint_in if n == last else t.router_latency)
            for n, (a, b) in enumerate(pairwise(places))
        ]

    def across(self, a: int, b: int) -> list[int]:
        """Interlinks from mesh a to mesh b, memory agent to memory agent, by the fewest links."""
        t = self.machine.timing
        came = {a: a}
        queue = [a]
        for mesh in queue:
            for pair in self.machine.links:
                if mesh in pair and (other := sum(pair) - mesh) not in came:
                    came[other] = mesh
                    queue.append(other)
        if b not in came:
            raise Refusal("meshes that exchange data are linked", where=self.machine.name, got=(a, b))
        way = [b]
        while way[-1] != a:
            way.append(came[way[-1]])
        word, latency = t.link_word + t.link_beat_extra, t.link_latency + t.endpoint_out
        pairs = list(zip(way[::-1], way[-2::-1]))
        return [self._link(-1, f"mesh {one}", f"mesh {two}", word, latency) for one, two in pairs]

    def add(self, source: int, target: int, links: list[int]) -> None:
        """The path between two ends, by their numbers."""
        self.at[source, target] = len(self.path), len(links)
        self.path += links

    def all(self) -> None:
        """Every path that anything takes."""
        machine = self.machine
        units, number = machine.units, len(machine.units)
        for p, port in enumerate(machine.ports):
            mesh, place = machine.meshes[port.mesh], (port.x, port.y)
            for n, unit in enumerate(units):
                if unit.mesh == port.mesh:
                    out = (unit.write_x, unit.write_y)
                    self.add(2 * number + p, n, self.within(mesh, place, (unit.x, unit.y)))
                    self.add(2 * number + p, number + n, self.within(mesh, place, out))
                    self.add(n, 2 * number + p, self.within(mesh, (unit.x, unit.y), place))
                    self.add(number + n, 2 * number + p, self.within(mesh, out, place))
        for n, unit in enumerate(units):
            mesh, place = machine.meshes[unit.mesh], (unit.x, unit.y)
            agent = 2 * number + len(machine.ports) + unit.mesh
            self.add(agent, n, self.within(mesh, (mesh.agent_x, mesh.agent_y), place))
            self.add(n, agent, self.within(mesh, place, (mesh.agent_x, mesh.agent_y)))
            out = (unit.write_x, unit.write_y)
            for k, other in enumerate(units):
                if other.mesh == unit.mesh:
                    self.add(n, k, self.within(mesh, place, (other.x, other.y)))
                    self.add(number + n, k, self.within(mesh, out, (other.x, other.y)))
                elif machine.links:
                    self.add(number + n, k, self._remote(unit, out, other))

    def _remote(self, unit: Unit, out: Place, other: Unit) -> list[int]:
        """Through the unit's own port, over the interlinks, and in through the port of the receiver."""
        near, far = self.machine.port_of(unit), self.machine.port_of(other)
        meshes = self.machine.meshes
        first = self.within(meshes[unit.mesh], out, (near.x, near.y))
        last = self.within(meshes[other.mesh], (far.x, far.y), (other.x, other.y))
        return [*first, *self.across(unit.mesh, other.mesh), *last]


def _end(mesh: Mesh, place: Place) -> str:
    """An endpoint's name: its coordinate on the ring, or the local end of its router."""
    x, y = place
    return f"local({x},{y})" if mesh.clamp(x, y) == place else f"({x},{y})"


@lru_cache(maxsize=8)
def topology(machine: Machine) -> Topology:
    """What the clock needs to know of a machine."""
    paths = _Paths(machine)
    paths.all()
    tracks: list[Track] = []

    def track(name: str, group: str | None = None) -> int:
        tracks.append(Track(name, name if group is None else group))
        return len(tracks) - 1

    several = len(machine.meshes) > 1
    agent = np.zeros((len(machine.meshes), st.A_COLUMNS), np.int64)
    for m in machine.meshes:
        agent[m.index, st.A_TRACK] = track(f"dispatcher of mesh {m.index}" if several else "dispatcher")
    port = np.zeros((len(machine.ports), st.P_COLUMNS), np.int64)
    numbers: dict[tuple[int, int], int] = {}
    for n, p in enumerate(machine.ports):
        numbers[p.mesh, p.index] = n
        name = f"port {p.index}" + (f" of mesh {p.mesh}" if several else "")
        port[n, [st.P_READ_TRACK, st.P_WRITE_TRACK]] = track(f"{name} read"), track(f"{name} write")
        port[n, st.P_ROOM] = machine.params.wr_slots
    unit = np.zeros((len(machine.units), st.U_COLUMNS), np.int64)
    for n, u in enumerate(machine.units):
        row = unit[n]
        row[[st.U_HEAD, st.U_LAST, st.U_WAITING, st.U_CURRENT]] = -1
        row[st.U_KIND], row[st.U_MESH], row[st.U_NODE] = st.MG if u.kind == "MG" else st.VC, u.mesh, u.y << 4 | u.x
        row[st.U_PORT], row[st.U_TRACK] = numbers[u.mesh, u.port], track(u.name)
        if u.kind == "MG":
            row[st.U_ARRAY], row[st.U_OUT] = track(f"{u.name} array", u.name), track(f"{u.name} drain", u.name)
        row[st.U_BESIDE] = sum(1 for other in machine.units_of("MG", u.mesh) if other.port == u.port)
    link = np.zeros((len(paths.rows), st.K_COLUMNS), np.int64)
    link[:, [st.K_WORD, st.K_LATENCY]] = paths.rows
    link[:, st.K_TRACK] = [track(name) for name in paths.links]
    return Topology(
        tuple(tracks),
        tuple(paths.links),
        _time(machine),
        unit,
        port,
        link,
        agent,
        paths.at,
        np.array(paths.path, np.int64),
    )


def _time(machine: Machine) -> st.Ints:
    """Values of `State.time`."""
    t, p = machine.timing, machine.params
    burst = p.drain_burst
    # A burst of 8 takes 11, a single word 4 (8.1); what lies between is taken as a straight line.
    slope = (t.write_burst - t.write_single) / 7
    writes = [t.write_single + round(slope * (words - 1)) for words in range(burst + 1)]
    return np.array([*(t[name] for name in st.TIMES), p.reuse_min, burst, *writes], np.int64)
