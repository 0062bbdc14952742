"""Random runs of a whole machine as host writes: uploads, rounds of programs, transfers between units.

Programs are tried on a shadow machine while they are made, so every recording runs to its end and has no races:
units share what they read and write apart. It must not know the compiled models.
"""

from __future__ import annotations

from random import Random

from . import encode as enc
from . import generate as gen
from .cluster import Cluster
from .errors import Raised, Waits
from .machine import Machine
from .memory import from_halves
from .presets import Preset
from .vector import VectorCore

UNIT_REGION = 0x10000  # every unit writes in its own 64 KiB from UNITS on
UNITS = 0x100000
VC_WORDS = 46  # longest vector program, so that descriptors and a few clusters fit beside it

XY = tuple[int, int]
Program = tuple[XY, list[int]]


class Recorder:
    """Makes the writes of one recording, round by round."""

    def __init__(self, seed: int, preset: Preset, nonfinite: str = "count", faults: bool = False) -> None:
        self.rng = Random(seed)
        self.preset = preset
        self.shadow = Machine(preset, nonfinite, "signal")
        self.faults = faults
        self.host = enc.Host()

    def store(self, mesh: int, address: int, data: bytes) -> None:
        self.host.store(mesh, address, data)
        self.shadow.write(enc.memory(mesh, address), data)

    def upload(self, mesh: int) -> None:
        """FP16 entries at 0; quantised ones, in both orders where the machine has the aperture, at PREQ_BASE."""
        rng = self.rng
        blocks = [gen.half_block(rng, rng.random() < 0.3) for _ in range(gen.FP16_ENTRIES)]
        self.store(mesh, mesh << 36, _bytes(blocks))
        half = gen.PREQ_ENTRIES // 2
        if self.preset.quantising_upload:
            for order in (4, 5):
                blocks = [gen.half_block(rng, rng.random() < 0.3) for _ in range(half)]
                dst = gen.PREQ_BASE + 128 * half * (order - 4)
                self.store(mesh, 1 << 39 | mesh << 36 | order << 32 | dst, _bytes(blocks))
        else:
            words = [w for _ in range(2 * half) for w in gen.packed_words(rng)]
            packed = b"".join(w.to_bytes(32, "little") for w in words)
            self.store(mesh, mesh << 36 | gen.PREQ_BASE, packed)

    def round(self, mesh: int) -> None:
        """One round: some clusters, perhaps a vector core, transfers to units that are idle or still to start."""
        rng, units = self.rng, self.preset.meshes[mesh]
        before = {xy: node.count for xy, node in self.shadow.agents[mesh].nodes.items()}
        mgs = rng.sample(units.mg, min(len(units.mg), rng.randrange(1, 4)))
        vcs = list(units.vc)
        rng.shuffle(vcs)
        programs: list[Program] = []
        receivers: list[XY] = []
        runner = vcs.pop() if vcs and rng.random() < 0.7 else None
        idle = [xy for xy in units.mg if xy not in mgs]
        for i, xy in enumerate(mgs):
            target = (runner or (vcs.pop() if vcs else None)) if i == 0 else (vcs.pop() if vcs else None)
            if target is not None:
                receivers.append(target)
            programs.append((xy, self._cluster(mesh, xy, target, idle.pop() if idle else None)))
        if runner is not None:
            programs.append((runner, self._vector(mesh, runner, vcs.pop() if vcs else None)))
        programs = [p for p in programs if p[1]]
        acks: dict[XY, int] = {}
        for xy, node in self.shadow.agents[mesh].nodes.items():
            extra = node.count - before.get(xy, 0) - sum(len(p) for at, p in programs if at == xy)
            if extra:
                acks[xy] = extra
        first = [runner] if runner is not None and runner in acks else []
        # A fault returns no credit.
        credits = rng.choice([31] if self.faults else [31, len(programs) + 1, len(programs) + 3])
        self.host.round(mesh, programs, acks, credits, first)

    def _base(self, mesh: int, xy: XY) -> int:
        return mesh << 36 | UNITS + UNIT_REGION * (16 * xy[1] + xy[0])

    def _run(self, where: tuple[int, int, int], payload: int, last: bool) -> bool:
        """Execute on the shadow; False when it refuses (nothing has changed then)."""
        try:
            self.shadow.instruction(where, 5 << 268 | int(last) << 259 | payload, 0)
        except (Raised, Waits):
            return False
        return True

    def _cluster(self, mesh: int, xy: XY, vc: XY | None, mg: XY | None) -> list[int]:
        rng, unit = self.rng, self.shadow.units[mesh, *xy]
        assert isinstance(unit, Cluster)
        if mg is not None:
            peer = self.shadow.units[mesh, *mg]
            # A peer that has not opened as many sub-tiles cannot take them.
            if not isinstance(peer, Cluster) or peer.open_tiles < unit.tiles:
                mg = mg if isinstance(peer, Cluster) and peer.open_tiles >= 16 else None
        program: list[int] = []
        while len(program) < 9:
            if self.faults and rng.random() < 0.1 and self._run((mesh, *xy), 13 << 252, False):
                program.append(13 << 252)
            for payload in gen.cluster_instructions(rng, unit, vc, mg, self._base(mesh, xy)):
                if mg is not None and self._too_many(mesh, mg, payload):
                    continue
                mine = payload | mesh << 65 if payload >> 252 == 1 else payload
                if self._run((mesh, *xy), mine, False):
                    program.append(mine)
        return program

    def _too_many(self, mesh: int, mg: XY, payload: int) -> bool:
        """An FP22 drain of more sub-tiles than the peer holds open."""
        peer = self.shadow.units[mesh, *mg]
        wide = payload >> 252 == 3 and payload >> 111 & 1 and payload >> 95 & 255 == 2
        return bool(wide) and isinstance(peer, Cluster) and (payload >> 202 & 0xFFFF) > peer.open_tiles

    def _vector(self, mesh: int, xy: XY, node: XY | None) -> list[int]:
        rng, unit = self.rng, self.shadow.units[mesh, *xy]
        assert isinstance(unit, VectorCore)
        words = gen.vector_words(rng, node, self.faults)
        while len(words) > VC_WORDS:
            words = gen.vector_words(rng, node, self.faults)
        descs = gen.vector_descriptors(rng, self._base(mesh, xy))
        for ad in (3, 4):
            descs[ad] = (descs[ad][0] | mesh << 36, descs[ad][1])
        if not self.faults:
            del descs[6]
        program = enc.vector_program(words, rng.randrange(400), descs)
        if len(unit.written) < 512:
            # A fresh L1 is filled first, because random loads go anywhere.
            fill = [enc.vfill(3, 0), enc.VBAR, enc.vfill(3, 256), enc.VHALT]
            program = [*enc.vector_program(fill, 0, {3: (mesh << 36, [(32, 256)])}), *program]
        for payload in program:
            assert self._run((mesh, *xy), payload, False)
        return program


def _bytes(blocks: list[list[int]]) -> bytes:
    words = [from_halves(block[i : i + 16]) for block in blocks for i in range(0, 128, 16)]
    return b"".join(w.to_bytes(32, "little") for w in words)


def random_recording(
    seed: int, preset: Preset, rounds: int = 4, nonfinite: str = "count", faults: bool = False
) -> list[tuple[int, bytes]]:
    """Host writes of a run: uploads, then rounds on the machine's meshes.

    With `faults` some instructions fault, for machines that go on after a fault.
    """
    recorder = Recorder(seed, preset, nonfinite, faults)
    for mesh in range(len(preset.meshes)):
        recorder.upload(mesh)
    for _ in range(rounds):
        recorder.round(recorder.rng.randrange(len(preset.meshes)))
    return recorder.host.writes
