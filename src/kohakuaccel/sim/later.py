"""Sequences and mappings that are made when somebody first looks at them.

It decides when, nothing else: a report of a model has hundreds of launches behind it, and most runs want a few sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class LaterList(Sequence[T], Generic[T]):
    """What `make` returns, called once."""

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._make = make
        self._made: Sequence[T] | None = None

    def _all(self) -> Sequence[T]:
        if self._made is None:
            self._made = self._make()
        return self._made

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[T]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return list(self) == list(other)


class LaterDict(Mapping[str, T], Generic[T]):
    """What `make` returns, called once."""

    def __init__(self, make: Callable[[], Mapping[str, T]]) -> None:
        self._make = make
        self._made: Mapping[str, T] | None = None

    def _all(self) -> Mapping[str, T]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, name: str) -> T:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
