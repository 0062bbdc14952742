"""Vector core words for a body: registers, constants, predicates, reductions.

It decides which register holds what and in which order words run; it does not know memory addresses, batches or how
rows are dealt. Every routine leaves the core in mode FLAT.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.machine import Machine
from kohakutpu.isa import vector as isa
from kohakutpu.lower.body import Body, Node

SEL_V, SEL_S, SEL_K = int(isa.SRC.V), int(isa.SRC.S), int(isa.SRC.K)
FP16, FP32 = int(isa.DTYPE.FP16), int(isa.DTYPE.FP32)
FLAT, TREE = int(isa.MODE.FLAT), int(isa.MODE.TREE)
L1_DESCRIPTOR = 0  # walks L1 words one by one (two by two where all is FP32); every VLD and VST goes through it
_K_CONSTANTS = {0x000000: 0, 0x3F8000: 1, 0xBF8000: 2}
_UNARY = {
    "neg": "VNEG",
    "abs": "VABS",
    "exp2": "VEXP2",
    "log2": "VLOG2",
    "recip": "VINV",
    "rsqrt": "VRSQRT",
}
_COMPARE = {"less": "VCMPLT", "greater": "VCMPGT", "equal": "VCMPEQ"}
_COMBINE = {"sum": "add", "max": "max", "min": "min"}
_RED_KIND = {"sum": int(isa.RED.SUM), "max": int(isa.RED.MAX), "min": int(isa.RED.MIN)}
_IDENTITY = {"sum": 0x000000, "max": 0xFF8000, "min": 0x7F8000}


@lru_cache(maxsize=4096)
def _word(name: str, fields: tuple[tuple[str, int], ...]) -> int:
    return isa.WORDS.encode(name, **dict(fields))


def e8m15(number: float) -> int:
    """The 24-bit immediate nearest to `number` (ties to even; tiny to signed zero, huge to Inf, NaN canonical)."""
    if np.isnan(number):
        return 0x7FC000
    x = np.float64(number)
    bits = int(x.view(np.int64))
    if np.isfinite(x):
        low = 53 - 16
        bits += (1 << (low - 1)) - 1 + ((bits >> low) & 1)
        bits &= ~((1 << low) - 1)
    value = np.int64(bits).view(np.float64)
    sign = 0x800000 if np.signbit(value) else 0
    if abs(value) < 2.0**-126:
        return sign
    if abs(value) >= 2.0**128:
        return sign | 0x7F8000
    return int(np.float32(value).view(np.uint32)) >> 8


@dataclass(frozen=True, slots=True)
class Operand:
    """A source: selector (V, S or K) and register number."""

    selector: int
    register: int


class VectorCode:
    """Assembles one program memory image. `fixed` V registers (from the top) are kept out of allocation."""

    def __init__(self, machine: Machine, source: SourceLine, fixed: int = 0) -> None:
        self.machine = machine
        self.source = source
        self.words: list[int] = []
        self._immediates: dict[int, int] = {}
        self._next_s = 0
        self._vl: int | None = None
        self.wide_descriptor = L1_DESCRIPTOR
        """Walks L1 words two by two: what FP32 goes through, a chunk of 16 being two words."""
        self._free = list(range(machine.params.vregs - 1 - fixed, -1, -1))

    # words

    @property
    def pc(self) -> int:
        return len(self.words)

    def emit(self, name: str, **fields: int) -> None:
        """Append one instruction word."""
        self.words.append(_word(name, tuple(fields.items())))

    def check_size(self) -> None:
        """Refuse a program longer than the program memory."""
        if len(self.words) > self.machine.params.imem:
            raise Refusal(
                "a vector program fits the program memory",
                where="expression",
                got=f"{len(self.words)} words",
                limit=self.machine.params.imem,
                hint="split the expression over two statements",
                source=self.source,
            )

    # scalars

    def scalar(self) -> int:
        """A fresh S register."""
        if self._next_s >= self.machine.params.sregs:
            raise Refusal(
                "constants, row results and vector lengths fit the S registers",
                where="expression",
                got=f"more than {self.machine.params.sregs}",
                limit=self.machine.params.sregs,
                hint="fold constants together or split the expression",
                source=self.source,
            )
        self._next_s += 1
        return self._next_s - 1

    def immediate(self, value: int) -> int:
        """The S register that the prologue loads with a 24-bit value."""
        if value not in self._immediates:
            self._immediates[value] = self.scalar()
        return self._immediates[value]

    def constant(self, number: float) -> Operand:
        """A number as a source: a K constant where the core has it, an S register otherwise."""
        code = e8m15(number)
        if code in _K_CONSTANTS:
            return Operand(SEL_K, _K_CONSTANTS[code])
        return Operand(SEL_S, self.immediate(code))

    def prologue(self, vl: int, extra: Callable[[], None] | None = None) -> int:
        """Append the routine that a core runs once per program; returns its entry. Sets constants, VL and mode."""
        entry = self.pc
        self.immediate(vl)
        for value, register in self._immediates.items():
            self.words += isa.seti(register, value)
        self.emit("VSETMODE", mode=FLAT)
        self._vl = None
        self.set_vl(vl)
        if extra is not None:
            extra()
        self.emit("VHALT")
        return entry

    def begin(self, vl: int) -> int:
        """Start a routine that is entered with vector length `vl`; returns its entry."""
        self._vl = vl
        return self.pc

    def set_vl(self, n: int) -> None:
        """Change the vector length, if it differs."""
        if self._vl != n:
            self.emit("VSETVL", va=self.immediate(n))
            self._vl = n

    # registers

    def take(self) -> int:
        """A free V register."""
        if not self._free:
            raise Refusal(
                "live values fit the V registers",
                where="expression",
                got=f"more than {self.machine.params.vregs}",
                limit=self.machine.params.vregs,
                hint="split the expression over two statements",
                source=self.source,
            )
        return self._free.pop()

    def give(self, register: int) -> None:
        """Return a V register."""
        self._free.append(register)

    def mark(self) -> tuple[int, tuple[int, ...], int | None]:
        """A state to come back to with `rewind`."""
        return len(self.words), tuple(self._free), self._vl

    def rewind(self, mark: tuple[int, tuple[int, ...], int | None]) -> None:
        """Undo what was emitted and taken since a mark; constants stay."""
        length, free, self._vl = mark
        del self.words[length:]
        self._free[:] = free

    # operations

    def alu(
        self,
        name: str,
        vd: int,
        a: Operand,
        b: Operand | None = None,
        c: Operand | None = None,
        predicate: int | None = None,
    ) -> None:
        """One FLAT arithmetic word; absent sources are K0."""
        zero = Operand(SEL_K, 0)
        b, c = b or zero, c or zero
        self.emit(
            name,
            sa=a.selector,
            va=a.register,
            sb=b.selector,
            vb=b.register,
            sc=c.selector,
            vc=c.register,
            vd=vd,
            pr=predicate or 0,
            pm=0 if predicate is None else 1,
        )

    def move(self, vd: int, a: Operand) -> None:
        self.alu("VMOV", vd, a)

    def operation(self, op: str, vd: int, args: Sequence[Operand]) -> None:
        """vd = op(args), as the closed set of body operations names it."""
        if op in _UNARY:
            self.alu(_UNARY[op], vd, args[0])
        elif op in ("add", "sub"):
            self.alu("VADD" if op == "add" else "VSUB", vd, args[0], c=args[1])
        elif op in ("mul", "max", "min"):
            self.alu({"mul": "VMUL", "max": "VMAX", "min": "VMIN"}[op], vd, args[0], args[1])
        elif op == "fma":
            self.alu("VFMA", vd, args[0], args[1], args[2])
        elif op == "select":
            self.alu("VSEL", vd, args[1], args[2], args[0])
        elif op in _COMPARE:
            zero, one = Operand(SEL_K, 0), Operand(SEL_K, 1)
            self.emit(
                _COMPARE[op],
                sa=args[0].selector,
                va=args[0].register,
                sb=args[1].selector,
                vb=args[1].register,
                sc=SEL_K,
                vc=0,
                vd=0,
                pr=0,
                pm=0,
            )
            self.alu("VMOV", vd, zero)
            self.alu("VMOV", vd, one, predicate=0)
        else:
            raise Refusal("the vector core has no such operation", where=op, source=self.source)

    def rotate(self, vd: int, va: int, lanes: int) -> None:
        """In every chunk, element i becomes element (i + lanes) mod 16."""
        self.emit("VSHUF", vd=vd, va=va, vb=self.immediate(lanes))

    def load(self, vd: int, word: int, descriptor: int | None = None, wide: bool = False) -> None:
        """V[vd] from L1; wide: from FP32. The usual walk of L1 where no other descriptor is named."""
        usual = self.wide_descriptor if wide else L1_DESCRIPTOR
        self.emit("VLD", dtype=FP32 if wide else FP16, ad=usual if descriptor is None else descriptor, vd=vd, off=word)

    def store(self, vs: int, word: int, descriptor: int | None = None, wide: bool = False) -> None:
        """V[vs] into L1; wide: as FP32."""
        usual = self.wide_descriptor if wide else L1_DESCRIPTOR
        self.emit("VST", dtype=FP32 if wide else FP16, ad=usual if descriptor is None else descriptor, vd=vs, off=word)

    def fill(self, descriptor: int, word: int) -> None:
        self.emit("VFILL", ad=descriptor, off=word)

    def drain(self, descriptor: int, word: int) -> None:
        self.emit("VDRAIN", ad=descriptor, off=word)


class Evaluator:
    """Evaluates parts of one body into registers of one VectorCode."""

    def __init__(self, code: VectorCode, body: Body) -> None:
        self.code = code
        self.body = body
        self.row_scalars: dict[int, int] = {}
        self.descriptors: dict[int, int] = {}
        """Operands that are walked in L1 through a descriptor of their own."""
        self.wide: frozenset[int] = frozenset()
        """Operands that are stored in FP32."""

    def operand(self, n: int, registers: dict[int, int]) -> Operand:
        node = self.body.nodes[n]
        if node.op == "const":
            return self.code.constant(node.number)
        if node.per_row:
            return Operand(SEL_S, self.row_scalars[n])
        return Operand(SEL_V, registers[n])

    def vectors(
        self,
        targets: Sequence[int],
        word_of: Callable[[Node], int],
        into: dict[int, int],
        ready: Mapping[int, int] | None = None,
        hold: Collection[int] = (),
    ) -> dict[int, int]:
        """Evaluate vector nodes; returns node -> register of the targets and of the held nodes.

        into: a target wanted in a given register. ready: nodes whose values are in registers already, which stay there.
        hold: nodes on the way whose registers are kept too. The caller gives back registers that are not its own.
        """
        code, nodes = self.code, self.body.nodes
        ready = ready or {}
        wanted = {*targets, *hold}
        order = [n for n in self.body.needed_beyond(targets, ready) if not nodes[n].per_row]
        last: dict[int, int] = {}
        for n in order:
            if nodes[n].op not in ("input", "shared"):
                for a in nodes[n].args:
                    last[a] = n
        registers: dict[int, int] = dict(ready)
        for n in order:
            node = nodes[n]
            if node.op in ("input", "shared"):
                registers[n] = into[n] if n in into else code.take()
                operand = node.args[0]
                code.load(registers[n], word_of(node), self.descriptors.get(operand), operand in self.wide)
                continue
            args = [self.operand(a, registers) for a in node.args]
            for a in set(node.args):
                if nodes[a].per_row or a in ready or a in wanted:
                    continue
                if last[a] == n and registers[a] not in into.values():
                    code.give(registers[a])
            registers[n] = into[n] if n in into else code.take()
            code.operation(node.op, registers[n], args)
        return {t: registers[t] for t in wanted if t in registers}

    def compute_scalar(self, n: int) -> None:
        """Compute a per-row node into its S register (the same one for every row)."""
        code, node = self.code, self.body.nodes[n]
        temporary = code.take()
        code.operation(node.op, temporary, [self.operand(a, {}) for a in node.args])
        if n not in self.row_scalars:
            self.row_scalars[n] = code.scalar()
        code.emit("VBCAST", sa=SEL_V, vd=self.row_scalars[n], va=temporary)
        code.give(temporary)

    def reduction_start(self, kind: str, acc: int) -> None:
        """Set an accumulator register to the reduction's identity."""
        code = _IDENTITY[kind]
        operand = Operand(SEL_K, 0) if kind == "sum" else Operand(SEL_S, self.code.immediate(code))
        self.code.move(acc, operand)

    def combine(self, kind: str, acc: int, value: int) -> None:
        self.code.operation(_COMBINE[kind], acc, [Operand(SEL_V, acc), Operand(SEL_V, value)])

    def reduce(self, kind: str, acc: int, into_scalar: int) -> None:
        """S = tree of the accumulator register (mode TREE around it is the caller's)."""
        self.code.emit("VRED", vd=into_scalar, va=acc, vb=0, kind=_RED_KIND[kind], pr=0)
