"""The sequencer: one compiled loop over decoded instructions, bit-exact and cycle-exact (datasheet 3, 9, 10).

Decides the order of events, when each instruction executes, and what is refused; it must not know arithmetic or the
ranges of fields. Time is the machine's cycle number. An instruction's FETCH is at `t`; its first EXEC at `x`, later
where it waits; its last cycle at `end`; the next FETCH follows. The write-back of a background VPU operation takes
the first cycle from its readiness on in which the sequencer is neither in FETCH nor in the first EXEC of LOAD, and
pushes back by one the EXEC that would have been there (10.4). The rule stands in `_write_back` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import int64

from kohakuaccel.jit import leaf, separate
from tinytpu.isa.codes import SXU, VPU
from tinytpu.units import state as s
from tinytpu.units.dispatch import CORE, dispatch, settle
from tinytpu.units.faults import F, Lint
from tinytpu.units.psum import psum_op
from tinytpu.units.registers import copy_tile, register_op
from tinytpu.units.state import CODE, DST, NONE, OP, REQUANT, SRC, SRC2, TLEN, VMEM, Core
from tinytpu.units.vpu_float import floating
from tinytpu.units.vpu_int import integer
from tinytpu.units.xlu import move

if TYPE_CHECKING:
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]
    I32 = NDArray[np.int32]


@leaf
def remark(lint: I64, count: I64, what: int, pc: int, detail: int) -> None:
    """Remember a lint, once per place."""
    n = count[s.N_LINTS]
    for i in range(min(n, s.LINTS)):
        if lint[i, 0] == what and lint[i, 1] == pc and lint[i, 2] == detail:
            return
    if n < s.LINTS:
        lint[n, 0], lint[n, 1], lint[n, 2] = what, pc, detail
    count[s.N_LINTS] = n + 1


@leaf
def _write_back(v: I32, reg: I64, log: I64, result: int, earliest: int, exec_: int) -> int:
    """Write the background result if it is ready by cycle `exec_`; returns the cycle of that EXEC then.

    `earliest` is the first cycle of this instruction in which the sequencer can be interrupted.
    """
    if reg[s.BG_DST] == NONE or reg[s.BG_READY] > exec_:
        return exec_
    w = max(reg[s.BG_READY], earliest)
    copy_tile(v, result, reg[s.BG_DST])
    if reg[s.BG_LOG] < log.shape[0]:
        log[reg[s.BG_LOG], s.LOG_ENDED] = w
    reg[s.BG_DST] = NONE
    return exec_ + 1 if w == exec_ else exec_


@leaf
def _last(v: I32, reg: I64, log: I64, count: I64, result: int, x: int, free: int, end: int) -> int:
    """The last cycle of an instruction with more than one EXEC; up to `free` it only waits and nothing is pushed."""
    if reg[s.BG_READY] > end:
        return end
    if max(reg[s.BG_READY], x + 1) <= free:
        _write_back(v, reg, log, result, x + 1, free + 1)
        return end
    _write_back(v, reg, log, result, x + 1, end)
    count[s.N_STALL_P] += 1
    return end + 1


@leaf
def _background_fault(word: I64, reg: I64) -> int:
    """Whether an instruction that does not wait for a background write-back touches its vreg (9.7)."""
    pending = reg[s.BG_DST]
    reg[s.WHY_GOT] = pending
    if word[s.READ_A] == pending:
        return F.BACKGROUND_READ.value
    return F.BACKGROUND_WRITE.value if word[s.WRITES] == pending else 0


@leaf
def _control(word: I64, reg: I64, loop: I64, pc: int, silicon: int) -> int:
    """Loops and skips: sets PC; returns a fault."""
    op = word[OP]
    if op == SXU.LOOP_BEGIN:
        depth = reg[s.DEPTH]
        if depth < loop.shape[0]:
            loop[depth, 0], loop[depth, 1] = word[TLEN], pc + 1
            reg[s.DEPTH] = depth + 1
        elif not silicon:
            reg[s.WHY_LIMIT] = depth
            return F.LOOPS_FULL.value
    elif op == SXU.LOOP_END:
        top = reg[s.DEPTH] - 1
        if top < 0:
            return 0 if silicon else F.NO_LOOP.value
        if loop[top, 0] > 1:
            loop[top, 0] -= 1
            reg[s.PC] = loop[top, 1]
        else:
            reg[s.DEPTH] = top
    else:
        reg[s.PC] += (reg[s.PREDICATE] != 0) == (op == SXU.SKIP_IF_PRED)
        reg[s.PREDICATE] = 0
    return 0


@leaf
def _fetch_fault(program: I64, reg: I64, t: int, limit: int) -> int:
    """What stops a run at a FETCH."""
    pc = reg[s.PC]
    if t > limit:
        reg[s.WHY_LIMIT] = limit
        return F.TIMEOUT.value
    if pc >= program.shape[0]:
        reg[s.WHY_GOT], reg[s.WHY_LIMIT] = pc, program.shape[0] - 1
        return F.END_OF_PROGRAM.value
    if program[pc, s.FAULT]:
        reg[s.WHY_GOT], reg[s.WHY_LIMIT] = program[pc, s.GOT], program[pc, s.LIMIT]
        return program[pc, s.FAULT]
    return 0


@separate(int64(CORE, int64, int64), python=True)
def run(core: Core, first: int, queued: int) -> int:
    """Run the core's program from word 0 to its HALT or a fault, the first FETCH in cycle `first`.

    queued: whether an AMEM output will be read after the HALT. Returns the fault; reg[PC] is the word that ended the
    run, reg[TIME] the cycle of its FETCH, reg[WHEN] that of its EXEC, reg[WHY_*] the details.
    """
    # Taken out once: handing the whole core to a callee costs more than most instructions do.
    v, vf, vu, vb, vmem, vmem_state = core.v, core.vf, core.vu, core.vb, core.vmem, core.vmem_state
    psum, psum_written, program, stored_by, known = (
        core.psum,
        core.psum_written,
        core.program,
        core.stored_by,
        core.known,
    )
    reg, count, log, lint, loop, setting = core.reg, core.counts, core.log, core.lint, core.loop, core.setting
    results, matrix, stat, hits, spent = core.results, core.matrix, core.stat, core.hits, core.spent
    rows, cols, silicon, limit = setting[s.S_ROWS], setting[s.S_COLS], setting[s.S_SILICON], setting[s.S_LIMIT]
    n, fetch, logs = rows * cols, setting[s.S_FETCH], log.shape[0]
    vpu, xlu = setting[s.S_VREGS] + s.R_VPU, setting[s.S_VREGS] + s.R_XLU
    reg[s.BG_DST] = NONE
    t, pc, logged = first, 0, 0
    while True:
        pc = reg[s.PC]
        reg[s.TIME], reg[s.WHEN] = t, t
        fault = _fetch_fault(program, reg, t, limit)
        if fault:
            return fault
        word = program[pc]
        hits[pc] += 1
        op, stall, kind, code = word[OP], word[s.STALL], word[s.KIND], word[CODE]
        src, src2, dst, at = word[SRC], word[SRC2], word[DST], word[VMEM]
        if op == SXU.HALT:
            spent[pc] += 1
            if logged < logs:
                log[logged, 0], log[logged, 1], log[logged, 2], log[logged, 3], log[logged, 4] = pc, t, t, t, 0
            logged += 1
            break
        x = t + fetch
        if stall > s.PENDING_WRITE and reg[s.DONE] > x:
            count[s.N_STALL_C if stall == s.MXU_IDLE else s.N_STALL_D] += reg[s.DONE] - x
            x = reg[s.DONE]
        if reg[s.BG_DST] != NONE and op != SXU.LOAD:
            before = x
            if stall == s.PENDING_WRITE:
                x = max(x, reg[s.BG_READY])
            x = _write_back(v, reg, log, vpu, t + fetch, x)
            count[s.N_STALL_P] += x - before
            if reg[s.BG_DST] != NONE and not silicon:
                fault = _background_fault(word, reg)
        reg[s.WHEN] = x
        for column in range(s.READ_A, s.READ_C + 1):
            if word[column] >= 0 and known[word[column]] == 0:
                remark(lint, count, Lint.VREG_UNWRITTEN.value, pc, word[column])
                known[word[column]] = 1
        end, free = x, x
        reg[s.PC] = pc + 1
        if fault:
            pass
        elif kind <= s.K_FLOAT:
            if code == VPU.SELECT and reg[s.HAS_VPU] == 0:
                fault = F.NO_VPU_RESULT.value
            elif kind == s.K_INTEGER:
                integer(v, vu, vb, code, src, src2, vpu, rows, cols)
            else:
                floating(v, vf, code, src, src2, vpu, rows, cols)
            reg[s.HAS_VPU] = 1
            count[s.N_VPU] += 1
            count[s.N_VPU_BUSY] += word[s.LATENCY]
            if op == SXU.VPU:
                copy_tile(v, vpu, dst)
                end = x + word[s.LATENCY]
            else:
                reg[s.BG_READY], reg[s.BG_DST], reg[s.BG_LOG] = x + word[s.LATENCY], dst, logged
        elif op == SXU.LOAD:
            end = x + 1
            if reg[s.BG_DST] != NONE:
                # The second EXEC waits for the write-back, which cannot take the first.
                end = _write_back(v, reg, log, vpu, x + 1, max(end, reg[s.BG_READY]))
                count[s.N_STALL_P] += end - x - 1
            if vmem_state[at] == 0:
                reg[s.WHY_GOT] = at
                fault = F.VMEM_UNWRITTEN.value
            vmem_state[at] &= s.WRITTEN | s.REMARKED
            for i in range(n):
                v[dst, i] = vmem[at, i]
        elif op == SXU.STORE:
            if vmem_state[at] & (s.STORED | s.REMARKED) == s.STORED:
                remark(lint, count, Lint.STORE_UNUSED.value, stored_by[at], at)
                vmem_state[at] |= s.REMARKED
            vmem_state[at], stored_by[at] = vmem_state[at] | s.WRITTEN | s.STORED, pc
            for i in range(n):
                vmem[at, i] = v[src, i]
        elif kind == s.K_MOVE:
            move(v, op, src, xlu, src2, rows, cols)
            copy_tile(v, xlu, dst)
            reg[s.HAS_XLU] = 1
            count[s.N_XLU] += 1
        elif kind == s.K_CONTROL:
            fault = _control(word, reg, loop, pc, silicon)
        elif kind == s.K_PSUM:
            if reg[s.LATE_MODE] and reg[s.DONE] <= x:
                settle(reg, psum, psum_written, core.amem, core.amem_written, core.late)
            fault = psum_op(v, psum, psum_written, word, reg, cols, x, silicon)
            count[s.N_PSUM] += 1
            if op == SXU.PSUM_READ:
                end = x + 1
            elif op == SXU.PSUM_CLEAR_ALL:
                end = x + psum.shape[0] - 1
        elif kind == s.K_DISPATCH:
            blocking = op == SXU.MXU_EPILOGUE or op == SXU.MXU_VPU_EPILOGUE
            if blocking and word[s.WRITES] == NONE:
                if vmem_state[at] & (s.STORED | s.REMARKED) == s.STORED:
                    remark(lint, count, Lint.STORE_UNUSED.value, stored_by[at], at)
                    vmem_state[at] |= s.REMARKED
                stored_by[at] = pc
            fault = dispatch(core, word, x)
            if blocking:
                free, end = reg[s.DONE] - 1, reg[s.DONE] + 1
        elif stall == s.MXU_DONE and reg[s.DISPATCHED] == 0:
            fault = F.NOTHING_DISPATCHED.value
        elif op == SXU.MXU_CLEAR:
            for i in range(n):
                core.acc[i] = 0
        elif op == SXU.SELECT:
            for i in range(n):
                v[vpu, i] = v[src2, i] if v[src, i] != 0 else v[word[s.READ_C], i]
            copy_tile(v, vpu, dst)
            reg[s.HAS_VPU] = 1
            count[s.N_VPU] += 1
            count[s.N_VPU_BUSY] += 2
            end = x + 2
        else:
            fault = register_op(v, word, reg, results, matrix, stat, vpu, cols, x, silicon)
        if fault:
            reg[s.PC], reg[s.TIME] = pc, t
            count[s.N_INSTRUCTIONS] = logged + 1
            return fault
        if word[s.WRITES] >= 0:
            known[word[s.WRITES]] = 1
        if end != x and reg[s.BG_DST] != NONE:
            end = _last(v, reg, log, count, vpu, x, free, end)
        spent[pc] += end + 1 - t
        if logged < logs:
            log[logged, 0], log[logged, 1], log[logged, 2], log[logged, 3] = pc, t, x, end
            log[logged, 4] = reg[s.DONE] if kind == s.K_DISPATCH else 0
        logged += 1
        t = end + 1
    reg[s.TIME], count[s.N_INSTRUCTIONS] = t, logged
    if reg[s.LATE_MODE] == REQUANT and reg[s.DONE] > t and queued and not silicon:
        reg[s.WHY_LIMIT] = reg[s.DONE]
        return F.REQUANT_IN_FLIGHT.value
    if reg[s.LATE_MODE] and reg[s.DONE] <= t + 2:
        settle(reg, psum, psum_written, core.amem, core.amem_written, core.late)
    if reg[s.BG_DST] != NONE:
        remark(lint, count, Lint.WRITE_PENDING.value, pc, reg[s.BG_DST])
    if reg[s.DEPTH]:
        remark(lint, count, Lint.LOOPS_OPEN.value, pc, reg[s.DEPTH])
    return 0
