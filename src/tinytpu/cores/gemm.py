"""Products of int8 matrices split over cores: by rows, or by depth with partial sums reduced over the network.

Decides which core computes what, and in which order programs, transfers and results come. Programs are those of
`tinytpu.lower` for a core's part; when things happen is decided in `network`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kohakuaccel import graph
from kohakuaccel.diagnostics import Refusal
from kohakuaccel.machine import Machine
from tinytpu.cores.algorithms import Writer, direct_reduce_scatter
from tinytpu.cores.feeding import FEEDS, Feed
from tinytpu.cores.scripts import Bundle, Step
from tinytpu.cores.system import Ran, System
from tinytpu.lower import Plan, compile_graph
from tinytpu.lower.run import executing
from tinytpu.machines.choice import chosen
from tinytpu.units.core import Image, Run, execute

if TYPE_CHECKING:
    from kohakuaccel.sim import Timeline

SPLITS = ("rows", "depth")
"""rows: each core computes some rows. depth: each core adds up some of the terms of every element, and the cores
reduce-scatter what every program leaves."""
_Done = tuple["tuple[Part, ...]", Ran, Callable[[], "NDArray[np.int32]"]]


@dataclass(frozen=True)
class Part:
    """What a core multiplies: rows and terms, from and to, and terms of zeros behind them; its plan, and the programs
    with their data. carried: tiles that a program leaves for a later one."""

    rows: tuple[int, int]
    terms: tuple[int, int]
    plan: Plan | None
    operands: dict[str, NDArray[np.int8]]
    images: tuple[Image, ...]
    zeros: int = 0
    carried: int = 0

    def text(self) -> str:
        if self.plan is None:
            return "nothing to do"
        more = f" and {self.zeros} zeros" if self.zeros else ""
        return f"rows {self.rows[0]}..{self.rows[1] - 1}, terms {self.terms[0]}..{self.terms[1] - 1}{more}"


@dataclass(frozen=True)
class Gemm:
    """A product on several cores. values: int32[m, n]. split, feed: the way taken. cycles: its, with records,
    distribution and results; tried: of all ways that were asked for and fit."""

    values: NDArray[np.int32]
    split: str
    feed: str
    cycles: int
    tried: dict[tuple[str, str], int]
    parts: tuple[Part, ...]
    ran: Ran

    @property
    def link_cycles(self) -> int:
        """Cycles in which the host's link was busy."""
        return sum(self.ran.spent("load")) + sum(self.ran.spent("output"))

    def text(self) -> str:
        """What each core does, how long each thing takes, and what limits the whole."""
        ran, p = self.ran, self.ran.machine.params
        m, n = self.values.shape
        k = max(part.terms[1] for part in self.parts)
        lines = [f"{m}x{k}x{n} on {len(self.parts)} cores, {self.split}, {self.feed}: {self.cycles} cycles"]
        spent = {name: ran.spent(name) for name in ("load", "execute", "output", "move", "link")}
        for core, part in enumerate(self.parts):
            took = ", ".join(f"{name} {cycles[core]}" for name, cycles in spent.items() if name != "link")
            lines.append(f"  core {core}: {part.text()}: {took}, waits for the link {spent['link'][core]}")
        place, network, packet = ran.waits.sum(0).tolist()
        lines.append(
            f"  network: {len(ran.packets)} packets; DMAs waited {network} cycles for it, {place} for places, "
            f"{packet} for packets"
        )
        busy = {
            "host link": self.link_cycles / (self.cycles * p.host_links),
            "network": len(ran.packets) / (self.cycles * min(p.noc_packets, len(self.parts))),
            "a core's program": max(spent["execute"]) / self.cycles,
        }
        shares = ", ".join(f"{name} {share:.0%}" for name, share in busy.items())
        lines.append(f"  busy: {shares}; limited by the {max(busy, key=lambda name: busy[name]).removeprefix('a ')}")
        return "\n".join(lines)

    def timeline(self, name: str = "") -> Timeline:
        """The modelled time of all cores, the network and the host's link."""
        return self.ran.timeline(name or f"gemm by {self.split}, {self.feed}")


