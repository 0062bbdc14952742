"""The vector unit's own functions, and their work in the background of the array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel import graph
from kohakuaccel.diagnostics import Refusal
from tinytpu import machines
from tinytpu.isa.codes import SXU, VPU, Column
from tinytpu.lower import Plan, compile_graph
from tinytpu.lower.listing import listed
from tinytpu.lower.numbers import serial
from tinytpu.units.core import Image, execute

Array = NDArray[Any]
PRODUCT = """
input a: S8[4,4]
input b: S8[4,4]
input x: FP32[{n}]
p: S32[i<4,j<4] = sum[k<4] cast(a[i, k], S32) * cast(b[k, j], S32)
o: FP32[i<{n}] = {body}
output o
output p
"""


def unit(text: str, **inputs: Array) -> tuple[Plan, dict[str, Array], int]:
    plan = compile_graph(graph.parse(text), functions="unit")
    ran = plan.run(inputs)
    return plan, ran.outputs, ran.counts.cycles


def opcode(code: VPU, values: Array) -> Array:
    """What the machine's own instruction gives, of 16 numbers."""
    rows = np.zeros((4, 9), np.int64)
    rows[:, Column.OP] = [SXU.LOAD, SXU.VPU, SXU.STORE, SXU.HALT]
    rows[1, Column.VPU] = code
    image = Image(rows, vmem={0: values.view(np.int32)}, vmem_outputs=[0])
    return execute(machines.load(), image).vmem[0].reshape(-1).view(np.float32)


def test_exp2_in_the_background_of_a_product() -> None:
    """The datasheet's 167 cycles (14); one after the other they take 209."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (4, 4)).astype(np.int8) for _ in range(2))
    x = rng.normal(size=16).astype(np.float32)
    plan, out, cycles = unit(PRODUCT.format(n=16, body="exp2(x[i])"), a=a, b=b, x=x)
    assert cycles <= 167
    assert (out["p"] == a.astype(np.int32) @ b.astype(np.int32)).all()
    assert out["o"].tobytes() == opcode(VPU.EXP2, x).tobytes()
    (program,) = (one.program for step in plan.steps for one in listed(step))
    assert SXU.VPU_BG in program.rows[:, Column.OP]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "error"),
    [("exp2(x[i])", 3.1e-2), ("log2(abs(x[i]) + 0.5) + exp2(x[i] * 3.0)", 3.1e-2), ("sin(x[i])", 7.5e-4)],
)
def test_beside_products_of_several_tiles(body: str, error: float) -> None:
    """Also where the argument is computed, which is clamped (exp2) or left to a polynomial (log2)."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, (4, 4)).astype(np.int8) for _ in range(2))
    x = rng.normal(size=40).astype(np.float32)
    text = PRODUCT.format(n=40, body=body)
    _, out, cycles = unit(text, a=a, b=b, x=x)
    assert (out["p"] == a.astype(np.int32) @ b.astype(np.int32)).all()
    x = x.astype(np.float64)
    want = {"e": np.exp2(x), "l": np.log2(abs(x) + 0.5) + np.exp2(3 * x), "s": np.sin(x)}[body[0]]
    np.testing.assert_allclose(out["o"], want, rtol=error, atol=0 if body[0] == "e" else error)
    apart = compile_graph(graph.parse(text), functions="unit", join=False).run({"a": a, "b": b, "x": x})
    assert cycles < apart.counts.cycles


def test_clamps_keep_infinities_and_nan() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 2.0**32, 3e9, 0], np.float32)
    _, out, _ = unit("input x: FP32[8]\no: FP32[i<8] = exp2(x[i] + 0.0)\noutput o", x=x)
    assert out["o"].tolist()[:2] == [np.inf, 0]
    assert np.isnan(out["o"][2])
    assert out["o"].tolist()[3:] == [np.inf, 0, np.inf, np.inf, 1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("exp2", np.inf), ("exp2", -np.inf), ("exp2", 3e9), ("log2", 0.0), ("log2", -1.0), ("log2", np.inf),
     ("log2", np.nan), ("log2", 1e-40), ("sin", 1e30), ("sin", np.inf)],
)  # fmt: skip
def test_what_the_unit_is_wrong_for_is_refused(name: str, value: float) -> None:
    """Datasheet 13.17 to 13.19; the polynomials take it."""
    text = f"input x: FP32[3]\no: FP32[i<3] = {name}(x[i])\noutput o"
    x = np.array([1, value, 2], np.float32)
    with pytest.raises(Refusal, match=f"the vector unit's {name} is right"):
        unit(text, x=x)
    if name != "sin":
        compile_graph(graph.parse(text)).run({"x": x})


@pytest.mark.parametrize("name", list(serial.OPCODES))
def test_limits_are_tight(name: str) -> None:
    """At its limits the unit is as right as the page says."""
    low, high = serial.LIMITS[name]
    x = np.resize(np.array([low, high, 1.0], np.float32), 16)
    got = opcode(serial.OPCODES[name], x).astype(np.float64)
    with np.errstate(over="ignore"):
        want = {"exp2": np.exp2, "log2": np.log2, "sin": np.sin}[name](x.astype(np.float64))
    finite = want < np.finfo(np.float32).max
    np.testing.assert_allclose(got[finite], want[finite], rtol=3.4e-2, atol=3.4e-2 if name == "log2" else 7.5e-4)
    assert (got[~finite] == np.inf).all()
