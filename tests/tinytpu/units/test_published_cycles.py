"""Cycle totals the datasheet publishes or computes, with the values of each run (datasheet 10.7, 10, 14)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinytpu.isa import SXU, VPU
from tinytpu_rig.build import HALT, run, vpu, word

Words = list[list[int]]
RNG = np.random.default_rng(7)


def tiles(n: int) -> dict[int, list[int]]:
    return {i: [int(x) for x in RNG.integers(-1000, 1000, 16)] for i in range(n)}


def ints(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape)


def flat(a: np.ndarray) -> dict[int, list[int]]:
    return {i: [int(x) for x in row.reshape(-1)] for i, row in enumerate(a)}


def joined(parts: list[Words]) -> Words:
    return [w for part in parts for w in part]


def load(vmem: int, dst: int) -> list[int]:
    return word(SXU.LOAD, vmem=vmem, dst=dst)


def store(vmem: int, src: int) -> list[int]:
    return word(SXU.STORE, vmem=vmem, src=src)


def mxu(wbase: int, abase: int, **more: int) -> list[int]:
    return word(SXU.MXU, wbase=wbase, abase=abase, tlen=1, **more)


WAIT, RESULT = word(SXU.WAIT_MXU), word(SXU.LOAD_MXU_RESULT, dst=0)
Case = tuple[Words, dict[str, Any], int, list[np.ndarray]]


def add_16() -> Case:
    x = tiles(2)
    program = [load(0, 0), load(1, 1), vpu(VPU.ADD, 2, 0, 1), store(2, 2), HALT]
    return program, {"vmem": x, "vmem_outputs": [2]}, 33, [np.add(x[0], x[1])]


def add_256() -> Case:
    x = tiles(32)
    body = [[load(i, 0), load(16 + i, 1), vpu(VPU.ADD, 2, 0, 1), store(i, 2)] for i in range(16)]
    want = [np.add(x[i], x[16 + i]) for i in range(16)]
    return [*joined(body), HALT], {"vmem": x, "vmem_outputs": range(16)}, 423, want


def relu_64() -> Case:
    x = tiles(4)
    body = [[load(i, 0), vpu(VPU.RELU, 1, 0), store(i, 1)] for i in range(4)]
    return [*joined(body), HALT], {"vmem": x, "vmem_outputs": range(4)}, 83, [np.maximum(x[i], 0) for i in range(4)]


def reshape_64() -> Case:
    x = tiles(4)
    body = [[load(i, 0), store(4 + i, 0)] for i in range(4)]
    return [*joined(body), HALT], {"vmem": x, "vmem_outputs": range(4, 8)}, 63, [np.array(x[i]) for i in range(4)]


def total(n: int, cycles: int) -> Case:
    x = tiles(n)
    body = [load(0, 0), vpu(VPU.SUM_REDUCE_TILE, 1, 0)]
    for i in range(1, n):
        body += [load(i, 0), vpu(VPU.SUM_REDUCE_TILE, 2, 0), vpu(VPU.ADD, 1, 1, 2)]
    want = [np.full(16, sum(sum(t) for t in x.values()))]
    return [*body, store(n, 1), HALT], {"vmem": x, "vmem_outputs": [n]}, cycles, want


def sums_8x8(op: VPU, axis: int) -> Case:
    x = tiles(4)
    body = [[load(2 * h, 0), vpu(op, 1, 0), load(2 * h + 1, 0), vpu(op, 2, 0), vpu(VPU.ADD, 1, 1, 2), store(4 + h, 1)]
            for h in range(2)]  # fmt: skip
    want: list[np.ndarray] = []
    for h in range(2):
        both = np.array(x[2 * h]).reshape(4, 4) + np.array(x[2 * h + 1]).reshape(4, 4)
        want.append(np.broadcast_to(both.sum(axis, keepdims=True), (4, 4)))
    return [*joined(body), HALT], {"vmem": x, "vmem_outputs": [4, 5]}, 79, want


def gemm(rows: int, cycles: int) -> Case:
    a, w = ints(rows, 4), ints(1, 4, 4)
    body = [[mxu(0, m), WAIT, RESULT, store(m, 0)] for m in range(rows)]
    items: dict[str, Any] = {"wmem": flat(w), "amem": flat(a), "vmem_outputs": range(rows)}
    return [*joined(body), HALT], items, cycles, [np.vstack([a[m] @ w[0], np.zeros((3, 4))]) for m in range(rows)]


def gemm_4x8x4() -> Case:
    a, w = ints(8, 4), ints(2, 4, 4)
    body = [[mxu(0, 2 * m), WAIT, RESULT, mxu(1, 2 * m + 1), WAIT, word(SXU.LOAD_MXU_RESULT, dst=1),
             vpu(VPU.ADD, 2, 0, 1), store(m, 2)] for m in range(4)]  # fmt: skip
    items: dict[str, Any] = {"wmem": flat(w), "amem": flat(a), "vmem_outputs": range(4)}
    want = [np.vstack([a[2 * m] @ w[0] + a[2 * m + 1] @ w[1], np.zeros((3, 4))]) for m in range(4)]
    return [*joined(body), HALT], items, 227, want


PUBLISHED = {
    "add_16": add_16(), "add_256": add_256(), "relu_64": relu_64(), "reshape_64": reshape_64(),
    "sum_16": total(1, 26), "sum_256": total(16, 281), "rowsum_8x8": sums_8x8(VPU.SUM_REDUCE, 1),
    "colsum_8x8": sums_8x8(VPU.SUM_REDUCE_COL, 0), "gemm_1x4x4": gemm(1, 37), "gemm_4x4x4": gemm(4, 121),
    "gemm_4x8x4": gemm_4x8x4(),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_total(name: str) -> None:
    program, items, cycles, want = PUBLISHED[name]
    done = run(program, **items)
    assert done.cycles == cycles
    for got, expected in zip(done.vmem, want, strict=True):
        assert np.array_equal(got.reshape(-1), expected.reshape(-1))
    assert done.load_cycles + done.execute_cycles + done.output_cycles == cycles


def test_geomean_of_elements_per_cycle() -> None:
    elements = {"add_16": 16, "add_256": 256, "relu_64": 64, "reshape_64": 64, "sum_16": 16, "sum_256": 256,
                "rowsum_8x8": 64, "colsum_8x8": 64, "gemm_1x4x4": 16, "gemm_4x4x4": 64, "gemm_4x8x4": 128}  # fmt: skip
    rates = [elements[n] / run(p, **items).cycles for n, (p, items, _, _) in PUBLISHED.items()]
    assert round(float(np.exp(np.mean(np.log(rates)))), 3) == 0.663


@pytest.mark.parametrize(
    ("code", "cycles"), [(VPU.EXP2, 139), (VPU.LOG2, 123), (VPU.SIN, 203), (VPU.COS, 107), (VPU.FSUM_REDUCE_TILE, 42)]
)
@pytest.mark.parametrize("background", [False, True])
def test_serial_operations(code: VPU, cycles: int, background: bool) -> None:
    program = [load(0, 0), vpu(code, 1, 0, background=background), store(1, 1), HALT]
    assert run(program, vmem=tiles(1), vmem_outputs=[1]).cycles == cycles - background


def test_accumulating_rows_through_psum() -> None:
    a, w = ints(8, 4), ints(2, 4, 4)
    body: Words = []
    for m in range(4):
        body += [word(SXU.PSUM_CLEAR, vmem=0), mxu(0, 2 * m, src2=2), WAIT, mxu(1, 2 * m + 1, src2=2), WAIT,
                 word(SXU.PSUM_READ_ROW, vmem=0, dst=0), store(m, 0)]  # fmt: skip
    done = run([*body, HALT], wmem=flat(w), amem=flat(a), vmem_outputs=range(4))
    assert done.cycles == 207
    for m in range(4):
        assert np.array_equal(done.vmem[m][0], a[2 * m] @ w[0] + a[2 * m + 1] @ w[1])


def test_bias_of_one_row() -> None:
    program = [load(0, 1), mxu(0, 0), RESULT, vpu(VPU.ADD, 0, 0, 1), store(1, 0), HALT]
    items: dict[str, Any] = {"wmem": flat(ints(1, 4, 4)), "amem": flat(ints(1, 4)), "vmem_outputs": [1]}
    assert run(program, vmem=tiles(1), **items).cycles == 45


def test_loop_of_eight() -> None:
    adds = [vpu(VPU.ADD, 0, 0, 0)] * 3
    program = [load(0, 0), word(SXU.LOOP_BEGIN, tlen=8), *adds, word(SXU.LOOP_END), store(1, 0), HALT]
    done = run(program, vmem={0: [1] * 16}, vmem_outputs=[1])
    assert done.cycles == 121
    assert (done.vmem[0] == 2**24).all()


def rows_into_psum(last: bool = True) -> Words:
    return [mxu(0, m, src2=1, src=m) for m in range(4 if last else 3)]


def test_rows_into_one_bucket() -> None:
    a, w = ints(4, 4), ints(1, 4, 4)
    items: dict[str, Any] = {"wmem": flat(w), "amem": flat(a), "vmem_outputs": [0]}
    program = [*rows_into_psum(), WAIT, word(SXU.PSUM_READ, vmem=0), store(0, 0), HALT]
    done = run(program, **items)
    assert done.cycles == 77
    assert np.array_equal(done.vmem[0], a @ w[0])
    rest = [word(SXU.PSUM_CLEAR), *rows_into_psum(False), mxu(0, 3), word(SXU.PSUM_READ), store(0, 0), HALT]
    done = run(rest, mxu_result=True, **items)
    assert done.cycles == 74
    assert np.array_equal(done.vmem[0][:3], a[:3] @ w[0])
    assert done.mxu_result is not None
    assert np.array_equal(done.mxu_result, a[3] @ w[0])


def test_row_as_the_result_line() -> None:
    a, w = ints(1, 4), ints(1, 4, 4)
    done = run([mxu(0, 0), HALT], wmem=flat(w), amem=flat(a), mxu_result=True)
    assert done.cycles == 24
    assert done.mxu_result is not None
    assert np.array_equal(done.mxu_result, a[0] @ w[0])
    to_vmem = word(SXU.MXU_VPU_EPILOGUE, tlen=1, vpu=VPU.COPY, src2=1, vmem=3)
    assert run([to_vmem, HALT], wmem=flat(w), amem=flat(a), vmem_outputs=[3]).cycles == 28


def test_output_stationary_rows() -> None:
    a, w = ints(4, 4), ints(1, 4, 4)
    rows = [[word(SXU.LOAD_MXU_MATRIX_ROW, src=m, dst=m), store(m, m)] for m in range(4)]
    done = run([word(SXU.MXU_OS, tlen=4), *joined(rows), HALT], wmem=flat(w), amem=flat(a.T), vmem_outputs=range(4))
    assert done.cycles == 82
    assert np.array_equal(np.array([t[0] for t in done.vmem]), a @ w[0])


@pytest.mark.parametrize(("tiles_k", "cycles"), [(2, 113), (4, 175)])
def test_output_stationary_deep(tiles_k: int, cycles: int) -> None:
    a, w = ints(4, 4 * tiles_k), ints(tiles_k, 4, 4)
    ops = [word(SXU.MXU_OS_ACCUMULATE if k else SXU.MXU_OS, wbase=k, abase=4 * k, tlen=4) for k in range(tiles_k)]
    rows = [[word(SXU.LOAD_MXU_MATRIX_ROW, src=m, dst=m), store(m, m)] for m in range(4)]
    done = run([*ops, *joined(rows), HALT], wmem=flat(w), amem=flat(a.T), vmem_outputs=range(4))
    assert done.cycles == cycles
    assert np.array_equal(np.array([t[0] for t in done.vmem]), a @ w.reshape(-1, 4))


def test_background_exp2_behind_a_product() -> None:
    items: dict[str, Any] = {"wmem": flat(ints(1, 4, 4)), "amem": flat(ints(4, 4)), "vmem_outputs": [0, 1]}
    items["vmem"] = tiles(1)
    product = [*rows_into_psum(), WAIT, word(SXU.PSUM_READ, dst=2), store(1, 2)]
    assert run([load(0, 0), vpu(VPU.EXP2, 1, 0), store(0, 1), *product, HALT], **items).cycles == 209
    behind = [load(0, 0), vpu(VPU.EXP2, 1, 0, background=True), *rows_into_psum(), WAIT, word(SXU.PSUM_READ, dst=2)]
    assert run([*behind, store(0, 1), store(1, 2), HALT], **items).cycles == 167


def test_read_cycle() -> None:
    program = [word(SXU.READ_CYCLE, dst=0), store(0, 0), HALT]
    assert run(program, vmem_outputs=[0]).vmem[0][0, 0] == 2 * 4 + 4
    adds = [vpu(VPU.ADD, 1, 1, 1, background=True)] * 4
    timed = [word(SXU.READ_CYCLE, dst=0), *adds, word(SXU.READ_CYCLE, dst=2), store(0, 0), store(1, 2), HALT]
    first, second = run(timed, vmem_outputs=[0, 1]).vmem
    assert second[0, 0] - first[0, 0] == 14
