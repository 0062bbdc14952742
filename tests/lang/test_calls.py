"""Calling a kernel again: what was linked for the same places is used again."""

from __future__ import annotations

import numpy as np

from kohakuaccel.lang import dims, grid
from kohakutpu import api as ktpu
from kohakutpu import lang as L
from kohakutpu.device import Device
from kohakutpu.lang import kernel
from kohakutpu.storage import PAGE

M, N = dims("M N")


@kernel
def halves(x=L.In(M, N), y=L.Out(M, N // 2)):
    for r in grid(x.rows()):
        y[r] <<= x[r, : N // 2] + x[r, N // 2 :]


def test_results_return_to_where_an_image_was_linked() -> None:
    device = Device()
    below = device.alloc(PAGE, PAGE)
    x = ktpu.tensor(np.arange(64, dtype=np.float16).reshape(2, 32), device=device)
    halves(x)  # x lies on the device from here on
    first = halves(x)
    plan = halves.plan(x)
    place = first.buffer(first.layouts()[0]).address
    below.free()  # the first hole now
    del first
    again = halves(x)
    assert again.buffer(again.layouts()[0]).address == place
    assert halves(x).buffer(again.layouts()[0]).address < place  # taken, so elsewhere
    assert len(plan._images) == 2
