"""Plain memory: one DRAM per mesh, word granular, remembering what was ever written (datasheet section 3).

It must not know who reads or why.
"""

from __future__ import annotations

from .errors import Raised

WORD = 32
PAGE = 4096


class Memory:
    """The DRAM of one mesh; addresses are byte offsets in it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.words: dict[int, int] = {}
        self.parts: dict[int, int] = {}  # byte masks of words that host writes have covered only in part
        self.begun: dict[int, int] = {}

    def load(self, offset: int) -> int:
        """The word at a byte offset; reading what was never written raises."""
        self._inside(offset)
        if offset // WORD not in self.words:
            raise Raised("UNWRITTEN", offset)
        return self.words[offset // WORD]

    def store(self, offset: int, word: int) -> None:
        self._inside(offset)
        self.words[offset // WORD] = word

    def _inside(self, offset: int) -> None:
        if offset % WORD or not 0 <= offset < self.size:
            raise Raised("ADDRESS", offset)

    def poke(self, offset: int, data: bytes) -> None:
        """A host write of any bytes; a word counts as written once all its bytes were."""
        if offset < 0 or offset + len(data) > self.size:
            raise Raised("ADDRESS", offset)
        first, last = offset // WORD, (offset + len(data) - 1) // WORD
        image = bytearray(b"".join(self._bytes(w) for w in range(first, last + 1)))
        image[offset - WORD * first : offset - WORD * first + len(data)] = data
        for w in range(first, last + 1):
            start = WORD * (w - first)
            word = int.from_bytes(image[start : start + WORD], "little")
            low, high = max(offset - WORD * w, 0), min(offset + len(data) - WORD * w, WORD)
            self.parts[w] = self.parts.get(w, 0) | (1 << high) - (1 << low)
            if w in self.words or self.parts[w] == (1 << WORD) - 1:
                self.words[w] = word
            else:
                self.begun[w] = word

    def peek(self, offset: int, nbytes: int) -> bytes:
        """A host read of any bytes; never-written bytes read as zero."""
        first, last = offset // WORD, (offset + nbytes - 1) // WORD
        image = b"".join(self._bytes(w) for w in range(first, last + 1))
        return image[offset - WORD * first : offset - WORD * first + nbytes]

    def _bytes(self, w: int) -> bytes:
        return self.words.get(w, self.begun.get(w, 0)).to_bytes(WORD, "little")


def local_offset(mesh: int, address: int) -> int:
    """A unit's 40-bit address as an offset in its own mesh (3.1): foreign mesh and reserved bits raise."""
    if address >> 38 or (address >> 36) & 3 != mesh:
        raise Raised("ADDRESS", address)
    return address & ((1 << 36) - 1)


def halves(word: int) -> list[int]:
    """The 16 halves of a word, element 0 lowest."""
    return [(word >> 16 * i) & 0xFFFF for i in range(16)]


def from_halves(values: list[int]) -> int:
    return sum(v << 16 * i for i, v in enumerate(values))
