"""`@ktpu.jit`: a function is traced once per kind of arguments, compiled as one program, and replayed.

Decides what a trace depends on and what is constant in it. It must not know how a graph is compiled.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

from kohakuaccel.diagnostics import KohakuError, Refusal
from kohakuaccel.graph import Graph
from kohakutpu import recording
from kohakutpu.callers import users_line
from kohakutpu.lazy.program import Options, Planned, Program, compiled
from kohakutpu.lazy.pytrees import flatten, rebuild
from kohakutpu.lazy.recorder import GraphPart, Part, Recorder
from kohakutpu.storage import Storage
from kohakutpu.tensor import Tensor, as_tensor, current_device

if TYPE_CHECKING:
    from kohakutpu.auto import GraphPlan, Substitution
    from kohakutpu.device import Device

P = ParamSpec("P")
R = TypeVar("R")
TRACES_KEPT = 64
"""Kinds of arguments that one function remembers."""


@dataclass(frozen=True)
class _Result:
    """A leaf of the result: a value of the program under a shape and dtype."""

    number: int
    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class Traced:
    """One trace: its parts and program, the numbers of its arguments, the tensors it closed over, and its result with a
    `_Result` in place of every tensor."""

    parts: tuple[Part, ...]
    program: Program
    arguments: tuple[int, ...]
    constants: dict[int, Tensor]
    result: Any
    device: Device

    def run(self, leaves: Sequence[Tensor]) -> Any:
        """The function's result for these tensors."""
        values = dict(self.constants)
        values.update(zip(self.arguments, leaves))
        self.program.run(values, self.device)
        return _filled(self.result, values)


def _filled(result: Any, values: dict[int, Tensor]) -> Any:
    if type(result) is _Result:
        made = values[result.number]
        if made.shape == result.shape and made.dtype == result.dtype:
            return made
        return Tensor(made.storage, result.shape, result.dtype)
    return result if type(result) is not _Tree else rebuild(result.tree, lambda leaf, _: _filled(leaf.mark, values))


@dataclass(frozen=True)
class _Tree:
    """A result that is made of several values."""

    tree: Any


class _Mark(Tensor):
    """A leaf of a result that is kept: which value stands there."""

    __slots__ = ("mark",)


