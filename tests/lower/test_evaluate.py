"""The L2 arithmetic against the datasheet's own tables (2.2, 2.6, 2.7, 2.9)."""

from __future__ import annotations

import numpy as np
import pytest

from kohakutpu.lower import evaluate as ev
from kohakutpu.lower.vector_code import e8m15


def value(code: str) -> np.ndarray:
    return np.array([np.uint32(int(code, 16) << 8)]).view(np.float32).astype(np.float64)


def code(x: np.ndarray) -> str:
    number = float(np.asarray(x).ravel()[0])
    return "7FC000" if np.isnan(number) else f"{int(np.float32(number).view(np.uint32)) >> 8:06X}"


@pytest.mark.parametrize(
    ("op", "arguments", "result"),
    [
        ("mul", "3F8003 3FC000", "3FC004"),
        ("mul", "3F8001 3FC000", "3FC002"),
        ("add", "3F8000 378000", "3F8000"),
        ("add", "3F8001 378000", "3F8002"),
        ("fma", "3F8001 3F8001 BF8002", "308000"),
        ("fma", "3F8001 3F7FFF BF8000", "377FFE"),
        ("add", "800000 800000", "800000"),
        ("add", "7F8000 FF8000", "7FC000"),
        ("mul", "00B3C2 3F364A", "008000"),
        ("mul", "808000 3F0000", "800000"),
        ("mul", "7F7FFF 400000", "7F8000"),
        ("add", "7F7FFF 767FFF", "7F7FFF"),
        ("exp2", "3F0000", "3FB505"),
        ("exp2", "3DCCCC", "3F8930"),
        ("exp2", "42FFFA", "7F7DEE"),
        ("exp2", "430000", "7F8000"),
        ("exp2", "C2FD00", "000000"),
        ("log2", "404000", "3FCAE0"),
        ("log2", "3F4000", "BED480"),
        ("log2", "3F8001", "383800"),
        ("recip", "404000", "3EAAAB"),
        ("recip", "C0E000", "BE1249"),
        ("recip", "7E8000", "008000"),
        ("recip", "7F0000", "000000"),
        ("rsqrt", "404000", "3F13CD"),
        ("rsqrt", "412000", "3EA1E9"),
        ("rsqrt", "800000", "7F8000"),
    ],
)
def test_operations(op: str, arguments: str, result: str) -> None:
    with np.errstate(all="ignore"):
        assert code(ev.OPS[op](*(value(a) for a in arguments.split()))) == result


def test_reductions() -> None:
    tenth = np.full((1, 128), value("3DCCCD")[0])
    assert code(ev.reduce_rows("sum", tenth)) == "414CCD"
    i = np.arange(128)
    ramp = ev.round_e8m15((i * i - 1000) / 7)[None, :]
    assert code(ev.reduce_rows("sum", ramp)) == "479D0F"
    assert code(ev.reduce_rows("max", ramp)) == "450715"
    assert code(ev.reduce_rows("min", ramp)) == "C30EDB"


@pytest.mark.parametrize(
    ("halves", "scale", "q"),
    [
        ("3C00 BC00 3800 2E66 211F", (-6, 9), [57, -57, 28, 6, 1]),
        ("7BFF 3C00 6000 FBFF", (10, 9), [57, 0, 0, -57]),
        ("3F63 3C00", (-5, 8), [59, 32]),
        ("3FE1 3C00", (-5, 9), [56, 28]),
        ("03FF 0200 0001", (-20, 9), [57, 28, 0]),
        ("0001 8001", (-20, 9), [0, 0]),
    ],
)
def test_quantiser(halves: str, scale: tuple[int, int], q: list[int]) -> None:
    block = np.zeros((1, 32), np.float16)
    given = [int(h, 16) for h in halves.split()]
    block.view(np.uint16)[0, : len(given)] = given
    got, scales = ev.quantise(block)
    assert got[0, : len(q)].tolist() == q
    assert scales[0, 0] == 2.0 ** scale[0] * scale[1] / 8


def test_immediates() -> None:
    for number, want in [
        (1.0, 0x3F8000),
        (-1.0, 0xBF8000),
        (0.0, 0),
        (-0.0, 0x800000),
        (1.4426950408889634, 0x3FB8AA),
        (1e-39, 0),
        (1e39, 0x7F8000),
        (float("nan"), 0x7FC000),
        (1 + 2**-16, 0x3F8000),
        (1 + 3 * 2**-16, 0x3F8002),
    ]:
        assert e8m15(number) == want
