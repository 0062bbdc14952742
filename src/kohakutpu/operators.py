"""The arithmetic of tensors: which kernel of `kohakutpu.kernels` computes an operator, on operands of which
shape.

Decides: broadcasting (a constant, a shared row, or a stretched operand), folding of leading axes, where a
reduced axis goes, what an empty tensor means. It must not know tiles, units or addresses; a kernel decides
those.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from kohakuaccel.diagnostics import Fault, Refusal
from kohakutpu import broadcasting as shapes
from kohakutpu import recording
from kohakutpu.broadcasting import Shape
from kohakutpu.callers import at_users_line
from kohakutpu.conversion import Shown, constant, is_scalar, reciprocal_constant, result_dtype
from kohakutpu.layouts import FP32, WORD_ELEMENTS
from kohakutpu.storage import Storage
from kohakutpu.tensor import NONFINITE_FAULT, Axis, Tensor, as_tensor

# operator -> kernel for (tensor, constant) and (constant, tensor). Subtracting c adds -c and dividing by c
# multiplies by 1/c; both are the same E8M15 result as the two-operand kernel's definition.
_SCALAR_RIGHT = {
    "add": "add_scalar",
    "sub": "add_scalar",
    "mul": "mul_scalar",
    "div": "mul_scalar",
    "maximum": "maximum_scalar",
    "minimum": "minimum_scalar",
}
_SCALAR_LEFT = {
    "add": "add_scalar",
    "sub": "rsub_scalar",
    "mul": "mul_scalar",
    "div": "rdiv_scalar",
    "maximum": "maximum_scalar",
    "minimum": "minimum_scalar",
}
_SYMBOL = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_ROW_KERNEL = {"add": "add_row", "sub": "sub_row", "mul": "mul_row", "div": "div_row"}
SHARED, ROWS_TO_SHARE = 8192, 8  # elements from which, and rows over which, all cores take part in one reduction
_COMMUTES = frozenset({"add", "mul"})


def _call(name: str, *operands: Tensor, **knobs: object) -> Tensor:
    from kohakutpu import kernels

    kernel: Callable[..., Tensor] = getattr(kernels, name)
    return kernel(*operands, **knobs)


def moved(name: str, x: Tensor, how: Shape) -> Storage:
    """What a copying kernel made of a value that only the device has."""
    from kohakutpu import kernels

    copy: Callable[[Tensor, Shape], Tensor] = getattr(kernels, name)
    return copy(x, how).storage


def movement() -> ModuleType:
    """The kernels that move values on the device."""
    from kohakutpu.kernels import movement as moves

    return moves


def _shaped(value: Tensor, shape: Shape, dtype: Shown) -> Tensor:
    """A kernel's result under the operator's shape and dtype."""
    if value.shape == shape and value.dtype == dtype:
        return value
    return Tensor(value.storage, shape, dtype)


def _known(operand: Tensor, values: Any, shape: Shape, dtype: Shown) -> Tensor:
    """A result that needs no arithmetic (no element, or the value of an empty sum) on the operand's
    device."""
    host = np.broadcast_to(np.asarray(values, operand.storage.element.dtype), shape)
    return Tensor(Storage(operand.device, host.size, host=host), shape, dtype)


def _pair(a: Any, b: Any, where: str) -> tuple[Tensor, Tensor]:
    """Both operands as tensors of one device; arrays and lists join the device of the tensor they meet."""
    home = next((operand.device for operand in (a, b) if isinstance(operand, Tensor)), None)
    left = a if isinstance(a, Tensor) else as_tensor(a, device=home, where=where)
    right = b if isinstance(b, Tensor) else as_tensor(b, device=home, where=where)
    if left.device is not right.device:
        raise Refusal(
            "operands live on one device",
            where=where,
            got=f"{left.device.machine.name} and {right.device.machine.name}",
            hint="move one with ktpu.tensor(x.numpy(), device=...)",
        )
    return left, right


@at_users_line
def unary(name: str, x: Tensor) -> Tensor:
    """One elementwise kernel."""
    if x.size == 0:
        return x
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator(name, x)
    return _shaped(_call(name, x if x.ndim else x.reshape(1)), x.shape, x.dtype)


def stored_as(x: Tensor, dtype: Shown) -> Tensor:
    """The value in another storage type, by a kernel on the vector cores."""
    if recording.current() is not None:
        raise Refusal(
            "a recorded function stores its values as its graph says",
            where="stored_as",
            hint="convert tensors outside of it",
        )
    if x.size == 0:
        return _known(x, 0.0, x.shape, dtype)
    made = _call("widen" if dtype == np.float32 else "narrow", x if x.ndim else x.reshape(1))
    return _shaped(made, x.shape, dtype)


@at_users_line
def binary(name: str, a: Any, b: Any) -> Tensor:
    """a op b for add, sub, mul, div, maximum, minimum with numpy's broadcasting.

    A Python or numpy scalar becomes a kernel constant (E8M15). An operand that repeats along the other's last
    axes goes to a row kernel as a shared vector when the other is at hand in row order. Anything else is
    stretched: straight into the other operand's order from the host, or, if a kernel computed it, by a
    counted relayout.
    """
    where = _SYMBOL.get(name, name)
    if is_scalar(b):
        x = as_tensor(a, where=where)
        value = reciprocal_constant(b, where) if name == "div" else constant(b, where)
        return _with_constant(_SCALAR_RIGHT[name], x, -value if name == "sub" else value)
    if is_scalar(a):
        return _with_constant(_SCALAR_LEFT[name], as_tensor(b, where=where), constant(a, where))
    x, y = _pair(a, b, where)
    dtype = result_dtype(x.dtype, y.dtype)
    shape = shapes.broadcast(x.shape, y.shape, where)
    size = shapes.size_of(shape)
    if size == 0:
        return _known(x, 0.0, shape, dtype)
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator(name, x, y)
    if x.size < size or y.size < size:
        by_row = _by_row(name, x, y, size, shape)
        if by_row is not None:
            return _shaped(by_row, shape, dtype)
    flat = shape or (1,)
    return _shaped(_call(name, x.broadcast_to(shape).reshape(flat), y.broadcast_to(shape).reshape(flat)), shape, dtype)


def _with_constant(kernel: str, x: Tensor, value: float) -> Tensor:
    if x.size == 0:
        return x
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator(kernel, x, value=value)
    return _shaped(_call(kernel, x if x.ndim else x.reshape(1), value=value), x.shape, x.dtype)


def _by_row(name: str, x: Tensor, y: Tensor, size: int, shape: Shape) -> Tensor | None:
    """The row kernel's result if one operand is full and the other repeats along its last axes, else None."""
    if name not in _ROW_KERNEL:
        return None
    if x.size < size and name in _COMMUTES:
        x, y = y, x
    if x.size < size:
        return None
    if y.size == 1:
        y = y.reshape(1).broadcast_to(shape[-1:])
    cols = shapes.trailing(y.shape, shape)
    if cols is None or not x.rows_at_hand(size // cols, cols):
        return None
    return _call(_ROW_KERNEL[name], x.reshape(size // cols, cols), y.reshape(cols))


@at_users_line
def matmul(a: Any, b: Any) -> Tensor:
    """Contract the last axis of both operands: `a @ b.T` in numpy terms.

    (M, K) @ (N, K) -> (M, N). A 1-D operand is one row and its axis is absent from the result. Leading axes
    are a batch and broadcast; a 2-D `b` is shared by all of `a`, whose leading axes then are just more rows.
    Refused: different K, scalars. Raises Fault 0x10 for a NaN or Inf operand unless the policy is "count".
    """
    if is_scalar(a) or is_scalar(b):
        raise Refusal("a matmul contracts an axis of both operands", where="@", got="a scalar", hint="use *")
    x, y = _pair(a, b, "@")
    if not x.ndim or not y.ndim:
        raise Refusal("a matmul contracts an axis of both operands", where="@", got=f"{x.shape} @ {y.shape}")
    depth = x.shape[-1]
    if y.shape[-1] != depth:
        numpy_style = y.ndim > 1 and y.shape[-2] == depth
        raise Refusal(
            "@ contracts the LAST axis of both operands, which have one length",
            where="@",
            got=f"{x.shape} @ {y.shape}",
            hint="the right operand is stored [N][K]: pass it transposed, as b.T" if numpy_style else "",
        )
    dtype = result_dtype(x.dtype, y.dtype)
    rows, cols = (x.shape[-2] if x.ndim > 1 else 1), (y.shape[-2] if y.ndim > 1 else 1)
    batch = shapes.broadcast(x.shape[:-2], y.shape[:-2], "@")
    shape = (*batch, *x.shape[-2:-1], *y.shape[-2:-1])
    if shapes.size_of(shape) == 0 or depth == 0:
        return _known(x, 0.0, shape, dtype)
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator("matmul", x, y)
    x2, y2 = x.reshape(*x.shape[:-2], rows, depth), y.reshape(*y.shape[:-2], cols, depth)
    try:
        return _shaped(_contract(x2, y2, batch), shape, dtype)
    except Fault as fault:
        if fault.code != NONFINITE_FAULT:
            raise
        raise explain_nonfinite(fault, x, y) from fault


def _contract(x: Tensor, y: Tensor, batch: Shape) -> Tensor:
    """x (..., M, K) with y (..., N, K): one product where one operand is shared, a batch of products
    otherwise."""
    rows, depth = x.shape[-2:]
    cols = y.shape[-2]
    if shapes.size_of(y.shape[:-2]) == 1:
        return _call("matmul", x.reshape(-1, depth), y.reshape(cols, depth))
    if rows == 1 and shapes.size_of(x.shape[:-2]) == 1:
        # One vector against a stack: the stack's rows are rows of one product, already in the result's order.
        return _call("matmul", y.reshape(-1, depth), x.reshape(1, depth))
    x3 = x.broadcast_to((*batch, rows, depth)).reshape(-1, rows, depth)
    y3 = y.broadcast_to((*batch, cols, depth)).reshape(-1, cols, depth)
    return _call("batched_matmul", x3, y3)


def explain_nonfinite(fault: Fault, *operands: Tensor) -> Fault:
    """The quantiser's fault again, naming the first NaN or Inf of the operands: index and value."""
    element = ""
    for operand in operands:
        found = operand.storage.first_nonfinite()
        if found is not None:
            index = ", ".join(str(int(i)) for i in np.unravel_index(found[0], operand.shape))
            element = f": element [{index}] of a {operand.shape} operand is {found[1]}"
            break
    return Fault(
        f"the matmul format has no NaN or Inf (datasheet 2.2){element}",
        unit=fault.unit,
        index=fault.index,
        disassembly=fault.disassembly,
        code=fault.code,
        hint='clean the data, or run under ktpu.nonfinite("count") to let the quantiser read it as a number',
        source=fault.source,
    )


def _row_form(x: Tensor, where: str) -> Tensor:
    if not x.ndim:
        raise Refusal("a row operator works along the last axis", where=where, got="a tensor without axes")
    return x.reshape(shapes.size_of(x.shape[:-1]), x.shape[-1])


@at_users_line
def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """e^(x - max) / sum along one axis."""
    if not x.ndim:
        raise Refusal("a row operator works along the last axis", where="softmax", got="a tensor without axes")
    (chosen,) = shapes.normalise_axes(axis, x.ndim, "softmax")
    if x.size == 0:
        return x
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator("softmax", x, axis=chosen)
    if chosen != x.ndim - 1:
        order = (*(i for i in range(x.ndim) if i != chosen), chosen)
        return softmax(x.transpose(*order)).transpose(*(order.index(i) for i in range(x.ndim)))
    return _shaped(_call("softmax", _row_form(x, "softmax")), x.shape, x.dtype)


def _row_vector(value: Any, x: Tensor, where: str) -> Tensor:
    vector = _pair(x, value, where)[1]
    if vector.shape != x.shape[-1:]:
        raise Refusal(
            "a norm's weight and bias have the length of the last axis",
            where=where,
            got=vector.shape,
            limit=x.shape[-1:],
        )
    return vector


def _epsilon(eps: Any, where: str) -> float:
    if not is_scalar(eps):
        raise Refusal("eps is a number", where=where, got=repr(eps))
    return constant(eps, where)


@at_users_line
def rmsnorm(x: Tensor, w: Any, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * w along the last axis."""
    rows = _row_form(x, "rmsnorm")
    weight = _row_vector(w, x, "rmsnorm weight")
    dtype = result_dtype(x.dtype, weight.dtype)
    if x.size == 0:
        return _shaped(x, x.shape, dtype)
    small = _epsilon(eps, "rmsnorm eps")
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator("rmsnorm", x, weight, eps=small)
    return _shaped(_call("rmsnorm", rows, weight, eps=small), x.shape, dtype)


@at_users_line
def layernorm(x: Tensor, w: Any, b: Any, eps: float) -> Tensor:
    """(x - mean) / sqrt(var + eps) * w + b along the last axis."""
    rows = _row_form(x, "layernorm")
    weight, bias = _row_vector(w, x, "layernorm weight"), _row_vector(b, x, "layernorm bias")
    dtype = result_dtype(x.dtype, weight.dtype, bias.dtype)
    if x.size == 0:
        return _shaped(x, x.shape, dtype)
    small = _epsilon(eps, "layernorm eps")
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator("layernorm", x, weight, bias, eps=small)
    return _shaped(_call("layernorm", rows, weight, bias, eps=small), x.shape, dtype)


@at_users_line
def reduce(name: str, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """sum, max, min or mean over axes as numpy counts them; None is all of them.

    Neighbouring axes that are not last are reduced as columns, others are moved last first; a large tensor is reduced
    as a whole by all cores (FP32 by one: its partial results are not turned into a row). Over no element a sum is 0 and
    a mean NaN; max and min are refused.
    """
    axes = shapes.normalise_axes(axis, x.ndim, name)
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes)
    length = shapes.size_of(tuple(x.shape[i] for i in axes))
    rows = shapes.size_of(tuple(x.shape[i] for i in kept))
    if rows == 0:
        return _known(x, 0.0, shape, x.dtype)
    if length == 0:
        if name in ("max", "min"):
            raise Refusal(f"{name} needs at least one element", where=name, got=f"shape {x.shape}, axes {axes}")
        return _known(x, 0.0 if name == "sum" else np.nan, shape, x.dtype)
    if length == 1:
        return Tensor(x.storage, shape, x.dtype)
    recorder = recording.current()
    if recorder is not None:
        return recorder.operator(name, x, axes=axes, keepdims=keepdims)
    if axes == tuple(range(axes[0], axes[0] + len(axes))):
        behind = shapes.size_of(x.shape[axes[-1] + 1 :])
        if behind > 1:
            return _shaped(_call(f"col_{name}", x.reshape(rows // behind, length, behind)), shape, x.dtype)
        whole = _rows_for_all_cores(x) if rows == 1 else None
        if whole is not None:
            return _shaped(_call(f"full_{name}", x.reshape(*whole)), shape, x.dtype)
    moved = x.transpose(*kept, *axes) if x.ndim else x
    return _shaped(_call(f"row_{name}", moved.reshape(rows, length)), shape, x.dtype)


def _rows_for_all_cores(x: Tensor) -> Shape | None:
    """Rows and columns under which all cores share the reduction of a whole tensor: its own last axis, or a cut at
    memory words; None where it is too small to be shared."""
    if x.size < SHARED or x.storage.element == FP32:
        return None
    widths = [x.shape[-1], *(n for n in (1024, 512, 256, 128) if x.size % n == 0 and x.shape[-1] % WORD_ELEMENTS == 0)]
    found = next((n for n in widths if 128 <= n <= 8192 and x.size // n >= ROWS_TO_SHARE), None)
    return None if found is None else (x.size // found, found)
