"""Methods that move elements, pick them, or make them."""

from __future__ import annotations

from typing import Any

import numpy as np
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor

from tinygrad_cases.case import Case
from tinygrad_cases.maps import REAL

ALL = ("float", "half", "bfloat16", "int32", "int8", "bool", "double", "uint64")
FLAT = (((3, 5),),)
PAIR = (((3, 5), (3, 5)),)


def _moved(ours: Any, theirs: Any, shapes: Any = FLAT, types: tuple[str, ...] = ("float", "int8"), **more: Any) -> Case:
    """Moves elements; a computation behind it, so that nothing is a view alone."""
    return Case(lambda t: ours(t).contiguous(), theirs, ("int",), shapes, types, **more)


def _scattered(x: np.ndarray, at: np.ndarray, y: np.ndarray, how: str) -> np.ndarray:
    out = x.copy()
    for n, row in np.ndindex(*at.shape):
        place = int(at[n, row]), row
        out[place] = {"set": y[n, row], "sum": out[place] + y[n, row], "amax": max(out[place], y[n, row])}[how]
    return out


def _interpolated(x: np.ndarray, size: int) -> np.ndarray:
    at = np.clip((np.arange(size) + 0.5) * x.shape[-1] / size - 0.5, 0, x.shape[-1] - 1)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, x.shape[-1] - 1)
    return x[..., low] * (1 - (at - low)) + x[..., high] * (at - low)


def _of(t: Tensor, made: Tensor) -> Tensor:
    return made.to(t.device)


