"""What is refused when a kernel is compiled or run, by which words, and that a step of the host is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tinytpu.tinygrad as tinytpu
from kohakuaccel import graph
from kohakuaccel.diagnostics import Refusal
from tinytpu.lower import compile_graph
from tinytpu_acceptance.table import Check, Table, table
from tinytpu_acceptance.tensors import F32, I32, ints, on, reals

Kind = type[Exception]


def refused(name: str, fn: Callable[..., Any], *arrays: Any, kind: Kind, match: str, mxu: Any = "fits") -> Check:
    """A row: a kernel that is refused where no step of the host is allowed."""

    def check() -> None:
        with tinytpu.numerics(host="refuse", mxu=mxu), pytest.raises(kind, match=match):
            fn(*[on(a) for a in arrays]).realize()

    return Check(name, check)


def counted(name: str, fn: Callable[..., Any], *arrays: Any, want: Any, reason: str) -> Check:
    """A row: the same kernel as a step of the host, which the report names."""

    def check() -> None:
        report = tinytpu.report()
        before = report.host_kernels
        with tinytpu.numerics(host="allow"):
            got = fn(*[on(a) for a in arrays]).numpy()
        np.testing.assert_array_equal(got, want(*arrays))
        assert report.host_kernels == before + 1, f"{report.host_kernels - before} steps of the host"
        assert reason in str(report), str(report)

    return Check(name, check)


def operands() -> Iterator[Check]:
    a, w = ints(1, 4, 8), ints(2, 8, 4)
    for value in (128, -129, 2**31 - 1, -(2**31)):
        big = a.copy()
        big[1, 2] = value
        match = rf"an activation of the array is an int8; got {value}; the limit is -128..127"
        yield refused(
            f"an activation of {value}", lambda a, w: a @ w, big, w, kind=ValueError, match=match, mxu="demanded"
        )
        match = rf"a weight of the array is an int8; got {value}; the limit is -128..127"
        yield refused(f"a weight of {value}", lambda a, w: a @ w, w.T.copy(), big.T.copy(), kind=ValueError,
                      match=match, mxu="demanded")  # fmt: skip


def formats() -> Iterator[Check]:
    wide = np.array([1.5, 2.5])
    unheld = "lanes hold .*got FP64"
    yield refused("float64", lambda x: x + 1, wide, kind=NotImplementedError, match=unheld)
    yield refused("float64, folded", lambda x: x.sum(), wide, kind=NotImplementedError, match=unheld)
    yield refused("float64, a product", lambda x: x.reshape(1, 2) @ x, wide, kind=NotImplementedError, match=unheld)
    yield refused("to float64", lambda x: x.double() * 1.5, wide.astype(F32), kind=NotImplementedError, match=unheld)
    yield refused("of a kernel's name", lambda x: x * 3, wide, kind=NotImplementedError, match=r"kernel E_\w+")
    yield counted("float64 on the host", lambda x: x * 3, wide, want=lambda x: x * 3, reason="FP64")
    yield refused("float64, compared", lambda x: x < 2, wide, kind=NotImplementedError, match=unheld)
    yield refused("float64, a root", lambda x: x.sqrt(), wide, kind=NotImplementedError, match=unheld)
    yield counted("float64 folded on the host", lambda x: x.max(), wide, want=lambda x: x.max(), reason="FP64")


def gemm(m: int, k: int, n: int) -> str:
    terms = "cast(a[i, q], S32) * cast(w[q, j], S32)"
    return f"input a: S8[{m},{k}]\ninput w: S8[{k},{n}]\no: S32[i<{m},j<{n}] = sum[q<{k}] {terms}\noutput o"


def tiling() -> Iterator[Check]:
    def shape(m: int, k: int, n: int) -> Check:
        def check() -> None:
            text = compile_graph(graph.parse(gemm(m, k, n))).text()
            assert f"product 1 x {m}x{k}x{n} on the array" in text, text

        return Check(f"{m}x{k}x{n} from shapes", check)

    for sizes in ((1, 4, 4), (4, 4, 4), (4, 8, 4), (8, 8, 8), (5, 7, 6), (3, 70, 5)):
        yield shape(*sizes)

    def nothing(name: str, m: int, k: int, n: int) -> Check:
        def check() -> None:
            with pytest.raises((NotImplementedError, Refusal)) as caught:
                compile_graph(graph.parse(gemm(m, k, n)))
            assert "0" in str(caught.value)

        return Check(name, check)

    yield nothing("no terms", 4, 0, 4)
    yield nothing("no rows", 0, 4, 4)
    yield nothing("no columns", 4, 4, 0)

    def empty() -> None:
        a, w = on(reals(1, 4, 0)), on(reals(2, 0, 4))
        got = (a @ w).numpy()
        assert got.tolist() == [[0] * 4] * 4

    yield Check("tinygrad's product of no terms is 0", empty)

    def odd() -> None:
        a, w = ints(3, 3, 5), ints(4, 5, 2)
        with tinytpu.numerics(host="refuse", mxu="demanded"):
            got = (on(a) @ on(w)).numpy()
        assert got.dtype == I32
        assert got.tolist() == (a @ w).tolist()

    yield Check("sizes that no tile divides are padded", odd)


TABLES: tuple[Table, ...] = (
    table("refusals", "operands of the array", operands()),
    table("refusals", "formats", formats()),
    table("tiling", "sizes of products", tiling()),
)
