"""The vector core (datasheet section 6): envelopes, 32-bit words, descriptors, chains, loops, reductions.

It must not know the dispatcher; it works on its mesh's memory and hands CU_DATA bursts to its caller.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from . import formats as fp
from . import functions as fn
from .burst import Burst
from .errors import Raised, UnitFault
from .formats import bits, signed
from .memory import Memory, from_halves, halves, local_offset

F_DTYPE, F_VSRC, F_CHAIN, F_OPCODE, F_LEN, F_LOOP, F_VL, F_REDVL, F_CUDATA, F_NONFIN = range(1, 11)

FLAT, D2, D4, TREE = range(4)
DEPTH = {FLAT: 1, D2: 2, D4: 4}

VMOV, VNEG, VABS, VADD, VSUB, VMUL, VFMA, VFNMA, VMAX, VMIN, VSEL, VCMPLT, VCMPGT, VCMPEQ = range(14)
VEXP2, VLOG2, VINV, VRSQRT, VCVT, VRED, VLD, VST, VBCAST, VSHUF = range(14, 24)
VSETVL, VSETMODE, VSETI, VLOOP, VBAR, VFILL, VDRAIN, VHALT = range(24, 32)
LAST_ALU = VRSQRT
USES_B = (VMUL, VFMA, VFNMA, VMAX, VMIN, VSEL, VCMPLT, VCMPGT, VCMPEQ)
USES_C = (VADD, VSUB, VFMA, VFNMA, VSEL)
COMPARES = (VCMPLT, VCMPGT, VCMPEQ)
KINDS = ("SUM", "MAX", "MIN", "SUMSQ", "DOT", "EXPSUM", "ANY", "ALL")


def alu(op: int, a: int, b: int, c: int) -> int:
    """One lane of an ALU operation; compares give 1.0 or +0."""
    if op == VMOV:
        return fp.quiet(a)
    if op == VNEG:
        return fp.neg8(a)
    if op == VABS:
        return fp.abs8(a)
    if op == VADD:
        return fp.add8(a, c)
    if op == VSUB:
        return fp.sub8(a, c)
    if op == VMUL:
        return fp.mul8(a, b)
    if op in (VFMA, VFNMA):
        return fp.fma8(a, b, c, negate=op == VFNMA)
    if op == VMAX:
        return fp.max8(a, b)
    if op == VMIN:
        return fp.min8(a, b)
    if op == VSEL:
        return fp.sel8(a, b, c)
    if op in COMPARES:
        test = {VCMPLT: fp.less8(a, b), VCMPGT: fp.less8(b, a), VCMPEQ: fp.equal8(a, b)}[op]
        return fp.ONE if test else 0
    return {VEXP2: fn.exp2, VLOG2: fn.log2, VINV: fn.inv, VRSQRT: fn.rsqrt}[op](a)


@dataclass
class Descriptor:
    """base + sum idx[d] * stride[d], dimension 0 fastest; a walk past its end stays at the last address."""

    base: int
    stride: list[int]
    bound: list[int]

    @property
    def total(self) -> int:
        product = 1
        for b in self.bound:
            product *= max(b, 1)
        return product

    def address(self, step: int) -> int:
        """Address of a step, without the instruction's offset."""
        step = min(step, self.total - 1)
        at = self.base
        for stride, bound in zip(self.stride, self.bound):
            step, index = divmod(step, max(bound, 1))
            at += index * stride
        return at


