"""What if the machine were another: one piece of work compiled and timed on a machine and on variants of it.

Decides how changes are named and what a comparison shows. It must not know any machine: how one grows, and how work is
timed on it, are functions given by a machine package. Every number is modelled.
"""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from kohakuaccel.diagnostics import DefinitionError, KohakuError, Refusal, did_you_mean

if TYPE_CHECKING:
    from kohakuaccel.machine import Machine
    from kohakuaccel.sim import Timeline

Setting = int | float | bool | str
Changes = Mapping[str, Setting]
"""What a variant changes, by name: sizes of the machine, params, timing values, features, "profile", or knobs."""
Sized = Callable[["Machine", Mapping[str, int]], "Machine"]

_WORDS = {"true": True, "on": True, "false": False, "off": False}
SHOWN = 12
"""Lines of a changed schedule that the text shows."""


@dataclass(frozen=True)
class Outcome:
    """Work on one machine: its timeline, the printed schedules, bytes of device memory it needs at once."""

    timeline: Timeline
    schedule: str
    footprint: int


Measure = Callable[["Machine", Mapping[str, Setting]], Outcome]
"""Compile and time the work on a machine, with these knobs. Raises a `KohakuError` for what cannot be."""


def parse_setting(text: str, where: str = "--set") -> tuple[str, Setting]:
    """`"L=3"` as ("L", 3); a name alone is switched on. true, false, on and off are truth values."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not name.isidentifier() or bool(equals) != bool(value):
        raise Refusal("a change is name=value, or the name of a feature", where=where, got=repr(text))
    if not equals:
        return name, True
    if value.lower() in _WORDS:
        return name, _WORDS[value.lower()]
    try:
        found: object = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        found = value
    return name, found if isinstance(found, int | float | str) else value


def parse_changes(text: str, where: str = "--variant") -> dict[str, Setting]:
    """`"clusters=12, L=3, r2_bank_plan"` as a mapping."""
    found: dict[str, Setting] = {}
    for part in text.split(","):
        name, value = parse_setting(part, where)
        if name in found:
            raise Refusal("a variant changes a name once", where=where, got=repr(text))
        found[name] = value
    return found


def parse_sweep(text: str) -> list[dict[str, Setting]]:
    """`"L=3,10,30"` as one mapping for each value."""
    name, equals, values = text.partition("=")
    if not equals:
        raise Refusal("a sweep is name=value,value,...", where="--sweep", got=repr(text))
    return [dict([parse_setting(f"{name}={value}", "--sweep")]) for value in values.split(",")]


def combined(
    common: Changes, variants: Iterable[Changes] = (), sweeps: Iterable[Sequence[Changes]] = ()
) -> list[dict[str, Setting]]:
    """The variants to compare: `common` alone, then with each variant, then with each combination of the sweeps.

    A change of a variant or a sweep wins over a common one. `common` alone is left out where it is empty or where only
    sweeps are given.
    """
    swept, listed = [tuple(s) for s in sweeps], list(variants)
    found = [dict(common)] if common and (listed or not swept) else []
    found += [{**common, **variant} for variant in listed]
    if swept:
        found += [{**common, **{k: v for part in parts for k, v in part.items()}} for parts in product(*swept)]
    return found


def spelt(changes: Changes) -> str:
    """A variant's label: `"clusters=12, L=3, r2_bank_plan"`."""
    return ", ".join(
        name if value is True else f"{name}={str(value).lower() if value is False else value}"
        for name, value in changes.items()
    )


def check_names(machine: Machine, changes: Changes, sizes: Iterable[str], knobs: Iterable[str]) -> None:
    """Refuse a name that is none of the machine's and none of the work's, with the nearest one."""
    known = ("profile", *sizes, *machine.params, *machine.timing, *machine.features, *knobs)
    for name in changes:
        if name not in known:
            raise DefinitionError(
                f"a change is of a size, param, timing value, feature or knob{did_you_mean(name, known)}",
                where=f"what if, on {machine.name}",
                got=name,
            )


