"""One compiled cluster on a small machine, poked and stepped by tests, and block arithmetic in numpy integers.

The arithmetic here is int64 and exact; it shares nothing with the unit models.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.machine import Machine
from kohakutpu import machines
from kohakutpu.isa.cluster import CLUSTER
from kohakutpu.units import state

Ints = NDArray[np.int64]


class Unit:
    """A cluster of `machine` (default mini) with its own memory; DRAM is `size` bytes per mesh."""

    def __init__(self, machine: Machine | None = None, u: int = 0, size: int = 1 << 20) -> None:
        from kohakutpu.units import cluster

        self.machine = machine or machines.load("mini")
        self.code, self.u, self.policy = cluster, u, 0
        self.cl = cluster.make_clusters(self.machine)
        self.mem = state.make_memory([size] * len(self.machine.meshes))
        self.out = state.make_outbox()
        self.note = np.zeros(state.NOTE_WORDS, np.int64)

    def step(self, op: int, **fields: int) -> int:
        """Execute one instruction; fields as the format names them."""
        table = CLUSTER.encode_table(1, op=op, **fields)
        self.note[:] = 0
        self.out.used[:] = 0
        row = np.ascontiguousarray(CLUSTER.decode_table(table)[0])
        return int(self.code.cluster_step(self.cl, self.mem, self.out, self.u, row, self.policy, self.note))

    def fill(self, **fields: int) -> int:
        return self.step(1, **fields)

    def gemm(self, gm: int, gn: int, nk: int, **fields: int) -> int:
        return self.step(2, gm=gm, gn=gn, nk=nk, **fields)

    def drain(self, n: int, **fields: int) -> int:
        return self.step(3, n=n, **fields)

    def receive(self, buf: int, offset: int, data: NDArray[np.uint64]) -> int:
        return int(self.code.cluster_receive(self.cl, self.u, buf, offset, data, len(data)))

    def told(self) -> list[int]:
        """note[1:5]: the code and the first details."""
        return [int(v) for v in self.note[1:5]]

    def poke(self, addr: int, halves: Any) -> None:
        """Host data: uint16 halves at a byte address, whole words."""
        data = np.asarray(halves, np.uint16).ravel()
        self.mem.half[addr // 2 : addr // 2 + data.size] = data
        self.mem.written[addr // 32 : addr // 32 + data.size // 16] = 1

    def peek(self, addr: int, n: int) -> NDArray[np.uint16]:
        """n sub-tiles [n, 16] of halves."""
        return self.mem.half[addr // 2 : addr // 2 + 16 * n].reshape(n, 16).copy()

    def put(self, side: int, first: int, q: Any, scale: Any) -> None:
        """Entries straight into L1: q int [n, 4, 32], scale byte [n, 4]."""
        q, scale = np.asarray(q, np.int8), np.asarray(scale, np.uint8)
        n = len(q)
        image = q if side == 0 else q.transpose(0, 2, 1)
        self.cl.q8[self.u, side, 128 * first : 128 * (first + n)] = image.reshape(-1)
        self.cl.scale[self.u, side, 4 * first : 4 * (first + n)] = scale.reshape(-1)
        self.cl.valid[self.u, side, first : first + n] = 1

    def entry(self, side: int, e: int) -> tuple[NDArray[np.int8], list[int]]:
        """(q [4, 32], scale bytes) of an L1 entry."""
        image = self.cl.q8[self.u, side, 128 * e : 128 * (e + 1)]
        q = image.reshape(4, 32) if side == 0 else image.reshape(32, 4).T
        return q, [int(s) for s in self.cl.scale[self.u, side, 4 * e : 4 * (e + 1)]]

    def set_tile(self, codes: Any, gm: int, gn: int) -> None:
        """Open the tile by shape (gm, gn) with FP22 codes [gm*gn, 16]."""
        from kohakutpu.units import cluster_state as cs

        values = value22(np.asarray(codes, np.int64).ravel())
        self.cl.tile[self.u, : values.size] = values
        self.cl.reg[self.u, [cs.OPEN_GM, cs.OPEN_GN, cs.OPEN_COUNT]] = gm, gn, gm * gn

    def tile(self, n: int) -> Ints:
        """FP22 codes [n, 16] of the first n sub-tiles."""
        return code22(self.cl.tile[self.u, : 16 * n]).reshape(n, 16)


def value22(code: Ints) -> NDArray[np.float32]:
    m, e = parts22(code)
    return np.ldexp(m.astype(np.float64), e.astype(np.int32)).astype(np.float32)


def code22(value: NDArray[np.float32]) -> Ints:
    """Codes of float32 values that are FP22 values; anything else fails an assertion."""
    mantissa, e = np.frexp(np.abs(value).astype(np.float64))
    m = mantissa * 32768
    assert np.array_equal(m, np.floor(m)), "more than 15 significant bits"
    assert not np.signbit(value[value == 0]).any(), "negative zero"
    b = np.where(value == 0, 0, e + 62).astype(np.int64)
    assert b.max(initial=0) <= 127
    assert b[value != 0].min(initial=1) >= 1
    sign = (value < 0).astype(np.int64)
    return np.where(value == 0, 0, sign << 21 | b << 14 | (m.astype(np.int64) - 16384))


def parts22(code: Ints) -> tuple[Ints, Ints]:
    """(signed 15-bit integer, exponent of its unit); exponent field 0 is zero."""
    b, m = code >> 14 & 127, 16384 + (code & 0x3FFF)
    m = np.where(code >> 21 & 1, -m, m)
    return np.where(b == 0, 0, m), b - 77


def length(x: Ints) -> Ints:
    """bit_length of non-negative int64."""
    n, rest = np.zeros_like(x), x.copy()
    for s in (32, 16, 8, 4, 2, 1):
        big = rest >> s > 0
        n += np.where(big, s, 0)
        rest = np.where(big, rest >> s, rest)
    return n + (rest > 0)


def rnd22(x: Ints, e: Ints) -> Ints:
    """Codes of x * 2**e: nearest even at 15 bits, then both ends of the format (datasheet 2.4)."""
    size = np.abs(x)
    drop = np.maximum(length(size) - 15, 0)
    half = np.where(drop > 0, np.int64(1) << np.maximum(drop - 1, 0), 0)
    kept, rest = size >> drop, size & ((np.int64(1) << drop) - 1)
    kept = kept + ((rest > half) | ((rest == half) & (drop > 0) & (kept & 1 == 1)))
    up = length(kept) - 15  # negative for short values, 1 after a carry to 2^15
    m = np.where(up > 0, kept >> 1, kept << np.maximum(-up, 0))
    b = e + drop + up + 77
    sign = (x < 0).astype(np.int64) << 21
    code = sign | b << 14 | (m - 16384)
    code = np.where(b >= 127, sign | 0x1FFFFF, code)
    return np.where((b <= 0) | (x == 0), 0, code)


def partial22(d: Ints, a: Ints, b: Ints) -> Ints:
    """Codes of the partials of dots d with scale bytes a and b."""
    return rnd22(d * (8 + (a & 7)) * (8 + (b & 7)), (a >> 3) + (b >> 3) - 46)


def add22(a: Ints, b: Ints) -> Ints:
    """Codes of the sums. Beyond a gap of 40 the smaller term is only its sign, far below any midpoint."""
    ma, ea = parts22(a)
    mb, eb = parts22(b)
    ea, eb = np.where(ma == 0, eb, ea), np.where(mb == 0, ea, eb)
    swap = eb > ea
    mh, ml = np.where(swap, mb, ma), np.where(swap, ma, mb)
    eh, gap = np.maximum(ea, eb), np.abs(ea - eb)
    near = gap <= 40
    shift = np.where(near, gap, 40)
    small: Ints = np.where(near, ml, np.sign(ml)).astype(np.int64)
    return rnd22((mh << shift) + small, eh - shift)


def gemm22(a: Any, sa: Any, b: Any, sb: Any, nk: int, tile: Ints | None = None) -> Ints:
    """Sub-tile codes [gm*gn, 16] of entries a [gm*nk, 4, 32] and b [gn*nk, 4, 32] (5.3), added to `tile`."""
    gm, gn = len(a) // nk, len(b) // nk
    a, b = np.asarray(a, np.int64).reshape(gm, nk, 4, 32), np.asarray(b, np.int64).reshape(gn, nk, 4, 32)
    sa, sb = np.asarray(sa, np.int64).reshape(gm, nk, 4), np.asarray(sb, np.int64).reshape(gn, nk, 4)
    total = None if tile is None else tile.reshape(gm, gn, 4, 4)
    for kb in range(nk):
        d = np.einsum("gik,hjk->ghij", a[:, kb], b[:, kb])
        p = partial22(d, sa[:, kb][:, None, :, None], sb[:, kb][None, :, None, :])
        total = p if total is None else add22(total, p)
    assert total is not None
    return total.reshape(gm * gn, 16)


def random_entries(rng: np.random.Generator, n: int) -> tuple[NDArray[np.int8], NDArray[np.uint8]]:
    """Elements of every magnitude and scales that meet within the accumulator's precision."""
    q = rng.integers(-63, 64, (n, 4, 32)) >> rng.integers(0, 6, (n, 4, 1))
    return q.astype(np.int8), rng.integers(100, 180, (n, 4)).astype(np.uint8)
