"""The datasheet's behaviours through tinygrad's device (12): values by numpy, and no step of the host."""

from __future__ import annotations

import numpy as np
import pytest

from tinytpu_acceptance import (
    arithmetic,
    dumps,
    epilogues,
    formats,
    functions,
    logic,
    movement,
    products,
    random_programs,
    reductions,
    unary,
)
from tinytpu_acceptance.table import Table, failures, table
from tinytpu_acceptance.tensors import tensor

MODULES = (
    arithmetic,
    unary,
    logic,
    reductions,
    movement,
    functions,
    products,
    epilogues,
    dumps,
    formats,
    random_programs,
)
TABLES = [rows for module in MODULES for rows in module.TABLES]
FAST = 20
"""Rows of a table that the fast tier has time for."""


def slow(t: Table) -> bool:
    return t.slow or len(t.checks) > FAST


MARKED = [pytest.param(t, id=f"{t.area}, {t.name}", marks=[pytest.mark.slow] if slow(t) else []) for t in TABLES]


@pytest.mark.parametrize("rows", MARKED)
def test_table(rows: Table) -> None:
    wrong = failures(rows)
    assert not wrong, "\n".join(wrong)


def test_a_wrong_row_is_found() -> None:
    x = np.arange(5, dtype=np.int32)
    nan = np.array([np.nan, 1], np.float32)
    rows = [
        tensor("right", lambda x: x + 1, x, want=lambda x: x + 1),
        tensor("value", lambda x: x + 1, x, want=lambda x: x + 2),
        tensor("dtype", lambda x: x + 1, x, want=lambda x: (x + 1).astype(np.int64)),
        tensor("shape", lambda x: x + 1, x, want=lambda x: (x + 1)[:, None]),
        tensor("NaN", lambda x: x + 1, nan, want=lambda x: x + 1),
        tensor("NaN gone", lambda x: x + 1, nan, want=np.array([1, 2], np.float32), atol=1e9),
        tensor("host", lambda x: x.double() * 1.5, nan, want=lambda x: x.astype(float) * 1.5),
    ]
    assert [line.split(":")[0] for line in failures(table("chains", "all", rows))] == [
        "value",
        "dtype",
        "shape",
        "NaN gone",
        "host",
    ]
