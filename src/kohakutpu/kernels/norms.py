"""Norms whose statistics and scales live on different rows: group norm."""

from __future__ import annotations

from typing import Any

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import dims, grid
from kohakutpu import lang as L
from kohakutpu import recording
from kohakutpu.kernels.activations import activate
from kohakutpu.lang import kernel

B, G, C, P, N = dims("B G C P N")


@kernel
def grouped_norm(
    groups=L.In(B, G, N),
    x=L.In(B, C, P),
    w=L.In(C, optional=True),
    b=L.In(C, optional=True),
    y=L.Out(B, C, P),
    *,
    eps=1e-5,
    activation="none",
):
    """`group_norm` on two views of one tensor: groups (B, G, C/G * P), whose rows have the statistics, and x (B, C,
    P), whose rows share one scale and offset.

    A group's numbers are kept in FP16 between the stages. Its mean is kept as two, a number and what its rounding left
    out: one would shift every element by up to 2**-11 of the mean, which may be many deviations.
    """
    mean, rest, spread = L.temp(B, G), L.temp(B, G), L.temp(B, G)
    for n, g in grid(groups.each(0), groups.rows()):
        mean[n, g] <<= L.row_mean(groups[n, g])
    for n, g in grid(groups.each(0), groups.rows()):
        near = groups[n, g] - mean[n, g]
        left = L.row_mean(near)
        centred = near - left
        rest[n, g] <<= left
        spread[n, g] <<= L.sqrt(L.row_mean(centred * centred) + eps)
    for n, c in grid(x.each(0), x.rows()):
        g = c // (C // G)
        scale = L.recip(spread[n, g]) if w is None else w[c] * L.recip(spread[n, g])
        value = (x[n, c] - mean[n, g] - rest[n, g]) * scale
        y[n, c] <<= activate(activation, value if b is None else value + b[c])


def group_norm(
    x: Any, groups: int, w: Any = None, b: Any = None, *, eps: float = 1e-5, activation: str = "none"
) -> Any:
    """(x - mean) / sqrt(var + eps) * w + b, mean and variance over each of `groups` equal groups of channels and all
    their pixels; then an activation.

    x (B, C, ...) of any number of further axes; w, b (C,), optional. Refused: channels that are no multiple of the
    groups.
    """
    from kohakutpu.tensor import as_tensor

    given = as_tensor(x, where="group_norm")
    if given.ndim < 2 or groups < 1 or given.shape[1] % groups:
        raise Refusal(
            "the channels (axis 1) are a multiple of the groups",
            where="group_norm",
            got=f"shape {given.shape}, {groups} groups",
            hint="pass x as (B, C, ...)",
        )
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator("group_norm", given, w, b, groups=groups, eps=eps, activation=activation)
    batch, channels = given.shape[:2]
    pixels = int(np.prod(given.shape[2:], dtype=np.int64))
    by_channel = given.reshape(batch, channels, pixels)
    by_group = given.reshape(batch, groups, channels // groups * pixels)
    y = grouped_norm(by_group, by_channel, w, b, eps=eps, activation=activation)
    return y.reshape(given.shape)
