"""Einstein sums: any product of values over named axes, one statement each.

Decides how a formula becomes ranges. What comes out is a contraction, a copy or a row sum for `graph.structure` to see.
"""

from __future__ import annotations

from functools import reduce

from kohakuaccel.diagnostics import Refusal
from kohakuaccel.graph.build.core import Tensor, result_dtype
from kohakuaccel.graph.expr import Expr, Read, op
from kohakuaccel.graph.index import Range


def einsum(formula: str, *operands: Tensor) -> Tensor:
    """The sum over every letter that the result does not name: einsum("bik,bjk->bij", a, b).

    A letter twice in one operand is its diagonal; `...` stands for leading axes that broadcast; an axis of extent 1
    meets any extent. Without an arrow the result names the letters that occur once, in alphabetical order.
    """
    where = f"graph.build.einsum {formula!r}"
    left, arrow, right = formula.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands) or not operands:
        raise Refusal("one list of axes for every operand", where=where, got=len(operands), limit=len(terms))
    dots = max((t.ndim - len(term.replace("...", "")) for term, t in zip(terms, operands) if "..." in term), default=0)
    if not arrow:
        once = sorted(c for c in set(left) - set(",.") if left.count(c) == 1)
        right = ("..." if dots else "") + "".join(once)
    named = [_letters(term, t.ndim, where) for term, t in zip(terms, operands)]
    extents: dict[str, int] = {}
    for letters, tensor in zip(named, operands):
        operands[0].builder.own(tensor)
        for letter, extent in zip(letters, tensor.shape):
            if extents.setdefault(letter, extent) not in (extent, 1) and extent != 1:
                raise Refusal("an axis has one extent", where=where, got=f"{letter}: {extents[letter]} and {extent}")
            extents[letter] = max(extents[letter], extent)
    result = _letters(right, len(right.replace("...", "")) + (dots if "..." in right else 0), where)
    unknown = [c for c in result if c not in extents]
    if unknown or len(set(result)) != len(result):
        raise Refusal("the result names axes of the operands, each once", where=where, got=right)
    ranges = {letter: Range(letter if letter.isalpha() else f"d{letter}", n) for letter, n in extents.items()}
    reads: list[Expr] = [
        Read(t.name, t.at(*(0 if n == 1 else ranges[c] for c, n in zip(letters, t.shape))).indices)
        for letters, t in zip(named, operands)
    ]
    body = reduce(lambda a, b: op("mul", a, b), reads)
    gone = [r for letter, r in ranges.items() if letter not in result]
    dtype = result_dtype([t.dtype for t in operands])
    out = [ranges[c] for c in result]
    return operands[0].builder.statement(dtype, out, body, ("sum", gone) if gone else None, "t_einsum")


def _letters(term: str, ndim: int, where: str) -> list[str]:
    """The axes of one term: letters, and digits for those that `...` stands for, counted from the last."""
    first, dots, last = term.partition("...")
    if not all(c.isalpha() and c.isascii() for c in first + last):
        raise Refusal("axes are letters, and one `...` at most", where=where, got=repr(term))
    more = ndim - len(first) - len(last)
    if more < 0 or (more and not dots):
        raise Refusal("a letter for every axis", where=where, got=repr(term), limit=f"{ndim} axes")
    return [*first, *(str(n) for n in reversed(range(more))), *last]
