"""Machines and instruction streams of the datasheet's validation table (8.4), written out instruction by instruction.

A cluster owns 64x128 output tiles, column band outermost; B of a band is resident, A is double-buffered by bank; a
tile's first FILL goes before the DRAIN of the tile before it; drains are fused.
"""

from __future__ import annotations

import tomllib

import numpy as np

from kohakuaccel.image import EncodedProgram, Image
from kohakuaccel.machine import Machine, Unit
from kohakuaccel.machine.describe import parse
from kohakutpu.isa import cluster

GM, GN, NK = 16, 32, 4
A_ENTRIES, B_ENTRIES = GM * NK, GN * NK
A_AT, B_AT, OUT_AT = 0, 1 << 28, 1 << 29


def mesh(columns: int, rows: int, *, ports: int | None = None, fifo: int = 512, latency: int = 3) -> Machine:
    """Clusters on a grid, a port per row at its left (or only `ports` of them), L = 3.

    The instruction FIFO is 512, as some builds have it (datasheet 1.3): with 32 credits for all clusters together,
    the dispatcher would start the later clusters only when the first ones have worked most of their streams off.
    """
    places = [[x, y] for y in range(1, rows + 1) for x in range(1, columns + 1)]
    at = [[0, y] for y in range(1, (ports or rows) + 1)]
    text = f"""
        name = "grid_{columns}x{rows}"
        family = "kohakutpu"
        [params]
        inst_fifo = {fifo}
        [features]
        r2_bank_plan = true
        [[mesh]]
        grid = [{columns}, {rows}]
        ports = {at}
        dram = "4 GiB"
        units.MG = {places}
    """
    return parse(tomllib.loads(text), "test").with_(timing={"L": latency})


class Stream:
    """Rows of one cluster's stream."""

    def __init__(self) -> None:
        self.rows: list[dict[str, int]] = []

    def add(self, **fields: int) -> None:
        self.rows.append({"nk": 1, "anchor": 40, **fields})

    def fill(self, sel: int, bank: int, offset: int, n: int, address: int, preq: int = 1) -> None:
        self.add(op=cluster.FILL, sel=sel, fbank=bank, eoff=offset, n=n, preq=preq, addr=address)

    def program(self, unit: Unit) -> EncodedProgram:
        names = sorted({name for row in self.rows for name in row})
        columns = {name: np.array([row.get(name, 0) for row in self.rows], np.int64) for name in names}
        payloads = cluster.CLUSTER.encode_table(len(self.rows), **columns)
        return EncodedProgram(unit, payloads)


def gemm(machine: Machine, m: int, k: int, n: int, split: list[int]) -> Image:
    """The table's schedule of an M x K x N product. split: tiles of each cluster in each round.

    Every round ends with the DRAIN of its last tile; what a cluster holds in L1 survives (datasheet 7.3).
    """
    units = machine.units_of("MG")
    down, chunks = m // (4 * GM), k // (32 * NK)
    tiles = [(i, j) for j in range(n // (4 * GN)) for i in range(down)]
    rounds: list[list[EncodedProgram]] = [[] for _ in split]
    for number, unit in enumerate(units):
        mine = tiles[number * sum(split) : (number + 1) * sum(split)]
        band, bank_a = -1, 0
        for r in range(len(split)):
            stream, pending = Stream(), -1
            for i, j in mine[sum(split[:r]) : sum(split[: r + 1])]:
                out = OUT_AT + 32 * GM * GN * (j * down + i)
                for c in range(chunks):
                    bank_a ^= 1
                    stream.fill(0, bank_a, 0, A_ENTRIES, A_AT + 128 * A_ENTRIES * (i * chunks + c))
                    if j != band:
                        at = B_AT + 128 * B_ENTRIES * (j * chunks + c)
                        stream.fill(1, j & 1, c * B_ENTRIES, B_ENTRIES, at)
                    if c == 0 and pending >= 0:
                        stream.add(op=cluster.DRAIN, addr=pending, n=GM * GN, fuse=1)
                    last = int(c == chunks - 1)
                    stream.add(op=cluster.GEMM, gm=GM, gn=GN, nk=NK, acc=int(c > 0), abank=bank_a, bbank=j & 1,
                               boff=c * B_ENTRIES, emit=last, addr=out * last)  # fmt: skip
                band, pending = j, out
            stream.add(op=cluster.DRAIN, addr=pending, n=GM * GN, fuse=1)
            rounds[r].append(stream.program(unit))
    return Image(machine.name, tuple(tuple(programs) for programs in rounds), name=f"{m}x{k}x{n}")


def single(machine: Machine, unit: Unit, *rows: dict[str, int]) -> Image:
    """One stage with these instructions on one cluster."""
    stream = Stream()
    for row in rows:
        stream.add(**row)
    return Image(machine.name, ((stream.program(unit),),))


def baseline_machine() -> Machine:
    """The old machine of datasheet 8.4: two clusters on one port, FP16 entries fetched one by one, 8x8 tiles.

    Its closed form gives GEMM time as 300c + 390 for c chunks and 7.8 cycles per drained sub-tile. The 300 are the 256
    issue cycles and 44 more, the 390 pass before the drain, 7.8 are 62 per burst. Its tenth of idle time (/0.9) is the
    same number of cycles for c = 1, 2, 4 when it is spread over the instructions that nothing else hides, FILL and
    DRAIN: 129, 135 and 139 beyond a FILL's own 22. The model has 135 between one instruction and the next.
    """
    old = {"sweep_tail": 42, "accumulator_idle": 44 + 390, "drain_burst": 62, "retire_to_accept": 135, "mg_slot": 139}
    machine = mesh(1, 2, ports=1).with_(
        profile="baseline", params={"l1_a": 32, "l1_b": 32, "tiles": 64}, features={"r2_bank_plan": False}
    )
    return machine.with_(name="baseline", timing=old)


def baseline_gemm(machine: Machine, m: int, k: int, n: int) -> Image:
    """Tile by tile: both operands of each 128 of K, a sweep, and a drain after the last."""
    units = machine.units_of("MG")
    programs: list[EncodedProgram] = []
    for unit, tiles in zip(units, np.array_split(np.arange(m // 32 * (n // 32)), len(units))):
        stream = Stream()
        for _ in tiles:
            for c in range(k // 128):
                stream.fill(0, 0, 0, 32, A_AT, preq=0)
                stream.fill(1, 0, 0, 32, B_AT, preq=0)
                stream.add(op=cluster.GEMM, gm=8, gn=8, nk=4, acc=int(c > 0))
            stream.add(op=cluster.DRAIN, addr=OUT_AT, n=64)
        programs.append(stream.program(unit))
    return Image(machine.name, (tuple(programs),), name=f"{m}x{k}x{n}")
