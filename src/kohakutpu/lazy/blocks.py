"""`with ktpu.graph():` everything asked of tensors inside becomes one graph, compiled and run at its end.

Decides when a recording is run and which of its values are kept. It must not know how a graph is compiled.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakutpu import recording
from kohakutpu.callers import at_users_line, users_line
from kohakutpu.lazy.program import Options, Program, compiled
from kohakutpu.lazy.recorder import Recorder
from kohakutpu.storage import Storage
from kohakutpu.tensor import Tensor, current_device

if TYPE_CHECKING:
    from kohakutpu.auto import Substitution
    from kohakutpu.device import Device


class Recording:
    """What `with ktpu.graph() as g` gives: `g.pretty()`, `g.programs` and `g.breaks` say what was run and when.

    breaks: the user's lines at which a value was read inside the block, each the end of one graph.
    """

    def __init__(self, options: Options, device: Device | None) -> None:
        self.options = options
        self.recorder = Recorder(self._demanded, device)
        self.programs: list[Program] = []
        self.breaks: list[SourceLine | None] = []
        self._only: tuple[Tensor, ...] | None = None
        self._home = device

    def output(self, *tensors: Tensor) -> None:
        """Of what is recorded, only these are computed at the end of the block; to read another one is refused then.

        Without it, every value that the program still holds is computed, the intermediate ones in its variables too.
        """
        self._only = (*(self._only or ()), *tensors)

    def pretty(self) -> str:
        """The plans that were run, in order."""
        return "\n\n".join(program.pretty() for program in self.programs)

    def run(self) -> None:
        """Compute what is wanted of what was recorded so far."""
        recorder = self.recorder
        alive = recorder.alive()
        if self._only is None:
            wanted = set(alive)
        else:
            wanted = {n for t in self._only if (n := recorder.number(t.storage)) in alive and n is not None}
        if wanted:
            device = recorder.device or self._home or current_device()
            program = compiled(recorder.parts(wanted), device.machine, self.options)
            values = program.run(dict(recorder.given), device)
            self.programs.append(program)
            for number in wanted:
                alive[number].fulfil(values[number].storage)
            recorder.restart({n: values[n] for n in wanted})
        for number in set(alive) - wanted:
            alive[number].abandon(_unwanted)

    @at_users_line
    def _demanded(self, number: int) -> Storage:
        """A value that is read before the block ended: all that is recorded so far is computed."""
        storage = self.recorder.alive()[number]
        storage.device.counters.graph_breaks += 1
        self.breaks.append(users_line())
        self._only, only = None, self._only
        try:
            self.run()
        finally:
            self._only = only
        return storage

    def drop(self) -> None:
        """Nothing of what was recorded is computed any more."""
        for storage in self.recorder.alive().values():
            storage.abandon(_dropped)


def _unwanted() -> Storage:
    raise Refusal(
        "a recorded value is computed where it is asked for",
        where="graph",
        got="a value that is no output of its block",
        hint="name it in g.output(...), or leave g.output out",
        source=users_line(),
    )


def _dropped() -> Storage:
    raise Refusal(
        "a recorded value is computed at the end of its block", where="graph", got="a block that ended with an error"
    )


@contextmanager
def graph(
    *,
    host: str = "allow",
    substitutions: Sequence[Substitution] | None = None,
    device: Device | None = None,
) -> Generator[Recording]:
    """Inside the block, what is asked of tensors is written down; its end compiles all of it together and runs it.

    Every value that is still referenced then is computed, or those named in `output`. Reading a value inside the block
    (`.numpy()`, `.item()`) computes what is recorded so far: a break, kept in `breaks` and counted. A block inside a
    recorded function or block is part of it. host: "refuse" refuses programs with steps of the host. substitutions: the
    kernels that may stand for parts of the graph; by default the registered ones, `()` for none.

    An exception drops what was recorded.
    """
    options = Options.of(host, substitutions)
    outer = recording.current()
    if outer is not None and (options != Options() or device is not None):
        raise Refusal(
            "a block inside a recording is part of it and has its options", where="graph", got=options, hint="give none"
        )
    made = Recording(options, device)
    if outer is not None:
        yield made
        return
    try:
        with recording.by(made.recorder):
            yield made
        made.run()
    except BaseException:
        made.drop()
        raise
