"""The multiplier array and accumulator of a cluster: one block of sub-tiles over all K blocks of a sweep.

Decides the bits of block dot, partial and accumulation (datasheet 2.4). It must not know instructions, L1 or
banks: it is handed operand panels. The code is generated as vector IR, because a portable loop leaves half of
the speed to the vectoriser's mood; the IR itself is portable, LLVM splits vectors to what the host has.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 4
KBLOCK = 32
SUBTILE = LANES * LANES
WIDTH = 16 if llvm.get_host_cpu_features().get("avx512f", False) else 8  # float32 lanes of one vector
VECTORS = 2  # vectors of one row of the block
COLUMNS = WIDTH * VECTORS  # columns of one block
BLOCK = COLUMNS // LANES  # sub-tiles of one block
UNROLL = 8  # k steps per trip of the inner loop

F32, F64 = ir.FloatType(), ir.DoubleType()
I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
V32, V64 = ir.VectorType(F32, WIDTH), ir.VectorType(F64, WIDTH)
VI32, VI64 = ir.VectorType(I32, WIDTH), ir.VectorType(I64, WIDTH)
Value = Any  # an llvmlite value


def _splat_const(vector: Any, value: Any) -> Value:
    return ir.Constant(vector, [value] * WIDTH)


def _splat(b: Any, scalar: Value) -> Value:
    one = b.insert_element(ir.Constant(V32, ir.Undefined), scalar, I32(0))
    return b.shuffle_vector(one, ir.Constant(V32, ir.Undefined), ir.Constant(VI32, [0] * WIDTH))


def _load(b: Any, base: Value, index: Value, kind: Any) -> Value:
    at = b.bitcast(b.gep(base, [index]), kind.as_pointer())
    return b.load(at, align=1 if kind.element == I8 else 4)


def _call(b: Any, name: str, args: list[Value]) -> Value:
    kind = args[0].type
    scalar = "f32" if kind.element == F32 else "f64"
    fnty = ir.FunctionType(kind, [kind] * len(args))
    return b.call(cgutils.get_or_insert_function(b.module, fnty, f"llvm.{name}.v{WIDTH}{scalar}"), args)


def _shuffle(b: Any, x: Value, y: Value, picks: list[int]) -> Value:
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(picks)), picks))


def _concat(b: Any, parts: list[Value]) -> Value:
    while len(parts) > 1:
        n = parts[0].type.count
        parts = [_shuffle(b, x, y, list(range(2 * n))) for x, y in zip(parts[::2], parts[1::2])]
    return parts[0]


def _regroup(b: Any, sub: list[Value]) -> list[Value]:
    """Rows [row][vector] of a 4 x COLUMNS block from BLOCK pieces of 4x4, each a vector [row][lane]."""
    per = WIDTH // LANES
    rows: list[Value] = []
    for i in range(LANES):
        lane = list(range(LANES * i, LANES * i + LANES))
        for v in range(VECTORS):
            group = sub[v * per : (v + 1) * per]
            pairs = [_shuffle(b, x, y, lane + [SUBTILE + k for k in lane]) for x, y in zip(group[::2], group[1::2])]
            rows.append(_concat(b, pairs))
    return rows


def _store_rows(b: Any, tile: Value, rows: list[Value]) -> None:
    per = WIDTH // LANES
    for v in range(VECTORS):
        for h in range(per):
            lane = list(range(LANES * h, LANES * h + LANES))
            r = [rows[i * VECTORS + v] for i in range(LANES)]
            low = _shuffle(b, r[0], r[1], lane + [WIDTH + k for k in lane])
            high = _shuffle(b, r[2], r[3], lane + [WIDTH + k for k in lane])
            at = b.gep(tile, [I64(SUBTILE * (v * per + h))])
            whole = _concat(b, [low, high])
            b.store(whole, b.bitcast(at, whole.type.as_pointer()), align=4)


def _partial(b: Any, dot: Value, scale: Value) -> Value:
    """rnd22(dot * scale) as float32.

    The product has up to 25 bits, so it is never formed: f = fl(dot*scale) only tells the exponent e, and
    C = 1.5 * 2^(e+9) has ulp 2^(e-14), the weight of the 15th significant bit. fma(dot, scale, C) adds the exact
    product once, rounded to nearest even at that weight (C is an even multiple of it, and |product| <= 2^(e+1)
    keeps the sum in C's binade), and subtracting C is exact. When f rounded up to the next power of two, the
    product is within 2^-25 of it and both choices of e give that power. Zero gives C - C = +0.
    The exponent stays in 23..103 of FP22, so neither end of any format is near.
    """
    product = b.fmul(dot, scale)
    bits = b.and_(b.bitcast(product, VI32), _splat_const(VI32, 0x7F800000))
    magic = b.bitcast(b.add(bits, _splat_const(VI32, (9 << 23) | (1 << 22))), V32)
    return b.fsub(_call(b, "fma", [dot, scale, magic]), magic)


def _add(b: Any, tile: Value, partial: Value) -> Value:
    """rnd22(tile + partial) in float64.

    Both terms have at most 15 significant bits. If their exponents differ by at most 37, the sum spans at most
    15 + 37 + 1 = 53 bits and is exact in float64. If they differ by more, the smaller term is below 2^-22 of the
    larger one's 15-bit ulp, and the larger one lies on the 15-bit grid, at least a quarter ulp from any midpoint:
    the exact sum and float64's rounded one both stay within 2^-21 ulp of it and round back to it. Then nearest
    even as in `_partial`, with C = 1.5 * 2^(e+38).

    Neither end of FP22 needs a select. |partial| < 2^41, so below 2^57 the sum stays below 2^58, and from there
    on, saturated values included, the partial is under a quarter ulp and the tile keeps its value. A partial is
    zero or a multiple of 2^-46 of at least 2^-40, and a tile value that almost cancels it has an ulp of at least
    2^-55, so a sum is zero or stays above 2^-62 (a tile value already is).
    """
    total = b.fadd(tile, partial)
    bits = b.and_(b.bitcast(total, VI64), _splat_const(VI64, 0x7FF0000000000000))
    magic = b.bitcast(b.add(bits, _splat_const(VI64, (38 << 52) | (1 << 51))), V64)
    return b.fsub(b.fadd(total, magic), magic)


def _emit_block(b: Any, a: Value, ascale: Value, bp: Value, bscale: Value, tile: Value, nk: Value) -> None:
    """The whole block: for every K block, 4 x COLUMNS dots, partials and adds; the tile stays in registers."""
    count = LANES * VECTORS
    sub = [_load(b, tile, I64(SUBTILE * h), ir.VectorType(F32, SUBTILE)) for h in range(BLOCK)]
    start = [b.fpext(row, V64) for row in _regroup(b, sub)]
    entry, fn = b.block, b.function
    outer, inner, after, done = (fn.append_basic_block(f"sweep.{x}") for x in ("kb", "k", "add", "done"))
    b.branch(outer)

    b.position_at_end(outer)
    kb = b.phi(I64)
    kb.add_incoming(I64(0), entry)
    tiles = [b.phi(V64) for _ in range(count)]
    for phi, value in zip(tiles, start):
        phi.add_incoming(value, entry)
    a_block = b.gep(a, [b.mul(kb, I64(LANES * KBLOCK))])
    b_block = b.gep(bp, [b.mul(kb, I64(KBLOCK * COLUMNS))])
    b.branch(inner)

    b.position_at_end(inner)
    k = b.phi(I64)
    k.add_incoming(I64(0), outer)
    dots = [b.phi(V32) for _ in range(count)]
    for phi in dots:
        phi.add_incoming(_splat_const(V32, 0.0), outer)
    sums: list[Value] = list(dots)
    a_at, b_at = b.gep(a_block, [k]), b.gep(b_block, [b.mul(k, I64(COLUMNS))])
    for u in range(UNROLL):
        right = [_load(b, b_at, I64(u * COLUMNS + v * WIDTH), V32) for v in range(VECTORS)]
        for i in range(LANES):
            left = _splat(b, b.load(b.gep(a_at, [I64(i * KBLOCK + u)]), align=4))
            for v in range(VECTORS):
                # Products and sums are integers of at most 127,008 < 2^24, so contraction changes nothing.
                product = b.fmul(left, right[v], flags=("contract",))
                sums[i * VECTORS + v] = b.fadd(sums[i * VECTORS + v], product, flags=("contract",))
    k_next = b.add(k, I64(UNROLL))
    k.add_incoming(k_next, inner)
    for phi, value in zip(dots, sums):
        phi.add_incoming(value, inner)
    b.cbranch(b.icmp_signed("<", k_next, I64(KBLOCK)), inner, after)

    b.position_at_end(after)
    as_at, bs_at = b.gep(ascale, [b.mul(kb, I64(LANES))]), b.gep(bscale, [b.mul(kb, I64(COLUMNS))])
    rounded: list[Value] = []
    for i in range(LANES):
        scale = _splat(b, b.load(b.gep(as_at, [I64(i)]), align=4))
        for v in range(VECTORS):
            both = b.fmul(scale, _load(b, bs_at, I64(v * WIDTH), V32))  # at most 8 bits: exact
            at = i * VECTORS + v
            rounded.append(_add(b, tiles[at], b.fpext(_partial(b, sums[at], both), V64)))
    kb_next = b.add(kb, I64(1))
    kb.add_incoming(kb_next, after)
    for phi, value in zip(tiles, rounded):
        phi.add_incoming(value, after)
    b.cbranch(b.icmp_signed("<", kb_next, nk), outer, done)

    b.position_at_end(done)
    _store_rows(b, tile, [b.fptrunc(x, V32) for x in rounded])


def _emit_columns(b: Any, image: Value, stride: Value, last: Value, panel: Value) -> None:
    """BLOCK entries ([k][lane] int8) into panel rows [k][COLUMNS] float32; groups past `last` repeat it."""
    entry, fn = b.block, b.function
    base = [
        b.gep(image, [b.mul(b.select(b.icmp_signed("<", I64(h), last), I64(h), last), stride)]) for h in range(BLOCK)
    ]
    loop, done = fn.append_basic_block("columns.k"), fn.append_basic_block("columns.done")
    b.branch(loop)
    b.position_at_end(loop)
    quad = b.phi(I64)
    quad.add_incoming(I64(0), entry)
    at = b.mul(quad, I64(SUBTILE))
    rows = _regroup(b, [_load(b, piece, at, ir.VectorType(I8, SUBTILE)) for piece in base])
    out = b.gep(panel, [b.mul(quad, I64(LANES * COLUMNS))])
    for index, row in enumerate(rows):
        to = b.bitcast(b.gep(out, [I64(index * WIDTH)]), V32.as_pointer())
        b.store(b.sitofp(b.sext(row, VI32), V32), to, align=4)
    after = b.add(quad, I64(1))
    quad.add_incoming(after, loop)
    b.cbranch(b.icmp_signed("<", after, I64(KBLOCK // LANES)), loop, done)
    b.position_at_end(done)


def _data(context: Any, builder: Any, sig: Any, args: Any, position: int, element: Any = F32) -> Value:
    array = context.make_array(sig.args[position])(context, builder, args[position])
    return builder.bitcast(array.data, element.as_pointer())


def _pack_columns(typingctx: Any, image: Any, at: Any, stride: Any, count: Any, panel: Any, to: Any) -> Any:
    """pack_columns(image, at, stride, count, panel, to): one K block of BLOCK B groups as a float32 panel.

    image[at + h*stride:] int8 is the [k][lane] entry of group h; panel[to:] receives [32][COLUMNS]. Groups from
    `count` (1..BLOCK) on repeat the last one: their columns are computed and thrown away.
    """
    num = types.int64
    image_type, panel_type = types.Array(types.int8, 1, "C"), types.Array(types.float32, 1, "C")
    signature = types.void(image_type, num, num, num, panel_type, num)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _emit_columns(
            builder,
            builder.gep(_data(context, builder, sig, args, 0, I8), [args[1]]),
            args[2],
            builder.sub(args[3], I64(1)),
            builder.gep(_data(context, builder, sig, args, 4), [args[5]]),
        )
        return context.get_dummy_value()

    return signature, generate


def _sweep_block(
    typingctx: Any, panel: Any, a: Any, ascale: Any, b: Any, bscale: Any, tile: Any, at: Any, nk: Any
) -> Any:
    """sweep_block(panel, a, ascale, b, bscale, tile, at, nk): one A group against BLOCK B groups.

    Positions in panel (float32): a of [nk][4][32] elements, ascale of [nk][4] scales, b of [nk][32][COLUMNS],
    bscale of [nk][COLUMNS]. tile[at:] are BLOCK sub-tiles of 16, updated in place by
    tile = rnd22(tile + rnd22(dot * ascale * bscale)) for each K block in order.
    """
    vec, num = types.Array(types.float32, 1, "C"), types.int64
    signature = types.void(vec, num, num, num, num, vec, num, num)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        base = _data(context, builder, sig, args, 0)
        a_at, as_at, b_at, bs_at = (builder.gep(base, [args[i]]) for i in range(1, 5))
        tile_at = builder.gep(_data(context, builder, sig, args, 5), [args[6]])
        _emit_block(builder, a_at, as_at, b_at, bs_at, tile_at, args[7])
        return context.get_dummy_value()

    return signature, generate


# numba supplies the typing context, so callers see one argument less than the definitions have.
pack_columns: Any = intrinsic(_pack_columns)
sweep_block: Any = intrinsic(_sweep_block)
