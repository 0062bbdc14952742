"""The memory mover word after word, from datasheet 3.4: registers of a 64-bit write, then one step at a time.

It keeps memory as a dictionary of words. It must not know how the unit under test works.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

from .formats import bits
from .walk import signed

MASK = (1 << 32) - 1
Dim = tuple[int, int, int, int]  # count, stride, axis, astep


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Ten rounds of Philox4x32."""
    a, b, c, d = counter
    low, high = key
    for turn in range(10):
        if turn:
            low, high = (low + 0x9E3779B9) & MASK, (high + 0xBB67AE85) & MASK
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (right >> 32) ^ b ^ low, right & MASK, (left >> 32) ^ d ^ high, left & MASK
    return a, b, c, d


@dataclass
class Walker:
    base: int = 0
    ndim: int = 0
    dims: list[Dim] = field(default_factory=lambda: [(0, 0, 0, 0)] * 6)
    axes: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0), (0, 0)])

    def at(self, index: tuple[int, ...]) -> tuple[int, bool]:
        """Byte address of an index, and whether it is valid."""
        address, position = self.base, [first for first, _ in self.axes]
        for i, (_, stride, axis, step) in zip(index, self.dims[: self.ndim]):
            address += i * stride
            if axis:
                position[axis - 1] += i * step
        valid = all(extent == 0 or 0 <= p < extent for p, (_, extent) in zip(position, self.axes))
        return address % (1 << 40), valid


@dataclass
class Mover:
    """memory: word number to 32 bytes. size: bytes of the DRAM of this mesh."""

    memory: dict[int, bytes]
    size: int
    mesh: int = 0
    moves: int = 0
    reads: int = 0
    writes: int = 0
    fault: int = 0

    def __post_init__(self) -> None:
        self.walkers = [Walker(), Walker()]
        self.held = (0, 0, 0, 0)
        self.value = {0x30: 0, 0x38: 0, 0x40: 0, 0x50: 0}

    @property
    def status(self) -> int:
        return self.moves % 2**24 << 40 | self.reads % 2**16 << 24 | self.writes % 2**16 << 8 | self.fault << 4

    def write(self, offset: int, value: int) -> None:
        walker = self.walkers[value & 1]
        if offset == 0x10:
            walker.base, walker.ndim = bits(value, 43, 4), bits(value, 46, 44)
        elif offset == 0x18:
            self.held = value & 1, bits(value, 3, 1), bits(value, 19, 4), signed(bits(value, 51, 20), 32)
        elif offset == 0x20:
            which, dim, count, stride = self.held
            self.walkers[which].dims[dim] = count, stride, bits(value, 1, 0), signed(bits(value, 17, 2), 16)
        elif offset == 0x28:
            walker.axes[value >> 1 & 1] = signed(bits(value, 17, 2), 16), bits(value, 33, 18)
        elif offset in self.value:
            self.value[offset] = value
        elif offset == 0 and value >> 16 & 1:
            self.fault = self.go(bits(value, 2, 0), bits(value, 4, 3))
            self.moves += self.fault == 0

    def reachable(self, address: int) -> bool:
        return address >> 36 == self.mesh and address % (1 << 36) < self.size

    def take(self, address: int) -> tuple[bytes, int]:
        """(a word, fault)"""
        if not self.reachable(address):
            return b"", 2
        if address % 32:
            return b"", 3
        self.reads += 1
        return self.memory[address % (1 << 36) // 32], 0

    def go(self, mode: int, width: int) -> int:
        """The fault, 0 for none."""
        if mode not in (0, 2, 3, 4):
            return 4
        if width == 3:
            return 5
        source, target = self.walkers
        index_base, rows = bits(self.value[0x30], 39, 0), bits(self.value[0x30], 55, 40)
        pitch, words = bits(self.value[0x50], 31, 0), bits(self.value[0x50], 47, 32)
        steps = list(product(*(range(count or 1) for count, _, _, _ in target.dims[: target.ndim])))
        table = b""
        if mode == 2:
            if rows > 2048 or rows * words < len(steps):
                return 1
            for n in range((4 * rows + 31) // 32):
                word, fault = self.take(index_base + 32 * n)
                if fault:
                    return fault
                table += word
        size = 1 << width
        pattern = (self.value[0x40] % (1 << 8 * size)).to_bytes(size, "little") * (32 // size)
        for n, index in enumerate(steps):
            address, exists = target.at(index)
            if not exists:
                continue
            if address % 32:
                return 6
            if not self.reachable(address):
                return 2
            word, fault = pattern, 0
            if mode == 0:
                place, given = source.at(index)
                if given:
                    word, fault = self.take(place)
            elif mode == 2:
                row = int.from_bytes(table[4 * (n // words) : 4 * (n // words) + 4], "little")
                word, fault = self.take(source.base + row * pitch + 32 * (n % words))
            elif mode == 3:
                a, seed = address // 32, self.value[0x38]
                halves = [
                    philox4x32((a & MASK, half | a >> 32 << 1, 0, 0), (seed & MASK, seed >> 32)) for half in (0, 1)
                ]
                word = b"".join(v.to_bytes(4, "little") for half in halves for v in half)
            if fault:
                return fault
            self.writes += 1
            self.memory[address % (1 << 36) // 32] = word
        return 0
