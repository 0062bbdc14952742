"""From an image's instruction streams to the rounds of the control engine (datasheet 7.3).

Modules: `rounds` (what a round is), `loader` (where streams are cut), `acks` (which signals a stream causes), `shares`
(where streams meet), `check` (what a round does, read back). They must not know how a transport works.
"""

from kohakutpu.dispatch.check import check_rounds
from kohakutpu.dispatch.loader import Loader
from kohakutpu.dispatch.rounds import Limits, Round, Window, opcode_counts

__all__ = ["Limits", "Loader", "Round", "Window", "check_rounds", "opcode_counts"]