class VectorCore:
    """State of one vector core; everything persists from RUN to RUN (6.1)."""

    def __init__(
        self,
        memory: Memory,
        mesh: int = 0,
        xy: tuple[int, int] = (1, 0),
        kinds: dict[tuple[int, int, int], str] | None = None,
        options: frozenset[str] = frozenset(),
        policy: str = "raise",
    ) -> None:
        self.memory, self.mesh, self.xy = memory, mesh, xy
        self.kinds = kinds or {}
        self.options, self.policy = options, policy
        self.v = [[0] * 128 for _ in range(16)]
        self.s = [0] * 16
        self.p = [[0] * 128 for _ in range(4)]
        self.k = [0, 0x3F8000, 0xBF8000, 0]
        self.l1 = [0] * 512
        self.written: set[int] = set()  # L1 resets to 0, but reading what nobody wrote is a mistake worth raising
        self.imem = [0] * 512
        self.desc = [Descriptor(0, [0] * 4, [1] * 4) for _ in range(8)]
        self.vl, self.mode = 128, FLAT
        self.pending: range = range(0)
        self.bad_burst = False
        self.saturated = 0
        self.nonfinite = 0
        self.retired = 0
        self.pc = 0
        self.sent: list[Burst] = []

    # --- envelopes (6.1) ---

    def execute(self, payload: int) -> tuple[int, list[Burst]]:
        """Execute one payload to retirement: result word (0: a RUN's time is not modelled) and bursts."""
        op = bits(payload, 255, 252)
        self.sent = []
        fault: UnitFault | None = None
        if op == 1:
            self.imem[bits(payload, 251, 243)] = bits(payload, 31, 0)
        elif op == 2:
            self._describe(payload)
        elif op == 3 and self.bad_burst:
            fault = UnitFault(F_CUDATA, bits(payload, 251, 243))  # the boundary before the first word
        elif op == 3:
            try:
                self._run(bits(payload, 251, 243))
            except UnitFault as stop:
                fault = stop
        else:
            fault = UnitFault(F_OPCODE)
        self.retired += 1
        if self.bad_burst:
            self.bad_burst = False
            fault = fault or UnitFault(F_CUDATA)
        if fault:
            raise fault
        return 0, self.sent

    def _describe(self, payload: int) -> None:
        d = self.desc[bits(payload, 251, 249)]
        fld, value = bits(payload, 248, 246), bits(payload, 245, 212)
        if fld == 0:
            d.base = bits(payload, 68, 63) << 34 | value
        elif fld <= 4:
            d.stride[fld - 1] = signed(bits(value, 33, 16), 18)
            d.bound[fld - 1] = bits(value, 15, 0)

    # --- the program ---

    def _run(self, pc: int) -> None:
        self.pending = range(0)
        loop: tuple[int, int, int] | None = None  # first word, end, passes left
        while True:
            if loop is not None and pc == loop[1]:
                first, end, left = loop
                loop = (first, end, left - 1) if left > 1 else None
                pc = first if left > 1 else pc
                continue
            self.pc = pc
            word = self.imem[pc]
            op = word >> 27
            try:
                if op == VHALT:
                    self.pending = range(0)
                    return
                if op == VLOOP:
                    if loop is not None:
                        raise UnitFault(F_LOOP)
                    body = bits(word, 12, 9)
                    loop = (pc + 1, pc + 1 + body, max(self.s[bits(word, 16, 13)], 1))
                    pc += 1
                elif op == VSETI:
                    value = self.imem[pc + 1] & 0xFFFFFF
                    if bits(word, 26, 25) == 3:
                        self.k[3] = value
                    else:
                        self.s[bits(word, 20, 17)] = value
                    pc += 2
                elif op <= LAST_ALU:
                    pc = self._chain(pc)
                else:
                    self._single(op, word)
                    pc += 1
            except UnitFault as stop:
                raise UnitFault(stop.code, self.pc) from None

    def _chain(self, pc: int) -> int:
        """FLAT, D2 or D4: consecutive ALU words as one instruction. Returns the next pc."""
        if self.mode == TREE:
            raise UnitFault(F_OPCODE)
        words = self.imem[pc : pc + DEPTH[self.mode]]
        for i, word in enumerate(words):
            self.pc = pc + i
            if word >> 27 > LAST_ALU:
                raise UnitFault(F_OPCODE)
            selectors = (bits(word, 26, 25), bits(word, 24, 23), bits(word, 22, 21))
            # Only a non-head word is checked in what it does not use (6.3).
            used = (True, word >> 27 in USES_B, word >> 27 in USES_C)
            if i == 0 and any(s == 2 for s, u in zip(selectors, used) if u):
                raise UnitFault(F_CHAIN)
            if i and 0 in selectors:
                raise UnitFault(F_VSRC)
        self.pc = pc
        last = words[-1]
        pr, pm = bits(last, 4, 3), bits(last, 2, 1)
        if pm == 3:
            raise Raised("FIELD", pm)
        result: list[int] = []
        for lane in range(self.vl):
            value = 0
            for word in words:
                a = self._source(bits(word, 26, 25), bits(word, 16, 13), lane, value)
                b = self._source(bits(word, 24, 23), bits(word, 12, 9), lane, value)
                c = self._source(bits(word, 22, 21), bits(word, 8, 5), lane, value)
                value = alu(word >> 27, a, b, c)
            result.append(value)
        vd, compare = bits(last, 20, 17), last >> 27 in COMPARES
        for lane in range(self.vl):
            if (pm == 1 and not self.p[pr][lane]) or (pm == 2 and self.p[pr][lane]):
                continue
            if compare:
                self.p[pr][lane] = int(result[lane] != 0)
            else:
                self.v[vd][lane] = result[lane]
        return pc + len(words)

    def _source(self, selector: int, register: int, lane: int, chained: int) -> int:
        if selector == 0:
            return self.v[register][lane]
        if selector == 1:
            return self.s[register]
        return chained if selector == 2 else self.k[register & 3]

    def _single(self, op: int, word: int) -> None:
        """Everything that is neither ALU nor control flow."""
        vd, va, vb = bits(word, 20, 17), bits(word, 16, 13), bits(word, 12, 9)
        whole = 16 * -(-self.vl // 16)
        if op == VCVT:
            dtype = self._dtype(word)
            for i in range(whole):
                a = self.v[va][i]
                self.v[vd][i] = fp.e8_from_fp16(self._to_half(a)) if dtype == 1 else a
        elif op == VRED:
            self._reduce(word)
        elif op == VLD:
            self._load(word, whole // 16)
        elif op == VST:
            self._store(word, whole // 16)
        elif op == VBCAST:
            if bits(word, 26, 25) == 1:
                self.v[vd][:whole] = [self.s[va]] * whole
            else:
                self.s[vd] = self.v[va][0]
        elif op == VSHUF:
            count = self.s[vb] & 15
            for c in range(0, whole, 16):
                chunk = self.v[va][c : c + 16]
                self.v[vd][c : c + 16] = [chunk[(i + count) % 16] for i in range(16)]
        elif op == VSETVL:
            if not 1 <= self.s[va] <= 128:
                raise UnitFault(F_VL)
            self.vl = self.s[va]
        elif op == VSETMODE:
            self.mode = bits(word, 14, 13)
        elif op == VBAR:
            self.pending = range(0)
        elif op == VFILL:
            self._vfill(word)
        elif bits(word, 24, 24):
            self._drain_node(word)
        else:
            self._drain_memory(word)

    def _dtype(self, word: int) -> int:
        dtype = bits(word, 26, 24)
        if dtype not in (1, 2):
            raise UnitFault(F_DTYPE)
        return dtype

    def _to_half(self, a: int) -> int:
        half, beyond = fp.fp16_from_e8(a)
        self.saturated += beyond
        return half

    def _reduce(self, word: int) -> None:
        kind = bits(word, 7, 5)
        sd, va, vb = bits(word, 20, 17), bits(word, 16, 13), bits(word, 12, 9)
        if kind >= 6:
            flags = self.p[bits(word, 4, 3)][: self.vl]
            self.s[sd] = fp.ONE if (any(flags) if kind == 6 else all(flags)) else 0
            return
        if self.vl % 16:
            raise UnitFault(F_REDVL)
        if self.mode != TREE:
            raise UnitFault(F_OPCODE)
        self.s[sd], exponentials = fn.reduce8(KINDS[kind], self.v[va][: self.vl], self.v[vb][: self.vl])
        if exponentials:
            self.v[vb][: self.vl] = exponentials

    # --- L1 and memory ---

    def _l1_index(self, at: int) -> int:
        if not 0 <= at < 512:
            raise Raised("L1_RANGE", at)
        return at

    def _read_l1(self, at: int) -> int:
        if self._l1_index(at) in self.pending:
            raise Raised("VFILL_PENDING", at)
        if at not in self.written:
            raise Raised("L1_UNWRITTEN", at)
        return self.l1[at]

    def _write_l1(self, at: int, word: int) -> None:
        self.l1[self._l1_index(at)] = word
        self.written.add(at)

    def _addresses(self, word: int, chunks: int) -> list[int]:
        """L1 word of every chunk (its first word for FP32): one descriptor step per chunk."""
        d, off = self.desc[bits(word, 23, 21)], signed(bits(word, 13, 0), 14)
        return [d.address(c) + off for c in range(chunks)]

    def _load(self, word: int, chunks: int) -> None:
        dtype, vd = self._dtype(word), bits(word, 20, 17)
        for c, at in enumerate(self._addresses(word, chunks)):
            if dtype == 1:
                values = [fp.e8_from_fp16(h) for h in halves(self._read_l1(at))]
            else:
                wide = self._read_l1(at) | self._read_l1(at + 1) << 256
                values = [fp.e8_from_fp32((wide >> 32 * i) & 0xFFFFFFFF) for i in range(16)]
            self.v[vd][16 * c : 16 * c + 16] = values

    def _store(self, word: int, chunks: int) -> None:
        dtype, vd = self._dtype(word), bits(word, 20, 17)
        for c, at in enumerate(self._addresses(word, chunks)):
            values = self.v[vd][16 * c : 16 * c + 16]
            if dtype == 1:
                self._write_l1(at, from_halves([self._to_half(a) for a in values]))
            else:
                wide = sum(fp.fp32_from_e8(a) << 32 * i for i, a in enumerate(values))
                self._write_l1(at, wide & ((1 << 256) - 1))
                self._write_l1(at + 1, wide >> 256)

    def _walk(self, word: int) -> tuple[list[int], int]:
        """Byte addresses and the first L1 word of a VFILL or of a VDRAIN to memory."""
        d = self.desc[bits(word, 23, 21)]
        if d.total > 256:
            raise UnitFault(F_LEN)
        first = signed(bits(word, 13, 0), 14)
        if first < 0 or first + d.total > 512:
            raise Raised("L1_RANGE", first, d.total)
        return [local_offset(self.mesh, d.address(i) & ((1 << 40) - 1)) for i in range(d.total)], first

    def _vfill(self, word: int) -> None:
        addresses, first = self._walk(word)
        for i, word in enumerate([self.memory.load(at) for at in addresses]):
            self._write_l1(first + i, word)
        self.pending = range(first, first + len(addresses))

    def _drain_memory(self, word: int) -> None:
        addresses, first = self._walk(word)
        for i, at in enumerate(addresses):
            self.memory.store(at, self._read_l1(first + i))

    def _drain_node(self, word: int) -> None:
        d = self.desc[bits(word, 23, 21)]
        if d.total > 256:
            raise UnitFault(F_LEN)
        buf = bits(word, 12, 9)
        packs = "r2_vc_quant" in self.options and bits(word, 26, 26) and buf in (0, 1)
        if packs and d.total % 8:
            raise UnitFault(F_LEN)
        first = bits(word, 8, 0)
        granules = tuple(self._read_l1(first + i) for i in range(d.total))
        record = d.base
        final = bits(record, 33, 26)
        if final:
            where = (bits(record, 25, 24), final & 15, final >> 4)
        else:
            where = (self.mesh, bits(word, 20, 17), bits(word, 16, 13))
        ack = (bits(record, 19, 16), bits(record, 23, 20))
        found = 0
        if packs:
            granules, found = self._quantised(granules, buf == 1)
        self.sent.append(Burst(*where, buf, bits(record, 15, 0), granules, bits(word, 25, 25), ack))
        self.nonfinite += found
        if found and self.policy == "raise":
            raise UnitFault(F_NONFIN)

    @staticmethod
    def _quantised(words: tuple[int, ...], b_order: bool) -> tuple[tuple[int, ...], int]:
        """FP16 entries of eight words as packed entries of four (section 10), and their non-finite elements."""
        out: list[int] = []
        found = 0
        for e in range(0, len(words), 8):
            entry, bad = fp.mxfp7_entry([h for word in words[e : e + 8] for h in halves(word)])
            out += fp.pack_entry(entry, b_order)
            found += bad
        return tuple(out), found

    # --- CU_DATA (4.2) ---

    def receive(self, buf: int, offset: int, granules: tuple[int, ...]) -> None:
        """Accept a burst into L1, or drop it whole and report it at the next retirement."""
        wide = buf == 2 and "r2_acc_to_vc" in self.options
        if (buf and not wide) or offset + len(granules) > 512 or (wide and (offset % 2 or len(granules) % 2)):
            self.bad_burst = True
            return
        if wide:
            for i in range(0, len(granules), 2):
                image = granules[i] | (granules[i + 1] & ((1 << 96) - 1)) << 256
                values = [fp.fp22_value((image >> 22 * e) & 0x3FFFFF) for e in range(16)]
                data = struct.pack("<16f", *(m * 2.0**e for m, e in values))  # exact: 15 bits, |e| within float32's
                self._write_l1(offset + i, int.from_bytes(data[:32], "little"))
                self._write_l1(offset + i + 1, int.from_bytes(data[32:], "little"))
            return
        for i, word in enumerate(granules):
            self._write_l1(offset + i, word)
