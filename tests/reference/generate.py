"""Random programs for the differential tests: values, cluster instructions, vector programs.

Seeded `random.Random` in, bits out. Most programs are valid; some end in one fault. It must not know the
compiled models.
"""

from __future__ import annotations

from random import Random

from . import encode as enc
from .cluster import Cluster
from .formats import SIGN, mul8
from .memory import Memory, from_halves
from .vector import LAST_ALU, USES_B, USES_C, VectorCore

# --- values ---


def half(rng: Random, nonfinite: bool = False) -> int:
    """An FP16 code: mostly ordinary numbers, some zeros, subnormals and extremes."""
    pick = rng.random()
    if nonfinite and pick < 0.01:
        return rng.choice([0x7C00, 0xFC00, 0x7E00, 0xFFFF, 0x7C01])
    if pick < 0.08:
        return rng.choice([0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0xFBFF, 0x3C00])
    if pick < 0.2:
        code = rng.getrandbits(16)
        return code & 0xBFFF if code & 0x7C00 == 0x7C00 else code
    exponent = min(30, max(0, int(rng.gauss(14, 2))))
    return rng.getrandbits(1) << 15 | exponent << 10 | rng.getrandbits(10)


def half_block(rng: Random, nonfinite: bool = False) -> list[int]:
    """128 halves of one FP16 entry; now and then a scale at the edge of the range."""
    style = rng.random()
    if style < 0.1:
        return [rng.choice([0, 0x8000]) for _ in range(128)]
    if style < 0.25:
        low = rng.choice([0, 1, 2, 24, 27])
        return [rng.getrandbits(1) << 15 | (low + rng.randrange(4)) << 10 | rng.getrandbits(10) for _ in range(128)]
    return [half(rng, nonfinite) for _ in range(128)]


def e8(rng: Random) -> int:
    """An E8M15 code: ordinary values, specials, exponent 0 with a mantissa, any bits."""
    pick = rng.random()
    if pick < 0.15:
        return rng.choice(
            [
                0,
                SIGN,
                0x3F8000,
                0xBF8000,
                0x7F8000,
                0xFF8000,
                0x7FC000,
                0xFF8001,
                0x000001,
                0x807FFF,
                0x008000,
                0x7F7FFF,
                0xFF7FFF,
                0x808000,
                0x477FE0,
                0x388000,
                0x337FFF,
                0x430000,
                0xC2FC00,
            ]
        )
    if pick < 0.3:
        return rng.getrandbits(24)
    sign, mantissa = rng.getrandbits(1) << 23, rng.getrandbits(15)
    if pick < 0.4:
        mantissa &= 0x7F00 | 1
    return sign | min(254, max(1, int(rng.gauss(127, 4)))) << 15 | mantissa


def packed_words(rng: Random) -> list[int]:
    """Four words of a quantised entry with any scale bytes and q in [-63, 63]."""
    words: list[int] = []
    scales = sum((rng.getrandbits(8) if rng.random() < 0.2 else 0x58 + rng.randrange(48)) << 8 * i for i in range(4))
    for _ in range(4):
        word = scales
        for slot in range(32):
            word |= (rng.randrange(-63, 64) & 0x7F) << (249 - 7 * slot)
        words.append(word)
    return words


def fp22_tile(rng: Random) -> list[int]:
    """A sub-tile of FP22 codes: ordinary, tiny, huge, zero and the saturation pattern."""
    out: list[int] = []
    for _ in range(16):
        pick = rng.random()
        exponent = rng.randrange(1, 127) if pick < 0.1 else rng.randrange(55, 90)
        code = rng.getrandbits(1) << 21 | exponent << 14 | rng.getrandbits(14)
        out.append(rng.choice([0, 0x1FFFFF, 0x3FFFFF, 0x4000]) if pick > 0.95 else code)
    return out


# --- clusters ---

FP16_ENTRIES = 96  # at byte 0
PREQ_BASE = 0x10000
PREQ_ENTRIES = 96
DRAIN_BASE = 0x20000


