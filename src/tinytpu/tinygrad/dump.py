"""What a kernel was lowered to, as one line of JSON a kernel: `TINYTPU_DUMP_LOWERING` (1: on stdout; else a file, to
which it is appended).

Decides the record's fields and a kernel's class (datasheet 11). It must not know how anything is lowered.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from kohakuaccel.frontends.tinygrad.kernel import Kernel
from kohakuaccel.graph import BOOL, Cast, Const, Expr, Graph, Iota, Op, Read, Statement
from kohakuaccel.graph.structure import as_contraction
from tinytpu.isa.words import name_of, text_of
from tinytpu.lower import NotLowered, Plan
from tinytpu.lower.data import Data
from tinytpu.lower.listing import Listed, listed, own
from tinytpu.lower.program.code import Carry, Fill, Leaf, Place, Pool, Source
from tinytpu.lower.steps import Addresses, Step

NAME = "TINYTPU_DUMP_LOWERING"
_EVERYWHERE = ("LOAD", "STORE", "HALT")
"""Instructions that say nothing about what a program does."""


def wanted() -> str:
    """Where records go: "1" for stdout, a file's path, or nowhere."""
    found = os.environ.get(NAME, "")
    return "" if found == "0" else found


def write(where: str, kernel: Kernel, plan: Plan | NotLowered) -> None:
    """Append a kernel's record, or print it."""
    line = json.dumps(record(kernel, plan))
    if where == "1":
        print(line, flush=True)
        return
    with Path(where).open("a") as file:
        file.write(line + "\n")


def record(kernel: Kernel, plan: Plan | NotLowered) -> dict[str, Any]:
    """The record: what the kernel is, and either its steps or why there are none."""
    graph = kernel.graph
    made = [graph[dict(graph.outputs)[store.value]] for store in kernel.stores]
    found: dict[str, Any] = {
        "kernel": kernel.name,
        "op": kind(graph),
        "ops": operations(graph),
        "inputs": [{"name": v.name, "shape": list(v.shape), "dtype": str(v.dtype)} for v in graph.inputs],
        "outputs": [
            {"slot": store.slot, "value": v.name, "shape": list(v.shape), "dtype": str(v.dtype)}
            for store, v in zip(kernel.stores, made)
        ],
        "bool_output": any(v.dtype == BOOL for v in made),
    }
    if not isinstance(plan, Plan):
        return {**found, "refused": str(plan)}
    steps = [_step(plan, step) for step in plan.steps]
    return {
        **found,
        "machine": plan.machine.name,
        "primitives": sorted({name for step in steps for name in step["primitives"]}),
        "programs": sum(step["programs"] for step in steps),
        "cycles": sum(step["cycles"] for step in steps),
        "weight_tiles": sum(step["weight_tiles"] for step in steps),
        "steps": steps,
    }


def kind(graph: Graph) -> str:
    """gemm, reduction, broadcast, movement, constant or elementwise: the first that holds."""
    statements = graph.statements
    found = [as_contraction(s) for s in statements]
    if any(one is not None and one.m and one.n for one in found):
        return "gemm"
    if any(s.reduction for s in statements):
        return "reduction"
    if not any(True for s in statements for _ in s.body.reads()):
        return "constant"
    moves = all(_moves(s.body) for s in statements)
    if any(_narrow(s, read) for s in statements for read in s.body.reads()):
        return "broadcast"
    return "movement" if moves else "elementwise"


def _moves(expr: Expr) -> bool:
    """Whether places alone decide what an expression is."""
    if isinstance(expr, Op):
        places = not any(True for _ in expr.args[0].reads())
        return expr.name == "where" and places and all(_moves(arg) for arg in expr.args[1:])
    return isinstance(expr, Read | Const) or (isinstance(expr, Cast) and isinstance(expr.arg, Const))


def _narrow(statement: Statement, read: Read) -> bool:
    """Whether a read is the same for elements that differ."""
    used = {r for index in read.indices for r in index.ranges()}
    return any(r not in used for r in statement.ranges if r.extent > 1)


def operations(graph: Graph) -> list[str]:
    """What is computed, in order: operations, casts and folds."""
    found: list[str] = []
    for s in graph.statements:
        inner = [e.name if isinstance(e, Op) else f"cast {e.dtype}" for e in s.body.walk() if isinstance(e, Op | Cast)]
        found += [*inner, *([f"{s.reduction.op} over {prod(r.extent for r in s.reduced)}"] if s.reduction else [])]
    return list(dict.fromkeys(found))


def _step(plan: Plan, step: Step) -> dict[str, Any]:
    whole, programs = own(step), list(listed(step))
    names = {name_of(row) for one in programs for row in one.program.rows}
    data: Sequence[Data] = () if isinstance(whole, Addresses) else whole.data
    return {
        "plan": whole.text().splitlines()[0],
        "statements": [str(s) for s in ((whole.statement,) if isinstance(whole, Addresses) else whole.statements)],
        "primitives": sorted({name.removeprefix("VPU ") for name in names} - set(_EVERYWHERE)),
        "data": [_moved(one) for one in data],
        "programs": sum(one.count for one in programs),
        "cycles": 0 if isinstance(whole, Addresses) else whole.cycles,
        "weight_tiles": sum(one.count * len(one.fed.wmem) for one in programs if one.fed is not None),
        "listings": [_program(plan, one) for one in programs],
    }


def _program(plan: Plan, one: Listed) -> dict[str, Any]:
    program = one.program
    fed = {} if one.fed is None else {"amem": sorted(one.fed.amem), "wmem": sorted(one.fed.wmem)}
    return {
        "count": one.count,
        "instructions": [text_of(plan.machine, row) for row in program.rows],
        "words": program.rows.tolist(),
        "vmem": [{"slot": slot, **_source(source)} for slot, source in program.data],
        **fed,
        "outputs": [{"slot": slot, **_place(place)} for slot, place in program.outputs],
    }


def _source(source: Source) -> dict[str, Any]:
    match source:
        case Leaf(data=data, tile=tile, step=step):
            at = {"tile": tile, "step": step}
            return {"data": data, **{name: n for name, n in at.items() if n is not None}}
        case Fill(bits=bits):
            return {"fill": bits}
        case Pool(words=words):
            return {"words": list(words)}
        case Carry(value=value):
            return {"carried": value}


def _place(place: Place) -> dict[str, int]:
    if isinstance(place, Carry):
        return {"carried": place.value}
    return {"output": place.number, "tile": place.tile}


def _moved(data: Data) -> dict[str, str]:
    """A data plan: what is read, and how few of the elements' places it follows."""
    if data.expr is None:
        return {"reads": "the mask of lanes that hold a term"}
    used = {r for read in data.expr.reads() for index in read.indices for r in index.ranges()}
    used |= {r for e in data.expr.walk() if isinstance(e, Iota) for r in e.index.ranges()}
    wide = [r for r in data.ranges if r.extent > 1]
    if not data.folded and wide and len(used & set(wide)) < len(wide):
        name = "SCALAR" if not used else "ROW" if wide[-1] in used else "COL"
        return {"reads": str(data.expr), "primitive": f"BROADCAST_{name}"}
    return {"reads": str(data.expr)}
