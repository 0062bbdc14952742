"""The search for stages of products: matrices of the result, operands that are whole matrices, and what is computed
from the accumulators.

Decides which ranges are a matrix's rows and columns and what meets an accumulator. It must not know tiles' sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kohakuaccel.diagnostics import Unsupported
from kohakuaccel.graph import Expr, Index, Range, Read, Statement
from kohakutpu.auto import access
from kohakutpu.auto.access import Ranges, View, long
from kohakutpu.auto.expressions import Accumulator, expanded, nodes, reads
from kohakutpu.auto.fusion import Sources
from kohakutpu.auto.stages import Beside, Product, TileStage

MOST_SWEEPS = 64  # sweeps that one accumulator is fed by


def tile_stage(sources: Sources, root: Statement, alone: bool) -> TileStage | None:
    """A contraction, or what is computed from contractions that nobody else needs. Raises Unsupported for a contraction
    whose operands are no matrices."""
    start = Read(root.name, tuple(Index.of(r if r.extent > 1 else 0) for r in root.ranges))
    if root.name in sources.contractions:
        found = _tiled(sources, root, {root.name: root}, start)
        if found is None:
            raise Unsupported(_operand_problem(sources, root), where=f"statement {root.name}")
        return found
    if root.reduction or alone or root.name in sources.wide:  # clusters' stages store FP16
        return None
    members = {root.name: root}
    inner = frozenset[str]()
    grown = True
    while grown:
        grown = False
        body = expanded(start, members, (), inner)
        for value in sources.candidates(body, members):
            product = value.name in sources.contractions
            if value.reduction and not product:
                continue
            if product and not all(_in_place(sources, r, root) for r in reads(body) if r.value == value.name):
                continue
            members = {**members, value.name: value}
            inner = inner | {value.name} if product else inner
            grown = True
            break
    return _tiled(sources, root, members, start) if inner else None


def _in_place(sources: Sources, read: Read, root: Statement) -> bool:
    """Whether a read names every element of a value once, one for each point of the result."""
    index = sources.flat(read)
    count = 1
    for r in sorted(long(root.ranges), key=index.coefficient):
        if index.coefficient(r) != count:
            return False
        count *= r.extent
    ranges = long(root.ranges)
    rest = access.without(index, ranges)
    return not read.guards and count == sources.total(read) and rest is not None and rest.constant == 0


def _tiled(sources: Sources, root: Statement, members: dict[str, Statement], start: Expr) -> TileStage | None:
    inner = frozenset(name for name in members if name in sources.contractions)
    body = expanded(start, members, (), inner)
    accumulators = list(dict.fromkeys(n for n in nodes(body) if isinstance(n, Accumulator)))
    for lead, rows, columns in _splits(sources, root, accumulators[0]):
        products = [_product(sources, a, rows, columns) for a in accumulators]
        beside = {r: _beside(sources, r, lead, rows, columns) for r in reads(body)}
        if all(products) and all(beside.values()):
            return TileStage(
                root=root,
                members=tuple(members),
                body=body,
                lead=lead,
                rows=rows,
                columns=columns,
                products=tuple(p for p in products if p),
                beside={r: b for r, b in beside.items() if b},
                why=_why(sources, members, [p for p in products if p], lead, rows, columns),
            )
    return None


def _why(
    sources: Sources,
    members: Mapping[str, Statement],
    products: list[Product],
    lead: Ranges,
    rows: Ranges,
    columns: Ranges,
) -> str:
    extra = len(members) - len(products)
    batch = f"{access.size(lead)} x " if lead else ""
    shape = f"{batch}{access.size(rows)}x{access.size(columns)}x{access.size((*products[0].outer, *products[0].inner))}"
    text = f"{len(products)} product{'s' * (len(products) > 1)} of {shape}"
    if extra:
        text += f", {extra} elementwise statement{'s' * (extra > 1)} on the accumulators"
    decided = sources.one_rows.get(products[0].name)
    if decided:
        text += f" ({decided.why})"
    return text


def _operand_problem(sources: Sources, root: Statement) -> str:
    found = sources.contractions[root.name]
    for e in (found.left, found.right):
        if not isinstance(e, Read) or e.guards:
            return f"an operand of a product is read as it lies, not {e}"
    return "an operand of a product is no whole matrix in memory"


def _splits(sources: Sources, root: Statement, first: Accumulator) -> Iterator[tuple[Ranges, Ranges, Ranges]]:
    """(lead, rows, columns) of the result in its own order, the largest matrices first."""
    ranges = long(root.ranges)
    left, right = _sides(sources, first)
    if not ranges:
        return
    if first.name in sources.one_rows:
        # The matrix's own ranges are columns, whichever side it is on.
        last = next((n for n in reversed(range(len(ranges))) if (ranges[n] in left) == (ranges[n] in right)), -1)
        for begin in range(last + 1, len(ranges)):
            yield ranges[:begin], (), ranges[begin:]
        return
    only_right = [r in right and r not in left for r in ranges]
    only_left = [r in left and r not in right for r in ranges]
    across, down = (only_right, only_left) if only_right[-1] else (only_left, only_right)
    last = next((n for n in reversed(range(len(ranges))) if not across[n]), -1)
    for begin in range(last + 1, len(ranges)):
        above = next((n for n in reversed(range(begin)) if not down[n]), -1)
        for top in range(above + 1, begin):
            yield ranges[:top], ranges[top:begin], ranges[begin:]


def _sides(sources: Sources, a: Accumulator) -> tuple[frozenset[Range], frozenset[Range]]:
    """The result's ranges that each operand follows."""
    found = sources.contractions[a.name]
    new = dict(zip(sources.graph.statement(a.name).ranges, a.indices))
    return found.left.substitute(new).ranges(), found.right.substitute(new).ranges()


