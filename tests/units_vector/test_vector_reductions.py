"""VRED: the datasheet's checks, and the exact tree order on random rows (2.7)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from units_vector import exact
from units_vector.rig import Core

Op = Callable[[int, int], int]


def tree(values: list[int], op: Op) -> int:
    while len(values) > 1:
        values = [op(values[i], values[i + 1]) for i in range(0, len(values), 2)]
    return values[0]


def reduce(kind: str, a: list[int], b: list[int]) -> int:
    """Steps 1 to 4 of 2.7."""
    op: Op = {"MAX": exact.maximum, "MIN": exact.minimum}.get(kind, exact.add)
    identity = {"MAX": 0xFF8000, "MIN": 0x7F8000}.get(kind, 0)
    leaves, width = a, 16
    if kind in ("SUMSQ", "DOT"):
        leaves, width = [exact.mul(x, y) for x, y in zip(a, b)], 8
    elif kind == "EXPSUM":
        leaves, width = [exact.exp2(x) for x in a], 8
    partial = [identity] * 16
    for j in range(len(leaves) // width):
        partial[j % 16] = op(tree(leaves[width * j : width * (j + 1)], op), partial[j % 16])
    return tree(partial, op)


TEXT = {"SUMSQ": "VRED S1,v0,SUMSQ", "DOT": "VRED S1,v0,v1,DOT", "EXPSUM": "VRED S1,v0,EXPSUM->v5"}
KINDS = ["SUM", "MAX", "MIN", "SUMSQ", "DOT", "EXPSUM"]


def run(core: Core, kind: str, a: list[int], b: list[int]) -> int:
    core.set_v(0, a)
    core.set_v(1, b)
    text = TEXT.get(kind, f"VRED S1,v0,{kind}")
    core.ok(f"VSETI S0,{len(a)}\nVSETVL S0\nVSETMODE TREE\n{text}\nVSETMODE FLAT")
    return core.s(1)


def number(m: int, e: int) -> int:
    return exact.rnde(m, e) if m else 0


def quotient(n: int, d: int) -> int:
    """rndE(n / d): 60 more bits than needed, the last one sticky."""
    scaled, rest = divmod(abs(n) << 60, d)
    m = scaled << 1 | int(rest != 0)
    return number(-m if n < 0 else m, -61)


TENTH = [0x3DCCCD] * 128
SQUARES = [quotient(i * i - 1000, 7) for i in range(128)]
STEPS = [number(i - 64, -4) for i in range(128)]
LINE = [number(3 * i + 1, -7) for i in range(128)]


@pytest.mark.parametrize(
    ("kind", "a", "b", "want"),
    [
        ("SUM", TENTH, TENTH, 0x414CCD),
        ("SUM", SQUARES, SQUARES, 0x479D0F),
        ("MAX", SQUARES, SQUARES, 0x450715),
        ("MIN", SQUARES, SQUARES, 0xC30EDB),
        ("SUMSQ", SQUARES, SQUARES, 0x4CD57E),
        ("EXPSUM", STEPS, STEPS, 0x43B3FE),
        ("DOT", STEPS, LINE, 0x437A00),
    ],
)
def test_datasheet_checks(core: Core, kind: str, a: list[int], b: list[int], want: int) -> None:
    assert f"{run(core, kind, a, b):06X}" == f"{want:06X}"
    assert reduce(kind, a, b) == want


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vl", [16, 32, 48, 80, 112, 128])
def test_tree_order(core: Core, kind: str, vl: int) -> None:
    rng = Random(vl)
    for _ in range(4):
        a = [exact.hard(rng) & 0x807FFF | rng.randrange(118, 134) << 15 for _ in range(vl)]
        b = [exact.hard(rng) & 0x807FFF | rng.randrange(118, 134) << 15 for _ in range(vl)]
        x, y = a, a if kind == "SUMSQ" else b
        assert run(core, kind, x, y) == reduce(kind, x, y)
        if kind == "EXPSUM":
            assert [int(v) for v in core.v(5)[:vl]] == [exact.exp2(v) for v in x]


@pytest.mark.parametrize("kind", KINDS)
def test_special_leaves(core: Core, kind: str) -> None:
    rng = Random(7)
    for _ in range(20):
        a = [rng.choice([0, 0x800000, 0x3F8000, 0x807FFF]) for _ in range(32)]
        for _ in range(rng.randrange(3)):
            a[rng.randrange(32)] = rng.choice(exact.SPECIAL)
        assert run(core, kind, a, a) == reduce(kind, a, a), [f"{x:06X}" for x in a]


def test_a_sum_of_minus_zeros_is_plus_zero(core: Core) -> None:
    assert run(core, "SUM", [0x800000] * 16, [0] * 16) == 0
    assert run(core, "MAX", [0x800000] * 128, [0] * 128) == 0x800000


def test_all_16_partials_start_at_plus_zero(core: Core) -> None:
    """16 beats of products that are all -0: only the +0 that each partial starts from makes the sum +0."""
    assert run(core, "DOT", [0x800000] * 128, [0x3F8000] * 128) == 0


def test_expsum_may_write_its_source(core: Core) -> None:
    core.set_v(0, STEPS)
    core.ok("VSETMODE TREE\nVRED S2,v0,EXPSUM->v0\nVSETMODE FLAT")
    assert core.s(2) == 0x43B3FE
    assert [int(x) for x in core.v(0)] == [exact.exp2(x) for x in STEPS]


@pytest.mark.parametrize("vl", [1, 15, 16, 100, 128])
@pytest.mark.parametrize("mode", ["FLAT", "TREE", "D2", "D4"])
def test_any_and_all_know_no_mode_and_no_length(core: Core, vl: int, mode: str) -> None:
    for bits in ([0] * 128, [1] * 128, [0] * (vl - 1) + [1] * (129 - vl), [1] * vl + [0] * (128 - vl)):
        core.p(2)[:] = bits
        core.ok(f"VSETI S0,{vl}\nVSETVL S0\nVSETMODE {mode}\nVRED S3,P2,ANY\nVRED S4,P2,ALL\nVSETMODE FLAT")
        assert core.s(3) == (0x3F8000 if any(bits[:vl]) else 0)
        assert core.s(4) == (0x3F8000 if all(bits[:vl]) else 0)
