"""The one version of tinygrad that these modules are written against.

Decides that another version is refused at once: the internals used here have no stability promise.
"""

from __future__ import annotations

from importlib import metadata

from kohakuaccel.diagnostics import Refusal

VERSION = "0.14.0"


def check() -> None:
    """Refuse a tinygrad of another version, or none, before any of it is imported."""
    try:
        found = metadata.version("tinygrad")
    except metadata.PackageNotFoundError:
        raise Refusal(
            "the tinygrad device needs tinygrad", where="tinygrad", got="none installed", limit=VERSION, hint=_HINT
        ) from None
    if found != VERSION:
        raise Refusal(
            "the tinygrad device works with one version of tinygrad, whose internals it uses",
            where="tinygrad",
            got=found,
            limit=VERSION,
            hint=_HINT,
        )


_HINT = f"run: pip install tinygrad=={VERSION}"
