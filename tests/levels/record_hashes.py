"""Hashes of every corpus program's encoded instruction streams. Run as a script to record them anew:

python tests/levels/record_hashes.py

A refactor changes no byte; a change of the compiler that means to change bytes records them in the same commit.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

RECORD = Path(__file__).with_name("image_hashes.json")


def image_hashes() -> dict[str, str]:
    """Case name -> hash over units and payloads of its image, linked as on an empty device."""
    from levels.corpus import CORPUS, plan_of

    found: dict[str, str] = {}
    for case in CORPUS:
        plan = plan_of(case)
        digest = hashlib.sha256()
        for stage in plan.image(plan.nominal_addresses()).stages:
            for program in stage:
                digest.update(program.unit.name.encode())
                digest.update(program.payloads.tobytes())
        found[case.name] = digest.hexdigest()[:16]
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    RECORD.write_text(json.dumps(image_hashes(), indent=0) + "\n")
