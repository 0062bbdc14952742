"""The clock's engine, compiled: events in the order of their times, in a part of an array of words.

It decides order, nothing else: events of one cycle happen in the order in which they were pushed, so a run is
reproducible. It must not know what is timed. All times are whole cycles.

A queue is a binary heap of rows (time, order, what) from word `base` on; word `size` of the array holds the number of
events in it, word `order` how many were ever pushed.
"""

from __future__ import annotations

from typing import Any

from kohakuaccel.jit import leaf, separate

ROW = 3


@separate("void(int64[::1], int64, int64, int64, int64, int64)", python=True)
def push(words: Any, base: int, size: int, order: int, time: int, what: int) -> None:
    """`what` happens at `time`. The caller has seen to it that there is room."""
    number = words[order]
    words[order] = number + 1
    at = base + ROW * words[size]
    words[size] += 1
    while at > base:
        up = base + ((at - base) // ROW - 1 >> 1) * ROW
        if words[up] <= time:  # what was pushed before goes first
            break
        words[at] = words[up]
        words[at + 1] = words[up + 1]
        words[at + 2] = words[up + 2]
        at = up
    words[at] = time
    words[at + 1] = number
    words[at + 2] = what


@leaf(python=True)
def pop(words: Any, base: int, size: int, now: int) -> int:
    """Takes the first event out and returns what happens; word `now` becomes its time. There is one."""
    what = words[base + 2]
    words[now] = words[base]
    last = words[size] - 1
    words[size] = last
    end = base + ROW * last
    time, number, moved = words[end], words[end + 1], words[end + 2]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= last:
            break
        one, two = base + ROW * down, base + ROW * down + ROW
        if down + 1 < last and (
            words[two] < words[one] or (words[two] == words[one] and words[two + 1] < words[one + 1])
        ):
            one = two
            down += 1
        if words[one] > time or (words[one] == time and words[one + 1] > number):
            break
        up = base + ROW * at
        words[up] = words[one]
        words[up + 1] = words[one + 1]
        words[up + 2] = words[one + 2]
        at = down
    up = base + ROW * at
    words[up] = time
    words[up + 1] = number
    words[up + 2] = moved
    return what
