"""The vector unit's own exp2, log2 and sine (datasheet 6): slow, right to two digits, and free while the array works.

Decides where they may be used: of values that the host fills, which it checks as it does (datasheet 13.17 to 13.19);
exp2 of any other value behind clamps. Worst errors: exp2 3.1e-2 of the result, and 0 in place of subnormals; log2
3.4e-2, sine 7.5e-4 absolutely.
"""

from __future__ import annotations

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.points import Array
from tinytpu.isa.codes import VPU
from tinytpu.lower.numbers.reals import real
from tinytpu.lower.program.code import Code

OPCODES = {"exp2": VPU.EXP2, "log2": VPU.LOG2, "sin": VPU.SIN}
LIMITS = {"exp2": (-(2.0**30), 2.0**30), "log2": (2.0**-126, float(np.finfo(np.float32).max)), "sin": (-1e4, 1e4)}
"""Between these the unit is as right as it gets; a NaN stays one in exp2 and sine."""


def serial(code: Code, name: str, x: int, *, checked: bool) -> int | None:
    """A function of binary32, None where the unit is wrong. checked: whether LIMITS hold."""
    if name not in OPCODES or not (checked or name == "exp2"):
        return None
    if not checked:
        x = code.vpu(VPU.FMIN, real(code, 128.0), code.vpu(VPU.FMAX, real(code, -150.0), x))
    return code.vpu(OPCODES[name], x)


def check(name: str, values: Array, where: str) -> None:
    """Refuses what the unit's function is wrong for."""
    low, high = LIMITS[name]
    real_ = np.asarray(values, np.float32)
    wrong = ~((real_ >= low) & (real_ <= high))
    if name != "log2":
        wrong &= ~np.isnan(real_)
    if wrong.any():
        raise Refusal(
            f"the vector unit's {name} is right", where=where, got=float(real_[wrong].reshape(-1)[0]),
            limit=f"{low}..{high}", hint='compile with functions="polynomials"',
        )  # fmt: skip
