"""The datasheet's instruction-level behaviours (12): values, cycles, and the slow reference beside them."""

from __future__ import annotations

import pytest

from tinytpu_acceptance import array_bundles, vector_bundles
from tinytpu_acceptance.bundle import bundle
from tinytpu_acceptance.table import Check, Table, failures, table

TABLES = [*array_bundles.TABLES, *vector_bundles.TABLES]


@pytest.mark.parametrize("rows", TABLES, ids=lambda t: t.name)
def test_table(rows: Table) -> None:
    wrong = failures(rows)
    assert not wrong, "\n".join(wrong)


def test_a_wrong_row_is_found() -> None:
    def fail() -> None:
        raise AssertionError("no")

    text = "VFILL v1, imm=3\nSTORE VMEM[9], v1"
    rows = [
        bundle("right", text, vmem={9: [3] * 16}, cycles=2 * 4 + 5 + 4 + 1),
        bundle("value", text, vmem={9: [3] * 15 + [4]}),
        bundle("cycles", text, vmem={9: [3] * 16}, cycles=17),
        bundle("refused", "LOAD v1, VMEM[3]"),
        Check("known", fail, open="not yet"),
        Check("no longer", lambda: None, open="not yet"),
    ]
    assert [line.split(":")[0] for line in failures(table("bundles", "all", rows))] == [
        "value",
        "cycles",
        "refused",
        "no longer",
    ]
