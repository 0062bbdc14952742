"""Arguments and results made of tensors: lists, tuples, dicts and dataclasses, taken apart and put together.

Decides what is a leaf, and which values a traced function depends on. It must not know recordings.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from kohakuaccel.diagnostics import Refusal
from kohakutpu.tensor import Tensor

PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None)})


def flatten(value: Any, leaves: list[Any], name: str) -> Hashable:
    """Tensors and arrays of `value` are appended to `leaves`; the result is equal for values of one structure.

    Everything that is neither a container nor a tensor is part of the structure: numbers by type and value (1, 1.0 and
    True differ), other objects by their own equality. Refused: what has no hash.
    """
    kind = type(value)
    if kind is Tensor:
        leaves.append(value)
        return value._shape, value._dtype.char
    if kind in PLAIN:
        return kind, repr(value) if kind is float or kind is complex else value
    if kind is tuple or kind is list:
        return _several(kind, value, leaves, name)
    names = _fields(kind)
    if names is not None:
        return _several(kind, [getattr(value, n) for n in names], leaves, name)
    if kind is dict:
        return _several(tuple(value), value.values(), leaves, name)
    if kind is np.ndarray and value.ndim:
        leaves.append(value)
        return "array", value.shape, value.dtype.str
    return _rare(value, leaves, name)


def _several(kind: Hashable, values: Iterable[Any], leaves: list[Any], name: str) -> Hashable:
    found: list[Hashable] = [kind]
    for value in values:
        if type(value) is Tensor:  # the most frequent case, without a call
            leaves.append(value)
            found += value._shape, value._dtype.char
        else:
            found.append(flatten(value, leaves, name))
    return tuple(found)


def _rare(value: Any, leaves: list[Any], name: str) -> Hashable:
    kind = type(value)
    if isinstance(value, (np.generic, np.ndarray)):
        return kind, value.dtype.str, value.item().__repr__()
    if isinstance(value, tuple):  # a named one
        return _several(kind, value, leaves, name)
    try:
        hash(value)
    except TypeError:
        raise Refusal(
            "an argument of a traced function is made of tensors, or has a hash",
            where=name,
            got=kind.__name__,
            limit="tensors and arrays in lists, tuples, dicts and dataclasses; hashable values",
            hint="make it a dataclass, or close over it",
        ) from None
    return kind, value


@lru_cache(maxsize=256)
def _fields(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass; None for every other type."""
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else None


def rebuild(value: Any, leaf: Callable[[Any, str], Any], path: str = "") -> Any:
    """`value` with `leaf(tensor or array, its path)` in place of every leaf."""
    if isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.ndim):
        return leaf(value, path)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        parts: Sequence[str] = value._fields  # pyright: ignore[reportAttributeAccessIssue] - a named tuple has it
        return type(value)(*(rebuild(v, leaf, f"{path}_{n}") for n, v in zip(parts, value)))
    if isinstance(value, (tuple, list)):
        return type(value)(rebuild(v, leaf, f"{path}_{n}") for n, v in enumerate(value))
    if isinstance(value, Mapping) and type(value) is dict:
        return {k: rebuild(v, leaf, f"{path}_{k}") for k, v in value.items()}
    names = _fields(type(value))
    if names is not None:
        made = object.__new__(type(value))
        for name in names:
            object.__setattr__(made, name, rebuild(getattr(value, name), leaf, f"{path}_{name}"))
        return made
    return value
