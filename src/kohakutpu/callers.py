"""Whose line it was: errors of the tensor level point at the program that asked, not at our own frames.

Decides which frames are ours. It must not know what was asked.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import kohakuaccel
from kohakuaccel.diagnostics import KohakuError, SourceLine

P = ParamSpec("P")
R = TypeVar("R")

_OWN = tuple(str(Path(file).parent) + os.sep for file in (__file__, str(kohakuaccel.__file__)))


def users_line() -> SourceLine | None:
    """The innermost line of the call stack that is not in our own packages."""
    frame = sys._getframe(1)
    while frame is not None:
        code, line = frame.f_code, frame.f_lineno
        if not code.co_filename.startswith(_OWN):
            return SourceLine(code.co_filename, line, linecache.getline(code.co_filename, line).strip())
        frame = frame.f_back
    return None


def at_users_line(function: Callable[P, R]) -> Callable[P, R]:
    """Errors of ours that leave `function` carry the line of the program that called it, unless they already
    carry a line of a program."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except KohakuError as error:
            if error.source is None or error.source.file.startswith(_OWN):
                error.source = users_line() or error.source
            raise

    return call