def seed_memory(rng: Random, memory: Memory, nonfinite: bool) -> None:
    """FP16 entries at 0, quantised entries at PREQ_BASE."""
    for e in range(FP16_ENTRIES):
        block = half_block(rng, nonfinite)
        for w in range(8):
            memory.store(256 * e + 32 * w, from_halves(block[16 * w : 16 * w + 16]))
    for e in range(PREQ_ENTRIES):
        for w, word in enumerate(packed_words(rng)):
            memory.store(PREQ_BASE + 128 * e + 32 * w, word)


def _run_of(rng: Random, have: dict[int, object], bank: int, count: int) -> int | None:
    """A random offset of `count` written entries in a bank, or None."""
    spots = [
        o for o in range(256 - count + 1) if all(256 * bank + i in have for i in range(o, o + count))
    ]  # fmt: skip
    return rng.choice(spots) if spots else None


def fill_instruction(rng: Random, unit: Cluster) -> int:
    sel, bank, preq = rng.getrandbits(1), rng.getrandbits(1), rng.getrandbits(1)
    n = rng.choice([1, 2, 3, 4, 8, 16, rng.randrange(1, 40)])
    eoff = rng.choice([0, 0, 16, 40, 256 - n, rng.randrange(64)])
    live_first, live_count = unit.live.get((sel, bank), (0, 0))
    if rng.random() < 0.9 and eoff < live_first + live_count and live_first < eoff + n:
        bank = 1 - bank
    if preq:
        addr = PREQ_BASE + 128 * rng.randrange(PREQ_ENTRIES - n)
    else:
        addr = 256 * rng.randrange(FP16_ENTRIES - n)
        # An entry need not be 256-aligned, only inside its page.
        if n == 1 and addr % 4096 <= 2048:
            addr += 32 * rng.randrange(4)
    return enc.fill(addr, n, sel, preq=preq, eoff=eoff, fbank=bank)


def gemm_instruction(rng: Random, unit: Cluster, emit: int = 0, **destination: int) -> int | None:
    """A GEMM over entries that are there; None when no shape fits."""
    for _ in range(8):
        gm, gn, nk = rng.randrange(1, 6), rng.randrange(1, 6), rng.choice([1, 1, 2, 3, 4])
        acc = rng.getrandbits(1)
        if acc and unit.opened is not None:
            gm, gn = unit.opened
        elif rng.random() < 0.97:
            acc = 0
        if emit and not acc and nk == 1:
            nk = 2
        abank, bbank = rng.getrandbits(1), rng.getrandbits(1)
        a = _run_of(rng, dict(unit.l1[0]), abank, gm * nk)
        b = _run_of(rng, dict(unit.l1[1]), bbank, gn * nk)
        if a is not None and b is not None and gm * gn <= unit.tiles:
            return enc.gemm(gm, gn, nk, acc=acc, emit=emit, aoff=a, boff=b, abank=abank, bbank=bbank, **destination)
    return None


XY = tuple[int, int]


