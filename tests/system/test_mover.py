"""The memory mover of datasheet 3.4 against one written word by word, and what its registers refuse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as s

from kohakuaccel.diagnostics import EncodingRefusal, Fault, Refusal
from kohakutpu import machines
from kohakutpu.isa import control as reg
from kohakutpu.isa import mover as isa
from kohakutpu.isa.mover import Gather, Move
from kohakutpu.isa.walks import Dimension, Walk
from kohakutpu.units.mover import philox
from kohakutpu.units.system import System
from reference.mover import Mover, philox4x32

MINI = machines.load("mini").with_(name="mini+mover", features={"mover": True})
MANY = machines.load("multimesh_4").with_(name="multimesh_4+mover", features={"mover": True})
SOURCE, TARGET, ROWS, SPAN = 0x10000, 0x20000, 0x30000, 0x8000
Writes = Sequence[tuple[int, int]]
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
"""The published answers of Philox4x32-10: counter, key, output."""


def put(system: System, writes: Writes, mesh: int = 0) -> None:
    """Register writes at AUX_CFG + offset."""
    for offset, value in writes:
        system.write(reg.agent_bus(mesh, reg.AUX_CFG + offset), np.array([value], np.uint64))


class Pair:
    """A system and the reference with the same memory; every register write goes to both."""

    def __init__(self, system: System, seed: int, mesh: int = 0) -> None:
        self.system, self.mesh = system, mesh
        rng = np.random.default_rng(seed)
        self.reference = Mover({}, system.machine.memories[mesh].size, mesh)
        for start in (SOURCE, TARGET, ROWS):
            self.load(start, rng.integers(0, 256, SPAN, np.uint8))
        self.system.movers[mesh].status = 0

    def load(self, start: int, data: np.ndarray) -> None:
        raw = np.ascontiguousarray(data).view(np.uint8)
        self.system.write(reg.memory_bus(self.mesh, self.mesh << 36 | start), raw)
        for n in range(len(raw) // 32):
            self.reference.memory[start // 32 + n] = raw[32 * n : 32 * n + 32].tobytes()

    def run(self, writes: Writes) -> None:
        for offset, value in writes:
            self.reference.write(offset, value)
        put(self.system, writes, self.mesh)

    def same(self) -> None:
        status = int(self.system.read(reg.agent_bus(self.mesh, reg.AUX_STAT), 8).view(np.uint64)[0])
        assert isa.STATUS.decode(status) == isa.STATUS.decode(self.reference.status)
        for start in (SOURCE, TARGET, ROWS):
            here = self.system.read(reg.memory_bus(self.mesh, self.mesh << 36 | start), SPAN).tobytes()
            assert here == b"".join(self.reference.memory[start // 32 + n] for n in range(SPAN // 32))


SIGNAL = System(MINI, faults="signal")


def dimensions(most: int, step: int) -> s.SearchStrategy[list[Dimension]]:
    one = s.builds(
        Dimension,
        s.integers(0, 5),
        s.integers(-6, 6).map(lambda n: step * n),
        s.integers(0, 2),
        s.integers(-3, 3),
    )
    return s.lists(one, max_size=most)


def walks(base: int, most: int = 4, step: int = 32) -> s.SearchStrategy[Walk]:
    axis = s.tuples(s.integers(-4, 4), s.sampled_from([0, 0, 1, 3, 6]))
    return s.builds(
        lambda at, dims, axes: Walk(base + step * at, tuple(dims), axes, len(dims)),
        s.integers(256, 512),
        dimensions(most, step),
        s.tuples(axis, axis),
    )


@settings(max_examples=35, deadline=None)
@given(
    mode=s.sampled_from(["COPY", "COPY", "GENERATE", "FILL"]),
    source=walks(SOURCE, most=6),
    target=walks(TARGET),
    width=s.sampled_from([1, 2, 4]),
    value=s.integers(0, 0xFF),
    seed=s.integers(0, (1 << 64) - 1),
)
def test_random_moves(mode: str, source: Walk, target: Walk, width: int, value: int, seed: int) -> None:
    pair = Pair(SIGNAL, 1)
    pair.run(Move(mode, target, source, width, value, seed).registers())
    assert pair.reference.moves == 1
    pair.same()


@settings(max_examples=15, deadline=None)
@given(
    rows=s.lists(s.integers(0, 40), min_size=1, max_size=20),
    words=s.integers(1, 4),
    pitch=s.integers(0, 12).map(lambda n: 32 * n),
    stride=s.sampled_from([32, 160, -32]),
)
def test_random_gathers(rows: list[int], words: int, pitch: int, stride: int) -> None:
    pair = Pair(SIGNAL, 2)
    pair.load(ROWS, np.resize(np.array(rows, np.uint32), -(-len(rows) // 8) * 8))
    target = Walk(TARGET + 0x4000, (Dimension(len(rows), stride * words), Dimension(words, 32)), ndim=2)
    move = Move("GATHER", target, Walk(SOURCE), gather=Gather(ROWS, len(rows), pitch, words))
    pair.run(move.registers())
    assert pair.reference.moves == 1
    pair.same()


def line(base: int, words: int, stride: int = 32) -> Walk:
    return Walk(base, (Dimension(words, stride),), ndim=1)


ROW = Gather(ROWS, 8, 32, 1)
FAULTS = [
    ("index count", 1, Move("GATHER", line(TARGET, 8), Walk(SOURCE), gather=ROW), (isa.INDEX, ROWS | 2049 << 40)),
    ("too few indices", 1, Move("GATHER", line(TARGET, 8), Walk(SOURCE), gather=ROW), (isa.INDEX, ROWS | 7 << 40)),
    ("a target beyond DRAM", 2, Move("FILL", line(MINI.memories[0].size - 64, 5)), None),
    ("a source beyond DRAM", 2, Move("COPY", line(TARGET, 3), line(MINI.memories[0].size, 3)), None),
    ("another mesh", 2, Move("FILL", line(1 << 36, 1)), None),
    ("an aperture", 2, Move("FILL", line(1 << 39, 1)), None),
    ("a row far away", 2, Move("GATHER", line(TARGET, 8), Walk(SOURCE), gather=Gather(ROWS, 8, 0xFFFFFFE0, 1)), None),
    ("a source off its word", 3, Move("COPY", line(TARGET, 4), line(SOURCE + 64, 4, 24)), None),
    ("indices off a word", 3, Move("GATHER", line(TARGET, 8), Walk(SOURCE), gather=Gather(ROWS + 4, 8, 32, 1)), None),
    ("mode 1", 4, Move("FILL", line(TARGET, 1)), (isa.MODE, 1 | 1 << 16)),
    ("mode 5", 4, Move("FILL", line(TARGET, 1)), (isa.MODE, 5 | 1 << 16)),
    ("element width 3", 5, Move("FILL", line(TARGET, 1)), (isa.MODE, 4 | 3 << 3 | 1 << 16)),
    ("a target off its word", 6, Move("FILL", line(TARGET + 32, 4, 20)), None),
]


@pytest.mark.parametrize(("code", "move", "instead"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_faults(code: int, move: Move, instead: tuple[int, int] | None) -> None:
    """What was written before a fault stays; status shows the fault until the next move; "raise" raises it."""
    pair = Pair(SIGNAL, 3)
    writes = move.registers()
    if instead is not None:  # the same move with one register as no driver writes it
        writes = [instead if offset == instead[0] else (offset, word) for offset, word in writes]
    pair.run(writes)
    assert pair.reference.fault == code
    pair.same()
    pair.run(Move("FILL", line(TARGET, 1)).registers())
    assert pair.reference.fault == 0
    pair.same()
    SIGNAL.faults = "raise"
    try:
        with pytest.raises(Fault, match="memory mover of mesh 0") as caught:
            put(SIGNAL, writes)
    finally:
        SIGNAL.faults = "signal"
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize(("counter", "key", "output"), VECTORS)
def test_philox(counter: tuple[int, int, int, int], key: tuple[int, int], output: tuple[int, int, int, int]) -> None:
    assert philox4x32(counter, key) == output
    found = philox(np.array(counter, np.uint64).reshape(4, 1), key[1] << 32 | key[0])
    assert found.ravel().tolist() == list(output)


def test_each_mesh_has_its_own() -> None:
    system = System(MANY)
    for mesh in (1, 3):
        pair = Pair(system, 4, mesh)
        low = mesh << 36
        pair.run(Move("COPY", line(low + TARGET, 9), line(low + SOURCE, 9, 64)).registers())
        pair.run(Move("GENERATE", line(low + TARGET + 512, 9), seed=7).registers())
        assert pair.reference.moves == 2
        pair.same()


def test_the_control_engine_polls_it_and_does_not_command_it() -> None:
    pair = Pair(SIGNAL, 8)
    pair.run(Move("FILL", line(TARGET, 3)).registers())
    bus = reg.agent_bus(0, reg.AUX_STAT)
    done = [(reg.POLL, bus, 1 << 40, 0xFFFFFF << 40 | 1), (reg.DONE, 0, 5, 0)]
    for commands, error in ((done, 0), ([(reg.WRITE, reg.agent_bus(0, reg.AUX_CFG), 4 | 1 << 16, 0), *done], 1)):
        SIGNAL.write(reg.engine_bus(0, reg.COMMANDS), np.array(commands, np.uint64))
        SIGNAL.write(reg.engine_bus(0, reg.CTRL), np.array([reg.GO], np.uint64))
        status = int(SIGNAL.read(reg.engine_bus(0, reg.CTRL), 8).view(np.uint64)[0])
        assert reg.ENGINE_STATUS.decode(status) == {"busy": 0, "done": 1 - error, "error": error}
    pair.same()


def test_unwritten_memory_is_not_read() -> None:
    Pair(SIGNAL, 5)
    with pytest.raises(Fault, match="memory that nobody wrote is read: byte 0x50000 of mesh 0"):
        put(SIGNAL, Move("COPY", line(TARGET, 2), line(0x50000, 2)).registers())


def test_what_it_reads_it_does_not_write() -> None:
    Pair(SIGNAL, 6)
    before = SIGNAL.read(reg.memory_bus(0, SOURCE), 128)
    with pytest.raises(Refusal, match="a move reads no word that it writes"):
        put(SIGNAL, Move("COPY", line(SOURCE + 32, 4), line(SOURCE, 4)).registers())
    assert np.array_equal(SIGNAL.read(reg.memory_bus(0, SOURCE), 128), before)


@pytest.mark.parametrize(
    ("offset", "value", "text"),
    [
        (0x08, 0, "the mover has no such register"),
        (0x48, 0, "the mover has no such register"),
        (0x80, 0, "only the memory mover's registers"),
        (0xF8, 0, "only the memory mover's registers"),
        (isa.MODE, 1 << 8 | 4 | 1 << 16, "flags, which the datasheet does not name"),
        (isa.BASE, 7 << 44, "dimensions of a walker are at most 6"),
        (isa.DIM, 6 << 1, "number of a dimension are at most 5"),
        (isa.STEP, 3, "number of an axis are at most 2"),
    ],
)
def test_refused_registers(offset: int, value: int, text: str) -> None:
    with pytest.raises(Refusal, match=text):
        SIGNAL.write(reg.agent_bus(0, reg.AUX_CFG + offset), np.array([value], np.uint64))


def test_registers_are_written_and_the_status_is_read() -> None:
    with pytest.raises(Refusal, match="they are only written"):
        SIGNAL.read(reg.agent_bus(0, reg.AUX_CFG), 8)
    with pytest.raises(Refusal, match="the register cannot be written"):
        SIGNAL.write(reg.agent_bus(0, reg.AUX_STAT), np.array([0], np.uint64))
    with pytest.raises(EncodingRefusal, match="constant bits"):
        SIGNAL.write(reg.agent_bus(0, reg.AUX_CFG + isa.STEP), np.array([1 << 40], np.uint64))


@pytest.mark.parametrize(
    ("move", "text"),
    [
        (Move("MOVE", line(0, 1)), "a move's mode is COPY, GATHER, GENERATE or FILL"),
        (Move("FILL", line(0, 1), width=8), "an immediate's element has 1, 2 or 4 bytes"),
        (Move("FILL", line(0, 1), width=1, immediate=256), "an immediate fits its element"),
        (Move("COPY", line(0, 1), line(64, 1), gather=ROW), "a GATHER has indices, and only it"),
        (Move("GATHER", line(0, 1), line(64, 1)), "a GATHER has indices, and only it"),
        (Move("GATHER", line(0, 1), gather=Gather(0, 2049, 32, 1)), "a GATHER has 1 to 2048 indices"),
        (Move("GATHER", line(0, 5), gather=Gather(0, 4, 32, 2)), "a GATHER writes every word of its rows once"),
        (Move("FILL", Walk(0, (Dimension(2, 32),) * 7, ndim=7)), "a walk has at most six dimensions"),
        (Move("FILL", line(0, 70000)), "count"),
    ],
)
def test_refused_moves(move: Move, text: str) -> None:
    with pytest.raises(Refusal, match=text):
        move.registers()