class Jitted(Generic[P, R]):
    """A traced function: call it as the function itself.

    plan(*args), lower(*args): the GraphPlan and the Graph for such arguments; program(*args) where calls of kernels
    stand between several graphs. clear() forgets every trace; `traces` is how many there are.
    """

    def __init__(self, fn: Callable[P, R], options: Options) -> None:
        self.fn = fn
        self.options = options
        self._traces: OrderedDict[Hashable, Traced] = OrderedDict()
        update_wrapper(self, fn)
        self._name = getattr(fn, "__name__", type(fn).__name__)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else partial(cast(Callable[..., R], self), instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if recording.current() is not None:  # inside another recording its statements join it
            return self.fn(*args, **kwargs)
        leaves: list[Any] = []
        traced = self._traced(args, kwargs, leaves)
        return traced.run([x if type(x) is Tensor else as_tensor(x, device=traced.device) for x in leaves])

    def program(self, *args: P.args, **kwargs: P.kwargs) -> Program:
        """What runs for such arguments."""
        return self.traced(*args, **kwargs).program

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> GraphPlan:
        """The plan for such arguments. Refused where the program is not one graph: see `program`."""
        (step,) = self._single(self.traced(*args, **kwargs).program.steps)
        assert isinstance(step, Planned)
        return step.plan

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Graph:
        """The graph that such arguments are traced to, before any rewrite."""
        (part,) = self._single(self.traced(*args, **kwargs).parts)
        assert isinstance(part, GraphPart)
        return part.graph

    def traced(self, *args: P.args, **kwargs: P.kwargs) -> Traced:
        """Everything that is remembered for such arguments."""
        return self._traced(args, kwargs, [])

    def _single(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(found) != 1 or not isinstance(found[0], Planned | GraphPart):
            raise Refusal(
                "a plan is that of one graph",
                where=f"jit {self._name}",
                got=f"{len(found)} graphs and calls",
                hint="ask for program(...)",
                source=users_line(),
            )
        return found

    def clear(self) -> None:
        """Forget every trace."""
        self._traces.clear()

    @property
    def traces(self) -> int:
        """How many kinds of arguments are remembered."""
        return len(self._traces)

    def _traced(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Traced:
        where = f"jit {self._name}"
        device = None
        structure = flatten(args, leaves, where), flatten(kwargs, leaves, where) if kwargs else None
        for x in leaves:
            if type(x) is Tensor and (here := x._storage.device) is not device:
                if device is not None:
                    raise Refusal(
                        "operands live on one device",
                        where=where,
                        got=f"{device.machine.name} and {here.machine.name}",
                        hint="move one with ktpu.tensor(x.numpy(), device=...)",
                        source=users_line(),
                    )
                device = here
        device = device or current_device()
        key = device, structure
        found = self._traces.get(key)
        if found is None:
            try:
                found = self._trace(args, kwargs, device)
            except KohakuError as error:
                error.source = error.source or users_line()
                raise
            self._traces[key] = found
            if len(self._traces) > TRACES_KEPT:
                self._traces.popitem(last=False)
        else:
            self._traces.move_to_end(key)
        return found

    def _trace(self, args: tuple[Any, ...], kwargs: dict[str, Any], device: Device) -> Traced:
        recorder = Recorder(_no_numbers, device)
        numbers: list[int] = []

        def stand_in(leaf: Any, path: str) -> Tensor:
            given = leaf if isinstance(leaf, Tensor) else as_tensor(leaf, device=device)
            name = re.sub(r"\W", "_", path)
            number, made = recorder.promise(given.shape, given.dtype, device, name)
            numbers.append(number)
            return made

        code = getattr(self.fn, "__code__", None)
        names = code.co_varnames[: code.co_argcount] if code is not None else ()
        with recording.by(recorder):
            given = [rebuild(a, stand_in, names[n] if n < len(names) else f"args_{n}") for n, a in enumerate(args)]
            result = cast(Callable[..., R], self.fn)(
                *given, **{name: rebuild(a, stand_in, name) for name, a in kwargs.items()}
            )
        wanted: list[int] = []

        def kept(leaf: Any, _: str) -> Any:
            if not isinstance(leaf, Tensor):
                leaf = as_tensor(leaf, device=device)
            number = recorder.number(leaf.storage)
            if number is None:
                number = recorder.give(leaf, "c")
            wanted.append(number)
            made = _Mark(leaf.storage, leaf.shape, leaf.dtype)
            made.mark = _Result(number, leaf.shape, leaf.dtype)
            return made

        tree = rebuild(result, kept)
        arguments = tuple(numbers)
        parts = recorder.parts(n for n in wanted if n not in numbers)
        program = compiled(parts, device.machine, self.options)
        needed = {n for part in program.steps for n in _read(part)} | set(wanted)
        constants = {n: t for n, t in recorder.given.items() if n in needed}
        shown = tree.mark if isinstance(tree, _Mark) else _Tree(tree) if wanted else tree
        return Traced(parts, program, arguments, constants, shown, device)


def _read(step: Any) -> tuple[int, ...]:
    if isinstance(step, Planned):
        return tuple(n for _, n in step.inputs)
    return tuple(ref[0] for ref in step.operands if ref is not None)


def _no_numbers(number: int) -> Storage:
    raise Refusal(
        "a traced function sees shapes, not numbers: its values come when it is called",
        where="jit",
        hint="decide by shapes or arguments, read values outside, or use `with ktpu.graph():`",
        source=users_line(),
    )


@overload
def jit(fn: Callable[P, R], /) -> Jitted[P, R]: ...
@overload
def jit(
    *, host: str = "allow", substitutions: Sequence[Substitution] | None = None, search: int = 0
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
def jit(
    fn: Callable[P, R] | None = None,
    /,
    *,
    host: str = "allow",
    substitutions: Sequence[Substitution] | None = None,
    search: int = 0,
) -> Any:
    """Decorator: `@jit`, or `@jit(host="refuse")`. The function runs once per kind of arguments, to be written down;
    from then on the compiled program runs.

    A kind of arguments is their structure (lists, tuples, dicts, dataclasses), every tensor's shape and dtype, every
    other value, and the device. Arrays count as tensors. Tensors that the function takes from outside are constants:
    they are packed once and stay on the device, and rebinding their name later changes nothing. What else the function
    does (prints, appends) happens while it is traced only. Reading a value or branching on one is refused.

    host, substitutions: as for `graph`. search: so many tiles of every product are timed, see `kohakutpu.auto`.
    """
    options = Options.of(host, substitutions, search)
    if fn is not None:
        return Jitted(fn, options)
    return lambda f: Jitted(f, options)
