"""Runs the benchmarks one after another and renews the figures in docs/measured.md.

It decides how figures are shown, never what they are: what stands between a benchmark's marks on the page comes
from that benchmark's JSON line of this very run; the words around it are the page's. A run that shared the machine with
other programs is not published: threads that wait for each other suffer most, and the ratios would lie.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "measured.md"
NAMES = (
    *("gemm", "vector", "dispatch", "kernels", "clock", "revision2", "automatic", "models", "tinygrad_kernels"),
    *("split", "search", "tinygrad_speed", "tinytpu_cycles", "tinytpu_models", "tinytpu_speed"),
)
MODELLED = frozenset(
    ("revision2", "automatic", "tinygrad_kernels", "split", "search", "tinytpu_cycles", "tinytpu_models")
)
"""Benchmarks whose figures do not depend on the host, nor on what else it does."""
QUIET = 0.1  # most processors that other programs may have kept busy


def measure(name: str) -> dict[str, Any]:
    """The benchmark's own record of one run."""
    command = [sys.executable, str(HERE / f"{name}.py")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout)
    return json.loads(done.stdout.splitlines()[-1])


def cell(value: float | int | str) -> str:
    """Three significant digits, or a whole number with separators."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as a Markdown table, numbers to the right."""
    columns = list(rows[0])
    marks = ["---" if isinstance(rows[0][c], str) else "---:" for c in columns]
    lines = [columns, marks, *([cell(row[c]) for c in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bar_line(bar: dict[str, Any]) -> str:
    """One bar and what was measured."""
    met = bar["value"] < bar["limit"] if bar["below"] else bar["value"] >= bar["limit"]
    word = "under" if bar["below"] else "at least"
    return (
        f"- {bar['name']}: {cell(bar['value'])}; wanted {word} {cell(bar['limit'])}: {'met' if met else '**missed**'}"
    )


def between(page: str, name: str, text: str) -> str:
    """The page with `text` between the marks of `name`."""
    mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not mark.search(page):
        raise SystemExit(f"{PAGE.name} has no marks for {name}")
    return mark.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page)


def section(name: str, record: dict[str, Any]) -> str:
    """What stands between a benchmark's marks. Ends the program where a measurement was disturbed."""
    conditions = "Modelled, not measured; these figures do not depend on the host."
    if name not in MODELLED:
        busy = record["conditions"]["busy with other work"]
        if busy > QUIET:
            raise SystemExit(f"{name}: other programs kept {busy} processors busy; nothing was written, try again")
        facts = ", ".join(f"{key} {value}" for key, value in record["conditions"].items())
        conditions = f"Measured {datetime.now(UTC):%Y-%m-%d}: {facts}."
    bars = "\n".join(bar_line(bar) for bar in record["bars"])
    return f"{conditions}\n\n{table(record['rows'])}\n\n{bars}\n"


def main() -> int:
    page = PAGE.read_text()
    for name in NAMES:
        record = measure(name)
        page = between(page, name, section(name, record))
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