def _product(sources: Sources, a: Accumulator, rows: Ranges, columns: Ranges) -> Product | None:
    """One accumulator's operands as matrices, the first over `rows`."""
    statement, found = sources.graph.statement(a.name), sources.contractions[a.name]
    fold = {r: Range(f"{a.name}_{r.name}", r.extent) for r in statement.reduced}
    new = dict(zip(statement.ranges, a.indices)) | {old: Index.of(r) for old, r in fold.items()}
    first, second = found.left.substitute(new), found.right.substitute(new)
    if not isinstance(first, Read) or not isinstance(second, Read) or first.guards or second.guards:
        return None
    if set(columns) & first.ranges():
        first, second = second, first
    if set(columns) & first.ranges() or set(rows) & second.ranges():
        return None
    for outer, deep in folds(sources, (second, first), long(fold.values())):
        left = operand(sources, first, rows, deep)
        right = operand(sources, second, columns, deep)
        if left and right:
            return Product(name=a.name, left=(first, left), right=(second, right), inner=deep, outer=outer)
    return None


def folds(sources: Sources, reads: Sequence[Read], fold: Ranges) -> Iterator[tuple[Ranges, Ranges]]:
    """Folded ranges as (those that take a sweep for each point, those of one sweep), by the order they lie in."""
    for read in reads:
        place = sources.flat(read)
        inner = tuple(sorted(fold, key=place.coefficient, reverse=True))
        for cut in range(len(inner)):
            if access.size(inner[:cut]) <= MOST_SWEEPS:
                yield inner[:cut], inner[cut:]


def operand(sources: Sources, read: Read, rows: Ranges, columns: Ranges) -> View | None:
    """An operand as it lies, or brought into order before the call where it is known then."""
    place = sources.flat(read)
    found = access.matrix(place, sources.total(read), rows, columns)
    if found is None and sources.known(read.value):
        lead = sorted(read.ranges() - {*rows, *columns}, key=place.coefficient, reverse=True)
        return access.moved(place, sources.total(read), tuple(lead), rows, columns)
    return found


def fits(sources: Sources, read: Read, own: Ranges, fold: Ranges) -> bool:
    """Whether some matrices of an operand can be read where they are."""
    tops = range(len(own)) if own else (0,)
    return any(operand(sources, read, own[top:], deep) for _, deep in folds(sources, (read,), fold) for top in tops)


def _beside(sources: Sources, read: Read, lead: Ranges, rows: Ranges, columns: Ranges) -> Beside | None:
    """How an operand meets an accumulator."""
    index, total = sources.flat(read), sources.total(read)
    whole = (*lead, *rows, *columns)
    vector = not rows and sources.known(read.value)  # beside a single row, a vector is cheaper than a padded tile
    if index == access.over(whole) and total == access.size(whole) and not vector:
        shape = (*(r.extent for r in lead), access.size(rows), access.size(columns))
        return "whole", View(shape, ())
    if not sources.known(read.value):
        return None  # a value that a stage wrote is not spread over tiles
    view = access.row(index, total, columns)
    if view and len(view.shape) == 2 and not view.window and view.index[0].ranges() <= set(lead):
        return "column", View(view.shape[1:], ()) if vector and view.shape[0] == 1 else view
    view = access.row(index, total, rows)
    if view and len(view.shape) == 2 and not view.window and view.index[0].ranges() <= set(lead):
        return "row", view
    return None
