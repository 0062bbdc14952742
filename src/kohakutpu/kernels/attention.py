"""Attention: softmax(scale * q @ k.T + bias) @ v for any lengths, with masks that are exact at every length.

`flash_attention` keeps one block of q rows at a time and takes the softmax of whole rows; `online_attention` keeps one
block of keys at a time and carries a running maximum and sum. Both hold their scores in temporaries of the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang import DimExpr, Value, dims, greatest, grid, least, sweep
from kohakuaccel.lang.indices import IndexExpr
from kohakuaccel.machine import Machine
from kohakutpu import lang as L
from kohakutpu.kernels.activations import LOG2_E
from kohakutpu.kernels.products import tile_of
from kohakutpu.lang import In, Out, Temp, kernel
from kohakutpu.layouts import KBLOCK, LANES

B, H, G, Lq, Lk, D, P, Bb, Hb, M, N, K = dims("B H G Lq Lk D P Bb Hb M N K")
HIDDEN = -1e30
"""The logit of a hidden key: below all others, finite, never stored (the vector core has float32's range, FP16 not)."""
NOTHING = -1e29
"""What a row's maximum is raised to: a row that sees no key then has weights 2**(HIDDEN - NOTHING) = 0, not 2**0."""
POSITIONS = 31743  # positive halves below infinity
SCORES = 64 << 20
"""Bytes of one temporary of scores above which rows of q are handled in blocks."""

Position = IndexExpr | DimExpr | int


def _tune(machine: Machine, sizes: Mapping[str, int]) -> dict[str, object]:
    if sizes["H"] % sizes["G"]:
        raise Refusal(
            "the heads of q are a multiple of the heads of k and v",
            where="attention",
            got=f"{sizes['H']} and {sizes['G']}",
            hint="repeat heads of k and v first",
        )
    for name, whole in (("Bb", "B"), ("Hb", "H")):
        if sizes.get(name, 1) not in (1, sizes[whole]):
            raise Refusal(
                "a bias has one or all of the batch's elements, and one or all of its heads",
                where="attention, port bias",
                got=sizes[name],
                limit=f"1 or {sizes[whole]}",
                hint="broadcast it first",
            )
    scores = tile_of("Lq", "Lk", "D", each=("B", "H"))(machine, sizes)
    values = tile_of("Lq", "P", "Lk", ("vm", "vn", "vk"), ("B", "H"))(machine, sizes)
    row = 2 * sizes["B"] * sizes["H"] * sizes["Lk"]
    qblock = 0 if row * sizes["Lq"] <= SCORES else max(LANES, SCORES // row)
    return {"scale": sizes["D"] ** -0.5, "qblock": qblock, **scores, **values, **_on_chip(machine, sizes)}


def _online_tune(machine: Machine, sizes: Mapping[str, int]) -> dict[str, object]:
    chosen = _tune(machine, sizes)
    del chosen["qblock"]
    return chosen


def _on_chip(machine: Machine, sizes: Mapping[str, int]) -> dict[str, int]:
    """Tiles and key block with which the online recurrence stays in the L1 of cores and clusters, the tallest rows
    first; empty where none do or the machine has no drain quantiser. Scores in accumulator width take two words."""
    p, features = machine.params, machine.features
    if not features.r2_vc_quant:
        return {}
    blocks, columns = -(-sizes["D"] // KBLOCK), -(-sizes["P"] // LANES)
    for gm in (8, 4, 2, 1):
        if gm > 1 and gm // 2 * LANES >= sizes["Lq"]:
            continue
        for keys in (4 * KBLOCK, 2 * KBLOCK, KBLOCK):
            if keys > KBLOCK and keys // 2 >= sizes["Lk"]:
                continue
            scores, values = gm * keys // LANES, gm * columns
            words = (2 if features.r2_acc_to_vc else 1) * scores + max(scores, values) + values + 6 * gm
            gn, vk = keys // LANES, keys // KBLOCK
            kinds = 1 if sizes["Lk"] % keys == 0 else 2  # a last, shorter block has places of its own
            side_a, side_b = kinds * gm * (blocks + vk), kinds * (gn * blocks + columns * vk)
            entries = min(p.offset_span, p.l1_a, p.l1_b)
            program = 110 + 14 * gn + 4 * columns  # words, about: masks, a block's softmax, the values' update
            fits = words < p.vl1 and program <= p.imem and values <= p.walk_max
            if fits and max(side_a, side_b, 2 * gn * blocks) <= entries:
                return {"gm": gm, "gn": gn, "nk": blocks, "vm": gm, "vn": columns, "vk": vk, "kblock": keys}
    return {}


def from_the_end(count: int) -> NDArray[np.float16]:
    """Halves that order positions counted from the end of an axis: element c compares like c - count.

    A half's own code is the distance, so every one of 31743 positions has a value of its own; FP16 whole numbers end
    at 2048.
    """
    if count > POSITIONS:
        raise Refusal(
            "positions are told apart by finite halves",
            where="attention, causal",
            got=count,
            limit=POSITIONS,
            hint="cut the sequence into several calls",
        )
    return -(count - np.arange(count)).astype(np.uint16).view(np.float16)


def _at_most(groups: int, limit: int) -> int:
    """A tile's groups, halved until they are within a limit (1 at least)."""
    while groups > max(1, limit):
        groups = -(-groups // 2)
    return groups


class _Masks:
    """The logits of one block of scores, masked: what the two forms of attention share."""

    def __init__(self, causal: bool, keep: In | None, bias: In | None, power: float) -> None:
        self.keep, self.bias, self.power = keep, bias, power
        self.key = L.table(from_the_end, Lk) if causal else None
        self.row = L.table(from_the_end, Lq) if causal else None
        self.any = causal or keep is not None

    def logits(self, score: Value, b: IndexExpr, h: IndexExpr, r: IndexExpr) -> Value:
        """log2(e) * (scale * score + bias) of a row, HIDDEN where it may not look."""
        logit = score * self.power
        if self.bias is not None:
            logit = L.fma(score, self.power, self.bias[b % Bb, h % Hb, r] * LOG2_E)
        if self.row is not None and self.key is not None:
            logit = L.where(L.greater(self.key, self.row[r]), HIDDEN, logit)
        return logit if self.keep is None else L.where(self.keep[b], logit, HIDDEN)


def _scores(q: In, k: In, s: Temp, row: Position, key: Position, gm: int, gn: int, nk: int) -> None:
    """s = q @ k.T for the rows and columns of s, which begin at row tile `row` of q and at tile `key` of k."""
    for b, h, i, j in grid(q.each(0), q.each(1), s.tiles(gm), s.T.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for d in sweep(q.chunks32(nk)):
            acc += q[b, h, i + row, d] @ k[b, h // (H // G), j + key, d]
        s[b, h, i, j] <<= acc


def _values(
    p: Temp, v: In, o: Out | Temp, row: Position, key: Position, vm: int, vn: int, vk: int, causal: bool
) -> None:
    """o = p @ v for the rows and columns of p, which begin at row tile `row` of o and at chunk `key` of v.

    With `causal`, a tile's sweep ends behind the last key that its rows see: what follows are weights of 0, which
    change no sum.
    """
    for b, h, i, j in grid(p.each(0), p.each(1), p.tiles(vm), v.T.tiles(vn)):
        acc = L.tile(vm, vn, vk)
        chunk = KBLOCK * vk
        seen = ((i + row + 1) * (LANES * vm) + (Lk - Lq) + (chunk - 1)) // chunk
        for c in sweep(least(greatest(seen, 1), -(-Lk // chunk)) if causal else p.chunks32(vk)):
            acc += p[b, h, i, c] @ v.T[b, h // (H // G), j, c + key]
        o[b, h, i + row, j] <<= acc


def _online(
    q: In, k: In, v: In, o: Out, power: float, kblock: int, gm: int, gn: int, nk: int, vm: int, vn: int, vk: int
) -> None:
    """The online recurrence over blocks of `kblock` keys: maximum, sum and values of every row in temporaries."""
    masks = _Masks(False, None, None, power)
    top, new, total, fade, added = (L.temp(B, H, Lq) for _ in range(5))
    mixed = L.temp(B, H, Lq, P)
    for b, h, r in grid(q.each(0), q.each(1), q.rows()):
        top[b, h, r] <<= -65504.0
        total[b, h, r] <<= 0.0
    for b, h, r in grid(mixed.each(0), mixed.each(1), mixed.rows()):
        mixed[b, h, r] <<= 0.0

    def block(keys: DimExpr | int, key_tile: Position, chunk: Position) -> None:
        s, p, part = L.temp(B, H, Lq, keys), L.temp(B, H, Lq, keys), L.temp(B, H, Lq, P)
        _scores(q, k, s, 0, key_tile, gm, gn, nk)
        for b, h, r in grid(s.each(0), s.each(1), s.rows()):
            new[b, h, r] <<= L.maximum(top[b, h, r], L.row_max(masks.logits(s[b, h, r], b, h, r)))
        for b, h, r in grid(s.each(0), s.each(1), s.rows()):
            e = L.exp2(masks.logits(s[b, h, r], b, h, r) - new[b, h, r])
            p[b, h, r] <<= e
            added[b, h, r] <<= L.row_sum(e)
            fade[b, h, r] <<= L.exp2(top[b, h, r] - new[b, h, r])
        for b, h, r in grid(s.each(0), s.each(1), s.rows()):
            total[b, h, r] <<= L.fma(total[b, h, r], fade[b, h, r], added[b, h, r])
            top[b, h, r] <<= new[b, h, r]
        _values(p, v, part, 0, chunk, vm, vn, vk, False)
        for b, h, r in grid(part.each(0), part.each(1), part.rows()):
            mixed[b, h, r] <<= L.fma(mixed[b, h, r], fade[b, h, r], part[b, h, r])

    unit = lcm(gn * LANES, vk * KBLOCK)
    keys = -(-kblock // unit) * unit
    key_tiles, chunks = keys // (LANES * gn), keys // (KBLOCK * vk)
    full = Lk // keys
    for n in sweep(full):
        block(keys, n * key_tiles, n * chunks)
    for _ in sweep(-(-Lk // keys) - full):
        block(Lk % keys, full * key_tiles, full * chunks)
    for b, h, r in grid(mixed.each(0), mixed.each(1), mixed.rows()):
        o[b, h, r] <<= mixed[b, h, r] * L.recip(total[b, h, r])


@kernel(tune=_tune)
def flash_attention(
    q=L.In(B, H, Lq, D),
    k=L.In(B, G, Lk, D),
    v=L.In(B, G, Lk, P),
    keep=L.In(B, Lk, optional=True),
    bias=L.In(Bb, Hb, Lq, Lk, optional=True),
    o=L.Out(B, H, Lq, P),
    *,
    causal=False,
    scale=1.0,
    qblock=0,
    kblock=0,
    gm=4,
    gn=8,
    nk=2,
    vm=4,
    vn=4,
    vk=2,
):
    """o = softmax(scale * q @ k.T + bias) @ v over the keys that a row may see.

    q (B, H, Lq, D), k (B, G, Lk, D), v (B, G, Lk, P); query head h uses head h // (H / G) of k and v, so G = H is
    plain attention, G = 1 multi-query, and anything between grouped. keep (B, Lk): a key counts where it is not 0, in
    any pattern. causal: row i sees the keys up to i + Lk - Lq (the ends are aligned: the last row sees them all). bias
    (B or 1, H or 1, Lq, Lk) is added to the scaled scores. scale: 1/sqrt(D) unless given. A row that sees no key is 0.

    The softmax is that of a whole row of scores, which is the definition itself: no running maximum, no rescaling of
    partial sums, one rounding of each weight. What the online recurrence saves elsewhere is the memory for the scores;
    here `qblock` bounds it: rows of q are handled in blocks of at most so many (whole tiles, 4 rows at least; 0: all
    at once; left out: what keeps a temporary within 64 MiB) that use the same temporaries one after another. A row's
    bits depend neither on its block nor on a tile knob.

    Scores are FP16 before they are scaled: a product of q and k beyond 65504 saturates, which the device counts.

    kblock: where not 0, and there is no mask and no bias, the online recurrence over blocks of so many keys takes the
    place of whole rows (`online_attention`). Left out it is 0, except on a machine with r2_vc_quant, where that form
    needs no memory between q, k, v and o.
    """
    masks = _Masks(causal, keep, bias, scale * LOG2_E)
    if kblock and not masks.any and bias is None:
        _online(q, k, v, o, scale * LOG2_E, kblock, gm, gn, nk, vm, vn, vk)
        return

    def block(rows: DimExpr | int, row_tile: Position, out_tile: Position, first: Position) -> None:
        s, p = L.temp(B, H, rows, Lk), L.temp(B, H, rows, Lk)
        _scores(q, k, s, row_tile, 0, gm, gn, nk)
        for b, h, r in grid(s.each(0), s.each(1), s.rows()):
            logit = masks.logits(s[b, h, r], b, h, r + first)
            top = L.row_max(logit)
            e = L.exp2(logit - (L.maximum(top, NOTHING) if masks.any else top))
            # The largest weight is 1, so a sum below 1 is that of a row without a key, and is 0.
            total = L.row_sum(e)
            p[b, h, r] <<= e * L.recip(L.maximum(total, 1.0) if masks.any else total)
        _values(p, v, o, out_tile, 0, vm, vn, vk, causal)

    if not qblock:
        block(Lq, 0, 0, 0)
        return
    gm, vm = (_at_most(g, qblock // LANES) for g in (gm, vm))
    unit = lcm(gm, vm) * LANES
    rows = max(1, qblock // unit) * unit
    row_tiles, out_tiles = rows // (LANES * gm), rows // (LANES * vm)
    full = Lq // rows
    for n in sweep(full):
        block(rows, n * row_tiles, n * out_tiles, n * rows)
    for _ in sweep(-(-Lq // rows) - full):
        block(Lq % rows, full * row_tiles, full * out_tiles, full * rows)


@kernel(tune=_online_tune)
def online_attention(
    q=L.In(B, H, Lq, D),
    k=L.In(B, G, Lk, D),
    v=L.In(B, G, Lk, P),
    o=L.Out(B, H, Lq, P),
    *,
    scale=1.0,
    kblock=64,
    gm=4,
    gn=8,
    nk=2,
    vm=4,
    vn=4,
    vk=2,
):
    """o = softmax(scale * q @ k.T) @ v, a block of keys at a time: the running maximum, sum and values of every row are
    temporaries that each block rescales. Shapes as in `flash_attention`.

    kblock keys (rounded up to whole tiles and chunks) bound the memory for scores. The running values are rounded to
    FP16 once per block, so bits depend on kblock; `flash_attention` is the more exact form and bounds its memory as
    well. On a machine with r2_vc_quant no temporary leaves the chip: scores go from a cluster into a core's L1, weights
    from the core quantised into the cluster's, and only q, k, v and o are in memory.
    """
    _online(q, k, v, o, scale * LOG2_E, kblock, gm, gn, nk, vm, vn, vk)


@kernel(tune=tile_of("M", "P", "K", each=("B", "H")))
def split_heads(x=L.In(B, M, K), w=L.In(H, P, K), y=L.Out(B, H, M, P), *, gm=2, gn=4, nk=2):
    """y[b, h] = x[b] @ w[h].T: a projection that leaves every head in a matrix of its own, as attention reads it."""
    for b, h, i, j in grid(x.each(0), w.each(0), x.tiles(gm), w.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for k in sweep(x.chunks32(nk)):
            acc += x[b, i, k] @ w[h, j, k]
        y[b, h, i, j] <<= acc


def _merge_tune(machine: Machine, sizes: Mapping[str, int]) -> dict[str, object]:
    return {"heads": sizes["H"], **tile_of("M", "N", "P", each=("B",), folded=("H",))(machine, sizes)}


@kernel(tune=_merge_tune)
def merge_heads(
    o=L.In(B, H, M, P),
    w=L.In(H, N, P),
    residual=L.In(B, M, N, optional=True),
    bias=L.In(N, optional=True),
    y=L.Out(B, M, N),
    *,
    heads=1,
    gm=2,
    gn=4,
    nk=2,
):
    """y[b] = sum over h of o[b, h] @ w[h].T (+ bias) (+ residual): the projection behind attention, heads summed in
    one accumulator.

    heads is H, from the operands.
    """
    for b, i, j in grid(o.each(0), o.tiles(gm), w.tiles(gn)):
        acc = L.tile(gm, gn, nk)
        for h in range(heads):
            for k in sweep(o.chunks32(nk)):
                acc += o[b, h, i, k] @ w[h, j, k]
        value = acc if bias is None else acc + bias[j]
        y[b, i, j] <<= value if residual is None else value + residual[b, i, j]
