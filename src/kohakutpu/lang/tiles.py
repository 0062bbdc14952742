"""The accumulator tile: gm x gn sub-tiles of 4x4 that a cluster holds while a sweep runs over K."""

from __future__ import annotations

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.lang.indices import Index, IndexExpr
from kohakuaccel.lang.ports import Tiling
from kohakuaccel.lang.trace import StageNode, StatementNode, recorder, user_line
from kohakuaccel.lang.values import Contraction, Value
from kohakutpu.lang.ports import _positive, _Tilings


class Tile(Value):
    """A resident tile. `tile += a[i, k] @ b[j, k]` accumulates; as a value it is the finished accumulator.

    `depth` is the number of loops open at its birth: the accumulate flag restarts with every pass of a loop opened
    later, so a chain through two such loops would silently drop all but the last pass, and is refused.
    """

    def __init__(self, gm: int, gn: int, nk: int, split: int) -> None:
        active = recorder("a tile")
        self.source = user_line()
        if not active.stages:
            raise Refusal(
                "a tile belongs to an instance of a grid",
                where="tile",
                hint="open a grid over the operands' tiles first",
                source=self.source,
            )
        self.gm, self.gn, self.nk, self.split = gm, gn, nk, split
        self.stage: StageNode = active.stages[-1]
        self.depth = len(active.loops)
        self.name = active.fresh("acc")
        active.add(
            StatementNode(
                "tile", (self,), f"{self.name} = tile({gm},{gn},{nk}{f',{split}' if split > 1 else ''})", self.source
            )
        )

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

    def parts(self, elements: int) -> Tiling:
        """A view of this tile in parts of so many elements, for a tiling inside the tile: it says how much a vector
        core takes at a time and creates no other memory."""
        size = _positive(elements, f"{self.name}.parts")
        if size % 16:
            raise Refusal(
                "a part is whole words of 16 elements",
                where=f"{self.name}.parts",
                got=size,
                hint="use a multiple of 16",
                source=user_line(),
            )
        view = TileView()
        view.name = self.name
        view.tile = self
        return Tiling(view, "parts", size)

    def __getitem__(self, part: IndexExpr) -> Tile:
        """The tile seen through one of its own tilings: elementwise work on a part is work on the tile."""
        over = part.over if isinstance(part, Index) else None
        if not (isinstance(over, Tiling) and isinstance(over.port, TileView) and over.port.tile is self):
            raise Refusal(
                "a tile is indexed by a tiling of itself",
                where=f"{self.name}[{part}]",
                hint=f"with units({self.name}.parts(n)) as e: ... {self.name}[e]",
                source=user_line(),
            )
        return self

    def __str__(self) -> str:
        return self.name


class TileView(_Tilings):
    """A tile as the thing that a tiling inside it cuts."""

    inside_tile = True
    tile: Tile


class Partial(Value):
    """One of the partial sums of a tile whose K is split."""

    def __init__(self, tile: Tile, part: int) -> None:
        self.tile = tile
        self.part = part

    def __str__(self) -> str:
        return f"{self.tile}.{self.part}"


def tile(gm: int, gn: int, nk: int = 1, split: int = 1) -> Tile:
    """Open an accumulator of gm x gn sub-tiles of 4x4 outputs, fed nk K blocks of 32 at a time.

    split: cut K into so many parts that run as instances of their own; their FP16 partial sums are added by an
    emitted band. Worth it where a product has few tiles and a long K.
    """
    return Tile(
        _positive(gm, "tile gm"), _positive(gn, "tile gn"), _positive(nk, "tile nk"), _positive(split, "tile split")
    )
