"""Where the values of a tensor are: a host copy, materialisations on a device, or a recipe from another
storage.

Decides: when values are packed, uploaded, read back and dropped, and counts every trip. It must not know
shapes, operators or why a kernel wants a layout.

Values are immutable, so host copy and materialisations never disagree. A storage that began on the host can
always be rebuilt; one that a kernel wrote (`device_born`) exists only in the layout the kernel chose until
somebody reads it. Sending a device-born value back in another order is a relayout: counted in `relayouts` and
`relayout_bytes` (bytes read plus bytes written).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import OutOfMemory, Refusal
from kohakuaccel.schedule import narrowed
from kohakutpu.layouts import FP16, Element, Layout, OperandPack, canonical, element_of

if TYPE_CHECKING:
    from kohakutpu.device import Buffer, Device

Real = NDArray[np.floating[Any]]  # float16 or float32
PAGE = 4096  # buffers begin at pages, so that a program linked anew passes the checks it has passed before
EXPANSIONS_KEPT = 4  # stretched or transposed forms that a value keeps for the next use

_live: weakref.WeakSet[Storage] = weakref.WeakSet()
_pinned: set[Storage] = set()


class Storage:
    """`size` values of one device in logical (row-major) order, wherever they are.

    element: how they are stored; what `host` is where that is given. host: the values with any shape and strides whose
    C order is the logical order, or None while they are only on the device. derive: computes `host` on first need from
    other storages. remake: computes the value on the device instead, or answers None where the host has what it is
    derived from.
    """

    __slots__ = (
        "__weakref__",
        "_buffers",
        "_derive",
        "_host",
        "_remake",
        "_tolerated",
        "device",
        "device_born",
        "element",
        "expansions",
        "size",
    )

    def __init__(
        self,
        device: Device,
        size: int,
        *,
        host: Real | None = None,
        derive: Callable[[], Real] | None = None,
        remake: Callable[[], Storage | None] | None = None,
        device_born: bool = False,
        element: Element = FP16,
    ) -> None:
        self.device = device
        self.size = size
        self.element = element if host is None else element_of(host.dtype)
        self.device_born = device_born
        self.expansions: dict[Any, Storage] = {}  # stretched and transposed forms of this value
        self._host = host
        self._derive = derive
        self._remake = remake
        self._buffers: dict[Layout, Buffer] = {}
        # Quantised forms made under the "count" policy from values with NaN or Inf: not to be reused under
        # "raise".
        self._tolerated: set[Layout] = set()
        _live.add(self)

    @classmethod
    def on_device(cls, device: Device, size: int, layout: Layout, buffer: Buffer) -> Storage:
        """Values that a kernel wrote into `buffer` in `layout`."""
        if layout.size != size:
            raise Refusal(
                "a layout covers the tensor it holds",
                where=str(layout),
                got=f"{size} elements",
                limit=layout.size,
            )
        made = cls(device, size, device_born=True, element=layout.element)
        made._buffers[canonical(layout)] = buffer
        return made

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Canonical layouts already on the device."""
        return tuple(self._buffers)

    @property
    def on_host(self) -> bool:
        return self._host is not None

    @property
    def device_only(self) -> bool:
        """Whether a kernel wrote the values and nobody has read them back yet."""
        return self.device_born and self._host is None

    def keep(self, form: object, made: Storage) -> None:
        """Remember a stretched or transposed form for the next use."""
        if len(self.expansions) >= EXPANSIONS_KEPT:
            self.expansions.pop(next(iter(self.expansions)))
        self.expansions[form] = made

    @property
    def pending(self) -> bool:
        """Whether `settle` has something to make: the value it would be made from may be only on the device."""
        return self._remake is not None and self._host is None and not self._buffers

    def settle(self) -> None:
        """Before a kernel reads the value: what is derived from a value that only the device has is derived there."""
        made = self._remake() if self.pending and self._remake is not None else None
        if made is not None:
            self.fulfil(made)

    def fulfil(self, made: Storage) -> None:
        """The value is what another storage holds: its materialisations and its host copy become this one's too."""
        self._buffers.update(made._buffers)
        self._tolerated |= made._tolerated
        self._host = made._host
        self.device_born = made.device_born
        self.element = made.element
        self._derive, self._remake = made._derive, made._remake

    def abandon(self, refuse: Callable[[], Storage]) -> None:
        """The value will never be made: whoever asks for it gets what `refuse` raises."""
        self._derive, self._remake = (lambda: refuse().host()), refuse

    @property
    def resident_bytes(self) -> int:
        """Bytes of device memory that this storage's materialisations take."""
        return sum(layout.nbytes for layout in self._buffers)

    def host(self) -> Real:
        """The values on the host, read back on first need and then kept. Any strides; C order is logical
        order."""
        if self._host is None:
            if self._derive is not None:
                made = self._derive()
                self._derive = None
            else:
                made = self._read()
            made.setflags(write=False)
            self._host = made
        return self._host

    def _read(self) -> Real:
        layout, buffer = next(iter(self._buffers.items()))
        runs = None if isinstance(layout, OperandPack) else astuple(layout.runs)
        return layout.unpack(self.device.download(buffer, layout.nbytes, runs=runs))

    def peek(self) -> Real:
        """The values on the host for once: a kernel that reads them next still finds them where they are."""
        return self._read() if self.device_only and self._derive is None else self.host()

    def buffer(self, layout: Layout) -> Buffer:
        """The values on the device in `layout`: found, or packed from the host copy and uploaded. FP32 that is
        packed as FP16 is rounded once; what saturates is counted.

        OutOfMemory when `allocate` finds no room. A Fault of the quantising upload leaves the values and every
        other materialisation as they were.
        """
        key = canonical(layout)
        found = self._buffers.get(key)
        if found is not None and not (key in self._tolerated and self.device.nonfinite == "raise"):
            return found
        if layout.size != self.size:
            raise Refusal(
                "a layout covers the tensor it holds",
                where=str(layout),
                got=f"{self.size} elements",
                limit=layout.size,
            )
        counters = self.device.counters
        before = counters.bytes_from_device
        host, lost = narrowed(self.host(), layout.dtype)
        counters.saturations += lost
        data = layout.pack(np.ascontiguousarray(host).reshape(-1))
        made = allocate(self.device, layout.nbytes)
        quantise = layout.side if isinstance(layout, OperandPack) and layout.preq else None
        try:
            self.device.upload(made, data, quantise)
        except BaseException:
            made.free()  # a caller that keeps the exception would keep it alive
            raise
        if quantise and self.device.nonfinite == "count" and self.first_nonfinite() is not None:
            self._tolerated.add(key)
        if self.device_born:
            counters.relayouts += 1
            counters.relayout_bytes += counters.bytes_from_device - before + data.nbytes
        self._buffers[key] = made
        return made

    def first_nonfinite(self) -> tuple[int, float] | None:
        """Flat logical index and value of the first NaN or Inf, or None. Reads the value back if it must."""
        flat = np.ascontiguousarray(self.host()).reshape(-1)
        bad = ~np.isfinite(flat)
        first = int(np.argmax(bad)) if bad.size else 0
        return (first, float(flat[first])) if bad.size and bad[first] else None

    def evict(self) -> int:
        """Drop materialisations that can be rebuilt and are not pinned; bytes given up. Kernels that are
        using a buffer keep it alive themselves."""
        if self in _pinned:
            return 0
        self.expansions.clear()
        keep = 0 if self._host is not None or self._derive is not None else 1
        dropped = list(self._buffers)[keep:]
        freed = sum(layout.nbytes for layout in dropped)
        for layout in dropped:
            del self._buffers[layout]
            self._tolerated.discard(layout)
        return freed

    def pin(self) -> None:
        _pinned.add(self)

    def unpin(self) -> None:
        _pinned.discard(self)

    @property
    def pinned(self) -> bool:
        return self in _pinned


def evict(device: Device) -> int:
    """Drop every cached materialisation of `device` that can be rebuilt and is not pinned; bytes given up."""
    return sum(storage.evict() for storage in list(_live) if storage.device is device)


def allocate(device: Device, nbytes: int, at: int | None = None) -> Buffer:
    """A buffer of `nbytes`; when memory is full, once more after dropping what can be rebuilt. Raises OutOfMemory.

    at: where it lies if that is free."""
    try:
        return device.alloc(nbytes, PAGE, at=at)
    except OutOfMemory:
        if not evict(device):
            raise
    return device.alloc(nbytes, PAGE)


def resident(device: Device) -> dict[str, int]:
    """What the tensors of `device` hold in its memory: bytes in all, bytes pinned, number of storages."""
    held = [storage for storage in list(_live) if storage.device is device and storage.layouts]
    return {
        "resident_tensors": len(held),
        "resident_bytes": sum(storage.resident_bytes for storage in held),
        "pinned_bytes": sum(storage.resident_bytes for storage in held if storage.pinned),
    }
