"""A finished program as tinygrad holds one: buffers, a name, and bytes of ours that nothing of tinygrad's looks into.

Decides the nodes of such a program. It must not know what the bytes mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.dtype import DType
from tinygrad.helpers import DEV
from tinygrad.renderer import Estimates
from tinygrad.uop import Ops
from tinygrad.uop.ops import KernelInfo, ProgramInfo, UOp


def finished(
    name: str,
    binary: bytes,
    source: str,
    buffers: Sequence[tuple[DType, int]],
    device: str,
    outs: Sequence[int],
    ins: Sequence[int],
    estimates: Estimates,
) -> UOp:
    """A PROGRAM over `buffers` (dtype, elements), of which it writes `outs` and reads `ins`."""
    kept = UOp(Ops.SINK, arg=KernelInfo(name=name, estimates=estimates))
    params = tuple(UOp.param(n, dtype, (size,), device) for n, (dtype, size) in enumerate(buffers))
    info = ProgramInfo(
        name=name,
        globals=tuple(range(len(buffers))),
        outs=tuple(outs),
        ins=tuple(ins),
        target=DEV.target(device.partition(":")[0]),
    )
    src = (
        kept,
        UOp(Ops.LINEAR, src=(*params, kept)),
        UOp(Ops.SOURCE, arg=source),
        UOp(Ops.BINARY, arg=binary),
    )
    return UOp(Ops.PROGRAM, src=src, arg=info)
