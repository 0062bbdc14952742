"""Products of int8 on the array: cycles of the datasheet's list, values, and what is beyond int8 (datasheet 13, 14)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel import graph
from kohakuaccel.graph import BOOL, WORDS
from kohakuaccel.graph import build as g
from kohakuaccel.graph.native import Native
from kohakuaccel.machine import Machine
from kohakuaccel.numerics import INT32
from tinytpu import machines
from tinytpu.lower import compile_graph
from tinytpu.lower.steps import Multiplied
from tinytpu_rig.lowering import check, run

Ints = NDArray[np.int32]


def int8(seed: int, *shape: int) -> Ints:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int32)


def gemm(m: int, k: int, n: int, after: str = "") -> str:
    """p = a @ w, or what `after` makes of it and a bias b[n]."""
    text = f"input a: S32[{m},{k}]\ninput w: S32[{k},{n}]\n"
    text += f"p: S32[i<{m},j<{n}] = sum[q<{k}] a[i, q] * w[q, j]\n"
    if not after:
        return text + "output p"
    return text.replace("p:", f"input b: S32[{n}]\np:", 1) + f"o: S32[i<{m},j<{n}] = {after}\noutput o"


RELU, BIAS = "max(p[i, j], cast(0, S32))", "max(p[i, j] + b[j], cast(0, S32))"


@pytest.mark.parametrize(
    ("shape", "after", "cycles", "way"),
    [
        ((1, 4, 4), "", 24, "1 tiles of 1 rows, output"), ((1, 8, 4), "", 39, "1 tiles of 1 rows, output"),
        ((1, 4, 4), RELU, 32, "alone"), ((1, 4, 4), "p[i, j] + b[j]", 35, "alone"), ((1, 4, 4), BIAS, 44, "alone"),
        ((2, 4, 4), "", 47, "2 tiles of 1 rows, alone"), ((1, 4, 16), "", 77, "1 tiles of 4 rows, gathered"),
        ((4, 4, 4), "", 77, "weight stationary, 1x1"), ((4, 4, 4), RELU, 82, "weight"), ((4, 4, 4), BIAS, 91, "weight"),
        ((4, 8, 4), "", 113, "output stationary"), ((4, 8, 4), BIAS, 124, "output"), ((4, 16, 4), "", 175, "output"),
        ((4, 16, 4), BIAS, 186, "output"), ((8, 8, 8), "", 352, "output"), ((8, 8, 8), BIAS, 387, "output"),
        ((4, 1, 4), "", 28, "an outer product"), ((4, 1, 4), BIAS, 35, "an outer product"),
        ((7, 1, 6), BIAS, 111, "an outer product"),
    ],
)  # fmt: skip
def test_cycles_of_the_list(shape: tuple[int, int, int], after: str, cycles: int, way: str) -> None:
    """The datasheet's best known counts (section 14) and ours where it has none, exactly; and how."""
    m, k, n = shape
    bias: dict[str, Any] = {"b": int8(3, n) * 100} if "b[" in after else {}
    text = gemm(m, k, n, after)
    text = text if bias else text.replace(f"input b: S32[{n}]\n", "")
    ran = check(text, a=int8(1, m, k), w=int8(2, k, n), **bias)
    plan = compile_graph(graph.parse(text))
    assert way in plan.text()
    assert sum(step.product.cycles for step in plan.steps if isinstance(step, Multiplied)) == ran.counts.cycles
    assert ran.counts.cycles == cycles


@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 7),
        (2, 4, 4),
        (3, 3, 5),
        (5, 7, 6),
        (8, 20, 4),
        (4, 132, 4),
        (16, 16, 16),
        (1, 70, 9),
        (6, 5, 1),
        (3, 70, 5),
    ],
)
def test_any_size(shape: tuple[int, int, int]) -> None:
    """Tails, depths beyond AMEM and WMEM (datasheet 13.3), products beyond 256 words (13.4)."""
    m, k, n = shape
    ran = check(gemm(m, k, n, "p[i, j] - b[j]"), a=int8(4, m, k), w=int8(5, k, n), b=int8(6, n))
    assert ran.notes == ()


