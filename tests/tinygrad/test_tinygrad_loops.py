"""Kernels that are no graph: how they are written out, and that the evaluator does what each operation says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, KernelInfo, UOp

import kohakutpu.tinygrad as kt
from kohakuaccel.diagnostics import Refusal, Unsupported
from kohakuaccel.frontends.tinygrad import linear, loops

D = "KTPU"


def launch(nodes: list[list[Any]], *buffers: np.ndarray, values: tuple[int, ...] = (), grid: tuple[int, ...] = (1,)):
    raw = {n: b.reshape(-1).view(np.uint8) for n, b in enumerate(buffers)}
    loops.run(loops.decode(json.dumps(nodes)), raw, values, grid)


def summed(out: UOp, a: UOp) -> UOp:
    i = UOp.range(a.shape[0], 0, axis_type=AxisType.REDUCE)
    out = out[0].set(0.0)
    out = out[0].set(out.after(i)[0] + a[i], end=i)
    return out.sink(arg=KernelInfo(name="summed", opts_to_apply=()))


def row_sums(out: UOp, a: UOp) -> UOp:
    g = UOp.range(a.shape[0], 0, dtype=dtypes.int)
    kept = UOp.placeholder((1,), out.dtype, 0, addrspace=AddrSpace.REG)
    kept = kept.after(g)[0].set(0)
    r = UOp.range(a.shape[1], 1, AxisType.REDUCE)
    kept = kept[0].set(kept.after(r)[0] + a[g, :][r], end=r)
    return out[g].set(kept[0], end=g).sink(arg=KernelInfo(name="row_sums", opts_to_apply=()))


def test_a_kernel_with_stores_that_follow_one_another() -> None:
    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    kt.reset()
    flat = Tensor(x.reshape(-1), device=D)
    assert abs(Tensor.custom_kernel(Tensor.empty(1, device=D), flat, fxn=summed)[0].item() - x.sum()) < 1e-5
    rows = Tensor.custom_kernel(Tensor.empty(4, device=D), Tensor(x, device=D), fxn=row_sums)[0].numpy()
    np.testing.assert_allclose(rows, x.sum(1), rtol=1e-5)
    assert kt.report().reasons["a kernel that is no graph, interpreted loop by loop"] == 2


def test_a_loop_without_a_count() -> None:
    """Each place of the grid halves its number until it is odd."""
    x = np.array([12, 7, 40, 6], np.int32)
    launch(
        [
            ["parameter", "S32", [], 0],
            ["place", "S32", [], "gidx0"],
            ["index", "S32", [0, 1], None],
            ["number", "S64", [], 1],
            ["cast", "S32", [3], None],
            ["again", "", [], None],
            ["load", "S32", [2], 1],
            ["compute", "S32", [6, 4], "and"],
            ["compute", "BOOL", [7, 4], "less"],
            ["if", "", [8], None],
            ["compute", "S32", [6, 4], "shr"],
            ["store", "", [2, 10], None],
            ["endif", "", [], None],
            ["load", "S32", [2], 1],
            ["compute", "S32", [13, 4], "and"],
            ["compute", "BOOL", [14, 4], "less"],
            ["end", "", [5, 15], None],
        ],
        x,
        grid=(4,),
    )
    assert list(x) == [3, 7, 5, 3]


def test_registers_variables_gates_and_lanes() -> None:
    out, x = np.zeros(6, np.float32), np.arange(4, dtype=np.float32)
    nodes: list[list[Any]] = [
        ["parameter", "FP32", [], 0],
        ["parameter", "FP32", [], 1],
        ["variable", "S32", [], None],
        ["place", "S32", [], "gidx0"],
        ["place", "S32", [], "gidx1"],
        ["compute", "S32", [4, 2], "mul"],
        ["compute", "S32", [3, 5], "add"],  # gidx0 + gidx1 * n
        ["registers", "FP32", [], 2],
        ["number", "FP64", [], (0.5).hex()],
        ["cast", "FP32", [8], None],
        ["number", "S64", [], 1],
        ["cast", "S32", [10], None],
        ["index", "FP32", [7, 11], None],
        ["store", "", [12, 9], None],
        ["number", "S64", [], 4],
        ["cast", "S32", [14], None],
        ["compute", "BOOL", [6, 15], "less"],
        ["index", "FP32", [1, 6], None],
        ["load", "FP32", [17, 9, 16], 1],  # x[i] where i < 4, else a half
        ["load", "FP32", [12], 1],
        ["compute", "FP32", [18, 19], "add"],
        ["index", "FP32", [0, 6], None],
        ["store", "", [21, 20], None],
    ]
    launch(nodes, out, x, values=(3,), grid=(3, 2))
    assert list(out) == [0.5, 1.5, 2.5, 3.5, 1.0, 1.0]
    pair: list[list[Any]] = [
        ["parameter", "FP32", [], 0],
        ["number", "S64", [], 0],
        ["cast", "S32", [1], None],
        ["index", "FP32", [0, 2], None],
        ["load", "FP32", [3], 2],
        ["compute", "FP32", [4, 4], "mul"],
        ["number", "S64", [], 1],
        ["lane", "FP32", [5, 6], None],
        ["stack", "FP32", [7, 7], None],
        ["store", "", [3, 8], None],
    ]
    launch(pair, x[2:])
    assert list(x) == [0, 1, 9, 9]


def test_counted_loops_of_different_lengths() -> None:
    """Place n adds 1 to its element n times."""
    out = np.zeros(5, np.int64)
    nodes: list[list[Any]] = [
        ["parameter", "S64", [], 0],
        ["place", "S32", [], "gidx0"],
        ["index", "S64", [0, 1], None],
        ["number", "S64", [], 1],
        ["cast", "S64", [3], None],
        ["range", "S32", [1], None],
        ["load", "S64", [2], 1],
        ["compute", "S64", [6, 4], "add"],
        ["store", "", [2, 7], None],
        ["end", "", [5], None],
    ]
    launch(nodes, out, grid=(5,))
    assert list(out) == [0, 1, 2, 3, 4]


def test_bits_and_views_of_memory() -> None:
    x = np.array([1.0, -2.0], np.float32)
    nodes: list[list[Any]] = [
        ["parameter", "FP32", [], 0],
        ["view", "U32", [0], None],
        ["number", "S64", [], 1],
        ["index", "U32", [1, 2], None],
        ["load", "U32", [3], 1],
        ["bits", "FP32", [4], None],
        ["compute", "FP32", [5, 5], "add"],
        ["bits", "U32", [6], None],
        ["store", "", [3, 7], None],
    ]
    launch(nodes, x)
    assert list(x) == [1, -4]


def test_what_leaves_its_buffer_is_refused() -> None:
    nodes = [["parameter", "FP32", [], 0], ["number", "S64", [], 4], ["index", "FP32", [0, 1], None]]
    with pytest.raises(Refusal, match=r"stays inside its buffers.*4.*0\.\.3"):
        launch([*nodes, ["load", "FP32", [2], 1]], np.zeros(4, np.float32))


def test_a_loop_that_never_ends_is_refused() -> None:
    with pytest.raises(Refusal, match="a loop without a count has a condition"):
        launch([["again", "", [], None], ["end", "", [0], None]])


def test_operations_that_are_not_known_are_refused() -> None:
    with pytest.raises(Unsupported, match=r"operations that are known.*CUSTOM"):
        linear.encode([UOp(Ops.CUSTOM, dtypes.int, (), "code")])
