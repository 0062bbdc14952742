"""The 8-bit floats against ml_dtypes: every code, and every tie and neighbour of it rounded."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kohakuaccel.diagnostics import DefinitionError
from kohakuaccel.numerics import FP8E4M3, FP8E4M3FNUZ, FP8E5M2, FP8E5M2FNUZ, ScalarFormat, Tally

WITNESS: dict[str, tuple[ScalarFormat, Any]] = {
    f.name: (f, t)
    for f, t in (
        (FP8E4M3, ml_dtypes.float8_e4m3fn),
        (FP8E5M2, ml_dtypes.float8_e5m2),
        (FP8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz),
        (FP8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz),
    )
}


@pytest.mark.parametrize("name", WITNESS)
def test_every_code(name: str) -> None:
    fmt, witness = WITNESS[name]
    codes = np.arange(256, dtype=np.uint8)
    found, wanted = fmt.decode(codes), codes.view(witness).astype(np.float64)
    np.testing.assert_array_equal(found, wanted)
    assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(wanted)].all()
    finite = np.isfinite(wanted)
    assert fmt.max == wanted[finite].max()
    assert fmt.smallest == wanted[wanted > 0].min()
    assert (fmt.encode(found)[finite] == codes[finite]).all()


@pytest.mark.parametrize("name", WITNESS)
def test_rounding(name: str) -> None:
    fmt, witness = WITNESS[name]
    held = np.unique(np.abs(fmt.decode(np.arange(256, dtype=np.uint8))))
    held = held[np.isfinite(held)]
    ties = ((held[1:] + held[:-1]) / 2).astype(np.float32)  # the witness rounds through float32
    values = np.concatenate([held, ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(1e9))])
    values = np.concatenate([values, -values])
    tally = Tally()
    found = fmt.encode(values, tally=tally)
    assert (found == values.astype(witness).view(np.uint8)).all()
    assert tally.saturated == 0
    assert tally.inexact == (fmt.decode(found) != values).sum()


@pytest.mark.parametrize("name", WITNESS)
def test_beyond_the_range(name: str) -> None:
    fmt, witness = WITNESS[name]
    tally = Tally()
    found = fmt.encode([fmt.max * 1.001, -fmt.max * 4, 1e30], tally=tally)
    assert list(fmt.decode(found)) == [fmt.max, -fmt.max, fmt.max]
    assert (tally.saturated, tally.inexact, tally.nan) == (3, 3, 0)
    ends = np.array([np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(fmt.decode(fmt.encode(ends)), ends.astype(witness).astype(np.float64))


def test_a_nan_rule_asks_for_its_zero() -> None:
    with pytest.raises(DefinitionError, match="fnuz has a sign, subnormals, zero unsigned and saturates"):
        ScalarFormat("F8", 4, 3, 8, True, "fnuz", "saturate")
    with pytest.raises(DefinitionError, match="fn has a sign"):
        ScalarFormat("F8", 4, 3, 8, False, "fn", "saturate")
