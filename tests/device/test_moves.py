"""Moves that a host asks a device for: what arrives, what is counted and timed, what is refused before it starts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.device import Buffer, Recording, replay
from kohakuaccel.diagnostics import Fault, Hang, Refusal
from kohakutpu import machines
from kohakutpu.device import Device
from kohakutpu.isa import control as reg
from kohakutpu.isa.mover import Gather, Move
from kohakutpu.isa.walks import Dimension, Walk
from kohakutpu.sim.session import timed
from kohakutpu.units.system import System

MINI = machines.load("mini").with_(name="mini+mover", features={"mover": True})
MANY = machines.load("multimesh_4").with_(name="multimesh_4+mover", features={"mover": True})
DEVICE = Device(MINI)


def line(words: int, stride: int = 32, base: int = 0) -> Walk:
    return Walk(base, (Dimension(words, stride),), ndim=1)


def filled(nbytes: int, device: Device = DEVICE) -> tuple[Buffer, NDArray[np.uint8]]:
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    buffer = device.alloc(nbytes)
    device.upload(buffer, data)
    return buffer, data


def words(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return data.reshape(-1, 32)


def test_a_copy_that_turns_rows_of_words_and_counts() -> None:
    """5 rows of 7 words become 7 rows of 5."""
    source, data = filled(5 * 7 * 32)
    target = DEVICE.alloc(source.nbytes)
    before, writes = DEVICE.stats(), Walk(0, (Dimension(7, 160), Dimension(5, 32)), ndim=2)
    DEVICE.move(Move("COPY", writes, Walk(0, (Dimension(0, 32), Dimension(0, 224)), ndim=2)), target, source)
    want = data.reshape(5, 7, 32).swapaxes(0, 1)
    assert np.array_equal(DEVICE.download(target).reshape(7, 5, 32), want)
    after = DEVICE.stats()
    counted = {k: after[k] - before[k] for k in ("moves", "moved_bytes", "move_transactions")}  # pyright: ignore[reportOperatorIssue]  # counts
    assert counted == {"moves": 1, "moved_bytes": 35 * 32, "move_transactions": 17 + 1}


def test_padding_comes_from_the_immediate() -> None:
    """A bounded axis of the source: 2 words of padding on each side of 4."""
    source, data = filled(4 * 32)
    target = DEVICE.alloc(8 * 32)
    reads = Walk(-64, (Dimension(8, 32, axis=1, astep=1),), ((-2, 4), (0, 0)), ndim=1)
    DEVICE.move(Move("COPY", line(8), reads, width=2, immediate=0x3C00), target, source)
    found = words(DEVICE.download(target))
    assert np.array_equal(found[2:6], words(data))
    assert (found[[0, 1, 6, 7]].view(np.float16) == 1).all()


def test_gather_fill_generate() -> None:
    source, data = filled(6 * 64)
    target = DEVICE.alloc(5 * 64)
    rows = np.array([5, 0, 0, 3, 1])
    DEVICE.move(Move("GATHER", line(10), gather=Gather(0, 5, 64, 2)), target, source, rows)
    assert np.array_equal(DEVICE.download(target).reshape(5, 64), data.reshape(6, 64)[rows])
    DEVICE.move(Move("FILL", line(5, 64), width=1, immediate=0xA5), target)
    assert (DEVICE.download(target).reshape(5, 64)[:, :32] == 0xA5).all()
    made = [DEVICE.alloc(32 * 64) for _ in range(2)]
    for buffer in made:
        DEVICE.move(Move("GENERATE", line(64), seed=11), buffer)
    one, two = (DEVICE.download(buffer) for buffer in made)
    assert not np.array_equal(one, two)  # the counter is the address
    DEVICE.move(Move("GENERATE", line(64), seed=11), made[0])
    assert np.array_equal(DEVICE.download(made[0]), one)


def test_every_mesh_moves_its_own() -> None:
    device = Device(MANY)
    source, target = (device.alloc(64, mesh=2) for _ in range(2))
    device.upload(source, np.arange(64, dtype=np.uint8))
    device.move(Move("COPY", line(2), line(2)), target, source)
    assert np.array_equal(device.download(target), np.arange(64))
    with pytest.raises(Refusal, match="a mover stays in its mesh"):
        device.move(Move("COPY", line(2), line(2)), device.alloc(64, mesh=1), source)


def test_a_recording_holds_a_move() -> None:
    recording = Recording(System(MINI))
    device = Device(MINI, recording)
    source, data = filled(256, device)
    target = device.alloc(256)
    device.move(Move("COPY", line(8), line(8)), target, source)
    other = System(MINI)
    replay(recording.writes, other)
    assert np.array_equal(other.read(reg.memory_bus(0, target.address), 256), data)


def test_time_of_a_move() -> None:
    """33 cycles a word (datasheet 8.1, tag S), beside a host transaction for each register and the status."""
    source, _ = filled(64 * 32)
    target = DEVICE.alloc(64 * 32)
    _, timeline = timed(DEVICE, lambda: DEVICE.move(Move("COPY", line(64), line(64)), target, source), "move")
    assert MINI.timing.tag("mover_word") == "S"
    assert timeline.host == {"memory mover": 64 * 33, "mover commands": (13 + 1) * 300}
    assert timeline.cycles == 0


FAR, TWICE = Walk(0, (Dimension(2, 64),), ndim=1), Walk(0, (Dimension(2, 0),), ndim=1)
REFUSED = [
    ("the target of a FILL.*a move stays inside its buffers.*got word at byte 256", Move("FILL", line(9)), ()),
    ("a move stays inside its buffers.*got word at byte -32", Move("FILL", line(1, base=-32)), ()),
    (
        "source of a COPY.*stays inside its buffers.*got word at byte 256",
        Move("COPY", line(5), FAR),
        ("source",),
    ),
    ("the target of a FILL: a move goes by whole words; got byte 16", Move("FILL", line(2, 16)), ()),
    (
        "source of a COPY: a move goes by whole words; got byte 8",
        Move("COPY", line(2), line(2, base=8)),
        ("source",),
    ),
    ("a move reads no word that it writes", Move("COPY", line(4, base=32), line(4)), ("target",)),
    ("a move writes a word once", Move("FILL", TWICE), ()),
    ("COPY and GATHER have a source", Move("COPY", line(1), line(1)), ()),
    ("COPY and GATHER have a source", Move("FILL", line(1)), ("source",)),
    ("a GATHER comes with its indices", Move("GATHER", line(2), gather=Gather(0, 2, 32, 1)), ("source",)),
    ("a gathered row lies inside its buffer", Move("GATHER", line(2), gather=Gather(0, 2, 32, 1)), ("source", [0, 8])),
    ("a gathered row lies inside its buffer", Move("GATHER", line(2), gather=Gather(0, 2, 32, 1)), ("source", [-1, 0])),
    ("indices are integers, one a row", Move("GATHER", line(2), gather=Gather(0, 2, 32, 1)), ("source", [0.5, 1])),
    ("a move goes by whole words", Move("GATHER", line(2), gather=Gather(0, 2, 16, 1)), ("source", [0, 1])),
    ("a gather reads another buffer", Move("GATHER", line(2), gather=Gather(0, 2, 32, 1)), ("target", [0, 1])),
    ("a move's mode is", Move("SWAP", line(1)), ()),
]


@pytest.mark.parametrize(("text", "move", "more"), REFUSED)
def test_refusals_move_nothing(text: str, move: Move, more: tuple[object, ...]) -> None:
    buffers = {name: filled(256)[0] for name in ("target", "source")}
    given = [buffers[m] if isinstance(m, str) else np.array(m) for m in more]
    before = {name: DEVICE.download(b) for name, b in buffers.items()}
    moves = DEVICE.counters.moves, DEVICE.counters.move_transactions
    with pytest.raises(Refusal, match=text):
        DEVICE.move(move, buffers["target"], *given)  # pyright: ignore[reportArgumentType]  # buffer, then indices
    assert (DEVICE.counters.moves, DEVICE.counters.move_transactions) == moves
    assert all(np.array_equal(DEVICE.download(b), before[name]) for name, b in buffers.items())


def test_without_the_feature() -> None:
    device = Device("mini")
    with pytest.raises(Refusal, match="machine mini: this machine has no memory mover"):
        device.move(Move("FILL", line(1)), device.alloc(32))


def test_a_fault_is_told_and_counted() -> None:
    """A transport whose mover answers with a fault, or never."""

    class Broken:
        def __init__(self, status: int) -> None:
            self.status = status

        def write(self, bus: int, data: NDArray[np.generic]) -> None:
            pass

        def read(self, bus: int, nbytes: int, runs: object = None) -> NDArray[np.uint8]:
            return np.array([self.status], np.uint64).view(np.uint8)

    for status, kind, text in ((2 << 4, Fault, "a moved word stays inside"), (1, Hang, "memory mover of mesh 0")):
        device = Device(MINI, Broken(status))
        with pytest.raises(kind, match=text):
            device.move(Move("FILL", line(1)), device.alloc(32))
        assert device.counters.faults == 1
        assert device.counters.moves == 0
