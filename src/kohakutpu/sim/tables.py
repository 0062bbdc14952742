"""Rows of the clock's tables, for compiled code: each function gives a view of one row of `State.words`.

It decides nothing; the columns are named in `state`.
"""

from __future__ import annotations

from typing import Any

from kohakuaccel.jit import kernel
from kohakutpu.sim.state import (
    A_COLUMNS,
    E_COLUMNS,
    FILLS,
    K_COLUMNS,
    N_DEPTH,
    N_ENDS,
    N_TILES,
    N_UNITS,
    O_AGENT,
    O_COMMANDS,
    O_COUNTS,
    O_EMIT,
    O_FILLS,
    O_FLOWS,
    O_GROUPS,
    O_LINK,
    O_PATH_AT,
    O_PORT,
    O_READS,
    O_READY,
    O_RING,
    O_ROUNDS,
    O_SPANS,
    O_SUB,
    O_UNIT,
    O_WINDOWS,
    O_WORK,
    O_WRITES,
    P_COLUMNS,
    SLOTS,
    U_COLUMNS,
    W_COLUMNS,
)


def signature(result: str, integers: int) -> str:
    """The numba signature of a part that takes `State.words` and this many integers."""
    return f"{result}(int64[::1]{', int64' * integers})"


@kernel(inline="always")
def work_of(s: Any, w: int) -> Any:
    at = s[O_WORK] + w * W_COLUMNS
    return s[at : at + W_COLUMNS]


@kernel(inline="always")
def agent_of(s: Any, mesh: int) -> Any:
    at = s[O_AGENT] + mesh * A_COLUMNS
    return s[at : at + A_COLUMNS]


@kernel(inline="always")
def counts_of(s: Any, mesh: int) -> Any:
    at = s[O_COUNTS] + mesh * 256
    return s[at : at + 256]


@kernel(inline="always")
def unit_of(s: Any, u: int) -> Any:
    at = s[O_UNIT] + u * U_COLUMNS
    return s[at : at + U_COLUMNS]


@kernel(inline="always")
def port_of(s: Any, p: int) -> Any:
    at = s[O_PORT] + p * P_COLUMNS
    return s[at : at + P_COLUMNS]


@kernel(inline="always")
def link_of(s: Any, number: int) -> Any:
    at = s[O_LINK] + number * K_COLUMNS
    return s[at : at + K_COLUMNS]


@kernel(inline="always")
def span_of(s: Any, n: int) -> Any:
    at = s[O_SPANS] + n * 7
    return s[at : at + 7]


@kernel(inline="always")
def flow_of(s: Any, n: int) -> Any:
    at = s[O_FLOWS] + n * 5
    return s[at : at + 5]


@kernel(inline="always")
def group_of(s: Any, g: int) -> Any:
    at = s[O_GROUPS] + g * 3
    return s[at : at + 3]


@kernel(inline="always")
def round_of(s: Any, r: int) -> Any:
    at = s[O_ROUNDS] + r * 3
    return s[at : at + 3]


@kernel(inline="always")
def command_of(s: Any, at: int) -> Any:
    at = s[O_COMMANDS] + at * 4
    return s[at : at + 4]


@kernel(inline="always")
def window_of(s: Any, n: int) -> Any:
    at = s[O_WINDOWS] + n * 3
    return s[at : at + 3]


@kernel(inline="always")
def ring_of(s: Any, number: int) -> Any:
    at = s[O_RING] + number * s[N_DEPTH]
    return s[at : at + s[N_DEPTH]]


@kernel(inline="always")
def ready_of(s: Any, u: int) -> Any:
    at = s[O_READY] + u * 256
    return s[at : at + 256]


@kernel(inline="always")
def emit_of(s: Any, u: int, slot: int) -> Any:
    at = s[O_EMIT] + (u * SLOTS + slot) * E_COLUMNS
    return s[at : at + E_COLUMNS]


@kernel(inline="always")
def issued_of(s: Any, u: int, slot: int) -> Any:
    at = s[O_SUB] + (u * SLOTS + slot) * 2 * s[N_TILES]
    return s[at : at + s[N_TILES]]


@kernel(inline="always")
def left_of(s: Any, u: int, slot: int) -> Any:
    at = s[O_SUB] + ((u * SLOTS + slot) * 2 + 1) * s[N_TILES]
    return s[at : at + s[N_TILES]]


@kernel(inline="always")
def fill_of(s: Any, u: int, n: int) -> Any:
    at = s[O_FILLS] + (u * FILLS + n) * 4
    return s[at : at + 4]


@kernel(inline="always")
def reader_of(s: Any, p: int, n: int) -> Any:
    at = s[O_READS] + (p * (s[N_UNITS] + 1) + n) * 3
    return s[at : at + 3]


@kernel(inline="always")
def writer_of(s: Any, p: int, n: int) -> Any:
    at = s[O_WRITES] + (p * (s[N_UNITS] + 1) + n) * 3
    return s[at : at + 3]


@kernel(inline="always")
def path_of(s: Any, source: int, target: int) -> Any:
    at = s[O_PATH_AT] + (source * s[N_ENDS] + target) * 2
    return s[at : at + 2]
