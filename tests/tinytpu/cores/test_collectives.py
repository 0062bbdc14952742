"""Collectives: values equal numpy's, float32 in the stated order, cycles by closed formula, what is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kohakuaccel.diagnostics import Refusal
from tinytpu.cores.algorithms import ALGORITHMS
from tinytpu.cores.collectives import collective
from tinytpu.cores.reduction import combining
from tinytpu.isa.codes import SXU, VPU, Column
from tinytpu.machines import load

MACHINE = load()
EVERY = [(kind, name) for kind, names in ALGORITHMS.items() for name in names]
REDUCE = {"add": np.add, "max": np.maximum, "min": np.minimum}


def data(dtype: str, cores: int, size: int, seed: int = 0) -> Any:
    rng = np.random.default_rng([seed, cores, size])
    if dtype == "float32":
        return (rng.normal(size=(cores, size)) * 10.0 ** rng.integers(-6, 7, (cores, size))).astype(np.float32)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, (cores, size), dtype, endpoint=True)


def folded(rows: list[Any], op: str) -> Any:
    """((rows[0] op rows[1]) op rows[2]) .., rounded each time."""
    out = rows[0]
    with np.errstate(over="ignore"):
        for row in rows[1:]:
            out = REDUCE[op](out, row)
    return out


def tree(rows: list[Any], op: str) -> Any:
    """Pairs 1, 2, 4, .. apart."""
    rows, apart = list(rows), 1
    while apart < len(rows):
        for k in range(0, len(rows) - apart, 2 * apart):
            rows[k] = folded([rows[k], rows[k + apart]], op)
        apart *= 2
    return rows[0]


def bounds(size: int, cores: int, itemsize: int) -> list[tuple[int, int]]:
    """Elements of each core's share: whole tiles of 64 bytes, the first cores have one more."""
    each = 64 // itemsize
    tiles = -(-size // each)
    counts = [tiles // cores + (c < tiles % cores) for c in range(cores)]
    ends = np.cumsum([0, *counts]) * each
    return [(min(int(a), size), min(int(b), size)) for a, b in pairwise(ends)]


def reduced(rows: Any, algorithm: str, op: str, root: int) -> Any:
    n = len(rows)
    turned = [rows[(root + k) % n] for k in range(n)]
    if algorithm in ("flat", "tree"):
        return (folded if algorithm == "flat" else tree)(turned, op)
    parts: list[Any] = []
    for core, (a, b) in enumerate(bounds(rows.shape[1], n, rows.itemsize)):
        first = core if algorithm == "direct" else core + 1
        parts.append(folded([rows[(first + k) % n, a:b] for k in range(n)], op))
    return np.concatenate(parts)


def expected(kind: str, rows: Any, algorithm: str, op: str, root: int) -> list[Any]:
    n = len(rows)
    if kind == "broadcast":
        return [rows[root]] * n
    if kind == "scatter":
        return list(rows)
    if kind in ("gather", "all_gather"):
        return [rows if kind == "all_gather" or core == root else None for core in range(n)]
    whole = reduced(rows, algorithm, op, root)
    if kind == "reduce_scatter":
        return [whole[a:b] for a, b in bounds(rows.shape[1], n, rows.itemsize)]
    return [whole if kind == "all_reduce" or core == root else None for core in range(n)]


def check(kind: str, algorithm: str, rows: Any, op: str = "add", root: int = 0) -> Any:
    given = rows[root] if kind == "broadcast" else rows
    done = collective(kind, given, MACHINE, cores=len(rows), op=op, root=root, algorithm=algorithm)
    for value, want in zip(done.values, expected(kind, rows, done.algorithm, op, root), strict=True):
        assert (value is None) == (want is None)
        if value is not None:
            assert value.dtype == rows.dtype
            assert value.tobytes() == np.asarray(want).tobytes()
    return done


@pytest.mark.parametrize(("kind", "algorithm"), EVERY)
@pytest.mark.parametrize("dtype", ["int32", "float32", "int8"])
def test_values_are_numpys(kind: str, algorithm: str, dtype: str) -> None:
    share = 16 // np.dtype(dtype).itemsize  # a tile is 64 bytes
    sizes = [(2, 5 * share), (3, 9 * share), (5, 4 * share), (4, 19)]
    for number, (cores, size) in enumerate(sizes):
        root = number % cores if algorithm in ("flat", "tree", "chain") else 0
        check(kind, algorithm, data(dtype, cores, size), root=root)
    check(kind, algorithm, data(dtype, 1, 7))


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("dtype", ["int32", "float32", "int8"])
def test_other_operations(op: str, dtype: str) -> None:
    for kind in ("reduce", "all_reduce", "reduce_scatter"):
        check(kind, "", data(dtype, 3, 50), op)


def test_bytes_wrap_as_numpys_do_for_every_pair() -> None:
    a, b = np.meshgrid(np.arange(-128, 128, dtype=np.int8), np.arange(-128, 128, dtype=np.int8))
    for block in range(0, 65536, 1024):
        rows = np.stack([a.reshape(-1)[block : block + 1024], b.reshape(-1)[block : block + 1024]])
        check("reduce", "flat", rows)


PARALLEL = MACHINE.with_(name="parallel", params={"noc_packets": 64, "host_links": 64})


def cycles(kind: str, algorithm: str, cores: int, tiles: int, machine: Any = MACHINE) -> int:
    rows = np.zeros((cores, 16 * tiles), np.int32)
    given = rows[0] if kind == "broadcast" else rows
    return collective(kind, given, machine, cores=cores, algorithm=algorithm).cycles


@pytest.mark.parametrize(("n", "t"), [(2, 1), (2, 3), (3, 2), (4, 3), (5, 3), (8, 1), (8, 3), (8, 4)])
def test_cycles_of_moving_are_the_closed_formulas(n: int, t: int) -> None:
    """n cores, t tiles of p = 4t packets a core. One packet a cycle in all; an inbox holds 8 of each sender."""
    p = 4 * t
    for kind in ("broadcast", "scatter"):
        # A DMA is done a cycle after its p packets; the last of all arrives two cycles after it left.
        assert cycles(kind, "flat", n, t) == (n - 1) * (p + 1) + 2
    assert cycles("all_gather", "direct", n, t) == n * (n - 1) * p + 3
    if p > 8:
        # The root takes from one sender while the others fill their places in its inbox first.
        assert cycles("gather", "flat", n, t) == (n - 1) * (p + 1) + 2 + 8 * (n - 2)
    # A packet a cycle from each core: rounds of the ring, each p packets and three cycles for the last one.
    assert cycles("all_gather", "ring", n, t, PARALLEL) == (n - 1) * (p + 3)
    # A tree's rounds: whoever sends again does so a cycle after its last packet, who was sent to, three cycles after.
    if n in (2, 4, 8):
        assert cycles("broadcast", "tree", n, t, PARALLEL) == (n.bit_length() - 1) * (p + 3)


@pytest.mark.parametrize(("n", "t"), [(2, 2), (2, 6), (3, 3), (4, 4), (8, 8)])
def test_cycles_of_combining_are_the_closed_formulas(n: int, t: int) -> None:
    """Every core combines t / n tiles of n cores: 3 + 6(n-1) + 2 cycles a tile, two cycles a record before that."""
    share = t // n
    records = share * (2 + 2 * (n - 1)) + 1
    work = share * (3 + 6 * (n - 1) + 2) + 1 + 4
    moved = (n - 1) * (4 * share + 1) + 2
    assert cycles("reduce_scatter", "direct", n, t, PARALLEL) == moved + 2 * records + work
    if n == 2:
        # One link loads one core after the other; both directions share the network.
        assert cycles("reduce_scatter", "direct", n, t) == 8 * share + 2 + 4 * records + work
    ring = (n - 1) * (4 * share + 3 + 2 * (4 * share + 1) + 11 * share + 1 + 4)
    assert cycles("reduce_scatter", "ring", n, t, PARALLEL) == ring
    assert cycles("all_reduce", "ring", n, t, PARALLEL) == ring + (n - 1) * (4 * share + 3)


def test_the_fewest_cycles_are_taken() -> None:
    done = collective("all_reduce", data("int32", 4, 100), MACHINE)
    assert done.cycles == min(done.tried.values()) == done.tried[done.algorithm] == done.ran.cycles
    assert set(done.tried) == set(ALGORITHMS["all_reduce"])
    first, *others = done.text().splitlines()
    assert first.startswith(f"all_reduce: {done.algorithm}, {done.cycles} cycles; 4 cores, ")
    assert len(others) == 4
    assert done.padded == 7 * 16 - 100
    # Each core's combining is a real program, counted as such.
    runs = [run for script in done.ran.bundles for run in script if run is not None]
    assert sum(run.counters["vpu_ops"] for run in runs) == 7 * 3


def test_what_does_not_fit_is_left_to_algorithms_that_need_less() -> None:
    """14 tiles: the direct way needs three times a quarter of them besides, the flat one three times all."""
    done = collective("all_reduce", data("int32", 4, 14 * 16), MACHINE)
    assert set(done.tried) == {"direct", "ring", "tree"}
    with pytest.raises(Refusal, match=r"VMEM holds the tiles and what is .* got 42; the limit is 32"):
        collective("reduce", data("int32", 4, 14 * 16), MACHINE, algorithm="flat")


def test_the_program_that_combines() -> None:
    program = combining(MACHINE, "int32", "add", ((0, (5, 6)),)).image.instructions
    ops = [(SXU(row[Column.OP]), VPU(row[Column.VPU])) for row in program]
    assert [op for op, _ in ops] == [SXU.LOAD, SXU.LOAD, SXU.VPU, SXU.LOAD, SXU.VPU, SXU.STORE, SXU.HALT]
    assert ops[2][1] == ops[4][1] == VPU.ADD


ZEROS = np.zeros((3, 16), np.int32)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "shuffle"}, "collective: no such collective; got shuffle"),
    "algorithm": ({"algorithm": "spiral"}, "all_reduce: no such algorithm; got spiral; the limit is direct, ring"),
    "dtype": ({"data": ZEROS.astype(np.int64)}, "all_reduce: data: a tile holds numbers of the machine; got int64"),
    "op": ({"op": "mul"}, "op: tiles are combined by an instruction; got mul of int32"),
    "root": ({"kind": "reduce", "root": 3}, "reduce: root: the root is a core; got 3; the limit is 2"),
    "empty": ({"data": ZEROS[:, :0]}, "there is something to move"),
    "none": ({"data": ZEROS[:0]}, "a system has cores; got 0"),
    "size": ({"data": np.zeros((3, 16 * 33), np.int32)}, "VMEM holds all tiles; got 33; the limit is 32"),
    "gathered": ({"kind": "gather", "data": np.zeros((3, 16 * 11), np.int32)}, "VMEM holds all tiles; got 33"),
    "no room": ({"data": np.zeros((3, 16 * 32), np.int32)}, "what is combined with them"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    given, text = REFUSED[case]
    asked = {name: value for name, value in given.items() if name not in ("kind", "data")}
    with pytest.raises(Refusal, match=text):
        collective(given.get("kind", "all_reduce"), given.get("data", ZEROS), MACHINE, **asked)


def test_a_program_that_is_too_long_is_refused() -> None:
    deep = MACHINE.with_(name="deep", params={"vmem_tiles": 128})
    with pytest.raises(Refusal, match="add of 80 tiles: instructions of a program; got 321; the limit is 256"):
        combining(deep, "int32", "add", tuple((k, (k + 1,)) for k in range(80)))


@pytest.mark.parametrize("edge", [2, 8])
def test_machines_of_other_sizes(edge: int) -> None:
    machine = MACHINE.with_(name="other", params={"rows": edge, "columns": edge, "noc_packet_words": 3})
    rows = data("int8", 3, 700 if edge == 8 else 100)
    done = collective("all_reduce", rows, machine)
    want = rows.sum(0, dtype=np.int8)
    assert all(value is not None and (value == want).all() for value in done.values)
