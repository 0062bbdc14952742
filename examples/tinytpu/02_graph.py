"""A layer as a graph: a product, its bias, max(y, 0) and requantisation become programs.

.venv/bin/python examples/tinytpu/02_graph.py
.venv/bin/kohaku run examples/tinytpu/02_graph.py --machine tinytpu_8x8
"""

import numpy as np

from kohakuaccel.graph import WORDS, Range
from kohakuaccel.graph import build as g
from kohakuaccel.graph.expr import Cast, op
from tinytpu.lower import compile_graph
from tinytpu.machines.choice import chosen
from tinytpu.trace.planned import took
from tinytpu.trace.spans import UNITS

S8, S32 = WORDS["S8"], WORDS["S32"]


def main() -> int:
    """Cycles of the plan."""
    b = g.Builder()
    x, w, bias = b.input("x", (16, 24), S8), b.input("w", (24, 8), S8), b.input("bias", (8,), S32)
    m, n, k = Range("m", 16), Range("n", 8), Range("k", 24)
    product = op("mul", Cast(x.at(m, k), S32), Cast(w.at(k, n), S32))
    sums = b.statement(S32, (m, n), product, ("sum", [k]), "sums")
    y = g.requantise(sums + bias, 77, 16, low=0)  # (sums * 77 + 2**15) >> 16, held to 0..127
    plan = compile_graph(b.graph(y=y), chosen())  # the datasheet's machine, or what `kohaku run --machine` names
    print(plan.text())

    rng = np.random.default_rng(0)
    given = {
        "x": rng.integers(-128, 128, (16, 24), np.int8),
        "w": rng.integers(-128, 128, (24, 8), np.int8),
        "bias": rng.integers(-9999, 9999, 8, np.int32),
    }
    ran = plan.run(given)
    exact = given["x"].astype(np.int64) @ given["w"] + given["bias"]
    assert (ran.outputs["y"] == np.clip((exact * 77 + (1 << 15)) >> 16, 0, 127)).all()
    print(ran.counts)
    cost = took(plan.machine, plan.steps)
    print(", ".join(f"{unit} {cost.share(unit):.0%}" for unit in UNITS), f"of {cost.cycles} cycles at work")
    return ran.counts.cycles


if __name__ == "__main__":
    main()