def varied(
    machine: Machine, changes: Changes, sizes: Iterable[str], sized: Sized
) -> tuple[Machine, dict[str, Setting]]:
    """The machine with changes, checked like a machine file, and the changes that are none of the machine's: knobs.

    A timing value counts as assumed. Raises DefinitionError, naming the value and its limit.
    """
    rest = dict(changes)
    grown = {name: rest.pop(name) for name in sizes if name in rest}
    profile = rest.pop("profile", None)
    params, timing, features = (
        {name: rest.pop(name) for name in table if name in rest}
        for table in (machine.params, machine.timing, machine.features)
    )
    for name, value in grown.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise DefinitionError("a size is a whole number", where=f"{machine.name}: {name}", got=repr(value))
    made = sized(machine, {name: int(value) for name, value in grown.items()}) if grown else machine
    own = {name: value for name, value in changes.items() if name not in rest}
    if own:
        made = made.with_(
            name=f"{machine.name} with {spelt(own)}",
            params=params,  # pyright: ignore[reportArgumentType] - the schema checks kinds and says which is wrong
            timing=timing,  # pyright: ignore[reportArgumentType] - as above
            features=features,  # pyright: ignore[reportArgumentType] - as above
            profile=None if profile is None else str(profile),
        )
    return made, rest


def named(arch: str, load: Callable[[str], Machine], default: str, sizes: Iterable[str], sized: Sized) -> Machine:
    """The machine an arch string names: a preset (`default` where the name is empty), then changes, as in
    `"ship_3x2,L=10,clusters=8"`. Raises DefinitionError for an unknown preset or change."""
    name, _, rest = arch.partition(",")
    base = load(name or default)
    if not rest:
        return base
    changes = parse_changes(rest, "arch")
    check_names(base, changes, sizes, ())
    return varied(base, changes, sizes, sized)[0]


@dataclass(frozen=True)
class Row:
    """One variant: what it changes, and its outcome or why there is none."""

    label: str
    changes: dict[str, Setting] = field(default_factory=dict[str, Setting])
    outcome: Outcome | None = None
    refusal: KohakuError | None = None

    @property
    def cycles(self) -> int | None:
        return self.outcome.timeline.cycles if self.outcome else None

    @property
    def seconds(self) -> float | None:
        return self.outcome.timeline.seconds if self.outcome else None

    @property
    def stages(self) -> int | None:
        return len(self.outcome.timeline.stages) if self.outcome else None

    @cached_property
    def limiter(self) -> tuple[str, float] | None:
        """The fullest unit or resource over the whole run, and how full it is."""
        if not self.outcome or not self.outcome.timeline.cycles:
            return None
        fullest = max(self.outcome.timeline.shares(), key=lambda share: share.busy)
        return fullest.group, fullest.busy / fullest.total

    @cached_property
    def waits(self) -> dict[str, int]:
        """Cycles that units waited, in sum, by what they waited for, longest first."""
        return self.outcome.timeline.waits() if self.outcome else {}

    @property
    def moved(self) -> int | None:
        """Bytes between the units and the device's memory."""
        if not self.outcome:
            return None
        t = self.outcome.timeline
        return sum(s.nbytes for s in t.stages) or t.counters.get("bytes read", 0) + t.counters.get("bytes written", 0)

    @property
    def utilisation(self) -> float | None:
        """Multiply-accumulates done over those the whole machine could have done; None for work without any."""
        if not self.outcome:
            return None
        t = self.outcome.timeline
        peak, done = t.peaks.get("MAC/cycle", 0.0) * t.cycles, sum(s.macs for s in t.stages)
        return done / peak if peak and done else None


