"""The vector core's program interpreter: one compiled loop over decoded words (datasheet 6.2, 6.3, 8.3).

Decides what a word does, in which order faults are found, and what it costs; it must not know envelopes,
bit positions or arithmetic. Rows, walks and reductions live in the other vector modules.

Time. `t` is the cycle at which the current word executes, counted from the first word of the RUN. An ALU word
has beats at t+1 .. t+n, n = ceil(VL/16); a beat that reads or overwrites a register comes at least
`dependence` after the last beat that wrote it, predicates included. Words that need an empty pipeline wait
until `empty_pipeline` after the last ALU beat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int64, typeof

from kohakuaccel.jit import leaf, separate
from kohakutpu.units import vector_codes as codes
from kohakutpu.units import vector_decode as d
from kohakutpu.units.state import (
    E_FETCH,
    E_FIELD,
    FAULTED,
    RAISED,
    RETIRED,
    Memory,
    Outbox,
    make_memory,
    make_outbox,
)
from kohakutpu.units.vector_alu import alu
from kohakutpu.units.vector_memory import (
    FP16,
    FP32,
    drain,
    fill,
    load_register,
    send,
    settle,
    store_register,
    walk,
    walk_length,
)
from kohakutpu.units.vector_quant import ENTRY_WORDS, quantise_burst
from kohakutpu.units.vector_reduce import reduce_row
from kohakutpu.units.vector_rows import (
    clean_row,
    convert_row,
    copy_row,
    count_predicate,
    select_row,
    set_predicate,
    set_scalar,
    shuffle_row,
    spread_row,
)
from kohakutpu.units.vector_state import (
    BASE,
    C_ALU,
    C_BAR,
    C_DEPENDENCE,
    C_DRAIN,
    C_DRAIN_ENTRY,
    C_DRAIN_WORD,
    C_EMPTY,
    C_FETCH,
    C_FILL,
    C_FILL_WORD,
    C_HALT,
    C_MEM,
    C_MOVE,
    C_SET,
    C_SETI,
    C_STAGE,
    C_VLD16,
    C_VLD32,
    C_VRED,
    C_VRED_TAIL,
    C_VST16,
    C_VST32,
    COUNT_NONFINITE,
    DESCRIPTORS,
    FIRST_WORD,
    IMEM,
    L1,
    LANES,
    MESH,
    MODE,
    ONE_WAY,
    QUANTISER,
    REGS,
    ROW_CLEAN,
    ROW_K,
    ROW_RESULT,
    ROW_S,
    ROW_SEED,
    ROWS,
    VL,
    VLMAX,
    WALK,
    WORD_PERIOD,
    Vectors,
    reset_vectors,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

STATE = (typeof(reset_vectors(1)), typeof(make_memory([4096])), typeof(make_outbox()))
"""numba types of the arguments vc, mem, out."""
NOTE = int64[::1]

_NEVER_WROTE = -(1 << 40)
_ONE = 0x3F8000


@leaf
def _source(bits: NDArray[np.uint32], odd: NDArray[np.uint8], u: int, row: int, stage: int, slot: int) -> int:
    """The row a source means; a V register that holds words with exponent 0 is read through a clean copy."""
    if row < 0:
        return stage
    if row < REGS and odd[u, row]:
        clean_row(bits, u * ROWS + row, u * ROWS + ROW_CLEAN + slot)
        return u * ROWS + ROW_CLEAN + slot
    return u * ROWS + row


@leaf
def _written(wrote: NDArray[np.int64], u: int, row: int) -> int:
    """The last beat that wrote a source row, if it is a V register."""
    return wrote[u, row] if row < REGS else _NEVER_WROTE


@separate(int64(*STATE, int64, int64, NOTE))
def run(vc: Vectors, mem: Memory, out: Outbox, u: int, start: int, note: NDArray[np.int64]) -> int:
    """Execute core u's program from word `start` to VHALT, a fault or an error; returns the status.

    note[1] is the kernel cycles (datasheet 4.2's result word), the fault code or the error code, note[2:6] the
    details of an error, note[6] the program address of the word that ended the run.
    """
    # Taken out once: numba counts a reference at every attribute read.
    bits, real, odd, scalar, predicate = vc.bits, vc.real, vc.odd, vc.scalar, vc.predicate
    half, single, wide, filled = vc.half, vc.single, vc.wide, vc.filled
    imem, word, descriptor, core, place = vc.imem, vc.word, vc.descriptor, vc.core, vc.place
    cost, wrote, saturated = vc.cost, vc.wrote, vc.saturated
    dram, written = mem.wide, mem.written
    rows, result, p0, w0 = u * ROWS, u * ROWS + ROW_RESULT, u * 4, u * IMEM
    mesh = place[u, MESH]
    steps = vc.walk[u]
    vl, mode = core[u, VL], core[u, MODE]
    n = (vl + LANES - 1) // LANES
    apart = cost[C_DEPENDENCE] - 1
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
        at = w0 + pc
        op = imem[at, d.OP]
        vd, va = imem[at, d.VD], imem[at, d.VA]
        pc += 1
        if op < codes.FIRST_OTHER:
            depth = 1 << mode
            if mode == codes.TREE:
                fault = codes.F_OPCODE
            else:
                fault = imem[at, d.HEAD_FAULT]
            last = at
            while last < at + depth - 1 and fault == 0 and error == 0:
                last += 1
                note[6] = last - w0
                if last >= w0 + IMEM:
                    error = E_FETCH
                elif imem[last, d.OP] >= codes.FIRST_OTHER:
                    fault = codes.F_OPCODE
                else:
                    fault = imem[last, d.BODY_FAULT]
            if fault or error:
                break
            compares = codes.VCMPLT <= imem[last, d.OP] <= codes.VCMPEQ
            vd, pr, pm = imem[last, d.VD], p0 + imem[last, d.PR], imem[last, d.PM]
            if pm == 3:
                error = E_FIELD
                note[2], note[3] = d.PM, pm
                break
            target = REGS + pr - p0 if compares else vd
            begin = max(t, wrote[u, target] + apart)
            if pm:
                begin = max(begin, wrote[u, REGS + pr - p0] + apart)
            stage = result
            for k in range(depth):
                ra, rb, rc = imem[at + k, d.ROW_A], imem[at + k, d.ROW_B], imem[at + k, d.ROW_C]
                if k == 0:
                    begin = max(begin, _written(wrote, u, ra) + apart)
                    begin = max(begin, _written(wrote, u, rb) + apart)
                    begin = max(begin, _written(wrote, u, rc) + apart)
                a = _source(bits, odd, u, ra, stage, 0)
                b = _source(bits, odd, u, rb, stage, 1)
                c = _source(bits, odd, u, rc, stage, 2)
                stage = result + (k & 1)
                row, length = stage, n * LANES
                if at + k == last and pm == 0 and not compares and vd != ra and vd != rb and vd != rc:
                    # Straight into the register, but only where it is not also read: that would stop SIMD.
                    row, length = rows + vd, vl
                alu(imem[at + k, d.OP], real, bits, a, b, c, row, rows + ROW_SEED, length)
                if at + k == last and row == stage:
                    if compares:
                        set_predicate(bits, stage, predicate, pr, pm, vl)
                    elif pm:
                        select_row(bits, stage, rows + vd, predicate, pr, pm, vl)
                    else:
                        copy_row(bits, stage, rows + vd, vl)
            pc += depth - 1
            beats = begin + (depth - 1) * cost[C_STAGE] + n * depth
            t = beats + cost[C_ALU]
            empty = beats + cost[C_EMPTY]
            wrote[u, target] = beats
            if vl == VLMAX and pm == 0 and not compares:
                odd[u, vd] = 0
        elif op == codes.VLD or op == codes.VST:
            dtype = imem[at, d.DTYPE]
            if dtype != FP16 and dtype != FP32:
                fault = codes.F_DTYPE
                break
            t = max(t, empty) + cost[C_MEM]
            walk(descriptor, u * DESCRIPTORS + imem[at, d.AD], imem[at, d.OFF], n, steps)
            if op == codes.VLD:
                error = load_register(half, single, filled, u, steps, n, dtype, bits, rows + vd, note)
                t += n * (cost[C_VLD16] if dtype == FP16 else cost[C_VLD32])
                if n * LANES == VLMAX:
                    odd[u, vd] = 0
            else:
                error = store_register(half, single, filled, u, steps, n, dtype, bits, rows + vd, saturated, note)
                t += n * (cost[C_VST16] if dtype == FP16 else cost[C_VST32])
            if error:
                break
        elif op == codes.VFILL or op == codes.VDRAIN:
            ad = u * DESCRIPTORS + imem[at, d.AD]
            count = walk_length(descriptor, ad)
            if count > WALK:
                fault = codes.F_LEN
                break
            to_node = op == codes.VDRAIN and imem[at, d.NODE] == 1
            packs = to_node and imem[at, d.QUANT] == 1 and imem[at, d.BUF] <= 1 and vc.option[QUANTISER] == 1
            if packs and count % ENTRY_WORDS != 0:
                fault = codes.F_LEN
                break
            if not to_node:
                walk(descriptor, ad, 0, count, steps)
            if op == codes.VFILL:
                settle(filled, u, fill_first, fill_count)
                t = max(t, fill_done)
                fill_first, fill_count = imem[at, d.OFF], count
                error = fill(
                    wide, filled, dram, written, mem.base[mesh], mem.size[mesh], mesh, u, steps,
                    count, fill_first, note,
                )  # fmt: skip
                # Word k's request leaves a cycle after its issue; the port answers them in order.
                between = max(cost[C_FILL_WORD], place[u, WORD_PERIOD])
                asked = t + cost[C_FILL] + 1 + (count - 1) * between
                fill_done = asked + 2 * place[u, ONE_WAY] + place[u, FIRST_WORD]
                t += cost[C_FILL] + cost[C_FILL_WORD] * count
            elif to_node:
                error = send(
                    wide, filled, out.head, out.data, out.used, mesh, u, descriptor[ad, BASE], count,
                    imem[at], note,
                )  # fmt: skip
                t += cost[C_DRAIN]
                if packs and error == 0:
                    found = quantise_burst(
                        half, u * L1 + imem[at, d.L1_WORD], count // ENTRY_WORDS, imem[at, d.BUF], vc.lanes, vc.scales,
                        vc.image, vc.octets, out.head, out.data, out.used,
                    )  # fmt: skip
                    vc.nonfinite[u] += found
                    t += cost[C_DRAIN_ENTRY] * (count // ENTRY_WORDS)
                    if found > 0 and vc.option[COUNT_NONFINITE] == 0:
                        fault = codes.F_NONFIN
                        break
                elif error == 0:
                    t += cost[C_DRAIN_WORD] * count
            else:
                error = drain(
                    wide, filled, dram, written, mem.base[mesh], mem.size[mesh], mesh, u, steps,
                    count, imem[at, d.OFF], note,
                )  # fmt: skip
                t += cost[C_DRAIN] + cost[C_DRAIN_WORD] * count
            if error:
                fill_count = 0 if op == codes.VFILL else fill_count
                break
        elif op == codes.VBAR:
            settle(filled, u, fill_first, fill_count)
            fill_count = 0
            t = max(t, fill_done) + cost[C_BAR]
        elif op == codes.VHALT:
            t = max(t, empty, fill_done) + cost[C_HALT]
            break
        elif op == codes.VRED:
            kind, pr = imem[at, d.KIND], imem[at, d.PR]
            if kind == codes.ANY or kind == codes.ALL:
                hits = count_predicate(predicate, p0 + pr, vl)
                yes = hits == vl if kind == codes.ALL else hits > 0
                set_scalar(bits, scalar, u, vd, _ONE if yes else 0)
                t = max(t, wrote[u, REGS + pr] + apart) + cost[C_SET]
            elif vl % LANES or mode != codes.TREE:
                fault = codes.F_REDVL if vl % LANES else codes.F_OPCODE
                break
            else:
                vb = imem[at, d.VB]
                row, beat, reducer = _source(bits, odd, u, va, 0, 0), LANES, kind
                if kind >= codes.SUMSQ:
                    beat, reducer = LANES // 2, codes.SUM
                    leaf = codes.VEXP2 if kind == codes.EXPSUM else codes.VMUL
                    alu(leaf, real, bits, row, _source(bits, odd, u, vb, 0, 1), row, result, rows + ROW_SEED, vl)
                    row = result
                    if kind == codes.EXPSUM:
                        copy_row(bits, result, rows + vb, vl)
                        if vl == VLMAX:
                            odd[u, vb] = 0
                total = reduce_row(reducer, real, bits, row, result, vl, beat)
                set_scalar(bits, scalar, u, vd, int(total >> np.uint32(8)))
                t += cost[C_VRED] + n * (LANES // beat)
                empty = t + cost[C_VRED_TAIL]
        elif op == codes.VCVT or op == codes.VSHUF or op == codes.VBCAST:
            t = max(t, empty) + n * cost[C_MOVE] + cost[C_MEM]
            if op == codes.VSHUF:
                shuffle_row(bits, rows + va, rows + vd, result, scalar[u, imem[at, d.VB]], n)
                odd[u, vd] |= odd[u, va]
            elif op == codes.VCVT:
                dtype = imem[at, d.DTYPE]
                if dtype == FP16:
                    saturated[u] += convert_row(bits, vc.passing[u], rows + va, rows + vd, n)
                elif dtype == FP32:
                    copy_row(bits, rows + va, rows + vd, n * LANES)
                    odd[u, vd] |= odd[u, va]
                else:
                    fault = codes.F_DTYPE
                    break
            elif imem[at, d.SA] == codes.SEL_S:
                odd[u, vd] |= spread_row(bits, rows + vd, scalar[u, va], n)
            else:
                set_scalar(bits, scalar, u, vd, int(bits[rows + va, 0] >> np.uint32(8)))
        elif op == codes.VSETVL:
            vl = scalar[u, va]
            if vl < 1 or vl > VLMAX:
                fault = codes.F_VL
                vl = core[u, VL]
                break
            core[u, VL] = vl
            n = (vl + LANES - 1) // LANES
            t += cost[C_SET]
        elif op == codes.VSETMODE:
            mode = imem[at, d.MODE]
            core[u, MODE] = mode
            t = max(t, empty) + cost[C_SET]
        elif op == codes.VSETI:
            if pc >= IMEM:
                error = E_FETCH
                break
            code = word[w0 + pc] & 0xFFFFFF
            pc += 1
            if imem[at, d.SA] == codes.SEL_K:
                vc.constant[u, 3] = code
                set_scalar(bits, scalar, u, ROW_K + 3 - ROW_S, code)
            else:
                set_scalar(bits, scalar, u, vd, code)
            t += cost[C_SETI]
        else:  # VLOOP
            body = imem[at, d.BODY]
            if loop_left:
                fault = codes.F_LOOP
                break
            if body == 0:
                error = E_FIELD
                note[2], note[3] = d.BODY, body
                break
            loop_left = max(1, scalar[u, va])
            loop_from, loop_to = pc, pc + body
            t += cost[C_SET]
        if loop_left and pc >= loop_to:
            loop_left -= 1
            if loop_left:
                pc = loop_from
    settle(filled, u, fill_first, fill_count)
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
