"""What follows a dispatch, done by it: op 46 on a row of sums, bias and relu of op 42 (datasheet 3, 7)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel import graph
from tinytpu.isa.codes import SXU
from tinytpu.lower import Plan, compile_graph
from tinytpu.lower.array.product import Product
from tinytpu.lower.steps import Multiplied
from tinytpu_rig.lowering import check

ROW = """
input a: S8[1,4]
input w: S8[4,4]
input b: S32[4]
p: S32[i<1,j<4] = sum[k<4] cast(a[i, k], S32) * cast(w[k, j], S32)
o: S32[i<1,j<4] = {}
output o
"""
OUTER = """
input a: S8[6,1]
input w: S8[1,7]
input b: S32[{size}]
p: S32[i<6,j<7] = sum[k<1] cast(a[i, k], S32) * cast(w[k, j], S32)
o: S32[i<6,j<7] = {after}
output o
"""


def opcodes(plan: Plan) -> list[SXU]:
    """Of the first program of a plan that is one product."""
    (step,) = plan.steps
    assert isinstance(step, Multiplied)
    assert isinstance(step.product, Product)
    return [SXU(int(row[0])) for row in next(iter(step.product.units.values()))[0].program.rows]


def int8(seed: int, *shape: int) -> NDArray[np.int8]:
    return np.random.default_rng(seed).integers(-128, 128, shape, np.int8)


@pytest.mark.parametrize(
    ("after", "one"),
    [
        ("p[i, j] + b[j]", True), ("b[j] + p[i, j]", True), ("p[i, j] - b[j]", True), ("p[i, j] * b[j]", True),
        ("max(p[i, j], b[j])", True), ("min(b[j], p[i, j])", True), ("max(p[i, j], cast(0, S32))", True),
        ("b[j] - p[i, j]", False), ("p[i, j] * p[i, j]", False), ("abs(p[i, j])", False),
        ("p[i, j] + b[j] * b[j]", False),
        ("max(p[i, j] + b[j], cast(0, S32))", False), ("xor(p[i, j], b[j])", False),
    ],
)  # fmt: skip
def test_an_operation_behind_a_row_is_the_dispatchs(after: str, one: bool) -> None:
    """one: whether nothing is left of it but the dispatch, its operand and the output."""
    text = ROW.format(after)
    given: dict[str, Any] = {"a": int8(1, 1, 4), "w": int8(2, 4, 4), "b": int8(3, 4).astype(np.int32)}
    if "b[" not in after:
        text = text.replace("input b: S32[4]\n", "")
        del given["b"]
    check(text, **given)
    found = opcodes(compile_graph(graph.parse(text)))
    assert SXU.MXU_VPU_EPILOGUE in found
    assert (SXU.VPU not in found and SXU.STORE not in found) == one


@pytest.mark.parametrize(
    ("after", "size", "one"),
    [
        ("max(p[i, j] + b[j], cast(0, S32))", "7", True), ("p[i, j] + b[j]", "7", True),
        ("max(p[i, j], cast(0, S32))", "7", True), ("max(p[i, j] + b[i], cast(0, S32))", "6", False),
        ("p[i, j] + b[i, j]", "6,7", False), ("max(p[i, j], cast(0, S32)) + b[j]", "7", False),
    ],
)  # fmt: skip
def test_a_bias_of_columns_and_relu_are_the_outer_products(after: str, size: str, one: bool) -> None:
    text = OUTER.format(size=size, after=after)
    given: dict[str, Any] = {"a": int8(1, 6, 1), "w": int8(2, 1, 7)}
    if "b[" in after:
        given["b"] = int8(3, *(int(x) for x in size.split(","))).astype(np.int32)
    else:
        text = text.replace("input b: S32[7]\n", "")
    check(text, **given)
    found = opcodes(compile_graph(graph.parse(text)))
    assert SXU.MXU_EPILOGUE in found
    assert (SXU.VPU not in found and SXU.STORE not in found) == one


def test_a_sum_that_something_is_added_to_begins_in_its_bucket() -> None:
    text = ROW.replace("S8[1,4]", "S8[4,8]").replace("S8[4,4]", "S8[8,4]").replace("i<1", "i<4").replace("k<4", "k<8")
    text = text.format("max(p[i, j] + b[j], cast(0, S32))")
    check(text, a=int8(1, 4, 8), w=int8(2, 8, 4), b=int8(3, 4).astype(np.int32))
    found = opcodes(compile_graph(graph.parse(text)))
    assert found.count(SXU.PSUM_ACCUMULATE_ROW) == 4
    assert found.count(SXU.VPU) == 1  # relu


@pytest.mark.parametrize(
    "after", ["p[i, j]", "p[i, j] - b[j]", "p[i, j] * cast(3, S32) + b[j] * p[i, j]", "max(p[i, j] + b[j], p[i, j])"]
)
def test_wherever_a_product_is_read_deep_sums_are_right(after: str) -> None:
    """K-tiles of several programs, and sums that are used more than once."""
    text = ROW.replace("S8[1,4]", "S8[9,300]").replace("S8[4,4]", "S8[300,4]").replace("i<1", "i<9")
    text = text.replace("k<4", "k<300").format(after)
    given: dict[str, Any] = {"a": int8(1, 9, 300), "w": int8(2, 300, 4), "b": int8(3, 4).astype(np.int32)}
    if "b[" not in after:
        text = text.replace("input b: S32[4]\n", "")
        del given["b"]
    ran = check(text, **given)
    assert ran.counts.carried > 0
