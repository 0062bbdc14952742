"""What a traced kernel is: a tree of stages, loops and statements, each with the user's line; and the recorder.

The recorder is the only mutable thing here. It decides the shape of the tree; it does not know any machine.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.lang.indices import Index

if TYPE_CHECKING:
    from kohakuaccel.lang.ports import Port
    from kohakuaccel.lang.values import Value, View

# Frames of these folders are ours; the first frame outside is the user's line. Machines' languages add theirs.
_own_folders: list[str] = [str(Path(__file__).parent)]


def register_language_folder(folder: str) -> None:
    """Frames under `folder` never count as the user's line."""
    if folder not in _own_folders:
        _own_folders.append(folder)


_spoken: ContextVar[SourceLine | None] = ContextVar("kohakuaccel_spoken_line", default=None)


@contextmanager
def speaking_for(line: SourceLine) -> Generator[None]:
    """Nodes traced meanwhile carry this line: a scheduler that traces on behalf of a graph's statement."""
    token = _spoken.set(line)
    try:
        yield
    finally:
        _spoken.reset(token)


def user_line() -> SourceLine:
    """The innermost caller's line outside the language packages, or the line being spoken for."""
    spoken = _spoken.get()
    if spoken is not None:
        return spoken
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not any(file.startswith(folder) for folder in _own_folders):
            text = linecache.getline(file, frame.f_lineno).strip()
            return SourceLine(file, frame.f_lineno, text)
        frame = frame.f_back
    return SourceLine("<unknown>", 0)


@dataclass(slots=True)
class StoreNode:
    """target <<= value."""

    target: View
    value: Value
    source: SourceLine


@dataclass(slots=True)
class StatementNode:
    """A machine language's own statement (a tile's birth, an accumulation); `kind` and `args` are its business."""

    kind: str
    args: tuple[object, ...]
    text: str
    source: SourceLine


@dataclass(slots=True)
class LoopNode:
    """A loop: inside a stage it iterates within a tile; around stages it repeats them, one after another."""

    index: Index
    source: SourceLine
    body: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class StageNode:
    """Independent instances over the axes; `barrier` when the author asked for one (`stage`, `units`)."""

    axes: tuple[Index, ...]
    source: SourceLine
    barrier: bool
    body: list[Node] = field(default_factory=list)


Node = StageNode | LoopNode | StoreNode | StatementNode
_CLOSE = 8  # lines of a kernel between which nothing is left out when they are shown


@dataclass(slots=True)
class Trace:
    """A kernel's structure before any shape is known."""

    name: str
    ports: tuple[Port, ...]
    knobs: dict[str, object]
    body: list[Node]
    internal: tuple[Port, ...] = ()
    """Temporaries and tables that the body declared."""
    relax: bool = True
    """Whether the compiler may stage through memory what was written as one piece."""

    def pretty(self) -> str:
        """Readable text: ports, knobs, then one line per statement with the user's file and line."""
        shown = " ".join(f"{k}={v}" for k, v in self.knobs.items())
        lines = [
            f"kernel {self.name}  " + "  ".join(p.declaration for p in self.ports) + (f"  {shown}" if shown else "")
        ]
        lines += [f"  {p.declaration}" for p in self.internal]
        number = 0

        def walk(nodes: list[Node], depth: int) -> None:
            nonlocal number
            for node in nodes:
                place = f"{Path(node.source.file).name}:{node.source.line}"
                lines.append(f"  s{number:<3} {'  ' * depth}{_describe(node):<{max(2, 64 - 2 * depth)}} {place}")
                number += 1
                if isinstance(node, StageNode | LoopNode):
                    walk(node.body, depth + 1)

        walk(self.body, 0)
        return "\n".join(lines)

    def lines(self) -> str:
        """The program's lines behind the trace, file by file: "file.py:12  text". What stands between two of them is
        shown too where they are close."""
        named: dict[str, set[int]] = {}

        def walk(nodes: list[Node]) -> None:
            for node in nodes:
                named.setdefault(node.source.file, set()).add(node.source.line)
                if isinstance(node, StageNode | LoopNode):
                    walk(node.body)

        walk(self.body)
        shown: list[str] = []
        for file, numbers in named.items():
            ordered = sorted(numbers)
            between = (range(a, b) if b - a <= _CLOSE else (a,) for a, b in pairwise(ordered))
            shown += [
                f"{Path(file).name}:{line}  {linecache.getline(file, line).rstrip()}".rstrip()
                for line in (*chain.from_iterable(between), ordered[-1])
            ]
        return "\n".join(shown)


def _describe(node: Node) -> str:
    match node:
        case StageNode():
            word = "stage" if node.barrier else "grid"
            return f"{word} " + " ".join(f"{i}<-{i.over}" for i in node.axes)
        case LoopNode():
            return f"sweep {node.index}<-{node.index.over}"
        case StoreNode():
            return f"{node.target} <<= {node.value}"
        case StatementNode():
            return node.text


class Recorder:
    """Collects nodes while a kernel body runs; `depth` counts the loops open right now."""

    def __init__(self) -> None:
        self.body: list[Node] = []
        self._open: list[list[Node]] = [self.body]
        self.stages: list[StageNode] = []
        self.loops: list[LoopNode] = []
        self.internal: list[Port] = []
        self._names: dict[str, int] = {}

    def add(self, node: Node) -> None:
        self._open[-1].append(node)

    def fresh(self, stem: str) -> str:
        """A readable name not used before in this trace."""
        count = self._names.get(stem, 0)
        self._names[stem] = count + 1
        return stem if count == 0 else f"{stem}{count}"

    @contextmanager
    def inside(self, node: StageNode | LoopNode) -> Generator[None]:
        """Nodes added meanwhile belong to `node`."""
        self.add(node)
        self._open.append(node.body)
        stack: list[StageNode] | list[LoopNode] = self.stages if isinstance(node, StageNode) else self.loops
        stack.append(node)  # type: ignore[arg-type]  # the stack was chosen by the node's own class
        try:
            yield
        finally:
            stack.pop()
            self._open.pop()


_current: ContextVar[Recorder | None] = ContextVar("kohakuaccel_recorder", default=None)


def recorder(what: str) -> Recorder:
    """The recorder of the kernel being traced; refused outside one."""
    active = _current.get()
    if active is None:
        raise Refusal(
            f"{what} only means something inside a kernel",
            where="kernel language",
            hint="put it in a function decorated with @kernel and call that",
            source=user_line(),
        )
    return active


@contextmanager
def recording() -> Generator[Recorder]:
    """Trace whatever kernel-language statements run inside."""
    active = Recorder()
    token = _current.set(active)
    try:
        yield active
    finally:
        _current.reset(token)
