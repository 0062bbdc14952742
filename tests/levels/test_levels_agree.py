"""Schedule, program and image give the same bits for every program of the corpus: the strongest test in the tree."""

from __future__ import annotations

import json

import numpy as np
import pytest

from levels.corpus import CORPUS, Case, plan_of
from levels.record_hashes import RECORD, image_hashes


def same_bits(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return len(a) == len(b) and all(
        np.array_equal(x.view(np.uint16).ravel(), y.view(np.uint16).ravel()) for x, y in zip(a, b)
    )


def test_the_corpus_is_large_and_its_names_differ() -> None:
    names = [case.name for case in CORPUS]
    assert len(names) >= 60
    assert len(set(names)) == len(names)


def _tiered(n: int, case: Case) -> object:
    """Every fourth program is in the fast tier."""
    return pytest.param(case, id=case.name, marks=[pytest.mark.slow] if n % 4 else [])


@pytest.mark.parametrize("case", [_tiered(n, case) for n, case in enumerate(CORPUS)])
def test_levels_agree(case: Case) -> None:
    plan = plan_of(case)
    inputs = case.inputs()
    by_schedule = plan.run_schedule(*inputs)
    by_program = plan.run_program(*inputs)
    by_image = plan.run_image(*inputs)
    assert same_bits(by_schedule, by_program)
    assert same_bits(by_program, by_image)
    for value, spec in zip(by_image, (s for s in plan.buffers if s.role == "out")):
        assert value.shape == spec.shape


@pytest.mark.slow
def test_encoded_bytes_are_the_recorded_ones() -> None:
    recorded = json.loads(RECORD.read_text())
    now = image_hashes()
    changed = [name for name in recorded if recorded[name] != now.get(name)]
    assert not changed, f"{len(changed)} images changed; if that is meant, run tests/levels/record_hashes.py"
    assert sorted(now) == sorted(recorded)
