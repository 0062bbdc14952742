"""Timing what a function does: every image that it runs on a device, in order, on one timeline.

It decides which launches belong to the timeline and adds the host's data transfers. Results are the device's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kohakuaccel.device import Counters
from kohakuaccel.image import Image
from kohakuaccel.machine import Machine
from kohakuaccel.sim import LaterDict, Stage, Timeline, joined
from kohakutpu.sim.parts import KINDS, WORK
from kohakutpu.sim.signature import signature
from kohakutpu.sim.timing import assumed, time_image

if TYPE_CHECKING:
    from kohakutpu.device import Device

R = TypeVar("R")
ENTRY = 256  # bytes of an FP16 entry
WORD = 32  # bytes of a mover's word


def timed(device: Device, call: Callable[[], R], name: str) -> tuple[R, Timeline]:
    """`call()` and the Timeline of all images that it ran on `device`.

    A launch starts when the one before it is over; the host's time between launches is not in `cycles`. What the
    host moved in and out as data is in `host`, item by item (`_moved`).
    Launches that differ in nothing but addresses (the layers of a model) are timed once, and have one name: the
    kernel's, numbered where a kernel became several images.
    """
    launches: list[Timeline] = []
    known: dict[bytes, Timeline] = {}
    names: set[str] = set()
    before = device.on_run

    def note(image: Image, kernels: dict[str, list[int]]) -> None:
        key = signature(image, kernels)
        found = known.get(key)
        if found is None:
            found = time_image(device.machine, image, kernel_cycles=kernels, loader=device.loader)
            found.name = _unused(image.name or "image", names)
            if image.levels is not None:
                found.texts = _printed(found.name, image.levels)
            known[key] = found
        launches.append(found)
        if before is not None:
            before(image, kernels)

    counters = device.counters
    then = replace(counters)
    device.on_run = note
    try:
        result = call()
    finally:
        device.on_run = before
    machine = device.machine
    if launches:
        whole = joined(launches, name)
    else:
        whole = Timeline(name, machine.name, machine.params.clock_mhz, KINDS, WORK, assumed=assumed(machine))
        whole.stages.append(Stage("nothing ran", 0, 0, 0))
    whole.host.update(_moved(machine, then, counters))
    whole.counters["launches"] = len(launches)
    return result, whole


def _moved(machine: Machine, then: Counters, now: Counters) -> dict[str, int]:
    """Host cycles of tensor data moved since `then`, by purpose: bytes on the link, what a quantising upload takes
    beyond them, the memory mover per word that it wrote, and the cost of each transaction (datasheet 8.1)."""
    t = machine.timing
    entries = (now.quantised_bytes - then.quantised_bytes) // ENTRY
    quantising = max(0, t.upload_in - ENTRY // t.host_bytes) + t.upload_out
    found = {
        "data in": -(-(now.bytes_to_device - then.bytes_to_device) // t.host_bytes),
        "data out": -(-(now.bytes_from_device - then.bytes_from_device) // t.host_bytes),
        "quantising upload": entries * quantising,
        "memory mover": (now.moved_bytes - then.moved_bytes) // WORD * t.mover_word,
        "mover commands": (now.move_transactions - then.move_transactions) * t.host_transaction,
        "data transactions": (now.transfers - then.transfers) * t.host_transaction,
    }
    return {purpose: cycles for purpose, cycles in found.items() if cycles}


def _printed(name: str, levels: Callable[[], Mapping[str, str]]) -> LaterDict[str]:
    """An image's levels under its launch's name."""
    return LaterDict(lambda: {f"{name}/{level}": text for level, text in levels().items()})


def _unused(name: str, names: set[str]) -> str:
    """`name`, or the first of "name (2)", "name (3)" ... that is not in `names`; it is added there."""
    found, number = name, 1
    while found in names:
        number += 1
        found = f"{name} ({number})"
    names.add(found)
    return found
