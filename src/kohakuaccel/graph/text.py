"""The graph as text: one line a value, readable without the source that made it.

Decides the written form, which `parse` reads back to an equal graph. It must not know what a line computes.

    input x: FP16[4, 8]
    const c: FP32[2] = [1.0, 2.0]
    acc: FP32[i<4, j<3] = sum[k<8] x[i, k] * w[j, k]
    y: FP16[i<4, j<3] = max(acc[i, j], 0.0)
    output y
"""

from __future__ import annotations

import json

from kohakuaccel.graph.dtypes import DType, describe
from kohakuaccel.graph.expr import Bits, Cast
from kohakuaccel.graph.model import Constant, Graph, Input, Value


def write(graph: Graph) -> str:
    """The text form of a graph, ending in a newline."""
    formats = describe(formats_of(graph))
    lines = [f"format {name} = {json.dumps(fields)}" for name, fields in sorted(formats.items())]
    lines += [write_value(v) for v in graph.values]
    lines += [f"output {label}" if label == name else f"output {label} = {name}" for label, name in graph.outputs]
    return "\n".join(lines) + "\n"


def write_value(value: Value) -> str:
    """One value's line."""
    if isinstance(value, Input):
        return f"input {value.name}: {value.dtype.name}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, Constant):
        shape = ", ".join(map(str, value.shape))
        numbers = ", ".join(repr(x) for x in value.array.reshape(-1).tolist())
        return f"const {value.name}: {value.dtype.name}[{shape}] = [{numbers}]"
    ranges = ", ".join(f"{r.name}<{r.extent}" for r in value.ranges)
    fold = f"{value.reduction} " if value.reduction else ""
    return f"{value.name}: {value.dtype.name}[{ranges}] = {fold}{value.body}"


def formats_of(graph: Graph) -> list[DType]:
    """Every format the graph names, in values and in casts."""
    casts = [e.dtype for s in graph.statements for e in s.body.walk() if isinstance(e, Cast | Bits)]
    casts += [e.source for s in graph.statements for e in s.body.walk() if isinstance(e, Bits)]
    return [*(v.dtype for v in graph.values), *casts]
