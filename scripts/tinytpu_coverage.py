"""Write docs/tinytpu-coverage.md: areas, laws and opcodes of TinyTPU, counted from the tests and from lowered graphs.

python scripts/tinytpu_coverage.py [--check]
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tinytpu-coverage.md"


def main() -> int:
    sys.path.insert(0, str(ROOT / "tests"))
    from tinytpu_acceptance.coverage import page

    made = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made)
        return 0
    held = PAGE.read_text() if PAGE.exists() else ""
    sys.stdout.writelines(difflib.unified_diff(held.splitlines(True), made.splitlines(True), str(PAGE.name), "as made"))
    return int(held != made)


if __name__ == "__main__":
    sys.exit(main())
