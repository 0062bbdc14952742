"""Every program of the levels corpus has a sound timeline, and the same one each time."""

from __future__ import annotations

import pytest

from kohakutpu.sim import time_image
from kohakutpu.sim.timing import rehearse
from levels.corpus import CORPUS, Case, plan_of


def timed_twice(case: Case) -> None:
    plan = plan_of(case)
    image = plan.image(plan.nominal_addresses())
    kernels = rehearse(plan.machine, image)
    t = time_image(plan.machine, image, kernel_cycles=kernels)
    t.check()
    assert t.cycles > 0
    assert t.counters["flits"] == image.flits
    again = time_image(plan.machine, image, kernel_cycles=kernels)
    assert (t.cycles, t.spans) == (again.cycles, again.spans)


@pytest.mark.parametrize("case", CORPUS[::16], ids=lambda c: c.name)
def test_some_programs(case: Case) -> None:
    timed_twice(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CORPUS, ids=lambda c: c.name)
def test_all_programs(case: Case) -> None:
    timed_twice(case)
