"""What is refused, by which words, and the datasheet's silent bugs by their smallest reproducers (12, 13)."""

from __future__ import annotations

import pytest

from tinytpu_acceptance import refusals, reproducers
from tinytpu_acceptance.table import Table, failures

TABLES = [*refusals.TABLES, *reproducers.TABLES]


@pytest.mark.parametrize("rows", TABLES, ids=lambda t: f"{t.area}, {t.name}")
def test_table(rows: Table) -> None:
    wrong = failures(rows)
    assert not wrong, "\n".join(wrong)
