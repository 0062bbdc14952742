"""A file of earlier measurements of the known programs: a JSON document a line, the newest last (datasheet 16).

Decides what is kept of a run and what is said against the last one; what is measured is `bench`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kohakuaccel.diagnostics import Refusal, SourceLine
from tinytpu.programs.bench import Outcome

Cycles = Mapping[str, int]
"""By "kernel variant"; 0 where the values were wrong."""


def cycles_of(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """What a line of the file keeps."""
    return {f"{o.kernel} {o.variant}": o.cycles for o in outcomes}


def last(file: Path) -> tuple[str, Cycles] | None:
    """When the last run was, and its cycles; None without a file. Raises Refusal for a file that is no history."""
    lines = file.read_text().splitlines() if file.is_file() else []
    if not lines:
        return None
    try:
        found: Any = json.loads(lines[-1])
        return str(found["at"]), {str(name): int(cycles) for name, cycles in found["cycles"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        source = SourceLine(str(file), len(lines), lines[-1][:80])
        raise Refusal("a line of a history is a measurement", where="--history", source=source) from None


def compared(before: tuple[str, Cycles] | None, now: Cycles) -> list[str]:
    """What is other than in the last run, a line each."""
    if before is None:
        return ["history: this is the first run"]
    at, old = before
    found: list[str] = []
    for name, cycles in now.items():
        if name in old and old[name] != cycles:
            ratio = f", {cycles / old[name]:.3f} of it" if old[name] and cycles else ""
            found.append(f"  {name}: {old[name]:,} to {cycles:,}{ratio}")
    both = sum(name in old for name in now)
    head = f"history: {both} programs as on {at}, {len(found)} other, {len(now) - both} new"
    return [head, *found]


def append(file: Path, now: Cycles) -> None:
    """Add a run to the file."""
    line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="seconds"), "cycles": dict(now)})
    with file.open("a") as opened:
        opened.write(line + "\n")
