"""The vector core: an interpreter of its envelopes and program words in one compiled loop (datasheet 6, 8.3).

Decides what an instruction does and what it costs; it must not know how instructions arrive, who receives
what it sends, or what anybody does about a fault. Arithmetic, reductions and data movement live in the other
vector modules; machine state in vector_state.

Time. `t` is the cycle at which the current word executes, counted from the first word of the RUN. An ALU word
has beats at t+1 .. t+n, n = ceil(VL/16); a beat that reads or overwrites a register comes at least `dependence`
after the last beat that wrote it, predicates included. Words that need an empty pipeline wait until
`empty_pipeline` after the last ALU beat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import kernel
from kohakutpu.units import vector_alu as alu_ops
from kohakutpu.units import vector_decode as d
from kohakutpu.units.state import E_FETCH, E_FIELD, E_NODE, FAULTED, RAISED, RETIRED, Memory, Outbox
from kohakutpu.units.vector_alu import alu
from kohakutpu.units.vector_decode import decode
from kohakutpu.units.vector_memory import (
    FP16,
    FP32,
    drain,
    fill,
    load_register,
    send,
    settle,
    store_register,
    through_half,
    walk,
)
from kohakutpu.units.vector_reduce import reduce_row
from kohakutpu.units.vector_state import (
    BAD_BURST,
    BASE,
    BOUND,
    COSTS,
    DESCRIPTORS,
    FIRST_WORD,
    IMEM,
    L1,
    LANES,
    MESH,
    MODE,
    ONE_WAY,
    REGS,
    ROW_CLEAN,
    ROW_K,
    ROW_RESULT,
    ROW_S,
    ROWS,
    STRIDE,
    VL,
    VLMAX,
    WALK,
    WORD_PERIOD,
    WRITTEN,
    Vectors,
    make_vectors,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Vectors", "make_vectors", "vector_receive", "vector_step"]

F_DTYPE, F_VSRC, F_CHAIN, F_OPCODE, F_LEN, F_LOOP, F_VL, F_REDVL, F_CUDATA = range(1, 10)

FLAT, D2, D4, TREE = range(4)
SUM, REDUCE_MAX, REDUCE_MIN, SUMSQ, DOT, EXPSUM, ANY, ALL = range(8)
ENV_IMEM, ENV_DESC, ENV_RUN = 1, 2, 3
SEL_V, SEL_S, SEL_C, SEL_K = range(4)

# fmt: off
(C_ALU, C_STAGE, C_DEPENDENCE, C_VLD16, C_VLD32, C_VST16, C_VST32, C_MOVE, C_MEM, C_EMPTY, C_VRED, C_VRED_TAIL, C_SET,
 C_SETI, C_BAR, C_HALT, C_FILL, C_FILL_WORD, C_DRAIN, C_DRAIN_WORD, C_FETCH, C_SLOT) = range(len(COSTS))
# fmt: on

# Which of a, b, c an ALU operation reads.
_READS = np.zeros((d.VCVT, 3), np.uint8)
_READS[:, 0] = 1
for _op in (d.VMUL, d.VFMA, d.VFNMA, d.VMAX, d.VMIN, d.VSEL, d.VCMPLT, d.VCMPGT, d.VCMPEQ):
    _READS[_op, 1] = 1
for _op in (d.VADD, d.VSUB, d.VFMA, d.VFNMA, d.VSEL):
    _READS[_op, 2] = 1

_NEVER_WROTE = -(1 << 40)


@kernel
def _splat(bits: NDArray[np.uint32], row: int, code: int) -> None:
    """A scalar's row: 128 copies of a 24-bit code, a code with exponent 0 as signed zero (2.6)."""
    word = np.uint32(code << 8)
    if word & alu_ops.INF == 0:
        word &= alu_ops.SIGN
    for i in range(VLMAX):
        bits[row, i] = word


@kernel
def _clean(bits: NDArray[np.uint32], source: int, target: int) -> None:
    """Row target = row source with exponent 0 read as signed zero (2.6)."""
    for i in range(VLMAX):
        word = bits[source, i]
        bits[target, i] = word if (word & alu_ops.INF) != 0 else word & alu_ops.SIGN


