"""Moves between buffers: what the memory mover may be asked for, and how a host commands it (datasheet 3.4).

It decides which moves are refused before anything is written: outside their buffers, off the words of 32 bytes, onto
what they read, or twice onto one word. It must not know how a transport works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.device import Buffer, Transport
from kohakuaccel.diagnostics import Fault, Hang, Refusal
from kohakuaccel.machine import Machine
from kohakutpu.isa import control as reg
from kohakutpu.isa.mover import STATUS, WORD, Move
from kohakutpu.isa.walks import ADDRESS_MASK, Dimension, Walk
from kohakutpu.units import errors

Ints = NDArray[np.int64]
POLLS = 1000  # reads of AUX_STAT before a move counts as a hang


def check_indices(move: Move, index: NDArray[np.integer] | None, source: Buffer | None) -> NDArray[np.uint32] | None:
    """The indices of a GATHER as the mover reads them; each row they name lies inside `source`."""
    gather = move.gather
    if (gather is None) != (index is None):
        raise Refusal("a GATHER comes with its indices, and only it", where=f"a {move.mode}", hint="pass `index`")
    if gather is None or index is None or source is None:
        return None
    if index.dtype.kind not in "iu" or index.shape != (gather.count,):
        got = f"{index.dtype}{list(index.shape)}"
        raise Refusal("indices are integers, one a row", where="a GATHER", got=got, limit=f"{gather.count} rows")
    rows = index.astype(object)  # products of two 32-bit numbers, without wrapping
    for i in (int(index.argmin()), int(index.argmax())) if index.size else ():
        first = move.source.base + int(rows[i]) * gather.pitch
        if not 0 <= int(rows[i]) < 1 << 32 or first < 0 or first + WORD * gather.words > _room(source):
            raise Refusal(
                "a gathered row lies inside its buffer",
                where=f"index {i} of a GATHER from {source!r}",
                got=f"row {int(rows[i])}, bytes {first} to {first + WORD * gather.words - 1}",
                limit=f"{_room(source)} bytes",
            )
    return index.astype(np.uint32)


def placed(machine: Machine, move: Move, target: Buffer, source: Buffer | None, index: Buffer | None) -> Move:
    """`move`, whose bases are byte offsets in its buffers, with addresses. Raises Refusal by rule, place and value."""
    if not machine.features.mover:
        raise Refusal(
            "this machine has no memory mover",
            where=f"machine {machine.name}",
            hint="switch the feature `mover` on, or copy with a kernel",
        )
    if (source is not None) != (move.mode in ("COPY", "GATHER")):
        raise Refusal("COPY and GATHER have a source, and only they", where=f"a {move.mode}", got=repr(source))
    for buffer in (source, index):
        if buffer is not None and buffer.mesh != target.mesh:
            raise Refusal(
                "a mover stays in its mesh",
                where=f"a {move.mode} to {target!r}",
                got=repr(buffer),
                limit=f"mesh {target.mesh}",
                hint="each mesh has its own mover",
            )
    written, exists = move.target.elements()
    written = _inside(written[exists], move, target, "the target")
    if len(np.unique(written)) != len(written):
        raise Refusal(
            "a move writes a word once",
            where=f"the target of a {move.mode}",
            got=f"{len(written)} writes",
            limit=f"{len(np.unique(written))} words",
            hint="a stride of 0 belongs to the source",
        )
    if source is not None and move.mode == "COPY":
        read, given = beside(move).elements()
        read = _inside(read[exists & given], move, source, "the source")
        _apart(move, target, source, written, read)
    elif source is not None and move.gather is not None:
        if move.source.base % WORD or move.gather.pitch % WORD:
            raise _off_words(move, "the source", f"base {move.source.base}, pitch {move.gather.pitch}")
        if source.mesh == target.mesh and source.address == target.address:
            raise Refusal("a gather reads another buffer than it writes", where=f"a {move.mode}", got=repr(source))
    found = replace(move, target=_moved(move.target, target))
    if source is not None:
        found = replace(found, source=_moved(move.source, source))
    if index is not None and move.gather is not None:
        found = replace(found, gather=replace(move.gather, base=index.mesh << 36 | index.address))
    return found


def beside(move: Move) -> Walk:
    """The source's walk of a COPY: the target's counts, and stride 0 in dimensions that it lacks (datasheet 3.4)."""
    given = move.source.dims[: move.source.ndim]
    known = (*given, *(Dimension(),) * (move.target.ndim - len(given)))
    dims = tuple(replace(d, count=t.count) for d, t in zip(known, move.target.dims[: move.target.ndim]))
    return replace(move.source, dims=dims, ndim=move.target.ndim)


def command(transport: Transport, mesh: int, registers: Sequence[tuple[int, int]]) -> int:
    """Write the registers of a placed move to `mesh`'s mover and wait for it. Returns the bus transactions it took.

    Raises Fault with the mover's fault code, Hang where it stays busy.
    """
    for offset, value in registers:
        transport.write(reg.agent_bus(mesh, reg.AUX_CFG + offset), np.array([value], np.uint64))
    for polls in range(1, POLLS + 1):
        word = transport.read(reg.agent_bus(mesh, reg.AUX_STAT), 8)
        status = STATUS.decode(int(word.view(np.uint64)[0]))
        if status["busy"]:
            continue
        if status["fault"]:
            message = errors.fault("mover", status["fault"])
            raise Fault(message.rule, unit=f"memory mover of mesh {mesh}", code=status["fault"], hint=message.hint)
        return len(registers) + polls
    raise Hang([f"the host polls the memory mover of mesh {mesh}, which stays busy"])


def _room(buffer: Buffer) -> int:
    return buffer.nbytes + WORD - 1 & -WORD


def _moved(walk: Walk, buffer: Buffer) -> Walk:
    return replace(walk, base=(buffer.mesh << 36 | buffer.address) + walk.base & ADDRESS_MASK)


def _off_words(move: Move, what: str, got: str) -> Refusal:
    return Refusal("a move goes by whole words", where=f"{what} of a {move.mode}", got=got, limit="multiples of 32")


def _inside(address: Ints, move: Move, buffer: Buffer, what: str) -> Ints:
    offset = (address + (1 << 39) & ADDRESS_MASK) - (1 << 39)  # what lies before the buffer is negative again
    off = offset % WORD != 0
    if off.any():
        raise _off_words(move, what, f"byte {int(offset[off.argmax()])}")
    out = (offset < 0) | (offset + WORD > _room(buffer))
    if out.any():
        raise Refusal(
            "a move stays inside its buffers",
            where=f"{what} of a {move.mode}, {buffer!r}",
            got=f"word at byte {int(offset[out.argmax()])}",
            limit=f"{_room(buffer)} bytes",
        )
    return offset


def _apart(move: Move, target: Buffer, source: Buffer, written: Ints, read: Ints) -> None:
    both = np.intersect1d(written + target.address, read + source.address)
    if len(both):
        raise Refusal(
            "a move reads no word that it writes",
            where=f"a {move.mode} from {source!r} to {target!r}",
            got=f"byte {int(both[0]) - target.address} of the target",
            hint="move through another buffer",
        )
