"""Random programs on the compiled model and on the slow reference: one state, one cycle, one refusal (datasheet 17)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import Fault
from tinytpu.isa import SXU, VPU
from tinytpu.machines import load
from tinytpu.units import state as s
from tinytpu.units.core import execute
from tinytpu.units.faults import F
from tinytpu_rig import machine as slow
from tinytpu_rig.build import HALT, image, word

VREGS, TILES, BUCKETS, SLOTS = 6, 5, 3, 9
SPECIAL = [0, 1, -1, 2**31 - 1, -(2**31), 0x7F800000, 0x7FC00000, 0x3F800000, 0x40490FDB, 0x00000001, 0x7F800001]
PLAIN = (
    SXU.LOAD, SXU.STORE, SXU.LOAD, SXU.STORE, SXU.VPU, SXU.VPU, SXU.VPU, SXU.VPU_BG, SXU.VPU_BG, SXU.BROADCAST,
    SXU.SELECT, SXU.BROADCAST_SCALAR, SXU.BROADCAST_ROW, SXU.BROADCAST_COL, SXU.TRANSPOSE, SXU.ROTATE,
    SXU.LOAD_VPU_RESULT, SXU.LOAD_XLU_RESULT, SXU.PSUM_WRITE, SXU.PSUM_ACCUMULATE, SXU.PSUM_READ, SXU.PSUM_READ_ROW,
    SXU.PSUM_CLEAR, SXU.PSUM_CLEAR_ALL, SXU.PSUM_ACCUMULATE_ROW, SXU.SET_PRED_IF_ZERO, SXU.SET_PRED_NE_ZERO,
    SXU.READ_CYCLE, SXU.VZERO, SXU.VFILL, SXU.VMOV, SXU.VNEG, SXU.VABS, SXU.LOAD_LOOP_DEPTH, SXU.SKIP_IF_PRED,
    SXU.SKIP_IF_NOT_PRED,
)  # fmt: skip
ARRAY = (
    SXU.MXU, SXU.MXU, SXU.MXU, SXU.WAIT_MXU, SXU.LOAD_MXU_RESULT, SXU.MXU_ACCUMULATE, SXU.MXU_CLEAR, SXU.MXU_OS,
    SXU.MXU_OS_ACCUMULATE, SXU.LOAD_MXU_MATRIX_ROW, SXU.MXU_EPILOGUE, SXU.LOAD_EPILOGUE_STAT, SXU.SET_REQUANT_CONFIG,
    SXU.DISPATCH_MXU_REQUANT, SXU.MXU_VPU_EPILOGUE,
)  # fmt: skip
SLOW_OPS = {VPU.EXP2, VPU.LOG2, VPU.SIN, VPU.COS}


def instruction(rng: random.Random, size: int) -> list[int]:
    """A legal instruction with legal operands; whether it may run where it stands is another matter."""
    op = rng.choice(PLAIN + ARRAY)

    def below(n: int) -> int:
        return rng.randrange(n)

    fields: dict[str, int] = {"vmem": below(TILES), "dst": below(VREGS), "src": below(VREGS), "src2": below(VREGS)}
    if op in (SXU.VPU, SXU.VPU_BG):
        fields["vpu"] = rng.choice([c for c in VPU if c not in SLOW_OPS or rng.random() < 0.2])
    elif op == SXU.BROADCAST_SCALAR:
        fields["src2"] = below(size * size)
    elif op in (SXU.BROADCAST, SXU.BROADCAST_ROW, SXU.BROADCAST_COL, SXU.ROTATE):
        fields["src2"] = below(size)
    elif op == SXU.SELECT:
        fields["wbase"] = below(VREGS)
    elif op == SXU.VFILL:
        fields["wbase"] = below(256)
    elif SXU.PSUM_WRITE <= op <= SXU.PSUM_CLEAR or op == SXU.PSUM_ACCUMULATE_ROW:
        fields["vmem"] = below(BUCKETS)
        fields["src" if op == SXU.PSUM_READ_ROW else "dst"] = below(size if op != SXU.PSUM_READ else VREGS)
    elif op == SXU.LOAD_MXU_MATRIX_ROW:
        fields["src"] = below(size)
    elif op in ARRAY and op != SXU.SET_REQUANT_CONFIG:
        outputs = op in (SXU.MXU_OS, SXU.MXU_OS_ACCUMULATE)
        count = rng.randint(1, size if outputs else 4)
        fields |= {"wbase": below(3), "abase": below(SLOTS - count + 1), "tlen": count}
        if op == SXU.MXU:
            mode = below(3)
            fields["src2"] = mode
            fields |= {"dst": below(BUCKETS), "src": below(size)} if mode else {}
        elif op == SXU.MXU_EPILOGUE:
            fields["vpu"] = below(32)
        elif op == SXU.MXU_VPU_EPILOGUE:
            fields["vpu"] = below(86)
            fields["src2"] = below(2)
        elif op == SXU.DISPATCH_MXU_REQUANT:
            fields["vmem"] = below(SLOTS)
    elif op == SXU.SET_REQUANT_CONFIG:
        fields = {n: below(256) if rng.random() < 0.5 else 0 for n in ("abase", "tlen", "vmem")}
        fields |= {"wbase": below(256), "vpu": rng.randint(1, 31)}
    return word(op, **fields)


def program(rng: random.Random, length: int, size: int) -> list[list[int]]:
    body: list[list[int]] = []
    if rng.random() < 0.8:
        # So that most later reads find something written.
        body = [word(SXU.PSUM_CLEAR_ALL), word(SXU.TRANSPOSE), word(SXU.VPU, vpu=VPU.XOR),
                word(SXU.SET_REQUANT_CONFIG, wbase=3, vpu=4), word(SXU.MXU_EPILOGUE, tlen=1, vpu=4)]  # fmt: skip
        length += len(body)
    depth = 0
    while len(body) < length or depth:
        draw = rng.random()
        if draw < 0.04 and depth < 4 and len(body) < length:
            body.append(word(SXU.LOOP_BEGIN, tlen=rng.randint(1, 3)))
            depth += 1
        elif depth and (draw > 0.9 or len(body) >= length):
            body.append(word(SXU.LOOP_END))
            depth -= 1
        else:
            body.append(instruction(rng, size))
    return [*body, word(SXU.VZERO, dst=VREGS - 1), HALT, HALT]


def items(rng: random.Random, size: int) -> dict[str, dict[int, list[int]]]:
    def value() -> int:
        return rng.choice(SPECIAL) if rng.random() < 0.3 else rng.randint(-(2**31), 2**31 - 1) >> rng.randrange(32)

    return {
        "vmem": {i: [value() for _ in range(size * size)] for i in range(TILES)},
        "wmem": {i: [rng.randint(-128, 127) for _ in range(size * size)] for i in range(3)},
        "amem": {i: [rng.randint(-128, 127) for _ in range(size)] for i in range(SLOTS)},
    }


def flat(tile: Any) -> list[int]:
    return [int(x) for x in np.asarray(tile).reshape(-1)]


def compare(rng: random.Random, size: int, length: int) -> str:
    """Run one program on both; returns how it ended."""
    words, loaded = program(rng, length, size), items(rng, size)
    machine = load().with_(params={"rows": size, "columns": size, "psum_buckets": BUCKETS, "cycle_limit": 4000})
    reference = slow.Core(size, buckets=BUCKETS, limit=4000)
    reference.fill(loaded["vmem"], loaded["wmem"], loaded["amem"])
    first = 2 * (len(words) + TILES + 3 + SLOTS) + 3
    stopped: slow.Stopped | None = None
    halt = 0
    try:
        halt = reference.run(words, first)
    except slow.Stopped as error:
        stopped = error
    try:
        done = execute(machine, image(words, **loaded))
    except Fault as fault:
        rule = F(fault.code or 0).name
        if stopped is None or (rule, fault.index) != (stopped.rule, stopped.pc):
            raise AssertionError(f"the reference says {stopped}") from fault
        return rule
    assert stopped is None, f"only the reference refuses: {stopped}"
    assert done.cycles == halt + 2
    core = done.core
    for i in range(16):
        assert flat(core.v[i]) == flat(reference.v[i]), f"v{i}"
    for name, row, tile in (("VPU", s.R_VPU, reference.vpu), ("XLU", s.R_XLU, reference.xlu)):
        assert flat(core.v[16 + row]) == flat(tile or reference.zero()), name
    for at, tile in reference.vmem.items():
        assert flat(core.vmem[at]) == flat(tile), f"VMEM[{at}]"
    assert flat(core.acc) == flat(reference.acc)
    assert flat(core.matrix) == flat(reference.matrix)
    assert flat(core.results) == (reference.results or [0] * size)
    if reference.cycle >= reference.done:
        for b, rows in enumerate(reference.psum):
            assert [list(map(int, r)) if w else None for r, w in zip(core.psum[b].reshape(size, size),
                    core.psum_written[b])] == rows, f"PSUM[{b}]"  # fmt: skip
        for at, vector in reference.amem.items():
            assert flat(core.amem[at]) == vector, f"AMEM[{at}]"
    return "HALT"


@pytest.mark.parametrize("size", [2, 4, 6])
@pytest.mark.parametrize("length", [6, 14])
def test_random_programs(size: int, length: int) -> None:
    rng = random.Random(size * 100 + length)
    ends = [compare(rng, size, length) for _ in range(60)]
    assert ends.count("HALT") >= 5
    assert len(set(ends)) >= 3


@pytest.mark.slow
def test_many_random_programs() -> None:
    rng = random.Random(99)
    ends = [compare(rng, rng.choice((2, 4, 4, 4, 8)), rng.randint(3, 40)) for _ in range(700)]
    assert {"HALT", "PSUM_HAZARD", "BACKGROUND_READ", "BACKGROUND_WRITE", "NO_STATISTICS", "PSUM_UNWRITTEN", "SHIFT",
            "NO_VPU_RESULT", "NO_XLU_RESULT", "NOTHING_DISPATCHED"} <= set(ends)  # fmt: skip
