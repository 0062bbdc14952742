"""A table of checks: rows with names, run one after the other, failures told together.

Decides what a row is and when it fails; what rows check is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Check:
    """A row. run raises where it is wrong. open: why it is known to be wrong today; such a row must fail. text: the
    TASM it runs, if it is a bundle's."""

    name: str
    run: Callable[[], None]
    open: str = ""
    text: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of an area. slow: whether the table is left out of the fast tier."""

    area: str
    name: str
    checks: tuple[Check, ...]
    slow: bool = False


def table(area: str, name: str, checks: Iterable[Check], *, slow: bool = False) -> Table:
    """A table whose rows have names of their own."""
    rows = tuple(checks)
    names = [row.name for row in rows]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice, f"{name}: {twice}"
    assert rows, name
    return Table(area, name, rows, slow)


def failures(rows: Table) -> list[str]:
    """What is wrong, a text per row; a row that is open and right is wrong too."""
    found: list[str] = []
    for check in rows.checks:
        try:
            check.run()
        except (Exception, pytest.fail.Exception) as error:  # any error is a row's failure
            if not check.open:
                text = str(error).strip() or type(error).__name__
                found.append(f"{check.name}: {type(error).__name__}: {text}")
        else:
            if check.open:
                found.append(f"{check.name}: right, though it is open ({check.open})")
    return found
