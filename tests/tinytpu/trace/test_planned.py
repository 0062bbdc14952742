"""What a plan takes, told before it runs, is what its run counts: for every kind of step."""

from __future__ import annotations

import numpy as np
import pytest

from kohakuaccel import graph
from tinytpu.lower import compile_graph
from tinytpu.trace.planned import took
from tinytpu.trace.spans import UNITS

PLANS = {
    "elements": "input a: S32[70]\no: S32[i<70] = a[i] + a[i]\noutput o",
    "results that are output": "input a: S8[1,4]\ninput w: S8[4,4]\n"
    "p: S32[i<1,j<4] = sum[k<4] cast(a[i, k], S32) * cast(w[k, j], S32)\noutput p",
    "a product with carried sums": "input a: S8[9,70]\ninput w: S8[70,5]\n"
    "p: S32[i<9,j<5] = sum[k<70] cast(a[i, k], S32) * cast(w[k, j], S32)\noutput p",
    "layers in one program": "input a: S8[4,4]\ninput w: S8[4,4]\n"
    "p: S32[i<4,j<4] = sum[k<4] cast(a[i, k], S32) * cast(w[k, j], S32)\n"
    "q: S8[i<4,j<4] = cast(min(max(shr(cast(p[i, j], S64) * cast(5, S64) + cast(128, S64), cast(8, S64)),"
    " cast(-128, S64)), cast(127, S64)), S8)\n"
    "r: S32[i<4,j<4] = sum[k<4] cast(q[i, k], S32) * cast(w[k, j], S32)\noutput r",
    "a vector that is output": "input a: S8[4,4]\ninput w: S8[4,4]\n"
    "p: S32[i<4,j<4] = sum[k<4] cast(a[i, k], S32) * cast(w[k, j], S32)\n"
    "q: S8[i<4,j<4] = cast(min(max(shr(cast(p[i, j], S64) * cast(5, S64) + cast(128, S64), cast(8, S64)),"
    " cast(-128, S64)), cast(127, S64)), S8)\noutput q",
    "joined rows": "input x: FP32[5,20]\nm: FP32[i<5] = max[k<20] x[i, k]\n"
    "s: FP32[i<5] = sum[k<20] exp2(x[i, k] - m[i])\no: FP32[i<5,k<20] = exp2(x[i, k] - m[i]) / s[i]\noutput o",
    "side by side": "input a: S8[4,4]\ninput w: S8[4,4]\ninput x: FP32[16]\n"
    "p: S32[i<4,j<4] = sum[k<4] cast(a[i, k], S32) * cast(w[k, j], S32)\n"
    "e: FP32[i<16] = exp2(x[i])\noutput p\noutput e",
}


@pytest.mark.parametrize("name", PLANS)
def test_what_is_told_is_what_is_counted(name: str) -> None:
    made = graph.parse(PLANS[name])
    plan = compile_graph(made)
    rng = np.random.default_rng(0)
    values = {v.name: rng.integers(-100, 100, v.shape) for v in made.inputs}
    dtypes = {"S8": np.int8, "S32": np.int32, "FP32": np.float32}
    counts = plan.run({v.name: values[v.name].astype(dtypes[v.dtype.name]) for v in made.inputs}).counts
    told = took(plan.machine, plan.steps)
    assert (told.programs, told.cycles, told.instructions) == (counts.programs, counts.cycles, counts.instructions)
    assert (told.records, told.filled, told.nbytes) == (counts.records, counts.filled, counts.bytes)
    shares = told.shares()
    assert set(shares) == {"load", *UNITS}
    assert all(0 <= share < 1 for share in shares.values())
