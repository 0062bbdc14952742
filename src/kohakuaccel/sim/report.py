"""The timeline as tables for people, on a terminal or as plain text: one code for both.

It decides wording and columns; every number comes from the summary. Every page says that its numbers are modelled.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from kohakuaccel.diagnostics import Refusal, SourceLine

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kohakuaccel.sim.summary import StageSummary, Summary
    from kohakuaccel.sim.timeline import Share, Timeline

SHOWN = 8
STAGES = 20
WIDTH = 120


def percent(part: float, whole: float) -> str:
    """A share in words: "37.5 %"."""
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def number(value: float) -> str:
    """Three significant digits, or a whole number with separators."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def place_of(source: SourceLine | None) -> str:
    """A line of the user's program as "file.py:12  text"; empty where it is not known."""
    return "" if source is None else f"{source.file.rsplit('/', 1)[-1]}:{source.line}  {source.text}".rstrip()


def _table(title: str, *columns: str, rows: Iterable[Sequence[str]]) -> Group:
    """A titled table; columns named with a leading ">" are numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if right else "left", no_wrap=right)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return Group(*(Text(line, style="bold") for line in title.split("\n")), table)


def kinds(share: Share) -> str:
    """What a group's cycles went to: "compute 14.2 %, wait 22.5 %"."""
    return ", ".join(f"{kind} {percent(n, share.total)}" for kind, n in share.kinds.items() if n)


def _waited(s: StageSummary) -> str:
    """What a stage's limiter, or anybody where nothing worked, waited for longest; where it waits for nothing, how long
    others waited for it."""
    for name, cycles in (s.own if s.limiter else s.waits).items():
        return f"{name}, {percent(cycles, s.cycles)}"
    others = s.waits.get(s.limiter.group, 0) if s.limiter else 0
    return f"nothing (others for it: {others:,})" if others else "nothing"


def _alike(stages: Sequence[StageSummary]) -> list[list[StageSummary]]:
    """Stages in order, those of one name, line and length together: a launch that is repeated takes the same time."""
    found: dict[object, list[StageSummary]] = {}
    for s in stages:
        found.setdefault((s.stage.name, s.stage.source, s.cycles, s.stage.rounds), []).append(s)
    return list(found.values())


def _stages(found: Sequence[Sequence[StageSummary]], cycles: int) -> Group:
    rows: list[Sequence[str]] = []
    for s, *others in found:
        full = [f"{share.group} {percent(share.busy, s.cycles)}" for share in s.shares[:2]]
        source = place_of(s.stage.source).partition("  ")[0]
        rows.append(
            (
                str(s.number),
                s.stage.name + (f"\n  {source}" if source else ""),
                str(1 + len(others)),
                f"{s.cycles:,}",
                percent(s.cycles * (1 + len(others)), cycles),
                str(s.stage.rounds),
                full[0] if full else "nothing ran",
                _waited(s),
                full[1] if len(full) > 1 else "nothing",
            )
        )
    columns = ("#", "stage", ">times", ">cycles", ">of run", ">rounds", "limiter", "it waited for", "next fullest")
    return _table("stages", *columns, rows=rows)


def _roofline(summary: Summary, found: Sequence[StageSummary]) -> list[RenderableType]:
    rows: list[Sequence[str]] = []
    for s in found:
        p = s.placement
        if p is not None:
            unit = p.roof.unit
            intensity = f"{number(p.intensity)} {unit}/B" if s.stage.nbytes else "no traffic"
            attained, limit = f"{number(p.attained)} {unit}/cycle", f"{number(p.limit)} {unit}/cycle"
            rows.append((str(s.number), s.stage.name, intensity, attained, limit, percent(p.fraction, 1), p.bound))
    if not rows:
        return ["roofline: the run recorded no work, traffic or peaks to place it by"]
    titles = ("#", "stage", ">intensity", ">attained", ">roof there", ">of roof", "bound by")
    roofs = "".join(
        f"\n  {number(roof.peak)} {roof.unit}/cycle, {number(roof.bandwidth)} B/cycle ({roof.memory}), "
        f"ridge at {number(roof.ridge)} {roof.unit}/B"
        for roof in summary.roofs.values()
    )
    return [_table(f"roofline{roofs}", *titles, rows=rows)]