def gemm(
    a: ArrayLike, b: ArrayLike, machine: Machine | None = None, *, cores: int = 1, split: str = "", feed: str = ""
) -> Gemm:
    """`a @ b` of int8[m, k] and int8[k, n] (other integers where they fit) on `cores` cores, from the host and back.

    split: one of SPLITS, feed: one of feeding.FEEDS ("records", "packed", "broadcast"); what is not given is what takes
    the fewest cycles. Raises Refusal for operands that are no such matrices and for a split that they do not have.
    """
    machine = machine or chosen()
    left, right = _operand(a, "a"), _operand(b, "b")
    if left.shape[1] != right.shape[0]:
        raise Refusal("rows of b are columns of a", where="gemm", got=right.shape[0], limit=left.shape[1])
    for name, value, known in (("split", split, SPLITS), ("feed", feed, tuple(FEEDS))):
        if value and value not in known:
            raise Refusal("no such way", where=f"gemm: {name}", got=value, limit=", ".join(known))
    product = _Product(System(machine, cores), left, right, {})
    found: dict[tuple[str, str], _Done] = {}
    refused: Refusal | None = None
    for way in [split] if split else SPLITS[: 1 if cores == 1 else None]:
        # Parts by depth have no weights in common.
        feeds = [name for name in FEEDS if name != "broadcast" or (way == "rows" and cores > 1)]
        try:
            parts = _BY[way][0](product)
            for name in [feed] if feed else feeds:
                found[way, name] = _BY[way][1](product, parts, FEEDS[name])
        except Refusal as error:
            refused = error
    if not found:
        assert refused is not None
        raise refused
    best = min(found, key=lambda each: found[each][1].cycles)
    parts, ran, values = found[best]
    return Gemm(values(), *best, ran.cycles, {each: one[1].cycles for each, one in found.items()}, parts, ran)


def _operand(values: ArrayLike, name: str) -> NDArray[np.int8]:
    given = np.asarray(values)
    if given.ndim != 2 or not given.size or given.dtype.kind not in "iub":
        raise Refusal(
            "a matrix of integers, not empty",
            where=f"gemm: {name}",
            got=f"{given.dtype} {given.shape}",
            limit="2 dimensions",
        )
    wide = given.astype(np.int64)
    if wide.min() < -128 or wide.max() > 127:
        wrong = int(wide.min() if wide.min() < -128 else wide.max())
        raise Refusal("an operand of the array is an int8", where=f"gemm: {name}", got=wrong, limit="-128..127")
    return wide.astype(np.int8)


