"""Plans: published cycles, data plans, statements that share programs, and programs that are cut."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from kohakuaccel import graph
from kohakuaccel.diagnostics import Refusal
from tinytpu import machines
from tinytpu.lower import NotLowered, compile_graph
from tinytpu.lower.stage import Stage
from tinytpu_rig.lowering import check, run

Ints = NDArray[np.int32]


def ints(*shape: int, seed: int = 1) -> Ints:
    return np.random.default_rng(seed).integers(-1000, 1000, shape).astype(np.int32)


def reals(*shape: int, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


A = "input a: S32[{}]\n"


@pytest.mark.parametrize(
    ("text", "shape", "cycles"),
    [
        (A + "o: S32[i<16] = a[i] + a[i]\noutput o", (16,), 26),
        (A + "o: S32[i<64] = max(a[i], cast(0, S32))\noutput o", (64,), 83),
        (A + "o: S32[i<8,j<8] = a[8 * i + j]\noutput o", (64,), 27),
        (A + "o: S32[u<1] = sum[k<16] a[k]\noutput o", (16,), 26),
        (A + "o: S32[u<1] = sum[k<256] a[k]\noutput o", (256,), 200),
        (A + "o: S32[i<8] = sum[k<8] a[i, k]\noutput o", (8, 8), 69),
        (A + "o: S32[i<8] = sum[k<8] a[k, i]\noutput o", (8, 8), 69),
        (A + "o: S32[i<16] = a[i] + cast(5, S32)\noutput o", (16,), 30),
        (A + "o: S32[i<16] = neg(a[i])\noutput o", (16,), 25),
    ],
)
def test_cycles_of_the_list(text: str, shape: tuple[int, ...], cycles: int) -> None:
    ran = check(text.format(",".join(map(str, shape))), a=ints(*shape))
    assert ran.counts.cycles <= cycles


@pytest.mark.parametrize(("n", "cycles"), [(16, 33), (256, 423), (192, 0), (1000, 0)])
def test_sums_of_any_size(n: int, cycles: int) -> None:
    """Outputs overwrite dead inputs; what does not fit 32 slots or 31 outputs is several programs (datasheet 13.1)."""
    text = f"input a: S32[{n}]\ninput b: S32[{n}]\no: S32[i<{n}] = a[i] + b[i]\noutput o"
    ran = check(text, a=np.arange(n, dtype=np.int32), b=1000 - np.arange(n, dtype=np.int32))
    assert (ran.outputs["o"] == 1000).all()
    assert not cycles or ran.counts.cycles == cycles
    assert ran.counts.programs == -(-n // 256)


@pytest.mark.parametrize(
    "body",
    ["a[j, i]", "a[11 - i, 6 - j]", "guard(a[i - 2, j], cast(7, S32), 2 <= i < 9)".replace("cast(7, S32)", "7"),
     "a[i // 2, j]", "a[at(b[i], 12), j]", "a[i, 3]", "a[i, j] + cast(iota(7 * i + j), S32)",
     "where(iota(i) < iota(j), a[i, j], cast(0, S32))"],
)  # fmt: skip
def test_movement_is_data(body: str) -> None:
    """Permute, flip, pad, repeat, gather, broadcast, places: records, not instructions."""
    shape = "j<7,i<12" if body == "a[j, i]" else "i<12,j<7"
    text = f"input a: S32[12,7]\ninput b: S32[12]\no: S32[{shape}] = {body}\noutput o"
    if body == "a[j, i]":
        text = text.replace("a[j, i]", "a[i, j]")
    ran = check(text, a=ints(12, 7), b=np.arange(12, dtype=np.int32)[::-1] % 5)
    if "+" not in body and "where" not in body:
        assert ran.counts.instructions == ran.counts.programs  # a HALT each


SOFTMAX = """
input x: FP32[5,37]
m: FP32[i<5] = max[k<37] x[i, k]
s: FP32[i<5] = sum[k<37] exp2((x[i, k] - m[i]) * 1.4426950408889634)
o: FP32[i<5,j<37] = exp2((x[i, j] - m[i]) * 1.4426950408889634) / s[i]
output o
"""


def test_softmax() -> None:
    ran = check(SOFTMAX, x=reals(5, 37), tolerance=2e-6)
    np.testing.assert_allclose(ran.outputs["o"].sum(1), 1, rtol=1e-6)


def test_what_follows_a_fold_shares_its_program() -> None:
    text = A.format("4,36") + "s: S32[i<4] = sum[k<36] a[i, k]\n"
    text += "m: FP32[i<4] = cast(s[i], FP32) * 0.027777777777777776\noutput m\noutput s"
    plan, ran = run(text, a=np.arange(144, dtype=np.int32).reshape(4, 36))
    assert ran.outputs["s"].tolist() == [630, 1926, 3222, 4518]
    assert ran.outputs["m"].tolist() == [17.5, 53.5, 89.5, 125.5]
    assert len(plan.steps) == 1
    layernorm = """