def tables(summary: Summary, stages: int | None = STAGES, shown: int = SHOWN) -> list[RenderableType]:
    """The report as things that rich prints. stages: most rows of stages, those that take longest in all, in order;
    None for every one."""
    t, whole = summary.timeline, summary.whole
    parts: list[RenderableType] = [
        Text(f"{t.name or 'timeline'} on {t.machine}: {t.cycles:,} cycles = {t.seconds * 1e6:,.1f} us at ")
        + Text(f"{t.clock_mhz} MHz (modelled, not measured)")
    ]
    found = sorted(_alike(summary.stages), key=lambda alike: -alike[0].cycles * len(alike))[:stages]
    found.sort(key=lambda alike: alike[0].number)
    parts.append(_stages(found, t.cycles))
    left = len(summary.stages) - sum(map(len, found))
    if left:
        rest = t.cycles - sum(s.cycles for alike in found for s in alike)
        which = f"{left} shorter stages are" if left > 1 else "1 shorter stage is"
        parts.append(f"{which} not shown: {rest:,} cycles, {percent(rest, t.cycles)} of the run")
    parts += _roofline(summary, [alike[0] for alike in found])
    if t.levels:
        rows = [(name, f"{n:,}", number(n / t.cycles) if t.cycles else "-") for name, n in t.levels.items()]
        parts.append(_table("bytes moved", "memory level", ">bytes", ">B/cycle", rows=rows))
    if whole.top:
        parts.append(_top(whole, shown))
    rows = [(share.group, percent(share.busy, t.cycles), kinds(share)) for share in whole.shares[:shown]]
    parts.append(_table("fullest units and resources", "which", ">full", "its cycles", rows=rows))
    rows = [(name, f"{n:,}") for name, n in list(whole.waits.items())[:shown]]
    if rows:
        parts.append(_table("waited for, all units together", "what", ">cycles", rows=rows))
    if t.host:
        items = ", ".join(f"{name} {cycles:,}" for name, cycles in t.host.items())
        parts.append(f"host link, not in the cycles above: {t.host_cycles:,} cycles ({items})")
    if t.counters:
        parts.append("counted: " + ", ".join(f"{name} {n:,}" for name, n in t.counters.items()))
    parts.append("assumed: " + (", ".join(t.assumed) or "nothing"))
    return parts


def _top(one: StageSummary, shown: int) -> Group:
    rows = [(f"{cycles:,}", f"{times:,}", name) for name, (cycles, times) in list(one.top.items())[:shown]]
    return _table("instructions by time, all units together", ">cycles", ">times", "instruction", rows=rows)


def stage_tables(summary: Summary, stage: int) -> list[RenderableType]:
    """Everything about one stage. Raises Refusal for a number that no stage has."""
    if not 0 <= stage < len(summary.stages):
        raise Refusal("a stage has a number of the stage table", got=stage, limit=f"0..{len(summary.stages) - 1}")
    t, s = summary.timeline, summary.stages[stage]
    parts: list[RenderableType] = [Text(f"{t.name} on {t.machine} (modelled, not measured)"), _stages([[s]], t.cycles)]
    if s.stage.source is not None:
        parts.append(Text(f"its line: {place_of(s.stage.source)}"))
    parts += _roofline(summary, [s])
    rows = [(share.group, percent(share.busy, s.cycles), kinds(share)) for share in s.shares]
    parts.append(_table("units and resources that worked", "which", ">full", "its cycles", rows=rows))
    parts.append(_table("waited for", "what", ">cycles", rows=[(name, f"{n:,}") for name, n in s.waits.items()]))
    parts.append(_top(s, len(s.top)))
    return parts


def show(parts: Iterable[RenderableType], console: Console) -> None:
    """Print a report's parts, tables apart from each other."""
    before: RenderableType | None = None
    for part in parts:
        if before is not None and (isinstance(part, Group) or isinstance(before, Group)):
            console.print()
        console.print(part, highlight=False, markup=False)
        before = part


def plain(parts: Iterable[RenderableType], width: int = WIDTH) -> str:
    """A report's parts as text without colours or spaces at the ends of lines."""
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        show(parts, console)
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


def text(timeline: Timeline) -> str:
    """The report as text: stages with limiters, roofline, bytes moved, instructions, what was assumed."""
    return plain(tables(timeline.summary()))
