"""BEAM: how many choices a device's scheduler may time for a program, as a number in the program's bytes.

Decides where the number enters (`BEAM`, `Context(BEAM=...)`, `JITBEAM`) and where it stands. tinygrad's own search is
one of loop orders, which a graph has none of. It must not know machines, nor what is searched.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import tinygrad.engine.realize as realize
from tinygrad.uop import Ops
from tinygrad.uop.ops import PatternMatcher, UOp, UPat

from kohakuaccel.frontends.tinygrad.kernel import MARK

SEARCH = "search"
_HEAD = f'{{"{MARK}"'.encode()
_stock = realize.pm_beam


def search_of(record: dict[str, Any]) -> int:
    """The number in a decoded program: 0 without a search."""
    return int(record.get(SEARCH, 0))


@lru_cache(maxsize=1024)
def with_search(binary: bytes, count: int) -> bytes:
    """A program's bytes with the number; as they are for 0."""
    return json.dumps({**json.loads(binary), SEARCH: count}).encode() if count else binary


def _joined(ctx: int, call: UOp, program: UOp) -> UOp | None:
    """A launch of kernels that were joined before tinygrad says how much is searched. Others hold it in their AST."""
    *rest, last = program.src
    if last.op is not Ops.BINARY or not isinstance(last.arg, bytes) or not last.arg.startswith(_HEAD):
        return None
    record = json.loads(last.arg)
    if "parts" not in record or search_of(record):
        return None
    found = last.replace(arg=with_search(last.arg, ctx))
    return call.replace(src=(program.replace(src=(*rest, found)), *call.src[1:]))


def install() -> None:
    """Enter tinygrad. Doing it again changes nothing."""
    launch = UPat(Ops.CALL, src=(UPat(Ops.PROGRAM, name="program"),), name="call", allow_any_len=True)
    realize.pm_beam = _stock + PatternMatcher([(launch, _joined)])
