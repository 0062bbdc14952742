"""A product of matrices as accurate as float32 from products of 4-bit digits on the clusters.

Decides in how many stretches of K the sums leave the clusters, runs them, holds what came back against what it may
be, and adds it up. It must not know frontends. The error's bound is derived in docs/numerics.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kohakuaccel.diagnostics import Refusal
from kohakutpu.split import digits
from kohakutpu.split.digits import Digits, Ints8, Pairs

if TYPE_CHECKING:
    from kohakutpu.device import Device

SHARE = 8
"""The part of a device's memory that one run may take: a product beyond it is computed in parts."""


@dataclass(frozen=True, eq=False, slots=True)
class Product:
    """values: float64[batch, M, N], rounded once by whoever stores them. passes: products of digit planes that the
    clusters computed. segments: stretches of K, at most. runs: of the kernel; more than one part or attempt."""

    values: NDArray[np.float64]
    passes: int
    segments: int
    runs: int


def product(left: NDArray[Any], right: NDArray[Any], device: Device, where: str = "split.matmul") -> Product:
    """left [batch, M, K] times right [batch, N, K], its rows the columns of the result.

    Counts `split_products`, `split_passes` and `split_bytes` on the device. Refuses NaN and Inf.
    """
    a, b = digits.digits_of(left, where), digits.digits_of(right, where)
    counters = device.counters
    counters.split_products += 1
    counters.split_bytes += left.nbytes + right.nbytes + a.planes.nbytes + b.planes.nbytes
    values = np.zeros((*left.shape[:2], right.shape[1]))
    levels = digits.levels_of(a.kinds, b.kinds)
    if not levels or not values.size:
        return Product(values, 0, 0, 0)
    passes = segments = runs = 0
    for part in _parts(device, a, b, len(levels)):
        es, ms, ns = part
        found = _attempts(device, _part(a, es, ms), _part(b, es, ns), levels)
        values[es, ms, ns] = found.values
        passes, segments, runs = passes + found.passes, max(segments, found.segments), runs + found.runs
    counters.split_passes += passes
    return Product(values, passes, segments, runs)


def _part(side: Digits, batch: slice, rows: slice) -> Digits:
    return Digits(side.planes[:, batch, rows], side.kinds, side.exponents[batch, rows])