ROW = (((6,),),)
SHAPES: dict[str, Case] = {
    "T": _moved(lambda t: t.T, lambda x: x.T),
    "cat": _moved(
        lambda t: t.cat(t + t, dim=1), lambda x: np.concatenate([x, x + x], 1), types=("float", "int32"), core=True
    ),
    "chunk": _moved(lambda t: t.chunk(2, 1)[1], lambda x: x[:, 3:]),
    "diag": _moved(lambda t: t.diag(), np.diag, ROW),
    "diagonal": _moved(lambda t: t.diagonal(), np.diagonal),
    "expand": _moved(lambda t: t.reshape(3, 1, 5).expand(3, 2, 5), lambda x: np.repeat(x[:, None], 2, 1), core=True),
    "flatten": _moved(lambda t: t.flatten(), lambda x: x.reshape(-1)),
    "flip": _moved(lambda t: t.flip((0, 1)), lambda x: x[::-1, ::-1], types=ALL, core=True),
    "gather": Case(
        lambda t, i: t.gather(0, i),
        lambda x, i: np.take_along_axis(x, i.astype(int), 0),
        ("real", "small"),
        (((6, 4), (3, 4)),),
        types=REAL,
        core=True,
    ),
    "gather: rows": Case(lambda t, i: t[i - 3], lambda x, i: x[i - 3], ("real", "small"), (((6, 4), (3,)),)),
    "meshgrid": _moved(lambda t: t.meshgrid(t + t)[1], lambda x: np.meshgrid(x, x + x, indexing="ij")[1], ROW),
    "one_hot": Case(lambda t: t.one_hot(6), lambda x: np.eye(6)[x], ("small",), (((4,),), ((2, 3),)), ("int32",)),
    "pad": _moved(
        lambda t: t.pad(((1, 2), (0, 3)), value=4), lambda x: np.pad(x, ((1, 2), (0, 3)), constant_values=4), core=True
    ),
    "pad: reflect": _moved(
        lambda t: t.pad((2, 1, 1, 0), mode="reflect"), lambda x: np.pad(x, ((1, 0), (2, 1)), "reflect")
    ),
    "pad_to": _moved(lambda t: t.pad_to((4, 7)), lambda x: np.pad(x, ((0, 1), (0, 2)))),
    "permute": _moved(lambda t: t.reshape(3, 5, 1).permute(2, 1, 0), lambda x: x.T[None], types=ALL),
    "rearrange": _moved(lambda t: t.rearrange("a b -> (b a) 1"), lambda x: x.T.reshape(-1, 1)),
    "repeat": _moved(lambda t: t.repeat(2, 3), lambda x: np.tile(x, (2, 3))),
    "repeat_interleave": _moved(lambda t: t.repeat_interleave(2, 0), lambda x: np.repeat(x, 2, 0)),
    "reshape": _moved(lambda t: t.reshape(5, 3).flip(0), lambda x: x.reshape(5, 3)[::-1]),
    "roll": _moved(lambda t: t.roll(2, 1), lambda x: np.roll(x, 2, 1)),
    "shrink": _moved(lambda t: t.shrink(((1, 3), (2, 4))), lambda x: x[1:3, 2:4], types=ALL),
    "shrink_to": _moved(lambda t: t.shrink_to((2, 4)), lambda x: x[:2, :4]),
    "split": _moved(lambda t: t.split(2, 1)[1], lambda x: x[:, 2:4]),
    "squeeze": _moved(lambda t: t.reshape(1, 3, 1, 5).squeeze(), lambda x: x),
    "stack": _moved(lambda t: t.stack(t + t, dim=1), lambda x: np.stack([x, x + x], 1)),
    "transpose": _moved(lambda t: t.transpose(0, 1), lambda x: x.T, core=True),
    "tril": _moved(lambda t: t.tril(), np.tril),
    "triu": _moved(lambda t: t.triu(1), lambda x: np.triu(x, 1)),
    "unflatten": _moved(lambda t: t.reshape(15).unflatten(0, (3, 5)).flip(1), lambda x: x[:, ::-1]),
    "unfold": _moved(lambda t: t.unfold(1, 3, 2), lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2]),
    "unsqueeze": _moved(lambda t: t.unsqueeze(1), lambda x: x[:, None]),
    "view": _moved(lambda t: t.view(15), lambda x: x.reshape(15)),
    "interpolate": Case(lambda t: t.interpolate((7,)), lambda x: _interpolated(x, 7), shapes=(((1, 2, 4),),), loose=8),
    "masked_select": Case(lambda t, c: t.masked_select(c), lambda x, c: x[c], ("real", "bool"), PAIR),
    "nonzero": Case(lambda t: t.nonzero(), lambda x: np.argwhere(x), ("bool",), (((3, 4),),), ("bool",)),
    "scatter": Case(
        lambda t, i, y: t.scatter(0, i, y),
        lambda x, i, y: _scattered(x, i, y, "set"),
        ("real", "order", "real"),
        (((6, 4), (3, 4), (3, 4)),),
    ),
    "scatter_reduce": Case(
        lambda t, i, y: t.scatter_reduce(0, i, y, "sum"),
        lambda x, i, y: _scattered(x, i, y, "sum"),
        ("real", "small", "real"),
        (((6, 4), (3, 4), (3, 4)),),
        loose=4,
    ),
    "scatter_reduce: greatest": Case(
        lambda t, i, y: t.scatter_reduce(0, i, y, "amax"),
        lambda x, i, y: _scattered(x, i, y, "amax"),
        ("real", "small", "real"),
        (((6, 4), (3, 4), (3, 4)),),
    ),
    # made of nothing but a shape
    "arange": Case(lambda t: _of(t, Tensor.arange(3, 20, 4)), lambda x: np.arange(3, 20, 4), shapes=ROW),
    "eye": Case(lambda t: _of(t, Tensor.eye(3, 4)), lambda x: np.eye(3, 4), shapes=ROW),
    "full": Case(lambda t: Tensor.full((2, 3), 7, device=t.device), lambda x: np.full((2, 3), 7), shapes=ROW),
    "full_like": Case(lambda t: t.full_like(2.5), lambda x: np.full_like(x, 2.5), types=REAL),
    "linspace": Case(lambda t: _of(t, Tensor.linspace(1, 4, 7)), lambda x: np.linspace(1, 4, 7), shapes=ROW, loose=4),
    "ones": Case(
        lambda t: Tensor.ones(3, dtype=dtypes.int8, device=t.device), lambda x: np.ones(3, np.int8), shapes=ROW
    ),
    "ones_like": Case(lambda t: t.ones_like(), np.ones_like, types=REAL),
    "zeros": Case(lambda t: Tensor.zeros(3, device=t.device), lambda x: np.zeros(3), shapes=ROW),
    "zeros_like": Case(lambda t: t.zeros_like(), np.zeros_like, types=REAL),
}
