"""A region of device memory that lives as long as somebody holds it.

It decides lifetime: the region returns to its arena when the buffer is garbage collected or freed by hand.
It must not know how bytes get there.
"""

from __future__ import annotations

import weakref

from kohakuaccel.device.arena import Arena
from kohakuaccel.diagnostics import Refusal


class Buffer:
    """`nbytes` bytes at `address` of one memory (`mesh` numbers it). `layout` says how they are to be read."""

    __slots__ = ("__weakref__", "_address", "_finalizer", "label", "layout", "mesh", "nbytes")

    def __init__(
        self,
        arena: Arena,
        nbytes: int,
        align: int = 0,
        mesh: int = 0,
        label: str = "",
        layout: object = None,
        at: int | None = None,
    ) -> None:
        block = arena.alloc(nbytes, align, label, at)
        self._address = block.address
        self._finalizer = weakref.finalize(self, arena.release, block.address)
        self._finalizer.atexit = False
        self.nbytes = nbytes
        self.mesh = mesh
        self.label = label
        self.layout = layout

    @property
    def address(self) -> int:
        """Byte address in its memory. Refused once freed."""
        if not self._finalizer.alive:
            raise Refusal("a freed buffer has no address", where=repr(self), hint="keep the tensor that owns it")
        return self._address

    @property
    def live(self) -> bool:
        return self._finalizer.alive

    def free(self) -> None:
        """Give the region back now; a second call does nothing."""
        self._finalizer()

    def __repr__(self) -> str:
        state = "" if self._finalizer.alive else " freed"
        name = f" {self.label!r}" if self.label else ""
        return f"<Buffer{name} {self.nbytes} bytes at {self._address:#x} of memory {self.mesh}{state}>"
