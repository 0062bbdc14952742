"""tinygrad's own settings for these tests: no compile workers, no cache on disk."""

from __future__ import annotations

import os

os.environ["PARALLEL"] = "0"
os.environ["CACHELEVEL"] = "0"