def _parts(device: Device, a: Digits, b: Digits, levels: int) -> list[tuple[slice, slice, slice]]:
    """Boxes of (batch, M, N) whose operands and sums take a share of the memory at most."""
    limit = device.machine.memories[0].size // SHARE
    _, batch, m, k = a.planes.shape
    n = b.planes.shape[2]

    def size(e: int, i: int, j: int) -> int:
        i, j = -(-i // 4) * 4, -(-j // 4) * 4
        return e * (digits.DIGITS * (i + j) * (k + 32) + 2 * levels * i * j)

    sizes = [batch, m, n]
    while size(*sizes) > limit and max(sizes) > 1:
        axis = 0 if sizes[0] > 1 else 1 if sizes[1] >= sizes[2] else 2
        sizes[axis] = -(-sizes[axis] // 2)
    spans = [
        [slice(at, min(at + step, whole)) for at in range(0, whole, step)] for step, whole in zip(sizes, (batch, m, n))
    ]
    return [(e, i, j) for e in spans[0] for i in spans[1] for j in spans[2]]


@dataclass(slots=True)
class _Group:
    """Levels that are summed over stretches of one length."""

    levels: dict[int, Pairs]
    length: int


def _attempts(device: Device, a: Digits, b: Digits, levels: dict[int, Pairs]) -> Product:
    """Every level over stretches of K as long as it may; where one that must be exact is not, over shorter ones."""
    exact = {s: p for s, p in levels.items() if s < digits.EXACT}
    rest = {s: p for s, p in levels.items() if s >= digits.EXACT}
    waiting = [_Group(part, _first_length(a, b, part, part is exact)) for part in (exact, rest) if part]
    if len(waiting) == 2 and waiting[0].length * 2 >= waiting[1].length:
        waiting = [_Group(levels, min(group.length for group in waiting))]
    values = np.zeros((a.planes.shape[1], a.planes.shape[2], b.planes.shape[2]))
    passes = segments = runs = 0
    while waiting:
        group = waiting.pop()
        sums = _run(device, a.planes, b.planes, group)
        runs += 1
        passes += sum(len(pairs) for pairs in group.levels.values())
        segments = max(segments, sums.shape[2])
        device.counters.split_bytes += sums.nbytes
        again: dict[int, Pairs] = {}
        greatest = 0.0
        for (level, pairs), part in zip(group.levels.items(), sums):
            top = float(np.abs(part).max()) if level < digits.EXACT and group.length > digits.LEAST else 0.0
            if top >= digits.EMITTED:
                again[level] = pairs
                greatest = max(greatest, top)
            else:
                values += digits.weighted(part, level)
        if again:
            times = max(2, int(np.ceil(greatest / digits.EMITTED * digits.MARGIN)))
            waiting.append(_Group(again, digits.shorter(group.length, times)))
    return Product(digits.scaled(values, a.exponents, b.exponents), passes, segments, runs)


def _first_length(a: Digits, b: Digits, levels: dict[int, Pairs], exact: bool) -> int:
    """The longest stretch of K whose sums are exact in an accumulator and, if `exact`, probably leave it exactly."""
    length = a.planes.shape[-1]
    most = max(len(pairs) for pairs in levels.values()) * digits.HALF_RADIX**2
    if exact and most * length >= digits.EMITTED:
        guess = max(digits.probable(a.planes, b.planes, pairs) for pairs in levels.values())
        if guess >= digits.EMITTED:
            length = digits.shorter(length, max(2, int(np.ceil(guess / digits.EMITTED))))
    while most * length > digits.ACCUMULATED:
        left, right = digits.cut(a.planes, length), digits.cut(b.planes, length)
        greatest = max(digits.bound(left, right, pairs) for pairs in levels.values())
        if greatest <= digits.ACCUMULATED:
            break
        length = digits.shorter(length, max(2, int(np.ceil(greatest / digits.ACCUMULATED))))
    return length


def _run(device: Device, left: Ints8, right: Ints8, group: _Group) -> NDArray[np.float16]:
    """Sums of every level, float16[levels, batch, stretches, M, N], as the clusters emit them."""
    from kohakutpu.lang.kernel import launch
    from kohakutpu.lower.tiling import choose
    from kohakutpu.split.kernel import digit_products
    from kohakutpu.split.quantised import mxfp7

    pairs, places = _used(group.levels)
    a, b = (digits.cut(side[used], group.length) for side, used in zip((left, right), places))
    _, batch, m, k = a.shape
    n = b.shape[2]
    each = max(1, sum(len(p) for p in pairs) // len(pairs))
    tile = choose(device.machine, m, n, k, batch * len(pairs), each)
    knobs = {"levels": pairs, "levels_count": len(pairs), "gm": tile.gm, "gn": tile.gn, "nk": tile.nk}
    operands = [mxfp7(a, device=device), mxfp7(b, device=device)]
    # Launched beside any recording: digits are made from numbers, which a recording does not have.
    (result,) = launch(digit_products.plan(*operands, **knobs), operands, device)
    return result.numpy().reshape(len(pairs), left.shape[1], -1, m, n)


def _used(levels: dict[int, Pairs]) -> tuple[tuple[Pairs, ...], tuple[list[int], list[int]]]:
    """The pairs of each level by position among the planes that they use, and those planes of either side."""
    lists = tuple(sorted({pair[side] for pairs in levels.values() for pair in pairs}) for side in (0, 1))
    first, second = ({plane: at for at, plane in enumerate(planes)} for planes in lists)
    return tuple(tuple((first[p], second[q]) for p, q in pairs) for pairs in levels.values()), (lists[0], lists[1])


def matmul(a: ArrayLike, b: ArrayLike, *, device: Device | None = None) -> NDArray[np.float32]:
    """numpy's `matmul` in float32, computed by the clusters from digits: batched, broadcast, one-dimensional operands
    too.

    a, b: real numbers up to float64; each row of `a` and column of `b` keeps 24 bits below its greatest element.
    `ktpu.stats()` counts what it took. Raises Refusal for NaN, Inf and shapes that do not fit; a result beyond
    float32 is Inf, as in float32.
    """
    from kohakutpu.tensor import current_device

    left, right = (np.asarray(x) for x in (a, b))
    for name, operand in (("a", left), ("b", right)):
        if operand.dtype.kind not in "biuf" or operand.ndim == 0:
            raise Refusal(
                "a product is one of arrays of real numbers",
                where=f"split.matmul, {name}",
                got=f"{operand.dtype} {operand.shape}",
            )
    rows, columns = left.ndim > 1, right.ndim > 1
    left = left if rows else left[None]
    right = right if columns else right[:, None]
    if left.shape[-1] != right.shape[-2]:
        raise Refusal(
            "a product folds axes of one length",
            where="split.matmul",
            got=f"{np.shape(a)} @ {np.shape(b)}",
            hint="a's last axis, b's last but one",
        )
    try:
        lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise Refusal(
            "leading axes of a product broadcast", where="split.matmul", got=f"{np.shape(a)} @ {np.shape(b)}"
        ) from None
    turned = right.swapaxes(-1, -2)
    m, k, n = left.shape[-2], left.shape[-1], turned.shape[-2]
    if right.ndim == 2:
        first, second = left.reshape(1, prod(left.shape[:-1]), k), turned[None]
    else:
        first = np.broadcast_to(left, (*lead, m, k)).reshape(prod(lead), m, k)
        second = np.broadcast_to(turned, (*lead, n, k)).reshape(prod(lead), n, k)
    values = product(first, second, device or current_device()).values
    with np.errstate(over="ignore"):
        result = values.astype(np.float32).reshape(*lead, m, n)
    result = result if rows else result[..., 0, :]
    return result if columns else result[..., 0]
