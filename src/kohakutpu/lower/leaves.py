"""What an expression reads, as its ports and views.

It decides nothing.
"""

from __future__ import annotations

from kohakuaccel.lang.ports import Port
from kohakuaccel.lang.values import Apply, Join, Reduce, Value, View


def ports_of(value: Value) -> list[Port]:
    """Every port that an expression reads."""
    return [v.port if isinstance(v, View) else v for v in leaves_of(value)]


def views_of(value: Value) -> list[View]:
    """Every view in an expression, in the order it is written."""
    return [v for v in leaves_of(value) if isinstance(v, View)]


def leaves_of(value: Value) -> list[View | Port]:
    """What an expression reads, in the order it is written."""
    found: list[View | Port] = []
    stack: list[Value] = [value]
    seen: set[int] = set()
    while stack:
        v = stack.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        if isinstance(v, View | Port):
            found.append(v)
        elif isinstance(v, Apply | Join):
            stack.extend(reversed(v.args))
        elif isinstance(v, Reduce):
            stack.append(v.arg)
    return found
