"""Graphs in JSON files: the values as records, expressions in their text form, constants as base64. No pickle.

Decides the file's fields. A file is read with the same checks as a text: nothing in it is evaluated.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kohakuaccel.diagnostics import DefinitionError, Refusal
from kohakuaccel.graph.dtypes import DType, declared, describe, named
from kohakuaccel.graph.index import Range
from kohakuaccel.graph.model import Constant, Graph, Input, Reduction, Statement, Value, reduce_op
from kohakuaccel.graph.parse import parse_expr
from kohakuaccel.graph.text import formats_of
from kohakuaccel.graph.verify import verify

VERSION = 1


def to_json(graph: Graph) -> str:
    """The graph as a JSON text, the same for equal graphs."""
    record = {
        "kohakuaccel.graph": VERSION,
        "formats": describe(formats_of(graph)),
        "values": [_record(v) for v in graph.values],
        "outputs": [list(pair) for pair in graph.outputs],
    }
    return json.dumps(record, indent=1) + "\n"


def from_json(text: str) -> Graph:
    """The graph of a JSON text, verified. A `Refusal` where it is none of this version."""
    try:
        record = json.loads(text)
        if record.get("kohakuaccel.graph") != VERSION:
            raise Refusal(
                "a graph file of a known version", where="graph", got=record.get("kohakuaccel.graph"), limit=VERSION
            )
        known = declared(record["formats"])
        values = tuple(_value(v, known) for v in record["values"])
        outputs = tuple((str(label), str(name)) for label, name in record["outputs"])
    except (KeyError, AttributeError, TypeError, ValueError, SyntaxError, RecursionError, binascii.Error) as error:
        if isinstance(error, Refusal | DefinitionError):
            raise
        raise Refusal("a graph file has its fields", where="graph", got=f"{type(error).__name__}: {error}") from None
    return verify(Graph(values, outputs))


def save(graph: Graph, path: str | Path) -> None:
    """Write `to_json` to a file."""
    Path(path).write_text(to_json(graph))


def load(path: str | Path) -> Graph:
    """Read a file that `save` wrote."""
    return from_json(Path(path).read_text())


def _record(value: Value) -> dict[str, Any]:
    head = {"name": value.name, "dtype": value.dtype.name}
    if isinstance(value, Input):
        return {"is": "input", **head, "shape": list(value.shape)}
    if isinstance(value, Constant):
        data = base64.b64encode(value.data).decode()
        return {"is": "constant", **head, "shape": list(value.shape), "data": data}
    found: dict[str, Any] = {"is": "statement", **head, "ranges": [[r.name, r.extent] for r in value.ranges]}
    if value.reduction:
        found["reduce"] = value.reduction.op
        found["over"] = [[r.name, r.extent] for r in value.reduction.ranges]
    return {**found, "body": str(value.body)}


def _value(record: Mapping[str, Any], known: Mapping[str, DType]) -> Value:
    name, dtype = str(record["name"]), named(record["dtype"], known)
    if record["is"] == "input":
        return Input(name, tuple(record["shape"]), dtype)
    if record["is"] == "constant":
        return Constant(name, tuple(record["shape"]), dtype, base64.b64decode(record["data"], validate=True))
    if record["is"] != "statement":
        raise ValueError(f"a value is an input, a constant or a statement, not {record['is']!r}")
    ranges = tuple(Range(n, extent) for n, extent in record["ranges"])
    reduction = None
    if "reduce" in record:
        reduction = Reduction(reduce_op(record["reduce"]), tuple(Range(n, extent) for n, extent in record["over"]))
    scope = {r.name: r for r in (*ranges, *(reduction.ranges if reduction else ()))}
    return Statement(name, dtype, ranges, parse_expr(record["body"], scope, known), reduction)
