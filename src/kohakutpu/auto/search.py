"""Tiles of products by the clock: the best by estimate are really played, and the fastest is kept.

Decides which choices of a kernel are tried and in what order. Only choices that leave every bit as it is are tried: a
tile says which sub-tiles are computed together, never in which order K is folded. It must not know how a kernel is
written or what limits a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine
from kohakutpu.auto.stages import Extents, TileStage
from kohakutpu.auto.steps import KernelStep
from kohakutpu.lower.tiling import Tile, cycles, ranked

Make = Callable[[Mapping[Extents, Tile]], KernelStep]
"""A kernel with these tiles, and the estimate's where nothing is said."""


@dataclass(frozen=True)
class Trial:
    """One tile for a product of a kernel. estimated: cycles of the product alone; simulated: cycles of the whole kernel
    on an idle machine, None for a tile that it refuses (`refused` is the rule)."""

    product: Extents
    tile: Tile
    estimated: int
    simulated: int | None
    refused: str = ""
    kept: bool = False

    def __str__(self) -> str:
        text = f"{self.tile.gm}x{self.tile.gn}x{self.tile.nk}"
        if self.simulated is None:
            return f"{text} refused: {self.refused}"
        return f"{text} {self.simulated:,} ({self.estimated:,}){' kept' if self.kept else ''}"


def fastest(make: Make, machine: Machine, count: int) -> tuple[KernelStep, tuple[Trial, ...]]:
    """A kernel with the fastest of the `count` best tiles for each extent of its products, one extent after the other,
    and what was tried. The estimate's tile stays where nothing is faster."""
    best = make({})
    found: list[Trial] = []
    chosen: dict[Extents, Tile] = {}
    time: int | None = None
    for product in dict.fromkeys(s.deepest for s in best.stages if isinstance(s, TileStage)):
        first, *others = ranked(machine, *product, count=count)
        time = _simulated(best) if time is None else time
        trials = [Trial(product, first, cycles(machine, first, *product), time)]
        kept = 0
        for tile in others:
            estimated = cycles(machine, tile, *product)
            try:
                step = make({**chosen, product: tile})
                took = _simulated(step)
            except Refusal as problem:
                trials.append(Trial(product, tile, estimated, None, problem.rule))
                continue
            trials.append(Trial(product, tile, estimated, took))
            if took < time:
                best, time, kept = step, took, len(trials) - 1
        chosen[product] = trials[kept].tile
        trials[kept] = replace(trials[kept], kept=True)
        found += trials
    return best, tuple(found)


def _simulated(step: KernelStep) -> int:
    """Cycles of one launch on an idle machine."""
    from kohakutpu.sim import time_image

    plan = step.plan
    return time_image(plan.machine, plan.image(plan.nominal_addresses())).cycles


def told(name: str, trials: Sequence[Trial]) -> tuple[str, ...]:
    """One line for each extent that was searched, the fastest first."""
    lines: list[str] = []
    for product in dict.fromkeys(t.product for t in trials):
        some = [t for t in trials if t.product == product]
        some.sort(key=lambda t: (t.simulated is None, t.simulated or 0, not t.kept))
        tried = "; ".join(map(str, some))
        lines.append(f"{name}, tiles for {product}: simulated cycles of the kernel (estimated of the product) {tried}")
    return tuple(lines)
