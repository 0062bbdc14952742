"""Every Tensor method on the device against numpy in float64: shapes, types, both kinds of numerics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tinygrad.dtype import DType, dtypes
from tinygrad.tensor import Tensor

import kohakutpu.tinygrad as kt
from tinygrad_cases import CASES, ELSEWHERE, Case
from tinygrad_cases.case import Shape, made
from tinygrad_cases.maps import MAPS

D = "KTPU"
TYPES: dict[str, DType] = {name: getattr(dtypes, name) for name in ("float", "half", "bfloat16", "double", "bool")}
TYPES |= {name: getattr(dtypes, name) for name in ("int8", "uint8", "int32", "int64", "uint64")}
NEAR = {"float": 2e-6, "half": 1e-3, "bfloat16": 8e-3, "double": 1e-12}
"""Part of the greatest value that a result of a type may be off, times a case's looseness."""
PAIRS = [(name, n) for name, case in CASES.items() for n in range(len(case.types))]


def operands(case: Case, shapes: Sequence[Shape], kind: str, seed: int) -> tuple[list[Tensor], list[np.ndarray]]:
    """Tensors of a type, and the numbers in them; whole numbers where the type holds no others."""
    tensors: list[Tensor] = []
    arrays: list[np.ndarray] = []
    for n, (what, shape) in enumerate(zip(case.kinds, shapes)):
        array = made(what, shape, 10 * seed + n)
        own = kind in NEAR and array.dtype == np.float32
        whole = kind not in NEAR or (len(set(case.kinds)) == 1 and what in ("int", "small"))
        dtype = TYPES[kind] if own or (whole and array.dtype != np.bool_) else None
        if dtype is not None and dtypes.is_unsigned(dtype):
            array = np.abs(array)
        tensor = Tensor(array, device=D)
        tensors.append(tensor if dtype is None else tensor.cast(dtype).realize())
        if dtype is dtypes.bfloat16:
            array = tensors[-1].float().numpy()
        if array.dtype == np.float32:
            arrays.append(array.astype(np.float64))
        elif dtype is not None and dtype.fmt and array.dtype != np.bool_:
            arrays.append(array.astype(np.dtype(dtype.fmt)))
        else:
            arrays.append(array)
    return tensors, arrays


def compared(case: Case, shapes: Sequence[Shape], kind: str, near: float, seed: int = 0) -> None:
    tensors, arrays = operands(case, shapes, kind, seed)
    found = case.ours(*tensors)
    with np.errstate(all="ignore"):
        wanted = case.theirs(*arrays)
    pairs = zip(found, wanted) if isinstance(found, tuple) else ((found, wanted),)
    for ours, theirs in pairs:
        got, want = (ours.float() if ours.dtype is dtypes.bfloat16 else ours).numpy(), np.asarray(theirs)
        assert got.shape == want.shape
        if got.dtype.kind != "f":
            assert (got == want).all()
        else:
            top = max(float(np.abs(want).max(initial=0)), 1.0)
            np.testing.assert_allclose(got, want, rtol=near * case.loose, atol=near * case.loose * top)


def accurate(case: Case, shapes: Sequence[Shape], kind: str, seed: int = 0) -> None:
    with kt.numerics(matmul="split"):
        compared(case, shapes, kind, NEAR.get(kind, 2e-6), seed)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.core])
def test_core_methods(name: str) -> None:
    accurate(CASES[name], CASES[name].shapes[0], CASES[name].types[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.core])
def test_methods(name: str) -> None:
    for n, shapes in enumerate(CASES[name].shapes[:1] if name in MAPS else CASES[name].shapes):
        accurate(CASES[name], shapes, CASES[name].types[0], n)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.core])
def test_core_methods_in_other_shapes(name: str) -> None:
    for n, shapes in enumerate(CASES[name].shapes[1:]):
        accurate(CASES[name], shapes, CASES[name].types[0], n + 1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n"), [(name, n) for name, n in PAIRS if n])
def test_other_types(name: str, n: int) -> None:
    accurate(CASES[name], CASES[name].shapes[0], CASES[name].types[n])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, c in CASES.items() if c.types[0] == "float" and c.mild])
def test_default_numerics(name: str) -> None:
    """FP16 storage and products of 7-bit blocks; the same results within what these hold."""
    case = CASES[name]
    compared(case, case.shapes[0], "float", (12e-3 if case.product else 2e-3) / min(case.loose, 4))


def test_every_method_is_swept_or_has_a_reason() -> None:
    public = {name for name in dir(Tensor) if not name.startswith("_")}
    swept = {name.split(":")[0] for name in CASES}
    assert not public - swept - set(ELSEWHERE)
    assert not (swept | set(ELSEWHERE)) - public
    assert not {name for name in ELSEWHERE if name in CASES}


ROUND: dict[DType, Any] = {
    dtypes.bool: [True, False],
    **{t: [int(t.min), int(t.max), 0, 1, 77] for t in dtypes.ints},
    **{t: [0.0, -0.0, 1.5, -2.25, 0.0625, float("inf")] for t in (dtypes.half, dtypes.float, dtypes.double)},
    dtypes.bfloat16: [0.0, 1.5, -2.25, 2.0**-120, 3e38],
    **{t: [0.0, 1.5, -1.75, 0.0625, 224.0] for t in dtypes.fp8s},
}


def numbers(t: Tensor) -> list[Any]:
    found: Any = t.tolist()
    return found


@pytest.mark.parametrize("dtype", ROUND, ids=lambda t: t.name.replace(" ", "_"))
def test_every_type_survives_a_kernel(dtype: DType) -> None:
    held = Tensor(ROUND[dtype], dtype=dtype, device=D).flip(0).contiguous().realize()
    wanted = [str(x) for x in numbers(Tensor(ROUND[dtype][::-1], dtype=dtype, device="PYTHON"))]
    assert [str(x) for x in numbers(held)] == wanted
    chosen = (held == held).where(held, held).contiguous()  # computed with, not only moved
    assert [str(x) for x in numbers(chosen)] == wanted


@pytest.mark.parametrize("dtype", [dtypes.fp8e4m3, dtypes.fp8e5m2], ids=lambda t: t.name)
def test_8_bit_floats_saturate(dtype: DType) -> None:
    top = 448.0 if dtype is dtypes.fp8e4m3 else 57344.0
    x = Tensor([1e6, -1e6, 1.0, 0.3], device=D).cast(dtype)
    assert numbers(x.float())[:3] == [top, -top, 1.0]
    assert numbers((x * x).float())[0] == top
    assert abs(numbers(x.float())[3] - 0.3) < 0.02


def test_a_cast_to_a_narrower_float_and_back_rounds() -> None:
    x = Tensor([1.00390625, 1.001, 3.0], device=D).realize()
    assert numbers(x.cast(dtypes.bfloat16).float() * 2) == [2.0, 2.0, 6.0]
    far = Tensor([1e6, 1e-9, 3.0], device=D).realize()
    assert numbers(far.half().float() * 2) == [float("inf"), 0.0, 6.0]


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint32, dtypes.int64])
def test_integers_wrap(dtype: Any) -> None:
    x = made("int", (5, 6), 0).astype(np.dtype(dtype.fmt))
    a = Tensor(x, dtype=dtype, device=D)
    top = np.asarray(int(dtype.max), x.dtype)
    with np.errstate(over="ignore"):
        assert ((a * a * a * 31).numpy() == x * x * x * np.asarray(31, x.dtype)).all()
        assert ((a + int(dtype.max)).numpy() == x + top).all()
