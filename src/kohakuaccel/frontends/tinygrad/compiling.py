"""The seam: kernels of our devices become graphs before tinygrad's optimiser sees them.

Decides where tinygrad is entered (`tinygrad.codegen.do_to_program`), which of its own rewrites come first, and what
happens to a kernel that is no graph: its stock form, loop by loop. Nothing here touches a device.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod

import tinygrad.codegen as codegen
from tinygrad.codegen.simplify import pm_flatten_range, pm_load_collapse, pm_reduce_unparented, pm_simplify_ranges
from tinygrad.dtype import AddrSpace
from tinygrad.helpers import Context
from tinygrad.renderer import Estimates, Renderer
from tinygrad.schedule.multi import multi_pm
from tinygrad.schedule.rangeify import pm_mops
from tinygrad.uop import Ops
from tinygrad.uop.ops import KernelInfo, ProgramInfo, UOp, graph_rewrite
from tinygrad.uop.symbolic import pm_move_where_on_load, sym

from kohakuaccel.diagnostics import DefinitionError
from kohakuaccel.frontends.tinygrad.indices import Symbolic, Untranslatable
from kohakuaccel.frontends.tinygrad.kernel import MARK, VERSION, Kernel
from kohakuaccel.frontends.tinygrad.renderer import GraphRenderer
from kohakuaccel.frontends.tinygrad.searching import install as search_too
from kohakuaccel.frontends.tinygrad.searching import with_search
from kohakuaccel.frontends.tinygrad.symbolic import encode, variables
from kohakuaccel.frontends.tinygrad.translate import translate
from kohakuaccel.graph import Expr, Op, Range, Read

_stock = codegen.do_to_program


def clean(ast: UOp) -> UOp:
    """A kernel after tinygrad's own clean-up: movement as indices, one-hot sums as gathers, loops merged."""
    sink = graph_rewrite(ast, multi_pm, name="multi_pm")
    sink = graph_rewrite(sink, pm_mops, name="early movement ops", bottom_up=True)
    sink = graph_rewrite(sink, pm_load_collapse, name="load collapse")
    return simplified(sink)


def simplified(sink: UOp) -> UOp:
    """The symbolic part of `clean`, which a kernel needs again when variables got values."""
    sink = graph_rewrite(sink, sym + pm_flatten_range, name="initial symbolic")
    sink = graph_rewrite(sink, pm_flatten_range + pm_simplify_ranges, ctx={}, name="simplify ranges")
    last = sym + pm_move_where_on_load + pm_flatten_range + pm_reduce_unparented
    return graph_rewrite(sink, last, name="postopt symbolic")


def _to_program(ast: UOp, renderer: Renderer) -> UOp:
    if isinstance(renderer, GraphRenderer) and ast.op is Ops.SINK and isinstance(ast.arg, KernelInfo):
        found = _graph_program(ast, renderer)
        if found is not None:
            return found
        # Loops are interpreted on the host; no order of theirs is timed.
        ast = ast.replace(arg=replace(ast.arg, beam=0)) if ast.arg.beam else ast
    return _stock(ast, renderer)


def _graph_program(ast: UOp, renderer: GraphRenderer) -> UOp | None:
    """A finished PROGRAM whose binary is our kernel, or None for what is left to loops."""
    with Context(ALLOW_DEVICE_USAGE=0):
        try:
            sink = clean(ast)
            try:
                return _program(ast, sink, renderer, translate(sink, name_of(sink, ast.arg.name)))
            except Symbolic:
                return _symbolic(ast, sink, renderer)
        except (Untranslatable, DefinitionError) as why:
            renderer.note(ast, str(why))
            return None


def name_of(sink: UOp, given: str) -> str:
    """As tinygrad names kernels: by whether they fold, and their extents."""
    if given != "test":
        return given
    loops = [u for u in sink.toposort() if u.op is Ops.RANGE]
    folds = any(u.op is Ops.REDUCE for u in sink.toposort())
    sizes = "_".join(str(u.src[0].arg) if u.src[0].op is Ops.CONST else "n" for u in loops)
    return f"{'r' if folds else 'E'}_{sizes or 1}"


