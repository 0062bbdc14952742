"""The benchmark against the kernel library runs, and its plans leave nothing to the host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "automatic.py"


@pytest.mark.slow
def test_quick_workloads_are_near_the_library() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--quick"], capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert len(rows) >= 15
    for row in rows:
        assert row["host steps"] == 0
        assert row["ratio"] < 1.3, row["function"]  # the bar of 1.2 is for the full sizes
        assert row["error"] < 2 * row["error by hand"] + 1e-3
