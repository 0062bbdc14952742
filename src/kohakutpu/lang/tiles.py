"""The accumulator tile: gm x gn sub-tiles of 4x4 that a cluster holds while a sweep runs over K."""

from __future__ import annotations

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang.trace import StageNode, StatementNode, recorder, user_line
from kohakuaccel.lang.values import Contraction, Value
from kohakutpu.lang.ports import _positive


class Tile(Value):
    """A resident tile. `tile += a[i, k] @ b[j, k]` accumulates; as a value it is the finished accumulator.

    `depth` is the number of loops open at its birth: the accumulate flag restarts with every pass of a loop opened
    later, so a chain through two such loops would silently drop all but the last pass, and is refused.
    """

    def __init__(self, gm: int, gn: int, nk: int) -> None:
        active = recorder("a tile")
        self.source = user_line()
        if not active.stages:
            raise Refusal(
                "a tile belongs to an instance of a grid",
                where="tile",
                hint="open a grid over the operands' tiles first",
                source=self.source,
            )
        self.gm, self.gn, self.nk = gm, gn, nk
        self.stage: StageNode = active.stages[-1]
        self.depth = len(active.loops)
        self.name = active.fresh("acc")
        active.add(StatementNode("tile", (self,), f"{self.name} = tile({gm},{gn},{nk})", self.source))

    def __iadd__(self, product: Contraction) -> Tile:
        active = recorder("an accumulation")
        source = user_line()
        if not isinstance(product, Contraction):
            raise Refusal(
                "an accumulator takes contractions of two views",
                where=f"{self.name} +=",
                got=type(product).__name__,
                hint="write acc += a[i, k] @ b[j, k]; elementwise work goes into the store",
                source=source,
            )
        if not active.stages or active.stages[-1] is not self.stage:
            raise Refusal(
                "a tile lives in the stage that opened it",
                where=f"{self.name} +=",
                hint="open a tile in this stage",
                source=source,
            )
        if len(active.loops) - self.depth > 1:
            raise Refusal(
                "an accumulator chained from a loop opened after the tile restarts with every pass of that loop",
                where=f"{self.name} +=",
                got=f"{len(active.loops) - self.depth} loops since the tile",
                limit="1 sweep",
                hint="open the tile inside the outer loop, or fold both loops into one sweep",
                source=source,
            )
        active.add(StatementNode("accumulate", (self, product), f"{self.name} += {product}", source))
        return self

    def __str__(self) -> str:
        return self.name


def tile(gm: int, gn: int, nk: int = 1) -> Tile:
    """Open an accumulator of gm x gn sub-tiles of 4x4 outputs, fed nk K blocks of 32 at a time."""
    return Tile(_positive(gm, "tile gm"), _positive(gn, "tile gn"), _positive(nk, "tile nk"))