@kernel
def _write_back(
    bits: NDArray[np.uint32], source: int, target: int, predicate: NDArray[np.uint8], p: int, pm: int, vl: int
) -> None:
    if pm == 0:
        for i in range(vl):
            bits[target, i] = bits[source, i]
    else:
        want = np.uint8(pm == 1)
        for i in range(vl):
            bits[target, i] = bits[source, i] if predicate[p, i] == want else bits[target, i]


@kernel
def _compare_back(
    bits: NDArray[np.uint32], source: int, predicate: NDArray[np.uint8], p: int, pm: int, vl: int
) -> None:
    """P[p] = a comparison's 1.0 or +0, where it is selected: by itself, so pm 1 ands and pm 2 ors."""
    want = np.uint8(pm == 1)
    for i in range(vl):
        old = predicate[p, i]
        new = np.uint8(bits[source, i] != 0)
        predicate[p, i] = new if (pm == 0) | (old == want) else old


@kernel
def _steps(bounds: NDArray[np.int64]) -> int:
    """Steps of a descriptor's walk, int64[4] bounds; WALK + 1 stands for anything longer."""
    total = 1
    for k in range(4):
        total = min(total * bounds[k], WALK + 1)
    return total


@kernel
def _set_scalar(bits: NDArray[np.uint32], scalar: NDArray[np.int64], u: int, s: int, code: int) -> None:
    scalar[u, s] = code
    _splat(bits, u * ROWS + ROW_S + s, code)


@kernel
def _operand(
    bits: NDArray[np.uint32],
    odd: NDArray[np.uint8],
    u: int,
    selector: int,
    register: int,
    stage: int,
    slot: int,
) -> int:
    """The row that a source names; `slot` is the scratch row to use when a register needs cleaning."""
    if selector == SEL_V:
        row = u * ROWS + register
        if odd[u, register]:
            _clean(bits, row, u * ROWS + ROW_CLEAN + slot)
            row = u * ROWS + ROW_CLEAN + slot
        return row
    if selector == SEL_S:
        return u * ROWS + ROW_S + register
    if selector == SEL_K:
        return u * ROWS + ROW_K + (register & 3)
    return stage


@kernel
def _selectors(w: NDArray[np.int64], head: bool) -> int:
    """The fault in a chain word's sources, or 0. A head is judged by what it reads, others by every selector."""
    for q in range(3):
        selector = w[d.SA + q]
        if head and selector == SEL_C and _READS[w[d.OP], q]:
            return F_CHAIN
        if not head and selector == SEL_V:
            return F_VSRC
    return 0


