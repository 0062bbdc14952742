"""Who writes down what tensors are asked for instead of running it: the slot between kernels and the lazy level.

Decides only whether somebody records now, in this thread or task. It must not know graphs, tensors or kernels, nor what
a recorder does with them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class Recorder(Protocol):
    """What a recorder answers: tensors whose values come later."""

    def kernel(self, kernel: Any, operands: Sequence[Any], knobs: Mapping[str, object]) -> Any:
        """A call of a kernel; operands are tensors or arrays, None where an optional port is left out."""
        ...

    def operator(self, name: str, *operands: Any, **how: Any) -> Any:
        """An operator of the tensor level or a function of the library: operands (tensors, numbers, None) checked."""
        ...

    def permuted(self, x: Any, order: tuple[int, ...]) -> Any:
        """Axes in another order."""
        ...

    def expanded(self, x: Any, shape: tuple[int, ...]) -> Any:
        """Stretched by numpy's rule."""
        ...

    def moves(self, storage: Any) -> bool:
        """Whether a movement of this value is written down; else it is done on the host, once."""
        ...


_now: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


def current() -> Recorder | None:
    """The recorder of this thread or task, if any."""
    return _now.get()


@contextmanager
def by(recorder: Recorder | None) -> Generator[None]:
    """Everything asked of tensors inside the block is written down by `recorder`; by None: it runs."""
    token = _now.set(recorder)
    try:
        yield
    finally:
        _now.reset(token)
