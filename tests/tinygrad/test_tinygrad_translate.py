"""Kernels of tinygrad as graphs: the form of what is translated, and that the ruler agrees with numpy on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tinygrad.device import Device
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

import kohakutpu.tinygrad as kt
from kohakuaccel import graph
from kohakuaccel.frontends.tinygrad.compiling import clean
from kohakuaccel.frontends.tinygrad.indices import Symbolic
from kohakuaccel.frontends.tinygrad.kernel import Kernel
from kohakuaccel.frontends.tinygrad.places import Place, shape_of
from kohakuaccel.frontends.tinygrad.program import _kernel, _record
from kohakuaccel.frontends.tinygrad.symbolic import decode, encode
from kohakuaccel.frontends.tinygrad.translate import translate
from kohakuaccel.graph import Guard, Range
from kohakuaccel.graph.structure import as_contraction

assert kt  # the import registers the device
D = "KTPU"


def empty(*shape: int, dtype: Any = dtypes.float) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype, device=D)


def kernels_of(t: Tensor) -> list[UOp]:
    """The kernels of a tensor before any is compiled."""
    linear, _ = t.linear_with_vars()
    return [c.src[0] for c in linear.src if c.src[0].op is Ops.SINK]


def only(t: Tensor) -> Kernel:
    (ast,) = kernels_of(t)
    return translate(clean(ast), "k")


def test_a_matmul_with_its_epilogue_is_a_contraction_and_a_map() -> None:
    half = dtypes.half
    kernel = only(((empty(4, 8, dtype=half) @ empty(8, 16, dtype=half)) + empty(16, dtype=half)).relu())
    first, out = kernel.graph.statements
    found = as_contraction(first)
    assert found is not None
    assert [len(found.m), len(found.n), len(found.k)] == [1, 1, 1]
    assert first.dtype.name == "FP32"
    assert out.reduction is None
    assert kernel.stores[0].place is None


def test_a_convolution_guards_its_padding() -> None:
    kernel = only(empty(1, 3, 8, 8).conv2d(empty(4, 3, 3, 3), padding=1))
    guarded = [r for s in kernel.graph.statements for r in s.body.reads() if r.guards]
    assert len({g.index for r in guarded for g in r.guards}) == 2
    rng = np.random.default_rng(0)
    data = {v.name: rng.normal(size=v.shape).astype(np.float32) for v in kernel.graph.inputs}
    out = graph.run(kernel.graph, data)["out0"].reshape(4, 8, 8)
    image, w = data["a1"].reshape(3, 8, 8), data["a2"].reshape(4, 3, 3, 3)
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    np.testing.assert_allclose(out, np.einsum("cyxij,ocij->oyx", windows, w), atol=1e-5)


def test_a_flat_strided_convolution_has_the_axes_of_its_image_and_filters() -> None:
    kernel = only(empty(2, 3, 8, 8).conv2d(empty(4, 3, 3, 3), padding=1, stride=2).flatten(1))
    (out,) = kernel.graph.statements[-1:]
    assert out.shape == (2, 4, 4, 4)
    assert {v.name: v.shape for v in kernel.graph.inputs} == {"a1": (2, 3, 8, 8), "a2": (4, 3, 3, 3)}
    reads = [r for s in kernel.graph.statements for r in s.body.reads()]
    assert all(i.affine and not any(i.lookups()) for r in reads for i in r.indices)
    assert sorted(len(r.guards) for r in reads if r.value == "a1") == [2]
    (fold,) = [s for s in kernel.graph.statements if s.reduction]
    found = as_contraction(fold)
    assert found is not None
    assert [len(found.m), len(found.n), len(found.k)] == [3, 1, 3]


x, y, k = Range("x", 4), Range("y", 4), Range("k", 3)


@pytest.mark.parametrize(
    ("size", "places", "shape"),
    [
        (64, [Place(8 * y + x)], (8, 8)),
        (64, [Place(16 * y + 2 * x)], (4, 8, 2)),
        (18, [Place(2 * x + k)], (18,)),  # windows of 3, 2 apart
        (72, [Place(9 * y + 2 * x + k - 1, (Guard(2 * x + k, 1, 10),))], (8, 9)),
        (24, [Place(6 * y + x), Place(4 * k + x)], (4, 6)),  # steps that do not divide one another
    ],
)
def test_steps_of_reads_are_strides_where_no_read_runs_over_them(
    size: int, places: list[Place], shape: tuple[int, ...]
) -> None:
    assert shape_of(size, places) == shape


def test_an_embedding_is_a_gather() -> None:
    ids = Tensor([3, 1, -1], dtype=dtypes.int32, device=D).contiguous().realize()
    kernel = only(empty(10, 4)[ids])
    assert not any(s.reduction for s in kernel.graph.statements)
    data = {"b2": np.arange(40, dtype=np.float32), "b1": np.array([3, 1, -1], np.int32)}
    table = data["b2"].reshape(10, 4)
    assert (graph.run(kernel.graph, data)["out0"] == table[[3, 1, 9]]).all()


def test_a_kernel_survives_its_bytes() -> None:
    kernel = only(empty(4, 8).sum(1))
    assert _kernel(_record(kernel.encode()), ()) == kernel


def test_variables_are_translated_when_they_have_values() -> None:
    from tinygrad import Variable

    n = Variable("n", 1, 10).bind(3)
    asts = kernels_of(empty(10, 4)[:n].sum())
    sink = clean(asts[0])
    with pytest.raises(Symbolic):
        translate(sink, "k")
    again = decode(encode(sink))
    assert again.op is Ops.SINK
    assert len(again.toposort()) == len(sink.toposort())


@pytest.mark.parametrize("name", ["KTPU", "KTPU:1"])
def test_lookup(name: str) -> None:
    assert type(Device[name]).__name__ == "KTPUDevice"
    assert not Device[name].renderer.has_local
    assert Device[name].renderer.target.arch == "ship_3x2"
