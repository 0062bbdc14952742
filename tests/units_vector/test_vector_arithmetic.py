"""Every ALU operation against integers: the datasheet's table, all pairs of special words, hard random operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from units_vector import exact
from units_vector.rig import Codes, Core

UNARY: dict[str, Callable[[int], int]] = {
    "VMOV": exact.flush,
    "VNEG": lambda a: exact.NAN if exact.is_nan(a) else exact.flush(a) ^ exact.MINUS,
    "VABS": lambda a: exact.flush(a) & 0x7FFFFF,
    "VEXP2": exact.exp2,
    "VLOG2": exact.log2,
    "VINV": exact.inv,
    "VRSQRT": exact.rsqrt,
}
# Operands as the instruction takes them: ADD and SUB read a and c.
BINARY: dict[str, tuple[Callable[[int, int], int], str]] = {
    "VADD": (exact.add, "ac"),
    "VSUB": (exact.sub, "ac"),
    "VMUL": (exact.mul, "ab"),
    "VMAX": (exact.maximum, "ab"),
    "VMIN": (exact.minimum, "ab"),
}
TERNARY: dict[str, Callable[[int, int, int], int]] = {
    "VFMA": exact.fma,
    "VFNMA": lambda a, b, c: exact.fma(a, b, c, negate=True),
    "VSEL": exact.select,
}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "VCMPLT": exact.less,
    "VCMPGT": lambda a, b: exact.less(b, a),
    "VCMPEQ": exact.equal,
}


def codes(values: list[int]) -> Codes:
    return np.array(values, np.uint32)


def check(got: Codes, want: list[int], *operands: list[int]) -> None:
    wrong = np.flatnonzero(got != codes(want))
    if len(wrong):
        i = int(wrong[0])
        shown = " ".join(f"{o[i]:06X}" for o in operands)
        pytest.fail(f"{len(wrong)} wrong; {shown} gives {int(got[i]):06X}, not {want[i]:06X}")


def binary(core: Core, op: str, a: list[int], b: list[int]) -> None:
    function, reads = BINARY[op]
    other = codes(b)
    got = core.apply(op, codes(a), other if "b" in reads else None, other if "c" in reads else None)
    check(got, [function(x, y) for x, y in zip(a, b)], a, b)


def ternary(core: Core, op: str, a: list[int], b: list[int], c: list[int]) -> None:
    got = core.apply(op, codes(a), codes(b), codes(c))
    check(got, [TERNARY[op](x, y, z) for x, y, z in zip(a, b, c)], a, b, c)


@pytest.mark.parametrize(
    ("op", "a", "b", "want"),
    [
        ("VMUL", 0x3F8003, 0x3FC000, 0x3FC004),
        ("VMUL", 0x3F8001, 0x3FC000, 0x3FC002),
        ("VMUL", 0x00B3C2, 0x3F364A, 0x008000),
        ("VMUL", 0x808000, 0x3F0000, 0x800000),
        ("VMUL", 0x7F7FFF, 0x400000, 0x7F8000),
        ("VADD", 0x3F8000, 0x378000, 0x3F8000),
        ("VADD", 0x3F8001, 0x378000, 0x3F8002),
        ("VADD", 0x7F7FFF, 0x767FFF, 0x7F7FFF),
        ("VADD", 0x800000, 0x800000, 0x800000),
        ("VADD", 0x7F8000, 0xFF8000, 0x7FC000),
    ],
)
def test_datasheet_pairs(core: Core, op: str, a: int, b: int, want: int) -> None:
    reads = BINARY[op][1]
    got = core.apply(op, codes([a]), codes([b]) if "b" in reads else None, codes([b]) if "c" in reads else None)
    assert f"{int(got[0]):06X}" == f"{want:06X}"
    assert BINARY[op][0](a, b) == want


@pytest.mark.parametrize(
    ("a", "b", "c", "want"),
    [(0x3F8001, 0x3F8001, 0xBF8002, 0x308000), (0x3F8001, 0x3F7FFF, 0xBF8000, 0x377FFE)],
)
def test_datasheet_fma(core: Core, a: int, b: int, c: int, want: int) -> None:
    assert int(core.apply("VFMA", codes([a]), codes([b]), codes([c]))[0]) == want == exact.fma(a, b, c)


@pytest.mark.parametrize("op", UNARY)
def test_unary_specials(core: Core, op: str) -> None:
    a = exact.SPECIAL
    check(core.apply(op, codes(a)), [UNARY[op](x) for x in a], a)


@pytest.mark.parametrize("op", BINARY)
def test_binary_specials(core: Core, op: str) -> None:
    a, b = (list(o) for o in zip(*itertools.product(exact.SPECIAL, repeat=2)))
    binary(core, op, a, b)


@pytest.mark.parametrize("op", TERNARY)
def test_ternary_specials(core: Core, op: str) -> None:
    a, b, c = (list(o) for o in zip(*itertools.product(exact.SPECIAL, exact.SPECIAL[::2], exact.SPECIAL)))
    ternary(core, op, a, b, c)


@pytest.mark.parametrize("op", COMPARE)
def test_compares(core: Core, op: str) -> None:
    """As an instruction a compare writes predicate bits."""
    pairs = list(itertools.product(exact.SPECIAL, repeat=2))
    rng = Random(1)
    pairs += [(a, exact.near(rng, a, 1)) for a in (exact.hard(rng) for _ in range(1000))]
    for i in range(0, len(pairs), 128):
        part = pairs[i : i + 128]
        core.set_v(0, [a for a, _ in part])
        core.set_v(1, [b for _, b in part])
        core.ok(f"{op} P2,v0,v1")
        want = [int(COMPARE[op](a, b)) for a, b in part]
        np.testing.assert_array_equal(core.p(2)[: len(part)], want)


def sums(rng: Random, n: int) -> tuple[list[int], list[int]]:
    """Pairs around every exponent gap at which a small term stops mattering."""
    a = [exact.hard(rng) for _ in range(n)]
    return a, [exact.near(rng, x, rng.choice([2, 18, 40, 60, 254])) for x in a]


def fused(rng: Random, n: int) -> tuple[list[int], list[int], list[int]]:
    """Products with few significant bits sit on midpoints of 16 bits; addends from cancelling to far below."""
    a, b, c = [], [], []
    for _ in range(n):
        x = exact.hard(rng) & 0x807FFF | rng.randrange(90, 165) << 15
        y = exact.hard(rng) & 0x807FFF | rng.randrange(90, 165) << 15
        if rng.random() < 0.5:  # 17 significant bits: a tie unless the addend decides
            x = x & 0xFF8000 | rng.getrandbits(8) << 7
            y = y & 0xFF8000 | (rng.getrandbits(7) | 1) << 6
        p = exact.mul(x, y)
        z = exact.near(rng, p, rng.choice([1, 17, 40, 100])) if not exact.is_zero(p) else exact.hard(rng)
        if rng.random() < 0.2:
            z = p ^ exact.MINUS
        a.append(x)
        b.append(y)
        c.append(z)
    return a, b, c


@pytest.mark.slow
@pytest.mark.parametrize("op", ["VADD", "VSUB"])
def test_hard_sums(core: Core, op: str) -> None:
    binary(core, op, *sums(Random(2), 50_000))


def test_hard_products(core: Core) -> None:
    rng = Random(3)
    a = [exact.hard(rng) for _ in range(60_000)]
    b = [exact.hard(rng) & 0x807FFF | min(max(254 - exact.exponent(x) + rng.randint(-2, 2), 1), 254) << 15 for x in a]
    b[::2] = [exact.hard(rng) for _ in b[::2]]
    b[1::4] = [
        exact.hard(rng) & 0x807FFF | min(max(128 - exact.exponent(x) + rng.randint(-2, 2), 1), 254) << 15
        for x in a[1::4]
    ]
    binary(core, "VMUL", a, b)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["VFMA", "VFNMA"])
def test_hard_fused(core: Core, op: str) -> None:
    ternary(core, op, *fused(Random(4), 30_000))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_many_operands(core: Core, seed: int) -> None:
    rng = Random(100 + seed)
    binary(core, "VADD", *sums(rng, 300_000))
    ternary(core, "VFMA", *fused(rng, 300_000))


def test_fma_decides_a_tie_by_an_addend_far_away(core: Core) -> None:
    """1.5 * (1 + 2^-15) is a midpoint; 2^-120 decides it, either way. A float64 sum alone would not see it."""
    a, b = [0x3F8001] * 3, [0x3FC000] * 3
    c = [0x038000, 0x838000, 0x000000]
    ternary(core, "VFMA", a, b, c)
    assert len({exact.fma(x, y, z) for x, y, z in zip(a, b, c)}) == 2


def test_results_overlay_their_sources(core: Core) -> None:
    rng = Random(5)
    a, c = [exact.hard(rng) for _ in range(128)], [exact.hard(rng) for _ in range(128)]
    core.set_v(1, a)
    core.set_v(2, c)
    core.ok("VADD v1,v1,v2\nVADD v1,v1,v1")
    once = [exact.add(x, y) for x, y in zip(a, c)]
    check(core.v(1), [exact.add(x, x) for x in once], once)


def test_scalars_and_constants_as_operands(core: Core) -> None:
    """Each is the value of its word, a word with exponent 0 being a signed zero."""
    core.set_v(0, [0x3F8000] * 128)
    core.ok(
        "VSETI S3,0xC00000\nVSETI S4,0x807FFF\nVSETI K3,0x410000\n"
        "VMUL v1,v0,S3\nVADD v2,v0,K1\nVADD v3,v0,K2\nVFMA v4,K3,S3,K0\nVADD v5,S4,S4\nVMUL v6,v0,K3"
    )
    for v, want in {1: 0xC00000, 2: 0x400000, 3: 0, 4: 0xC18000, 5: 0x800000, 6: 0x410000}.items():
        assert {int(x) for x in core.v(v)} == {want}, v
