"""A device that only stores bytes, so that where tensors live and how often they travel is tested on its
own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel.device import Arena, Buffer, Counters
from kohakuaccel.diagnostics import Fault
from kohakutpu.storage import Storage

Bytes = NDArray[np.uint8]


@dataclass
class Named:
    name: str = "bytes"


@dataclass(eq=False)
class ByteDevice:
    """Memory of `size` bytes. A quantising upload faults on NaN and Inf and stores nothing readable."""

    size: int = 1 << 20
    nonfinite: str = "raise"
    machine: Named = field(default_factory=Named)
    counters: Counters = field(default_factory=Counters)
    uploads: list[tuple[int, str | None]] = field(default_factory=list[tuple[int, str | None]])

    def __post_init__(self) -> None:
        self.arena = Arena(0, self.size)
        self.bytes: dict[int, Bytes] = {}

    def alloc(self, nbytes: int, align: int = 256, mesh: int = 0, at: int | None = None) -> Buffer:
        return Buffer(self.arena, nbytes, align, mesh, at=at)

    def upload(self, buffer: Buffer, data: Bytes, quantise: str | None = None) -> None:
        if quantise and ((data.view(np.uint16) & 0x7C00) == 0x7C00).any():
            if self.nonfinite == "raise":
                raise Fault("non-finite operand", unit="upload", code=0x10)
            self.counters.nonfinite += 1
        self.uploads.append((data.nbytes, quantise))
        self.counters.bytes_to_device += data.nbytes
        self.bytes[buffer.address] = data.copy()

    def download(self, buffer: Buffer, nbytes: int | None = None, offset: int = 0, runs: object = None) -> Bytes:
        data = self.bytes[buffer.address][offset:nbytes].copy()
        self.counters.bytes_from_device += data.nbytes
        return data

    def write(self, buffer: Buffer, data: Bytes) -> None:
        """What a kernel does: bytes appear without crossing the link."""
        self.bytes[buffer.address] = data.copy()

    def empty_cache(self) -> None:
        pass

    def stats(self) -> dict[str, object]:
        return self.counters.as_dict()


@pytest.fixture
def bytes_device() -> ByteDevice:
    return ByteDevice()


@pytest.fixture
def computed() -> Any:
    """computed(device, values, layout): a tensor as a kernel returns it, whose values only the device has."""

    def make(device: ByteDevice, values: NDArray[Any], layout: Any) -> Any:
        from kohakutpu.tensor import Tensor

        buffer = device.alloc(layout.nbytes)
        device.write(buffer, layout.pack(values.astype(np.float16).reshape(-1)))
        return Tensor.on_device(cast(Any, device), values.shape, np.float16, layout, buffer)

    return make


@pytest.fixture
def hosted() -> Any:
    """hosted(device, values): a tensor made from host data on that device."""

    def make(device: ByteDevice, values: Any, **options: Any) -> Any:
        from kohakutpu.tensor import as_tensor

        return as_tensor(values, device=cast(Any, device), **options)

    return make


@pytest.fixture(autouse=True)
def _nothing_stays_pinned() -> Any:
    yield
    from kohakutpu import storage

    held: set[Storage] = storage._pinned
    held.clear()
