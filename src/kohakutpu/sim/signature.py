"""Which images of one machine take the same time: those that differ in nothing but addresses in memory.

It decides what has no influence on time. It must not know how time is found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.image import EncodedProgram, Image
from kohakutpu.isa import cluster, vector


def signature(image: Image, kernel_cycles: Mapping[str, Sequence[int]]) -> bytes:
    """Equal for images of one machine that take the same time: everything but the addresses in memory.

    In an image of several meshes bases of descriptors count too: they may say which mesh data goes to.
    """
    programs = [program for stage in image.stages for program in stage]
    head: list[object] = [sorted((k, tuple(v)) for k, v in kernel_cycles.items()), [len(s) for s in image.stages]]
    for program in programs:
        acks = [(unit.name, n if isinstance(n, int) else n.tobytes()) for unit, n in program.acks]
        head.append((program.unit.name, len(program), program.passes.tobytes(), acks))
    found = hashlib.blake2b(repr(head).encode(), digest_size=16)
    found.update((_payloads(programs, "MG") & _MATRIX).tobytes())
    cores = _payloads(programs, "VC")
    if all(program.unit.mesh == 0 for program in programs):
        cores = np.where(((cores & _KIND) == _BASE).all(axis=1)[:, None], cores & ~_VALUE, cores)
    found.update(cores.tobytes())
    return found.digest()


def _payloads(programs: Sequence[EncodedProgram], kind: str) -> NDArray[np.uint64]:
    parts = [program.payloads for program in programs if program.unit.kind == kind]
    return np.concatenate(parts) if parts else np.zeros((0, 4), np.uint64)


def _words(bits: int) -> NDArray[np.uint64]:
    """uint64[4] of a 256-bit number."""
    return np.frombuffer(bits.to_bytes(32, "little"), np.uint64)


_DESC = vector.DESC
_ADDRESS = cluster.CLUSTER["addr"]
_MATRIX = ~_words(_ADDRESS.put((1 << _ADDRESS.width) - 1))
"""Every bit of a cluster payload outside the address."""
_OP = vector.ENVELOPES.opcode
_KIND = _words((1 << _OP[0] + 1) - (1 << _OP[1]) | _DESC["fld"].put(7))
_BASE = _words(vector.ENV_DESC << _OP[1])
_VALUE = _words(_DESC["value"].put((1 << _DESC["value"].width) - 1))