input x: FP32[6,24]
m: FP32[i<6] = sum[k<24] x[i, k] * 0.041666666666666664
v: FP32[i<6] = sum[k<24] (x[i, k] - m[i]) * (x[i, k] - m[i])
r: FP32[i<6] = rsqrt(v[i] * 0.041666666666666664 + 1e-05)
o: FP32[i<6,j<24] = (x[i, j] - m[i]) * r[i]
output o
"""
    plan = compile_graph(graph.parse(layernorm), join=False)
    assert len(plan.steps) == 2
    check(layernorm, x=reals(6, 24), tolerance=1e-4)


@pytest.mark.parametrize("n", [144, 256, 5000])
def test_long_folds_are_cut_in_parts(n: int) -> None:
    ran = check(A.format(n) + f"o: S32[u<1] = sum[k<{n}] a[k]\noutput o", a=np.arange(n, dtype=np.int32))
    assert ran.outputs["o"].tolist() == [n * (n - 1) // 2]
    check(f"input a: FP32[{n}]\no: FP32[u<1] = max[k<{n}] a[k] * a[k]\noutput o", a=reals(n), tolerance=0.0)


def test_more_values_than_registers_are_spilled_and_counted() -> None:
    """20 squares that are all needed twice; also on a machine of four registers."""
    squares = [f"a[i, {k}] * a[i, {k}]" for k in range(20)]
    first, second = squares[0], squares[0]
    for s in squares[1:]:
        first, second = f"({first}) + {s}", f"max({s}, {second})"
    text = A.format("16,20") + f"o: S32[i<16] = xor({first}, {second})\noutput o"
    check(text, a=ints(16, 20))
    few = machines.load().with_(name="few", params={"vregs": 4})
    plan = compile_graph(graph.parse(text), few)
    (step,) = plan.steps
    assert isinstance(step, Stage)
    assert sum(p.spills for unit in step.units for p in unit.programs) > 0
    want = run(text, a=ints(16, 20))[1].outputs["o"]
    assert plan.run({"a": ints(16, 20)}).outputs["o"].tolist() == want.tolist()


def test_a_body_beyond_a_program_is_cut() -> None:
    """40 tiles in do not fit 32 slots: what lives across the cut goes through the host, counted."""
    body = " + ".join(f"a[i, {k}] * a[i, {39 - k}]" for k in range(40))
    plan, ran = run(A.format("20,40") + f"o: S32[i<20] = {body}\noutput o", a=ints(20, 40))
    a = ints(20, 40)
    assert ran.outputs["o"].tolist() == (a * a[:, ::-1]).sum(1).tolist()
    assert ran.counts.carried > 0
    assert ran.counts.programs > 2
    assert "instructions" in plan.text()


def test_several_outputs_and_another_machine() -> None:
    text = A.format("100") + "o: S32[i<100] = a[i] * a[i]\np: BOOL[i<100] = a[i] < o[i]\noutput o\noutput p"
    check(text, a=ints(100))
    plan = compile_graph(graph.parse(text), machines.load("tinytpu_8x8"))
    out = plan.run({"a": ints(100)}).outputs
    assert out["o"].tolist() == (ints(100) ** 2).tolist()


def test_places_of_64_bits_are_the_hosts() -> None:
    text = A.format("6") + "o: S32[i<6] = a[i] + a[i]\np: S64[i<6] = cast(iota(5 - i), S64)\noutput o\noutput p"
    plan, ran = run(text, a=ints(6))
    assert ran.outputs["p"].tolist() == [5, 4, 3, 2, 1, 0]
    assert "p: addresses, 6 of S64" in plan.text()


def test_chains_of_sums_and_products_of_reals_are_numpys_to_the_bit() -> None:
    text = "input a: FP32[77]\ninput b: FP32[77]\no: FP32[i<77] = ((a[i] * b[i] + 0.1) * a[i] - b[i]) * 3.7\noutput o"
    a, b = reals(77) * np.float32(1e3), reals(77, seed=2)
    want = ((a * b + np.float32(0.1)) * a - b) * np.float32(3.7)
    assert run(text, a=a, b=b)[1].outputs["o"].view(np.int32).tolist() == want.view(np.int32).tolist()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "every input is given"),
        ({"a": ints(3)}, r"an input has its shape; got \(3,\); the limit is \(4,\)"),
        ({"a": np.full(4, 1 << 40)}, "an input of S32 holds such numbers"),
    ],
)
def test_wrong_inputs(inputs: dict[str, Ints], message: str) -> None:
    plan = compile_graph(graph.parse(A.format("4") + "o: S32[i<4] = a[i] + a[i]\noutput o"))
    with pytest.raises(Refusal, match=message):
        plan.run(inputs)


def test_a_gathered_index_is_data_too() -> None:
    """Also where it is a value, and where it was computed just before: then it goes through the host."""
    text = A.format("9") + "n: S32[i<9] = max(a[i], cast(0, S32)) & cast(7, S32)\n"
    text += "o: S32[i<9] = a[at(n[i], 9)] + cast(iota(2 * at(n[i], 9) + i), S32)\n"
    text += "g: S32[i<9] = guard(a[i], 5, 2 <= at(n[i], 9) < 6)\noutput o\noutput g"
    check(text, a=ints(9))


def test_what_the_host_cannot_hold_at_once_is_refused() -> None:
    text = "input a: FP32[20000,1]\ninput b: FP32[1,20000]\no: FP32[i<20000,j<20000] = a[i, 0] + b[0, j]\noutput o"
    with pytest.raises(
        NotLowered, match=r"a stage's values fit the host at once; got 400000000; the limit is 134217728"
    ):
        compile_graph(graph.parse(text))
