"""What a device of ours may do with kernels: options that a scope sets, and before it the environment.

Decides how options are found, checked and scoped; which there are is a frozen dataclass of a machine, whose fields are
texts of a few allowed values.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_type_hints

from kohakuaccel.diagnostics import Refusal

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


class Options(Generic[T]):
    """The options of one machine. kind: a dataclass of Literal fields, each with its default. prefix: of the
    environment's names (`KTPU` for `KTPU_HOST`). where: named in refusals."""

    def __init__(self, kind: type[T], prefix: str, where: str) -> None:
        self.kind, self.prefix, self.where = kind, prefix, where
        hints = get_type_hints(kind)
        self.allowed = {one.name: get_args(hints[one.name]) for one in fields(kind)}
        self._current: ContextVar[T | None] = ContextVar(f"{where}.options", default=None)

    def _chosen(self, shown: str, name: str, value: str) -> str:
        if value not in self.allowed[name]:
            raise Refusal(f"{shown} is one of {', '.join(self.allowed[name])}", where=self.where, got=value)
        return value

    def from_environment(self) -> T:
        """What the environment asks for; defaults where it says nothing. Raises Refusal for another value."""
        given = {name: os.environ.get(f"{self.prefix}_{name.upper()}") for name in self.allowed}
        found = {
            name: self._chosen(f"{self.prefix}_{name.upper()}", name, text)
            for name, text in given.items()
            if text is not None
        }
        return self.kind(**found)

    def current(self) -> T:
        """What holds here."""
        found = self._current.get()
        return self.from_environment() if found is None else found

    @contextmanager
    def scope(self, **given: str | None) -> Generator[T]:
        """A scope with other options; None leaves one as it is."""
        chosen: dict[str, Any] = {
            name: self._chosen(name, name, value) for name, value in given.items() if value is not None
        }
        made = replace(self.current(), **chosen)
        token = self._current.set(made)
        try:
            yield made
        finally:
            self._current.reset(token)