@pytest.mark.parametrize(
    "shape", [(8, 1, 16, 8), (3, 1, 4, 4), (4, 3, 8, 5), (5, 2, 70, 9), (2, 1, 3, 1), (40, 1, 4, 6)]
)
def test_a_batch_fills_tiles_with_rows(shape: tuple[int, int, int, int]) -> None:
    """Rows of any matrix of a batch share tiles and programs, with something added in the buckets."""
    b, m, k, n = shape
    text = f"input a: S8[{b},{m},{k}]\ninput w: S8[{b},{k},{n}]\ninput r: S32[{b},{m},{n}]\n"
    text += f"p: S32[b<{b},i<{m},j<{n}] = sum[q<{k}] cast(a[b, i, q], S32) * cast(w[b, q, j], S32)\n"
    text += f"o: S32[b<{b},i<{m},j<{n}] = neg(r[b, i, j] + p[b, i, j])\noutput o"
    ran = check(text, a=int8(1, b, m, k).astype(np.int8), w=int8(2, b, k, n).astype(np.int8), r=int8(3, b, m, n))
    assert k > 16 or ran.counts.programs < b


def test_a_batch_of_distinct_products_and_turned_operands() -> None:
    text = "input a: S32[4,4,4]\ninput w: S32[4,4,4]\no: S32[b<4,i<4,j<4] = sum[k<4] a[b, i, k] * w[b, k, j]\noutput o"
    eyes = (np.eye(4)[None] * np.arange(1, 5)[:, None, None]).astype(np.int32)
    ran = check(text, a=eyes, w=np.ones((4, 4, 4), np.int32))
    assert ran.outputs["o"][:, 0, 0].tolist() == [1, 2, 3, 4]
    turned = "input a: S32[4,4]\ninput w: S32[4,4]\no: S32[j<4,i<4] = sum[k<4] a[i, k] * w[j, k]\noutput o"
    check(turned, a=int8(1, 4, 4), w=int8(2, 4, 4))


def test_narrow_formats_are_certain_and_truth_values_multiply() -> None:
    text = "input a: BOOL[1,4]\ninput w: S8[4,4]\n"
    text += "o: S32[i<1,j<4] = sum[k<4] cast(a[i, k], S32) * cast(w[k, j], S32)\noutput o"
    plan, ran = run(text, a=np.array([[True, False, True, False]]), w=np.ones((4, 4), np.int8))
    (step,) = plan.steps
    assert isinstance(step, Multiplied)
    assert step.certain
    assert ran.outputs["o"].tolist() == [[2, 2, 2, 2]]


@pytest.mark.parametrize(("operand", "role"), [("a", "activation"), ("w", "weight")])
def test_operands_beyond_int8_go_to_the_vector_unit_or_are_refused(operand: str, role: str) -> None:
    inputs: dict[str, Any] = {"a": int8(1, 5, 6), "w": int8(2, 6, 7)}
    inputs[operand][1, 2] = 1 << 30
    ran = check(gemm(5, 6, 7), **inputs)  # the sum wraps as the host's does
    assert len(ran.notes) == 1
    assert f"{role} of the array is an int8; got 1073741824" in ran.notes[0]
    assert "operands beyond int8: on the vector unit" in compile_graph(graph.parse(gemm(5, 6, 7))).text()
    demanded = compile_graph(graph.parse(gemm(5, 6, 7)), mxu="demanded")
    with pytest.raises(
        ValueError, match=rf"an? {role} of the array is an int8; got 1073741824; the limit is -128..127"
    ):
        demanded.run(inputs)


OPERANDS = "input a: {0}[8,16]\ninput w: {0}[16,8]\no: S32[i<8,j<8] = sum[k<16] {1}\noutput o"


@pytest.mark.parametrize("dtype", ["S8", "S32"])
@pytest.mark.parametrize(
    ("body", "sure"),
    [
        ("max(A, cast(0, S32)) * W", True), ("(A + cast(1, S32)) * W", False), ("A * neg(W)", False),
        ("max(A, cast(0, S32)) * min(W, cast(3, S32))", True), ("cast(A < cast(0, S32), S32) * W", True),
    ],
)  # fmt: skip
def test_arithmetic_in_operands_is_done_before_the_array(dtype: str, body: str, sure: bool) -> None:
    a, w = ("cast(a[i, k], S32)", "cast(w[k, j], S32)") if dtype == "S8" else ("a[i, k]", "w[k, j]")
    text = OPERANDS.format(dtype, body.replace("A", a).replace("W", w))
    kind = np.int8 if dtype == "S8" else np.int32
    inputs: dict[str, Any] = {
        "a": np.minimum(int8(1, 8, 16), 126).astype(kind),
        "w": np.maximum(int8(2, 16, 8), -127).astype(kind),
    }
    plan, ran = run(text, **inputs)
    np.testing.assert_array_equal(ran.outputs["o"], Native(graph.parse(text))(inputs)["o"])
    (step,) = (step for step in plan.steps if isinstance(step, Multiplied))
    assert step.certain == (sure and dtype == "S8")
    assert ran.notes == ()
    without = compile_graph(graph.parse(text), mxu="never").run(inputs)
    np.testing.assert_array_equal(without.outputs["o"], ran.outputs["o"])
    assert ran.counts.cycles < without.counts.cycles
    if not step.certain:  # what is beyond int8 then goes to the vector unit, from the operands as they are given
        inputs["a"][0, 0] = np.iinfo(kind).max
        inputs["w"][0, 0] = np.iinfo(kind).min
        check(text, **inputs)