def cluster_instructions(rng: Random, unit: Cluster, vc: XY | None, mg: XY | None, base: int = DRAIN_BASE) -> list[int]:
    """One or two payloads that make sense for the unit's present state (some of them refused).

    Node drains go to the vector core `vc` and the cluster `mg`, drains to memory to 16 KiB at `base`.
    """
    pick = rng.random()
    if unit.queue or pick < 0.4:
        return [fill_instruction(rng, unit)]
    if pick < 0.65:
        payload = gemm_instruction(rng, unit)
        return [payload] if payload is not None else [fill_instruction(rng, unit)]
    addr = base + 256 * rng.randrange(64)
    node: dict[str, int] = {}
    if vc is not None and rng.random() < 0.4:
        node = {"dnode": 1, "dst_x": vc[0], "dst_y": vc[1], "dflags": int(rng.random() < 0.8)}
        node |= {"dack_x": 0, "dack_y": 1} if rng.random() < 0.8 else {}
        addr = 32 * rng.randrange(256)
    if pick < 0.8:
        payload = gemm_instruction(rng, unit, emit=1, addr=addr, **node)
        if payload is None:
            return [fill_instruction(rng, unit)]
        count = (payload >> 192 & 255) * (payload >> 184 & 255)
        return [payload, enc.drain(addr, count, fuse=1, **node)]
    opened = unit.open_tiles
    if opened == 0:
        return [fill_instruction(rng, unit)]
    if mg is not None and not node and rng.random() < 0.3:
        node = {"dnode": 1, "dst_x": mg[0], "dst_y": mg[1], "dbuf": 2, "dflags": rng.getrandbits(1)}
        node |= {"dack_x": 0, "dack_y": 1} if rng.getrandbits(1) else {}
        addr = 0
    n = min(opened, rng.choice([1, 2, 4, 8, 16, opened]))
    if rng.random() < 0.02:
        n = unit.tiles if opened < unit.tiles else n
    return [enc.drain(addr, n, **node)]


# --- vector programs ---

VFILL_WORDS = 600  # written words at byte 0
VDRAIN_BASE = 0x10000


def seed_vector_memory(rng: Random, memory: Memory) -> None:
    """Words that hold FP16 data, FP32 data or any bits."""
    for w in range(VFILL_WORDS):
        style = rng.random()
        if style < 0.5:
            word = from_halves([half(rng, True) for _ in range(16)])
        elif style < 0.8:
            word = sum((e8(rng) << 8 | rng.choice([0, 0x80, 0x7F, rng.getrandbits(8)])) << 32 * i for i in range(8))
        else:
            word = rng.getrandbits(256)
        memory.store(32 * w, word)


def seed_vector_state(rng: Random, unit: VectorCore) -> None:
    """Any bits in registers, predicates and L1."""
    unit.v = [[e8(rng) for _ in range(128)] for _ in range(16)]
    unit.s = [rng.getrandbits(24) if rng.getrandbits(1) else e8(rng) for _ in range(16)]
    unit.p = [[rng.getrandbits(1) for _ in range(128)] for _ in range(4)]
    unit.l1 = [from_halves([half(rng, True) for _ in range(16)]) for _ in range(512)]
    unit.written = set(range(512))


def _head(rng: Random, op: int) -> int:
    """A FLAT instruction or a chain's first word: V, S or K sources."""
    sources = [rng.choice([0, 0, 0, 1, 3]) for _ in range(3)]
    regs = [rng.randrange(16) for _ in range(3)]
    pm = rng.choice([0, 0, 0, 1, 2])
    return enc.alu(op, rng.randrange(16), *regs, *sources, pr=rng.randrange(4), pm=pm)


def _link(rng: Random, op: int) -> int:
    """A later word of a chain: C, S or K sources; unused selectors are K0."""
    used = [True, op in USES_B, op in USES_C]
    sources = [rng.choice([2, 2, 1, 3]) if u else 3 for u in used]
    regs = [rng.randrange(16) if u else 0 for u in used]
    pm = rng.choice([0, 0, 0, 1, 2])
    return enc.alu(op, rng.randrange(16), *regs, *sources, pr=rng.randrange(4), pm=pm)


def _alu(rng: Random, depth: int) -> list[int]:
    ops = [rng.randrange(LAST_ALU + 1) for _ in range(depth)]
    return [_head(rng, ops[0]), *(_link(rng, op) for op in ops[1:])]


