"""Where temporaries lie: a temporary takes memory from the stage that first writes it to the last that touches it.

It decides offsets inside one workspace; two temporaries share bytes only if no stage has both alive.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohakuaccel.schedule import Schedule

ALIGN = 4096  # a page, so that no entry or burst crosses one (datasheet 3.2)


@dataclass(frozen=True, slots=True)
class Workspace:
    """offsets: buffer number -> byte offset; nbytes: what all need together; total: what they would need apart."""

    offsets: dict[int, int]
    lifetimes: dict[int, tuple[int, int]]
    nbytes: int
    total: int


def lifetimes(schedule: Schedule) -> dict[int, tuple[int, int]]:
    """Temporary -> (first stage, last stage) that touches it."""
    spans: dict[int, tuple[int, int]] = {}
    for number, stage in enumerate(schedule.stages):
        for band in stage.bands:
            for buffer in (*band.reads(), *(b for b, _ in band.writes())):
                if schedule.buffers[buffer].role == "temp":
                    first, _ = spans.get(buffer, (number, number))
                    spans[buffer] = (first, number)
    return spans


def place(schedule: Schedule) -> Workspace:
    """Offsets for all temporaries: the largest first, each at the lowest offset free for its whole life."""
    spans = lifetimes(schedule)
    sizes = {n: -(-max(schedule.buffers[n].layout.nbytes, 1) // ALIGN) * ALIGN for n in spans}
    offsets: dict[int, int] = {}
    for n in sorted(spans, key=lambda b: (-sizes[b], b)):
        first, last = spans[n]
        busy = sorted(
            (offsets[m], offsets[m] + sizes[m]) for m in offsets if spans[m][0] <= last and first <= spans[m][1]
        )
        at = 0
        for low, high in busy:
            if at + sizes[n] <= low:
                break
            at = max(at, high)
        offsets[n] = at
    end = max((offsets[n] + sizes[n] for n in offsets), default=0)
    return Workspace(offsets, spans, end, sum(sizes.values()))