def test_products_of_operands_stay_on_the_vector_unit() -> None:
    text = OPERANDS.format("S8", "cast(a[i, k], S32) * cast(a[i, k], S32) * cast(w[k, j], S32)")
    assert not any(isinstance(step, Multiplied) for step in compile_graph(graph.parse(text)).steps)


def test_known_numbers_are_certain() -> None:
    """Of a constant the values count, of a statement its span, not the format."""
    b = g.Builder()
    x = b.input("x", (4, 8), BOOL)
    made = g.matmul(g.cast(x, WORDS["S32"]), b.constant(int8(1, 8, 4), WORDS["S32"]))
    (*_, step) = compile_graph(b.graph(y=made)).steps
    assert isinstance(step, Multiplied)
    assert step.certain


def test_a_convolution_is_a_product() -> None:
    """Windows that overlap, padding, strides and groups are index maps."""
    b = g.Builder()
    x, w = b.input("x", (2, 4, 7, 6), INT32), b.input("w", (6, 2, 3, 3), INT32)
    program = b.graph(y=g.conv2d(x, w, padding=1, stride=2, groups=2))
    inputs = {"x": int8(1, 2, 4, 7, 6), "w": int8(2, 6, 2, 3, 3)}
    plan = compile_graph(program, mxu="demanded")
    assert any(isinstance(step, Multiplied) for step in plan.steps)
    np.testing.assert_array_equal(plan.run(inputs).outputs["y"], Native(program)(inputs)["y"])


def test_reals_and_never() -> None:
    text = gemm(5, 6, 7).replace("S32", "FP32")
    a, w = (np.random.default_rng(n).normal(size=s).astype(np.float32) for n, s in ((1, (5, 6)), (2, (6, 7))))
    check(text, a=a, w=w, tolerance=1e-5)
    plan = compile_graph(graph.parse(gemm(5, 6, 7)), mxu="never")
    assert not any(isinstance(step, Multiplied) for step in plan.steps)


SMALL = {"amem_vectors": 4, "wmem_tiles": 2, "psum_buckets": 1, "vregs": 2, "vmem_tiles": 4, "max_outputs": 2}


@pytest.mark.parametrize("machine", [machines.load("tinytpu_8x8"), machines.load().with_(name="small", params=SMALL)])
def test_other_machines(machine: Machine) -> None:
    """Another array, and one whose memories hold hardly anything."""
    for m, k, n in ((8, 8, 8), (3, 5, 9), (1, 8, 8), (20, 41, 17)):
        a, w = int8(1, m, k), int8(2, k, n)
        plan = compile_graph(graph.parse(gemm(m, k, n)), machine, mxu="demanded")
        assert plan.run({"a": a, "w": w}).outputs["p"].tolist() == (a @ w).tolist()


@pytest.mark.slow
def test_random_products() -> None:
    rng = np.random.default_rng(8)
    for _ in range(40):
        m, k, n = (int(x) for x in rng.integers(1, 24, 3))
        after = ["", "max(p[i, j] + b[j], cast(0, S32))", "shr(p[i, j] * b[j], cast(4, S32))"][int(rng.integers(3))]
        text = gemm(m, k, n, after)
        inputs = {"a": int8(1, m, k), "w": int8(2, k, n), "b": int8(3, n)}
        plan, ran = run(text, **{name: x for name, x in inputs.items() if f"input {name}:" in text})
        want = Native(graph.parse(text))({v.name: inputs[v.name] for v in plan.graph.inputs})
        for name, values in want.items():
            np.testing.assert_array_equal(ran.outputs[name], values)
