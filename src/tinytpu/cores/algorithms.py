"""Collectives as scripts: who sends what to whom, and when tiles are combined.

Decides the algorithms: flat, tree, chain, ring, direct. Which one is taken, and what tiles hold, is decided in
`collectives`. Every core's tiles lie in VMEM from slot 0 on; what comes to be combined lies behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine
from tinytpu.cores.reduction import combined, combining
from tinytpu.cores.scripts import Move, Receive, Send, Slots, Step


@dataclass(frozen=True)
class Writer:
    """Scripts of `cores` cores that grow. tiles: what each core holds (of scatter the root, of gathers a core's share
    times the cores). base: slot of the first one; spare: of what comes to be combined, 0 for right behind the tiles.
    dtype, op: of what is combined."""

    machine: Machine
    cores: int
    tiles: int
    root: int = 0
    dtype: str = "int32"
    op: str = "add"
    base: int = 0
    spare: int = 0
    scripts: list[list[Step]] = field(default_factory=list[list[Step]])

    def __post_init__(self) -> None:
        self.scripts.extend([] for _ in range(self.cores))

    def rank(self, number: int) -> int:
        """The core that is `number` behind the root."""
        return (self.root + number) % self.cores

    def chunk(self, core: int) -> range:
        """A core's share of the tiles, as even as they can be split: slots."""
        each, more = divmod(self.tiles, self.cores)
        start = self.base + core * each + min(core, more)
        return range(start, start + each + (core < more))

    @property
    def whole(self) -> range:
        return range(self.base, self.base + self.tiles)

    def scratch(self, number: int, like: range) -> range:
        """Slots behind the tiles, the `number`-th of their size. Raises Refusal where VMEM ends before."""
        start = (self.spare or self.base + self.tiles) + number * len(like)
        most = int(self.machine.params.vmem_tiles)
        if start + len(like) > most:
            raise Refusal(
                "VMEM holds the tiles and what is combined with them", where=f"{self.tiles} tiles, {self.cores} cores",
                got=start + len(like), limit=most, hint="move them in parts",
            )  # fmt: skip
        return range(start, start + len(like))

    def move(
        self, core: int, sends: Sequence[tuple[int, range]], takes: Sequence[tuple[int, range]], name: str
    ) -> None:
        """Transfers of a core, (other core, slots); those of no tiles are left out."""
        out = tuple(Send(peer, _slots(r)) for peer, r in sends if r)
        in_ = tuple(Receive(peer, _slots(r)) for peer, r in takes if r)
        if out or in_:
            self.scripts[core].append(Move(out, in_, name))

    def combine(self, core: int, slots: range, others: Sequence[range]) -> None:
        if slots and others:
            groups = combined(slots, others)
            self.scripts[core].append(combining(self.machine, self.dtype, self.op, groups))


def _slots(tiles: range) -> Slots:
    return Slots("VMEM", tiles.start, len(tiles))


Algorithm = Callable[[Writer], None]


def flat_broadcast(w: Writer) -> None:
    """The root sends all to each in turn: (n-1)(p+1)+2 cycles for p packets."""
    others = [w.rank(k) for k in range(1, w.cores)]
    w.move(w.root, [(core, w.whole) for core in others], [], "broadcast")
    for core in others:
        w.move(core, [], [(w.root, w.whole)], "broadcast")


def tree_broadcast(w: Writer) -> None:
    """Whoever has all sends it to one that has not, twice as many each time."""
    have = 1
    while have < w.cores:
        for k in range(min(have, w.cores - have)):
            a, b = w.rank(k), w.rank(have + k)
            w.move(a, [(b, w.whole)], [], "broadcast")
            w.move(b, [], [(a, w.whole)], "broadcast")
        have *= 2


def chain_broadcast(w: Writer) -> None:
    """From core to core, each sends a tile on while it receives the next one."""
    for k in range(w.cores):
        before, core, after = w.rank(k - 1), w.rank(k), w.rank(k + 1)
        first, last = k == 0, k == w.cores - 1
        for n in range(w.tiles + 1):
            tile, next_ = w.whole[n - 1 : n] if n else w.whole[:0], w.whole[n : n + 1]
            w.move(core, [] if last else [(after, tile)], [] if first else [(before, next_)], "broadcast")