@dataclass(frozen=True)
class Comparison:
    """Rows of one piece of work; the first one is the machine as it is."""

    work: str
    machine: str
    rows: tuple[Row, ...]

    def ratio(self, row: Row) -> float | None:
        """Time over the base machine's time: below 1 is faster."""
        base = self.rows[0].seconds
        return row.seconds / base if row.seconds is not None and base else None

    def changed(self, row: Row) -> list[str]:
        """What is other in the schedule than on the base machine: lines that went ("- ") and lines that came ("+ ")."""
        if not row.outcome or not self.rows[0].outcome or row is self.rows[0]:
            return []
        before, after = (_lines(o.schedule) for o in (self.rows[0].outcome, row.outcome))
        found = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
        return [f"{line[0]} {line[1:].strip()}" for line in found if line[0] in "+-"]

    def text(self) -> str:
        """The table, refusals, and what changed in the schedules."""
        head = ("variant", "stages", "cycles", "us", "ratio", "limiter", "waits for")
        head += ("moved B", "needs B", "use", "schedule")
        table = [head, *((row.label, *self._cells(row)) if row.outcome else (row.label,) for row in self.rows)]
        widths = [max(len(cells[n]) for cells in table if n < len(cells)) for n in range(len(head))]
        left = (0, 5, 6, 10)

        def line(cells: Sequence[str]) -> str:
            parts = [c.ljust(w) if n in left else c.rjust(w) for n, (c, w) in enumerate(zip(cells, widths))]
            return "  ".join(parts).rstrip()

        lines = [f"{self.work} on {self.machine} and {_count(len(self.rows) - 1, 'variant')} (modelled, not measured)"]
        lines.append(line(head))
        for row, cells in zip(self.rows, table[1:]):
            refused = f"{row.label.ljust(widths[0])}  refused: {' '.join(str(row.refusal).split())}"
            lines.append(line(cells) if row.outcome else refused)
        schedules: dict[tuple[str, ...], list[str]] = {}
        for row in self.rows[1:]:
            schedules.setdefault(tuple(self.changed(row)), []).append(row.label)
        for changed, labels in schedules.items():
            if not changed:
                continue
            counts = Counter(changed)  # the layers of a model change alike
            texts = [f"  {text}" + (f"  ({times} times)" if times > 1 else "") for text, times in counts.items()]
            lines += ["", f"schedule with {'; '.join(labels)}", *texts[:SHOWN]]
            if len(texts) > SHOWN:
                lines.append(f"  and {_count(len(texts) - SHOWN, 'more line')}")
        assumed = next((row.outcome.timeline.assumed for row in self.rows if row.outcome), ())
        if assumed:
            lines += ["", f"assumed where no variant says otherwise: {', '.join(assumed)}"]
        return "\n".join(lines)

    def _cells(self, row: Row) -> tuple[str, ...]:
        ratio, limiter, use = self.ratio(row), row.limiter, row.utilisation
        changed = len(self.changed(row))
        if row is self.rows[0] or not self.rows[0].outcome:
            schedule = ""
        else:
            schedule = f"{_count(changed, 'line')} other" if changed else "the same"
        return (
            str(row.stages),
            f"{row.cycles:,}",
            f"{(row.seconds or 0) * 1e6:,.1f}",
            "-" if ratio is None else f"{ratio:.3f}",
            "-" if limiter is None else f"{limiter[0]} {limiter[1]:.0%}",
            next(iter(row.waits), "-"),
            f"{row.moved:,}",
            f"{row.outcome.footprint:,}" if row.outcome else "-",
            "-" if use is None else f"{use:.1%}",
            schedule,
        )

    def record(self) -> dict[str, object]:
        """The comparison as plain values, for JSON."""
        return {
            "work": self.work,
            "machine": self.machine,
            "kind": "modelled",
            "rows": [self._record(row) for row in self.rows],
        }

    def _record(self, row: Row) -> dict[str, object]:
        found: dict[str, object] = {"label": row.label, "changes": dict(row.changes)}
        if row.refusal is not None:
            fields = {name: getattr(row.refusal, name) for name in ("rule", "where", "got", "limit", "hint")}
            told = {name: str(value) for name, value in fields.items() if value not in (None, "")}
            return {**found, "refused": {"type": type(row.refusal).__name__, **told}}
        limiter = row.limiter
        return {
            **found,
            "machine": row.outcome.timeline.machine if row.outcome else "",
            "stages": row.stages,
            "cycles": row.cycles,
            "seconds": row.seconds,
            "ratio": self.ratio(row),
            "limiter": None if limiter is None else {"name": limiter[0], "full": limiter[1]},
            "waits": row.waits,
            "bytes_moved": row.moved,
            "footprint": row.outcome.footprint if row.outcome else None,
            "utilisation": row.utilisation,
            "schedule": self.changed(row),
        }


def compare(
    work: str,
    machine: Machine,
    variants: Iterable[Changes],
    measure: Measure,
    *,
    sizes: Iterable[str] = (),
    sized: Sized | None = None,
    knobs: Iterable[str] = (),
) -> Comparison:
    """Measure the work on `machine` and on each variant of it.

    sizes, sized: names of what can be grown, and how (a machine package's). knobs: names that go to `measure` with
    their values. Raises DefinitionError for a name nobody knows, before anything is measured; whatever else is refused
    is the row of its variant.
    """
    sizes, listed = tuple(sizes), [dict(changes) for changes in variants]
    for changes in listed:
        check_names(machine, changes, sizes, knobs)

    def one(label: str, changes: dict[str, Setting]) -> Row:
        try:
            made, rest = varied(machine, changes, sizes, sized or _unsized)
            return Row(label, changes, measure(made, rest))
        except KohakuError as error:
            return Row(label, changes, refusal=error)

    return Comparison(work, machine.name, (one("as it is", {}), *(one(spelt(c), c) for c in listed)))


def _unsized(machine: Machine, sizes: Mapping[str, int]) -> Machine:
    raise DefinitionError("this machine has one size", where=machine.name, got=", ".join(sizes))


def _lines(schedule: str) -> list[str]:
    """A schedule's lines but for those that name the machine."""
    return [line for line in schedule.splitlines() if not line.startswith("schedule ")]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