@dataclass(frozen=True)
class _Product:
    """The operands on a system. plans: by rows, terms and columns."""

    system: System
    left: NDArray[np.int8]
    right: NDArray[np.int8]
    plans: dict[tuple[int, int, int], Plan]

    @property
    def edge(self) -> int:
        return int(self.system.machine.params.rows)

    def shares(self, extent: int) -> list[tuple[int, int]]:
        """An extent in whole tiles, as even as it can be split: from, to of each core."""
        tiles, cores = -(-extent // self.edge), self.system.cores
        ends = [min(extent, self.edge * (c * (tiles // cores) + min(c, tiles % cores))) for c in range(cores + 1)]
        return list(pairwise(ends))

    def part(self, rows: tuple[int, int], terms: tuple[int, int], zeros: int = 0) -> Part:
        """A core's part, its programs recorded with what fills them."""
        m, k, n = rows[1] - rows[0], terms[1] - terms[0] + zeros, self.right.shape[1]
        if not m or not k:
            return Part(rows, terms, None, {}, ())
        if (m, k, n) not in self.plans:
            self.plans[m, k, n] = compile_graph(graph.parse(_text(m, k, n)), self.system.machine)
        plan = self.plans[m, k, n]
        operands = {
            "a": np.pad(self.left[slice(*rows), slice(*terms)], ((0, 0), (0, zeros))),
            "b": np.pad(self.right[slice(*terms)], ((0, zeros), (0, 0))),
        }
        images: list[Image] = []

        def record(machine: Machine, image: Image) -> Run:
            images.append(image)
            return execute(machine, image)

        with executing(record):
            carried = plan.run(operands).counts.carried
        return Part(rows, terms, plan, operands, tuple(images), zeros, carried)


def _text(m: int, k: int, n: int) -> str:
    return (
        f"input a: S8[{m},{k}]\ninput b: S8[{k},{n}]\n"
        f"p: S32[i<{m},j<{n}] = sum[q<{k}] cast(a[i, q], S32) * cast(b[q, j], S32)\noutput p"
    )


def _values(part: Part, runs: Iterator[Run]) -> NDArray[np.int32]:
    """A part's product from what its programs left on the system."""
    assert part.plan is not None

    def given(_machine: Machine, image: Image) -> Run:
        run = next(runs)
        assert run.image.instructions is image.instructions
        return run

    with executing(given):
        return part.plan.run(part.operands).outputs["p"]


def _rows(product: _Product) -> tuple[Part, ...]:
    terms = (0, product.left.shape[1])
    return tuple(product.part(rows, terms) for rows in product.shares(product.left.shape[0]))


def _by_rows(product: _Product, parts: tuple[Part, ...], feed: Feed) -> _Done:
    scripts: list[list[Step]] = [[] for _ in parts]
    for number in range(max(len(part.images) for part in parts)):
        images = [part.images[number] if number < len(part.images) else None for part in parts]
        for script, steps in zip(scripts, feed(product.system.machine, images, f"program {number}")):
            script += steps
    ran = product.system.run(scripts)

    def values() -> NDArray[np.int32]:
        found: list[NDArray[np.int32]] = []
        for part, runs in zip(parts, ran.bundles):
            if part.plan is not None:
                found.append(_values(part, (run for run in runs if run is not None)))
        return np.concatenate(found)

    return parts, ran, values


def _depth(product: _Product) -> tuple[Part, ...]:
    """Parts of one depth, zeros behind the shorter ones, so that programs leave their sums in the same slots."""
    rows = (0, product.left.shape[0])
    shares = product.shares(product.left.shape[1])
    deep = max(stop - start for start, stop in shares)
    if product.system.cores == 1:
        raise Refusal("depth is split over several cores", where="gemm by depth", got="1 core", hint="split by rows")
    if not all(stop - start for start, stop in shares):
        raise Refusal(
            "every core adds up some terms", where="gemm by depth", got=product.left.shape[1],
            limit=f"more than {product.edge * (product.system.cores - 1)} terms", hint="split by rows",
        )  # fmt: skip
    parts = tuple(product.part(rows, (start, stop), deep - (stop - start)) for start, stop in shares)
    if any(image.mxu_result for image in parts[0].images):
        raise Refusal(
            "a program leaves its sums in VMEM", where="gemm by depth", got="one row, as mxu_result",
            limit="more rows, or columns", hint="split by rows",
        )  # fmt: skip
    slots = [tuple(image.vmem_outputs) for image in parts[0].images]
    if parts[0].carried or not all(s == tuple(range(s[0], s[0] + len(s))) for s in slots):
        raise Refusal(
            "a program leaves whole sums, side by side", where="gemm by depth", got=f"{deep} terms a core",
            limit="what fits a program", hint="use more cores, or split by rows",
        )  # fmt: skip
    return parts


def _groups(system: System, slots: Sequence[int]) -> list[range]:
    """Slots side by side in groups, such that VMEM holds what comes from other cores for a group."""
    room, others = int(system.machine.params.vmem_tiles) - slots[-1] - 1, system.cores - 1
    most = system.cores * (room // others)
    if not most:
        raise Refusal(
            "VMEM holds sums and those of other cores", where="gemm by depth", got=f"{len(slots)} tiles of sums",
            limit=f"{room} tiles besides, {others} needed", hint="split by rows",
        )  # fmt: skip
    return [range(start, min(start + most, slots[-1] + 1)) for start in range(slots[0], slots[-1] + 1, most)]


def _by_depth(product: _Product, parts: tuple[Part, ...], feed: Feed) -> _Done:
    machine = product.system.machine
    scripts: list[list[Step]] = [[] for _ in parts]
    chunks: list[list[list[range]]] = []
    for number, first in enumerate(parts[0].images):
        # Sums stay in VMEM; the program that combines a core's share of them is the one that outputs it.
        images = [replace(part.images[number], vmem_outputs=()) for part in parts]
        for script, steps in zip(scripts, feed(machine, images, f"program {number}")):
            script += steps
        chunks.append([])
        for group in _groups(product.system, first.vmem_outputs):
            w = Writer(machine, len(parts), len(group), base=group.start, spare=first.vmem_outputs[-1] + 1)
            direct_reduce_scatter(w)
            chunks[-1].append([w.chunk(core) for core in range(len(parts))])
            for core, steps in enumerate(w.scripts):
                for step in steps:
                    if isinstance(step, Bundle):
                        step = Bundle(replace(step.image, vmem_outputs=tuple(w.chunk(core))), step.name)
                    scripts[core].append(step)
    ran = product.system.run(scripts)

    def sums() -> Iterator[Run]:
        queues = [iter([run for run in script if run is not None]) for script in ran.bundles]
        for image, groups in zip(parts[0].images, chunks):
            runs = [next(queue) for queue in queues]
            shown = [next(q).vmem for shares in groups for q, share in zip(queues, shares) if share]
            yield replace(runs[0], vmem=[tile for tiles in shown for tile in tiles], image=image)

    return parts, ran, lambda: _values(parts[0], sums())


_BY: dict[str, tuple[Callable[[_Product], tuple[Part, ...]], Callable[[_Product, tuple[Part, ...], Feed], _Done]]] = {
    "rows": (_rows, _by_rows),
    "depth": (_depth, _by_depth),
}