@kernel
def _run(vc: Vectors, mem: Memory, out: Outbox, u: int, start: int, note: NDArray[np.int64]) -> int:
    """Execute from program word `start` to VHALT, a fault or an error. Fills note[1] (cycles or code), the
    details of an error, and note[6], the program address of the word that ended it."""
    bits, real, cost, wrote, predicate = vc.bits, vc.real, vc.cost, vc.wrote, vc.predicate
    rows, preds, first_word, result = u * ROWS, u * 4, u * IMEM, u * ROWS + ROW_RESULT
    mesh = vc.place[u, MESH]
    steps = vc.walk[u]
    vl, mode = vc.core[u, VL], vc.core[u, MODE]
    n = (vl + LANES - 1) // LANES
    pc, t, empty = start, 0, 0
    loop_left, loop_from, loop_to = 0, 0, 0
    fill_first, fill_count, fill_done = 0, 0, 0
    fault, error = 0, 0
    for i in range(REGS + 4):
        wrote[u, i] = _NEVER_WROTE
    while True:
        note[6] = pc
        if pc >= IMEM:
            error = E_FETCH
            break
        w = vc.imem[first_word + pc]
        op = w[d.OP]
        pc += 1
        if op < d.VCVT:
            if mode == TREE:
                fault = F_OPCODE
                break
            fault = _selectors(w, True)
            if fault:
                break
            depth = 1 << mode
            begin = t
            for q in range(3):
                if w[d.SA + q] == SEL_V and _READS[op, q]:
                    begin = max(begin, wrote[u, w[d.VA + q]] + cost[C_DEPENDENCE] - 1)
            last = w
            for k in range(1, depth):
                note[6] = pc + k - 1
                if pc + k > IMEM:
                    error = E_FETCH
                    break
                last = vc.imem[first_word + pc + k - 1]
                if last[d.OP] >= d.VCVT:
                    fault = F_OPCODE
                    break
                fault = _selectors(last, False)
                if fault:
                    break
            if fault or error:
                break
            vd, pr, pm = last[d.VD], last[d.PR], last[d.PM]
            compares = d.VCMPLT <= last[d.OP] <= d.VCMPEQ
            if pm == 3:
                error = E_FIELD
                note[2], note[3] = d.PM, pm
                break
            if pm or compares:
                begin = max(begin, wrote[u, REGS + pr] + cost[C_DEPENDENCE] - 1)
            if not compares:
                begin = max(begin, wrote[u, vd] + cost[C_DEPENDENCE] - 1)
            stage = result
            for k in range(depth):
                if k:
                    w = vc.imem[first_word + pc]
                    op = w[d.OP]
                    pc += 1
                a = _operand(bits, vc.odd, u, w[d.SA], w[d.VA], stage, 0)
                b = _operand(bits, vc.odd, u, w[d.SB], w[d.VB], stage, 1)
                c = _operand(bits, vc.odd, u, w[d.SC], w[d.VC], stage, 2)
                stage = result + (k & 1)
                if k == depth - 1 and pm == 0 and not compares:
                    # In place only where the result row is not also read, which would stop the loop's SIMD.
                    row = rows + vd
                    clash = a == row or (b == row and _READS[op, 1]) or (c == row and _READS[op, 2])
                    if not clash:
                        alu(op, real, bits, a, b, c, row, vl)
                        continue
                alu(op, real, bits, a, b, c, stage, n * LANES)
                if k == depth - 1:
                    if compares:
                        _compare_back(bits, stage, predicate, preds + pr, pm, vl)
                    else:
                        _write_back(bits, stage, rows + vd, predicate, preds + pr, pm, vl)
            beats = begin + (depth - 1) * cost[C_STAGE] + n * depth
            t = beats + cost[C_ALU]
            empty = beats + cost[C_EMPTY]
            if compares:
                wrote[u, REGS + pr] = beats
            else:
                wrote[u, vd] = beats
                if vl == VLMAX and pm == 0:
                    vc.odd[u, vd] = 0
        elif op == d.VLD or op == d.VST:
            dtype = w[d.DTYPE]
            if dtype != FP16 and dtype != FP32:
                fault = F_DTYPE
                break
            t = max(t, empty)
            walk(vc.descriptor[u * DESCRIPTORS + w[d.AD]], w[d.OFF], n, steps)
            row = rows + w[d.VD]
            if op == d.VLD:
                error = load_register(vc.half, vc.single, vc.filled, u, steps, n, dtype, bits[row], note)
                if n * LANES == VLMAX:
                    vc.odd[u, w[d.VD]] = 0
                t += n * (cost[C_VLD16] if dtype == FP16 else cost[C_VLD32]) + cost[C_MEM]
            else:
                error = store_register(
                    vc.half, vc.single, vc.filled, u, steps, n, dtype, bits[row], vc.saturated, note
                )
                t += n * (cost[C_VST16] if dtype == FP16 else cost[C_VST32]) + cost[C_MEM]
            if error:
                break
        elif op == d.VFILL or op == d.VDRAIN:
            ad = u * DESCRIPTORS + w[d.AD]
            count = _steps(vc.descriptor[ad, BOUND:])
            if count > WALK:
                fault = F_LEN
                break
            if op == d.VDRAIN and w[d.NODE]:
                error = send(
                    vc.wide, vc.filled, out, mesh, u, vc.descriptor[ad, BASE], count, w[d.L1_WORD], w[d.DST_X],
                    w[d.DST_Y], w[d.BUF], w[d.ACK], note,
                )  # fmt: skip
            else:
                walk(vc.descriptor[ad], 0, count, steps)
                if op == d.VDRAIN:
                    error = drain(vc.wide, vc.filled, mem, mesh, u, steps, count, w[d.OFF], note)
            if op == d.VDRAIN:
                t += cost[C_DRAIN] + cost[C_DRAIN_WORD] * count
            else:
                settle(vc.filled, u, fill_first, fill_count)
                t = max(t, fill_done)
                fill_first, fill_count = w[d.OFF], count
                error = fill(vc.wide, vc.filled, mem, mesh, u, steps, count, fill_first, note)
                # Word k's request leaves a cycle after the issue reaches it; the port answers in order.
                between = max(cost[C_FILL_WORD], vc.place[u, WORD_PERIOD])
                asked = t + cost[C_FILL] + 1 + (count - 1) * between
                fill_done = asked + 2 * vc.place[u, ONE_WAY] + vc.place[u, FIRST_WORD]
                t += cost[C_FILL] + cost[C_FILL_WORD] * count
                if error:
                    fill_count = 0
            if error:
                break
        elif op == d.VBAR:
            settle(vc.filled, u, fill_first, fill_count)
            fill_count = 0
            t = max(t, fill_done) + cost[C_BAR]
        elif op == d.VHALT:
            t = max(t, empty, fill_done) + cost[C_HALT]
            break
        elif op == d.VRED:
            kind, pr = w[d.KIND], w[d.PR]
            if kind == ANY or kind == ALL:
                hits = 0
                for i in range(vl):
                    hits += int(predicate[preds + pr, i])
                yes = hits == vl if kind == ALL else hits > 0
                _set_scalar(bits, vc.scalar, u, w[d.VD], 0x3F8000 if yes else 0)
                t = max(t, wrote[u, REGS + pr] + cost[C_DEPENDENCE] - 1) + cost[C_SET]
            else:
                if vl % LANES:
                    fault = F_REDVL
                    break
                if mode != TREE:
                    fault = F_OPCODE
                    break
                a = _operand(bits, vc.odd, u, SEL_V, w[d.VA], 0, 0)
                reducer = alu_ops.ADD
                beat = LANES
                if kind == REDUCE_MAX or kind == REDUCE_MIN:
                    reducer = alu_ops.MAX if kind == REDUCE_MAX else alu_ops.MIN
                elif kind != SUM:
                    beat = LANES // 2
                    b = _operand(bits, vc.odd, u, SEL_V, w[d.VB], 0, 1)
                    leaf = alu_ops.VEXP2 if kind == EXPSUM else alu_ops.MUL
                    alu(leaf, real, bits, a, b, a, result, vl)
                    a = result
                    if kind == EXPSUM:
                        _write_back(bits, result, rows + w[d.VB], predicate, preds, 0, vl)
                        if vl == VLMAX:
                            vc.odd[u, w[d.VB]] = 0
                word = reduce_row(reducer, real, bits, a, result, vl, beat)
                _set_scalar(bits, vc.scalar, u, w[d.VD], int(word >> np.uint32(8)))
                t += cost[C_VRED] + n * (LANES // beat)
                empty = t + cost[C_VRED_TAIL]
        elif op == d.VCVT or op == d.VSHUF or op == d.VBCAST:
            t = max(t, empty) + n * cost[C_MOVE] + cost[C_MEM]
            vd, va = w[d.VD], w[d.VA]
            if op == d.VBCAST and w[d.SA] != SEL_S:
                _set_scalar(bits, vc.scalar, u, vd, int(bits[rows + va, 0] >> np.uint32(8)))
            elif op == d.VBCAST:
                # A move keeps all 24 bits: an integer in S may travel through V, so the word may be odd.
                plain = np.uint32(vc.scalar[u, va] << 8)
                for i in range(n * LANES):
                    bits[rows + vd, i] = plain
                tiny = (plain & alu_ops.INF) == 0 and (plain & ~alu_ops.SIGN) != 0
                if tiny or n * LANES == VLMAX:
                    vc.odd[u, vd] = np.uint8(tiny)
            elif op == d.VSHUF:
                by = vc.scalar[u, w[d.VB]]
                for i in range(n * LANES):
                    bits[result, i] = bits[rows + va, (i & ~(LANES - 1)) + ((i + by) & (LANES - 1))]
                for i in range(n * LANES):
                    bits[rows + vd, i] = bits[result, i]
                vc.odd[u, vd] |= vc.odd[u, va]
            else:
                dtype = w[d.DTYPE]
                if dtype == FP16:
                    vc.saturated[u] += through_half(bits[rows + va], bits[rows + vd], n * LANES)
                elif dtype == FP32:
                    for i in range(n * LANES):
                        bits[rows + vd, i] = bits[rows + va, i]
                    vc.odd[u, vd] |= vc.odd[u, va]
                else:
                    fault = F_DTYPE
                    break
        elif op == d.VSETVL:
            value = vc.scalar[u, w[d.VA]]
            if value < 1 or value > VLMAX:
                fault = F_VL
                break
            vl = value
            n = (vl + LANES - 1) // LANES
            t += cost[C_SET]
        elif op == d.VSETMODE:
            mode = w[d.MODE]
            t = max(t, empty) + cost[C_SET]
        elif op == d.VSETI:
            if pc >= IMEM:
                error = E_FETCH
                break
            value = vc.word[first_word + pc] & 0xFFFFFF
            pc += 1
            if w[d.SA] == SEL_K:
                vc.constant[u, 3] = value
                _splat(bits, rows + ROW_K + 3, value)
            else:
                _set_scalar(bits, vc.scalar, u, w[d.VD], value)
            t += cost[C_SETI]
        else:  # VLOOP
            if loop_left:
                fault = F_LOOP
                break
            if w[d.BODY] == 0:
                error = E_FIELD
                note[2], note[3] = d.BODY, 0
                break
            loop_left = max(1, vc.scalar[u, w[d.VA]])
            loop_from, loop_to = pc, pc + w[d.BODY]
            t += cost[C_SET]
            continue
        if loop_left and pc >= loop_to:
            loop_left -= 1
            if loop_left:
                pc = loop_from
    settle(vc.filled, u, fill_first, fill_count)
    vc.core[u, VL], vc.core[u, MODE] = vl, mode
    vc.kernel[u] = t
    vc.busy[u] += cost[C_FETCH] + t
    if error:
        if error == E_FETCH:
            note[2] = IMEM
        note[1] = error
        return RAISED
    if fault:
        note[1] = fault
        return FAULTED
    note[1] = t
    return RETIRED


@kernel
def vector_step(
    vc: Vectors,
    mem: Memory,
    out: Outbox,
    u: int,
    op: int,
    a: int,
    b: int,
    value: int,
    note: NDArray[np.int64],
) -> int:
    """Execute one envelope of vector core u (6.1) and return its status (units/state.py).

    op 1 IMEM: a = address, value = 32-bit word. op 2 DESC: a = descriptor, b = field, value = 40 bits (a
    dimension uses the low 34). op 3 RUN: a = pc; runs to VHALT or a fault. All int64. CU_DATA bursts sent by the
    RUN are in `out` when it returns.

    note, int64[8]: [0] status; [1] result word (RUN: kernel cycles, else 0), fault code or error code; [2:6]
    details of an error; [6] program address of the word that ended a RUN. A bad inbound burst is
    reported here, as F_CUDATA, before a RUN's first word.
    """
    note[1], note[6] = 0, a if op == ENV_RUN else -1
    status = RETIRED
    if op == ENV_IMEM:
        vc.word[u * IMEM + a] = value
        decode(value, vc.imem[u * IMEM + a])
        vc.busy[u] += vc.cost[C_SLOT]
    elif op == ENV_DESC:
        ad = u * DESCRIPTORS + a
        if b == 0:
            vc.descriptor[ad, BASE] = value
        elif b <= 4:
            stride = (value >> 16) & 0x3FFFF
            vc.descriptor[ad, STRIDE + b - 1] = stride - ((stride & 0x20000) << 1)
            vc.descriptor[ad, BOUND + b - 1] = max(1, value & 0xFFFF)
        vc.busy[u] += vc.cost[C_SLOT]
    elif op == ENV_RUN:
        if vc.core[u, BAD_BURST] == 0:
            status = _run(vc, mem, out, u, a, note)
    else:
        status, note[1] = FAULTED, F_OPCODE
    if vc.core[u, BAD_BURST]:
        vc.core[u, BAD_BURST] = 0
        status, note[1] = FAULTED, F_CUDATA
    vc.retired[u] += 1
    note[0] = status
    return status


@kernel
def vector_receive(vc: Vectors, u: int, buf: int, offset: int, data: NDArray[np.uint64], n: int) -> int:
    """Accept a CU_DATA burst of n granules, uint64[n, 4], into L1 words offset.. of core u (4.2).

    Returns 0, or E_NODE for a buffer a vector core does not have. A burst that leaves L1 is dropped whole and
    becomes the fault F_CUDATA at the core's next instruction; it is still 0 here, and acknowledged if asked.
    """
    if buf != 0:
        return E_NODE
    if offset < 0 or offset + n > L1:
        vc.core[u, BAD_BURST] = 1
        return 0
    for i in range(n):
        for q in range(4):
            vc.wide[4 * (u * L1 + offset + i) + q] = data[i, q]
        vc.filled[u * L1 + offset + i] = WRITTEN
    return 0
