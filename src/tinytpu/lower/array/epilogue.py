"""What follows a dispatch, done by the dispatch itself: op 46 on a row of sums, op 42 on an outer product.

Decides from the code alone which of the next operations a blocking dispatch takes in, and whether its result goes to
VMEM without a register (datasheet 3, 7). It must not know expressions or matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinytpu.lower.program.code import Code, Line

_TAKEN = {"ADD": "ADD", "SUB": "SUB", "MUL": "MUL", "MAX": "MAX", "MIN": "MIN", "RELU": "MAX",
          "IPAIR_ROTATE": "IPAIR_ROTATE"}  # fmt: skip
"""Operations of the vector unit that op 46 computes; RELU is MAX with zero."""
_EITHER = frozenset({"ADD", "MUL", "MAX", "MIN"})
ROW, OUTER = "MXU_VPU_EPILOGUE", "MXU_EPILOGUE"


def fuse(code: Code, by_column: Callable[[int], bool]) -> None:
    """Changes the code's lines. by_column: whether a given value is the same in every row of a tile."""
    lines = code.live()
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.form == ROW:
            _row(code, lines, at)
        elif line.form == OUTER:
            _outer(code, lines, at, by_column)
        at += 1
    code.lines[:] = lines


def _reader(lines: Sequence[Line], value: int | None) -> int | None:
    """The only line that reads a value, or None."""
    found = [n for n, line in enumerate(lines) if value in tuple(line.reads())]
    return found[0] if len(found) == 1 else None


def _operand(code: Code, line: Line, value: int) -> tuple[str, int | None] | None:
    """An operation of the value with something that is given: its name and the other operand (None: it has none)."""
    name = str(dict(line.fields).get("vpu"))
    operands = dict(line.sources)
    if line.form == "VPU.1":
        return name, None
    if line.form != "VPU.2" or operands["src"] == operands["src2"]:
        return None
    other = operands["src2"] if operands["src"] == value else operands["src"]
    if (operands["src"] != value and name not in _EITHER) or other not in code.given:
        return None
    return name, other


def _row(code: Code, lines: list[Line], at: int) -> None:
    line = lines[at]
    assert line.dst is not None
    place = _reader(lines, line.dst)
    found = None if place is None else _operand(code, lines[place], line.dst)
    if place is not None and found is not None and found[0] in _TAKEN:
        other = code.fill(0) if found[0] == "RELU" else found[1]
        if other is not None:
            fields = tuple((k, v) for k, v in line.fields if k != "src" and k != "vpu")
            op = (("vpu", _TAKEN[found[0]]),)
            lines[at] = Line(line.form, lines[place].dst, (("src", other),), (*fields, *op))
            del lines[place]
    _stored(lines, at, ROW)


def _stored(lines: list[Line], at: int, form: str) -> None:
    """The result goes to VMEM itself, where an output is all that it is."""
    line = lines[at]
    place = _reader(lines, line.dst)
    if place is None or lines[place].place is None:
        return
    lines[at] = Line(f"{form}.VMEM", None, line.sources, line.fields, lines[place].place)
    del lines[place]


def _outer(code: Code, lines: list[Line], at: int, by_column: Callable[[int], bool]) -> None:
    for name, flag in (("ADD", "bias"), ("RELU", "relu")):
        line = lines[at]
        assert line.dst is not None
        place = _reader(lines, line.dst)
        found = None if place is None else _operand(code, lines[place], line.dst)
        if place is None or found is None or found[0] != name:
            continue
        sources = line.sources
        fields = line.fields
        if found[1] is not None:
            if not by_column(found[1]):
                return
            sources = (("src", found[1]),)
            fields = tuple((k, v) for k, v in fields if k != "src")
        lines[at] = Line(line.form, lines[place].dst, sources, (*fields, (flag, 1)))
        del lines[place]
    _stored(lines, at, OUTER)
