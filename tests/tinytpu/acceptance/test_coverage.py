"""The coverage page is what its script makes, every area has the checks it is asked for, and names in it exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinytpu_acceptance.areas import AREAS, LAWS, TABLES
from tinytpu_acceptance.coverage import COMMAND, cases, elsewhere, functions, page, rows

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tinytpu-coverage.md"


@pytest.mark.slow
def test_the_page_is_what_the_script_makes() -> None:
    assert PAGE.read_text() == page(), f"make it again: {COMMAND}"


@pytest.mark.parametrize("area", AREAS, ids=lambda a: a.title)
def test_an_area_has_what_it_is_asked_for(area: object) -> None:
    (found,) = [a for a in AREAS if a is area]
    assert len(rows(found)) + elsewhere(found) >= found.floor


def test_every_table_belongs_to_an_area() -> None:
    assert {rows_of.area for rows_of in TABLES} <= {area.key for area in AREAS}
    assert len({rows_of.name for rows_of in TABLES}) > 20


def test_every_law_has_a_test() -> None:
    assert list(LAWS) == list(range(1, 15))
    for _, references in LAWS.values():
        assert all(cases(function) > 0 for reference in references for function in functions(reference))
