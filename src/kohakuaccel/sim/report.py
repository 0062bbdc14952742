"""The timeline as text for people: what limits each stage, how full things are, what was waited for.

It decides the wording. Every page says that its numbers are modelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohakuaccel.sim.timeline import Share, Timeline

SHOWN = 5


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def _kinds(share: Share) -> str:
    return ", ".join(f"{kind} {_percent(n, share.total)}" for kind, n in share.kinds.items() if n)


def text(timeline: Timeline) -> str:
    """Per stage: the limiter (the fullest unit or resource, which of its kinds, and how full), the next fullest, the
    longest waits, and the instructions that took longest in sum. Then the host link, counters and what was assumed."""
    t = timeline
    lines = [
        f"{t.name or 'timeline'} on {t.machine}: {t.cycles:,} cycles = {t.seconds * 1e6:,.1f} us at {t.clock_mhz} MHz "
        "(modelled, not measured)"
    ]
    for stage in t.stages:
        length = stage.end - stage.start
        rounds = f"{stage.rounds} round{'s' if stage.rounds != 1 else ''}"
        lines.append(f"{stage.name}: {length:,} cycles, {rounds}")
        shares = sorted(t.shares(stage.start, stage.end), key=lambda share: -share.busy)
        shares = [share for share in shares if share.busy]
        for number, share in enumerate(shares[:SHOWN]):
            title = "limiter" if number == 0 else "next"
            lines.append(f"  {title:8}{share.group}: {_percent(share.busy, length)} full ({_kinds(share)})")
        waits = list(t.waits(stage.start, stage.end).items())[:SHOWN]
        for name, cycles in waits:
            lines.append(f"  waited  for {name}: {cycles:,} cycles in all")
        for text_of, (cycles, times) in list(t.top(stage.start, stage.end).items())[:SHOWN]:
            lines.append(f"  spent   {cycles:,} cycles in {times:,} x {text_of}")
    if t.host:
        parts = ", ".join(f"{name} {cycles:,}" for name, cycles in t.host.items())
        lines.append(f"host link, not in the cycles above: {t.host_cycles:,} cycles ({parts})")
    if t.counters:
        lines.append("counted: " + ", ".join(f"{name} {n:,}" for name, n in t.counters.items()))
    if t.assumed:
        lines.append("assumed: " + ", ".join(t.assumed))
    return "\n".join(lines)
