"""Stages and loops: `grid`, `stage`/`units`, `sweep`/`loop`.

`grid` and `stage` open independent instances over tilings (`stage` also asks for a barrier); `sweep` iterates
inside a tile. Each body runs once while tracing, with symbolic indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang.dims import DimExpr
from kohakuaccel.lang.indices import Index, IndexExpr
from kohakuaccel.lang.ports import Tiling, span
from kohakuaccel.lang.trace import LoopNode, StageNode, recorder, user_line


def _check(given: tuple[object, ...], what: str) -> tuple[Tiling, ...]:
    tilings = tuple(span(t) if isinstance(t, DimExpr | int) and not isinstance(t, bool) else t for t in given)
    if not tilings or not all(isinstance(t, Tiling) for t in tilings):
        raise Refusal(
            f"{what} runs over tilings of ports",
            where=what,
            got=", ".join(type(t).__name__ for t in tilings) or "nothing",
            hint="pass x.tiles(g), x.parts(n), x.rows() or x.chunks32(n)",
            source=user_line(),
        )
    return tuple(t for t in tilings if isinstance(t, Tiling))


_STEMS = ("i", "j", "l", "m")


class _Instances:
    """Shared by grid and stage: opens the scope and hands out one index per tiling."""

    barrier = False

    def __init__(self, *tilings: Tiling | DimExpr | int) -> None:
        self._tilings = _check(tilings, "stage" if self.barrier else "grid")
        self._scope: AbstractContextManager[None] | None = None

    def _open(self) -> Any:
        active = recorder("a stage")
        source = user_line()
        if active.stages and not all(t.port.inside_tile for t in self._tilings):
            raise Refusal(
                "a tiling inside a tile is a view of that tile, not of a tensor in memory",
                where="stage",
                got=" x ".join(str(t) for t in self._tilings),
                hint="tile the accumulator (acc.parts(n)), or close the outer stage first",
                source=source,
            )
        axes = tuple(Index(active.fresh(_STEMS[n % 4]), t, source) for n, t in enumerate(self._tilings))
        self._scope = active.inside(StageNode(axes, source, self.barrier))
        self._scope.__enter__()
        return axes[0] if len(axes) == 1 else axes

    def _close(self) -> None:
        if self._scope is not None:
            self._scope.__exit__(None, None, None)
            self._scope = None

    def __enter__(self) -> Any:
        return self._open()

    def __exit__(self, *_: object) -> None:
        self._close()

    def __iter__(self) -> Iterator[Any]:
        yield self._open()
        self._close()


class grid(_Instances):
    """Independent instances, no barrier asked for: `for i, j in grid(a.tiles(gm), b.tiles(gn)): ...`.

    A number or size stands for the positions 0 .. n-1.
    """


class stage(_Instances):
    """`grid` plus a barrier in front: `with stage(x.parts(n)) as e: ...`."""

    barrier = True


units = stage


class sweep:
    """A loop: over a tiling (`sweep(a.chunks32(nk))`), or over 0 .. n-1 for a number, a size or an index (`sweep(i)`).

    Inside a stage it iterates within a tile; around stages it repeats them in order. The body is traced once.
    """

    def __init__(self, over: Tiling | IndexExpr | DimExpr | int) -> None:
        if not isinstance(over, Tiling | IndexExpr | DimExpr | int) or isinstance(over, bool):
            raise Refusal(
                "a sweep runs over a tiling, a number, a size or an index",
                where="sweep",
                got=type(over).__name__,
                hint="sweep(a.chunks32(nk)), or sweep(n)",
                source=user_line(),
            )
        self._over = over

    def __iter__(self) -> Iterator[Index]:
        active = recorder("a sweep")
        source = user_line()
        index = Index(active.fresh("k"), self._over, source)
        with active.inside(LoopNode(index, source)):
            yield index


loop = sweep
