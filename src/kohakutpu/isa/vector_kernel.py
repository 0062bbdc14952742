"""What a vector program breaks on its own: words, chains, loops, modes, lengths (datasheet 6.2, 6.3).

Follows a kernel from its entry to VHALT as far as it can be known without running it. An S register counts as
known only after a VSETI in the same kernel; what is unknown is left to the core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kohakuaccel.diagnostics import EncodingRefusal
from kohakuaccel.machine import Machine
from kohakutpu.isa.vector_format import ALU_SOURCES, MODE, RED, SRC, WORDS

DEPTH = {MODE.FLAT: 1, MODE.D2: 2, MODE.D4: 4, MODE.TREE: 0}
_ALU_NAMES = {op.name: sources for op, sources in ALU_SOURCES.items()}
_BEATS = 16


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """A VLD, VST, VFILL or VDRAIN of a kernel: where it stands and its fields."""

    pc: int
    mnemonic: str
    text: str
    row: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What a kernel does to the state around it. mode, vl: after VHALT (vl None = not known)."""

    mode: int
    vl: int | None
    uses: tuple[MemoryUse, ...]
    words: int


@dataclass(slots=True)
class _Scan:
    machine: Machine
    words: Sequence[int]
    mode: int
    vl: int | None
    name: str
    scalars: dict[int, int] = field(default_factory=dict[int, int])
    uses: dict[int, MemoryUse] = field(default_factory=dict[int, MemoryUse])
    highest: int = 0

    def refuse(self, pc: int, rule: str, got: object, limit: object, hint: str) -> EncodingRefusal:
        text = WORDS.text(self.words[pc]) if 0 <= pc < len(self.words) and self.words[pc] >= 0 else "nothing"
        return EncodingRefusal(rule, where=f"{self.name}, word {pc} ({text})", got=got, limit=limit, hint=hint)

    def fetch(self, pc: int) -> tuple[str, dict[str, int]]:
        """The instruction at pc with all its fields in range."""
        if not 0 <= pc < len(self.words) or self.words[pc] < 0:
            raise self.refuse(
                pc, "the kernel runs past its words", f"pc {pc}", "VHALT before", "end the kernel with VHALT"
            )
        word = self.words[pc]
        mnemonic = WORDS.find(word)
        if mnemonic is None:
            raise self.refuse(pc, "no instruction has this word", f"{word:#010x}", "datasheet 6.2", "use the assembler")
        self.highest = max(self.highest, pc)
        row = WORDS.formats[mnemonic].decode(word)
        for item in WORDS.formats[mnemonic].fields:
            if not item.allows(row[item.name]):
                raise self.refuse(pc, f"{item.name} is out of range", row[item.name], item.limit, "use the assembler")
        return mnemonic, row

    def immediate(self, pc: int) -> int:
        if pc >= len(self.words) or self.words[pc] < 0:
            raise self.refuse(
                pc - 1, "VSETI has no constant behind it", "end of the program", "a word", "add the constant"
            )
        self.highest = max(self.highest, pc)
        return self.words[pc] & 0xFFFFFF

    def alu(self, pc: int, end: int) -> int:
        """Checks the ALU instruction (one word, or a chain) at pc; returns the next pc."""
        depth = DEPTH[MODE(self.mode)]
        if depth == 0:
            raise self.refuse(
                pc, "TREE mode runs VRED only (F_OPCODE)", "an ALU word", "VRED", "VSETMODE FLAT before it"
            )
        for stage in range(depth):
            at = pc + stage
            if at >= end:
                raise self.refuse(
                    pc,
                    "a chain ends inside a loop body or the program",
                    f"{stage} words",
                    depth,
                    "complete it",
                )
            mnemonic, row = self.fetch(at)
            if mnemonic not in _ALU_NAMES:
                raise self.refuse(
                    at,
                    "a word inside a chain is not an ALU word (F_OPCODE)",
                    mnemonic,
                    f"{depth} ALU words",
                    "complete the chain",
                )
            for letter in "abc":
                selector = row[f"s{letter}"]
                if stage == 0 and selector == SRC.C:
                    raise self.refuse(
                        at,
                        "the head of a chain has no previous stage (F_CHAIN)",
                        "C",
                        "V, S or K",
                        "use V, S or K",
                    )
                if stage > 0 and selector == SRC.V:
                    raise self.refuse(
                        at,
                        "a non-head chain word reads a V register (F_VSRC), used or not",
                        f"s{letter} = V",
                        "C, S or K",
                        "use C, S or K; set unused selectors to K0 (assembler: a leading +)",
                    )
        return pc + depth

    def reduction(self, pc: int, row: Mapping[str, int]) -> None:
        if row["kind"] >= RED.ANY:
            return
        if self.vl is not None and self.vl % _BEATS:
            raise self.refuse(
                pc, "VRED needs whole beats (F_REDVL)", f"VL {self.vl}", "a multiple of 16", "pad the vector"
            )
        if self.mode != MODE.TREE:
            raise self.refuse(
                pc,
                "VRED kinds 0-5 run in TREE mode (F_OPCODE)",
                MODE(self.mode).name,
                "TREE",
                "VSETMODE TREE before it",
            )

    def memory(self, pc: int, mnemonic: str, row: Mapping[str, int]) -> None:
        room = self.machine.params.vl1
        first = row.get("word", row.get("off", 0))
        if mnemonic not in ("VLD", "VST") and first >= room:
            raise self.refuse(pc, "the first L1 word is outside L1", first, f"{room} words", "use words 0..L1 - 1")
        if row.get("quant") and not self.machine.features.r2_vc_quant:
            hint = "leave it 0, or use a machine with r2_vc_quant"
            raise self.refuse(pc, "field quant: the machine has no r2_vc_quant", 1, 0, hint)
        self.uses.setdefault(pc, MemoryUse(pc, mnemonic, WORDS.text(self.words[pc]), row))

    def block(self, pc: int, end: int, in_loop: bool) -> int | None:
        """Scans [pc, end); returns the pc behind it, or None when it halted."""
        while pc < end:
            mnemonic, row = self.fetch(pc)
            if mnemonic in _ALU_NAMES:
                pc = self.alu(pc, end)
                continue
            match mnemonic:
                case "VHALT":
                    return None
                case "VRED":
                    self.reduction(pc, row)
                    self.scalars.pop(row["vd"], None)
                case "VLD" | "VST" | "VFILL" | "VDRAIN" | "VDRAIN_NODE":
                    self.memory(pc, mnemonic, row)
                case "VBCAST" if row["sa"] != SRC.S:
                    self.scalars.pop(row["vd"], None)
                case "VSETI":
                    if pc + 1 >= end:
                        raise self.refuse(
                            pc,
                            "VSETI and its constant are in different blocks",
                            "cut",
                            "2 words",
                            "body counts both",
                        )
                    value = self.immediate(pc + 1)
                    if row["sa"] != SRC.K:
                        self.scalars[row["vd"]] = value
                    pc += 1
                case "VSETVL":
                    known = self.scalars.get(row["va"])
                    if known is not None and not 1 <= known <= self.machine.params.vlmax:
                        raise self.refuse(
                            pc,
                            "bad vector length (F_VL)",
                            known,
                            f"1..{self.machine.params.vlmax}",
                            "split the row",
                        )
                    self.vl = known
                case "VSETMODE":
                    self.mode = row["mode"]
                case "VLOOP":
                    if in_loop:
                        raise self.refuse(
                            pc,
                            "loops do not nest (F_LOOP)",
                            "VLOOP in a body",
                            "depth 1",
                            "unroll one of them",
                        )
                    pc = self.loop(pc, row["body"])
                    if pc < 0:
                        return None
                    continue
                case _:
                    pass
            pc += 1
        return pc

    def loop(self, pc: int, body: int) -> int:
        """Scans a loop body, twice when the first pass changes what the second starts from; -1 = halted."""
        stop = pc + 1 + body
        lengths: list[int | None] = []
        for _ in range(2):
            before = (self.mode, self.vl, dict(self.scalars))
            if self.block(pc + 1, stop, in_loop=True) is None:
                return -1
            lengths.append(self.vl)
            if (self.mode, self.vl, self.scalars) == before:
                break
        if len(set(lengths)) > 1:
            self.vl = None  # one pass and several passes leave different lengths
        return stop


def scan(
    machine: Machine,
    words: Sequence[int],
    pc: int = 0,
    *,
    mode: int = MODE.FLAT,
    vl: int | None = None,
    name: str = "vector kernel",
) -> KernelFacts:
    """Follows the kernel at `pc` of `words` (negative = never written). Raises EncodingRefusal."""
    state = _Scan(machine, words, mode, vl, name)
    limit = machine.params.imem
    if len(words) > limit:
        raise EncodingRefusal(
            "the program memory holds fewer words",
            where=name,
            got=len(words),
            limit=limit,
            hint="split the kernel",
        )
    if state.block(pc, len(words), in_loop=False) is not None:
        state.fetch(max(pc, len(words)))
    return KernelFacts(state.mode, state.vl, tuple(state.uses.values()), state.highest + 1 - pc)