def _anywhere(rng: Random) -> list[int]:
    """Non-ALU instructions that any mode takes. S14 and S15 are left alone: they hold lengths and counts."""
    pick = rng.randrange(8)
    reg = [rng.randrange(16) for _ in range(2)]
    if pick == 0:
        return [enc.vld(reg[0], rng.randrange(3), rng.randrange(-8, 40), rng.choice([1, 1, 2]))]
    if pick == 1:
        return [enc.vst(reg[0], rng.randrange(3), rng.randrange(-8, 40), rng.choice([1, 1, 2]))]
    if pick == 2:
        return [enc.vcvt(reg[0], reg[1], rng.choice([1, 1, 2]))]
    if pick == 3:
        return [enc.vbcast(reg[0], reg[1], 1)] if rng.getrandbits(1) else [enc.vbcast(rng.randrange(14), reg[1], 0)]
    if pick == 4:
        return [enc.vshuf(reg[0], reg[1], rng.randrange(16))]
    if pick == 5:
        return enc.vseti_k3(e8(rng)) if rng.random() < 0.2 else enc.vseti(rng.randrange(14), e8(rng))
    if pick == 6:
        return [enc.vred(rng.randrange(14), rng.choice([6, 7]), pr=rng.randrange(4))]
    return [enc.VBAR]


