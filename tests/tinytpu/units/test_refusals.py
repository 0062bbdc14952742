"""What stops a run, with the instruction; what silicon does instead; what is only remarked (datasheet 9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import Fault, Refusal, SourceLine
from tinytpu.isa import SXU, VPU
from tinytpu.machines import load
from tinytpu.units.core import Image, execute
from tinytpu.units.faults import F
from tinytpu_rig.build import HALT, image, run, vpu, word

W: dict[int, list[int]] = {0: list(range(16))}
A: dict[int, list[int]] = {i: [1, 2, 3, 4] for i in range(8)}
MXU = word(SXU.MXU, tlen=1)
MODE_1 = word(SXU.MXU, tlen=1, src2=1)
BG = vpu(VPU.EXP2, 1, 0, background=True)
CLEAR = word(SXU.PSUM_CLEAR)
LOOPS = [word(SXU.LOOP_BEGIN, tlen=1)]

CASES: dict[str, tuple[F, int, list[list[int]]]] = {
    "VMEM": (F.VMEM_UNWRITTEN, 0, [word(SXU.LOAD, vmem=3)]),
    "WMEM": (F.WMEM_UNWRITTEN, 0, [word(SXU.MXU, tlen=1, wbase=1)]),
    "AMEM": (F.AMEM_UNWRITTEN, 0, [word(SXU.MXU, tlen=2, abase=7)]),
    "PSUM read": (F.PSUM_UNWRITTEN, 0, [word(SXU.PSUM_READ)]),
    "PSUM read row": (F.PSUM_UNWRITTEN, 1, [CLEAR, word(SXU.PSUM_READ_ROW, vmem=1)]),
    "PSUM accumulate": (F.PSUM_UNWRITTEN, 0, [word(SXU.PSUM_ACCUMULATE)]),
    "PSUM accumulate row": (F.PSUM_UNWRITTEN, 0, [word(SXU.PSUM_ACCUMULATE_ROW, dst=2)]),
    "PSUM by dispatch": (F.PSUM_UNWRITTEN, 0, [word(SXU.MXU, tlen=1, src2=2)]),
    "PSUM, one row written": (F.PSUM_UNWRITTEN, 2, [MODE_1, word(SXU.WAIT_MXU), word(SXU.PSUM_READ)]),
    "SELECT first": (F.NO_VPU_RESULT, 0, [vpu(VPU.SELECT, 0)]),
    "VPU result": (F.NO_VPU_RESULT, 0, [word(SXU.LOAD_VPU_RESULT)]),
    "XLU result": (F.NO_XLU_RESULT, 1, [vpu(VPU.ADD, 0), word(SXU.LOAD_XLU_RESULT)]),
    "five loops": (F.LOOPS_FULL, 4, LOOPS * 5),
    "loop end": (F.NO_LOOP, 0, [word(SXU.LOOP_END)]),
    "WAIT": (F.NOTHING_DISPATCHED, 0, [word(SXU.WAIT_MXU)]),
    "result": (F.NOTHING_DISPATCHED, 1, [word(SXU.MXU_CLEAR), word(SXU.LOAD_MXU_RESULT)]),
    "matrix": (F.NOTHING_DISPATCHED, 0, [word(SXU.LOAD_MXU_MATRIX_ROW)]),
    "statistics": (F.NO_STATISTICS, 1, [word(SXU.MXU_EPILOGUE, tlen=1), word(SXU.LOAD_EPILOGUE_STAT)]),
    "statistics gone": (F.NO_STATISTICS, 2, [word(SXU.MXU_EPILOGUE, tlen=1, vpu=4), MXU, word(SXU.LOAD_EPILOGUE_STAT)]),
    "hazard": (F.PSUM_HAZARD, 1, [MODE_1, CLEAR]),
    "hazard of all": (F.PSUM_HAZARD, 1, [MODE_1, word(SXU.PSUM_CLEAR_ALL)]),
    "BG, bias": (F.BACKGROUND_READ, 1, [BG, word(SXU.MXU_EPILOGUE, tlen=1, src=1, vpu=1, dst=2)]),
    "BG, op 46": (F.BACKGROUND_READ, 1, [BG, word(SXU.MXU_VPU_EPILOGUE, tlen=1, src=1, dst=2)]),
    "BG, epilogue": (F.BACKGROUND_WRITE, 1, [BG, word(SXU.MXU_EPILOGUE, tlen=1, dst=1)]),
    **{f"BG, {op.name}": (F.BACKGROUND_WRITE, 2, [CLEAR, BG, word(op, dst=1)])
       for op in (SXU.PSUM_READ, SXU.PSUM_READ_ROW, SXU.READ_CYCLE, SXU.VZERO, SXU.VFILL, SXU.LOAD_LOOP_DEPTH)},
    "BG, XLU result": (F.BACKGROUND_WRITE, 2, [word(SXU.TRANSPOSE), BG, word(SXU.LOAD_XLU_RESULT, dst=1)]),
    "BG, LOAD_MXU_RESULT": (F.BACKGROUND_WRITE, 2, [MXU, BG, word(SXU.LOAD_MXU_RESULT, dst=1)]),
    "BG, matrix": (F.BACKGROUND_WRITE, 2, [MXU, BG, word(SXU.LOAD_MXU_MATRIX_ROW, dst=1)]),
    "BG, statistics": (F.BACKGROUND_WRITE, 2,
                       [word(SXU.MXU_EPILOGUE, tlen=1, vpu=4), BG, word(SXU.LOAD_EPILOGUE_STAT, dst=1)]),
    "opcode": (F.OPCODE, 1, [CLEAR, [47, *[0] * 8]]),
    "operation": (F.VPU_CODE, 0, [word(SXU.VPU, vpu=86)]),
    "operation of op 46": (F.VPU_CODE, 0, [word(SXU.MXU_VPU_EPILOGUE, tlen=1, vpu=100)]),
    "vreg": (F.VREG, 0, [word(SXU.VZERO, dst=16)]),
    "vreg of SELECT": (F.VREG, 0, [word(SXU.SELECT, wbase=16)]),
    "VMEM address": (F.VMEM_ADDRESS, 0, [word(SXU.STORE, vmem=32)]),
    "WMEM address": (F.WMEM_ADDRESS, 0, [word(SXU.MXU, tlen=1, wbase=32)]),
    "AMEM address": (F.AMEM_ADDRESS, 0, [word(SXU.MXU, tlen=1, abase=32)]),
    "AMEM range": (F.AMEM_RANGE, 0, [word(SXU.MXU, tlen=4, abase=29)]),
    "AMEM range of OS": (F.AMEM_RANGE, 0, [word(SXU.MXU_OS, tlen=4, abase=29)]),
    "requant slot": (F.AMEM_ADDRESS, 0, [word(SXU.DISPATCH_MXU_REQUANT, tlen=1, vmem=32)]),
    "bucket": (F.BUCKET, 0, [word(SXU.PSUM_CLEAR, vmem=8)]),
    "bucket of MXU": (F.BUCKET, 0, [word(SXU.MXU, tlen=1, src2=1, dst=8)]),
    "row": (F.ROW, 0, [word(SXU.PSUM_READ_ROW, src=4)]),
    "row of MXU": (F.ROW, 0, [word(SXU.MXU, tlen=1, src2=1, src=4)]),
    "row of matrix": (F.ROW, 0, [word(SXU.LOAD_MXU_MATRIX_ROW, src=4)]),
    "lane": (F.LANE, 0, [word(SXU.BROADCAST, src2=4)]),
    "row of a move": (F.ROW, 0, [word(SXU.BROADCAST_ROW, src2=4)]),
    "element": (F.LANE, 0, [word(SXU.BROADCAST_SCALAR, src2=16)]),
    "amount": (F.LANE, 0, [word(SXU.ROTATE, src2=4)]),
    "no vectors": (F.TILES, 0, [word(SXU.MXU, tlen=0)]),
    "k of 5": (F.K, 0, [word(SXU.MXU_OS, tlen=5)]),
    "k of 0": (F.K, 0, [word(SXU.MXU_OS_ACCUMULATE, tlen=0)]),
    "PSUM mode": (F.PSUM_MODE, 0, [word(SXU.MXU, tlen=1, src2=3)]),
    "loop of 0": (F.LOOP_COUNT, 0, [word(SXU.LOOP_BEGIN, tlen=0)]),
    "shift 0": (F.SHIFT, 0, [word(SXU.SET_REQUANT_CONFIG, wbase=1)]),
    "no shift": (F.SHIFT, 0, [word(SXU.DISPATCH_MXU_REQUANT, tlen=1)]),
    "negative field": (F.FIELD, 0, [word(SXU.LOAD, vmem=-1)]),
}  # fmt: skip


def stopped(program: list[list[int]], **items: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        run(program, wmem=W, amem=A, **items)
    return caught.value


@pytest.mark.parametrize("name", CASES)
def test_refused_at_run_time(name: str) -> None:
    code, pc, program = CASES[name]
    fault = stopped([*program, HALT])
    assert (F(fault.code or 0), fault.index) == (code, pc)
    assert f"instruction {pc}" in str(fault)
    assert "cycle" in str(fault)


def test_a_fault_says_place_value_limit_and_line() -> None:
    lines = [SourceLine("p.tasm", 7, "HALT"), SourceLine("p.tasm", 9, "STORE VMEM[40], v0")]
    program = image([word(SXU.VZERO), word(SXU.STORE, vmem=40), HALT], lines=lines)
    with pytest.raises(
        Fault, match=r"^line 9: tinytpu_4x4, instruction 1 .*VMEM\[40\] is beyond VMEM; the limit is 31"
    ):
        execute(load(), program)


def test_the_end_of_the_program() -> None:
    fault = stopped([word(SXU.VZERO)])
    assert (fault.code, fault.index) == (F.END_OF_PROGRAM, 1)
    fault = stopped([word(SXU.SET_PRED_IF_ZERO), word(SXU.SKIP_IF_PRED), HALT])
    assert (fault.code, fault.index) == (F.END_OF_PROGRAM, 3)


def test_timeout() -> None:
    nest = [word(SXU.LOOP_BEGIN, tlen=255)] * 3 + [word(SXU.VZERO)] + [word(SXU.LOOP_END)] * 3
    fault = stopped([*nest, HALT])
    assert fault.code == F.TIMEOUT
    assert "50000" in str(fault)


def test_timeout_of_the_output() -> None:
    small = load().with_(params={"cycle_limit": 24})
    assert run([word(SXU.STORE), HALT], small, vmem_outputs=[0]).cycles == 14
    with pytest.raises(Fault, match="timeout"):
        run([word(SXU.STORE), HALT], load().with_(params={"cycle_limit": 13}), vmem_outputs=[0])


def test_requant_in_flight_at_the_halt() -> None:
    config = word(SXU.SET_REQUANT_CONFIG, wbase=1, vpu=1)
    body = [config, word(SXU.DISPATCH_MXU_REQUANT, tlen=1, vmem=9)]
    assert stopped([*body, HALT], amem_outputs=[9]).code == F.REQUANT_IN_FLIGHT
    done = run([*body, word(SXU.WAIT_MXU), HALT], wmem=W, amem=A, amem_outputs=[9])
    assert list(done.amem[0]) == [int(x) for x in (np.array([1, 2, 3, 4]) @ np.arange(16).reshape(4, 4) + 1) >> 1]
    assert run([*body, HALT], wmem=W, amem=A).cycles


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ({"vmem": {32: [0] * 16}}, r"VMEM\[32\]: VMEM has 32 items"),
        ({"vmem": {0: [0] * 15}}, r"VMEM\[0\]: an item is filled whole; got 15"),
        ({"vmem": {0: [2**31] * 16}}, r"VMEM\[0\]: a value of VMEM is int32; got 2147483648"),
        ({"wmem": {0: [128] * 16}}, "a value of WMEM is int8; got 128"),
        ({"amem": {40: [0] * 4}}, r"AMEM\[40\]"),
        ({"vmem_outputs": [0]}, r"VMEM\[0\]: an output was never written"),
        ({"amem_outputs": [0]}, r"AMEM\[0\]: an output was never written"),
        ({"vmem_outputs": [32]}, r"output of VMEM\[32\]"),
        ({"vmem": {0: [0] * 16}, "vmem_outputs": [0] * 32}, "VMEM outputs of one run; got 32; the limit is 31"),
        ({"mxu_result": True}, "nothing was dispatched"),
    ],
)
def test_images_refused(items: dict[str, Any], text: str) -> None:
    with pytest.raises(Refusal, match=text):
        run([HALT], **items)


def test_programs_too_long() -> None:
    with pytest.raises(Refusal, match="got 257; the limit is 256"):
        run([word(SXU.VZERO)] * 256 + [HALT])
    assert run([word(SXU.VZERO)] * 255 + [HALT]).cycles == 2 * 256 + 255 * 2 + 1 + 4


# silicon


def test_silicon_wraps_addresses() -> None:
    program = [word(SXU.LOAD, vmem=33, dst=17), word(SXU.STORE, vmem=34, src=1), HALT]
    done = run(program, vmem={65: list(range(16))}, vmem_outputs=[2 + 32], silicon=True)
    assert list(done.vmem[0].reshape(-1)) == list(range(16))


def test_silicon_truncates_values() -> None:
    done = run(
        [HALT], vmem={0: [2**32 + 5] * 16}, amem={0: [200] * 4}, vmem_outputs=[0], amem_outputs=[0], silicon=True
    )
    assert done.vmem[0][0, 0] == 5
    assert done.amem[0][0] == -56


def test_silicon_loses_outputs_loops_and_rounding() -> None:
    full: dict[str, Any] = {"vmem": {0: [0] * 16}, "silicon": True}
    assert run([HALT], vmem_outputs=[0] * 32, **full).vmem == []
    loops = [word(SXU.LOOP_BEGIN, tlen=2)] * 5 + [vpu(VPU.ADD, 0, 0, 1)] + [word(SXU.LOOP_END)] * 5
    program = [word(SXU.VFILL, dst=1, wbase=1), *loops, word(SXU.STORE), HALT]
    assert run(program, vmem_outputs=[0], **full).vmem[0][0, 0] == 16
    quant = [word(SXU.SET_REQUANT_CONFIG, wbase=1), word(SXU.DISPATCH_MXU_REQUANT, tlen=1, vmem=1), word(SXU.WAIT_MXU)]
    done = run([*quant, HALT], wmem=W, amem={0: [5, 0, 0, 0]}, amem_outputs=[1], silicon=True)
    assert list(done.amem[0]) == [127] * 4


def test_silicon_overwrites_a_program_too_long() -> None:
    program = [word(SXU.VZERO)] * 256 + [word(SXU.STORE), HALT, word(SXU.VZERO)]
    assert run(program, vmem_outputs=[0], silicon=True).counters["instructions"] == 2


def test_silicon_reads_a_bucket_before_its_drain() -> None:
    program = [word(SXU.PSUM_CLEAR), MODE_1, word(SXU.PSUM_READ, dst=1), word(SXU.WAIT_MXU), word(SXU.PSUM_READ, dst=2),
               word(SXU.STORE, vmem=0, src=1), word(SXU.STORE, vmem=1, src=2), HALT]  # fmt: skip
    early, late = run(program, wmem=W, amem=A, vmem_outputs=[0, 1], silicon=True).vmem
    assert not early.any()
    assert list(late[0]) == list(np.array([1, 2, 3, 4]) @ np.arange(16).reshape(4, 4))


def test_silicon_wraps_the_vectors_of_a_dispatch() -> None:
    a = {i: [i, 1, 0, 0] for i in range(32)}
    program = [word(SXU.MXU, abase=30, tlen=4), word(SXU.LOAD_MXU_RESULT), word(SXU.STORE), HALT]
    done = run(program, wmem=W, amem=a, vmem_outputs=[0], silicon=True)
    assert list(done.vmem[0][0]) == list(np.array([30 + 31 + 0 + 1, 4, 0, 0]) @ np.arange(16).reshape(4, 4))


# lints


def remarks(program: list[list[int]], **items: Any) -> list[str]:
    return [f"{r.pc}: {r.what}" for r in run(program, wmem=W, amem=A, **items).remarks]


def test_lints() -> None:
    assert remarks([word(SXU.STORE, src=3), HALT], vmem_outputs=[0]) == [
        "0: v3 is read before anything wrote it; it holds 0"
    ]
    zero = word(SXU.VZERO)
    assert remarks([zero, word(SXU.STORE), HALT]) == ["1: the tile stored in VMEM[0] is never used"]
    twice = [zero, word(SXU.STORE), word(SXU.STORE), HALT]
    assert remarks(twice, vmem_outputs=[0]) == ["1: the tile stored in VMEM[0] is never used"]
    assert remarks([word(SXU.LOOP_BEGIN, tlen=1), HALT]) == ["1: HALT with 1 open loops"]
    assert remarks([zero, vpu(VPU.EXP2, 1, 0, background=True), HALT]) == ["2: HALT while VPU_BG has yet to write v1"]
    waits = [MXU, word(SXU.WAIT_MXU), word(SXU.LOAD_MXU_RESULT), HALT]
    assert remarks(waits) == ["1: WAIT_MXU before an instruction that waits for the MXU by itself"]
    clean = [zero, word(SXU.STORE), word(SXU.LOAD, dst=1), MXU, word(SXU.WAIT_MXU), HALT]
    assert remarks(clean) == []


def test_an_image_counts_its_records() -> None:
    full = Image(np.array([HALT]), vmem={0: [0] * 16}, wmem=W, amem=A, vmem_outputs=[0], amem_outputs=[0])
    assert full.record_count() == 1 + 1 + 1 + 8 + 1 + 1