def _program(ast: UOp, sink: UOp, renderer: GraphRenderer, kernel: Kernel) -> UOp:
    return _finished(ast, sink, renderer, kernel.name, kernel.encode(), str(kernel.graph), estimates(kernel))


def _symbolic(ast: UOp, sink: UOp, renderer: GraphRenderer) -> UOp:
    name = name_of(sink, ast.arg.name)
    names = [v.expr for v in variables(sink)]
    record = {MARK: VERSION, "name": name, "variables": names, "nodes": encode(sink)}
    return _finished(ast, sink, renderer, name, json.dumps(record).encode(), str(sink), Estimates())


def _finished(
    ast: UOp, sink: UOp, renderer: GraphRenderer, name: str, binary: bytes, source: str, found: Estimates
) -> UOp:
    params = sorted(
        {u for u in sink.toposort() if u.op is Ops.PARAM and u.arg.addrspace is not AddrSpace.ALU},
        key=lambda u: u.arg.slot,
    )
    written = {s.src[0].buf_uop.arg.slot for s in sink.toposort() if s.op is Ops.STORE}
    slots = tuple(u.arg.slot for u in params)
    binary = with_search(binary, ast.arg.beam)
    kept = ast.replace(arg=replace(ast.arg, name=name, estimates=found))
    reads = {u.src[0].buf_uop.arg.slot for u in _read(sink) if u.src[0].buf_uop.op is Ops.PARAM}
    info = ProgramInfo(
        name=name,
        vars=variables(sink),
        globals=slots,
        outs=tuple(s for s in slots if s in written),
        ins=tuple(s for s in slots if s in reads),
        target=renderer.target,
    )
    src = (kept, UOp(Ops.LINEAR, src=(*params, kept)), UOp(Ops.SOURCE, arg=source), UOp(Ops.BINARY, arg=binary))
    return UOp(Ops.PROGRAM, src=src, arg=info)


def _read(sink: UOp) -> list[UOp]:
    targets = {s.src[0] for s in sink.toposort() if s.op is Ops.STORE}
    shared = {s for u in sink.toposort() if u.op is not Ops.STORE for s in u.src}
    shared |= {s for u in sink.toposort() if u.op is Ops.STORE for s in u.src[1:]}
    return [u for u in sink.toposort() if u.op is Ops.INDEX and (u not in targets or u in shared)]


def estimates(kernel: Kernel) -> Estimates:
    """Operations of every statement, places not counted; bytes of every buffer once."""
    graph, ops = kernel.graph, 0
    for s in graph.statements:
        ops += _operations(s.body) + (prod(r.extent for r in (*s.ranges, *s.reduced)) if s.reduction else 0)
    width = {v.name: max(getattr(v.dtype, "bits", 8), 8) // 8 for v in graph.values}
    made = [graph[s.value] for s in kernel.stores]
    mem = sum(prod(v.shape) * width[v.name] for v in (*graph.inputs, *made))
    return Estimates(ops=ops, lds=mem, mem=mem)


def _operations(body: Expr) -> int:
    """Each operation once for every value of the loops it follows."""
    known: dict[int, frozenset[Range]] = {}
    todo, ops = [body], 0
    while todo:
        top = todo[-1]
        children = () if _gathered(top) else top.children
        left = [c for c in children if id(c) not in known]
        if left:
            todo += left
            continue
        todo.pop()
        if id(top) not in known:
            known[id(top)] = frozenset(r for c in children for r in known[id(c)]) if children else top.ranges()
            if children and isinstance(top, Op) and top.name != "not":  # a comparison's other half
                ops += prod(r.extent for r in known[id(top)])
    return ops


def _gathered(e: Expr) -> bool:
    """Whether it is an element at a looked-up place, behind its gate: a read, to tinygrad."""
    inner = e.args[1] if isinstance(e, Op) and e.name == "where" else None
    return isinstance(inner, Read) and any(True for i in inner.indices for _ in i.lookups())


def install() -> None:
    """Enter tinygrad. Doing it again changes nothing."""
    codegen.do_to_program = _to_program
    search_too()
