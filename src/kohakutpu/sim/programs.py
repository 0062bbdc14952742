"""What a vector core holds between RUNs, as far as the clock needs it: the words that a RUN moves.

It decides memory traffic of a program from its words and descriptors. Scalars are followed through VSETI only; a
loop count that comes from elsewhere counts as one pass. Cycles are not its business: they are the unit model's.
"""

from __future__ import annotations

from kohakutpu.isa import vector

_OP, _WORDS, _MASK24 = vector.OP, vector.WORDS, 0xFFFFFF


class Programs:
    """Program memory, descriptor bounds and scalars of one core."""

    def __init__(self) -> None:
        self._words = [0] * 512
        self._bounds = [[1] * 4 for _ in range(8)]
        self._scalars = [0] * 16
        self._known: dict[int, tuple[int, int]] = {}

    def store(self, address: int, word: int) -> None:
        """An IMEM envelope."""
        if self._words[address] != word:
            self._words[address] = word
            self._known.clear()

    def describe(self, descriptor: int, field: int, value: int) -> None:
        """A DESC envelope: only bounds decide how many words a walk has."""
        if 1 <= field <= 4:
            bound = (value & 0xFFFF) or 1
            if self._bounds[descriptor][field - 1] != bound:
                self._bounds[descriptor][field - 1] = bound
                self._known.clear()

    def traffic(self, pc: int) -> tuple[int, int]:
        """(words read from memory, words written to memory or a node) of a RUN from word `pc`."""
        found = self._known.get(pc)
        if found is None:
            found = self._known[pc] = self._walk(pc)
        return found

    def _walk(self, pc: int) -> tuple[int, int]:
        moved = [0, 0]
        times, end = 1, -1
        while pc < len(self._words):
            if pc == end:
                times, end = 1, -1
            word = self._words[pc]
            name = _WORDS.find(word)
            pc += 1
            if name is None or name == "VHALT":
                break
            if name == "VSETI":
                fields = _WORDS.formats[name].decode(word)
                if fields["sa"] != int(vector.SRC.K):
                    self._scalars[fields["vd"]] = self._words[pc] & _MASK24
                pc += 1
            elif name == "VLOOP":
                fields = _WORDS.formats[name].decode(word)
                times, end = max(1, self._scalars[fields["va"]]), pc + fields["body"]
            elif name in ("VFILL", "VDRAIN", "VDRAIN_NODE"):
                total = 1
                for bound in self._bounds[_WORDS.formats[name].decode(word)["ad"]]:
                    total *= bound
                moved[name != "VFILL"] += total * times
        return moved[0], moved[1]