def flat_scatter(w: Writer) -> None:
    """The root sends each its share in turn; its own stays."""
    others = [w.rank(k) for k in range(1, w.cores)]
    w.move(w.root, [(core, w.chunk(core)) for core in others], [], "scatter")
    for core in others:
        w.move(core, [], [(w.root, w.chunk(core))], "scatter")


def flat_gather(w: Writer) -> None:
    """Everybody sends its share to the root, which takes one after the other."""
    others = [w.rank(k) for k in range(1, w.cores)]
    for core in others:
        w.move(core, [(w.root, w.chunk(core))], [], "gather")
    w.move(w.root, [], [(core, w.chunk(core)) for core in others], "gather")


def direct_all_gather(w: Writer) -> None:
    """Everybody sends its share to everybody else, the next core first."""
    n = w.cores
    for core in range(n):
        sends = [((core + k) % n, w.chunk(core)) for k in range(1, n)]
        takes = [((core - k) % n, w.chunk((core - k) % n)) for k in range(1, n)]
        w.move(core, sends, takes, "all-gather")


def ring_all_gather(w: Writer) -> None:
    """n-1 rounds: everybody sends the share that it got last to the next core."""
    n = w.cores
    for core in range(n):
        for k in range(n - 1):
            out, in_ = w.chunk((core - k) % n), w.chunk((core - k - 1) % n)
            w.move(core, [((core + 1) % n, out)], [((core - 1) % n, in_)], "all-gather")


def flat_reduce(w: Writer) -> None:
    """The root receives all tiles of everybody and combines its own with those of the cores behind it in turn."""
    others = [w.rank(k) for k in range(1, w.cores)]
    for core in others:
        w.move(core, [(w.root, w.whole)], [], "reduce")
    places = [w.scratch(k, w.whole) for k in range(w.cores - 1)]
    w.move(w.root, [], list(zip(others, places)), "reduce")
    w.combine(w.root, w.whole, places)


def tree_reduce(w: Writer) -> None:
    """Rounds of pairs 1, 2, 4, .. apart: the nearer to the root combines its tiles with the farther one's."""
    apart = 1
    while apart < w.cores:
        for k in range(0, w.cores - apart, 2 * apart):
            near, far = w.rank(k), w.rank(k + apart)
            place = w.scratch(0, w.whole)
            w.move(far, [(near, w.whole)], [], "reduce")
            w.move(near, [], [(far, place)], "reduce")
            w.combine(near, w.whole, [place])
        apart *= 2


def direct_reduce_scatter(w: Writer) -> None:
    """Everybody gets its share of everybody else's tiles, and combines its own with that of the next core first."""
    n = w.cores
    for core in range(n):
        sends = [((core - k) % n, w.chunk((core - k) % n)) for k in range(1, n)]
        mine = w.chunk(core)
        places = [w.scratch(k, mine) for k in range(n - 1)]
        w.move(core, sends, [((core + k) % n, places[k - 1]) for k in range(1, n)], "reduce-scatter")
        w.combine(core, mine, places)


def ring_reduce_scatter(w: Writer) -> None:
    """n-1 rounds: what was combined of a share goes on to the next core, which combines its own with it; the share of
    core c begins at core c+1."""
    n = w.cores
    for core in range(n):
        for k in range(n - 1):
            out, in_ = w.chunk((core - k - 1) % n), w.chunk((core - k - 2) % n)
            place = w.scratch(0, in_)
            w.move(core, [((core + 1) % n, out)], [((core - 1) % n, place)], "reduce-scatter")
            w.combine(core, in_, [place])


def both(first: Algorithm, second: Algorithm) -> Algorithm:
    """One after the other."""

    def write(w: Writer) -> None:
        first(w)
        second(w)

    return write


ALGORITHMS: Mapping[str, Mapping[str, Algorithm]] = {
    "broadcast": {"flat": flat_broadcast, "tree": tree_broadcast, "chain": chain_broadcast},
    "scatter": {"flat": flat_scatter},
    "gather": {"flat": flat_gather},
    "all_gather": {"direct": direct_all_gather, "ring": ring_all_gather},
    "reduce": {"flat": flat_reduce, "tree": tree_reduce},
    "reduce_scatter": {"direct": direct_reduce_scatter, "ring": ring_reduce_scatter},
    "all_reduce": {
        "direct": both(direct_reduce_scatter, direct_all_gather),
        "ring": both(ring_reduce_scatter, ring_all_gather),
        "tree": both(tree_reduce, tree_broadcast),
        "flat": both(flat_reduce, flat_broadcast),
    },
}
"""By collective and name."""