def _vl(rng: Random, tree: bool) -> list[int]:
    vl = rng.choice([128, 16, 1, 17, 64, rng.randrange(1, 129)])
    if tree:
        vl = max(16, vl // 16 * 16)
    return [*enc.vseti(15, vl), enc.vsetvl(15)]


def _segment(rng: Random) -> list[int]:
    """A mode change and a few instructions of that mode."""
    mode = rng.choice([0, 0, 1, 2, 3])
    out = [*_vl(rng, mode == 3), enc.vsetmode(mode)]
    for _ in range(rng.randrange(1, 7)):
        if rng.random() < 0.35:
            out += _anywhere(rng)
        elif mode == 3:
            out.append(enc.vred(rng.randrange(14), rng.randrange(6), rng.randrange(16), rng.randrange(16)))
        else:
            out += _alu(rng, {0: 1, 1: 2, 2: 4}[mode])
    return out


def _loop(rng: Random) -> list[int]:
    """A FLAT loop of up to 15 words."""
    body: list[int] = []
    for _ in range(rng.randrange(1, 8)):
        body += _anywhere(rng) if rng.random() < 0.35 else _alu(rng, 1)
    body = body[:14] if body else [enc.VBAR]
    if body[-1] >> 27 == 0x1A or len(body) == 14:
        body.append(enc.alu(0, 1, 2))
    # An immediate must not be cut off its VSETI.
    count = rng.choice([0, 1, 2, 3, 5])
    return [*_vl(rng, False), enc.vsetmode(0), *enc.vseti(14, count), enc.vloop(14, len(body)), *body]


def _transfer(rng: Random, first: int, node: XY | None) -> list[int]:
    pick = rng.randrange(5)
    if pick >= 3 and node is not None:
        return [enc.vdrain_node(7, first, *node, 0, int(rng.random() < 0.8))]
    if pick == 0:
        return [enc.vfill(3 + rng.randrange(2), rng.randrange(200)), enc.VBAR]
    if pick == 1:
        return [enc.vsetmode(0), enc.vfill(3, 0), enc.vfill(4, 256), *_alu(rng, 1), enc.VBAR]
    return [enc.vdrain(5, first)]


FAULTS: list[list[int]] = [
    [enc.vld(1, 0, 0, 3)],
    [enc.vst(1, 0, 0, 0)],
    [enc.vcvt(1, 0, 5)],
    [enc.vsetmode(0), enc.alu(3, 1, 2, sa=2, sc=3)],
    [enc.vsetmode(1), enc.alu(3, 1, 2, sc=3), enc.alu(3, 1, 2, sa=2, sb=3, sc=0)],
    [enc.vsetmode(2), *[enc.alu(0, 1, 2), enc.alu(0, 1, sa=2, sb=3, sc=3), enc.VBAR, enc.VBAR]],
    [enc.vsetmode(3), enc.alu(0, 1, 2)],
    [*enc.vseti(15, 32), enc.vsetvl(15), enc.vsetmode(0), enc.vred(1, 0)],
    [*enc.vseti(15, 33), enc.vsetvl(15), enc.vsetmode(3), enc.vred(1, 0)],
    [*enc.vseti(15, 0), enc.vsetvl(15)],
    [*enc.vseti(15, 129), enc.vsetvl(15)],
    [*enc.vseti(15, 2), enc.vsetmode(0), enc.vloop(15, 3), enc.alu(0, 1, 1), enc.vloop(15, 1), enc.VBAR],
    [enc.vfill(6, 0)],
    [enc.vdrain(6, 0)],
]


def vector_words(rng: Random, node: XY | None = None, faults: bool = True) -> list[int]:
    """A program for IMEM, VHALT included. Node drains go to the vector core at `node`."""
    words: list[int] = []
    for _ in range(rng.randrange(2, 7)):
        pick = rng.random()
        words += _segment(rng) if pick < 0.6 else _loop(rng) if pick < 0.8 else _transfer(rng, rng.randrange(200), node)
    if faults and rng.random() < 0.2:
        words += rng.choice(FAULTS)
    return [*words, enc.VHALT]


def vector_descriptors(rng: Random, base: int = VDRAIN_BASE) -> dict[int, tuple[int, list[tuple[int, int]]]]:
    """0-2 walk L1, 3-4 read memory, 5 writes 8 KiB at `base`, 6 is too long, 7 is a node drain's record."""
    out: dict[int, tuple[int, list[tuple[int, int]]]] = {}
    for ad in range(3):
        dims = [(rng.randrange(-3, 4), rng.randrange(0, 5)) for _ in range(rng.randrange(0, 4))]
        reach = sum(s * (max(b, 1) - 1) for s, b in dims if s < 0)
        out[ad] = (8 - reach + rng.randrange(300), dims)
    for ad in (3, 4):
        shape = rng.choice([[(32, 64)], [(32, 8), (512, 8)], [(64, 5), (32, 2), (1024, 3)], [(0, 3)], []])
        out[ad] = (32 * rng.randrange(100), shape)
    out[5] = (
        base + 32 * rng.randrange(64),
        rng.choice([[(32, 64)], [(64, 16)], [(32, 8), (1024, 4)], []]),
    )
    out[6] = (0, [(32, 64), (32, 5)])
    # Destination granule, acknowledgements to (0, 1); the total is the word count.
    out[7] = (rng.randrange(400) | 0x10 << 16, [(0, rng.randrange(1, 9)), (64, rng.randrange(1, 6))])
    return out


# --- values that meet in one operation ---


def triple(rng: Random) -> tuple[int, int, int]:
    """(a, b, c) near the hard places of one operation: ties, cancellation, the ends of the range."""
    a, b, c = e8(rng), e8(rng), e8(rng)
    style = rng.randrange(6)
    if style == 0:  # sums whose exponents are 0 to 18 apart, short mantissas for ties
        near = min(254, max(1, (a >> 15 & 255) + rng.randrange(-18, 19)))
        c = rng.getrandbits(1) << 23 | near << 15 | rng.choice([0, 1, 0x4000, 0x7FFF, rng.getrandbits(15)])
        a &= ~rng.choice([0, 0xFF, 0x7F])
    elif style == 1:  # a product against its own rounded negative
        c = mul8(a, b) ^ SIGN
        c += rng.choice([-1, 0, 0, 1])
    elif style == 2:  # products at the edges of the range
        total = rng.choice([126, 127, 128, 381, 382, 383])
        ea = rng.randrange(max(1, total - 254), min(254, total - 1) + 1)
        a = a & 0x807FFF | ea << 15
        b = b & 0x807FFF | (total - ea) << 15
    elif style == 3:
        a = c = rng.choice([a, c])
        b = rng.choice([a, a ^ SIGN, b])
    elif style == 4:  # arguments of exp2 and log2
        a = a & 0x80007F | rng.randrange(100, 135) << 15 | rng.getrandbits(15)
    return a & 0xFFFFFF, b & 0xFFFFFF, c & 0xFFFFFF
