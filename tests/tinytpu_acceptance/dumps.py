"""What the lowering dump says of kernels: class, instructions, data, outputs, weight tiles, cycles that are true."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tinytpu.tinygrad as tinytpu
from tinytpu_acceptance.table import Check, Table, table
from tinytpu_acceptance.tensors import Array, ints, reals, results, words


def dumped(fn: Callable[..., Any], *arrays: Array) -> list[dict[str, Any]]:
    """The records of an expression's kernels."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dump.jsonl"
        with patch.dict(os.environ, {"TINYTPU_DUMP_LOWERING": str(file)}):
            results(fn, *arrays)
        return [json.loads(line) for line in file.read_text().splitlines()]


def kernel(
    name: str, fn: Callable[..., Any], *arrays: Array, op: str, uses: str = "", moved: str = "", weights: int = 0,
    flags: bool = False,
) -> Check:  # fmt: skip
    """A row: one kernel. op: its class; uses: instructions, one of which it has; moved: what its data broadcasts."""

    def check() -> None:
        before = tinytpu.report().took.cycles
        (found,) = dumped(fn, *arrays)
        took = tinytpu.report().took.cycles - before
        assert found["op"] == op, found["op"]
        assert not uses or set(uses.split("|")) & set(found["primitives"]), found["primitives"]
        assert found["cycles"] == took > 0, f"{found['cycles']} cycles, the run took {took}"
        assert found["weight_tiles"] == weights, found["weight_tiles"]
        assert found["bool_output"] == flags
        steps = found["steps"]
        assert all(step["listings"] and step["data"] for step in steps) or weights
        data = [one["primitive"] for step in steps for one in step["data"] if "primitive" in one]
        assert data == ([f"BROADCAST_{moved}"] if moved else []), data
        ends = [listing["instructions"][-1] for step in steps for listing in step["listings"]]
        assert set(ends) == {"HALT"}, ends
        assert sum(len(listing["outputs"]) for step in steps for listing in step["listings"]) > 0

    return Check(name, check)


def kernels() -> Iterator[Check]:
    x, y = words(1, 3, 11), words(2, 3, 11)
    small = ints(3, 4, 4)
    yield kernel("a sum", lambda x, y: x + y, x, y, op="elementwise", uses="ADD")
    yield kernel("a product of elements", lambda x, y: x * y, x, y, op="elementwise", uses="MUL")
    yield kernel("a comparison", lambda x, y: x < y, x, y, op="elementwise", uses="CMPLT", flags=True)
    yield kernel("a choice", lambda x, y: (x < y).where(x, 9), x, y, op="elementwise", uses="SELECT")
    yield kernel("bits", lambda x, y: (x & y) ^ 5, x, y, op="elementwise", uses="AND")
    yield kernel("reals", lambda x: x * 2.5 + 1, reals(4, 3, 11), op="elementwise", uses="FMUL")
    yield kernel("one element", lambda x, y: x + y, x, words(5, 1, 1), op="broadcast", uses="ADD", moved="SCALAR")
    yield kernel("a row", lambda x, y: x + y, x, words(5, 1, 11), op="broadcast", uses="ADD", moved="ROW")
    yield kernel("a column", lambda x, y: x + y, x, words(5, 3, 1), op="broadcast", uses="ADD", moved="COL")
    yield kernel("a transpose", lambda x: x.T.contiguous(), x, op="movement")
    yield kernel("a flip", lambda x: x.flip(1).contiguous(), x, op="movement")
    yield kernel("a pad", lambda x: x.pad(((1, 1), (2, 0))).contiguous(), x, op="movement")
    yield kernel("a sum of all", lambda x: x.sum(), x, op="reduction", uses="SUM_REDUCE|SUM_REDUCE_TILE")
    yield kernel("a largest by row", lambda x: x.max(1), x, op="reduction", uses="MAX_REDUCE|MAX")
    yield kernel("a least by column", lambda x: x.min(0), x, op="reduction", uses="MIN_REDUCE|MIN|MAX_REDUCE|MAX")
    yield kernel(
        "a product of one tile", lambda a, w: a @ w, small, small.T.copy(), op="gemm", uses="MXU|MXU_OS", weights=1
    )
    yield kernel("a product of two K-tiles", lambda a, w: a @ w, ints(6, 4, 8), ints(7, 8, 4), op="gemm",
                 uses="MXU|MXU_OS", weights=2)  # fmt: skip


TABLES: tuple[Table, ...] = (table("dump", "records of kernels", kernels()),)
