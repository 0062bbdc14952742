"""The events of a run, in cycle order: sequencer, VPU, XLU, MXU, VMEM (datasheet 16)."""

from __future__ import annotations

from collections.abc import Iterator

from tinytpu.isa import SXU, Psum
from tinytpu.isa.opcodes import OPCODES, operand
from tinytpu.trace.lines import Event
from tinytpu.trace.steps import BLOCKING, DISPATCHES, MOVES, OUTPUT_STATIONARY, Step, latency, phases, steps
from tinytpu.units.core import Run


def events(run: Run) -> list[Event]:
    """Every event of a run that was made with a log. Raises Refusal without one."""
    found = [event for step in steps(run) for event in _step(run, step)]
    return sorted(found, key=lambda event: event.cycle)


def _step(run: Run, step: Step) -> Iterator[Event]:
    yield Event(step.fetch, "SXU", "FETCH", {"pc": step.pc})
    word, at = step.word, step.exec
    match step.code:
        case SXU.LOAD:
            yield Event(at, "SXU", "LOAD_REQ", {"addr": word["vmem"]})
            yield Event(at, "VMEM", "READ_REQ", {"addr": word["vmem"]})
            yield Event(at + 1, "VMEM", "READ_RESP")
            yield Event(step.last, "SXU", "LOAD_RESP", {"dst": word["dst"]})
        case SXU.STORE:
            yield Event(at, "SXU", "STORE", {"addr": word["vmem"], "src": word["src"]})
            yield Event(at, "VMEM", "WRITE", {"addr": word["vmem"]})
        case SXU.VPU | SXU.VPU_BG:
            name = step.operation.name
            yield Event(at, "SXU", f"DISPATCH_{step.code.name}", {"op": name})
            yield Event(at, "VPU", "EXEC", {"op": name})
            yield Event(at + latency(run, step), "VPU", "RESULT")
            collected = step.last if step.code == SXU.VPU else step.ended
            if collected:
                yield Event(collected, "SXU", "VPU_COLLECT", {"dst": word["dst"]})
        case SXU.SELECT:
            yield Event(at, "SXU", "DISPATCH_SELECT_COPY", {"src": word["wbase"]})
            yield Event(at, "VPU", "EXEC", {"op": "COPY"})
            yield Event(at + 1, "SXU", "DISPATCH_SELECT", {"src": word["src"], "src2": word["src2"]})
            yield Event(at + 1, "VPU", "EXEC", {"op": "SELECT"})
            yield Event(step.last, "VPU", "RESULT")
            yield Event(step.last, "SXU", "VPU_COLLECT", {"dst": word["dst"]})
        case code if code in MOVES:
            fields = {"src": word["src"], **({MOVES[code]: word["src2"]} if MOVES[code] else {})}
            yield Event(at, "SXU", f"DISPATCH_{code.name}", fields)
            yield Event(at, "XLU", code.name, fields)
            yield Event(at + 1, "SXU", "XLU_COLLECT_BG", {"dst": word["dst"]})
        case code if code in DISPATCHES:
            yield from _dispatch(run, step)
        case SXU.WAIT_MXU:
            yield from (Event(cycle, "SXU", "WAIT_MXU") for cycle in range(step.fetch + 1, at + 1))
        case code:
            uses = next(iter(OPCODES[code].forms.values())).uses
            values = {name: operand(name, use, word) for name, use in uses.items()}
            yield Event(at, "SXU", code.name, {name: value for name, value in values.items() if value is not None})


def _dispatch(run: Run, step: Step) -> Iterator[Event]:
    word, code = step.word, step.code
    where: dict[str, int | str] = {"wbase": word["wbase"], "abase": word["abase"], "tlen": word["tlen"]}
    if code == SXU.MXU:
        where |= {"psum_mode": word["src2"], "psum_addr": word["dst"], "psum_row": word["src"]}
    name = code.name if code.name.startswith("DISPATCH_") else f"DISPATCH_{code.name}"
    yield Event(step.exec, "SXU", name, where)
    stationary = code in OUTPUT_STATIONARY
    time = phases(run, step)
    yield Event(time.read[0], "MXU", "LOAD_W", {"addr": word["wbase"]})
    yield Event(time.read[0] + 1, "MXU", "LOAD_W_RESP_OS" if stationary else "LOAD_W_RESP")
    if stationary:
        for slot in range(word["tlen"]):
            yield Event(time.read[0] + 1 + slot, "MXU", "LOAD_A_OS", {"slot": word["abase"] + slot})
    feeding = "FEED_OS" if stationary else "STREAM_A"
    yield from (Event(c, "MXU", feeding, {"cyc": c - time.feed[0]}) for c in range(*time.feed))
    drain = time.drain[0]
    yield Event(drain, "MXU", "DRAIN")
    if code == SXU.MXU and word["src2"] != Psum.NONE:
        ev = f"PSUM_{Psum(word['src2']).name}"
        yield Event(drain, "MXU", ev, {"addr": word["dst"], "row": word["src"]})
    if code == SXU.DISPATCH_MXU_REQUANT:
        yield Event(drain, "MXU", "REQUANT", {"slot": word["vmem"]})
    if code in BLOCKING:
        yield Event(step.exec + 1, "SXU", "EPILOGUE_WAIT", {"cycles": step.last - step.exec - 1})
        yield Event(step.last, "SXU", "EPILOGUE_WRITE_BACK", {"dst": word["dst"], "addr": word["vmem"]})
